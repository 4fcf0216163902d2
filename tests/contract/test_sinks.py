"""Every kind of sink keeps the promises of ``libs.testing.sink_contract``, on its real warehouse."""

import itertools
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from psycopg.types.numeric import FloatLoader
from psycopg.types.string import TextLoader

from libs.mysql.logical import column
from libs.postgresql.names import column_name, identifier, quoted
from libs.testing import sink_contract as contract
from libs.testing.sink_contract import Row, SinkHarness
from libs.types.order import EventOrder
from libs.types.table import Column, FormerName
from libs.types.warehouse import WarehouseTable
from spark.jvm.errors import MALFORMED_RECORD, has_condition
from spark.sinks.clickhouse.sink import open_sink as open_clickhouse_sink
from spark.sinks.delta.settings import Settings as DeltaSettings
from spark.sinks.delta.sink import open_sink as open_delta_sink
from spark.sinks.postgresql.settings import Settings
from spark.sinks.postgresql.sink import open_sink
from spark.sinks.registry import SINKS
from tests import clickhouse
from tests.clickhouse import ClickhouseServer
from tests.conftest import PostgresqlServer
from tests.contract.recorded_values import as_float32, expected
from tests.contract.sink_harness import WarehouseHarness
from tests.marks import gate
from tests.spark_session import shared_spark
from tests.unit.events.golden import records, table_schemas
from tests.unit.spark.events import record

pytestmark = pytest.mark.servers

PROMISES: list[Callable[[SinkHarness], None]] = [
    contract.late_and_repeated_changes_change_nothing_and_a_deleted_row_may_come_back,
    contract.a_truncation_takes_older_rows_and_leaves_newer_ones,
    contract.soft_deletes_mark_rows,
    contract.a_column_without_a_value_keeps_the_one_it_has,
    contract.a_key_of_ones_own_choice_may_be_null,
    contract.a_batch_is_recognised_by_every_table_that_holds_it,
    contract.a_first_batch_is_recognised_too,
    contract.a_replay_adds_nothing_and_an_empty_batch_is_a_batch,
    contract.append_keeps_every_change,
    contract.a_new_column_arrives_before_its_rows_and_fills_the_old_ones,
    contract.rows_of_before_have_what_the_version_that_brought_a_column_gave_them,
    contract.columns_of_every_kind_are_filled,
    contract.numbers_widen_in_place,
    contract.a_change_of_type_that_would_lose_values_is_refused,
    contract.a_rename_is_carried_over,
    contract.lenient_puts_a_column_beside_the_one_that_cannot_change,
    contract.exception_parks_the_table_at_each_change,
    contract.ignore_leaves_the_table_as_it_is,
    contract.mode_and_key_are_for_a_tables_life,
    contract.odd_names_are_names,
    contract.tables_that_differ_in_case_are_two,
    contract.texts_stay_what_they_are,
    contract.tables_are_written_at_once,
    contract.a_table_is_built_anew_whatever_it_held,
    contract.a_table_that_is_built_anew_keeps_its_soft_deleted_rows,
    contract.a_resynced_log_has_each_change_once,
    contract.what_the_log_does_not_hold_is_kept_in_a_table_that_is_built_anew,
    contract.maintenance_changes_no_row,
    contract.a_tenants_tables_go_and_no_others,
]
SHOWN_ON_EACH = (contract.columns_of_every_kind_are_filled,)
"""The gate asks PostgreSQL and ClickHouse for this. Of each warehouse, Delta too, it has every type (``test_types``), and a
mirror, a log and a history through an end (``faults/test_sink_kills.py``)."""
SHOWN_AT_HAND = (
    contract.a_truncation_takes_older_rows_and_leaves_newer_ones,
    contract.a_key_of_ones_own_choice_may_be_null,
    contract.a_batch_is_recognised_by_every_table_that_holds_it,
    contract.a_first_batch_is_recognised_too,
    contract.a_new_column_arrives_before_its_rows_and_fills_the_old_ones,
    contract.numbers_widen_in_place,
    contract.a_rename_is_carried_over,
    contract.odd_names_are_names,
    contract.texts_stay_what_they_are,
)
"""For the product of both of Iceberg's ways with every promise: those of which a merge without a query has its own part. The
others write no mirror, refuse the batch, or have no batch that goes this way. Late and repeated changes, deletes, rows that
come back and soft deletes are in ``unit/spark/test_small_tables.py``: random batches that go both ways. Tables that are
written at once, without a query, are in ``faults/test_sink_kills.py``: the mirror of two tables."""
SHOWN_OTHERWISE = {
    contract.a_truncation_takes_older_rows_and_leaves_newer_ones: "as at hand, where a truncation goes by a query",
    contract.a_key_of_ones_own_choice_may_be_null: "as at hand; test_small_tables.py: test_keys_of_several… by a query",
    contract.a_batch_is_recognised_by_every_table_that_holds_it: "as at hand; a_replay_adds_nothing… by a query",
    contract.a_first_batch_is_recognised_too: "as at hand; a_replay_adds_nothing… by a query",
    contract.a_new_column_arrives_before_its_rows_and_fills_the_old_ones: (
        "as at hand; integration/test_sink.py: test_a_column_is_added_and_a_type_changes… by a query"
    ),
    contract.soft_deletes_mark_rows: "unit/spark/test_history.py: test_soft_deletes_mark_rows has the same through the job",
    contract.numbers_widen_in_place: "as at hand; test_history.py: test_a_history_whose_columns_change… by a query",
    contract.a_rename_is_carried_over: "as at hand; test_variant_columns.py: test_columns_come_and_are_renamed by a query",
    contract.texts_stay_what_they_are: "as at hand; by a query those of every recorded value",
}
"""Promises that the gate tests elsewhere for Iceberg by a query, each with the test."""
_tenants = itertools.count()


