"""A ClickHouse for the tests: its own engine, with an HTTP front of ours (``server``).

The engine is fetched with the first test that asks for it (173 MB, into the cache).
"""

import hashlib
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clickhouse_connect
import msgspec
import pyarrow as pa
from clickhouse_connect.driver.client import Client

from libs.clickhouse.names import DATABASE_TEMPLATE, database_name, literal, quoted
from libs.servers.ports import LOOPBACK
from libs.servers.process import ProcessSpec, Running, kill, start, wait_ready
from libs.setup import python_packages
from libs.setup.cache import cache_dir, locked, staged_dir
from libs.types.warehouse import WarehouseTable
from spark.sinks.clickhouse.settings import Settings

REPOSITORY = Path(__file__).parents[2]
PROBE_TIMEOUT_S = 5.0
READY_TIMEOUT_S = 240.0


@dataclass(slots=True)
class ClickhouseServer:
    """A warehouse that lets everybody in, or those of a file."""

    port: int
    running: Running
    login: tuple[str, str] | None = None
    """User and password of the tests' own connections; None: nobody is asked."""

    def kill(self) -> None:
        """As a power cut would."""
        kill(self.running)

    def restart(self) -> None:
        """On the same data and port, after ``kill``; returns when it serves."""
        self.running = start(self.running.spec, self.running.log_path.parent, dies_with_parent=True)
        wait_ready(self.running, READY_TIMEOUT_S)

    def client(self) -> Client:
        """A new one."""
        user, password = self.login or ("default", "")
        return clickhouse_connect.get_client(
            host=LOOPBACK, port=self.port, username=user, password=password, autogenerate_session_id=False
        )

    def execute(self, *statements: str) -> Any:
        """Run ``statements``; returns the last one's answer."""
        client = self.client()
        try:
            return [client.command(statement) for statement in statements][-1]
        finally:
            client.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a SELECT."""
        client = self.client()
        try:
            return [tuple(row) for row in client.query(query).result_rows]
        finally:
            client.close()


def prepare(data_dir: Path, *, port: int, users_file: Path | None = None) -> ProcessSpec:
    """How to start it on ``data_dir``. Fetches the engine where the cache has none. ``users_file``: see ``server``."""
    return ProcessSpec(
        name="clickhouse",
        command=(
            *(sys.executable, "-m", "tests.clickhouse.server"),
            *("--data", str(data_dir.absolute()), "--port", str(port)),
            *(() if users_file is None else ("--users", str(users_file.absolute()))),
        ),
        environ={"PYTHONPATH": f"{REPOSITORY}:{_engine()}"},
        working_dir=data_dir.absolute().parent,
        ready=lambda: _serves(port),
    )


def settings_of(server: ClickhouseServer, **more: Any) -> Settings:
    """Where ``server`` is; ``more`` wins."""
    return Settings(**{"host": LOOPBACK, "port": server.port, **more})


def place_of(table: WarehouseTable) -> str:
    """Where the sink puts a table, quoted."""
    return quoted(database_name(DATABASE_TEMPLATE, table), table.name)


def arrow_table(server: ClickhouseServer, table: WarehouseTable) -> pa.Table:
    """A table's rows as ClickHouse gives them to a query with FINAL; texts as texts, long numbers too."""
    database, name = database_name(DATABASE_TEMPLATE, table), table.name
    where = f"database = {literal(database)} AND name = {literal(name)}"
    [[engine, comment]] = server.rows(f"SELECT engine, comment FROM system.tables WHERE {where}")
    client = server.client()
    try:
        found = client.query_arrow(
            f"SELECT * FROM {quoted(database, name)}{' FINAL' if engine == 'ReplacingMergeTree' else ''}",
            settings={
                "output_format_arrow_string_as_string": 0,
                "output_format_arrow_low_cardinality_as_dictionary": 0,
            },
        )
    finally:
        client.close()
    types = msgspec.json.decode(comment)["types"]
    columns = [_told(found[column], types.get(column, "string")) for column in found.column_names]
    return pa.table(columns, names=found.column_names)


def rows_of(server: ClickhouseServer, table: WarehouseTable) -> list[dict[str, Any]]:
    """The same as Python's values."""
    return arrow_table(server, table).to_pylist()


def _told(column: pa.ChunkedArray, own_type: str) -> pa.ChunkedArray:
    if pa.types.is_decimal256(column.type):
        return pa.chunked_array(
            [[None if value is None else f"{value:f}" for value in column.to_pylist()]], pa.string()
        )
    if pa.types.is_binary(column.type) and own_type != "binary":
        return column.cast(pa.string())
    if own_type == "timestamp_ntz":
        return column.cast(pa.timestamp("us"))
    return column


def _engine() -> Path:
    lock = REPOSITORY / "requirements" / "clickhouse.txt"
    folder = cache_dir() / "clickhouse" / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    with locked(cache_dir() / "clickhouse.lock"):
        if not folder.is_dir():
            with staged_dir(folder) as staging:
                python_packages.install_beside(cache_dir(), REPOSITORY, "clickhouse", staging)
    return folder


def _serves(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/ping", timeout=PROBE_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
