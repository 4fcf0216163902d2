"""History tables of every warehouse against a plain model of versions; soft deletes of Iceberg's."""

import contextlib
import dataclasses
import datetime
import importlib
import itertools
import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.events.delivered_schema import DeliveredSchema
from libs.mysql.logical import column
from libs.types.table import FormerName
from libs.types.tenant import Deletes, SinkMode, SinkSettings, TenantSpec
from libs.types.warehouse import CLOSED_BY_COLUMN, IS_CURRENT_COLUMN, OPENED_BY_COLUMN, WarehouseTable, warehouse_table
from spark.batch.events_at_hand import EventsAtHand
from spark.batch.phases import WriteSplit
from spark.batch.small_tables import ByQuery, merge_at_hand, why_by_query
from spark.batch.table_batch import Known, TableBatch
from spark.batch.write import sink_table, write_batch, write_resynced
from spark.sinks.clickhouse import sink as clickhouse_sink
from spark.sinks.clickhouse.sink import open_sink as open_clickhouse_sink
from spark.sinks.delta.sink import open_sink as open_delta_sink
from spark.sinks.iceberg import sink as iceberg_sink
from spark.sinks.iceberg.key_filter import key_filter
from spark.sinks.port import BatchIdentity, Sink, SinkTable, TableRefused
from spark.sinks.postgresql.sink import open_sink as open_postgresql_sink
from spark.sinks.ready_table import ready_table
from spark.sinks.registry import SINKS
from spark.transforms.survey import survey
from spark.transforms.versions import UNTOLD
from spark.transforms.warehouse_columns import TableColumn
from tests import clickhouse
from tests.clickhouse import ClickhouseServer
from tests.conftest import PostgresqlServer
from tests.contract.test_sinks import delta_rows, postgresql_rows, postgresql_settings
from tests.marks import gate, rest
from tests.spark_session import Row, SharedSpark
from tests.unit.spark.contexts import context_of, tenant_sink
from tests.unit.spark.events import COMMITTED_AT_US, SOURCE, Change, events, orders_schema

pytestmark = pytest.mark.usefixtures("interpreted")

