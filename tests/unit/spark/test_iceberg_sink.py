"""The promises of ``spark.sinks.port.Sink``, kept by Iceberg; what is stored is read by pyiceberg."""

import itertools
from collections.abc import Mapping
from operator import attrgetter

import pytest
from pyspark.sql import functions as sf

from libs.events.delivered_schema import DeliveredSchema
from libs.mysql.logical import column
from libs.types.table import Column
from libs.types.tenant import Deletes, SinkMode
from libs.types.warehouse import UNAVAILABLE_COLUMN, warehouse_table
from spark.sinks.evolution import Evolution, evolution
from spark.sinks.iceberg.schema import is_wider
from spark.sinks.port import BatchIdentity, Fill, SinkColumn, SinkTable, TableRefused, Truncation
from spark.transforms.conform_to import conform_to
from spark.transforms.fill import fill_expression
from spark.transforms.parse_events import parse_events
from spark.transforms.value_types import spark_type
from tests.spark_session import Row, SharedSpark
from tests.unit.spark.events import Change, events, orders_schema

ID = column("id", "int", is_optional=False)
NOTE = column("note", "varchar(20)", charset="utf8mb4")
_batches = itertools.count()


class Mirror:
    """A mirror table of its own for one test, and batches for it."""

    def __init__(self, shared: SharedSpark, name: str) -> None:
        self._shared = shared
        self._tenant = f"{name}-{next(_batches)}"

    def table(self, delivered: DeliveredSchema, mode: SinkMode = SinkMode.MIRROR, since: int = 1) -> SinkTable:
        schema = delivered.table_schema
        return SinkTable(
            name=warehouse_table(self._tenant, delivered.source, schema.table_id),
            mode=mode,
            deletes=Deletes.HARD,
            columns=tuple(_sink_column(item, since) for item in schema.columns),
            key=schema.key,
            topic=delivered.topic,
            source=delivered.source,
            table=str(schema.table_id),
            oldest_version=1,
        )

    def apply(self, delivered: DeliveredSchema, *changes: Change, truncation: Truncation | None = None) -> list[Row]:
        """Merge one batch (one change a key) and give back what the table holds then."""
        spark, sink = self._shared.session, self._shared.sink
        table = self.table(delivered, since=delivered.table_schema.version)
        sink.begin_batch(spark, BatchIdentity("test", next(_batches)))
        columns = sink.ensure_table(spark, table)
        rows = (
            events(spark, delivered.topic, changes)
            .transform(parse_events(delivered.table_schema))
            .transform(conform_to(columns, delivered.table_schema))
        )
        sink.merge_into(spark, table, rows, truncation=truncation)
        return self.rows(delivered)

    def apply_partial(self, delivered: DeliveredSchema, without: Mapping[str, set[int]], *changes: Change) -> list[Row]:
        """As ``apply``; ``without`` has the columns that the log does not hold, with the ids of the rows."""
        spark, sink, table = self._shared.session, self._shared.sink, self.table(delivered)
        columns = sink.ensure_table(spark, table)
        lacking = [sf.when(sf.col("id").isin(*ids), sf.lit(name)) for name, ids in without.items()]
        rows = (
            events(spark, delivered.topic, changes)
            .transform(parse_events(delivered.table_schema))
            .transform(conform_to(columns, delivered.table_schema))
            .withColumn(UNAVAILABLE_COLUMN, sf.filter(sf.array(*lacking), sf.isnotnull))
        )
        sink.merge_into(spark, table, rows)
        return self.rows(delivered)

    def rows(self, delivered: DeliveredSchema) -> list[Row]:
        stored = self._shared.rows(self.table(delivered).name)
        own = ("_headwater_order", "_headwater_committed_at")
        plain = [{name: value for name, value in row.items() if name not in own} for row in stored]
        return sorted(plain, key=lambda row: str(row["id"]))