AT_HAND = "iceberg at hand"
"""Iceberg, whose small tables are merged without a query where they may be."""
KINDS = (*sorted(SINKS), AT_HAND)


ON_ICEBERG = "the gate shows it on Iceberg"


@pytest.fixture(params=gate(["iceberg"], KINDS, because=ON_ICEBERG))
def harness(request: pytest.FixtureRequest) -> WarehouseHarness:
    """A tenant of its own in each kind of warehouse."""
    shared = shared_spark()
    tenant = f"contract-{next(_tenants)}"
    match request.param:
        case "clickhouse":
            clickhouse_server: ClickhouseServer = request.getfixturevalue("clickhouse_server")
            clickhouse_sink = open_clickhouse_sink(
                clickhouse.settings_of(clickhouse_server, cleanup_every_commits=2, cleanup_at_share=0.01)
            )
            return WarehouseHarness(
                shared.session, clickhouse_sink, lambda table: clickhouse.rows_of(clickhouse_server, table), tenant
            )
        case "delta":
            return WarehouseHarness(
                shared.session, open_delta_sink(shared.delta), lambda table: delta_rows(shared.delta, table), tenant
            )
        case "iceberg":
            return WarehouseHarness(shared.session, shared.sink, shared.rows, tenant)
        case _ if request.param == AT_HAND:
            return WarehouseHarness(shared.session, shared.sink, shared.rows, tenant, is_at_hand=True)
        case "postgresql":
            server: PostgresqlServer = request.getfixturevalue("postgresql_server")
            sink = open_sink(postgresql_settings(server))
            return WarehouseHarness(
                shared.session, sink, lambda table: postgresql_rows(server, table), tenant, holds_nul=False
            )
        case kind:
            raise AssertionError(f"{kind} has no harness")


def delta_rows(settings: DeltaSettings, table: WarehouseTable) -> list[Row]:
    """A table's rows, read by delta-rs, which shares no code with Spark."""
    delta_table = DeltaTable("/".join((settings.warehouse_dir, *table.identifier)))
    answer = QueryBuilder().register("t", delta_table).execute("SELECT * FROM t")
    return pa.table(answer.read_all()).to_pylist()


def postgresql_settings(server: PostgresqlServer, **more: Any) -> Settings:
    """Where ``server`` is; ``more`` wins."""
    where = server.settings
    return Settings(**{"host": where.host, "port": where.port, "database": where.database, "user": where.user, **more})


def postgresql_rows(server: PostgresqlServer, table: WarehouseTable) -> list[Row]:
    """A table's rows, JSON as text; columns by the source's names."""
    place = quoted(identifier("_".join(table.namespace)), identifier(table.name))
    with server.connect() as connection:
        connection.adapters.register_loader("json", TextLoader)
        connection.adapters.register_loader("float4", _Float4Loader)
        cursor = connection.execute(f"SELECT * FROM {place}")  # type: ignore[call-overload]
        names = [_source_name(item.name) for item in cursor.description]
        return [dict(zip(names, map(_plain, row), strict=True)) for row in cursor.fetchall()]


class _Float4Loader(FloatLoader):
    """The server prints the shortest digits that stand for a ``real``."""

    def load(self, data: Any) -> float:
        return as_float32(super().load(data))


def _source_name(own: str) -> str:
    return next((name for name in contract.ODD_NAMES if column_name(name) == own), own)


