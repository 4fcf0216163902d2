"""The ClickHouse sink: a batch is staged as Arrow (``stage``), made into parts, and attached in one step.

ClickHouse has no transaction over several statements. A batch becomes visible by one ``ATTACH PARTITION``: all of its
parts or none. That a table has taken the batch in is noted after it, in ``headwater.batches``. A job that dies between the two
does a mirror's batch again, which changes nothing: rows win or lose by their order. So it does a history's: all versions that
the batch may touch are read, and what it has made of them already is as it should be. An append table's rows say which batch
brought them, and which batch is about to is noted before they come, in ``headwater.intents``: so whoever comes next, with this
batch or a later one, knows whether the table has it (``Notes``).

A table's source, and the origin of its columns, stand in its comment, as JSON: one ``ALTER`` or ``EXCHANGE TABLES`` changes it
together with the columns.
"""

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog
from pyspark.sql import DataFrame, SparkSession

from libs.clickhouse.names import (
    BATCHES,
    GONE_COLUMN,
    INTENTS,
    STATE_DATABASE,
    literal,
    quoted,
    rebuild_prefix,
    stage_name,
    stage_prefix,
)
from libs.clickhouse.tables import Noted, drop_tables, encoded
from libs.failpoints import failpoint
from libs.sink_state.progress import Standing, TableFiles
from libs.types.tenant import Deletes, SinkMode
from libs.types.warehouse import (
    OP_COLUMN,
    ORDER_COLUMN,
    OWN_SQL_TYPES,
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    UNAVAILABLE_COLUMN,
    WarehouseTable,
    own_columns,
)
from libs.warehouse.dialect import DIALECTS, Dialect
from spark.sinks.clickhouse.client import errors_named
from spark.sinks.clickhouse.notes import Notes
from spark.sinks.clickhouse.read import Selection, read_rows
from spark.sinks.clickhouse.server import Server
from spark.sinks.clickhouse.settings import Settings
from spark.sinks.clickhouse.stage import StageTarget, stage_rows
from spark.sinks.clickhouse.statements import (
    all_versions_statement,
    append_statement,
    merge_statements,
    order_ends_query,
    replace_entry_statements,
    replace_statements,
    version_statements,
    versions_since,
)
from spark.sinks.clickhouse.tables import StoredTable, Tables
from spark.sinks.evolution import check_creation, evolution, stored_key
from spark.sinks.port import BatchIdentity, Maintained, Sink, SinkTable, StoredLog, TableRefused, VersionsOf
from spark.sinks.properties import settled_of, version_of
from spark.sinks.settled import check_settled, key_of_log, name_taken, no_such_table
from spark.transforms.versions import IS_GONE_COLUMN, STORED_COLUMN
from spark.transforms.warehouse_columns import TableColumn, Truncation

_BATCH: Final = "headwater.clickhouse.batch"
_STAGED_TYPES: Final = {
    OP_COLUMN: "String",
    UNAVAILABLE_COLUMN: "Array(String)",
    STORED_COLUMN: "Nullable(String)",
    IS_GONE_COLUMN: "Bool",
}
_ONE_TASK_ROWS: Final = 10_000
"""So many stored rows are read by one task: another costs more."""

_REBUILT_WITHIN_HOURS: Final = 24
"""No rebuild takes as long."""

log = structlog.get_logger()


def open_sink(settings: Settings) -> Sink:
    """The sink over one server; it is reached for when the first batch comes."""
    return ClickhouseSink(settings)


