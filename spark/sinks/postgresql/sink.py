"""The PostgreSQL sink: a batch is staged by COPY (``copy``), then merged in one transaction.

Exactly once: ``headwater.tables`` holds for each table the last batch that it took in, and that row is written by the very
transaction that writes the batch. The transaction locks the row first, so that of two sessions that write the same table one
waits, and a batch that was overtaken (its session was believed dead) finds a later one there and writes nothing.

Where a tenant's tables move together, all of a batch's are written in one transaction, each after a savepoint.

Columns and registry change in one transaction too: DDL is transactional in PostgreSQL.
"""

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from psycopg import sql
from psycopg.types.json import Jsonb
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from libs.failpoints import failpoint
from libs.postgresql.names import (
    REGISTRY,
    STATE_SCHEMA,
    column_name,
    identifier,
    quoted,
    rebuild_stage_prefix,
    schema_name,
    stage_prefix,
)
from libs.postgresql.tenant_tables import drop_tables, query_ids, stages_with
from libs.sink_state.progress import Standing, TableFiles
from libs.types.table import FormerName
from libs.types.tenant import Deletes, SinkMode
from libs.types.warehouse import (
    CLOSED_BY_COLUMN,
    COMMITTED_AT_COLUMN,
    DELETED_AT_COLUMN,
    DELETED_COLUMN,
    IMAGE_COLUMN,
    IS_CURRENT_COLUMN,
    OP_COLUMN,
    OPENED_BY_COLUMN,
    ORDER_COLUMN,
    OWN_SQL_TYPES,
    PROGRESS_VIEW,
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    UNAVAILABLE_COLUMN,
    VALID_FROM_COLUMN,
    VALID_TO_COLUMN,
    WarehouseTable,
    own_columns,
)
from libs.warehouse.dialect import DIALECTS, Dialect
from libs.warehouse.postgresql import own_type, sql_type
from libs.warehouse.schema_changes import StoredColumn, first_columns
from spark.sinks.evolution import Evolution, check_creation, evolution, log_evolution, stored_key
from spark.sinks.port import (
    KAFKA_PARTITION_COLUMN,
    OFFSET_COLUMN,
    BatchIdentity,
    Maintained,
    RefusedRow,
    Sink,
    SinkColumn,
    SinkTable,
    StoredLog,
    TableRefused,
    VersionsOf,
)
from spark.sinks.postgresql.client import Connection, Connections, OpenTransaction
from spark.sinks.postgresql.copy import Probe, StageTarget, copy_into_stages, find_refused_rows
from spark.sinks.postgresql.copy_text import as_text
from spark.sinks.postgresql.read import read_rows
from spark.sinks.postgresql.settings import Settings
from spark.sinks.settled import Settled, check_settled, key_of_log, name_taken, no_such_table
from spark.transforms.cut_envelope import DELETE
from spark.transforms.versions import IS_GONE_COLUMN, STORED_COLUMN
from spark.transforms.warehouse_columns import Fill, TableColumn, Truncation

_BATCH: Final = "headwater.postgresql.batch"
_OWN_TYPES: Final = {
    OP_COLUMN: "text",
    IMAGE_COLUMN: "text",
    ORDER_COLUMN: 'text COLLATE "C"',
    COMMITTED_AT_COLUMN: "timestamp with time zone",
    DELETED_COLUMN: "boolean",
    DELETED_AT_COLUMN: "timestamp with time zone",
    UNAVAILABLE_COLUMN: "jsonb",
    VALID_FROM_COLUMN: "timestamp with time zone",
    VALID_TO_COLUMN: "timestamp with time zone",
    IS_CURRENT_COLUMN: "boolean",
    OPENED_BY_COLUMN: 'text COLLATE "C"',
    CLOSED_BY_COLUMN: 'text COLLATE "C"',
    STORED_COLUMN: 'text COLLATE "C"',
    IS_GONE_COLUMN: "boolean",
}
"""Orders are compared by their bytes, in any collation of the database."""
_OPTIONAL: Final = (DELETED_AT_COLUMN, IMAGE_COLUMN, VALID_TO_COLUMN, CLOSED_BY_COLUMN)
_STAGED_SQL_TYPES: Final = {
    **OWN_SQL_TYPES,
    UNAVAILABLE_COLUMN: "string",
    STORED_COLUMN: "string",
    IS_GONE_COLUMN: "boolean",
}
_STATE: Final = (
    f"CREATE SCHEMA IF NOT EXISTS {STATE_SCHEMA}",
    f"""CREATE TABLE IF NOT EXISTS {REGISTRY} (
        name text PRIMARY KEY, schema_name text NOT NULL, table_name text NOT NULL, source text NOT NULL,
        source_table text NOT NULL, topic text NOT NULL, mode text NOT NULL, deletes text NOT NULL, key jsonb NOT NULL,
        columns jsonb NOT NULL, schema_version bigint,
        batch_query text, batch_id bigint, batch_at timestamptz, reached_order text, reached_at timestamptz,
        reached_offsets jsonb, reached_positions jsonb, UNIQUE (schema_name, table_name))""",
    f"COMMENT ON TABLE {REGISTRY} IS 'Tables that Headwater writes, and the last batch that each took in'",
)
_LATER_COLUMNS: Final = {
    "schema_version": "bigint",
    "reached_order": "text",
    "reached_at": "timestamptz",
    "reached_offsets": "jsonb",
    "reached_positions": "jsonb",
}
"""Those that a registry of an older release lacks."""
_VIEW: Final = f"""CREATE OR REPLACE VIEW {quoted(STATE_SCHEMA, PROGRESS_VIEW)} AS
    SELECT split_part(name, '.', 1) AS tenant, source, source_table AS "table",
        p ->> 'source_partition' AS source_partition, p -> 'position' AS position, p ->> 'order' AS position_order,
        reached_order AS "order", reached_at AS committed_at, reached_offsets AS offsets,
        batch_query || ':' || batch_id AS batch, batch_at AS written_at
    FROM {REGISTRY} LEFT JOIN LATERAL jsonb_array_elements(reached_positions) p ON true
    WHERE batch_query IS NOT NULL"""
