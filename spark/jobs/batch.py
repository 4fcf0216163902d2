"""One micro-batch of one tenant: the way of its events into the warehouse's tables.

    read_topics ▶ parse_keys ▶ latest_per_key ▶ parse_events ▶ conform_to ▶ merge_into ▶ record_progress

``tenant_query`` hands ``apply_batch`` to Spark's foreachBatch. The batch is read from Kafka once, surveyed, and split by
topic; each table is then committed by itself, two at a time. Spark commits the batch when all are done. A crash before
that replays the whole batch, and tables that hold it already are passed over (``Sink.is_applied``).
"""

import functools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import StorageLevel, inheritable_thread_target
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from libs.config.connections import KafkaSettings
from libs.events.delivered_schema import DeliveredSchema
from libs.failpoints import failpoint
from libs.telemetry.metrics import SINK_FAILED_MAINTENANCE
from libs.types.table import Column, TableSchema
from libs.types.table_layout import parse_ordered_term, parse_term
from libs.types.tenant import Deletes, Images, SinkMode, SinkSettings, TenantSpec
from libs.types.warehouse import (
    IS_CURRENT_COLUMN,
    ORDER_COLUMN,
    BatchTimings,
    ParkedTable,
    SinkProgress,
    TableTimings,
    WarehouseTable,
    warehouse_table,
)
from libs.warehouse.fitness import unfit_because
from libs.warehouse.schema_changes import left_out
from libs.warehouse.spark_types import spark_type
from spark.jobs.delivered_schemas import DeliveredSchemas
from spark.jobs.progress import TableCommit, TableOutcome, load_progress, observe_batch, store_progress, with_batch
from spark.jobs.retries import Retries
from spark.jobs.spark_errors import MALFORMED_RECORD, TOO_LARGE, described, has_condition
from spark.sinks.evolution import stored_columns
from spark.sinks.port import (
    BatchIdentity,
    Fill,
    KeepsVersions,
    Maintained,
    Reached,
    Sink,
    SinkColumn,
    SinkTable,
    TableColumn,
    TableLeftOut,
    TableRefused,
    Truncation,
)
from spark.sinks.ready_table import ready_table
from spark.transforms.conform_to import conform_to
from spark.transforms.fill import fill_expression
from spark.transforms.latest_per_key import latest_per_key
from spark.transforms.log_images import before_images, name_before_image, name_image
from spark.transforms.mark_deleted import mark_deleted
from spark.transforms.parse_events import parse_events
from spark.transforms.parse_keys import key_columns, parse_keys
from spark.transforms.partial_rows import latest_known_per_key, split_unavailable
from spark.transforms.read_topics import read_range
from spark.transforms.survey import Slice, survey
from spark.transforms.versions import has_late_changes, versions_of

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TenantSink:
    """What every batch of one tenant needs."""

    tenant: TenantSpec
    settings: SinkSettings
    sink: Sink
    kafka: KafkaSettings
    schemas: DeliveredSchemas
    state_dir: Path
    tables_in_parallel: int
    retries: Retries

    def tracks(self, column: str) -> bool:
        """Whether a change of ``database.table.column`` opens a new version of its row, in a history."""
        return any(re.fullmatch(pattern, column) for pattern in self.settings.tracked_columns)


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
    known_order: str
    """The newest order of the batches before; empty: there were none."""
    known_ignored: tuple[str, ...] = ()
    """What the batches before did not deliver, by policy."""

    @property
    def newest(self) -> DeliveredSchema:
        return self.schemas[max(self.schemas)]


