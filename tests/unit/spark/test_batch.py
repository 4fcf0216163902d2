"""One table's events through a micro-batch, before the warehouse sees them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from libs.events.delivered_schema import DeliveredSchema
from libs.mysql.logical import column
from libs.sink_state.cut import Cut
from libs.sink_state.progress import Standing
from libs.sink_state.stream_offsets import offsets_path
from libs.types.table import TableSchema
from libs.types.tenant import Images, NameAdjustment, SinkMode, SinkSettings, SourceSelection
from libs.types.warehouse import WarehouseTable
from libs.warehouse.dialect import DIALECTS
from services.router.routes.project import compile_projection, project_row
from spark.batch.commit import _commit, _maintain
from spark.batch.outcome import parked_with
from spark.batch.table_batch import Known, TableBatch, changes_of, latest_changes_of, logged_changes_of, reached_with
from spark.batch.write import sink_table
from spark.jvm.containment import is_of_input, is_of_tenant
from spark.jvm.java import java_class
from spark.kafka.read_topics import events_of
from spark.sinks.port import BatchIdentity, Maintained, TableRefused
from spark.transforms.local_rows import local_rows
from spark.transforms.survey import survey
from spark.transforms.warehouse_columns import TableColumn
from tests.spark_session import SharedSpark
from tests.unit.spark.contexts import context_of, tenant_sink
from tests.unit.spark.events import (
    ORDERS,
    RECORD_COLUMNS,
    SOURCE,
    Change,
    delivered,
    events,
    json_bytes,
    orders_schema,
    record,
)

NOTE = column("note", "varchar(20)", charset="utf8mb4")
COLUMNS = {"id": TableColumn("int"), "note": TableColumn("string")}


def test_the_last_event_of_a_key_is_parsed_once(shared: SharedSpark) -> None:
    """The other events of its key are not parsed, but for the key; nor does Spark parse the last one twice."""
    table = _table(shared, [put(1, 1, "one")], orders_schema())

    plan = _optimized_plan(latest_changes_of(table, COLUMNS, ("id",), after=None))

    above, below = plan.split("max_by(")
    assert (above.count("row.parse"), below.count("row.parse")) == (1, 1)  # the image of the last, the key of each


def test_dead_letters_set_nothing_back(shared: SharedSpark) -> None:
    """They are older than the table's rows; newer events count as ever."""
    letters = _table(shared, [put(1, 1, "one"), put(2, 1, "two")], orders_schema())
    reached = reached_with(letters)
    order, committed_at_us, offsets = reached.order, reached.committed_at_us, reached.offsets
    held = replace(letters, known=Known(order=f"{order}9", committed_at_us=committed_at_us + 1, offsets={0: 99, 3: 7}))

    assert offsets == {0: 2}
    later = reached_with(held)
    assert (later.order, later.committed_at_us, later.offsets) == (f"{order}9", committed_at_us + 1, {0: 99, 3: 7})
    assert reached_with(replace(held, known=Known(offsets={0: 1}))) == reached


@pytest.mark.parametrize(("cut", "copies_from"), [(Cut(), {}), (Cut(query_id="query", batch_id=5), {0: 6, 1: 3})])
def test_a_table_is_parked_with_what_the_batch_has_of_it(
    shared: SharedSpark, tmp_path: Path, cut: Cut, copies_from: dict[int, int]
) -> None:
    """Where batches are cut, its events may be older than the rows of a copy that the batches before wrote."""
    few = _table(shared, [put(1, 1, "one")], orders_schema())
    slices = [replace(part, from_offsets={0: 5, 2: 8}, to_offsets={0: 7, 2: 9}) for part in few.slices]
    path = offsets_path(tmp_path, "acme", 4)
    path.parent.mkdir(parents=True)
    path.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"{few.topic}":{{"0":6,"1":3}}}}')

    first = parked_with(context_of(tenant_sink(tmp_path), cut=cut), replace(few, slices=slices), "so")

    assert (first.from_offsets, first.to_offsets) == ({0: 5, 2: 8}, {0: 7, 2: 9})
    assert first.copies_from == copies_from