_LOCK_KEY: Final = "headwater"
_REBUILT: Final = "rebuilt"
"""In the place of a mode, of a table that ``headwater rebuild`` has made."""

log = structlog.get_logger()


def open_sink(settings: Settings) -> Sink:
    """The sink over one database; it is reached for when the first batch comes."""
    return PostgresqlSink(settings)


@dataclass(frozen=True, slots=True)
class _Note:
    """The registry's facts of a column, beside its name."""

    fill: Fill | None = None
    former_names: tuple[FormerName, ...] = ()
    variant_of: str | None = None
    after_version: int = 0


@dataclass(frozen=True, slots=True)
class _Stored:
    """A table as the registry and PostgreSQL's catalog have it."""

    place: str
    """Quoted."""
    mode: str
    deletes: str
    key: tuple[str, ...]
    notes: Mapping[str, _Note]
    """By the source's column names, in the order in which they came."""
    types: Mapping[str, str]
    """PostgreSQL's, by its own column names."""
    version: int | None
    """The schema version that it is ready for; None: of an older release."""
    batch: BatchIdentity | None

    def columns(self) -> dict[str, TableColumn]:
        found = {}
        for name, note in self.notes.items():
            own = self.types[column_name(name)]
            spark_type = sql_type(own)
            if spark_type is None:
                raise TableRefused(
                    f"{self.place}: column {name} is of type {own}, which Headwater writes no columns of; set it back"
                )
            found[name] = TableColumn(
                spark_type, note.fill, StoredColumn(own, note.former_names, note.variant_of, note.after_version)
            )
        return found

    def column(self, name: str) -> str:
        """The quoted column of a name that the source has, perhaps in other case."""
        known = next((stored for stored in self.notes if stored.lower() == name.lower()), name)
        return quoted(column_name(known))

    def has(self, batch: BatchIdentity) -> bool:
        """Whether it took in ``batch``, or one that came after it."""
        return (
            self.batch is not None and self.batch.query_id == batch.query_id and self.batch.batch_id >= batch.batch_id
        )


_Statements = Callable[[_Stored, Sequence[str], Sequence[str]], list[sql.SQL]]
"""The statements of one batch, from its staged columns and stages."""


