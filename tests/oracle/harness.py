"""The stand-in as a source of ``libs.testing.source_contract``."""

import asyncio

import oracledb

from libs.config.connections import GrpcClientSettings
from libs.config.load import Secret
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.oracle.settings import MiningSettings, OracleDatabaseSettings
from libs.source.port import Source
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.server import Listener
from services.logminer_reader.settings import LogminerReaderSettings
from services.logminer_reader.source import OracleSource

USERS = {"C##HEADWATER": "secret", "SHOP": "secret"}


class OracleHarness:
    """A database with one table. An application writes SQL by a connection of its own."""

    def __init__(
        self, database: ModelDatabase, listener: Listener, schema_history: SchemaHistoryClient, name: str
    ) -> None:
        self._database = database
        self._listener = listener
        self._schema_history = schema_history
        self._name = name
        self._run('CREATE TABLE SHOP.T ("id" NUMBER(9) PRIMARY KEY, "v" VARCHAR2(300))')

    def source(self) -> Source:
        unused = GrpcClientSettings(address="127.0.0.1:1")
        settings = LogminerReaderSettings(
            source=self._name,
            database=OracleDatabaseSettings(
                host="127.0.0.1",
                port=self._listener.port,
                service_name=self._database.name,
                user="C##HEADWATER",
                password=Secret("secret"),
            ),
            mining=MiningSettings(min_pause_s=0.05),
            include_tables=(r"SHOP\.T",),
            schema_history=unused,
            checkpoint_committer=unused,
        )
        return OracleSource(settings, self._schema_history)

    async def insert(self, first: int, last: int) -> None:
        await asyncio.to_thread(self._insert, first, last)

    async def change_and_delete(self, row_id: int) -> None:
        await asyncio.to_thread(self._run, f'UPDATE SHOP.T SET "v" = \'changed\' WHERE "id" = {row_id}')
        await asyncio.to_thread(self._run, f'DELETE FROM SHOP.T WHERE "id" = {row_id}')

    async def add_column_and_insert(self, column: str, row_id: int) -> None:
        await asyncio.to_thread(self._run, f'ALTER TABLE SHOP.T ADD ("{column}" NUMBER(9))')
        await asyncio.to_thread(self._run, f'INSERT INTO SHOP.T ("id", "v", "{column}") VALUES ({row_id}, \'v\', 1)')

    async def purge_log(self) -> None:
        thread = self._database.model.thread
        for _ in range(thread.groups + 1):
            self._database.model.switch_logs()
        for log in thread.logs:
            log.deleted_from.update(range(1, thread.destinations + 1))

    async def open_connections(self) -> int:
        return self._listener.connections

    def _run(self, statement: str) -> None:
        with self._connect() as connection:
            connection.cursor().execute(statement)
            connection.commit()

    def _insert(self, first: int, last: int) -> None:
        """Without SQL: the stand-in takes a minute for 20,000 rows by statements."""
        table = self._database.model.tables["SHOP", "T"]
        transaction = self._database.model.begin("SHOP")
        with self._database.model.lock:
            for row_id in range(first, last + 1):
                row = {column.name: None for column in table.named.columns}
                transaction.insert(table, row | {"id": row_id, "v": "v" * 200})
            transaction.commit()

    def _connect(self) -> oracledb.Connection:
        return oracledb.connect(user="SHOP", password="secret", dsn=self._listener.dsn)