def test_the_merge_does_not_shuffle_the_rows_again(shared: SharedSpark) -> None:
    """They come spread by the key: to find the last change of each took a shuffle already."""
    few = _table(shared, [put(1, 1, "one")], orders_schema())
    table = replace(few, slices=[replace(part, rows=1_000_000) for part in few.slices])

    latest = latest_changes_of(table, COLUMNS, ("id",), after=None)

    assert _executed_plan(latest).count("Exchange hashpartitioning") == 1
    assert _executed_plan(latest.groupBy("id").count()).count("Exchange hashpartitioning") == 1


def test_a_few_rows_are_not_shuffled_at_all(shared: SharedSpark) -> None:
    """A batch may have hundreds of tables with a few rows each: one task finds the last changes of one."""
    table = _table(shared, [put(1, 1, "one"), put(2, 1, "two")], orders_schema())

    latest = latest_changes_of(table, COLUMNS, ("id",), after=None)

    assert "Exchange" not in _executed_plan(latest)
    assert [row["note"] for row in latest.collect()] == ["two"]


def test_two_spellings_of_a_key_are_one_row(shared: SharedSpark) -> None:
    """Snapshot and stream may write a number in two ways; a MERGE with two rows for one would fail."""
    schema = orders_schema(column("id", "double", is_optional=False), NOTE)
    old = record(schema.topic, put(1, 1, "old").value(), order=put(1, 1, "").order)
    new = record(schema.topic, put(2, 1, "new").value(), order=put(2, 1, "").order, offset=1)
    spelled = [(*old[:3], b'{"id":1.0}', *old[4:]), (*new[:3], b'{"id":1e0}', *new[4:])]
    table = _table_of(local_rows(shared.session, spelled, RECORD_COLUMNS).transform(events_of), schema)

    latest = latest_changes_of(table, {**COLUMNS, "id": TableColumn("double")}, ("id",), after=None).collect()

    assert [(row["id"], row["note"]) for row in latest] == [(1.0, "new")]


def test_versions_that_meet_in_a_batch_have_one_last_change(shared: SharedSpark) -> None:
    """The key's type may be wider in the later one."""
    narrow = orders_schema()
    wide = orders_schema(column("id", "bigint", is_optional=False), NOTE, version=2)
    columns = {**COLUMNS, "id": TableColumn("bigint")}
    table = _table(shared, [put(1, 1, "one"), put(2, 2, "two"), put(3, 1, "uno", version=2)], narrow, wide)

    latest = latest_changes_of(table, columns, ("id",), after=None).collect()

    assert sorted((row["id"], row["note"]) for row in latest) == [(1, "uno"), (2, "two")]


def test_no_truncation_becomes_a_row(shared: SharedSpark) -> None:
    """Neither one of a version with a key, which is in ``after``, nor one of an older version without."""
    keyless, keyed = orders_schema(key=()), orders_schema(version=2)
    truncation, later = Change(op="t", rank=4, version=2), put(5, 2, "two", version=2)
    changes = [put(1, 1, "one"), Change(op="t", rank=2), put(3, 1, "uno"), truncation, later]
    table = _table(shared, changes, keyless, keyed)

    everything = latest_changes_of(_table(shared, changes[:3], keyless), COLUMNS, ("id",), after=None)
    after = latest_changes_of(table, COLUMNS, ("id",), after=truncation.order)

    assert [(row["id"], row["note"]) for row in everything.collect()] == [(1, "uno")]
    assert [(row["id"], row["note"]) for row in after.collect()] == [(2, "two")]


UNKNOWN = "__debezium_unavailable_value"
UNKNOWN_BYTES = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
PARTS = (
    column("id", "int", is_optional=False),
    NOTE,
    column("n", "int"),
    column("raw", "blob"),
    column('odd "name"', "text", charset="utf8mb4"),
)
PART_COLUMNS = {
    **COLUMNS,
    "n": TableColumn("int"),
    "raw": TableColumn("binary"),
    'odd "name"': TableColumn("string"),
}