class PostgresqlSink:
    """See ``spark.sinks.port.Sink``, which has the promises."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connections = Connections(settings)
        self._lock = threading.Lock()
        self._has_state = False
        self._together: dict[BatchIdentity, OpenTransaction] = {}
        """Of batches whose tables move together, while they run."""

    @property
    def dialect(self) -> Dialect:
        return DIALECTS["postgresql"]

    def session_config(self) -> Mapping[str, str]:
        # Spark's Python workers import ``copy`` from where this module is.
        return {"spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[3])}

    def begin_batch(self, spark: SparkSession, batch: BatchIdentity) -> None:
        spark.conf.set(_BATCH, str(batch))
        self._make_state()
        with self._connections.transaction(REGISTRY) as connection:
            # Batches of a query follow one another: stages of this one are remains.
            left = _drop_stages(connection, _stage_prefix(batch))
        if left:
            log.info("sink_stages_dropped", stages=left, query_id=batch.query_id)

    def is_applied(
        self, spark: SparkSession, table: WarehouseTable, batch: BatchIdentity, offsets: Mapping[int, int]
    ) -> bool:
        self._make_state()
        with self._connections.transaction(str(table)) as connection:
            stored = _load(connection, table)
        return stored is not None and stored.has(batch)

    def standing(self, spark: SparkSession, table: WarehouseTable) -> Standing | None:
        with self._connections.transaction(str(table)) as connection:
            rows = connection.execute(
                "SELECT to_regclass(format('%%I.%%I', schema_name, table_name))::oid, batch_query, batch_id "
                f"FROM {REGISTRY} WHERE name = %s",
                (str(table),),
            ).fetchall()
        for oid, query_id, batch_id in rows:
            if oid is not None:
                return Standing(id=str(oid), batch="" if query_id is None else str(BatchIdentity(query_id, batch_id)))
        return None

    def ensure_table(self, spark: SparkSession, table: SinkTable) -> Mapping[str, TableColumn]:
        self._make_state()
        literals = _fill_literals(spark, table)
        with self._connections.transaction(str(table.name)) as connection:
            _lock_name(connection, str(table.name))
            stored = _load(connection, table.name)
            if stored is None:
                check_creation(table)
                self._create(connection, table)
            else:
                columns = stored.columns()
                settled = Settled(stored.mode, stored.deletes, ",".join(stored.key))
                check_settled(settled, table, stored_key(columns, stored.version, table), stored.types)
                changes = evolution(columns, stored.version, table, self.dialect)
                if changes:
                    _evolve(connection, stored, table, changes, literals)
            stored = _load(connection, table.name)
        assert stored is not None
        return stored.columns()

    def drop_tables(self, spark: SparkSession, tenant: str) -> int:
        with self._connections.transaction(REGISTRY) as connection:
            return drop_tables(connection, tenant, query_ids(connection, tenant))

    def merge_into(
        self, spark: SparkSession, table: SinkTable, changes: DataFrame, *, truncation: Truncation | None = None
    ) -> None:
        def statements(stored: _Stored, columns: Sequence[str], stages: Sequence[str]) -> list[sql.SQL]:
            return write_statements(stored, table, columns, stages, truncation)

        self._write(spark, table, _with_json_names(changes), statements, may_be_first=table.are_first)

    def replace_rows(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        def statements(stored: _Stored, columns: Sequence[str], stages: Sequence[str]) -> list[sql.SQL]:
            return replace_statements(stored, table, columns, stages)

        self._write(spark, table, _with_json_names(changes), statements)

    def replace_versions(
        self, spark: SparkSession, table: SinkTable, versions_of: Callable[[DataFrame], DataFrame]
    ) -> None:
        stored = self._stored(table.name)
        every = read_rows(spark, self._settings, _spark_types(stored), f"{stored.place} t")

        def statements(stored: _Stored, columns: Sequence[str], stages: Sequence[str]) -> list[sql.SQL]:
            return replace_all_statements(stored, columns, stages)

        self._write(spark, table, versions_of(every), statements)

    def replace_entries(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        def statements(stored: _Stored, columns: Sequence[str], stages: Sequence[str]) -> list[sql.SQL]:
            return replace_entry_statements(stored, table, columns, stages)

        self._write(spark, table, changes, statements)

    def append_to(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        self.merge_into(spark, table, changes)

    def merge_versions(
        self,
        spark: SparkSession,
        table: SinkTable,
        keys: DataFrame,
        versions_of: VersionsOf,
        *,
        truncation: Truncation | None = None,
    ) -> None:
        stored = self._stored(table.name)
        key_stages = self._stage(table, stored, keys, _batch_of(spark))
        versions = versions_of(self._rows_of(spark, table, stored, key_stages))

        def statements(stored: _Stored, columns: Sequence[str], stages: Sequence[str]) -> list[sql.SQL]:
            return write_statements(stored, table, columns, stages, truncation)

        self._write(spark, table, versions.rows, statements, key_stages)

    def _rows_of(self, spark: SparkSession, table: SinkTable, stored: _Stored, key_stages: Sequence[str]) -> DataFrame:
        """Of the keys that are staged alone: a table may be much larger than a batch."""
        staged = " UNION ALL ".join(f"TABLE {stage}" for stage in key_stages)
        of_keys = f"JOIN ({staged}) s ON {_same_key(stored, table)}" if key_stages else "WHERE false"
        return read_rows(spark, self._settings, _spark_types(stored), f"{stored.place} t {of_keys}")

    @contextlib.contextmanager
    def open_log(self, spark: SparkSession, table: WarehouseTable) -> Iterator[StoredLog]:
        """Other connections read the snapshot of this one's transaction (PostgreSQL manual 9.28.5, "Snapshot
        Synchronization Functions"), which holds VACUUM back for as long. Another rebuild of the tenant's waits for the end."""
        self._make_state()
        with self._connections.transaction(str(table)) as connection:
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")  # meanwhile Spark is at work
            connection.execute("SET LOCAL lock_timeout = 0")
            _lock_name(connection, f"rebuild {table.namespace[0]}")
            stored = _load(connection, table)
            if stored is None:
                raise no_such_table(table)
            key = key_of_log(table, Settled(stored.mode, stored.deletes, ",".join(stored.key)))
            [(source, of_source)] = connection.execute(
                f"SELECT source, source_table FROM {REGISTRY} WHERE name = %s", (str(table),)
            ).fetchall()
            [(snapshot,)] = connection.execute("SELECT pg_export_snapshot()").fetchall()
            rows = read_rows(spark, self._settings, _spark_types(stored), f"{stored.place} t", snapshot=snapshot)
            yield StoredLog(rows, key, source, of_source)

    def exists(self, spark: SparkSession, table: WarehouseTable) -> bool:
        self._make_state()
        with self._connections.transaction(str(table)) as connection:
            return self._is_taken(connection, table)

    def read(self, spark: SparkSession, table: WarehouseTable) -> DataFrame:
        stored = self._stored(table)
        return read_rows(spark, self._settings, _spark_types(stored), f"{stored.place} t")

    def create_with(
        self,
        spark: SparkSession,
        table: WarehouseTable,
        rows: DataFrame,
        noted: Mapping[str, str],
        *,
        like: WarehouseTable,
    ) -> None:
        stored, prefix = self._stored(like), rebuild_stage_prefix(table.namespace[0])
        spark_types, own_types = _staged_types(stored, rows.columns)
        with self._connections.transaction(str(table)) as connection:
            _drop_stages(connection, prefix)  # of one that was cut off
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in own_types.items())
        stages = copy_into_stages(rows, spark_types, StageTarget(self._settings, prefix, columns, str(table)))
        with self._connections.transaction(str(table)) as connection:
            _lock_name(connection, str(table))
            if self._is_taken(connection, table):
                raise name_taken(table)
            schema, name = schema_name(self._settings.schema, table), identifier(table.name)
            place = quoted(schema, name)
            connection.execute(f"CREATE TABLE {place} (LIKE {stored.place} INCLUDING COMMENTS)")
            for own in stored.types.keys() - own_types.keys():
                connection.execute(f"ALTER TABLE {place} DROP COLUMN {quoted(own)}")
            if stages:
                listed = ", ".join(map(quoted, own_types))
                staged = " UNION ALL ".join(f"TABLE {stage}" for stage in stages)
                connection.execute(f"INSERT INTO {place} ({listed}) SELECT {listed} FROM ({staged}) s")
            _comment(connection, f"TABLE {place}", "; ".join(map("=".join, noted.items())))
            # Registered, so that it is found, and goes with the tenant; as of a mode that no stream writes.
            connection.execute(
                f"INSERT INTO {REGISTRY} (name, schema_name, table_name, source, source_table, topic, mode, deletes, key, "
                "columns, schema_version) SELECT %s, schema_name, %s, %s, %s, topic, %s, deletes, key, columns, schema_version "
                f"FROM {REGISTRY} WHERE name = %s",
                (str(table), name, noted[SOURCE_PROPERTY], noted[TABLE_PROPERTY], _REBUILT, str(like)),
            )
            _drop_stages(connection, prefix)

    def _is_taken(self, connection: Connection, table: WarehouseTable) -> bool:
        """Also by a table that is not Headwater's."""
        place = quoted(schema_name(self._settings.schema, table), identifier(table.name))
        [(is_there,)] = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (place,)).fetchall()
        return bool(is_there) or _load(connection, table) is not None

    def refused_rows(
        self, spark: SparkSession, table: SinkTable, changes: DataFrame, *, at_most: int
    ) -> list[RefusedRow]:
        with self._connections.transaction(str(table.name)) as connection:
            stored = _load(connection, table.name)
        if stored is None:
            return []
        names = [name for name in changes.columns if name not in (KAFKA_PARTITION_COLUMN, OFFSET_COLUMN)]
        spark_types, own_types = _staged_types(stored, names)
        return find_refused_rows(changes, spark_types, Probe(self._settings, own_types, str(table.name), at_most))

    @contextlib.contextmanager
    def staged_batch(self, spark: SparkSession) -> Iterator[None]:
        batch = _batch_of(spark)
        self._together[batch] = self._connections.open_transaction(f"the tables of batch {batch}")
        try:
            yield
        finally:
            # Not shown: the batch ended before its time, and comes again.
            if (left := self._together.pop(batch, None)) is not None:
                left.roll_back()

    def show_together(self, spark: SparkSession, tenant: str, tables: Sequence[WarehouseTable]) -> None:
        """Nothing where no block is open: uncommitted writes of one are gone."""
        if spark.conf.get(_BATCH, None) is None or (batch := _batch_of(spark)) not in self._together:
            return
        failpoint("sink_before_commit")
        self._together.pop(batch).commit()

    def maintain(self, spark: SparkSession, table: WarehouseTable) -> Maintained:
        """Changes nothing: the server's autovacuum does it."""
        with self._connections.transaction(str(table)) as connection:
            row = connection.execute(
                "SELECT pg_total_relation_size(to_regclass(format('%%I.%%I', schema_name, table_name))) "
                f"FROM {REGISTRY} WHERE name = %s",
                (str(table),),
            ).fetchone()
        return Maintained(None if row is None or row[0] is None else TableFiles(bytes=row[0]))

    def _write(
        self,
        spark: SparkSession,
        table: SinkTable,
        changes: DataFrame,
        statements: _Statements,
        key_stages: Sequence[str] = (),
        *,
        may_be_first: bool = False,
    ) -> None:
        """Stage, then change the table and note the batch in one transaction, with which ``key_stages`` go too; those of a
        batch that fails go with the next. ``may_be_first``: where a mirror has none of the staged keys, the rows are inserted
        in place of ``statements``."""
        batch = _batch_of(spark)
        stages = self._stage(table, self._stored(table.name), changes, batch)
        with self._write_transaction(batch, str(table.name)) as connection:
            connection.execute(f"SELECT 1 FROM {REGISTRY} WHERE name = %s FOR UPDATE", (str(table.name),))
            stored = _load(connection, table.name)
            if stored is not None and not stored.has(batch):
                are_first = may_be_first and bool(stages) and _has_none_of(connection, stored, table, stages)
                insert = _insert_first if are_first else statements
                for statement in insert(stored, changes.columns, stages):
                    connection.execute(statement)
                connection.execute(
                    f"UPDATE {REGISTRY} SET batch_query = %s, batch_id = %s, batch_at = clock_timestamp(), reached_order = %s, "
                    "reached_at = timestamptz 'epoch' + %s * interval '1 microsecond', reached_offsets = %s, "
                    "reached_positions = %s WHERE name = %s",
                    (
                        batch.query_id,
                        batch.batch_id,
                        table.reached.order,
                        table.reached.committed_at_us,
                        Jsonb(dict(table.reached.offsets)),
                        Jsonb(msgspec.to_builtins(table.reached.positions)),
                        str(table.name),
                    ),
                )
            for stage in (*stages, *key_stages):
                connection.execute(f"DROP TABLE IF EXISTS {stage}")
            if batch not in self._together:
                failpoint("sink_before_commit")

    def _stored(self, table: WarehouseTable) -> _Stored:
        with self._connections.transaction(str(table)) as connection:
            stored = _load(connection, table)
        if stored is None:
            raise TableRefused(f"{table}: the table went away; restart the job, which makes it again")
        return stored

    def _write_transaction(self, batch: BatchIdentity, subject: str) -> AbstractContextManager[Connection]:
        together = self._together.get(batch)
        return self._connections.transaction(subject) if together is None else together.part(subject)

    def _stage(self, table: SinkTable, stored: _Stored, changes: DataFrame, batch: BatchIdentity) -> list[str]:
        spark_types, own_types = _staged_types(stored, changes.columns)
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in own_types.items())
        digest = hashlib.sha256(str(table.name).encode()).hexdigest()[:12]
        prefix = f"{_stage_prefix(batch)}{digest}_"
        return copy_into_stages(changes, spark_types, StageTarget(self._settings, prefix, columns, str(table.name)))

    def _make_state(self) -> None:
        with self._lock:
            if self._has_state:
                return
            with self._connections.transaction(REGISTRY) as connection:
                _lock_name(connection, _LOCK_KEY)  # two at once would both find nothing
                for statement in _STATE:
                    connection.execute(statement)
                for statement in _lacking_columns(connection):
                    connection.execute(statement)
                connection.execute(_VIEW)
            self._has_state = True

    def _create(self, connection: Connection, table: SinkTable) -> None:
        schema, name = schema_name(self._settings.schema, table.name), identifier(table.name.name)
        _check_place(connection, table, schema, name)
        own = own_columns(table.mode, table.deletes)
        lines = [f"{quoted(column_name(column.name))} {_type_of(column)}" for column in table.columns]
        lines += [
            f"{quoted(column)} {_OWN_TYPES[column]}{'' if column in _OPTIONAL else ' NOT NULL'}" for column in own
        ]
        if table.mode is not SinkMode.APPEND:
            # Of a key with NULLs, which only a source's settings can choose; for it PostgreSQL 15 is needed.
            is_optional = any(column.is_optional for column in table.columns if column.name in table.key)
            unique = "UNIQUE NULLS NOT DISTINCT" if is_optional else "PRIMARY KEY"
            key = [*table.key, *([OPENED_BY_COLUMN] if table.mode is SinkMode.HISTORY else [])]
            lines.append(f"{unique} ({', '.join(quoted(column_name(column)) for column in key)})")
        _lock_name(connection, _LOCK_KEY)
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        place = quoted(schema, name)
        connection.execute(f"CREATE TABLE {place} ({', '.join(lines)})")
        _comment(
            connection, f"TABLE {place}", f"{table.table} of source {table.source}, {table.mode.value}, by Headwater"
        )
        for column in table.columns:
            _comment_column(connection, place, column)
        fills = {column.name: _late_fill(column, table) for column in table.columns}
        first = first_columns(table.schema, DIALECTS["postgresql"])
        notes = {name: _Note(fills[name], each.former_names, None, each.after_version) for name, each in first.items()}
        connection.execute(
            f"INSERT INTO {REGISTRY} (name, schema_name, table_name, source, source_table, topic, mode, deletes, key, "
            "columns, schema_version) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                str(table.name),
                schema,
                name,
                table.source,
                table.table,
                table.topic,
                table.mode.value,
                table.deletes.value,
                Jsonb(table.key),
                Jsonb(_listed(notes)),
                table.schema.version,
            ),
        )
        log.info("sink_table_created", table=str(table.name), mode=table.mode.value, key=list(table.key))