def apply_batch(context: TenantSink, batch: BatchIdentity, events: DataFrame) -> None:
    """Apply a micro-batch: every table holds its events afterwards, or is parked with them.

    Idempotent: the same batch may come again after a crash at any point.

    Raises:
        PipelineHalted: a human must see to the tenant's topics; nothing more of this tenant is applied.
    """
    started_s = time.monotonic()
    spark = events.sparkSession
    progress = load_progress(context.state_dir, context.tenant.tenant)
    events.persist(StorageLevel.MEMORY_AND_DISK_DESER)  # columns as they are: no lz4, no serialization
    try:
        slices = survey(events)
        context.schemas.require(spark, {(part.topic, part.schema_version) for part in slices})
        read_s = time.monotonic() - started_s
        context.sink.begin_batch(spark, batch)
        tables = [
            _table_batch(context, progress, topic, list(parts), events)
            for topic, parts in groupby(slices, attrgetter("topic"))
        ]
        outcomes = _apply_tables(context, spark, batch, tables)
    finally:
        events.unpersist()
    now_us = time.time_ns() // 1_000
    timings = BatchTimings(
        read_s=round(read_s, 3),
        rows=sum(outcome.rows for outcome in outcomes if outcome.parked is None),
        total_s=round(time.monotonic() - started_s, 3),
    )
    progress = with_batch(progress, batch, outcomes, timings=timings, now_us=now_us)
    store_progress(context.state_dir, progress)
    observe_batch(context.settings.warehouse, progress, outcomes)
    log.info(
        "sink_batch_committed",
        batch_id=batch.batch_id,
        rows=timings.rows,
        tables=len(outcomes),
        replayed=sum(outcome.is_replay for outcome in outcomes),
        parked=[outcome.table for outcome in outcomes if outcome.parked is not None],
        read_s=timings.read_s,
        total_s=timings.total_s,
    )
    failpoint("sink_after_batch_before_spark_commit")


def _table_batch(
    context: TenantSink, progress: SinkProgress, topic: str, slices: Sequence[Slice], events: DataFrame
) -> TableBatch:
    """What to apply of one topic. A parked table is tried again now and then, with all that was passed over."""
    known = progress.tables.get(topic)
    parked = None if known is None else known.parked
    is_retry = parked is not None and context.retries.is_due(topic, max(part.schema_version for part in slices))
    if parked is not None and is_retry:
        to_offsets = _joined_offsets(parked.to_offsets, *(part.to_offsets for part in slices), choose=max)
        events = read_range(
            events.sparkSession,
            context.kafka,
            topic,
            parked.from_offsets,
            to_offsets,
            with_before=context.settings.images is Images.BEFORE_AND_AFTER,
        )
        slices = survey(events)
        context.schemas.require(events.sparkSession, {(topic, part.schema_version) for part in slices})
    versions = {part.schema_version for part in slices}
    return TableBatch(
        topic=topic,
        slices=slices,
        events=events,
        schemas={version: context.schemas.schema(topic, version) for version in versions},
        parked=parked,
        is_passed_over=parked is not None and not is_retry,
        known_order="" if known is None else known.order,
        known_ignored=() if known is None else known.ignored,
    )


def _apply_tables(
    context: TenantSink, spark: SparkSession, batch: BatchIdentity, tables: Sequence[TableBatch]
) -> list[TableOutcome]:
    """Commit each table, a few at a time. All are waited for; then the first failure is raised."""
    # Spark's job group and pool are those of the thread: a worker takes them over, so that stopping the query ends its
    # jobs too.
    apply: Callable[[TableBatch], TableOutcome] = inheritable_thread_target(spark)(
        functools.partial(_apply_table, context, batch)
    )
    with ThreadPoolExecutor(max_workers=context.tables_in_parallel, thread_name_prefix="sink-table") as workers:
        return list(workers.map(apply, tables))


