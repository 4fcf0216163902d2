"""One table's part of a micro-batch: from its events to the rows that its mode wants, plain DataFrame work."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from libs.events.delivered_schema import DeliveredSchema
from libs.sink_state.deleted_range import DeletedRange
from libs.sink_state.progress import ParkedTable, ReachedPosition, Standing
from libs.sink_state.stream_offsets import joined_offsets
from libs.types.table import TableSchema
from libs.types.tenant import Images
from libs.types.warehouse import ORDER_COLUMN, WarehouseTable, warehouse_table
from libs.warehouse.spark_types import UNSIGNED_BIGINT
from spark.batch.context import BatchContext
from spark.pending.replays import Replay
from spark.sinks.port import KeyBounds, Reached, SinkTable
from spark.transforms.conform_to import conform_to
from spark.transforms.latest_per_key import latest_per_key
from spark.transforms.log_images import before_images, name_before_image, name_image
from spark.transforms.parse_events import parse_events
from spark.transforms.parse_keys import has_whole_number_key, key_columns, parse_keys
from spark.transforms.partial_rows import latest_known_per_key, split_unavailable
from spark.transforms.survey import Slice
from spark.transforms.warehouse_columns import TableColumn, Truncation

_PARTIAL: Final = ("is_partial",)
_ONE_TASK_ROWS: Final = 10_000
_WHOLE_NUMBERS: Final = frozenset({"smallint", "int", "bigint"})


@dataclass(frozen=True, slots=True)
class Known:
    """A table as the batches before left it."""

    order: str = ""
    """The newest one; empty: there were none."""
    committed_at_us: int = 0
    """When the source committed the newest of them."""
    offsets: Mapping[int, int] = field(default_factory=dict)
    """By Kafka partition, where the former batches ended; set where dead letters are replayed."""
    positions: tuple[ReachedPosition, ...] = ()
    ignored: tuple[str, ...] = ()
    """Changes that they did not deliver, by policy."""
    deleted: tuple[DeletedRange, ...] = ()
    """Their deletes."""
    truncated: str = ""
    """The order of their newest truncation; empty: there was none."""
    standing: Standing = field(default_factory=Standing)


@dataclass(frozen=True, slots=True)
class TableBatch:
    """One table's part of a micro-batch."""

    topic: str
    slices: Sequence[Slice]
    events: DataFrame
    schemas: Mapping[int, DeliveredSchema]
    """By version: those of the slices."""
    parked: ParkedTable | None
    """It was parked before; where it is to be tried again, ``events`` reach back to its first one."""
    is_passed_over: bool
    known: Known = field(default_factory=Known)
    replay: Replay | None = None
    """If given, ``events`` hold dead letters besides."""
    own_slices: Sequence[Slice] | None = None
    """Those of the events that are no dead letters; None: ``slices``."""
    is_resynced: bool = False
    """``events`` are the whole table, which is to hold nothing else (``spark.batch.resync``)."""
    rest: ParkedTable | None = None
    """The events of a parked table that still wait when ``events`` are written; None: none."""
    read_to: Mapping[int, int] = field(default_factory=dict)
    """By Kafka partition, where the reading of a parked table's or a whole table's events ended; empty: after ``fresh``."""

    @property
    def newest(self) -> DeliveredSchema:
        return self.schemas[max(self.schemas)]

    @property
    def unknown_versions(self) -> list[int]:
        """Of events whose schema nobody knows: that of another version stands in its place."""
        return sorted(version for version, schema in self.schemas.items() if schema.table_schema.version != version)

    @property
    def fresh(self) -> Sequence[Slice]:
        """The events read from the table's topic."""
        return self.slices if self.own_slices is None else self.own_slices

    @property
    def fresh_range(self) -> tuple[dict[int, int], dict[int, int]]:
        """The same, by Kafka partition: from which offset, and to which, that excluded."""
        return range_of(self.fresh)

    def is_fresh(self, kafka_partition: int, offset: int) -> bool:
        """Whether the event there was read from the table's topic, and not from the dead letters."""
        from_offsets, _ = self.fresh_range
        return kafka_partition in from_offsets and offset >= from_offsets[kafka_partition]


def range_of(slices: Sequence[Slice]) -> tuple[dict[int, int], dict[int, int]]:
    """By Kafka partition: from which offset, and to which, that excluded."""
    return (
        joined_offsets(*(part.from_offsets for part in slices), choose=min),
        joined_offsets(*(part.to_offsets for part in slices), choose=max),
    )