def _has_none_of(connection: Connection, stored: _Stored, table: SinkTable, stages: Sequence[str]) -> bool:
    """Whether a mirror has no row of the staged keys: none lies between the least and the greatest of them, or none has one of
    them, as its index finds.

    The server orders keys as that index does, in any collation. Without LIMIT it may read the table instead: of stages it
    knows nothing.
    """
    if table.mode is not SinkMode.MIRROR or any(
        column.is_optional for column in table.columns if column.name in table.key
    ):
        return False
    staged = f"({' UNION ALL '.join(f'TABLE {stage}' for stage in stages)}) s"
    key = [stored.column(name) for name in table.key]
    of_table, of_stages, of_next = (", ".join(f"{side}.{name}" for name in key) for side in ("t", "s", "n"))
    greatest_first = ", ".join(f"s.{name} DESC" for name in key)
    next_key = (
        f"SELECT {of_table} FROM {stored.place} t WHERE ({of_table}) >= "
        f"(SELECT {of_stages} FROM {staged} ORDER BY {of_stages} LIMIT 1) ORDER BY {of_table} LIMIT 1"
    )
    is_within = f"({of_next}) <= (SELECT {of_stages} FROM {staged} ORDER BY {greatest_first} LIMIT 1)"
    same = f"SELECT FROM {stored.place} t WHERE {_same_key(stored, table)} LIMIT 1"
    row = connection.execute(
        sql.SQL(
            f"SELECT EXISTS (SELECT FROM ({next_key}) n WHERE {is_within}) "
            f"AND EXISTS (SELECT FROM {staged}, LATERAL ({same}) found)"
        )
    ).fetchone()
    return row is not None and not row[0]