def _sink_column(item: Column, since: int) -> SinkColumn:
    expression = fill_expression(item)
    fill = Fill(since, expression) if expression else None
    return SinkColumn(item.name, spark_type(item), item.comment, fill, is_optional=item.is_optional)


def put(rank: int, key: int, note: str | None, **more: object) -> Change:
    return Change(op="u", rank=rank, after={"id": key, "note": note, **more})


def gone(rank: int, key: int) -> Change:
    return Change(op="d", rank=rank, before={"id": key, "note": "old"})


def test_late_and_repeated_changes_change_nothing(shared: SharedSpark) -> None:
    """An older order never wins over a newer, a repeat is harmless, and deleting what is not there is fine."""
    mirror, schema = Mirror(shared, "late"), orders_schema()
    first = mirror.apply(schema, put(5, 1, "five"), put(5, 2, "two"), gone(5, 3))

    late = mirror.apply(schema, put(4, 1, "four"), gone(3, 2))
    repeated = mirror.apply(schema, put(5, 1, "not five"), put(6, 4, None))
    deleted = mirror.apply(schema, gone(7, 1), put(7, 2, "newer"))

    assert first == late == [{"id": 1, "note": "five"}, {"id": 2, "note": "two"}]
    assert repeated == [*first, {"id": 4, "note": None}]
    assert deleted == [{"id": 2, "note": "newer"}, {"id": 4, "note": None}]


def test_a_column_without_a_value_keeps_the_one_it_has(shared: SharedSpark) -> None:
    """Where the row is not there, the column is NULL."""
    mirror, schema = Mirror(shared, "partial"), orders_schema()
    mirror.apply(schema, put(1, 1, "kept"), put(1, 2, "two"))

    rows = mirror.apply_partial(schema, {"note": {1, 3}}, put(2, 1, None), put(2, 2, "new"), put(2, 3, None))

    assert rows == [{"id": 1, "note": "kept"}, {"id": 2, "note": "new"}, {"id": 3, "note": None}]


def test_a_key_of_ones_own_choice_may_be_null(shared: SharedSpark) -> None:
    """NULL is a value of the key like any other: rows are merged by it, not added again and again."""
    mirror, schema = Mirror(shared, "chosen"), orders_schema(key=("note",))
    mirror.apply(schema, put(5, 1, None), put(5, 2, "two"))

    merged = mirror.apply(schema, put(6, 3, None), Change(op="d", rank=7, before={"id": 2, "note": "two"}))

    assert merged == [{"id": 3, "note": None}]


def test_a_required_key_that_may_become_null_is_refused(shared: SharedSpark) -> None:
    """The stored table could not hold it; the others go on."""
    mirror, required = Mirror(shared, "required"), column("note", "varchar(20)", charset="utf8mb4", is_optional=False)
    mirror.apply(orders_schema(ID, required, key=("note",)), put(1, 1, "one"))

    with pytest.raises(TableRefused, match="key column note may be NULL"):
        shared.sink.ensure_table(shared.session, mirror.table(orders_schema(ID, NOTE, key=("note",), version=2)))


def test_a_truncation_takes_older_rows_and_leaves_newer_ones(shared: SharedSpark) -> None:
    """TRUNCATE at order 10: rows of 5 go, rows that came later stay, and so does a late one's newer value."""
    mirror, schema = Mirror(shared, "truncate"), orders_schema()
    mirror.apply(schema, put(5, 1, "old"), put(5, 2, "old"), put(12, 3, "new"))

    rows = mirror.apply(schema, put(11, 2, "again"), truncation=Truncation(Change(op="t", rank=10).order, 0))

    assert rows == [{"id": 2, "note": "again"}, {"id": 3, "note": "new"}]


