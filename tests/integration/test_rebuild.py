"""A table of a past moment, built from a log that the sink wrote, against the rows that were noted at that moment."""

import base64
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from libs.clickhouse.names import DATABASE_TEMPLATE, database_name, literal, rebuild_prefix
from libs.clickhouse.names import STATE_DATABASE as CLICKHOUSE_STATE
from libs.clickhouse.names import quoted as clickhouse_quoted
from libs.mysql.logical import column
from libs.postgresql.names import STATE_SCHEMA, quoted, rebuild_stage_prefix
from libs.postgresql.tenant_tables import stages
from libs.sink_state.rebuild import AS_OF_PROPERTY, REBUILT_FROM_PROPERTY, Moment, RebuildSettings, Rebuilt
from libs.types.table import TableSchema
from libs.types.tenant import Images, SinkMode
from libs.types.warehouse import WarehouseTable, warehouse_table
from spark.jobs.rebuild import rebuild
from spark.sinks.port import TableRefused
from tests.clickhouse import ClickhouseServer
from tests.conftest import KafkaBroker, PostgresqlServer
from tests.integration.sink_tenant import ID, StartTenant, Tenant, orders, row, start_tenants
from tests.marks import rest
from tests.sink_topics import SOURCE, Model, table_id, without_own_columns
from tests.spark_session import shared_spark

ON_ICEBERG = pytest.mark.rest(because="the gate shows it on Iceberg, with both images")

KEYS = 30
SECOND_US = 1_000_000


@pytest.fixture
def start_tenant(
    kafka_broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Tenant]]:
    yield from start_tenants(kafka_broker.bootstrap_servers, tmp_path, request)


def build(tenant: Tenant, into: str, as_of: Moment, **more: Any) -> tuple[Rebuilt, list[dict[str, Any]]]:
    """The outcome, and the rows that another engine than Spark finds."""
    assert tenant.spec.sink is not None
    place = warehouse_table(tenant.spec.tenant, SOURCE, table_id("orders"))
    settings = RebuildSettings(
        warehouse=tenant.spec.sink.warehouse,
        warehouses={},
        session={},
        namespace=place.namespace,
        table=place.name,
        into=into,
        as_of=as_of,
        **more,
    )
    built = rebuild(shared_spark().session, tenant.sink, settings)
    return built, without_own_columns(tenant.read_rows(msgspec.structs.replace(place, name=into)))


@pytest.mark.promise("rebuild")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("warehouse", "images"),
    [
        ("iceberg", Images.BEFORE_AND_AFTER),
        pytest.param("iceberg", Images.AFTER, marks=ON_ICEBERG),
        pytest.param("delta", Images.BEFORE_AND_AFTER, marks=ON_ICEBERG),
        pytest.param("postgresql", Images.BEFORE_AND_AFTER, marks=ON_ICEBERG),
        pytest.param("clickhouse", Images.BEFORE_AND_AFTER, marks=ON_ICEBERG),
    ],
)
def test_the_rows_are_those_that_were_noted_at_the_moment(
    start_tenant: StartTenant, request: pytest.FixtureRequest, warehouse: str, images: Images
) -> None:
    """Inserts, updates, deletes, changes of key and a truncation, at random; several moments, by order, and by time where it
    separates a truncation from the rows before."""
    schema = orders()
    tenant = start_tenant(warehouse, schema, mode=SinkMode.APPEND, images=images)
    chance, model = random.Random(7), Model(schema)
    noted: dict[int, tuple[str, list[dict[str, Any]]]] = {}
    for number in range(1, 31):
        with tenant.topics.transaction() as transaction:
            transaction.committed_at_us = number * SECOND_US
            if number == 17:
                model.truncate(transaction)
            for _ in range(6):
                model.change_at_random(transaction, chance, keys=KEYS)
        noted[number] = (model.orders[-1], [{**each, "n": None} for each in model.sorted_rows()])
    tenant.run_until_done(len(model.orders))

    for number in (16, 17):  # before a truncation, and with it
        order, rows = noted[number]
        by_order, found = build(tenant, f"order_{number}", Moment(order=order))
        assert found == rows
        assert by_order.rows == len(rows)
        by_time, found = build(tenant, f"time_{number}", Moment(at_us=number * SECOND_US))
        assert found == rows
        assert msgspec.structs.replace(by_time, table="", took_s=0.0) == msgspec.structs.replace(
            by_order, table="", took_s=0.0
        )
    at_the_end, found = build(tenant, "order_30", Moment(order=noted[30][0]))
    assert found == noted[30][1]
    assert at_the_end.rows == len(found)
    now = {each["id"]: each for each in found}
    then, (early, found) = noted[25][1], build(tenant, "again", Moment(order=noted[25][0]))
    assert found == then
    assert early.same + early.changed_since + early.gone_since == len(then)
    assert early.gone_since <= sum(each["id"] not in now for each in then)
    assert early.come_since >= len(now.keys() - {each["id"] for each in then})
    assert (at_the_end.same, at_the_end.changed_since + at_the_end.gone_since + at_the_end.come_since) == (len(now), 0)

    with pytest.raises(TableRefused, match="there is such a table already"):
        build(tenant, "order_30", Moment(order=noted[30][0]))
    with pytest.raises(TableRefused, match="there is such a table already"):
        build(tenant, "orders", Moment(order=noted[30][0]))
    with pytest.raises(TableRefused, match="begins at 1970-01-01T00:00:01"):
        build(tenant, "early", Moment(at_us=1))
    place, log = (warehouse_table(tenant.spec.tenant, SOURCE, table_id(name)) for name in ("order_30", "orders"))
    properties, commits = _notes_of(warehouse, place, request)
    assert properties[REBUILT_FROM_PROPERTY] == str(log)
    assert properties[AS_OF_PROPERTY] == f"order {noted[30][0]}"
    assert commits == 1