def _insert_first(stored: _Stored, columns: Sequence[str], stages: Sequence[str]) -> list[sql.SQL]:
    """Insert staged rows with new keys into a mirror; none is a delete. ``ON CONFLICT`` costs nearly twice as
    much where nothing conflicts."""
    kept = [name for name in columns if name not in (OP_COLUMN, UNAVAILABLE_COLUMN)]
    return [sql.SQL(_insert(stored, kept, " UNION ALL ".join(f"TABLE {stage}" for stage in stages)))]


def write_statements(
    stored: _Stored, table: SinkTable, columns: Sequence[str], stages: Sequence[str], truncation: Truncation | None
) -> list[sql.SQL]:
    """The statements of one batch; the stages have one row a key in a mirror, one a version in a history, ``columns`` in
    this order."""
    staged = " UNION ALL ".join(f"TABLE {stage}" for stage in stages)
    if table.mode is SinkMode.APPEND:
        statements = [_insert(stored, columns, staged)] if stages else []
    elif table.mode is SinkMode.HISTORY:
        statements = _versions_statements(stored, table, columns, staged if stages else None, truncation)
    elif table.deletes is Deletes.SOFT:
        # The staged rows from before the truncation have its order already, and the values that they had then.
        statements = [_upsert(stored, table, columns, staged)] if stages else []
        statements += [_mark_truncated(stored, truncation)] if truncation is not None else []
    else:
        # Staged rows are newer than the truncation, so it may come first.
        order = quoted(ORDER_COLUMN)
        statements = [f"DELETE FROM {stored.place} WHERE {order} < '{truncation.order}'"] if truncation else []
        if stages:
            statements.append(
                f"DELETE FROM {stored.place} t USING ({staged}) s "
                f"WHERE {_same_key(stored, table)} AND s.{quoted(OP_COLUMN)} = '{DELETE}' AND t.{order} < s.{order}"
            )
            statements.append(_upsert(stored, table, columns, staged))
    return [sql.SQL(statement) for statement in statements]


