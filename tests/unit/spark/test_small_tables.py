"""Small tables are merged without a query, and hold what a query would have written."""

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from libs.errors import PipelineHalted
from libs.events.delivered_schema import DeliveredSchema
from libs.mysql.logical import column
from libs.sink_state.deleted_range import DeletedRange
from libs.sink_state.progress import ParkedTable
from libs.types.tenant import Consistency, Deletes, SinkMode, SinkSettings, TenantSpec
from libs.types.warehouse import warehouse_table
from spark.batch import small_tables
from spark.batch.events_at_hand import EventsAtHand, _grouped
from spark.batch.phases import WriteSplit
from spark.batch.small_tables import ByQuery, merge_at_hand, why_by_query
from spark.batch.table_batch import Known, TableBatch, key_bounds
from spark.batch.write import sink_table, write_batch
from spark.jvm.errors import MALFORMED_RECORD, has_condition
from spark.pending.replays import Replay
from spark.sinks.delta.sink import open_sink as open_delta_sink
from spark.sinks.iceberg import row_merge
from spark.sinks.iceberg.sink import IcebergSink, load_table
from spark.sinks.port import BatchIdentity
from spark.sinks.ready_table import ready_table
from spark.transforms.survey import survey
from tests.marks import rest
from tests.spark_session import SharedSpark
from tests.unit.events.golden import records, table_schemas
from tests.unit.spark.contexts import context_of, tenant_sink
from tests.unit.spark.events import SOURCE, Change, events, orders_schema

ID = column("id", "int", is_optional=False)
NOTE = column("note", "varchar(20)", charset="utf8mb4")
_tenants = itertools.count()


class Tenant:
    """One that has a table of ``shop.orders``, a mirror by default; batches go by the one way or by the other."""

    def __init__(
        self,
        shared: SharedSpark,
        state_dir: Path,
        delivered: DeliveredSchema,
        *,
        format_version: int = 2,
        mode: SinkMode = SinkMode.MIRROR,
        **sink: Any,
    ) -> None:
        tenant = TenantSpec(tenant=f"small-{next(_tenants)}", sources=())
        self._spark = shared.session
        self._rows = shared.rows
        self._sink = IcebergSink(msgspec.structs.replace(shared.iceberg, format_version=format_version))
        settings = SinkSettings(mode=mode, **sink)
        self._context = context_of(tenant_sink(state_dir, tenant.tenant, settings=settings, sink=self._sink))
        self._delivered = delivered
        self._batches = itertools.count()
        self._known_order = ""
        self.place = warehouse_table(tenant.tenant, SOURCE, delivered.table_schema.table_id)

    def deliver(self, delivered: DeliveredSchema) -> None:
        """A newer version of the table, from the next batch on."""
        self._context.schemas._known[self._delivered.topic, self._delivered.table_schema.version] = self._delivered
        self._delivered = delivered

    def apply(self, changes: Sequence[Change], *, at_hand: bool) -> WriteSplit | ByQuery | None:
        """One batch. None: it was to go by a query."""
        table = replace(table_batch(self._spark, self._delivered, changes), known=Known(order=self._known_order))
        self._known_order = max(self._known_order, *(part.newest_order for part in table.slices))
        self._sink.begin_batch(self._spark, BatchIdentity(self._context.tenant.tenant, next(self._batches)))
        wanted, columns = ready_table(self._spark, self._sink, [sink_table(self._context, table)])
        wanted = replace(wanted, changes=len(changes), key_bounds=key_bounds(table, columns, wanted.key))
        if at_hand:
            small = table.topic if why_by_query(self._context, table) is None else "another"
            done = merge_at_hand(self._context, table, wanted, columns, EventsAtHand(table.events, {small: 1}))
            if isinstance(done, WriteSplit):
                return done
        write_batch(self._context, table, wanted, columns)
        return done if at_hand else None

    def files(self) -> set[str]:
        """Of rows and deletes."""
        folder = Path(self._sink._settings.warehouse_dir, *self.place.namespace, self.place.name)
        return {str(file) for file in folder.rglob("*.parquet")}

    def totals(self) -> tuple[int, int]:
        """How many files of rows its current snapshot has, and how many of deletes."""
        said = load_table(self._spark, self.place).currentSnapshot().summary()
        return int(said.get("total-data-files")), int(said.get("total-delete-files"))

    def rows(self) -> list[dict[str, object]]:
        return sorted(self._rows(self.place), key=repr)