def _notes_of(warehouse: str, place: WarehouseTable, request: pytest.FixtureRequest) -> tuple[dict[str, str], int]:
    """The table's own notes, and the number of its commits."""
    shared = shared_spark()
    match warehouse:
        case "iceberg":
            with shared.loaded(place) as loaded:
                return loaded.properties, len(loaded.history())
        case "delta":
            table = DeltaTable("/".join((shared.delta.warehouse_dir, *place.identifier)))
            return dict(table.metadata().configuration), table.version() + 1
        case "clickhouse":
            clickhouse: ClickhouseServer = request.getfixturevalue("clickhouse_server")
            database, name = database_name(DATABASE_TEMPLATE, place), place.name
            where = f"database = {literal(database)} AND name = {literal(name)}"
            [(comment,)] = clickhouse.rows(f"SELECT comment FROM system.tables WHERE {where}")
            return msgspec.json.decode(comment)["properties"], 1
        case _:
            server: PostgresqlServer = request.getfixturevalue("postgresql_server")
            [(comment,)] = server.execute(f"SELECT obj_description(to_regclass('{_place_in_postgresql(place)}'))")
            return dict(each.split("=") for each in comment.split("; ")), 1


def _place_in_postgresql(place: WarehouseTable) -> str:
    return quoted("_".join(place.namespace), place.name)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("warehouse", ["iceberg", *rest("delta", "postgresql", "clickhouse", because="as on Iceberg")])
def test_a_log_is_read_as_it_was_when_it_was_opened(start_tenant: StartTenant, warehouse: str) -> None:
    """A rebuild reads it several times, and the tenant's stream goes on."""
    tenant = start_tenant(warehouse, orders(), mode=SinkMode.APPEND)
    tenant.write(orders(), row(1, "a", 1), op="c")
    tenant.run_until_done(1)
    place = warehouse_table(tenant.spec.tenant, SOURCE, table_id("orders"))

    with tenant.sink.open_log(shared_spark().session, place) as log:
        before = log.rows.count()
        tenant.write(orders(), row(2, "b", 2), op="c")
        tenant.run_until_done(2)
        meanwhile = log.rows.count()

    assert (before, meanwhile, len(tenant.rows())) == (1, 1, 2)


@pytest.mark.timeout(1_800)
def test_what_a_rebuild_that_was_cut_off_has_staged_goes_with_the_next_or_with_the_tenant(
    start_tenant: StartTenant, postgresql_server: PostgresqlServer
) -> None:
    """Of the tenant's alone; and a table that somebody dropped, as the docs say, is built again under its name."""
    tenant = start_tenant("postgresql", orders(), mode=SinkMode.APPEND)
    tenant.write(orders(), row(1, "a", 1), op="c")
    tenant.run_until_done(1)
    name = tenant.spec.tenant
    of_others = quoted(STATE_SCHEMA, f"{rebuild_stage_prefix(f'{name}x')}1")

    def left_behind() -> list[str]:
        with postgresql_server.connect() as connection:
            return stages(connection, name, [])

    postgresql_server.execute(
        f"CREATE TABLE {quoted(STATE_SCHEMA, f'{rebuild_stage_prefix(name)}1')} (id int)",
        f"CREATE TABLE {of_others} (id int)",
    )
    found = left_behind()
    _, rows = build(tenant, "then", Moment(at_us=2**51))
    after_next = left_behind()
    place = warehouse_table(name, SOURCE, table_id("then"))
    postgresql_server.execute(f"DROP TABLE {_place_in_postgresql(place)}")
    _, again = build(tenant, "then", Moment(at_us=2**51))
    postgresql_server.execute(f"CREATE TABLE {quoted(STATE_SCHEMA, f'{rebuild_stage_prefix(name)}2')} (id int)")
    dropped = tenant.sink.drop_tables(shared_spark().session, name)

    assert (len(found), after_next, left_behind()) == (1, [], [])
    assert rows == again == [row(1, "a", 1)]
    assert dropped == 2  # the log, and the table that was built of it
    assert postgresql_server.execute(f"SELECT to_regclass('{of_others}') IS NOT NULL") == [(True,)]