def replace_statements(
    stored: _Stored, table: SinkTable, columns: Sequence[str], stages: Sequence[str]
) -> list[sql.SQL]:
    """Make a mirror hold the staged rows and, with soft deletes, marked ones beside; stored orders do not count.

    Rows are updated where they are there: indexes, grants and views of others' stay, and readers wait for nothing.
    """
    staged = " UNION ALL ".join(f"TABLE {stage}" for stage in stages)
    is_soft = table.deletes is Deletes.SOFT
    is_there = "" if is_soft else f" AND s.{quoted(OP_COLUMN)} <> '{DELETE}'"
    is_lacking = (
        f"NOT EXISTS (SELECT FROM ({staged}) s WHERE {_same_key(stored, table)}{is_there})" if stages else "true"
    )
    if is_soft:
        at = _time_at(table.reached.committed_at_us)
        deleted = quoted(DELETED_COLUMN)
        marks = f"{deleted} = true, {quoted(DELETED_AT_COLUMN)} = {at}"
        statements = [f"UPDATE {stored.place} t SET {marks} WHERE NOT t.{deleted} AND {is_lacking}"]
    else:
        statements = [f"DELETE FROM {stored.place} t WHERE {is_lacking}"]
    if stages:
        statements.append(_upsert(stored, table, columns, staged, only_newer=False))
    return [sql.SQL(statement) for statement in statements]


def replace_all_statements(stored: _Stored, columns: Sequence[str], stages: Sequence[str]) -> list[sql.SQL]:
    """Make a table hold the staged rows alone. Readers see its former rows until the transaction ends."""
    staged = " UNION ALL ".join(f"TABLE {stage}" for stage in stages)
    statements = [f"DELETE FROM {stored.place}", *([_insert(stored, columns, staged)] if stages else [])]
    return [sql.SQL(statement) for statement in statements]


def replace_entry_statements(
    stored: _Stored, table: SinkTable, columns: Sequence[str], stages: Sequence[str]
) -> list[sql.SQL]:
    """Make a log hold the staged changes once."""
    if not stages:
        return []
    staged, order = " UNION ALL ".join(f"TABLE {stage}" for stage in stages), quoted(ORDER_COLUMN)
    same = [f"t.{order} = s.{order}"]
    same += [f"t.{stored.column(name)} IS NOT DISTINCT FROM s.{stored.column(name)}" for name in table.key]
    statements = [
        f"DELETE FROM {stored.place} t USING ({staged}) s WHERE {' AND '.join(same)}",
        _insert(stored, columns, staged),
    ]
    return [sql.SQL(statement) for statement in statements]


def _insert(stored: _Stored, columns: Sequence[str], staged: str) -> str:
    every = ", ".join(quoted(column_name(name)) for name in columns)
    return f"INSERT INTO {stored.place} ({every}) SELECT {every} FROM ({staged}) s"


def _versions_statements(
    stored: _Stored, table: SinkTable, columns: Sequence[str], staged: str | None, truncation: Truncation | None
) -> list[str]:
    """Remove replaced versions, end those that the truncation ends, then insert the new ones."""
    statements = []
    if staged is not None:
        statements.append(
            f"DELETE FROM {stored.place} t USING ({staged}) s "
            f"WHERE {_same_key(stored, table)} AND t.{quoted(OPENED_BY_COLUMN)} = s.{quoted(STORED_COLUMN)}"
        )
    if truncation is not None:
        statements.append(
            f"UPDATE {stored.place} SET {quoted(IS_CURRENT_COLUMN)} = false, "
            f"{quoted(VALID_TO_COLUMN)} = {_time_of(truncation)}, {quoted(CLOSED_BY_COLUMN)} = '{truncation.order}' "
            f"WHERE {quoted(IS_CURRENT_COLUMN)} AND {quoted(ORDER_COLUMN)} < '{truncation.order}'"
        )
    if staged is not None:
        kept = ", ".join(quoted(column_name(name)) for name in columns if name not in (STORED_COLUMN, IS_GONE_COLUMN))
        statements.append(
            f"INSERT INTO {stored.place} ({kept}) SELECT {kept} FROM ({staged}) s WHERE NOT {quoted(IS_GONE_COLUMN)}"
        )
    return statements


def _time_of(truncation: Truncation) -> str:
    return _time_at(truncation.committed_at_us)


def _time_at(at_us: int) -> str:
    return f"timestamptz 'epoch' + {at_us} * interval '1 microsecond'"


