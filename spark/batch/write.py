"""One table's part of a batch into the warehouse, as the tenant's mode has it; one commit."""

import functools
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from libs.types.patterns import matches_table
from libs.types.table import Column
from libs.types.table_layout import parse_ordered_term, parse_term
from libs.types.tenant import Deletes, SinkMode
from libs.types.warehouse import IS_CURRENT_COLUMN, OP_COLUMN
from libs.warehouse.fitness import unfit_because
from libs.warehouse.spark_types import spark_type
from spark.batch.context import BatchContext
from spark.batch.late_events import without_late_events
from spark.batch.table_batch import (
    TableBatch,
    changes_of,
    latest_changes_of,
    logged_changes_of,
    place_of,
    reached_with,
    tracked_columns,
    truncations_of,
)
from spark.sinks.port import (
    NewVersions,
    SinkColumn,
    SinkTable,
    TableRefused,
)
from spark.transforms.cut_envelope import TRUNCATE
from spark.transforms.fill import fill_of
from spark.transforms.mark_deleted import mark_deleted
from spark.transforms.sql_text import quoted
from spark.transforms.versions import has_late_changes, replaced_versions, versions_of
from spark.transforms.warehouse_columns import TableColumn, Truncation


def write_batch(
    context: BatchContext, table: TableBatch, wanted: SinkTable, columns: Mapping[str, TableColumn]
) -> None:
    """One table's part of the batch into the warehouse, as the tenant's mode has it; one commit."""
    spark = table.events.sparkSession
    match context.settings.mode:
        case SinkMode.APPEND:
            context.sink.append_to(spark, wanted, logged_changes_of(table, columns, context.settings.images))
        case SinkMode.MIRROR:
            if wanted.deletes is Deletes.HARD:
                table = without_late_events(context, table)
            _, newest = truncations_of(table)
            latest = _latest_rows(table, wanted, columns, newest)
            context.sink.merge_into(spark, wanted, latest, truncation=newest)
        case SinkMode.HISTORY:
            _write_versions(context, table, wanted, columns)


def _latest_rows(
    table: TableBatch, wanted: SinkTable, columns: Mapping[str, TableColumn], truncation: Truncation | None
) -> DataFrame:
    """A mirror's changes: the last one of each key, after ``truncation``, or marked by it."""
    if wanted.deletes is Deletes.SOFT:
        return latest_changes_of(table, columns, wanted.key, after=None).transform(mark_deleted(truncation))
    return latest_changes_of(table, columns, wanted.key, after=truncation.order if truncation else None)


def write_resynced(
    context: BatchContext, table: TableBatch, wanted: SinkTable, columns: Mapping[str, TableColumn]
) -> None:
    """Make the table hold the events' rows, and rows that its mode keeps (``spark.batch.resync``); one commit."""
    spark = table.events.sparkSession
    oldest, newest = truncations_of(table)
    match context.settings.mode:
        case SinkMode.MIRROR:
            context.sink.replace_rows(spark, wanted, _latest_rows(table, wanted, columns, newest))
        case SinkMode.HISTORY:
            changes = changes_of(
                table, columns, key=wanted.key, is_partial=any(part.partial_rows for part in table.slices)
            )
            all_versions = functools.partial(
                replaced_versions,
                changes,
                key=wanted.key,
                tracked=tracked_columns(context, wanted, columns),
                has_truncations=oldest is not None,
                order=wanted.reached.order,
                committed_at_us=wanted.reached.committed_at_us,
            )
            context.sink.replace_versions(spark, wanted, all_versions)
        case SinkMode.APPEND:
            changes = logged_changes_of(table, columns, context.settings.images)
            context.sink.replace_entries(spark, wanted, changes)


def _write_versions(
    context: BatchContext, table: TableBatch, wanted: SinkTable, columns: Mapping[str, TableColumn]
) -> None:
    spark = table.events.sparkSession
    oldest, _ = truncations_of(table)
    wanted = replace(wanted, oldest_order=min(part.oldest_order for part in table.slices))
    changes = changes_of(table, columns, key=wanted.key, is_partial=any(part.partial_rows for part in table.slices))
    keys = changes.where(sf.col(OP_COLUMN) != TRUNCATE).select(*map(quoted, wanted.key)).distinct()
    tracked = tracked_columns(context, wanted, columns)

    def new_versions(stored: DataFrame, *, may_hold_batch: bool = False) -> NewVersions:
        current = stored.where(IS_CURRENT_COLUMN)
        is_late = may_hold_batch or (
            wanted.oldest_order <= table.known.order
            and has_late_changes(changes, current, key=wanted.key, known_order=table.known.order)
        )
        rows = versions_of(
            changes,
            stored if is_late else current,
            key=wanted.key,
            tracked=tracked,
            has_truncations=oldest is not None,
        )
        return NewVersions(rows, only_current=not is_late)

    context.sink.merge_versions(spark, wanted, keys, new_versions, truncation=oldest)


def sink_table(context: BatchContext, table: TableBatch) -> SinkTable:
    """The table as this batch's newest schema has it.

    Raises:
        TableRefused: such a table cannot be kept in the tenant's mode.
    """
    newest = table.newest
    schema = newest.table_schema
    mode, deletes = context.settings.mode, context.settings.deletes
    if unfit := unfit_because(schema, mode, deletes, context.sink.dialect):
        raise TableRefused(unfit)
    layout = next((each for each in context.settings.layouts if matches_table(each.tables, str(schema.table_id))), None)
    return SinkTable(
        name=place_of(context, table),
        mode=mode,
        deletes=deletes,
        columns=tuple(_sink_column(column, table) for column in schema.columns),
        key=schema.key,
        topic=table.topic,
        source=newest.source,
        table=str(schema.table_id),
        schema=schema,
        oldest_version=min(table.schemas),
        reached=reached_with(table),
        partition_by=None if layout is None else tuple(map(parse_term, layout.partition_by)),
        sort_by=None if layout is None else tuple(map(parse_ordered_term, layout.sort_by)),
        policies=context.settings.schema_changes,
        schema_at=functools.partial(context.schemas.known_schema, table.topic),
    )


def at_each_version(wanted: SinkTable, table: TableBatch) -> list[SinkTable]:
    """The table at each version of the batch, ``wanted`` last."""
    older = [table.schemas[version].table_schema for version in sorted(table.schemas)[:-1]]
    return [
        *(
            replace(
                wanted, schema=each, key=each.key, columns=tuple(_sink_column(item, table) for item in each.columns)
            )
            for each in older
        ),
        wanted,
    ]


def _sink_column(column: Column, table: TableBatch) -> SinkColumn:
    """With its fill, should rows from before it was added lack it."""
    fill = fill_of(column, [table.schemas[version].table_schema for version in sorted(table.schemas)])
    return SinkColumn(
        column.name, spark_type(column), column.comment, fill, column.logical_type, is_optional=column.is_optional
    )