def table_batch(spark: SparkSession, delivered: DeliveredSchema, changes: Sequence[Change]) -> TableBatch:
    batch = events(spark, delivered.topic, changes)
    return TableBatch(
        topic=delivered.topic,
        slices=survey(batch)[1],
        events=batch,
        schemas={delivered.table_schema.version: delivered},
        parked=None,
        is_passed_over=False,
    )


def put(rank: int, key: int, note: str | None, *, op: str = "u", version: int = 1, **more: Any) -> Change:
    return Change(op=op, rank=rank, after={"id": key, "note": note, **more}, version=version)


def gone(rank: int, key: int, *, version: int = 1, **more: Any) -> Change:
    return Change(op="d", rank=rank, before={"id": key, "note": "old", **more}, version=version)


def random_batch(chance: random.Random, told: dict[tuple[int, int], Change], *, deletes: bool) -> list[Change]:
    """Inserts, updates, deletes and key changes of few keys, several of a key, some of them late or repeated. ``told``: the
    changes of before, by rank and key; of one order there is one change of a key, however often it comes."""
    last_rank = max([rank for rank, _ in told], default=1)
    batch = []
    for _ in range(chance.randrange(1, 25)):
        rank, key = chance.randrange(max(1, last_rank - 15), last_rank + 10), chance.randrange(12)
        changes = [put(rank, key, chance.choice([None, "", "näïve 𝄞", f"at {rank}"]), op=chance.choice("cu"))]
        if deletes and chance.random() < 0.4:
            # A change of the key comes as a delete and an insert.
            changes = [gone(rank, key), put(rank, key + 100, "moved", op="c")][: chance.choice([1, 2])]
        batch += [told.setdefault((rank, (change.after or change.before or {})["id"]), change) for change in changes]
    return [*batch, *chance.choices(batch, k=2)]


@pytest.mark.parametrize("deletes", [Deletes.HARD, Deletes.SOFT])
@pytest.mark.parametrize("batches", [4, *rest(20, because="the gate has the first four")])
def test_the_same_changes_give_the_same_table(
    shared: SharedSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletes: Deletes, batches: int
) -> None:
    """Inserts, updates, deletes, key changes, repeats and late ones, batch by batch: by a query, by files that are written
    again, and by delete files of both formats."""
    monkeypatch.setattr(row_merge, "_ANEW_BY_SHARE", 0)
    schema = orders_schema(ID, NOTE)
    by_query = Tenant(shared, tmp_path / "by-query", schema, deletes=deletes)
    at_hand = {
        (format_version, anew_at_files): Tenant(
            shared,
            tmp_path / f"{format_version}-{anew_at_files}",
            schema,
            deletes=deletes,
            format_version=format_version,
        )
        for format_version, anew_at_files in ((2, 0), (2, 1_000), (3, 1_000))
        if format_version == 2 or deletes is Deletes.HARD
    }
    chance = random.Random(11)
    told: dict[tuple[int, int], Change] = {}
    for _ in range(batches):
        batch = random_batch(chance, told, deletes=deletes is Deletes.HARD)
        by_query.apply(batch, at_hand=False)
        expected = by_query.rows()
        for (_, anew_at_files), tenant in at_hand.items():
            monkeypatch.setattr(row_merge, "_ANEW_AT_FILES", anew_at_files)

            assert isinstance(tenant.apply(batch, at_hand=True), WriteSplit)
            assert tenant.rows() == expected