def _upsert(stored: _Stored, table: SinkTable, columns: Sequence[str], staged: str, *, only_newer: bool = True) -> str:
    """Newer rows; of hard deletes none, of soft ones their marks."""
    is_soft, is_partial = table.deletes is Deletes.SOFT, UNAVAILABLE_COLUMN in columns
    kept = [name for name in columns if name not in (OP_COLUMN, UNAVAILABLE_COLUMN)]
    own, key = own_columns(table.mode, table.deletes), [stored.column(name) for name in table.key]
    names = {name: quoted(column_name(name)) for name in kept}
    order = quoted(ORDER_COLUMN)

    def given(name: str) -> str:
        if not is_partial or name in own:
            return f"s.{names[name]}"
        is_lacking = f"s.{quoted(UNAVAILABLE_COLUMN)} ? {_literal(name)}"
        return f"CASE WHEN {is_lacking} THEN p.{names[name]} ELSE s.{names[name]} END"

    def assigned(name: str) -> str:
        column = names[name]
        if not is_soft or not only_newer or name in own:
            return f"{column} = excluded.{column}"
        # A mark leaves the row's values.
        return f"{column} = CASE WHEN excluded.{quoted(DELETED_COLUMN)} THEN t.{column} ELSE excluded.{column} END"

    before = f" LEFT JOIN {stored.place} p ON {_same_key(stored, table, 'p')}" if is_partial else ""
    wanted = "" if is_soft else f" WHERE s.{quoted(OP_COLUMN)} <> '{DELETE}'"
    assignments = ", ".join(assigned(name) for name, column in names.items() if column not in key)
    return (
        f"INSERT INTO {stored.place} AS t ({', '.join(names.values())}) "
        f"SELECT {', '.join(map(given, kept))} FROM ({staged}) s{before}{wanted} "
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {assignments}"
        + (f" WHERE t.{order} < excluded.{order}" if only_newer else "")
    )


def _with_json_names(changes: DataFrame) -> DataFrame:
    """With ``UNAVAILABLE_COLUMN``, if there is one, as it is staged."""
    if UNAVAILABLE_COLUMN not in changes.columns:
        return changes
    return changes.withColumn(UNAVAILABLE_COLUMN, sf.to_json(UNAVAILABLE_COLUMN))


def _mark_truncated(stored: _Stored, truncation: Truncation) -> str:
    at = _time_of(truncation)
    order = quoted(ORDER_COLUMN)
    return (
        f"UPDATE {stored.place} SET {quoted(DELETED_COLUMN)} = true, {quoted(DELETED_AT_COLUMN)} = {at}, "
        f"{order} = '{truncation.order}', {quoted(COMMITTED_AT_COLUMN)} = {at} "
        f"WHERE {order} < '{truncation.order}' AND NOT {quoted(DELETED_COLUMN)}"
    )


def _same_key(stored: _Stored, table: SinkTable, side: str = "t") -> str:
    optional = {column.name for column in table.columns if column.is_optional}
    return " AND ".join(
        f"{side}.{stored.column(name)} {'IS NOT DISTINCT FROM' if name in optional else '='} s.{stored.column(name)}"
        for name in table.key
    )


def _spark_types(stored: _Stored) -> dict[str, str]:
    """Of all columns of a table."""
    of_source = {name: column.sql_type for name, column in stored.columns().items()}
    own = {name: kind for name, kind in OWN_SQL_TYPES.items() if name in stored.types and name not in of_source}
    return of_source | own


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _load(connection: Connection, table: WarehouseTable) -> _Stored | None:
    """None where there is none; a registry's row whose table somebody dropped counts as none, and goes."""
    row = connection.execute(
        f"SELECT schema_name, table_name, mode, deletes, key, columns, schema_version, batch_query, batch_id "
        f"FROM {REGISTRY} WHERE name = %s",
        (str(table),),
    ).fetchone()
    if row is None:
        return None
    schema, name, mode, deletes, key, columns, version, query_id, batch_id = row
    types = connection.execute(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
        (quoted(schema, name),),
    ).fetchall()
    if not types:
        connection.execute(f"DELETE FROM {REGISTRY} WHERE name = %s", (str(table),))
        return None
    notes = {item["name"]: _unlisted(item) for item in columns}
    if lost := [column for column in notes if column_name(column) not in dict(types)]:
        raise TableRefused(
            f"{quoted(schema, name)}: somebody dropped or renamed column {lost[0]}; put it back, or write the tenant's "
            "tables again (docs/sinks/repair.md, 'Write tables again')"
        )
    batch = None if query_id is None else BatchIdentity(query_id, batch_id)
    return _Stored(quoted(schema, name), mode, deletes, tuple(key), notes, dict(types), version, batch)


def _lacking_columns(connection: Connection) -> list[str]:
    """Only those: ALTER waits for every batch that writes, and all wait for it, also where it changes nothing."""
    columns = connection.execute(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
        (REGISTRY,),
    ).fetchall()
    return [
        f"ALTER TABLE {REGISTRY} ADD COLUMN {name} {kind}"
        for name, kind in _LATER_COLUMNS.items()
        if (name,) not in columns
    ]


def _check_place(connection: Connection, table: SinkTable, schema: str, name: str) -> None:
    taken = connection.execute(
        f"SELECT name FROM {REGISTRY} WHERE schema_name = %s AND table_name = %s", (schema, name)
    ).fetchone()
    if taken is not None:
        raise TableRefused(
            f"{table.name}: its place {schema}.{name} is {taken[0]}'s already; choose a warehouses.postgresql.schema that "
            "keeps them apart"
        )


def _type_of(column: SinkColumn) -> str:
    return own_type(column.sql_type, column.logical_type)


