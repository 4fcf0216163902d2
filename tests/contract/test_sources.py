"""Every kind of source keeps the promises of ``libs.testing.source_contract``."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest

from libs.config.connections import GrpcClientSettings, KafkaSettings
from libs.errors import PositionPurged
from libs.kafka.clients import TopicSpec, ensure_topics
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.kinds import READER_OF_KIND
from libs.source.port import Source
from libs.source.vitess.settings import VtgateSettings
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.server import listening
from libs.stand_ins.vtgate.client import execute
from libs.stand_ins.vtgate.cluster import on_every_shard
from libs.stand_ins.vtgate.service import VtgateServer
from libs.stand_ins.vtgate.topology import Tablet
from libs.testing import source_contract as contract
from services.binlog_reader.settings import BinlogReaderSettings, DatabaseSettings
from services.binlog_reader.source import BinlogSource
from services.dts_decoder.settings import DtsDecoderSettings, SubscriptionSettings
from services.dts_decoder.source import DtsSource
from services.vstream_reader.settings import VstreamReaderSettings
from services.vstream_reader.source import VstreamSource
from tests.conftest import KafkaBroker, MysqlServer, StartVtgate, start_mysql_in
from tests.integration.dts_stand_in import delete_records, stand_in
from tests.integration.service_process import Services
from tests.oracle.harness import USERS, OracleHarness

pytestmark = pytest.mark.servers


class MysqlHarness:
    """A database of its own on a server whose log nobody else reads."""

    def __init__(self, server: MysqlServer, schema_history: SchemaHistoryClient, name: str) -> None:
        self._server = server
        self._schema_history = schema_history
        self._name = name
        server.execute(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v VARCHAR(300))")

    def source(self) -> Source:
        unused = GrpcClientSettings(address="127.0.0.1:1")
        settings = BinlogReaderSettings(
            source=self._name,
            database=DatabaseSettings(host=self._server.host, port=self._server.port, user="root"),
            replica_server_id=8_001,
            include_tables=(rf"{self._name}\.t",),
            schema_history=unused,
            checkpoint_committer=unused,
        )
        return BinlogSource(settings, self._schema_history)

    async def insert(self, first: int, last: int) -> None:
        rows = ",".join(f"({row_id}, REPEAT('v', 200))" for row_id in range(first, last + 1))
        await self._execute(f"INSERT INTO t (id, v) VALUES {rows}")

    async def change_and_delete(self, row_id: int) -> None:
        await self._execute(f"UPDATE t SET v = 'changed' WHERE id = {row_id}", f"DELETE FROM t WHERE id = {row_id}")

    async def add_column_and_insert(self, column: str, row_id: int) -> None:
        await self._execute(f"ALTER TABLE t ADD COLUMN {column} INT", f"INSERT INTO t VALUES ({row_id}, 'v', 1)")

    async def purge_log(self) -> None:
        await self._execute("FLUSH BINARY LOGS")
        (*_, newest) = self._server.execute("SHOW BINARY LOGS")
        await self._execute(f"PURGE BINARY LOGS TO '{newest[0]}'")

    async def open_connections(self) -> int:
        rows = self._server.execute("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'root'")
        return int(rows[0][0])

    async def _execute(self, *statements: str) -> None:
        await asyncio.to_thread(self._server.execute, *statements, database=self._name)


class DtsHarness(MysqlHarness):
    """The same, its changes by way of a topic that the stand-in writes in Tencent's role."""

    def __init__(
        self, server: MysqlServer, schema_history: SchemaHistoryClient, name: str, bootstrap_servers: str
    ) -> None:
        super().__init__(server, schema_history, name)
        self._bootstrap_servers = bootstrap_servers
        self._topic = f"topic-subs-{name}"
        ensure_topics(KafkaSettings(bootstrap_servers=bootstrap_servers), [TopicSpec(name=self._topic)])
        self._producer = stand_in(server, bootstrap_servers, self._topic)

    def source(self) -> Source:
        unused = GrpcClientSettings(address="127.0.0.1:1")
        settings = DtsDecoderSettings(
            source=self._name,
            subscription=SubscriptionSettings(
                bootstrap_servers=self._bootstrap_servers, topic=self._topic, group_id=f"consumer-grp-{self._name}"
            ),
            database=DatabaseSettings(host=self._server.host, port=self._server.port, user="root"),
            include_tables=(rf"{self._name}\.t",),
            schema_history=unused,
            checkpoint_committer=unused,
        )
        return DtsSource(settings, self._schema_history)

    async def purge_log(self) -> None:
        await asyncio.to_thread(delete_records, self._bootstrap_servers, self._topic)

    async def open_connections(self) -> int:
        rows = self._server.execute(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'root' AND COMMAND NOT LIKE 'Binlog Dump%'"
        )
        return int(rows[0][0])

    def close(self) -> None:
        self._producer.stop()


