"""The ClickHouse sink: a batch is staged as Arrow (``stage``), made into parts, and attached in one step.

ClickHouse has no transaction over several statements. A batch becomes visible by one ``ATTACH PARTITION``: all of its
parts or none. That a table has taken the batch in is noted after it, in ``headwater.batches``. A job that dies between the two
does a mirror's batch again, which changes nothing: rows win or lose by their order. So it does a history's: all versions that
the batch may touch are read, and what it has made of them already is as it should be. An append table's rows say which batch
brought them, and which batch is about to is noted before they come, in ``headwater.intents``: so whoever comes next, with this
batch or a later one, knows whether the table has it (``is_applied``, ``_take_back``).

A table's source, and the origin of its columns, stand in its comment, as JSON: one ``ALTER`` or ``EXCHANGE TABLES`` changes it
together with the columns.
"""

import contextlib
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from clickhouse_connect.driver.client import Client
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from libs.clickhouse.connection import connect
from libs.clickhouse.names import (
    BATCH_COLUMN,
    BATCHES,
    GONE_COLUMN,
    INTENTS,
    PROGRESS,
    STATE_DATABASE,
    VERSION_COLUMN,
    copy_name,
    database_name,
    literal,
    quoted,
    rebuild_prefix,
    stage_name,
    stage_prefix,
)
from libs.clickhouse.tables import Noted, decoded, drop_tables, encoded, stored_table
from libs.errors import PipelineHalted
from libs.failpoints import failpoint
from libs.sink_state.progress import Standing, TableFiles
from libs.types.tenant import Deletes, SinkMode
from libs.types.warehouse import (
    COMMITTED_AT_COLUMN,
    DELETED_COLUMN,
    IS_CURRENT_COLUMN,
    OP_COLUMN,
    OPENED_BY_COLUMN,
    ORDER_COLUMN,
    OWN_SQL_TYPES,
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    UNAVAILABLE_COLUMN,
    VALID_FROM_COLUMN,
    WarehouseTable,
    own_columns,
)
from libs.warehouse.clickhouse import clickhouse_type, sql_type
from libs.warehouse.dialect import DIALECTS, Dialect
from spark.sinks.clickhouse.client import errors_named
from spark.sinks.clickhouse.read import Selection, read_rows
from spark.sinks.clickhouse.settings import Settings
from spark.sinks.clickhouse.stage import StageTarget, stage_rows
from spark.sinks.clickhouse.statements import (
    Target,
    all_versions_statement,
    append_statement,
    merge_statements,
    order_ends_query,
    replace_entry_statements,
    replace_statements,
    rows_of_batch,
    time_at,
    version_statements,
    versions_since,
)
from spark.sinks.evolution import Evolution, check_creation, evolution, log_evolution, stored_key
from spark.sinks.port import BatchIdentity, Maintained, Sink, SinkColumn, SinkTable, StoredLog, TableRefused, VersionsOf
from spark.sinks.properties import (
    column_of,
    comment_of,
    first_properties,
    pending_of,
    properties_after,
    properties_before,
    settled_of,
    version_of,
)
from spark.sinks.settled import check_settled, key_of_log, name_taken, no_such_table
from spark.transforms.versions import IS_GONE_COLUMN, STORED_COLUMN
from spark.transforms.warehouse_columns import TableColumn, Truncation

_BATCH: Final = "headwater.clickhouse.batch"
_NOTED_COLUMNS: Final = (
    "name, source, source_table, query_id, batch_id, reached_order, reached_at, reached_offsets, reached_positions"
)
_NOTE: Final = """name String, source String, source_table String, query_id String, batch_id Int64,
        written_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC'), reached_order String, reached_at DateTime64(6, 'UTC'),
        reached_offsets String, reached_positions String"""
