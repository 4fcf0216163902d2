"""Tenants whose sink is a query of the test's own session, on each kind of warehouse."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from libs.config.connections import KafkaSettings
from libs.mysql.logical import column
from libs.operations.dead_letters import StoredLetter, chosen_keys, read_letters, replay_requests, send_requests
from libs.sink_state.parked_keys import TenantParkedKeys, decode_parked_keys, parked_keys_path
from libs.sink_state.progress import SinkProgress
from libs.types.table import TableSchema
from libs.types.tenant import SinkSettings, SourceSelection, TenantSpec
from libs.types.warehouse import WarehouseTable, warehouse_table
from spark.pending.progress import load_progress
from spark.settings import SinkJobSettings
from spark.sinks.clickhouse.sink import open_sink as open_clickhouse_sink
from spark.sinks.delta.sink import open_sink as open_delta_sink
from spark.sinks.port import Sink
from spark.sinks.postgresql.sink import open_sink as open_postgresql_sink
from spark.tenant.query import TenantQuery
from tests import clickhouse
from tests.clickhouse import ClickhouseServer
from tests.conftest import PostgresqlServer
from tests.contract.test_sinks import delta_rows, postgresql_rows, postgresql_settings
from tests.sink_query import is_noted, run_until
from tests.sink_topics import SOURCE, TenantTopics, Transaction, table_id, without_own_columns
from tests.spark_session import session_settings, shared_spark

ID = column("id", "int", is_optional=False)
NOTE = column("note", "varchar(40)", charset="utf8mb4")
AMOUNT = column("n", "int")


@dataclass(slots=True)
class Tenant:
    """One tenant whose query can be stopped and started."""

    sink: Sink
    topics: TenantTopics
    settings: SinkJobSettings
    spec: TenantSpec
    read_rows: Callable[[WarehouseTable], list[dict[str, Any]]]
    query: TenantQuery | None = None

    @property
    def progress(self) -> SinkProgress:
        return load_progress(Path(self.settings.state_dir), self.spec.tenant)

    @property
    def done(self) -> int:
        """How many events are in the warehouse, or are set aside."""
        progress = self.progress
        return progress.rows + sum(table.dead_letters for table in progress.tables.values())

    @property
    def parked(self) -> TenantParkedKeys:
        path = parked_keys_path(Path(self.settings.state_dir), self.spec.tenant)
        return decode_parked_keys(path.read_bytes()) if path.exists() else TenantParkedKeys(tenant=self.spec.tenant)

    @property
    def letters(self) -> list[StoredLetter]:
        return read_letters(self.settings.kafka, self.spec.tenant, self.parked)

    def rows(self, table: str = "orders") -> list[dict[str, Any]]:
        return without_own_columns(self.read_rows(warehouse_table(self.spec.tenant, SOURCE, table_id(table))))

    def write(self, schema: TableSchema, *changes: dict[str, Any], op: str = "u") -> None:
        """One transaction."""
        with self.topics.transaction() as transaction:
            for row in changes:
                change(transaction, schema, op, row)

    def run_until(self, holds: Callable[["Tenant"], bool]) -> None:
        """Let a query work, as a start of the job would find it, until ``holds``. Fails on a timeout."""
        self.query = TenantQuery(shared_spark().session, self.settings, self.spec, self.sink)
        run_until(self.query, lambda: holds(self), why=lambda: (self.progress, self.parked))

    def run_until_done(self, events: int) -> None:
        """Until so many events are in the warehouse, or are set aside."""

        self.run_until(lambda tenant: tenant.done >= events)

    def run_until_noted(self, events: int) -> None:
        """Stop after a whole micro-batch. One that Spark has not noted is asked of Kafka once more by the next query."""

        def is_done(tenant: "Tenant") -> bool:
            progress = tenant.progress
            return progress.rows >= events and is_noted(
                tenant.settings.state_dir, tenant.spec.tenant, progress.batch_id
            )

        self.run_until(is_done)

    def replay(self, *event_keys: str, leave_out_refused: bool = False, until_done: int = 0) -> tuple[int, int]:
        """How many keys were met, and how many of them were refused again. ``until_done``: so many events are done by then."""
        chosen = chosen_keys(self.parked, sorted(self.parked.tables), event_keys)
        requests = replay_requests(chosen, leave_out_refused=leave_out_refused)
        send_requests(self.settings.kafka, self.spec.tenant, requests)

        def answers(tenant: "Tenant") -> dict[str, Any]:
            return {name: answer for table in tenant.parked.tables.values() for name, answer in table.answers.items()}

        def is_answered(tenant: "Tenant") -> bool:
            found = answers(tenant)
            return all(
                request.id in found and tenant.progress.batch_id >= found[request.id].batch_id for request in requests
            )

        self.run_until(lambda tenant: is_answered(tenant) and tenant.done >= until_done)
        found = [answers(self)[request.id] for request in requests]
        return sum(answer.keys for answer in found), sum(answer.refused for answer in found)


def change(transaction: Transaction, schema: TableSchema, op: str, row: dict[str, Any]) -> None:
    is_delete = op == "d"
    transaction.change(schema, op=op, before=row if is_delete else None, after=None if is_delete else row)


StartTenant = Callable[..., Tenant]


def start_tenants(bootstrap_servers: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartTenant]:
    """Yields a function that makes tenants of a warehouse, with topics of their tables; then stops their queries."""
    tenants: list[Tenant] = []

    def start(kind: str, *tables: TableSchema, max_parked_keys: int = 1_000, **sink: Any) -> Tenant:
        name = f"d{secrets.token_hex(3)}"
        spec = TenantSpec(
            tenant=name,
            sources=(SourceSelection(name=SOURCE),),
            sink=SinkSettings(warehouse=kind, trigger_s=0.5, **sink),
        )
        settings = SinkJobSettings(
            tenants_dir="unused",
            kafka=KafkaSettings(bootstrap_servers=bootstrap_servers),
            warehouses={},
            state_dir=str(tmp_path / "state"),
            session=session_settings(tmp_path),
            max_parked_keys=max_parked_keys,
        )
        opened, read_rows = _opened(kind, request)
        tenant = Tenant(opened, TenantTopics(bootstrap_servers, name), settings, spec, read_rows)
        for schema in tables:
            tenant.topics.create_table(schema)
        with tenant.topics.transaction() as first:
            for schema in tables:
                first.schema(schema)
        tenants.append(tenant)
        return tenant

    yield start
    for tenant in tenants:
        if tenant.query is not None:
            tenant.query.stop()


def _opened(kind: str, request: pytest.FixtureRequest) -> tuple[Sink, Callable[[WarehouseTable], list[dict[str, Any]]]]:
    shared = shared_spark()
    match kind:
        case "clickhouse":
            clickhouse_server: ClickhouseServer = request.getfixturevalue("clickhouse_server")
            sink = open_clickhouse_sink(clickhouse.settings_of(clickhouse_server))
            return sink, lambda table: clickhouse.rows_of(clickhouse_server, table)
        case "iceberg":
            return shared.sink, shared.rows
        case "delta":
            return open_delta_sink(shared.delta), lambda table: delta_rows(shared.delta, table)
        case _:
            server: PostgresqlServer = request.getfixturevalue("postgresql_server")
            return open_postgresql_sink(postgresql_settings(server)), lambda table: postgresql_rows(server, table)


def orders(*, name: str = "orders", key: tuple[str, ...] = ("id",), version: int = 1) -> TableSchema:
    return TableSchema(table_id=table_id(name), columns=(ID, NOTE, AMOUNT), key=key, version=version)


def row(key: int, note: str, n: Any) -> dict[str, Any]:
    return {"id": key, "note": note, "n": n}