SCHEMA = orders_schema(
    column("id", "int", is_optional=False),
    column("note", "varchar(20)", charset="utf8mb4"),
    column("seen", "int"),
)
UNKNOWN = "__debezium_unavailable_value"
AT_HAND = "iceberg, at hand"
"""As small tables are merged: without a query, where the changes are in order."""
KINDS = ("iceberg", AT_HAND, *sorted({*SINKS} - {"iceberg"}))
FILTERED = "iceberg, by a filter"
"""As large tables are merged: of the stored rows, only those are read that may have one of the batch's keys."""
BY_TASKS = "clickhouse, by several tasks"
"""As many stored versions are read."""
FIRST_AT_HAND = gate([AT_HAND], KINDS, because="the gate shows it on Iceberg, from the second batch on by a query")
"""Batches that are late, truncated or resynced go by a query in any case; the one before costs a fourth at hand."""
COMMIT = "spark.sinks.iceberg.sink.commit"
_tenants = itertools.count()


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A sink, and the rows that another program reads from a table."""

    sink: Sink
    rows: Callable[[WarehouseTable], list[Row]]
    is_at_hand: bool = False
    """Whether merges that may go without a query do."""


@pytest.fixture
def warehouse(
    request: pytest.FixtureRequest, shared: SharedSpark, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Warehouse]:
    """Every kind, its times with a zone."""
    match request.param:
        case "clickhouse" | "clickhouse, by several tasks" as kind:
            if kind == BY_TASKS:
                monkeypatch.setattr(clickhouse_sink, "_ONE_TASK_ROWS", 1)
            clickhouse_server: ClickhouseServer = request.getfixturevalue("clickhouse_server")
            sink = open_clickhouse_sink(clickhouse.settings_of(clickhouse_server))
            yield Warehouse(sink, lambda place: clickhouse.rows_of(clickhouse_server, place))
        case "delta":
            yield Warehouse(open_delta_sink(shared.delta), lambda place: delta_rows(shared.delta, place))
        case "iceberg" | "iceberg, at hand" as kind:
            yield at_hand(shared) if kind == AT_HAND else Warehouse(shared.sink, shared.rows)
        case "postgresql":
            server: PostgresqlServer = request.getfixturevalue("postgresql_server")
            sink = open_postgresql_sink(postgresql_settings(server))
            yield Warehouse(sink, lambda place: postgresql_rows(server, place))
        case _:
            filters: list[str | None] = []

            def noted(*arguments: Any) -> str | None:
                filters.append(key_filter(*arguments))
                return filters[-1]

            monkeypatch.setattr(iceberg_sink, "key_filter", noted)
            monkeypatch.setattr(iceberg_sink, "MOST_CHANGED", 0)
            yield Warehouse(shared.sink, shared.rows)
            assert filters
            assert None not in filters


class Tables:
    """One table of a tenant of its own, and batches for it."""

    def __init__(
        self,
        shared: SharedSpark,
        delivered: DeliveredSchema = SCHEMA,
        *,
        warehouse: Warehouse | None = None,
        **sink: Any,
    ) -> None:
        self._shared = shared
        self._warehouse = warehouse or Warehouse(shared.sink, shared.rows)
        self._sink = self._warehouse.sink
        self._batches = itertools.count()
        self._delivered = delivered
        self._known_order = ""
        tenant = TenantSpec(tenant=f"history-{next(_tenants)}", sources=())
        self._context = context_of(tenant_sink(Path(), tenant.tenant, settings=SinkSettings(**sink), sink=self._sink))

    @property
    def place(self) -> WarehouseTable:
        return warehouse_table(self._context.tenant.tenant, SOURCE, self._delivered.table_schema.table_id)

    def apply(self, *changes: Change, batch_id: int | None = None, is_resynced: bool = False) -> list[Row]:
        """One batch, by default the next; returns the table's rows. ``batch_id``: one that comes again, of which it is
        not noted how far the table got. ``is_resynced``: ``changes`` hold every row."""
        batch = events(self._shared.session, self._delivered.topic, changes)
        table = TableBatch(
            topic=self._delivered.topic,
            slices=survey(batch)[1],
            events=batch,
            schemas={self._delivered.table_schema.version: self._delivered},
            parked=None,
            is_passed_over=False,
            known=Known(order=self._known_order),
            is_resynced=is_resynced,
        )
        if batch_id is None:
            self._known_order = max(self._known_order, *(part.newest_order for part in table.slices))
        wanted = dataclasses.replace(sink_table(self._context, table), changes=len(changes))
        spark = self._shared.session
        number = next(self._batches) if batch_id is None else batch_id
        self._sink.begin_batch(spark, BatchIdentity(self._context.tenant.tenant, number))
        wanted, columns = ready_table(spark, self._sink, [wanted])
        if not is_resynced and self._is_merged_at_hand(table, wanted, columns):
            return self.rows()
        write = write_resynced if is_resynced else write_batch
        write(self._context, table, wanted, columns)
        return self.rows()

    def _is_merged_at_hand(self, table: TableBatch, wanted: SinkTable, columns: Mapping[str, TableColumn]) -> bool:
        if not self._warehouse.is_at_hand or why_by_query(self._context, table) is not None:
            return False
        at_hand = EventsAtHand(table.events, {table.topic: 1})
        done = merge_at_hand(self._context, table, wanted, columns, at_hand)
        assert done is not ByQuery.FAILED
        return isinstance(done, WriteSplit)

    def deliver(self, delivered: DeliveredSchema) -> None:
        """A newer version of the table, from the next batch on."""
        self._context.schemas._known[delivered.topic, self._delivered.table_schema.version] = self._delivered
        self._delivered = delivered

    def rows(self) -> list[Row]:
        stored = self._warehouse.rows(self.place)
        return sorted(stored, key=lambda row: (row["id"], str(row.get(OPENED_BY_COLUMN))))


def at_hand(shared: SharedSpark) -> Warehouse:
    """Iceberg, small histories without a query."""
    return Warehouse(shared.sink, shared.rows, is_at_hand=True)


def put(rank: int, key: int, note: str | None, seen: Any = 0, *, op: str = "u") -> Change:
    return Change(op=op, rank=rank, after={"id": key, "note": note, "seen": seen})


def gone(rank: int, key: int) -> Change:
    return Change(op="d", rank=rank, before={"id": key, "note": "old", "seen": 0})


def truncate(rank: int) -> Change:
    return Change(op="t", rank=rank)


def at(rank: int) -> datetime.datetime:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(microseconds=COMMITTED_AT_US + rank)


def versions(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """id, note, seen, from and to (as ranks), is_current."""

    def rank(moment: Any) -> int | None:
        return None if moment is None else round((moment - at(0)) / datetime.timedelta(microseconds=1))

    return [
        (row["id"], row["note"], row["seen"], rank(row["valid_from"]), rank(row["valid_to"]), row[IS_CURRENT_COLUMN])
        for row in rows
    ]


@pytest.mark.parametrize(
    "warehouse",
    rest(*KINDS, because="test_any_batches… has it by a model in both ways, its closers faults/test_sink_kills.py"),
    indirect=True,
)
def test_a_change_ends_one_version_and_opens_the_next(shared: SharedSpark, warehouse: Warehouse) -> None:
    history = Tables(shared, warehouse=warehouse, mode=SinkMode.HISTORY)

    first = history.apply(put(1, 1, "a", op="c"), put(2, 1, "b"), put(3, 2, "x", op="c"))
    second = history.apply(put(4, 1, "c"), gone(5, 2), put(6, 3, "new", op="c"), gone(7, 3))
    third = history.apply(put(8, 2, "again", op="c"))

    assert versions(first) == [(1, "a", 0, 1, 2, False), (1, "b", 0, 2, None, True), (2, "x", 0, 3, None, True)]
    assert versions(second) == [
        (1, "a", 0, 1, 2, False),
        (1, "b", 0, 2, 4, False),
        (1, "c", 0, 4, None, True),
        (2, "x", 0, 3, 5, False),
        (3, "new", 0, 6, 7, False),
    ]
    assert versions(third)[3:5] == [(2, "x", 0, 3, 5, False), (2, "again", 0, 8, None, True)]
    assert [row[CLOSED_BY_COLUMN] for row in third if row["id"] == 2] == [gone(5, 2).order, None]


@pytest.mark.parametrize(
    "warehouse",
    rest(*KINDS, because="test_any_batches… tracks the same columns, by a model in both ways"),
    indirect=True,
)
def test_columns_that_are_not_tracked_rewrite_the_version(shared: SharedSpark, warehouse: Warehouse) -> None:
    """Type 1 and type 2 in one pass, within a batch and beyond it."""
    history = Tables(shared, warehouse=warehouse, mode=SinkMode.HISTORY, tracked_columns=(r".*\.note",))

    first = history.apply(put(1, 1, "a", 1, op="c"), put(2, 1, "a", 2), put(3, 1, "b", 3))
    second = history.apply(put(4, 1, "b", 4), put(5, 1, "b", 5))
    third = history.apply(put(6, 1, "c", 6))

    assert versions(first) == [(1, "a", 2, 1, 3, False), (1, "b", 3, 3, None, True)]
    assert versions(second) == [(1, "a", 2, 1, 3, False), (1, "b", 5, 3, None, True)]
    assert versions(third)[1:] == [(1, "b", 5, 3, 6, False), (1, "c", 6, 6, None, True)]


@pytest.mark.parametrize("warehouse", [*FIRST_AT_HAND, *rest(FILTERED, because="shown by any batches")], indirect=True)
def test_repeats_change_nothing_and_late_changes_find_their_place(shared: SharedSpark, warehouse: Warehouse) -> None:
    """Of row 3 a late change makes two versions one; the change that opened the second comes once more, after another late
    change between them, and opens it again."""
    history = Tables(shared, warehouse=warehouse, mode=SinkMode.HISTORY, tracked_columns=(r".*\.note",))
    stored = history.apply(
        put(1, 1, "a", op="c"), put(5, 1, "e"), put(9, 1, "i"), put(4, 2, "x", op="c"),
        put(1, 3, "a", op="c"), put(5, 3, "b", 5),
    )  # fmt: skip

    repeated = history.apply(put(9, 1, "i"), put(4, 2, "x", op="c"))
    late = history.apply(put(3, 1, "c"), put(7, 1, "g"), put(3, 3, "b", 3))
    merged = history.apply(put(6, 1, "g"), put(10, 2, "y"), put(4, 3, "c", 4), put(5, 3, "b", 5))

    assert versions(repeated) == versions(stored)
    assert versions(late) == [
        (1, "a", 0, 1, 3, False),
        (1, "c", 0, 3, 5, False),
        (1, "e", 0, 5, 7, False),
        (1, "g", 0, 7, 9, False),
        (1, "i", 0, 9, None, True),
        (2, "x", 0, 4, None, True),
        (3, "a", 0, 1, 3, False),
        (3, "b", 5, 3, None, True),
    ]
    assert versions(merged)[2:5] == [(1, "e", 0, 5, 6, False), (1, "g", 0, 6, 9, False), (1, "i", 0, 9, None, True)]
    assert versions(merged)[5:] == [
        (2, "x", 0, 4, 10, False),
        (2, "y", 0, 10, None, True),
        (3, "a", 0, 1, 3, False),
        (3, "b", 5, 3, 4, False),
        (3, "c", 4, 4, 5, False),
        (3, "b", 5, 5, None, True),
    ]


@pytest.mark.parametrize(
    "warehouse",
    [
        *gate([AT_HAND], KINDS, because="here the second batch goes by a query"),
        *rest(BY_TASKS, because="the gate shows it on Iceberg"),
    ],
    indirect=True,
)
def test_a_key_that_is_null_is_a_row_like_any_other(shared: SharedSpark, warehouse: Warehouse) -> None:
    def noted(rank: int, key: int, note: str | None, seen: int, *, op: str = "u") -> Change:
        return replace(put(rank, key, note, seen, op=op), key={"note": note})

    chosen = orders_schema(*SCHEMA.table_schema.columns, key=("note",))
    history = Tables(shared, chosen, warehouse=warehouse, mode=SinkMode.HISTORY)
    history.apply(noted(1, 1, None, 1, op="c"), noted(2, 2, "b", 1, op="c"))

    repeated = history.apply(noted(3, 1, None, 2), noted(1, 1, None, 1, op="c"))
    both = history.apply(noted(4, 1, None, 3), noted(5, 2, "b", 2))

    assert versions(repeated) == [(1, None, 1, 1, 3, False), (1, None, 2, 3, None, True), (2, "b", 1, 2, None, True)]
    assert versions(both) == [
        (1, None, 1, 1, 3, False),
        (1, None, 2, 3, 4, False),
        (1, None, 3, 4, None, True),
        (2, "b", 1, 2, 5, False),
        (2, "b", 2, 5, None, True),
    ]


@pytest.mark.parametrize(
    "warehouse",
    [
        *FIRST_AT_HAND,
        *rest(FILTERED, because="shown by any batches"),
    ],
    indirect=True,
)
def test_a_truncation_ends_every_version_and_what_the_log_does_not_hold_is_that_of_the_version_before(
    shared: SharedSpark, warehouse: Warehouse
) -> None:
    """Of rows that the batch has and of others, of versions that the batch itself opened, by the first that came. Of row 4 the
    log holds a part."""
    history = Tables(shared, warehouse=warehouse, mode=SinkMode.HISTORY)
    history.apply(put(1, 1, "a", op="c"), put(1, 4, "a", 1, op="c"), put(2, 2, "b", op="c"))

    rows = history.apply(
        put(3, 4, UNKNOWN, 2), put(4, 4, "c", UNKNOWN),
        put(5, 3, "c", op="c"), truncate(6), put(7, 2, "d", op="c"), truncate(8), put(9, 3, "e", op="c"),
    )  # fmt: skip

    assert versions(rows) == [
        (1, "a", 0, 1, 6, False),
        (2, "b", 0, 2, 6, False),
        (2, "d", 0, 7, 8, False),
        (3, "c", 0, 5, 6, False),
        (3, "e", 0, 9, None, True),
        (4, "a", 1, 1, 3, False),
        (4, "a", 2, 3, 4, False),
        (4, "c", 2, 4, 6, False),
    ]
    assert [row[CLOSED_BY_COLUMN] for row in rows[-3:]] == [put(3, 4, "").order, put(4, 4, "").order, truncate(6).order]


@pytest.mark.parametrize(
    "warehouse",
    [
        *gate([AT_HAND], KINDS, because="the gate has both of Iceberg's ways, the query with a filter"),
        FILTERED,
        *rest(BY_TASKS, because="as on Iceberg"),
    ],
    indirect=True,
)
@pytest.mark.parametrize("seed", [0, *rest(1, because="the gate has the first seed")])
def test_any_batches_give_the_versions_of_the_whole(shared: SharedSpark, warehouse: Warehouse, seed: int) -> None:
    """However the changes are cut into batches; some come late, to rows that are never deleted."""
    chance = random.Random(seed)
    history = Tables(shared, warehouse=warehouse, mode=SinkMode.HISTORY, tracked_columns=(r".*\.note",))
    changes = [_random_change(chance, rank) for rank in range(1, 61)]
    late = [change for change in changes if change.after and change.after["id"] in (1, 2) and chance.random() < 0.3]
    in_time = [change for change in changes if change not in late]

    history.apply(*in_time[:15])
    history.apply(*in_time[15:45])
    history.apply(*in_time[30:], *late[::2])  # some come twice
    rows = history.apply(*late)

    assert versions(rows) == _model([*in_time, *late])


@pytest.mark.parametrize("warehouse", FIRST_AT_HAND, indirect=True)
def test_a_history_that_is_built_anew_is_right_from_then_on(shared: SharedSpark, warehouse: Warehouse) -> None:
    """Versions from before stay. A row that the source does not have ends, one that it has otherwise opens a version, one that
    is missing comes; a version that claims to be newer than the given rows goes, and later changes are no late ones for it.
    Done again, nothing changes."""
    history = Tables(shared, warehouse=warehouse, mode=SinkMode.HISTORY)
    history.apply(
        put(1, 1, "a", op="c"), put(1, 2, "b", op="c"), put(2, 2, "b2"), put(3, 3, "gone", op="c"),
        put(4, 4, "right", op="c"), put(5, 7, "deleted", op="c"), gone(6, 7),
        put(900, 1, "doubted"), put(901, 5, "never was", op="c"), gone(902, 4),
    )  # fmt: skip
    history._known_order = put(6, 0, "").order

    told = (
        put(10, 1, "a", op="r"),
        put(10, 2, "other", op="r"),
        put(10, 4, "right", op="r"),
        put(11, 6, "missing", op="c"),
        put(12, 6, "and changed"),
        gone(13, 2),
    )
    anew = history.apply(*told, is_resynced=True)
    again = history.apply(*told, is_resynced=True)
    later = history.apply(put(14, 3, "back", op="c"), put(15, 1, "later"), gone(16, 4))

    right = [
        (1, "a", 0, 1, None, True),
        (2, "b", 0, 1, 2, False),
        (2, "b2", 0, 2, 10, False),
        (2, "other", 0, 10, 13, False),
        (3, "gone", 0, 3, 13, False),
        (4, "right", 0, 4, None, True),
        (6, "missing", 0, 11, 12, False),
        (6, "and changed", 0, 12, None, True),
        (7, "deleted", 0, 5, 6, False),
    ]
    assert versions(anew) == right
    assert again == anew
    assert [row[CLOSED_BY_COLUMN] for row in anew if row["id"] == 3] == [put(3, 3, "").order + UNTOLD]
    assert versions(later) == [
        (1, "a", 0, 1, 15, False),
        (1, "later", 0, 15, None, True),
        *right[1:5],
        (3, "back", 0, 14, None, True),
        (4, "right", 0, 4, 16, False),
        *right[6:],
    ]


@pytest.mark.parametrize("warehouse", FIRST_AT_HAND, indirect=True)
def test_values_that_were_changed_by_hand_are_told_anew(shared: SharedSpark, warehouse: Warehouse) -> None:
    """Where a version has the place of a given change, it has its values; also of a change that opens no version. A history
    that is given nothing has no current rows."""
    history = Tables(shared, warehouse=warehouse, mode=SinkMode.HISTORY, tracked_columns=(r".*\.note",))
    history.apply(put(1, 1, "by hand", 7, op="c"), put(2, 2, "b", 8, op="c"), put(3, 2, "b", 9))

    anew = history.apply(put(1, 1, "a", 1, op="c"), put(3, 2, "b", 3), truncate(4), put(5, 3, "c", 5), is_resynced=True)
    nothing = history.apply(truncate(6), is_resynced=True)

    assert versions(anew) == [(1, "a", 1, 1, 4, False), (2, "b", 3, 2, 4, False), (3, "c", 5, 5, None, True)]
    assert versions(nothing) == [*versions(anew)[:2], (3, "c", 5, 5, 6, False)]


class LeftUnderWay:
    """A commit that Iceberg's catalog was asked for by a job that was killed meanwhile: files and metadata are written."""

    def __init__(self, shared: SharedSpark, place: WarehouseTable, apply: Callable[[], object]) -> None:
        """``apply`` commits; then the catalog is as it was before."""
        self._catalog, self._place = str(shared.iceberg.catalog.file), place
        self._before = self._metadata()
        apply()
        self._after = self._metadata()
        assert self._moved(self._after, self._before)

    def comes(self) -> bool:
        """As the catalog does it: upon the metadata that it was made upon, or never."""
        return self._moved(self._before, self._after)

    def _metadata(self) -> str:
        [(location,)] = self._run(f"SELECT metadata_location {self._of_table}")
        return str(location)

    def _moved(self, since: str, to: str) -> bool:
        changed = f"metadata_location = '{to}' WHERE {self._named} AND metadata_location = '{since}'"
        return bool(self._run(f"UPDATE iceberg_tables SET {changed} RETURNING 1"))

    @property
    def _named(self) -> str:
        return f"table_namespace = '{'.'.join(self._place.namespace)}' AND table_name = '{self._place.name}'"

    @property
    def _of_table(self) -> str:
        return f"FROM iceberg_tables WHERE {self._named}"

    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self._catalog, timeout=60)) as connection, connection:
            return connection.execute(statement).fetchall()