def reached_with(table: TableBatch) -> Reached:
    """How far the table gets with this batch: never back, though dead letters are older than its rows."""
    return Reached(
        order=max(table.known.order, *(part.newest_order for part in table.slices)),
        committed_at_us=max(table.known.committed_at_us, *(part.newest_committed_at_us for part in table.slices)),
        offsets=joined_offsets(table.known.offsets, *(part.to_offsets for part in table.slices), choose=max),
    )


def truncations_of(table: TableBatch) -> tuple[Truncation | None, Truncation | None]:
    """The oldest and the newest. Where rows have a key, an event without one is a truncation."""
    keyed = [part for part, schema in parts_of(table) if schema.key and part.newest_keyless is not None]
    by_order = attrgetter("order")
    return (
        min((part.oldest_keyless for part in keyed), key=by_order, default=None),
        max((part.newest_keyless for part in keyed), key=by_order, default=None),
    )


def changes_of(
    table: TableBatch, columns: Mapping[str, TableColumn], *, key: Sequence[str] = (), is_partial: bool = False
) -> DataFrame:
    """Every change of the table in this batch, as rows of the warehouse's table; NULL for values that the log does not hold.

    ``key``: of the table; if given, it comes from the events' keys where these are the same, so that a query for keys alone
    parses no row. ``is_partial``: with ``UNAVAILABLE_COLUMN``, which names those values.
    """
    parts = []
    for part, schema in parts_of(table):
        keys = _parsed_keys(columns, schema, key)
        may_lack = is_partial or bool(part.partial_rows)
        parts.append(
            _events_of(table, part, *_PARTIAL[:may_lack])
            .transform(parse_keys(columns, schema) if keys else _unchanged)
            .transform(split_unavailable if may_lack else _unchanged)
            .transform(parse_events(schema))
            .transform(conform_to(columns, schema, parsed_keys=keys, is_partial=is_partial))
        )
    return functools.reduce(DataFrame.unionByName, parts)


def _parsed_keys(columns: Mapping[str, TableColumn], schema: TableSchema, key: Sequence[str]) -> dict[str, str] | None:
    """``key_columns``, where the events' keys are the table's."""
    return key_columns(schema) if key and schema.key == tuple(key) and set(key) <= columns.keys() else None


def logged_changes_of(table: TableBatch, columns: Mapping[str, TableColumn], images: Images) -> DataFrame:
    """``changes_of`` as rows of a log, with ``IMAGE_COLUMN``; ``BEFORE_AND_AFTER``: rows before updates besides."""
    changes = changes_of(table, columns).transform(name_image)
    if images is Images.AFTER:
        return changes
    before = replace(table, events=before_images(table.events))
    return changes.unionByName(changes_of(before, columns).transform(name_before_image))


def latest_changes_of(
    table: TableBatch, columns: Mapping[str, TableColumn], key: Sequence[str], *, after: str | None
) -> DataFrame:
    """The last change of each key in this batch, as rows of the warehouse's table; ``after`` an order, if given.

    Of one version, only the last rows are parsed. Where versions meet, or where the events' own key is another than the
    table's, all are: only as rows of the table do their keys have one type and one name.
    """
    parts = parts_of(table)
    part, schema = parts[0]
    if not is_whole_mirror(table):
        return _latest_known(table, columns, key, after=after)
    if len(parts) == 1 and (keys := _parsed_keys(columns, schema, key)):
        events = _after(_events_of(table, part), after)
        if after is None and part.newest_keyless is not None:
            events = events.where("image IS NOT NULL")
        return _latest_then_parsed(events, columns, schema, keys)
    return functools.reduce(
        DataFrame.unionByName,
        # All truncations are at or before ``after``, save those of a version without a key.
        [
            _after(_events_of(table, part), after)
            .where("image IS NOT NULL")
            .transform(parse_events(schema))
            .transform(conform_to(columns, schema))
            for part, schema in parts
        ],
    ).transform(latest_per_key(key=key, order=ORDER_COLUMN))


def _latest_then_parsed(
    events: DataFrame, columns: Mapping[str, TableColumn], schema: TableSchema, keys: Mapping[str, str]
) -> DataFrame:
    """``latest_changes_of`` one version: the keys come from the records' keys, and only the last rows are parsed."""
    return (
        events.transform(parse_keys(columns, schema))
        .transform(latest_per_key(key=tuple(keys.values()), order="order"))
        .transform(parse_events(schema))
        .transform(conform_to(columns, schema, parsed_keys=keys))
    )