@pytest.mark.rest(because="the gate shows it on PostgreSQL, in the test above")
@pytest.mark.timeout(1_800)
def test_what_a_rebuild_left_in_clickhouse_goes_with_the_tenant(
    start_tenant: StartTenant, clickhouse_server: ClickhouseServer
) -> None:
    """Of the tenant's alone; a rebuild that ends leaves nothing, and does not take the table that another one is at work
    on."""
    tenant = start_tenant("clickhouse", orders(), mode=SinkMode.APPEND)
    tenant.write(orders(), row(1, "a", 1), op="c")
    tenant.run_until_done(1)
    name = tenant.spec.tenant
    mine, of_others = (f"{rebuild_prefix(each)}1" for each in (name, f"{name}x"))
    for table in (mine, of_others):
        place = clickhouse_quoted(CLICKHOUSE_STATE, table)
        clickhouse_server.execute(f"CREATE TABLE {place} (id Int8) ENGINE = MergeTree ORDER BY id")

    def left_behind() -> list[str]:
        found = f"SELECT name FROM system.tables WHERE database = '{CLICKHOUSE_STATE}' AND startsWith(name, 'rebuild_')"
        return sorted(each for (each,) in clickhouse_server.rows(found) if each in (mine, of_others))

    _, rows = build(tenant, "then", Moment(at_us=2**51))
    after_next = left_behind()
    dropped = tenant.sink.drop_tables(shared_spark().session, name)

    assert rows == [row(1, "a", 1)]
    assert (after_next, left_behind()) == (sorted([mine, of_others]), [of_others])
    assert dropped == 2  # the log, and the table that was built of it


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "warehouse", ["postgresql", *rest("delta", "clickhouse", because="the gate shows it on PostgreSQL")]
)
def test_columns_are_as_those_of_the_log(start_tenant: StartTenant, warehouse: str) -> None:
    """Types that Spark has one name for; names that SQL must quote."""
    columns = (
        ID,
        column("big number", "decimal(30,4)"),
        column('say "what"', "varbinary(8)"),
        column("at", "timestamp(6)"),
        column("document", "json"),
    )
    schema = TableSchema(table_id=table_id("orders"), columns=columns, key=("id",), version=1)
    tenant = start_tenant(warehouse, schema, mode=SinkMode.APPEND)
    big = base64.b64encode((12_345_678_901_234_567_890_123_4567).to_bytes(13, "big", signed=True)).decode()
    values = {"id": 1, "big number": big, 'say "what"': base64.b64encode(b"\x00\xff").decode()}
    tenant.write(schema, values | {"at": "2026-11-21T05:29:36.114628Z", "document": '{"a": [1]}'}, op="c")
    tenant.write(schema, {"id": 2, "big number": None, 'say "what"': None, "at": None, "document": None}, op="c")
    tenant.run_until_done(2)

    _, rows = build(tenant, "then", Moment(at_us=2**51))

    assert rows == tenant.rows()
    assert rows[0]["big number"] == Decimal("12345678901234567890123.4567")


@pytest.mark.timeout(1_800)
def test_what_the_log_does_not_tell_is_counted_or_taken_from_before(start_tenant: StartTenant) -> None:
    """Rows that a later copy brought, rows that were there before the log began, values that an update left out."""
    schema = orders()
    tenant = start_tenant("iceberg", schema, mode=SinkMode.APPEND)

    def write(*changes: tuple[str, dict[str, Any]]) -> str:
        order = ""
        with tenant.topics.transaction() as transaction:
            for op, values in changes:
                is_delete = op == "d"
                order = transaction.change(
                    schema, op=op, before=values if is_delete else None, after=None if is_delete else values
                )
        return order

    write(("c", row(1, "whole", 1)), ("c", row(2, "two", 2)))
    moment = write(("u", {"id": 1, "note": None, "n": 5}), ("u", row(2, "two", None)))
    write(("u", row(3, "was there", 3)), ("d", row(4, "too", 4)), ("r", row(5, "copied", 5)), ("c", row(6, "new", 6)))
    tenant.run_until_done(8)

    plain, rows = build(tenant, "plain", Moment(order=moment))
    assert rows == [{"id": 1, "note": None, "n": 5}, row(2, "two", None)]
    assert (plain.unknown_existed, plain.unknown_may_have_existed) == (2, 1)
    _, rows = build(tenant, "filled", Moment(order=moment), unavailable=("note",))
    assert rows == [row(1, "whole", 5), row(2, "two", None)]
    with pytest.raises(TableRefused, match="has no column nowhere"):
        build(tenant, "wrong", Moment(order=moment), key=("nowhere",))


@pytest.mark.timeout(1_800)
def test_only_a_log_is_rebuilt_from(start_tenant: StartTenant) -> None:
    tenant = start_tenant("iceberg", orders())
    tenant.write(orders(), row(1, "a", 1), op="c")
    tenant.run_until_done(1)

    with pytest.raises(TableRefused, match="is no log"):
        build(tenant, "then", Moment(order="9"))