def test_a_value_that_the_log_does_not_hold_is_the_last_that_it_held(shared: SharedSpark) -> None:
    """Of each column by itself; a column that no change of the batch holds is named, also where the key is not in the image."""
    changes = [
        Change(op="u", rank=1, after={"id": 1, "note": None, "n": 5, "raw": UNKNOWN_BYTES, 'odd "name"': UNKNOWN}),
        Change(
            op="u",
            rank=2,
            key={"id": 1},
            after={"id": UNKNOWN, "note": UNKNOWN, "n": UNKNOWN, "raw": "AQI=", 'odd "name"': UNKNOWN},
        ),
        Change(op="c", rank=3, after={"id": 2, "note": f'"a":"{UNKNOWN}"', "n": 1, "raw": None, 'odd "name"': ""}),
        Change(op="u", rank=4, after={"id": 3, "note": "x", "n": UNKNOWN, "raw": None, 'odd "name"': "o"}),
        Change(op="d", rank=5, before={"id": 3, "note": UNKNOWN, "n": UNKNOWN, "raw": None, 'odd "name"': UNKNOWN}),
    ]
    table = _table(shared, changes, orders_schema(*PARTS))

    rows = sorted(latest_changes_of(table, PART_COLUMNS, ("id",), after=None).collect(), key=lambda row: row["id"])

    assert [row["_headwater_op"] for row in rows] == ["u", "c", "d"]
    assert [row["_headwater_order"] for row in rows] == [
        change.order for change in (changes[1], changes[2], changes[4])
    ]
    assert tuple(rows[0])[1:5] == (None, 5, b"\x01\x02", None)
    assert rows[0]["_headwater_unavailable"] == ['odd "name"']
    assert tuple(rows[1])[1:5] == (f'"a":"{UNKNOWN}"', 1, None, "")
    assert rows[1]["_headwater_unavailable"] == []


def test_a_long_text_beside_a_value_that_the_log_does_not_hold_is_whole(shared: SharedSpark) -> None:
    """Escapes and all: a look for names by an expression overflowed Java's stack, or took minutes."""
    text = 'a "quoted" word, a \\ and\n' * 20_000
    changes = [Change(op="u", rank=1, after={"id": 1, "note": text, "n": UNKNOWN, "raw": None, 'odd "name"': UNKNOWN})]
    table = _table(shared, changes, orders_schema(*PARTS))

    (row,) = latest_changes_of(table, PART_COLUMNS, ("id",), after=None).collect()

    assert row["note"] == text
    assert row["_headwater_unavailable"] == ["n", 'odd "name"']


def test_an_append_row_has_null_for_what_the_log_does_not_hold(shared: SharedSpark) -> None:
    after = {"id": 1, "note": UNKNOWN, "n": UNKNOWN, "raw": UNKNOWN_BYTES, 'odd "name"': "known"}
    table = _table(shared, [Change(op="u", rank=1, after=after)], orders_schema(*PARTS))

    (row,) = changes_of(table, PART_COLUMNS).collect()

    assert tuple(row)[:5] == (1, None, None, None, "known")


def test_rows_under_adjusted_names_are_read_by_them(shared: SharedSpark) -> None:
    """The router's projection and its announcement bear the same names: key, row and warehouse column."""
    columns = (column("item-no", "int", is_optional=False), column("unit price", "varchar(9)", charset="utf8mb4"))
    table = TableSchema(table_id=ORDERS, columns=columns, key=("item-no",), version=1)
    projection = compile_projection(table, SourceSelection(name=SOURCE), NameAdjustment.AVRO)
    schema = delivered("acme", projection.schema)
    records = []
    for rank, price in ((1, "one"), (2, "two")):
        change = Change(op="u", rank=rank, after={"item-no": 7, "unit price": price})
        row = project_row(projection, ord("u"), b'{"item-no":7}', json_bytes(change.value()))
        assert row is not None
        made = record(schema.topic, {}, order=change.order, offset=rank)
        records.append((*made[:3], row.key, row.value, made[5]))
    batch = _table_of(local_rows(shared.session, records, RECORD_COLUMNS).transform(events_of), schema)
    wanted = {"item_no": TableColumn("int"), "unit_price": TableColumn("string")}

    latest = latest_changes_of(batch, wanted, ("item_no",), after=None).collect()

    assert [(row["item_no"], row["unit_price"]) for row in latest] == [(7, "two")]


def test_an_error_of_a_plan_or_a_value_is_of_what_it_was_given_and_one_of_a_server_is_not(shared: SharedSpark) -> None:
    """So that a table alone in its batch is parked for the first, and waits for the second."""
    spark = shared.session
    raising: list[Callable[[], object]] = [
        lambda: spark.sql("SELECT nowhere"),
        lambda: spark.sql("SELECT element_at(array(1), 0)").collect(),
        lambda: spark.sql("SELECT k, K FROM (SELECT 1 AS k, 2 AS `\u212a`)").collect(),
        lambda: java_class(spark, "java.net.Socket")("127.0.0.1", 1),
    ]
    found = []
    for each in raising:
        with pytest.raises((PySparkException, Py4JJavaError)) as error:
            each()
        found.append((is_of_tenant(error.value), is_of_input(error.value)))

    assert found == [(False, True), (False, True), (False, True), (False, False)]