_STATE: Final = (
    f"CREATE DATABASE IF NOT EXISTS {quoted(STATE_DATABASE)}",
    f"""CREATE TABLE IF NOT EXISTS {BATCHES} ({_NOTE})
        ENGINE = ReplacingMergeTree ORDER BY name
        COMMENT 'Tables that Headwater writes, and the last batch that each took in; read it with FINAL'""",
    f"""CREATE TABLE IF NOT EXISTS {INTENTS} ({_NOTE}, least_order String, greatest_order String)
        ENGINE = ReplacingMergeTree ORDER BY name
        COMMENT 'Logs that Headwater writes, and the last batch whose rows were to be attached to each; read it with FINAL'""",
    f"""CREATE OR REPLACE VIEW {PROGRESS} AS
        SELECT splitByChar('.', name)[1] AS tenant, source, source_table AS table,
            JSONExtractString(p, 'source_partition') AS source_partition, JSONExtractRaw(p, 'position') AS position,
            JSONExtractString(p, 'order') AS position_order, reached_order AS order, reached_at AS committed_at,
            reached_offsets AS offsets, concat(query_id, ':', toString(batch_id)) AS batch, written_at
        FROM {BATCHES} FINAL LEFT ARRAY JOIN JSONExtractArrayRaw(reached_positions) AS p
        WHERE query_id <> ''""",
)
_DAYS: Final = ("0001-01-01", "9999-12-31")
"""Which MySQL's DATE has; older ClickHouse makes other days of them, in silence."""
_REQUIRED: Final = frozenset(
    {
        ORDER_COLUMN,
        COMMITTED_AT_COLUMN,
        DELETED_COLUMN,
        OP_COLUMN,
        VALID_FROM_COLUMN,
        IS_CURRENT_COLUMN,
        OPENED_BY_COLUMN,
    }
)
"""Of Headwater's own columns those without NULLs."""
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


@dataclass(frozen=True, slots=True)
class _Stored:
    """A table as its comment and ClickHouse's catalog have it."""

    place: str
    """Quoted."""
    noted: Noted
    types: Mapping[str, str]
    """ClickHouse's, of all columns."""

    def columns(self) -> dict[str, TableColumn]:
        return {
            name: column_of(self.noted.properties, name, own, sql_type(own)) for name, own in self.noted.types.items()
        }

    def is_optional(self, name: str) -> bool:
        return self.types[name].startswith("Nullable(")

    def target(self, table: SinkTable) -> Target:
        by_lower = {name.lower(): name for name in self.noted.types}
        key = tuple(by_lower.get(name.lower(), name) for name in table.key)
        return Target(self.place, tuple(self.noted.types), key)


@dataclass(frozen=True, slots=True)
class _Intent:
    """A batch whose rows were about to be attached to a log."""

    batch: BatchIdentity
    offsets: Mapping[int, int]
    """Behind its events."""
    rows: str
    """A condition on the log's rows: those that it brought."""