@pytest.mark.parametrize(
    "moment",
    [
        "spark.batch.write.changes_of",
        *rest("spark.batch.write.versions_of", because="the commit is refused as at the last of these moments"),
        COMMIT,
    ],
)
def test_a_batch_that_was_left_under_way_is_there_once(
    shared: SharedSpark, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A job was killed while the catalog was at its commit. That comes when the next life is at the same batch: when it has
    asked whether the table holds it, when it has read the rows, or when it is about to commit. Either of both has the row
    that changed twice in the batch, and the one that came and went."""
    history = Tables(shared, warehouse=at_hand(shared), mode=SinkMode.HISTORY)
    history.apply(put(1, 1, "a", op="c"), put(1, 2, "b", op="c"))
    history._warehouse = replace(history._warehouse, is_at_hand=False)
    batch = (put(2, 1, "c"), put(3, 1, "d"), put(4, 3, "x", op="c"), gone(5, 3), gone(6, 2))
    late = LeftUnderWay(shared, history.place, lambda: history.apply(*batch, batch_id=1))
    module, _, name = moment.rpartition(".")
    at_moment, came = getattr(importlib.import_module(module), name), []

    def while_it_comes(*arguments: Any, **more: Any) -> Any:
        came.append(late.comes())
        return at_moment(*arguments, **more)

    monkeypatch.setattr(moment, while_it_comes)
    shared.sink._answered.clear()  # as a job that begins
    rows = history.apply(*batch, batch_id=1)

    assert versions(rows) == [
        (1, "a", 0, 1, 2, False),
        (1, "c", 0, 2, 3, False),
        (1, "d", 0, 3, None, True),
        (2, "b", 0, 1, 6, False),
        (3, "x", 0, 4, 5, False),
    ]
    assert came == [moment.endswith("changes_of")]


@pytest.mark.parametrize("moment", ["version_merge", "properties_of"])
def test_a_batch_that_was_left_under_way_is_there_once_without_a_query(
    shared: SharedSpark, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The same, where the next life merges it without a query: the commit comes before the fence, or not at all."""
    history = Tables(shared, warehouse=at_hand(shared), mode=SinkMode.HISTORY)
    history.apply(put(1, 1, "a", op="c"), put(1, 2, "b", op="c"))
    batch = (put(2, 1, "c"), put(3, 1, "d"), put(4, 3, "x", op="c"), gone(5, 3), gone(6, 2))
    by_query = replace(history._warehouse, is_at_hand=False)

    def left() -> list[Row]:
        history._warehouse = by_query
        return history.apply(*batch, batch_id=1)

    late = LeftUnderWay(shared, history.place, left)
    history._warehouse = at_hand(shared)
    at_moment, came = getattr(iceberg_sink, moment), list[bool]()

    def while_it_comes(*arguments: Any, **more: Any) -> Any:
        if not came:
            came.append(late.comes())
        return at_moment(*arguments, **more)

    monkeypatch.setattr(iceberg_sink, moment, while_it_comes)
    shared.sink._answered.clear()  # as a job that begins
    rows = history.apply(*batch, batch_id=1)

    assert versions(rows) == [
        (1, "a", 0, 1, 2, False),
        (1, "c", 0, 2, 3, False),
        (1, "d", 0, 3, None, True),
        (2, "b", 0, 1, 6, False),
        (3, "x", 0, 4, 5, False),
    ]
    assert came == [moment == "version_merge"]


@pytest.mark.rest(because="ClickHouse's own; the gate has its history in faults/test_sink_kills.py")
def test_a_batch_that_was_not_noted_changes_nothing_when_it_comes_again(
    shared: SharedSpark, clickhouse_server: ClickhouseServer
) -> None:
    """Nor under another batch with more events after it, as those of a table that was parked in between. A row changed twice,
    opened no version by a change, took a value that the log lacks from a version that has ended by now; one came and went."""
    sink = open_clickhouse_sink(clickhouse.settings_of(clickhouse_server))
    warehouse = Warehouse(sink, lambda place: clickhouse.rows_of(clickhouse_server, place))
    history = Tables(shared, warehouse=warehouse, mode=SinkMode.HISTORY, tracked_columns=(r".*\.note",))
    history.apply(put(1, 1, "a", op="c"), put(1, 2, "b", op="c"), put(2, 3, "c", op="c"), batch_id=0)
    batch = (put(3, 1, "a", 3), put(4, 1, UNKNOWN, 4), put(5, 1, "d", UNKNOWN), put(6, 4, "x", op="c"), gone(7, 4))
    batch = (*batch, truncate(8), put(9, 1, "e", op="c"))
    stored = history.apply(*batch, batch_id=1)

    again = history.apply(*batch, batch_id=1)
    behind = history.apply(*batch, put(10, 1, "f"), batch_id=2)

    assert versions(stored) == [
        (1, "a", 4, 1, 5, False),
        (1, "d", 4, 5, 8, False),
        (1, "e", 0, 9, None, True),
        (2, "b", 0, 1, 8, False),
        (3, "c", 0, 2, 8, False),
        (4, "x", 0, 6, 7, False),
    ]
    assert again == stored
    staged = clickhouse_sink.stage_prefix(history.place.namespace[0])
    assert clickhouse_server.rows(f"SELECT name FROM system.tables WHERE startsWith(name, '{staged}')") == []
    assert versions(behind) == [
        *versions(stored)[:2],
        (1, "e", 0, 9, 10, False),
        (1, "f", 0, 10, None, True),
        *versions(stored)[3:],
    ]


@pytest.mark.rest(because="ClickHouse's own; the gate has its history in faults/test_sink_kills.py")
def test_marks_of_versions_that_were_joined_are_removed(
    shared: SharedSpark, clickhouse_server: ClickhouseServer
) -> None:
    settings = clickhouse.settings_of(clickhouse_server, cleanup_every_commits=1, cleanup_at_share=0.1)
    warehouse = Warehouse(open_clickhouse_sink(settings), lambda place: clickhouse.rows_of(clickhouse_server, place))
    history = Tables(shared, warehouse=warehouse, mode=SinkMode.HISTORY)
    history.apply(put(1, 1, "a", op="c"), put(5, 1, "b"))
    joined = history.apply(put(3, 1, "b"))
    stored = f"SELECT count(), countIf(_headwater_gone = 1 AND note IS NULL) FROM {clickhouse.place_of(history.place)}"
    [(_, marks)] = clickhouse_server.rows(stored)

    warehouse.sink.maintain(shared.session, history.place)

    assert marks == 1
    assert clickhouse_server.rows(stored) == [(2, 0)]
    assert history.rows() == joined


def test_soft_deletes_mark_rows(shared: SharedSpark) -> None:
    """A row keeps its last values; one that comes again is there again; a truncation marks the rows that are there, once. A
    late change changes nothing."""
    mirror = Tables(shared, deletes=Deletes.SOFT)
    mirror.apply(put(1, 1, "a", op="c"), put(2, 2, "b", op="c"), put(3, 3, "c", op="c"), gone(4, 4))

    deleted = mirror.apply(gone(5, 1), put(6, 5, "brief", op="c"), gone(7, 5), put(1, 2, "older"))
    back = mirror.apply(put(8, 1, "again", op="c"), gone(9, 3), gone(1, 2))
    truncated = mirror.apply(put(10, 6, "f", op="c"), truncate(11), put(12, 7, "g", op="c"))

    def marks(rows: list[Row]) -> list[tuple[Any, ...]]:
        return [(row["id"], row["note"], row["_headwater_deleted"], row["_headwater_deleted_at"]) for row in rows]

    assert marks(deleted) == [
        (1, "a", True, at(5)),
        (2, "b", False, None),
        (3, "c", False, None),
        (4, "old", True, at(4)),
        (5, "old", True, at(7)),
    ]
    assert marks(back)[0] == (1, "again", False, None)
    assert marks(truncated) == [
        (1, "again", True, at(11)),
        (2, "b", True, at(11)),
        (3, "c", True, at(9)),
        (4, "old", True, at(4)),
        (5, "old", True, at(7)),
        (6, "f", True, at(11)),
        (7, "g", False, None),
    ]


def _random_change(chance: random.Random, rank: int) -> Change:
    key = chance.randrange(1, 6)
    if key > 2 and chance.random() < 0.3:
        return gone(rank, key)
    # Of a change that opened no version nothing is stored, so that a late change before it could not know of it.
    note = str(rank) if key <= 2 else chance.choice("abc")
    return put(rank, key, note, chance.randrange(3))


def _id(change: Change) -> int:
    row = change.after or change.before
    assert row is not None
    return int(row["id"])


def _model(changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    """Versions by a plain walk over every row's changes."""
    found: list[list[Any]] = []
    for key, of_row in itertools.groupby(sorted(changes, key=lambda change: (_id(change), change.rank)), _id):
        open_version: list[Any] | None = None
        for change in of_row:
            row = change.after
            if open_version is not None and (row is None or row["note"] != open_version[1]):
                open_version[4:] = [change.rank, False]
                open_version = None
            if row is not None and open_version is not None:
                open_version[2] = row["seen"]
            elif row is not None:
                open_version = [key, row["note"], row["seen"], change.rank, None, True]
                found.append(open_version)
    return [tuple(version) for version in found]


def test_mode_and_deletes_are_for_a_tables_life(shared: SharedSpark) -> None:
    mirror = Tables(shared, deletes=Deletes.SOFT)
    mirror.apply(put(1, 1, "a", op="c"))
    mirror._context = context_of(dataclasses.replace(mirror._context.of, settings=SinkSettings()))

    with pytest.raises(TableRefused, match=r"soft deletes, but the tenant's sink.deletes is hard"):
        mirror.apply(put(2, 1, "b"))


@pytest.mark.parametrize(
    "warehouse",
    gate([AT_HAND], KINDS, because="by a query in test_a_history_whose_columns_change…"),
    indirect=True,
)
def test_an_added_column_fills_the_current_versions(shared: SharedSpark, warehouse: Warehouse) -> None:
    """A version that had ended did not have it; a change from before it that comes late has the fill too."""
    history = Tables(shared, warehouse=warehouse, mode=SinkMode.HISTORY)
    history.apply(put(1, 1, "a", op="c"), put(2, 1, "b"), put(3, 2, "x", op="c"))
    size = column("it's `size`", "varchar(9)", charset="utf8mb4", default_expression="it's \\ %s")
    history.deliver(orders_schema(*SCHEMA.table_schema.columns, size, version=2))

    after = {"id": 2, "note": "y", "seen": 0, "it's `size`": "XL"}
    rows = history.apply(Change(op="u", rank=5, after=after, version=2))

    filled = "it's \\ %s"
    assert [(row["note"], row["it's `size`"]) for row in rows] == [
        ("a", None),
        ("b", filled),
        ("x", filled),
        ("y", "XL"),
    ]


@pytest.mark.parametrize("warehouse", gate(["iceberg"], KINDS, because="the gate shows it on Iceberg"), indirect=True)
def test_a_history_whose_columns_change_keeps_its_versions(shared: SharedSpark, warehouse: Warehouse) -> None:
    """Its key widens, a column is called otherwise, and one is added, which fills current versions alone."""
    history = Tables(shared, warehouse=warehouse, mode=SinkMode.HISTORY)
    history.apply(put(1, 1, "a", op="c"), put(2, 1, "b"), put(3, 2, "gone", op="c"), gone(4, 2))
    _, note, seen = SCHEMA.table_schema.columns
    remark = msgspec.structs.replace(note, name="remark", former_names=(FormerName(name="note", last_version=1),))
    size = column("size", "varchar(9)", charset="utf8mb4", default_expression="S")
    history.deliver(orders_schema(column("id", "bigint", is_optional=False), remark, seen, size, version=2))

    def changed(rank: int, key: int, remark: str) -> Change:
        return Change(op="u", rank=rank, after={"id": key, "remark": remark, "seen": 0, "size": "XL"}, version=2)

    rows = history.apply(changed(5, 1, "c"), changed(6, 2**40, "far"))

    assert versions({**row, "note": row["remark"]} for row in rows) == [
        (1, "a", 0, 1, 2, False),
        (1, "b", 0, 2, 5, False),
        (1, "c", 0, 5, None, True),
        (2, "gone", 0, 3, 4, False),
        (2**40, "far", 0, 6, None, True),
    ]
    assert [row["size"] for row in rows] == [None, "S", "XL", None, "XL"]


@pytest.mark.parametrize(
    "warehouse", gate([AT_HAND], KINDS, because="here the second batch goes by a query"), indirect=True
)
def test_values_of_every_kind_come_back_as_they_were(shared: SharedSpark, warehouse: Warehouse) -> None:
    """A version that is cut by a late change is read from the warehouse and written again; under any names of columns."""
    kinds = {
        "big": ("decimal(65,30)", "LJCalg=="),
        "small": ("decimal(12,2)", "O5rKAA=="),
        "points": ("bigint unsigned", -1),
        "rate": ("float", 0.1),
        "exact": ("double", 1e-300),
        "raw": ("varbinary(9)", "AP9c"),
        "doc": ("json", '{"b": 1.50, "a": null}'),
        "day": ("date", -719_162),
        "local": ("datetime(6)", 253_402_300_799_999_999),
        "at": ("timestamp(6)", "2038-01-19T03:14:07.999999Z"),
        "span": ("time(6)", -3_020_398_000_001),
        "ok": ("bit(1)", True),
        "stored": ("int", 1),
        "newest": ("int", 2),
        "is_end": ("bit(1)", False),
        "text": ("text", "tab\there\nand \\N 🐬"),
    }
    made = {
        name: column(name, kind, charset="utf8mb4") if kind == "text" else column(name, kind)
        for name, (kind, _) in kinds.items()
    }
    history = Tables(
        shared, orders_schema(*SCHEMA.table_schema.columns, *made.values()), warehouse=warehouse, mode=SinkMode.HISTORY
    )
    values = {name: value for name, (_, value) in kinds.items()}

    def change(rank: int, note: str) -> Change:
        return Change(op="u", rank=rank, after={"id": 1, "note": note, "seen": 0, **values})

    [first] = history.apply(change(5, "e"))
    rows = history.apply(change(3, "c"), change(9, "i"))

    assert [row["note"] for row in rows] == ["c", "e", "i"]
    for row in rows:
        assert {name: row[name] for name in kinds} == {name: first[name] for name in kinds}
    assert all(first[name] is not None for name in kinds)