def _latest_known(
    table: TableBatch, columns: Mapping[str, TableColumn], key: Sequence[str], *, after: str | None
) -> DataFrame:
    """``latest_changes_of`` rows that are not whole, with ``UNAVAILABLE_COLUMN``; all are parsed."""
    parts = []
    for part, schema in parts_of(table):
        keys = _parsed_keys(columns, schema, key)
        events = _after(_events_of(table, part, *_PARTIAL), after).where("image IS NOT NULL")
        # An image may lack the key too; its record never does.
        keyed = events.transform(parse_keys(columns, schema)) if keys else events
        parts.append(
            keyed.transform(split_unavailable)
            .transform(parse_events(schema))
            .transform(conform_to(columns, schema, parsed_keys=keys, is_partial=True))
        )
    return functools.reduce(DataFrame.unionByName, parts).transform(latest_known_per_key(key=key))


def key_bounds(table: TableBatch, columns: Mapping[str, TableColumn], key: Sequence[str]) -> KeyBounds | None:
    """Where the keys of all events lie; None where that is not known. ``key``: as the warehouse's table has it."""
    parts = parts_of(table)
    numbers = [part.numbers for part, _ in parts if part.numbers is not None]
    if len(numbers) < len(parts) or not all(
        schema.key == tuple(key) and has_whole_number_key(schema) for _, schema in parts
    ):
        return None
    [name] = key
    least, greatest = min(low for low, _ in numbers), max(high for _, high in numbers)
    # A BIGINT UNSIGNED beyond 2**63-1 is negative in events, and is not in the table.
    is_as_written = columns[name].sql_type in _WHOLE_NUMBERS or (
        columns[name].sql_type == UNSIGNED_BIGINT and least >= 0
    )
    return KeyBounds(name, least, greatest) if is_as_written else None


def are_first(table: TableBatch) -> bool:
    """Whether every event may be the first of its row."""
    return all(part.first_rows == part.rows for part in table.slices)


def is_whole_mirror(table: TableBatch) -> bool:
    """Whether every event has its whole row, so that the last one of a key says all that the others say."""
    return not any(part.partial_rows for part in table.slices)


def placed_changes(table: TableBatch, columns: Mapping[str, TableColumn]) -> DataFrame:
    """``changes_of``, each with its place after its columns (``NamesRefusedRows``)."""
    parts = [
        events_with_places(table, part, is_partial=bool(part.partial_rows))
        .transform(parse_events(schema))
        .transform(conform_to(columns, schema, kept=("kafka_partition", "offset")))
        for part, schema in parts_of(table)
    ]
    return functools.reduce(DataFrame.unionByName, parts)


def events_with_places(table: TableBatch, part: Slice, *, is_partial: bool) -> DataFrame:
    """The events of a slice with where they stand. ``is_partial``: placeholders are null."""
    events = _events_of(table, part, "kafka_partition", "offset", *_PARTIAL[:is_partial])
    return events.transform(split_unavailable) if is_partial else events


def _unchanged(events: DataFrame) -> DataFrame:
    return events


def _after(events: DataFrame, order: str | None) -> DataFrame:
    return events if order is None else events.where(sf.col("order") > order)


def parts_of(table: TableBatch) -> list[tuple[Slice, TableSchema]]:
    return [(part, table.schemas[part.schema_version].table_schema) for part in table.slices]


def _events_of(table: TableBatch, part: Slice, *more: str) -> DataFrame:
    events = table.events.where(
        (sf.col("topic") == part.topic) & (sf.col("schema_version") == part.schema_version)
    ).select("key", "order", "op", "committed_at_us", "image", *more)
    # A task costs more than a few rows do, and where there is one only, nothing is shuffled after it.
    return events.coalesce(1) if part.rows <= _ONE_TASK_ROWS else events


def tracked_columns(context: BatchContext, wanted: SinkTable, columns: Mapping[str, TableColumn]) -> list[str]:
    """Columns of which a change opens a version."""
    return [
        name
        for name, column in columns.items()
        if name not in wanted.key and context.of.tracks(f"{wanted.table}.{_source_name(name, column)}")
    ]


def _source_name(name: str, column: TableColumn) -> str:
    """One that stands beside another is called as that one."""
    return name if column.stored is None else column.stored.variant_of or name


def place_of(context: BatchContext, table: TableBatch) -> WarehouseTable:
    """Where the table lies in the warehouse."""
    newest = table.newest
    return warehouse_table(context.tenant.tenant, newest.source, newest.table_schema.table_id)