class ClickhouseSink:
    """See ``spark.sinks.port.Sink``, which has the promises."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._client: Client | None = None
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
        left = self._rows(
            "SELECT name FROM system.tables "
            f"WHERE database = {literal(STATE_DATABASE)} AND startsWith(name, {literal(prefix)})"
        )
        self._drop_staged(*(quoted(STATE_DATABASE, name) for (name,) in left))
        if left:
            log.info("sink_stages_dropped", stages=len(left), query_id=batch.query_id)

    def is_applied(
        self, spark: SparkSession, table: WarehouseTable, batch: BatchIdentity, offsets: Mapping[int, int]
    ) -> bool:
        if not self._has_noted(table, batch):
            intent = self._open_intent(table, batch)
            is_same = intent is not None and intent.batch == batch and intent.offsets == offsets
            if intent is None or not is_same or not self._is_there(table) or not self._has_come(table, intent):
                return False
            # By a job that died, or whose server did not answer. Only now the table is as far as its rows say.
            where = f"name = {literal(str(table))}"
            self._run(
                BATCHES,
                f"INSERT INTO {BATCHES} ({_NOTED_COLUMNS}) SELECT {_NOTED_COLUMNS} FROM {INTENTS} FINAL WHERE {where}",
            )
            log.info("sink_batch_found", table=str(table), batch_id=batch.batch_id)
        return self._is_there(table)

    def standing(self, spark: SparkSession, table: WarehouseTable) -> Standing | None:
        """Without an id: a table that ClickHouse cannot change in place is exchanged for a copy, which has another."""
        if not self._is_there(table):
            return None
        rows = self._rows(f"SELECT query_id, batch_id FROM {BATCHES} FINAL WHERE name = {literal(str(table))}")
        return Standing(
            batch="".join(str(BatchIdentity(query_id, batch_id)) for query_id, batch_id in rows if query_id)
        )

    def ensure_table(self, spark: SparkSession, table: SinkTable) -> Mapping[str, TableColumn]:
        stored = self._load(table.name)
        if stored is None:
            check_creation(table)
            self._create(table)
        else:
            columns, noted = stored.columns(), stored.noted.properties
            version = version_of(noted)
            check_settled(settled_of(noted), table, stored_key(columns, version, table), stored.types)
            changes = evolution(columns, version, table, self.dialect)
            if not changes:
                return columns
            self._evolve(spark, stored, table, changes)
        stored = self._load(table.name)
        assert stored is not None
        return stored.columns()

    def drop_tables(self, spark: SparkSession, tenant: str) -> int:
        client = self._connected()
        with errors_named(self._settings, f"what the server holds of tenant {tenant}"):
            return drop_tables(client, tenant)

    def merge_into(
        self, spark: SparkSession, table: SinkTable, changes: DataFrame, *, truncation: Truncation | None = None
    ) -> None:
        with self._staged(spark, table, changes) as (stored, stages, into):
            target = stored.target(table)
            statements = merge_statements(into, target, table, changes.columns, stages, truncation)
            if statements:
                self._run(table.name, f"CREATE TABLE {into} AS {stored.place}", *statements)
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
        before = self._stored(table.name)
        key_stages = self._stage(spark, table.name, before, keys)
        where = versions_since(before.target(table), key_stages, table.oldest_order)
        versions = versions_of(self._versions(spark, table, before, where), may_hold_batch=True)
        with self._staged(spark, table, versions.rows) as (stored, stages, into):
            target = stored.target(table)
            statements = version_statements(into, target, table, versions.rows.columns, stages, truncation)
            if statements:
                self._run(table.name, f"CREATE TABLE {into} AS {stored.place}", *statements)
                self._attach(table.name, stored, into)
        self._drop_staged(*key_stages)

    def replace_versions(
        self, spark: SparkSession, table: SinkTable, versions_of: Callable[[DataFrame], DataFrame]
    ) -> None:
        versions = versions_of(self._versions(spark, table, self._stored(table.name), "true"))
        with self._staged(spark, table, versions) as (stored, stages, into):
            insert = [all_versions_statement(into, versions.columns, stages)] if stages else []
            self._run(table.name, f"CREATE TABLE {into} AS {stored.place}", *insert)
            self._swap(table.name, stored, into)

    def _versions(self, spark: SparkSession, table: SinkTable, stored: _Stored, where: str) -> DataFrame:
        own = {name: OWN_SQL_TYPES[name] for name in own_columns(table.mode, table.deletes)}
        columns, key = {**stored.noted.types, **own}, stored.target(table).key
        return self._read(spark, table.name, Selection(stored.place, columns, key, where, is_final=True))

    def _read(self, spark: SparkSession, table: WarehouseTable, selection: Selection) -> DataFrame:
        # Errors of the server are named here; tasks hand on no more than that they failed.
        [[count]] = self._rows(selection.query("count()"), subject=table)
        tasks = min(self._settings.stage_connections, -(-count // _ONE_TASK_ROWS))
        return read_rows(spark, self._settings, selection, tasks=tasks, subject=str(table))

    @contextlib.contextmanager
    def open_log(self, spark: SparkSession, table: WarehouseTable) -> Iterator[StoredLog]:
        """Reads a table beside, which has the log's parts as they are now, without a copy of their bytes."""
        stored = self._load(table)
        if stored is None:
            raise no_such_table(table)
        key = key_of_log(table, settled_of(stored.noted.properties))
        self._drop_old_rebuilds(table.namespace[0])
        seen = quoted(STATE_DATABASE, f"{rebuild_prefix(table.namespace[0])}{uuid.uuid4().hex}")
        own = {name: OWN_SQL_TYPES[name] for name in own_columns(SinkMode.APPEND, Deletes.HARD)}
        try:
            self._run(
                table,
                f"CREATE TABLE {seen} AS {stored.place}",
                f"ALTER TABLE {seen} ATTACH PARTITION tuple() FROM {stored.place}",
            )
            columns = {**stored.noted.types, **own}
            rows = self._read(spark, table, Selection(seen, columns, (ORDER_COLUMN,), "true", is_final=False))
            noted = stored.noted.properties
            yield StoredLog(rows, key, noted[SOURCE_PROPERTY], noted[TABLE_PROPERTY])
        finally:
            self._drop_staged(seen)

    def exists(self, spark: SparkSession, table: WarehouseTable) -> bool:
        return self._is_there(table)

    def read(self, spark: SparkSession, table: WarehouseTable) -> DataFrame:
        stored = self._stored(table)
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
        if self._is_there(table):
            raise name_taken(table)
        stored, prefix = self._stored(like), f"{rebuild_prefix(table.namespace[0])}{uuid.uuid4().hex}_"
        types = {name: stored.types[name] for name in rows.columns}
        own = {name: kind for name, kind in stored.noted.types.items() if name in types}
        key = tuple(name for name in stored.noted.key if name in types)
        comment = encoded(Noted("; ".join(map("=".join, noted.items())), str(table), key, own, dict(noted)))
        into, place = quoted(STATE_DATABASE, f"{prefix}rows"), quoted(*self._levels(table))
        listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())
        stages = stage_rows(rows, StageTarget(self._settings, prefix, types, str(table)))
        try:
            self._run(
                table,
                f"CREATE TABLE {into} ({listed}) ENGINE = MergeTree ORDER BY ({', '.join(map(quoted, key))}) "
                f"SETTINGS allow_nullable_key = 1 COMMENT {literal(comment)}",
                *(f"INSERT INTO {into} SELECT * FROM {stage}" for stage in stages),
                f"RENAME TABLE {into} TO {place}",
            )
        finally:
            self._drop_staged(*stages, into)

    def _drop_old_rebuilds(self, tenant: str) -> None:
        """Remains of a killed rebuild; one that is at work may be somebody else's."""
        left = self._rows(
            f"SELECT name FROM system.tables WHERE database = {literal(STATE_DATABASE)} "
            f"AND startsWith(name, {literal(rebuild_prefix(tenant))}) "
            f"AND metadata_modification_time < now() - INTERVAL {_REBUILT_WITHIN_HOURS} HOUR"
        )
        self._drop_staged(*(quoted(STATE_DATABASE, name) for (name,) in left))

    def replace_rows(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        with self._staged(spark, table, changes) as (stored, stages, into):
            target = stored.target(table)
            statements = replace_statements(into, target, table, changes.columns, stages)
            self._run(table.name, f"CREATE TABLE {into} AS {stored.place}", *statements)
            self._swap(table.name, stored, into)

    def replace_entries(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        batch = str(_batch_of(spark))
        with self._staged(spark, table, changes) as (stored, stages, into):
            if stages:
                target = stored.target(table)
                statements = replace_entry_statements(into, target, changes.columns, stages, batch)
                self._run(table.name, f"CREATE TABLE {into} AS {stored.place}", *statements)
                self._swap(table.name, stored, into)

    def _swap(self, table: WarehouseTable, stored: _Stored, into: str) -> None:
        """The rows of ``into`` take the place of the table's, at once."""
        [[rows]] = self._rows(f"SELECT count() FROM {into}")
        # A server refuses to replace a partition by nothing.
        swap = f"ALTER TABLE {stored.place} REPLACE PARTITION tuple() FROM {into}"
        failpoint("sink_before_attach")
        self._run(table, swap if rows else f"TRUNCATE TABLE {stored.place}")

    def append_to(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        batch = _batch_of(spark)
        with self._staged(spark, table, changes) as (stored, stages, into):
            self._take_back(table.name, batch)
            if stages:
                insert = append_statement(into, changes.columns, stages, str(batch))
                self._run(table.name, f"CREATE TABLE {into} AS {stored.place}", insert)
                [[least, greatest]] = self._rows(order_ends_query(into))
                self._note(INTENTS, table, batch, least_order=least, greatest_order=greatest)
                self._attach(table.name, stored, into)

    def maintain(self, spark: SparkSession, table: WarehouseTable) -> Maintained:
        """ClickHouse merges parts by itself; here go the marks of rows that are gone."""
        was_due = False
        self._commits[table] += 1
        is_counted = self._commits[table] % self._settings.cleanup_every_commits == 0
        stored = self._load(table) if self._settings.is_maintaining and is_counted else None
        if stored is not None and GONE_COLUMN in stored.types:
            counts = f"SELECT countIf({quoted(GONE_COLUMN)} = 1), count() FROM {stored.place}"
            [[gone, rows]] = self._rows(counts, subject=table)
            if gone and gone >= rows * self._settings.cleanup_at_share:
                started_s = time.monotonic()
                self._run(table, f"OPTIMIZE TABLE {stored.place} FINAL CLEANUP")
                was_due = True
                log.info("sink_table_rewritten", table=str(table), took_s=round(time.monotonic() - started_s, 2))
        database, name = self._levels(table)
        [[size, parts]] = self._rows(
            "SELECT sum(bytes_on_disk), count() FROM system.parts "
            f"WHERE active AND database = {literal(database)} AND table = {literal(name)}"
        )
        return Maintained(TableFiles(bytes=size, data_files=parts), was_due=was_due)

    @contextlib.contextmanager
    def _staged(
        self, spark: SparkSession, table: SinkTable, changes: DataFrame
    ) -> Iterator[tuple[_Stored, list[str], str]]:
        """The table, the stages of ``changes``, and a name for the parts; after the block the batch is noted."""
        batch = _batch_of(spark)
        stored = self._stored(table.name)
        stages = self._stage(spark, table.name, stored, changes)
        into = quoted(STATE_DATABASE, stage_name(batch.query_id, table.name, "parts"))
        try:
            yield stored, stages, into
        except TableRefused:
            # The same batch may come to the table once more: where a resync is refused, with the table's own events.
            self._drop_staged(into)
            raise
        failpoint("sink_before_commit")
        self._note(BATCHES, table, batch)
        self._drop_staged(*stages, into)

    def _drop_staged(self, *places: str) -> None:
        for place in places:
            self._run(STATE_DATABASE, f"DROP TABLE IF EXISTS {place} SYNC")

    def _stored(self, table: WarehouseTable) -> _Stored:
        stored = self._load(table)
        if stored is None:
            raise TableRefused(f"{table}: the table went away; restart the job, which makes it again")
        return stored

    def _stage(self, spark: SparkSession, table: WarehouseTable, stored: _Stored, rows: DataFrame) -> list[str]:
        prefix = stage_name(_batch_of(spark).query_id, table, "")
        return stage_rows(rows, StageTarget(self._settings, prefix, _staged_types(stored, rows.columns), str(table)))

    def _attach(self, table: WarehouseTable, stored: _Stored, into: str) -> None:
        failpoint("sink_before_attach")
        self._run(table, f"ALTER TABLE {stored.place} ATTACH PARTITION tuple() FROM {into}")

    def _note(self, notes: str, table: SinkTable, batch: BatchIdentity, **more: str) -> None:
        """Into ``BATCHES`` or ``INTENTS``, which has ``more``."""
        reached = table.reached
        offsets, positions = (msgspec.json.encode(each).decode() for each in (reached.offsets, reached.positions))
        values = [str(table.name), table.source, table.table, batch.query_id, reached.order, offsets, positions]
        name, source, source_table, query_id, order, offsets, positions, *others = map(
            literal, [*values, *more.values()]
        )
        noted = (
            *(name, source, source_table, query_id, str(batch.batch_id), order),
            *(time_at(reached.committed_at_us), offsets, positions, *others),
        )
        columns = ", ".join([_NOTED_COLUMNS, *more])
        self._run(notes, f"INSERT INTO {notes} ({columns}) SELECT {', '.join(noted)}")

    def _open_intent(self, table: WarehouseTable, batch: BatchIdentity) -> _Intent | None:
        """The batch of the same query whose rows were to be attached last, if it is not noted, nor one after it; whether they
        came, the table says (``_has_come``)."""
        rows = self._rows(
            f"SELECT batch_id, reached_offsets, least_order, greatest_order FROM {INTENTS} FINAL "
            f"WHERE name = {literal(str(table))} AND query_id = {literal(batch.query_id)}"
        )
        for batch_id, offsets, least, greatest in rows:
            intended = BatchIdentity(batch.query_id, batch_id)
            if not self._has_noted(table, intended):
                reached = msgspec.json.decode(offsets, type=dict[int, int])
                return _Intent(intended, reached, rows_of_batch(str(intended), least, greatest))
        return None

    def _has_come(self, table: WarehouseTable, intent: _Intent) -> bool:
        """Raises TableRefused: the table is not shown to this user, so its state is unknown."""
        place = quoted(*self._levels(table))
        return bool(self._rows(f"SELECT 1 FROM {place} WHERE {intent.rows} LIMIT 1", subject=table))

    def _take_back(self, table: WarehouseTable, batch: BatchIdentity) -> None:
        """Rows of a batch that was attached and never noted go: its table was refused since then, before it could be asked, so
        that its events come again, under another batch, which is ``batch``, and perhaps more after that."""
        intent = self._open_intent(table, batch)
        if intent is None or not self._has_come(table, intent):
            return
        place = quoted(*self._levels(table))
        self._run(table, f"ALTER TABLE {place} DELETE WHERE {intent.rows} SETTINGS mutations_sync = 2")
        log.info("sink_batch_taken_back", table=str(table), batch_id=intent.batch.batch_id)

    def _has_noted(self, table: WarehouseTable, batch: BatchIdentity) -> bool:
        rows = self._rows(
            f"SELECT batch_id FROM {BATCHES} FINAL "
            f"WHERE name = {literal(str(table))} AND query_id = {literal(batch.query_id)}"
        )
        return any(batch_id >= batch.batch_id for (batch_id,) in rows)

    def _is_there(self, table: WarehouseTable) -> bool:
        """By any maker, with any later changes; also where this user has lost all rights on it, so that it is
        in no list that ClickHouse shows him."""
        try:
            [[is_there]] = self._rows(f"EXISTS TABLE {quoted(*self._levels(table))}", subject=table)
        except TableRefused:
            return True
        return bool(is_there)

    def _create(self, table: SinkTable) -> None:
        database, name = self._levels(table.name)
        types = {column.name: self._own_type(column) for column in table.columns}
        noted = Noted(comment_of(table), str(table.name), table.key, types, first_properties(table))
        is_keyed = table.mode is not SinkMode.APPEND  # whose rows of truncations have no key
        required = {c.name for c in table.columns if is_keyed and c.name in table.key and not c.is_optional}
        self._run(table.name, f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
        if self._is_there(table.name):
            raise TableRefused(
                f"{table.name}: {quoted(database, name)} is there, and ClickHouse does not show it to user "
                f"{self._settings.user}; GRANT the rights on it again"
            )
        # Of a table that was here before, and that somebody dropped.
        self._run(BATCHES, f"INSERT INTO {BATCHES} (name) SELECT {literal(str(table.name))}")
        self._run(table.name, _definition(quoted(database, name), table, noted, required))
        log.info("sink_table_created", table=str(table.name), mode=table.mode.value, key=list(table.key))

    def _evolve(self, spark: SparkSession, stored: _Stored, table: SinkTable, changes: Evolution) -> None:
        """Change columns and comment in one statement; where ClickHouse cannot, by a copy that is exchanged for the table."""
        noted = _noted_after(stored, table, changes)
        given = {
            column.name: _given(table, f"CAST({default}, {literal(_nullable(noted.types[column.name]))})")
            for column, default in zip(changes.added, _defaults(spark, table, changes.added), strict=True)
            if default is not None
        }
        if _needs_copy(stored, table, changes):
            self._copy(stored, table, changes, noted, given)
        else:
            parts = [f"RENAME COLUMN {quoted(old)} TO {quoted(new)}" for old, new in changes.renamed.items()]
            # The rows that are there have a column's default from then on, without one being written.
            parts += [
                f"ADD COLUMN {quoted(column.name)} {_nullable(noted.types[column.name])}"
                + (f" DEFAULT {given[column.name]}" if column.name in given else "")
                for column in changes.added
            ]
            parts += [
                f"MODIFY COLUMN {quoted(column.name)} {_nullable(noted.types[column.name])}"
                for column in changes.widened
            ]
            parts.append(f"MODIFY COMMENT {literal(encoded(noted))}")
            self._run(table.name, f"ALTER TABLE {stored.place} {', '.join(parts)} SETTINGS mutations_sync = 1")
        log_evolution(table, changes)

    def _copy(
        self, stored: _Stored, table: SinkTable, changes: Evolution, noted: Noted, given: Mapping[str, str]
    ) -> None:
        """All rows as they lie there, marks and old versions too. Cut off before the exchange, it is begun again."""
        before = {changes.renamed.get(name, name): name for name in stored.noted.types}
        required = {name for name, old in before.items() if not stored.is_optional(old)}
        values = {
            **{name: given.get(name, "NULL") for name in noted.types},
            **{name: quoted(old) for name, old in before.items()},
            **{name: quoted(name) for name in _own_of(table)},
        }
        copy = quoted(STATE_DATABASE, copy_name(table.name))
        self._run(
            table.name,
            f"DROP TABLE IF EXISTS {copy} SYNC",
            _definition(copy, table, noted, required),
            f"INSERT INTO {copy} ({', '.join(map(quoted, values))}) SELECT {', '.join(values.values())} FROM {stored.place}",
            f"EXCHANGE TABLES {stored.place} AND {copy}",
            f"DROP TABLE IF EXISTS {copy} SYNC",
        )

    def _load(self, table: WarehouseTable) -> _Stored | None:
        database, name = self._levels(table)
        client = self._connected()
        with errors_named(self._settings, STATE_DATABASE):
            stored = stored_table(client, database, name)
        if stored is None:
            return None
        comment, types = stored
        place, noted = quoted(database, name), decoded(comment)
        if noted is None:
            raise TableRefused(
                f"{table}: a table {place} is there already and is not Headwater's, or somebody changed its comment; rename "
                "it or put the comment back, or choose another warehouses.clickhouse.database"
            )
        if noted.name != str(table):
            raise TableRefused(
                f"{table}: its place {place} is {noted.name}'s already; choose a warehouses.clickhouse.database that keeps "
                "them apart"
            )
        for column, own in noted.types.items():
            found, wanted = types.get(column), clickhouse_type(own)
            if found is None:
                raise TableRefused(
                    f"{place}: somebody dropped or renamed column {column}; put it back, or write the tenant's tables again "
                    "(docs/sinks/repair.md, 'Write tables again')"
                )
            if _plain(found) not in (_plain(wanted), _plain(f"Nullable({wanted})")):
                raise TableRefused(f"{place}: column {column} is of type {found}; set it back to {wanted}")
        return _Stored(place, noted, types)

    def _levels(self, table: WarehouseTable) -> tuple[str, str]:
        return database_name(self._settings.database, table), table.name

    def _own_type(self, column: SinkColumn) -> str:
        return self.dialect.own_type(column.sql_type, column.logical_type)

    def _run(self, subject: WarehouseTable | str, *statements: str) -> None:
        client = self._connected()
        with errors_named(self._settings, subject):
            for statement in statements:
                client.command(statement)

    def _rows(self, query: str, *, subject: WarehouseTable | str = STATE_DATABASE) -> Sequence[Sequence[Any]]:
        client = self._connected()
        with errors_named(self._settings, subject):
            return client.query(query).result_rows

    def _connected(self) -> Client:
        """The client that all threads use; makes Headwater's state when it is new."""
        with self._lock:
            if self._client is None:
                client = connect(self._settings, application="headwater-sink")
                with errors_named(self._settings, STATE_DATABASE):
                    days = ", ".join(f"toString(toDate32({literal(day)}))" for day in _DAYS)
                    if tuple(client.query(f"SELECT {days}").result_rows[0]) != _DAYS:
                        raise PipelineHalted(
                            f"ClickHouse {self._settings.host}:{self._settings.port}: version {client.server_version} has no "
                            "days before 1900 and after 2299 and would make others of them; take one that has (26.9 does)"
                        )
                    for statement in _STATE:
                        client.command(statement)
                self._client = client
            return self._client


def _definition(place: str, table: SinkTable, noted: Noted, required: Collection[str]) -> str:
    columns = [
        f"{quoted(name)} {clickhouse_type(own) if name in required else _nullable(own)}"
        for name, own in noted.types.items()
    ]
    columns += [f"{quoted(name)} {kind}" for name, kind in _own_of(table).items()]
    settings = "allow_nullable_key = 1"
    order: tuple[str, ...]
    if table.mode is SinkMode.APPEND:
        engine, order = "MergeTree", (ORDER_COLUMN,)
    else:
        engine = f"ReplacingMergeTree({quoted(VERSION_COLUMN)}, {quoted(GONE_COLUMN)})"
        order = (*noted.key, OPENED_BY_COLUMN) if table.mode is SinkMode.HISTORY else noted.key
        settings += ", allow_experimental_replacing_merge_with_cleanup = 1"
    if table.mode is SinkMode.MIRROR:
        # Ten, 26 and ten digits: a number of at most 153 bits, which grows as the text does.
        number = f"toUInt256(replaceAll({quoted(ORDER_COLUMN)}, '.', ''))"
        columns.append(f"{quoted(VERSION_COLUMN)} UInt256 MATERIALIZED {number}")
    return (
        f"CREATE TABLE {place} ({', '.join(columns)}) ENGINE = {engine} ORDER BY ({', '.join(map(quoted, order))}) "
        f"SETTINGS {settings} COMMENT {literal(encoded(noted))}"
    )


def _own_of(table: SinkTable) -> dict[str, str]:
    """ClickHouse's types of Headwater's columns, but for the one that is computed."""
    types = {
        name: kind if name in _REQUIRED else f"Nullable({kind})"
        for name in own_columns(table.mode, table.deletes)
        for kind in [clickhouse_type(OWN_SQL_TYPES[name])]
    }
    match table.mode:
        case SinkMode.APPEND:
            return {**types, BATCH_COLUMN: "LowCardinality(String)"}
        case SinkMode.MIRROR:
            return {**types, GONE_COLUMN: "UInt8"}
        case SinkMode.HISTORY:
            return {**types, GONE_COLUMN: "UInt8", VERSION_COLUMN: "UInt64"}


def _needs_copy(stored: _Stored, table: SinkTable, changes: Evolution) -> bool:
    """Whether a column of the key changes, a name goes from one column to another, or a column gets another name and type."""
    widened = {column.name for column in changes.widened}
    taken = {column.name for column in changes.added} & changes.renamed.keys()
    ordering = set() if table.mode is SinkMode.APPEND else set(stored.noted.key)
    return bool(
        taken
        or ordering & {*changes.renamed, *widened}
        or set(changes.renamed.values()) & {*stored.noted.types, *widened}
    )


def _noted_after(stored: _Stored, table: SinkTable, changes: Evolution) -> Noted:
    noted = dict(stored.noted.properties)
    noted |= properties_before(stored.noted.properties, changes, table)
    more, gone = properties_after(stored.noted.properties, changes, table)
    noted |= more
    # A fill is done by the statement that adds the column.
    left = {*gone, *pending_of(noted)}
    noted = {name: text for name, text in noted.items() if name not in left}
    types = {name: column.type for name, column in changes.columns.items()}
    key = tuple(changes.renamed.get(name, name) for name in stored.noted.key)
    return Noted(stored.noted.comment, stored.noted.name, key, types, noted)


def _defaults(spark: SparkSession, table: SinkTable, columns: Sequence[SinkColumn]) -> list[str | None]:
    """The constants that fill columns, as ClickHouse's SQL has them."""
    if table.mode is SinkMode.APPEND or not any(column.fill for column in columns):
        return [None] * len(columns)
    constants = [
        sf.lit(None).cast("string")
        if column.fill is None
        else _as_text(sf.expr(column.fill.expression).cast(column.sql_type), column.sql_type)
        for column in columns
    ]
    [row] = spark.range(1).select(*constants).collect()
    return [
        None if text is None else f"unhex({literal(text)})" if column.sql_type == "binary" else literal(text)
        for column, text in zip(columns, row, strict=True)
    ]


def _given(table: SinkTable, constant: str) -> str:
    """The value of existing rows in an added column."""
    # A version that had ended did not have the column.
    return f"if({quoted(IS_CURRENT_COLUMN)}, {constant}, NULL)" if table.mode is SinkMode.HISTORY else constant


def _as_text(value: SparkColumn, spark_type: str) -> SparkColumn:
    return sf.hex(value) if spark_type == "binary" else value.cast("string")


def _staged_types(stored: _Stored, names: Sequence[str]) -> dict[str, str]:
    """Of staged columns, in the order of ``names``."""
    types = {**stored.types, **_STAGED_TYPES}
    return {name: types[name] for name in names}


def _nullable(own: str) -> str:
    return f"Nullable({clickhouse_type(own)})"


def _plain(own_type: str) -> str:
    return own_type.replace(" ", "")


def _batch_of(spark: SparkSession) -> BatchIdentity:
    query_id, _, batch_id = str(spark.conf.get(_BATCH)).rpartition(":")
    return BatchIdentity(query_id, int(batch_id))