def test_a_batch_is_recognised_by_every_table_that_holds_it(shared: SharedSpark) -> None:
    """The identity is committed with the rows; a fill or maintenance in between does not hide it."""
    mirror, schema = Mirror(shared, "batches"), orders_schema()
    spark, sink, name = shared.session, shared.sink, mirror.table(schema).name
    mirror.apply(schema, put(1, 1, "one"))
    applied = BatchIdentity("query", 7)
    sink.begin_batch(spark, applied)
    assert not sink.is_applied(spark, name, applied)

    table = mirror.table(schema)
    rows = events(spark, schema.topic, [put(2, 1, "two")]).transform(parse_events(schema.table_schema))
    columns = sink.ensure_table(spark, table)
    sink.merge_into(spark, table, rows.transform(conform_to(columns, schema.table_schema)))
    sink.ensure_table(
        spark, mirror.table(orders_schema(ID, NOTE, column("n", "int", default_expression="3"), version=2))
    )

    assert sink.is_applied(spark, name, applied)
    assert not sink.is_applied(spark, name, BatchIdentity("query", 8))
    assert not sink.is_applied(spark, name, BatchIdentity("another query", 7))
    assert not sink.is_applied(spark, warehouse_table("nobody", "shop", schema.table_schema.table_id), applied)


@pytest.mark.parametrize("is_row_left", [True, False])
def test_a_first_batch_is_recognised_too(shared: SharedSpark, is_row_left: bool) -> None:
    """It is appended instead of merged, and may leave no row at all: its identity is there all the same."""
    mirror, schema = Mirror(shared, "first"), orders_schema()
    spark, sink, table = shared.session, shared.sink, mirror.table(schema)
    first = BatchIdentity("query", next(_batches))
    sink.begin_batch(spark, first)
    columns = sink.ensure_table(spark, table)
    assert not sink.is_applied(spark, table.name, first)

    changes = [gone(1, 2), *([put(1, 1, "one")] if is_row_left else [])]
    parsed = events(spark, schema.topic, changes).transform(parse_events(schema.table_schema))
    sink.merge_into(spark, table, parsed.transform(conform_to(columns, schema.table_schema)))

    assert sink.is_applied(spark, table.name, first)
    assert mirror.rows(schema) == ([{"id": 1, "note": "one"}] if is_row_left else [])


def test_a_new_column_arrives_before_its_rows_and_fills_the_old_ones(shared: SharedSpark) -> None:
    """ADD COLUMN … DEFAULT writes no events, yet every existing row has the default; a later NULL stays NULL."""
    mirror = Mirror(shared, "evolve")
    mirror.apply(orders_schema(), put(1, 1, "one"), put(1, 2, "two"))
    size = column("size", "varchar(5)", charset="utf8mb4", default_expression="it's")
    second = orders_schema(ID, size, NOTE, version=2)

    evolved = mirror.apply(second, put(2, 2, "two", size=None))
    third = orders_schema(ID, size, column("n", "bigint unsigned", is_optional=False), version=3)  # note is dropped
    grown = mirror.apply(third, Change(op="c", rank=3, after={"id": 3, "size": "XL", "n": 8}))

    assert evolved == [{"id": 1, "size": "it's", "note": "one"}, {"id": 2, "size": None, "note": "two"}]
    assert grown == [
        {"id": 1, "size": "it's", "note": "one", "n": 0},
        {"id": 2, "size": None, "note": "two", "n": 0},
        {"id": 3, "size": "XL", "note": None, "n": 8},
    ]


def test_numbers_widen_in_place(shared: SharedSpark) -> None:
    """INT to BIGINT, FLOAT to DOUBLE, and a DECIMAL of more digits keep what is stored."""
    mirror = Mirror(shared, "widen")
    narrow = (ID, column("a", "int"), column("f", "float"), column("d", "decimal(5,2)"))
    wide = (
        column("id", "bigint", is_optional=False),
        column("a", "bigint"),
        column("f", "double"),
        column("d", "decimal(12,2)"),
    )
    mirror.apply(orders_schema(*narrow), Change(op="c", rank=1, after={"id": 1, "a": 1, "f": 0.5, "d": "AQ=="}))

    after = {"id": 2**40, "a": 2**41, "f": 0.1, "d": "O5rKAA=="}
    rows = mirror.apply(orders_schema(*wide, version=2), Change(op="c", rank=2, after=after))

    assert [(row["id"], row["a"], row["f"], str(row["d"])) for row in rows] == [
        (1, 1, 0.5, "0.01"),
        (2**40, 2**41, 0.1, "10000000.00"),
    ]