def _apply_table(context: TenantSink, batch: BatchIdentity, table: TableBatch) -> TableOutcome:
    outcome = functools.partial(_outcome, context, table)
    if table.is_passed_over:
        assert table.parked is not None
        return outcome(parked=_parked(table, table.parked.because))
    try:
        commit = _commit(context, batch, table)
        _tell_ignored(table, commit.ignored)
        return outcome(commit=commit)
    except TableLeftOut as left_out_table:
        ignored = (str(left_out_table),)
        _tell_ignored(table, ignored)
        return outcome(commit=TableCommit(time.time_ns() // 1_000, ignored=ignored, is_left_out=True))
    except TableRefused as refused:
        log.error("sink_table_parked", table=str(table.newest.table_schema.table_id), reason=str(refused))
        return outcome(parked=_parked(table, str(refused)))


def _tell_ignored(table: TableBatch, ignored: tuple[str, ...]) -> None:
    """Once, and not with every batch."""
    if ignored and ignored != table.known_ignored:
        log.warning("sink_changes_ignored", table=str(table.newest.table_schema.table_id), ignored=list(ignored))


def _commit(context: TenantSink, batch: BatchIdentity, table: TableBatch) -> TableCommit:
    """Write the table's part, unless the warehouse holds it already."""
    begun_s = time.monotonic()
    spark = table.events.sparkSession
    wanted = sink_table(context, table)
    if context.sink.is_applied(spark, wanted.name, batch):
        return TableCommit(time.time_ns() // 1_000, ignored=table.known_ignored)
    failpoint("sink_before_merge")
    wanted, columns = ready_table(spark, context.sink, _versions(wanted, table))
    ignored = left_out(stored_columns(columns), table.newest.table_schema, context.sink.dialect)
    prepared_s = time.monotonic()
    try:
        write_batch(context, table, wanted, columns)
    except (PySparkException, Py4JJavaError) as error:
        if ignored and any(has_condition(error, condition) for condition in TOO_LARGE):
            raise TableRefused(
                f"{wanted.table}: a number is too large for its column, which the tenant's sink.schema_changes leaves as it "
                "is; let column_widened be evolve or lenient there"
            ) from error
        if not has_condition(error, MALFORMED_RECORD):
            raise
        raise TableRefused(
            f"{wanted.table}: an event of topic {wanted.topic} does not fit its schema; restart the router, which writes the "
            "schemas again, then this job; if that does not help, report it with the topic's records"
        ) from error
    failpoint("sink_after_merge_before_next_table")
    written_s, written_at_us = time.monotonic(), time.time_ns() // 1_000
    maintained = _maintain(context, spark, wanted.name)
    timings = TableTimings(
        rows=sum(part.rows for part in table.slices),
        prepare_s=round(prepared_s - begun_s, 3),
        write_s=round(written_s - prepared_s, 3),
        maintain_s=round(time.monotonic() - written_s, 3),
    )
    return TableCommit(written_at_us, timings, maintained, ignored)


def _maintain(context: TenantSink, spark: SparkSession, table: WarehouseTable) -> Maintained:
    """The rows are safe already: what fails here must not stop the tenant, and is tried again after the next commit."""
    try:
        return context.sink.maintain(spark, table)
    except (PySparkException, Py4JJavaError) as error:
        SINK_FAILED_MAINTENANCE.labels(context.tenant.tenant, context.settings.warehouse).inc()
        log.warning("sink_maintenance_failed", table=str(table), reason=described(error))
        return Maintained()


def _versions(wanted: SinkTable, table: TableBatch) -> list[SinkTable]:
    """The table at each version of the batch, ``wanted`` last."""
    older = [table.schemas[version].table_schema for version in sorted(table.schemas)[:-1]]
    return [
        *(
            replace(wanted, schema=each, columns=tuple(_sink_column(item, table) for item in each.columns))
            for each in older
        ),
        wanted,
    ]


def write_batch(context: TenantSink, table: TableBatch, wanted: SinkTable, columns: Mapping[str, TableColumn]) -> None:
    """One table's part of the batch into the warehouse, as the tenant's mode has it; one commit."""
    spark = table.events.sparkSession
    match context.settings.mode:
        case SinkMode.APPEND:
            context.sink.append_to(spark, wanted, logged_changes_of(table, columns, context.settings.images))
        case SinkMode.MIRROR:
            _, newest = _truncations(table)
            if wanted.deletes is Deletes.SOFT:
                latest = latest_changes_of(table, columns, wanted.key, after=None).transform(mark_deleted(newest))
            else:
                latest = latest_changes_of(table, columns, wanted.key, after=newest.order if newest else None)
            context.sink.merge_into(spark, wanted, latest, truncation=newest)
        case SinkMode.HISTORY:
            _write_versions(context, table, wanted, columns)


def _write_versions(
    context: TenantSink, table: TableBatch, wanted: SinkTable, columns: Mapping[str, TableColumn]
) -> None:
    spark = table.events.sparkSession
    oldest, _ = _truncations(table)
    changes = changes_of(table, columns, is_partial=any(part.partial_rows for part in table.slices))
    assert isinstance(context.sink, KeepsVersions)  # ``sink_table`` has seen to it
    stored = context.sink.rows(spark, wanted.name)
    current = stored.where(IS_CURRENT_COLUMN)
    is_late = min(part.oldest_order for part in table.slices) <= table.known_order and has_late_changes(
        changes, current, key=wanted.key, known_order=table.known_order
    )
    tracked = [
        name
        for name, column in columns.items()
        if name not in wanted.key and context.tracks(f"{wanted.table}.{_source_name(name, column)}")
    ]
    versions = versions_of(
        changes,
        stored if is_late else current,
        key=wanted.key,
        tracked=tracked,
        has_truncations=oldest is not None,
    )
    context.sink.merge_versions(spark, wanted, versions, only_current=not is_late, truncation=oldest)


def _source_name(name: str, column: TableColumn) -> str:
    """One that stands beside another is called as that one."""
    return name if column.stored is None else column.stored.variant_of or name


def _truncations(table: TableBatch) -> tuple[Truncation | None, Truncation | None]:
    """The oldest and the newest. Where rows have a key, an event without one is a truncation."""
    keyed = [part for part, schema in _with_schemas(table) if schema.key and part.newest_keyless is not None]
    by_order = attrgetter("order")
    return (
        min((part.oldest_keyless for part in keyed), key=by_order, default=None),
        max((part.newest_keyless for part in keyed), key=by_order, default=None),
    )


def changes_of(table: TableBatch, columns: Mapping[str, TableColumn], *, is_partial: bool = False) -> DataFrame:
    """Every change of the table in this batch, as rows of the warehouse's table; NULL for values that the log does not hold.

    ``is_partial``: with ``UNAVAILABLE_COLUMN``, which names those.
    """
    parts = [
        _events_of(table, part)
        .transform(split_unavailable if is_partial or part.partial_rows else _unchanged)
        .transform(parse_events(schema))
        .transform(conform_to(columns, schema, is_partial=is_partial))
        for part, schema in _with_schemas(table)
    ]
    return functools.reduce(DataFrame.unionByName, parts)


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
    parts = _with_schemas(table)
    part, schema = parts[0]
    if any(part.partial_rows for part, _ in parts):
        return _latest_known(table, columns, key, after=after)
    if len(parts) == 1 and schema.key == tuple(key) and set(key) <= columns.keys():
        events = _after(_events_of(table, part), after)
        if after is None and part.newest_keyless is not None:
            events = events.where("image IS NOT NULL")
        return _latest_then_parsed(events, columns, schema)
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


def _latest_then_parsed(events: DataFrame, columns: Mapping[str, TableColumn], schema: TableSchema) -> DataFrame:
    """``latest_changes_of`` one version: the keys come from the records' keys, and only the last rows are parsed."""
    keys = key_columns(schema)
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
    for part, schema in _with_schemas(table):
        has_keys = schema.key == tuple(key) and set(key) <= columns.keys()
        events = _after(_events_of(table, part), after).where("image IS NOT NULL")
        # An image may lack the key too; its record never does.
        keyed = events.transform(parse_keys(columns, schema)) if has_keys else events
        parts.append(
            keyed.transform(split_unavailable)
            .transform(parse_events(schema))
            .transform(
                conform_to(columns, schema, parsed_keys=key_columns(schema) if has_keys else None, is_partial=True)
            )
        )
    return functools.reduce(DataFrame.unionByName, parts).transform(latest_known_per_key(key=key))


def _unchanged(events: DataFrame) -> DataFrame:
    return events


def _after(events: DataFrame, order: str | None) -> DataFrame:
    return events if order is None else events.where(sf.col("order") > order)


def _with_schemas(table: TableBatch) -> list[tuple[Slice, TableSchema]]:
    return [(part, table.schemas[part.schema_version].table_schema) for part in table.slices]


def _events_of(table: TableBatch, part: Slice) -> DataFrame:
    return table.events.where(
        (sf.col("topic") == part.topic) & (sf.col("schema_version") == part.schema_version)
    ).select("key", "order", "op", "committed_at_us", "image")


def sink_table(context: TenantSink, table: TableBatch) -> SinkTable:
    """The table as this batch's newest schema has it.

    Raises:
        TableRefused: such a table cannot be kept in the tenant's mode.
    """
    newest = table.newest
    schema = newest.table_schema
    name = warehouse_table(context.tenant.tenant, newest.source, schema.table_id)
    mode, deletes = context.settings.mode, context.settings.deletes
    if unfit := unfit_because(schema, mode, deletes, context.sink.dialect):
        raise TableRefused(unfit)
    layout = next((each for each in context.settings.layouts if re.fullmatch(each.tables, str(schema.table_id))), None)
    return SinkTable(
        name=name,
        mode=mode,
        deletes=deletes,
        columns=tuple(_sink_column(column, table) for column in schema.columns),
        key=schema.key,
        topic=table.topic,
        source=newest.source,
        table=str(schema.table_id),
        schema=schema,
        oldest_version=min(table.schemas),
        reached=Reached(
            order=max(part.newest_order for part in table.slices),
            committed_at_us=max(part.newest_committed_at_us for part in table.slices),
            offsets=_joined_offsets(*(part.to_offsets for part in table.slices), choose=max),
        ),
        partition_by=None if layout is None else tuple(map(parse_term, layout.partition_by)),
        sort_by=None if layout is None else tuple(map(parse_ordered_term, layout.sort_by)),
        policies=context.settings.schema_changes,
        schema_at=functools.partial(context.schemas.known_schema, table.topic),
    )


def _sink_column(column: Column, table: TableBatch) -> SinkColumn:
    """With its fill, should rows from before it was added lack it: they are older than the batch's first version with it."""
    versions = sorted(table.schemas)
    having = [v for v in versions if any(column.name == c.name for c in table.schemas[v].table_schema.columns)]
    expression = fill_expression(column)
    fill = None if expression is None else Fill(since_version=having[0], expression=expression)
    return SinkColumn(
        column.name, spark_type(column), column.comment, fill, column.logical_type, is_optional=column.is_optional
    )


def _parked(table: TableBatch, because: str) -> ParkedTable:
    seen_from = _joined_offsets(*(part.from_offsets for part in table.slices), choose=min)
    seen_to = _joined_offsets(*(part.to_offsets for part in table.slices), choose=max)
    before = table.parked
    return ParkedTable(
        because=because,
        from_offsets=seen_from if before is None else {**seen_from, **before.from_offsets},
        to_offsets=seen_to if before is None else _joined_offsets(before.to_offsets, seen_to, choose=max),
    )


def _joined_offsets(*offsets: Mapping[int, int], choose: Callable[[int, int], int]) -> dict[int, int]:
    joined: dict[int, int] = {}
    for part in offsets:
        for partition, offset in part.items():
            joined[partition] = choose(joined.get(partition, offset), offset)
    return joined


def _outcome(
    context: TenantSink,
    table: TableBatch,
    *,
    commit: TableCommit | None = None,
    parked: ParkedTable | None = None,
) -> TableOutcome:
    newest = table.newest
    live_changes: dict[int, int] = {}
    for part in table.slices:
        for committed_at_us, changes in part.live_changes.items():
            live_changes[committed_at_us] = live_changes.get(committed_at_us, 0) + changes
    return TableOutcome(
        topic=table.topic,
        source=newest.source,
        table=str(newest.table_schema.table_id),
        warehouse_table=str(warehouse_table(context.tenant.tenant, newest.source, newest.table_schema.table_id)),
        rows=0 if commit is not None and commit.is_left_out else sum(part.rows for part in table.slices),
        newest_order=max(part.newest_order for part in table.slices),
        newest_committed_at_us=max(part.newest_committed_at_us for part in table.slices),
        live_changes=live_changes,
        commit=commit,
        parked=parked,
    )
