"""Rows that a warehouse refuses: set aside as dead letters with their key parked, and taken up again, on real warehouses."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.config.connections import KafkaSettings
from libs.events.dead_letter import SetAsideBy
from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER
from libs.local.dead_letters import (
    StoredLetter,
    chosen_keys,
    plain_key,
    read_letters,
    replay_requests,
    send_requests,
)
from libs.mysql.logical import column
from libs.types.parked_keys import TenantParkedKeys, decode_parked_keys, parked_keys_path
from libs.types.table import TableSchema
from libs.types.tenant import SinkMode, SinkSettings, SourceSelection, TenantSpec
from libs.types.warehouse import SinkProgress, WarehouseTable, warehouse_table
from spark.jobs.progress import load_progress
from spark.jobs.settings import SinkJobSettings
from spark.jobs.tenant_query import TenantQuery
from spark.sinks.delta.sink import open_sink as open_delta_sink
from spark.sinks.port import Sink
from spark.sinks.postgresql.sink import open_sink as open_postgresql_sink
from spark.sinks.registry import SINKS
from tests.conftest import PostgresqlServer
from tests.contract.test_sinks import delta_rows, postgresql_rows, postgresql_settings
from tests.sink_query import run_until
from tests.sink_topics import SOURCE, TenantTopics, Transaction, table_id, without_own_columns
from tests.spark_session import session_settings, shared_spark

pytestmark = pytest.mark.integration

ID = column("id", "int", is_optional=False)
NOTE = column("note", "varchar(40)", charset="utf8mb4")
AMOUNT = column("n", "int")
BAD = "no number"


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
    def parked(self) -> TenantParkedKeys:
        path = parked_keys_path(Path(self.settings.state_dir), self.spec.tenant)
        return decode_parked_keys(path.read_bytes()) if path.exists() else TenantParkedKeys(tenant=self.spec.tenant)

    @property
    def letters(self) -> list[StoredLetter]:
        return read_letters(self.settings.kafka.bootstrap_servers, self.spec.tenant, self.parked)

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

        def is_done(tenant: "Tenant") -> bool:
            progress = tenant.progress
            return progress.rows + sum(table.dead_letters for table in progress.tables.values()) >= events

        self.run_until(is_done)

    def replay(self, *event_keys: str, leave_out_refused: bool = False) -> tuple[int, int]:
        """How many keys were met, and how many of them were refused again."""
        chosen = chosen_keys(self.parked, sorted(self.parked.tables), event_keys)
        requests = replay_requests(chosen, leave_out_refused=leave_out_refused)
        send_requests(self.settings.kafka.bootstrap_servers, self.spec.tenant, requests)

        def answers(tenant: "Tenant") -> dict[str, Any]:
            return {name: answer for table in tenant.parked.tables.values() for name, answer in table.answers.items()}

        def is_answered(tenant: "Tenant") -> bool:
            found = answers(tenant)
            return all(
                request.id in found and tenant.progress.batch_id >= found[request.id].batch_id for request in requests
            )

        self.run_until(is_answered)
        found = [answers(self)[request.id] for request in requests]
        return sum(answer.keys for answer in found), sum(answer.refused for answer in found)


def change(transaction: Transaction, schema: TableSchema, op: str, row: dict[str, Any]) -> None:
    is_delete = op == "d"
    transaction.change(schema, op=op, before=row if is_delete else None, after=None if is_delete else row)


StartTenant = Callable[..., Tenant]


@pytest.fixture(params=sorted(SINKS))
def warehouse(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start_tenant(bootstrap_servers: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartTenant]:
    """Makes tenants of a warehouse, with their topic of orders."""
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


@pytest.mark.timeout(900)
def test_a_refused_row_waits_with_what_comes_behind_it(start_tenant: StartTenant, warehouse: str) -> None:
    """Everything else goes on, also after a restart; a replay takes the key up in order, once its row is mended."""
    schema = orders()
    tenant = start_tenant(warehouse, schema)
    tenant.write(schema, row(1, "one", 1), row(2, "two", 2))
    tenant.run_until_done(2)
    tenant.write(schema, row(2, "bad", BAD), row(3, "three", 3))
    tenant.run_until_done(4)

    assert tenant.rows() == [row(1, "one", 1), row(2, "two", 2), row(3, "three", 3)]
    [progress] = tenant.progress.tables.values()
    assert (progress.parked_keys, progress.dead_letters, progress.rows, progress.parked) == (1, 1, 3, None)
    [stored] = tenant.letters
    letter = stored.letter
    assert (letter.set_aside_by, letter.table, letter.op, letter.behind_offset) == (
        SetAsideBy.SINK,
        "orders",
        "u",
        None,
    )
    assert "column n (int)" in letter.reason
    assert BAD not in letter.reason
    assert letter.event_key is not None
    assert plain_key(letter.event_key) == {"id": 2}
    assert letter.event_value is not None
    assert plain_key(letter.event_value)["after"] == row(2, "bad", BAD)
    assert [name for name, _ in stored.headers] == [ORDER_HEADER, SCHEMA_VERSION_HEADER]

    assert tenant.replay() == (1, 1)
    tenant.write(schema, row(2, "mended", 4), row(1, "uno", 5))
    tenant.run_until_done(6)
    assert tenant.rows() == [row(1, "uno", 5), row(2, "two", 2), row(3, "three", 3)]
    assert [each.letter.behind_offset for each in tenant.letters] == [None, letter.event_offset]
    assert all(each.is_waiting for each in tenant.letters)

    assert tenant.replay('{"id": 2}') == (1, 0)
    assert tenant.rows() == [row(1, "uno", 5), row(2, "mended", 4), row(3, "three", 3)]
    assert [table.parked_keys for table in tenant.progress.tables.values()] == [0]
    assert not any(each.is_waiting for each in tenant.letters)
    tenant.write(schema, row(2, "old", 0), op="d")
    tenant.run_until(lambda tenant: len(tenant.rows()) == 2)
    assert len(tenant.letters) == 2


@pytest.mark.timeout(900)
def test_a_log_has_every_change_but_those_that_are_given_up(start_tenant: StartTenant, warehouse: str) -> None:
    """Each once: of a log every event is needed, so that mending the source is not enough."""
    schema = orders()
    tenant = start_tenant(warehouse, schema, mode=SinkMode.APPEND)
    tenant.write(schema, row(1, "a", 1), row(1, "b", BAD), row(1, "c", 3), row(2, "d", 4))
    tenant.run_until_done(4)
    assert [found["note"] for found in tenant.rows()] == ["a", "d"]
    assert len(tenant.letters) == 2

    assert tenant.replay() == (1, 1)
    tenant.write(schema, row(1, "e", 5), row(2, "f", 6))
    tenant.run_until_done(6)
    assert sorted(found["note"] for found in tenant.rows()) == ["a", "d", "f"]
    assert tenant.replay(leave_out_refused=True) == (1, 0)

    assert sorted(found["note"] for found in tenant.rows()) == ["a", "c", "d", "e", "f"]
    assert tenant.progress.rows == 5


@pytest.mark.timeout(900)
def test_rows_from_before_a_truncation_do_not_come_back(start_tenant: StartTenant) -> None:
    """The truncation is carried out at once, and waits with the parked keys besides."""
    schema = orders()
    tenant = start_tenant("iceberg", schema)
    tenant.write(schema, row(1, "one", 1), row(2, "bad", BAD), row(3, "bad", BAD))
    tenant.run_until_done(3)
    tenant.write(schema, row(2, "good", 2))
    with tenant.topics.transaction() as truncating:
        truncating.change(schema, op="t")
    tenant.write(schema, row(3, "after", 3), row(4, "four", 4))
    tenant.run_until(lambda tenant: tenant.rows() == [row(4, "four", 4)])

    assert tenant.replay() == (2, 0)

    assert tenant.rows() == [row(3, "after", 3), row(4, "four", 4)]


@pytest.mark.timeout(900)
def test_what_postgresql_alone_refuses_is_found_by_its_own_word(start_tenant: StartTenant) -> None:
    """U+0000 and a number that somebody narrowed the column for; PostgreSQL names the column."""
    schema = TableSchema(
        table_id=table_id("orders"), columns=(ID, NOTE, column("big", "decimal(50,2)")), key=("id",), version=1
    )
    tenant = start_tenant("postgresql", schema)
    good = [{"id": key, "note": f"tab\there\n{key}", "big": "ZA=="} for key in range(500)]
    tenant.write(schema, *good, {"id": 7, "note": "a\0b", "big": None}, {"id": 501, "note": "\0", "big": None})
    tenant.run_until_done(502)

    assert {found["id"] for found in tenant.rows()} == set(range(500))
    reasons = [each.letter.reason for each in tenant.letters]
    assert len(reasons) == 2
    assert all("U+0000" in reason for reason in reasons)
    assert [plain_key(each.letter.event_key or b"") for each in tenant.letters] == [{"id": 7}, {"id": 501}]
    tenant.write(schema, {"id": 7, "note": "mended", "big": None})
    tenant.run_until_done(503)
    assert tenant.replay('{"id":7}') == (1, 0)
    assert next(found["note"] for found in tenant.rows() if found["id"] == 7) == "mended"


@pytest.mark.timeout(900)
def test_too_many_parked_keys_park_the_table_and_no_other(start_tenant: StartTenant) -> None:
    """Nothing is lost: with room for them the table is taken up where it was parked."""
    many, other = orders(), orders(name="other")
    tenant = start_tenant("iceberg", many, other, max_parked_keys=2)
    tenant.write(many, *(row(key, "bad", BAD) for key in range(4)), row(9, "good", 9))
    tenant.write(other, row(1, "one", 1))
    tenant.run_until(lambda tenant: len(tenant.progress.tables) == 2)

    tables = {table.table: table for table in tenant.progress.tables.values()}
    assert tables["shop.orders"].parked is not None
    assert "more than 2 keys would be parked (max_parked_keys)" in tables["shop.orders"].parked.because
    assert tenant.rows("other") == [row(1, "one", 1)]
    assert tenant.letters == []

    tenant.settings = msgspec.structs.replace(tenant.settings, max_parked_keys=4)
    tenant.write(many, row(9, "better", 10))
    tenant.run_until(lambda tenant: all(table.parked is None for table in tenant.progress.tables.values()))
    assert tenant.rows() == [row(9, "better", 10)]
    assert len(tenant.letters) == 4


@pytest.mark.timeout(900)
def test_a_history_gets_its_versions_in_order(start_tenant: StartTenant) -> None:
    """Also those from before changes of other rows that came meanwhile."""
    schema = orders()
    tenant = start_tenant("iceberg", schema, mode=SinkMode.HISTORY)
    tenant.write(schema, row(1, "a", 1), row(2, "x", 1))
    tenant.run_until_done(2)
    tenant.write(schema, row(1, "b", BAD))
    tenant.write(schema, row(1, "c", 3), row(2, "y", 2))
    tenant.run_until_done(5)
    assert tenant.replay() == (1, 1)
    assert tenant.replay(leave_out_refused=True) == (1, 0)

    versions = sorted((found["id"], found["note"], found["is_current"]) for found in tenant.rows())
    assert versions == [(1, "a", False), (1, "c", True), (2, "x", False), (2, "y", True)]