def _plain(value: Any) -> Any:
    """A number of more digits than Spark's is text elsewhere."""
    is_long = isinstance(value, Decimal) and len(value.as_tuple().digits) > 38
    return f"{value:f}" if is_long else value


def _marks(kind: str, promise: Callable[[SinkHarness], None]) -> list[pytest.MarkDecorator]:
    """The gate has every promise on Iceberg, and a few elsewhere."""
    if kind == "iceberg":
        return [pytest.mark.rest(because=SHOWN_OTHERWISE[promise])] if promise in SHOWN_OTHERWISE else []
    elsewhere = {AT_HAND: SHOWN_AT_HAND, "delta": ()}.get(kind, SHOWN_ON_EACH)
    return [] if promise in elsewhere else [pytest.mark.rest(because=ON_ICEBERG)]


@pytest.mark.promise("every warehouse")
@pytest.mark.promise("batch run again")
@pytest.mark.parametrize(
    ("harness", "promise"),
    [
        pytest.param(kind, promise, id=f"{kind}-{promise.__name__}", marks=_marks(kind, promise))
        for kind in KINDS
        for promise in PROMISES
    ],
    indirect=["harness"],
)
def test_a_sink_keeps_its_promises(harness: WarehouseHarness, promise: Callable[[SinkHarness], None]) -> None:
    """See the promise's own words."""
    promise(harness)


@pytest.mark.parametrize("harness", gate(["iceberg"], KINDS, because=ON_ICEBERG), indirect=True)
def test_columns_that_exchange_their_names_do_so_at_once(harness: WarehouseHarness) -> None:
    """Or not at all: Delta renames one column a commit, and a job may be killed between two."""
    first = contract.table(contract.ID, column("a", "int"), column("b", "varchar(9)", charset="utf8mb4"))
    a, b = first.columns[1:]
    second = contract.table(contract.ID, _called(b, "a"), _called(a, "b"), version=2)
    harness.apply(first, contract.RowChange("c", 1, {"id": 1, "a": 1, "b": "one"}))

    def exchange() -> None:
        harness.apply(second, contract.RowChange("c", 2, {"id": 2, "a": "two", "b": 2}))

    if harness.kind == "delta":
        assert "exchanged their names" in contract.refusal(exchange)
    else:
        exchange()
        assert contract.source_rows(harness, second) == [{"id": 1, "b": 1, "a": "one"}, {"id": 2, "b": 2, "a": "two"}]


def _called(item: Column, name: str) -> Column:
    former = FormerName(name=item.name, last_version=1)
    return msgspec.structs.replace(item, name=name, former_names=(former,))


@pytest.mark.parametrize(
    "harness",
    gate(["iceberg"], sorted(SINKS), because="contract/test_types.py has every type on each warehouse"),
    indirect=True,
)
def test_every_recorded_value_arrives_unchanged(harness: WarehouseHarness) -> None:
    """Debezium's own records of all types, with schemas, equal those that the other engine reads, value by value."""
    schema = next(iter(table_schemas("all_types")))
    recorded = [item["value"] for item in records("v1.smp.all_types") if item["value"] is not None]
    changes = [
        value
        for value in recorded
        if value["payload"]["op"] != "d"
        and (harness.holds_nul or "\\u0000" not in json.dumps(value["payload"]["after"]))
    ]
    orders = [EventOrder(epoch=0, rank=1, tx_ordinal=number).sort_key() for number in range(len(changes))]

    harness.append_records(
        schema,
        [
            record("t", value, order=order, offset=number)
            for number, (order, value) in enumerate(zip(orders, changes, strict=True))
        ],
    )

    stored = {row["_headwater_order"]: row for row in harness.rows(schema)}
    assert sorted(stored) == orders
    for order, value in zip(orders, changes, strict=True):
        after = value["payload"]["after"]
        for item in schema.columns:
            assert stored[order][item.name] == expected(item, after[item.name]), (order, item.name)


def test_a_value_that_does_not_fit_its_type_is_told_from_other_failures(harness: WarehouseHarness) -> None:
    """The job parks such a table; the condition must come through every way in which a sink writes."""
    with pytest.raises(Exception) as failed:
        harness.apply(contract.table(), contract.put(1, 2**40, "too large"))

    assert has_condition(failed.value, MALFORMED_RECORD)


def test_every_promise_is_tested() -> None:
    """A promise that is added to the suite cannot be forgotten here."""
    promises = [
        function
        for name, function in vars(contract).items()
        if getattr(function, "__annotations__", {}) == {"harness": SinkHarness, "return": None}
    ]

    assert promises == PROMISES
