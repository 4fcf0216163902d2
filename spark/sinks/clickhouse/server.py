"""One ClickHouse server: statements and questions, with its errors as ours."""

import threading
from collections.abc import Sequence
from typing import Any, Final

from clickhouse_connect.driver.client import Client

from libs.clickhouse.connection import connect
from libs.clickhouse.names import STATE_DATABASE, database_name, literal, quoted
from libs.errors import PipelineHalted
from libs.types.warehouse import WarehouseTable
from spark.sinks.clickhouse.client import errors_named
from spark.sinks.clickhouse.notes_schema import NOTES_SCHEMA
from spark.sinks.clickhouse.settings import Settings
from spark.sinks.port import TableRefused

_DAYS: Final = ("0001-01-01", "9999-12-31")
"""The ends of MySQL's DATE; older ClickHouse makes other days of them, in silence."""


class Server:
    """Reached for when it is first asked. Safe from any thread.

    Each question and statement raises TableRefused where ClickHouse lastingly refuses it on its subject, a table, alone; and
    TransientError, AccessDenied, DiskFull, PipelineHalted (``libs.errors``).
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._client: Client | None = None

    def client(self) -> Client:
        """The client that all threads use; makes Headwater's state when it is new."""
        with self._lock:
            if self._client is None:
                client = connect(self.settings, application="headwater-sink")
                with errors_named(self.settings, STATE_DATABASE):
                    days = ", ".join(f"toString(toDate32({literal(day)}))" for day in _DAYS)
                    if tuple(client.query(f"SELECT {days}").result_rows[0]) != _DAYS:
                        raise PipelineHalted(
                            f"ClickHouse {self.settings.host}:{self.settings.port}: version {client.server_version} has no "
                            "days before 1900 and after 2299 and would make others of them; take one that has (26.9 does)"
                        )
                    for statement in NOTES_SCHEMA:
                        client.command(statement)
                self._client = client
            return self._client

    def run(self, subject: WarehouseTable | str, *statements: str) -> None:
        """One statement after the other; ``subject``: see ``errors_named``."""
        client = self.client()
        with errors_named(self.settings, subject):
            for statement in statements:
                client.command(statement)

    def rows(self, query: str, *, subject: WarehouseTable | str = STATE_DATABASE) -> Sequence[Sequence[Any]]:
        """The answer of a query."""
        client = self.client()
        with errors_named(self.settings, subject):
            return client.query(query).result_rows

    def drop(self, *places: str) -> None:
        """Drop tables of Headwater's own database, by their quoted places, and wait until they are gone."""
        for place in places:
            self.run(STATE_DATABASE, f"DROP TABLE IF EXISTS {place} SYNC")

    def is_there(self, table: WarehouseTable) -> bool:
        """Whether any table has the name, also one on which this user has lost all rights and which no list shows."""
        try:
            [[is_there]] = self.rows(f"EXISTS TABLE {self.place(table)}", subject=table)
        except TableRefused:
            return True
        return bool(is_there)

    def place(self, table: WarehouseTable) -> str:
        """Database and table, quoted."""
        return quoted(*self.levels(table))

    def levels(self, table: WarehouseTable) -> tuple[str, str]:
        """Database and table."""
        return database_name(self.settings.database, table), table.name