@pytest.mark.parametrize(
    ("current", "now"), [("string", "int"), ("bigint", "timestamp"), ("decimal(10,2)", "decimal(12,4)")]
)
def test_a_change_that_would_lose_values_is_refused(current: str, now: str) -> None:
    """The message names the table, the column, and what to do."""
    with pytest.raises(TableRefused, match=r"acme\.shop\.shop\.orders: column c .*\(docs/sinks\.md"):
        _evolution({"c": current}, now)


@pytest.mark.parametrize(("current", "now"), [("bigint", "int"), ("double", "float"), ("decimal(9,2)", "decimal(5,2)")])
def test_a_narrower_column_is_kept_wide(current: str, now: str) -> None:
    """Nothing is ever narrowed: old rows hold old values."""
    assert not _evolution({"C": current}, now)


def _evolution(current: dict[str, str], now: str) -> Evolution:
    return evolution(current, _one_column_table(now), type_of=attrgetter("sql_type"), is_wider=is_wider)


def test_a_table_does_not_change_its_mode_or_key(shared: SharedSpark) -> None:
    """Rows of two modes, or merged by two keys, would make no sense together."""
    mirror, schema = Mirror(shared, "settled"), orders_schema()
    mirror.apply(schema, put(1, 1, "one"))

    with pytest.raises(TableRefused, match=r"sink\.mode is append"):
        shared.sink.ensure_table(shared.session, mirror.table(schema, SinkMode.APPEND))
    with pytest.raises(TableRefused, match=r"source's key is \(id,note\)"):
        shared.sink.ensure_table(shared.session, mirror.table(orders_schema(key=("id", "note"), version=2)))


def test_maintenance_changes_no_row_and_leaves_few_files(shared: SharedSpark) -> None:
    """After many small merges: delete files are rewritten, snapshots expired, rows and the last batch as before."""
    mirror, schema = Mirror(shared, "maintain"), orders_schema()
    for rank in range(1, 9):
        before = mirror.apply(schema, put(rank, rank % 3, f"at {rank}"))
    name = mirror.table(schema).name
    spark, sink = shared.session, shared.sink
    last = spark.conf.get("spark.sql.iceberg.snapshot-property.headwater.batch")
    assert last is not None

    sink.maintain(spark, name)
    sink.maintain(spark, name)

    files = spark.sql(f"SELECT count(*) FILTER (WHERE content = 1) d, count(*) n FROM {name.quoted()}.files").collect()[
        0
    ]
    snapshots = spark.sql(f"SELECT * FROM {name.quoted()}.snapshots").count()
    assert mirror.rows(schema) == before
    assert (files["d"], files["n"] <= 2) == (0, True)
    assert snapshots <= 2 * 3
    assert sink.is_applied(spark, name, BatchIdentity(*_split(last)))


def _split(identity: str) -> tuple[str, int]:
    query_id, _, batch_id = identity.rpartition(":")
    return query_id, int(batch_id)


def _one_column_table(sql_type: str) -> SinkTable:
    return SinkTable(
        name=warehouse_table("acme", "shop", orders_schema().table_schema.table_id),
        mode=SinkMode.MIRROR,
        deletes=Deletes.HARD,
        columns=(SinkColumn("c", sql_type),),
        key=("c",),
        topic="t",
        source="shop",
        table="shop.orders",
        oldest_version=1,
    )


def test_a_column_with_a_name_of_icebergs_own_parks_its_table(shared: SharedSpark) -> None:
    with pytest.raises(TableRefused, match=r"orders\._POS: Iceberg keeps this name for itself; exclude the column"):
        Mirror(shared, "reserved").apply(orders_schema(ID, column("_POS", "int")))