def put(rank: int, key: int, note: str, *, version: int = 1) -> Change:
    return Change(op="u", rank=rank, after={"id": key, "note": note}, version=version)


def _table(
    shared: SharedSpark, changes: list[Change], *schemas: DeliveredSchema, with_before: bool = False
) -> TableBatch:
    return _table_of(events(shared.session, schemas[0].topic, changes, with_before=with_before), *schemas)


def _table_of(batch: DataFrame, *schemas: DeliveredSchema) -> TableBatch:
    return TableBatch(
        topic=schemas[0].topic,
        slices=survey(batch)[1],
        events=batch,
        schemas={schema.table_schema.version: schema for schema in schemas},
        parked=None,
        is_passed_over=False,
    )


def _optimized_plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan().toString())


def _executed_plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_a_log_holds_the_row_after_a_change_or_both(shared: SharedSpark) -> None:
    """Both only of updates whose log has the row before them; values that it lacks are NULL, though the row after is whole."""
    changes = [
        Change(op="c", rank=1, after={"id": 1, "note": "new"}),
        Change(op="u", rank=2, before={"id": 1, "note": UNKNOWN}, after={"id": 1, "note": "newer"}),
        Change(op="u", rank=3, after={"id": 1, "note": "newest"}),
        Change(op="d", rank=4, before={"id": 1, "note": "newest"}),
        Change(op="t", rank=5),
    ]
    after = _table(shared, changes, orders_schema())
    both = _table(shared, changes, orders_schema(), with_before=True)

    def logged(table: TableBatch, images: Images) -> list[tuple[object, ...]]:
        rows = logged_changes_of(table, COLUMNS, images).collect()
        found = [(row["_headwater_order"], row["_headwater_image"], row["_headwater_op"], row["note"]) for row in rows]
        return sorted(found, key=str)

    orders = [change.order for change in changes]
    expected = [
        (orders[0], "after", "c", "new"),
        (orders[1], "after", "u", "newer"),
        (orders[2], "after", "u", "newest"),
        (orders[3], "before", "d", "newest"),
        (orders[4], None, "t", None),
    ]
    assert logged(after, Images.AFTER) == expected
    assert logged(both, Images.BEFORE_AND_AFTER) == sorted([*expected, (orders[1], "before", "u", None)], key=str)


class Refusing:
    """A sink that may not maintain the tables that it has written."""

    def maintain(self, _spark: SparkSession, table: WarehouseTable) -> Maintained:
        raise TableRefused(f"{table}: rights are missing; GRANT them")


def test_a_table_that_was_written_and_may_not_be_maintained_is_not_parked(shared: SharedSpark, tmp_path: Path) -> None:
    """Its batch would come to it once more, under another identity."""
    context = context_of(tenant_sink(tmp_path, sink=Refusing()), spark=shared.session)

    maintained = _maintain(context, WarehouseTable(namespace=("acme", "shop", "shop"), name="orders"))

    assert maintained == Maintained()


class Holding:
    """A sink whose tables have every batch."""

    dialect = DIALECTS["iceberg"]

    def is_applied(self, *_: object) -> bool:
        return True

    def standing(self, *_: object) -> Standing:
        return Standing(id="one", batch="query:1")


def test_a_batch_that_a_table_has_is_passed_over_though_the_table_would_be_refused_now(
    shared: SharedSpark, tmp_path: Path
) -> None:
    """Killed after its commit, with a tenant's document changed in between: parked, a log would have the batch once more."""
    tenant = tenant_sink(tmp_path, settings=SinkSettings(mode=SinkMode.MIRROR), sink=Holding())
    context = context_of(tenant, BatchIdentity("query", 1))
    table = _table(shared, [put(1, 1, "one")], orders_schema(key=()))
    placeless = replace(table, slices=[replace(part, newest_place=None) for part in table.slices])
    with pytest.raises(TableRefused):
        sink_table(context, placeless)

    commit = _commit(context, placeless)

    assert commit.timings is None