class VitessHarness:
    """A keyspace of one shard, a real MySQL server, served by the stand-in for vtgate. Between shards there is no order that
    could be promised."""

    def __init__(self, vtgate: VtgateServer, schema_history: SchemaHistoryClient, name: str) -> None:
        self._vtgate = vtgate
        self._schema_history = schema_history
        self._name = name
        self._keyspace = vtgate.topology.keyspaces[0].name
        on_every_shard(vtgate.topology, self._keyspace, ["CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(300))"])

    def source(self) -> Source:
        unused = GrpcClientSettings(address="127.0.0.1:1")
        settings = VstreamReaderSettings(
            source=self._name,
            vtgate=VtgateSettings(host="127.0.0.1", port=int(self._vtgate.address.rpartition(":")[2])),
            keyspace=self._keyspace,
            include_tables=(rf"{self._keyspace}\.t",),
            schema_history=unused,
            checkpoint_committer=unused,
        )
        return VstreamSource(settings, self._schema_history)

    async def insert(self, first: int, last: int) -> None:
        rows = ",".join(f"({row_id}, REPEAT('v', 200))" for row_id in range(first, last + 1))
        (shard,) = self._vtgate.topology.serving(self._keyspace)
        await asyncio.to_thread(shard.primary.execute, f"INSERT INTO t (id, v) VALUES {rows}")

    async def change_and_delete(self, row_id: int) -> None:
        await self._execute(f"UPDATE t SET v = 'changed' WHERE id = {row_id}", f"DELETE FROM t WHERE id = {row_id}")

    async def add_column_and_insert(self, column: str, row_id: int) -> None:
        alter = f"ALTER TABLE t ADD COLUMN {column} INT"
        await asyncio.to_thread(on_every_shard, self._vtgate.topology, self._keyspace, [alter])
        await self._execute(f"INSERT INTO t (id, v, {column}) VALUES ({row_id}, 'v', 1)")

    async def purge_log(self) -> None:
        for shard in self._vtgate.topology.serving(self._keyspace):
            await asyncio.to_thread(_purge, shard.primary)

    async def open_connections(self) -> int:
        """Of the stand-in, on behalf of its readers."""
        return sum(
            [
                int(str(rows[0][0]))
                for shard in self._vtgate.topology.serving(self._keyspace)
                for rows in [await asyncio.to_thread(shard.primary.execute, _COUNT_DUMPS)]
            ]
        )

    async def _execute(self, *statements: str) -> None:
        for statement in statements:
            await asyncio.to_thread(execute, self._vtgate, statement, self._keyspace)


_COUNT_DUMPS = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'"


def _purge(tablet: Tablet) -> None:
    tablet.execute("FLUSH BINARY LOGS")
    (*_, newest) = tablet.execute("SHOW BINARY LOGS")
    tablet.execute(f"PURGE BINARY LOGS TO '{newest[0]}'")


@pytest.fixture(scope="module")
def purged_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MysqlServer]:
    """One whose log these tests purge and whose connections they count."""
    with ExitStack() as servers:
        yield start_mysql_in(tmp_path_factory.mktemp("purged"), servers)


@pytest.fixture(params=sorted(READER_OF_KIND))
async def harness(
    request: pytest.FixtureRequest,
    services: Services,
    kafka_broker: KafkaBroker,
    start_vtgate: StartVtgate,
    unique_name: Callable[[str], str],
) -> AsyncIterator[contract.SourceHarness]:
    async with SchemaHistoryClient(services.schema_history.client_settings) as client:
        name = unique_name("source")
        match request.param:
            case "mysql":
                yield MysqlHarness(request.getfixturevalue("purged_server"), client, name)
            case "vitess":
                yield VitessHarness(start_vtgate(shards=("0",)), client, name)
            case "dts":
                dts = DtsHarness(request.getfixturevalue("purged_server"), client, name, kafka_broker.bootstrap_servers)
                yield dts
                dts.close()
            case "oracle":
                database = ModelDatabase(Model(clock=lambda: datetime.now(UTC).replace(tzinfo=None)), USERS)
                with listening(database) as listener:
                    yield OracleHarness(database, listener, client, name)


@pytest.mark.promise("every source")
async def test_existing_rows_come_first_then_changes(harness: contract.SourceHarness) -> None:
    """Snapshot rows, then changes, with growing orders."""
    await contract.existing_rows_come_first_then_changes(harness)


async def test_reading_resumes_without_gap_or_repeat(harness: contract.SourceHarness) -> None:
    """The events after a resume point are exactly those that were not read before it."""
    await contract.reading_resumes_without_gap_or_repeat(harness)


async def test_a_replay_carries_the_same_orders(harness: contract.SourceHarness) -> None:
    """Rows, orders and schema versions depend on nothing but the log."""
    await contract.a_replay_carries_the_same_orders(harness)


async def test_no_resume_point_lies_inside_a_transaction(harness: contract.SourceHarness) -> None:
    """A transaction of 20,000 rows is cut into batches, and resumed from at its end only."""
    await contract.no_resume_point_lies_inside_a_transaction(harness)


async def test_a_purged_position_halts(harness: contract.SourceHarness) -> None:
    """PositionPurged, with the remedy."""
    await contract.a_purged_position_halts(harness, PositionPurged)


async def test_closing_releases_every_connection(harness: contract.SourceHarness) -> None:
    """Nothing is left at the database."""
    await contract.closing_releases_every_connection(harness)