class ClickhouseSink:
    """See ``spark.sinks.port.Sink``, which has the promises."""

    def __init__(self, settings: Settings) -> None:
        self._server = Server(settings)
        self._tables = Tables(self._server)
        self._notes = Notes(self._server)
        self._commits: Counter[WarehouseTable] = Counter()

    @property
    def dialect(self) -> Dialect:
        return DIALECTS["clickhouse"]

    def session_config(self) -> Mapping[str, str]:
        # Spark's Python workers import ``stage`` from where this module is.
        return {"spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[3])}

    def begin_batch(self, spark: SparkSession, batch: BatchIdentity) -> None:
        spark.conf.set(_BATCH, str(batch))
        prefix = stage_prefix(batch.query_id)
        # Batches of a query follow one another: stages of this one are remains. SYNC waits for statements that
        # a job which died has left to the server, so that their effect is there when this job looks.
        left = self._server.rows(
            "SELECT name FROM system.tables "
            f"WHERE database = {literal(STATE_DATABASE)} AND startsWith(name, {literal(prefix)})"
        )
        self._server.drop(*(quoted(STATE_DATABASE, name) for (name,) in left))
        if left:
            log.info("sink_stages_dropped", stages=len(left), query_id=batch.query_id)

    def is_applied(
        self, spark: SparkSession, table: WarehouseTable, batch: BatchIdentity, offsets: Mapping[int, int]
    ) -> bool:
        if not self._notes.has_noted(table, batch):
            intent = self._notes.open_intent(table, batch)
            is_same = intent is not None and intent.batch == batch and intent.offsets == offsets
            if (
                intent is None
                or not is_same
                or not self._server.is_there(table)
                or not self._notes.has_come(table, intent)
            ):
                return False
            # By a job that died, or whose server did not answer. Only now the table is as far as its rows say.
            self._notes.note_intended(table)
            log.info("sink_batch_found", table=str(table), batch_id=batch.batch_id)
        return self._server.is_there(table)

    def standing(self, spark: SparkSession, table: WarehouseTable) -> Standing | None:
        """Without an id: a table that ClickHouse cannot change in place is exchanged for a copy, which has another."""
        if not self._server.is_there(table):
            return None
        rows = self._server.rows(f"SELECT query_id, batch_id FROM {BATCHES} FINAL WHERE name = {literal(str(table))}")
        return Standing(
            batch="".join(str(BatchIdentity(query_id, batch_id)) for query_id, batch_id in rows if query_id)
        )

    def ensure_table(self, spark: SparkSession, table: SinkTable) -> Mapping[str, TableColumn]:
        stored = self._tables.load(table.name)
        if stored is None:
            check_creation(table)
            self._tables.create(table)
        else:
            columns, noted = stored.columns(), stored.noted.properties
            version = version_of(noted)
            check_settled(settled_of(noted), table, stored_key(columns, version, table), stored.types)
            changes = evolution(columns, version, table, self.dialect)
            if not changes:
                return columns
            self._tables.evolve(spark, stored, table, changes)
        stored = self._tables.load(table.name)
        assert stored is not None
        return stored.columns()

    def drop_tables(self, spark: SparkSession, tenant: str) -> int:
        client = self._server.client()
        with errors_named(self._server.settings, f"what the server holds of tenant {tenant}"):
            return drop_tables(client, tenant)

    def merge_into(
        self, spark: SparkSession, table: SinkTable, changes: DataFrame, *, truncation: Truncation | None = None
    ) -> None:
        with self._staged(spark, table, changes) as (stored, stages, into):
            target = stored.target(table)
            statements = merge_statements(into, target, table, changes.columns, stages, truncation)
            if statements:
                self._server.run(table.name, f"CREATE TABLE {into} AS {stored.place}", *statements)
                self._attach(table.name, stored, into)

    def merge_versions(
        self,
        spark: SparkSession,
        table: SinkTable,
        keys: DataFrame,
        versions_of: VersionsOf,
        *,
        truncation: Truncation | None = None,
    ) -> None:
        before = self._tables.stored(table.name)
        key_stages = self._stage(spark, table.name, before, keys)
        where = versions_since(before.target(table), key_stages, table.oldest_order)
        versions = versions_of(self._versions(spark, table, before, where), may_hold_batch=True)
        with self._staged(spark, table, versions.rows) as (stored, stages, into):
            target = stored.target(table)
            statements = version_statements(into, target, table, versions.rows.columns, stages, truncation)
            if statements:
                self._server.run(table.name, f"CREATE TABLE {into} AS {stored.place}", *statements)
                self._attach(table.name, stored, into)
        self._server.drop(*key_stages)

    def replace_versions(
        self, spark: SparkSession, table: SinkTable, versions_of: Callable[[DataFrame], DataFrame]
    ) -> None:
        versions = versions_of(self._versions(spark, table, self._tables.stored(table.name), "true"))
        with self._staged(spark, table, versions) as (stored, stages, into):
            insert = [all_versions_statement(into, versions.columns, stages)] if stages else []
            self._server.run(table.name, f"CREATE TABLE {into} AS {stored.place}", *insert)
            self._swap(table.name, stored, into)

    def _versions(self, spark: SparkSession, table: SinkTable, stored: StoredTable, where: str) -> DataFrame:
        own = {name: OWN_SQL_TYPES[name] for name in own_columns(table.mode, table.deletes)}
        columns, key = {**stored.noted.types, **own}, stored.target(table).key
        return self._read(spark, table.name, Selection(stored.place, columns, key, where, is_final=True))

    def _read(self, spark: SparkSession, table: WarehouseTable, selection: Selection) -> DataFrame:
        # Errors of the server are named here; tasks hand on no more than that they failed.
        [[count]] = self._server.rows(selection.query("count()"), subject=table)
        tasks = min(self._server.settings.stage_connections, -(-count // _ONE_TASK_ROWS))
        return read_rows(spark, self._server.settings, selection, tasks=tasks, subject=str(table))

    @contextlib.contextmanager
    def open_log(self, spark: SparkSession, table: WarehouseTable) -> Iterator[StoredLog]:
        """Reads a table beside, which has the log's parts as they are now, without a copy of their bytes."""
        stored = self._tables.load(table)
        if stored is None:
            raise no_such_table(table)
        key = key_of_log(table, settled_of(stored.noted.properties))
        self._drop_old_rebuilds(table.namespace[0])
        seen = quoted(STATE_DATABASE, f"{rebuild_prefix(table.namespace[0])}{uuid.uuid4().hex}")
        own = {name: OWN_SQL_TYPES[name] for name in own_columns(SinkMode.APPEND, Deletes.HARD)}
        try:
            self._server.run(
                table,
                f"CREATE TABLE {seen} AS {stored.place}",
                f"ALTER TABLE {seen} ATTACH PARTITION tuple() FROM {stored.place}",
            )
            columns = {**stored.noted.types, **own}
            rows = self._read(spark, table, Selection(seen, columns, (ORDER_COLUMN,), "true", is_final=False))
            noted = stored.noted.properties
            yield StoredLog(rows, key, noted[SOURCE_PROPERTY], noted[TABLE_PROPERTY])
        finally:
            self._server.drop(seen)

    def exists(self, spark: SparkSession, table: WarehouseTable) -> bool:
        return self._server.is_there(table)

    def read(self, spark: SparkSession, table: WarehouseTable) -> DataFrame:
        stored = self._tables.stored(table)
        columns = stored.noted.types | {name: kind for name, kind in OWN_SQL_TYPES.items() if name in stored.types}
        key, is_final = stored.noted.key or tuple(columns), GONE_COLUMN in stored.types
        return self._read(spark, table, Selection(stored.place, columns, key, "true", is_final=is_final))

    def create_with(
        self,
        spark: SparkSession,
        table: WarehouseTable,
        rows: DataFrame,
        noted: Mapping[str, str],
        *,
        like: WarehouseTable,
    ) -> None:
        if self._server.is_there(table):
            raise name_taken(table)
        stored, prefix = self._tables.stored(like), f"{rebuild_prefix(table.namespace[0])}{uuid.uuid4().hex}_"
        types = {name: stored.types[name] for name in rows.columns}
        own = {name: kind for name, kind in stored.noted.types.items() if name in types}
        key = tuple(name for name in stored.noted.key if name in types)
        comment = encoded(Noted("; ".join(map("=".join, noted.items())), str(table), key, own, dict(noted)))
        into, place = quoted(STATE_DATABASE, f"{prefix}rows"), self._server.place(table)
        listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())
        stages = stage_rows(rows, StageTarget(self._server.settings, prefix, types, str(table)))
        try:
            self._server.run(
                table,
                f"CREATE TABLE {into} ({listed}) ENGINE = MergeTree ORDER BY ({', '.join(map(quoted, key))}) "
                f"SETTINGS allow_nullable_key = 1 COMMENT {literal(comment)}",
                *(f"INSERT INTO {into} SELECT * FROM {stage}" for stage in stages),
                f"RENAME TABLE {into} TO {place}",
            )
        finally:
            self._server.drop(*stages, into)

    def _drop_old_rebuilds(self, tenant: str) -> None:
        """Remains of a killed rebuild; one that is at work may be somebody else's."""
        left = self._server.rows(
            f"SELECT name FROM system.tables WHERE database = {literal(STATE_DATABASE)} "
            f"AND startsWith(name, {literal(rebuild_prefix(tenant))}) "
            f"AND metadata_modification_time < now() - INTERVAL {_REBUILT_WITHIN_HOURS} HOUR"
        )
        self._server.drop(*(quoted(STATE_DATABASE, name) for (name,) in left))

    def replace_rows(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        with self._staged(spark, table, changes) as (stored, stages, into):
            target = stored.target(table)
            statements = replace_statements(into, target, table, changes.columns, stages)
            self._server.run(table.name, f"CREATE TABLE {into} AS {stored.place}", *statements)
            self._swap(table.name, stored, into)

    def replace_entries(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        batch = str(_batch_of(spark))
        with self._staged(spark, table, changes) as (stored, stages, into):
            if stages:
                target = stored.target(table)
                statements = replace_entry_statements(into, target, changes.columns, stages, batch)
                self._server.run(table.name, f"CREATE TABLE {into} AS {stored.place}", *statements)
                self._swap(table.name, stored, into)

    def _swap(self, table: WarehouseTable, stored: StoredTable, into: str) -> None:
        """The rows of ``into`` take the place of the table's, at once."""
        [[rows]] = self._server.rows(f"SELECT count() FROM {into}")
        # A server refuses to replace a partition by nothing.
        swap = f"ALTER TABLE {stored.place} REPLACE PARTITION tuple() FROM {into}"
        failpoint("sink_before_attach")
        self._server.run(table, swap if rows else f"TRUNCATE TABLE {stored.place}")

    def append_to(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        batch = _batch_of(spark)
        with self._staged(spark, table, changes) as (stored, stages, into):
            self._notes.take_back(table.name, batch)
            if stages:
                insert = append_statement(into, changes.columns, stages, str(batch))
                self._server.run(table.name, f"CREATE TABLE {into} AS {stored.place}", insert)
                [[least, greatest]] = self._server.rows(order_ends_query(into))
                self._notes.note(INTENTS, table, batch, least_order=least, greatest_order=greatest)
                self._attach(table.name, stored, into)

    def maintain(self, spark: SparkSession, table: WarehouseTable) -> Maintained:
        """ClickHouse merges parts by itself; here go the marks of rows that are gone."""
        was_due = False
        self._commits[table] += 1
        is_counted = self._commits[table] % self._server.settings.cleanup_every_commits == 0
        stored = self._tables.load(table) if self._server.settings.is_maintaining and is_counted else None
        if stored is not None and GONE_COLUMN in stored.types:
            counts = f"SELECT countIf({quoted(GONE_COLUMN)} = 1), count() FROM {stored.place}"
            [[gone, rows]] = self._server.rows(counts, subject=table)
            if gone and gone >= rows * self._server.settings.cleanup_at_share:
                started_s = time.monotonic()
                self._server.run(table, f"OPTIMIZE TABLE {stored.place} FINAL CLEANUP")
                was_due = True
                log.info("sink_table_rewritten", table=str(table), took_s=round(time.monotonic() - started_s, 2))
        database, name = self._server.levels(table)
        [[size, parts]] = self._server.rows(
            "SELECT sum(bytes_on_disk), count() FROM system.parts "
            f"WHERE active AND database = {literal(database)} AND table = {literal(name)}"
        )
        return Maintained(TableFiles(bytes=size, data_files=parts), was_due=was_due)

    @contextlib.contextmanager
    def _staged(
        self, spark: SparkSession, table: SinkTable, changes: DataFrame
    ) -> Iterator[tuple[StoredTable, list[str], str]]:
        """The table, the stages of ``changes``, and a name for the parts; after the block the batch is noted."""
        batch = _batch_of(spark)
        stored = self._tables.stored(table.name)
        stages = self._stage(spark, table.name, stored, changes)
        into = quoted(STATE_DATABASE, stage_name(batch.query_id, table.name, "parts"))
        try:
            yield stored, stages, into
        except TableRefused:
            # The same batch may come to the table once more: where a resync is refused, with the table's own events.
            self._server.drop(into)
            raise
        failpoint("sink_before_commit")
        self._notes.note(BATCHES, table, batch)
        self._server.drop(*stages, into)

    def _stage(self, spark: SparkSession, table: WarehouseTable, stored: StoredTable, rows: DataFrame) -> list[str]:
        prefix = stage_name(_batch_of(spark).query_id, table, "")
        return stage_rows(
            rows, StageTarget(self._server.settings, prefix, _staged_types(stored, rows.columns), str(table))
        )

    def _attach(self, table: WarehouseTable, stored: StoredTable, into: str) -> None:
        failpoint("sink_before_attach")
        self._server.run(table, f"ALTER TABLE {stored.place} ATTACH PARTITION tuple() FROM {into}")


def _staged_types(stored: StoredTable, names: Sequence[str]) -> dict[str, str]:
    """Of staged columns, in the order of ``names``."""
    types = {**stored.types, **_STAGED_TYPES}
    return {name: types[name] for name in names}


def _batch_of(spark: SparkSession) -> BatchIdentity:
    query_id, _, batch_id = str(spark.conf.get(_BATCH)).rpartition(":")
    return BatchIdentity(query_id, int(batch_id))