def test_every_type_is_what_a_query_makes_of_it(
    shared: SharedSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debezium's own records of all types, with the values of the key's columns as their key."""
    schema = next(iter(table_schemas("all_types")))
    recorded = [item["value"]["payload"] for item in records("v1.smp.all_types") if item["value"] is not None]
    images = [payload["after"] for payload in recorded if payload["op"] != "d"]
    delivered = DeliveredSchema(topic="acme.shop.all_types", source=SOURCE, table_schema=schema)
    first = [_keyed("c", rank, image, schema.key) for rank, image in enumerate(images, start=1)]
    later = [_keyed("u", rank, image, schema.key) for rank, image in enumerate(images, start=1_000)]
    at_hand, by_query = (Tenant(shared, tmp_path / each, delivered) for each in "ab")

    for batch in (first, later):
        split = at_hand.apply(batch, at_hand=True)
        by_query.apply(batch, at_hand=False)

    assert isinstance(split, WriteSplit)
    assert at_hand.rows() == by_query.rows()
    monkeypatch.setattr(row_merge, "_ANEW_AT_FILES", 0)
    at_hand.apply([_keyed("u", 2_000, images[0], schema.key)], at_hand=True)  # the other rows are copied
    assert at_hand.totals() == (1, 0)
    assert [_without_order(row) for row in at_hand.rows()] == [_without_order(row) for row in by_query.rows()]
    assert len(at_hand.rows()) == len({json.dumps([image[name] for name in schema.key]) for image in images})


def test_keys_of_several_columns_are_told_apart_by_value(shared: SharedSpark, tmp_path: Path) -> None:
    """Texts, bytes, decimals, moments, and NULL where a column may be NULL."""
    names = {"a": "varchar(9)", "b": "varbinary(9)", "c": "decimal(30,2)", "d": "datetime(6)", "e": "bigint"}
    columns = [
        column(name, of, is_optional=name == "e", charset="utf8mb4" if name == "a" else None)
        for name, of in names.items()
    ]
    delivered = orders_schema(*columns, NOTE, key=tuple(names))
    at_hand, by_query = (Tenant(shared, tmp_path / each, delivered) for each in "ab")
    chance = random.Random(3)
    told: dict[tuple[int, str], Change] = {}
    for rank in range(6):
        batch = []
        for _ in range(20):
            key = {
                "a": chance.choice(["", "ä", "Ä "]),
                "b": chance.choice(["", "AA==", "AAA="]),
                "c": chance.choice(["AA==", "fw==", "f////////////w=="]),
                "d": chance.choice([0, 1, 253_402_300_799_999_999]),
                "e": chance.choice([None, 0]),
            }
            image = {**key, "note": f"at {rank}"}
            batch.append(told.setdefault((rank, json.dumps(key)), Change(op="u", rank=rank + 1, after=image, key=key)))
        split = at_hand.apply(batch, at_hand=True)
        by_query.apply(batch, at_hand=False)

    assert isinstance(split, WriteSplit)
    assert at_hand.rows() == by_query.rows()


def test_a_newer_version_of_the_table_is_decoded_anew(shared: SharedSpark, tmp_path: Path) -> None:
    """A column that comes, and a type that widens; the decoder that is kept from batch to batch is of the older one."""
    tenant = Tenant(shared, tmp_path, orders_schema(ID, NOTE))
    tenant.apply([put(1, 1, "one")], at_hand=True)
    assert isinstance(tenant.apply([put(2, 2, "two")], at_hand=True), WriteSplit)
    wide = column("id", "bigint", is_optional=False)
    tenant.deliver(orders_schema(wide, NOTE, column("n", "int"), version=2))

    later = [put(3, 2**40, "three", version=2, n=7), put(3, 1, "1", version=2, n=8)]
    assert isinstance(tenant.apply(later, at_hand=True), WriteSplit)

    assert [(row["id"], row["note"], row["n"]) for row in tenant.rows()] == [
        (1, "1", 8),
        (2**40, "three", 7),
        (2, "two", None),
    ]


def test_what_cannot_be_decoded_leaves_nothing(shared: SharedSpark, tmp_path: Path) -> None:
    """The query says then which value does not fit; no file of the other events' is left."""
    tenant = Tenant(shared, tmp_path, orders_schema(ID, NOTE))
    tenant.apply([put(1, 1, "one")], at_hand=True)
    before = tenant.files()

    with pytest.raises((PySparkException, Py4JJavaError)) as failed:
        tenant.apply([put(2, 2, "two"), put(2, 2**40, "too large")], at_hand=True)

    assert has_condition(failed.value, MALFORMED_RECORD)
    assert tenant.files() == before
    assert [row["id"] for row in tenant.rows()] == [1]


@pytest.mark.parametrize(
    ("before", "anew_at_files"),
    [
        pytest.param([], 1_000, id="first-rows"),
        pytest.param([put(1, key, "one") for key in range(1, 9)], 0, id="later-anew"),
        pytest.param([put(1, key, "one") for key in range(1, 9)], 1_000, id="later-by-deletes"),
    ],
)
def test_a_commit_that_came_between_makes_ours_fail(
    shared: SharedSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: list[Change],
    anew_at_files: int,
) -> None:
    """One of the same rows, from a job that was killed: a row would be there twice. Our files go."""
    monkeypatch.setattr(row_merge, "_ANEW_AT_FILES", anew_at_files)
    tenant = Tenant(shared, tmp_path, orders_schema(ID, NOTE))
    if before:
        tenant.apply(before, at_hand=True)

    def come(_: str) -> None:
        monkeypatch.undo()
        tenant.apply([put(2, 10, "ten")], at_hand=False)

    monkeypatch.setattr(small_tables, "failpoint", come)
    with pytest.raises(Py4JJavaError, match="ValidationException"):
        tenant.apply([put(2, 10, "ten")], at_hand=True)

    assert {row["id"] for row in tenant.rows()} == {10, *range(1, len(before) + 1)}
    assert len(tenant.rows()) == len(before) + 1
    assert len(tenant.files()) == bool(before) + 1


@pytest.mark.parametrize("format_version", [2, 3])
def test_a_table_is_written_anew_where_that_is_less(
    shared: SharedSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_version: int
) -> None:
    """Where a batch replaces much of it, or it has come to many files. Rows of format 3 keep their numbers, so it never is."""
    monkeypatch.setattr(row_merge, "_ANEW_AT_FILES", 5)
    tenant = Tenant(shared, tmp_path, orders_schema(ID, NOTE), format_version=format_version)
    totals = []
    first = [put(1, key, "first") for key in range(9)]
    for batch in (first, [put(2, 1, "two")], [put(3, 1, "three")], [put(4, 1, "four")], first[:1] * 3):
        assert isinstance(tenant.apply(batch, at_hand=True), WriteSplit)
        totals.append(tenant.totals())

    assert totals == (
        [(1, 0), (2, 1), (3, 2), (1, 0), (1, 0)] if format_version == 2 else [(1, 0), (2, 1), (3, 2), (4, 3), (4, 3)]
    )
    assert [(row["id"], row["note"]) for row in tenant.rows()] == [
        (0, "first"),
        (1, "four"),
        *((n, "first") for n in range(2, 9)),
    ]


def test_a_table_of_many_rows_is_merged_by_a_query(
    shared: SharedSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_merge, "_MOST_ROWS", 2)
    tenant = Tenant(shared, tmp_path, orders_schema(ID, NOTE))
    assert isinstance(tenant.apply([put(1, 1, "one"), put(1, 2, "two")], at_hand=True), WriteSplit)
    assert isinstance(tenant.apply([put(2, 3, "three")], at_hand=True), WriteSplit)

    assert tenant.apply([put(3, 4, "four")], at_hand=True) is ByQuery.TABLE
    assert [row["id"] for row in tenant.rows()] == [1, 2, 3, 4]


def test_what_is_small(shared: SharedSpark, tmp_path: Path) -> None:
    """All that a merge by hand does not do is left to a query, and it is said why."""
    schema = orders_schema(ID, NOTE)
    table = table_batch(shared.session, schema, [put(5, 1, "one"), gone(6, 2)])
    keyless = orders_schema(ID, NOTE, key=())
    truncated = table_batch(shared.session, schema, [put(5, 1, "one"), Change(op="t", rank=6)])
    newer = orders_schema(ID, NOTE, column("n", "int"), version=2)
    [part] = table.slices
    of_two = replace(table, slices=[part, replace(part, schema_version=2)], schemas={1: schema, 2: newer})
    late = DeletedRange(newest_order="9", from_offsets={0: 0}, to_offsets={0: 1}, schema_versions=(1,))

    def why(table: TableBatch, sink: Any = shared.sink, **settings: Any) -> ByQuery | None:
        settings = {"mode": SinkMode.MIRROR, **settings}
        return why_by_query(context_of(tenant_sink(tmp_path, sink=sink, settings=SinkSettings(**settings))), table)

    assert why(table) is None
    assert why(replace(table, slices=[replace(part, newest_delete=None)]), deletes=Deletes.SOFT) is None
    assert why(table, deletes=Deletes.SOFT) is ByQuery.EVENTS
    assert why(table, consistency=Consistency.TRANSACTION) is ByQuery.TOGETHER
    assert why(table, sink=open_delta_sink(shared.delta)) is ByQuery.WAREHOUSE
    assert why(table, mode=SinkMode.APPEND) is ByQuery.MODE
    assert why(replace(table, schemas={1: keyless})) is ByQuery.TABLE
    assert why(truncated) is ByQuery.EVENTS
    assert why(of_two) is ByQuery.EVENTS
    for changed, because in (
        ({"rows": 10_001}, ByQuery.MANY_EVENTS),
        ({"image_bytes": 2**30}, ByQuery.MANY_EVENTS),
        ({"partial_rows": 1}, ByQuery.EVENTS),
    ):
        assert why(replace(table, slices=[replace(part, **changed)])) is because, changed
    for changed in (
        {"parked": ParkedTable(because="so", from_offsets={}, to_offsets={})},
        {"replay": Replay((), {})},
        {"known": Known(deleted=(late,))},
        {"known": Known(truncated="9")},
    ):
        assert why(replace(table, **changed)) is ByQuery.EVENTS, changed


def test_a_table_under_two_versions_is_written_by_a_query_beside_small_ones(
    shared: SharedSpark, tmp_path: Path
) -> None:
    """A batch with DDL in its midst is asked for like any other."""
    older, newer = orders_schema(ID, NOTE), orders_schema(ID, NOTE, column("n", "int"), version=2)
    batch = events(shared.session, older.topic, [put(1, 1, "one"), put(2, 2, "two", version=2, n=7)])
    table = replace(
        table_batch(shared.session, newer, [put(1, 1, "one")]),
        slices=survey(batch)[1],
        events=batch,
        schemas={1: older, 2: newer},
    )
    context = context_of(tenant_sink(tmp_path, sink=shared.sink, settings=SinkSettings(mode=SinkMode.MIRROR)))
    at_hand = EventsAtHand(batch, {"another": 1})

    assert merge_at_hand(context, table, sink_table(context, table), {}, at_hand) is ByQuery.EVENTS


def test_a_table_whose_events_are_not_all_there_is_not_written(shared: SharedSpark) -> None:
    """The events at hand are those that the batch was read with."""
    schema = orders_schema(ID, NOTE)
    batch = events(shared.session, schema.topic, [put(1, 1, "one"), put(2, 2, "two")])

    for counted in (1, 3):
        with pytest.raises(PipelineHalted, match=rf"with {counted} events, and 2 are here"):
            EventsAtHand(batch, {schema.topic: 1}, rows={schema.topic: counted}).take(schema.topic, [])


def test_events_are_brought_by_the_group() -> None:
    """As many tables' as are allowed at once, by one query; a table that is larger by itself."""
    groups = [group.topics for group in _grouped({"a": 9_000_000, "b": 7_000_000, "c": 1, "d": 99_000_000, "e": 1})]

    assert groups == [["a", "b"], ["c"], ["d"], ["e"]]


def _without_order(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _keyed(op: str, rank: int, image: Mapping[str, Any], key: Sequence[str]) -> Change:
    return Change(op=op, rank=rank, after=image, key={name: image[name] for name in key})