def _evolve(
    connection: Connection, stored: _Stored, table: SinkTable, changes: Evolution, literals: Mapping[str, str]
) -> None:
    """Rename, add and widen. A column that is added with a DEFAULT has it in every row there is, without one being written."""
    is_filled = table.mode is not SinkMode.APPEND
    alter = f"ALTER TABLE {stored.place}"
    given = {column.name: column for column in table.columns}
    # By way of names that nobody has: columns may have exchanged theirs.
    passing = {old: f"headwater renames {number}" for number, old in enumerate(changes.renamed)}
    for old, passed in passing.items():
        connection.execute(f"{alter} RENAME COLUMN {quoted(column_name(old))} TO {quoted(passed)}")
    for old, new in changes.renamed.items():
        connection.execute(f"{alter} RENAME COLUMN {quoted(passing[old])} TO {quoted(column_name(new))}")
        if column_name(old) != old:
            _comment(connection, f"COLUMN {stored.place}.{quoted(column_name(new))}", "")
        _comment_column(connection, stored.place, given.get(new, SinkColumn(new, "")))
    for column in changes.added:
        name, column_type = quoted(column_name(column.name)), _type_of(column)
        literal = literals.get(column.name) if is_filled else None
        if literal is None:
            connection.execute(f"{alter} ADD COLUMN {name} {column_type}")
        elif table.mode is SinkMode.HISTORY:
            # A version that had ended did not have the column.
            connection.execute(f"{alter} ADD COLUMN {name} {column_type}")
            connection.execute(
                sql.SQL(f"UPDATE {stored.place} SET {name} = ")
                + sql.Literal(literal)
                + sql.SQL(f"::{column_type} WHERE {quoted(IS_CURRENT_COLUMN)}")
            )
        else:
            default = sql.Literal(literal).as_string(connection)
            connection.execute(sql.SQL(f"{alter} ADD COLUMN {name} {column_type} DEFAULT ") + sql.SQL(default))
            connection.execute(f"{alter} ALTER COLUMN {name} DROP DEFAULT")
        _comment_column(connection, stored.place, column)
    for column in changes.widened:
        connection.execute(f"{alter} ALTER COLUMN {quoted(column_name(column.name))} TYPE {_type_of(column)}")
    fills = {changes.renamed.get(name, name): note.fill for name, note in stored.notes.items()}
    fills.update({column.name: column.fill if is_filled else None for column in changes.added})
    notes = {
        name: _Note(fills.get(name), column.former_names, column.variant_of, column.after_version)
        for name, column in changes.columns.items()
    }
    connection.execute(
        f"UPDATE {REGISTRY} SET columns = %s, schema_version = coalesce(%s, schema_version), key = %s WHERE name = %s",
        (
            Jsonb(_listed(notes)),
            changes.version,
            Jsonb(stored.key if changes.version is None else table.key),
            str(table.name),
        ),
    )
    log_evolution(table, changes)


def _fill_literals(spark: SparkSession, table: SinkTable) -> dict[str, str]:
    """The constants that fills stand for, as PostgreSQL reads them."""
    filled = [column for column in table.columns if column.fill is not None]
    if not filled or table.mode is SinkMode.APPEND:
        return {}
    constants = [
        as_text(sf.expr(column.fill.expression).cast(column.sql_type), column.sql_type)
        for column in filled
        if column.fill is not None
    ]
    [row] = spark.range(1).select(*constants).collect()
    return {column.name: text for column, text in zip(filled, row, strict=True) if text is not None}


def _late_fill(column: SinkColumn, table: SinkTable) -> Fill | None:
    """A table's first batch may begin before one of its columns was there."""
    is_late = column.fill is not None and column.fill.since_version > table.oldest_version
    return column.fill if is_late and table.mode is not SinkMode.APPEND else None


def _listed(notes: Mapping[str, _Note]) -> list[dict[str, Any]]:
    items = []
    for name, note in notes.items():
        item: dict[str, Any] = {"name": name}
        if note.fill is not None:
            item |= {"since_version": note.fill.since_version, "fill": note.fill.expression}
        if note.former_names:
            item["former_names"] = msgspec.to_builtins(note.former_names)
        if note.variant_of is not None:
            item["variant_of"] = note.variant_of
        if note.after_version:
            item["after_version"] = note.after_version
        items.append(item)
    return items


def _unlisted(item: Mapping[str, Any]) -> _Note:
    return _Note(
        Fill(item["since_version"], item["fill"]) if "fill" in item else None,
        msgspec.convert(item.get("former_names", ()), tuple[FormerName, ...]),
        item.get("variant_of"),
        item.get("after_version", 0),
    )


def _comment_column(connection: Connection, place: str, column: SinkColumn) -> None:
    name = column_name(column.name)
    is_renamed = name != column.name
    parts = [f"{column.name} at the source" if is_renamed else None, column.comment or None]
    if text := "; ".join(part for part in parts if part):
        _comment(connection, f"COLUMN {place}.{quoted(name)}", text)


def _comment(connection: Connection, what: str, text: str) -> None:
    literal = sql.Literal(text.replace("\0", "")).as_string(connection)
    connection.execute(sql.SQL(f"COMMENT ON {what} IS ") + sql.SQL(literal))


def _lock_name(connection: Connection, name: str) -> None:
    """Lock a name: until the transaction's end nobody else works on its object."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))


def _staged_types(stored: _Stored, names: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Of staged columns: Spark's types by the source's names, and PostgreSQL's by its own; both in the order of ``names``."""
    known = stored.columns()
    spark_types = {
        name: _STAGED_SQL_TYPES[name] if name in _STAGED_SQL_TYPES else known[name].sql_type for name in names
    }
    own_types = {**stored.types, **_OWN_TYPES}
    return spark_types, {column_name(name): own_types[column_name(name)] for name in names}


def _drop_stages(connection: Connection, prefix: str) -> int:
    left = stages_with(connection, [prefix])
    for name in left:
        connection.execute(f"DROP TABLE IF EXISTS {quoted(STATE_SCHEMA, name)}")
    return len(left)


def _batch_of(spark: SparkSession) -> BatchIdentity:
    query_id, _, batch_id = str(spark.conf.get(_BATCH)).rpartition(":")
    return BatchIdentity(query_id, int(batch_id))


def _stage_prefix(batch: BatchIdentity) -> str:
    return stage_prefix(batch.query_id)
