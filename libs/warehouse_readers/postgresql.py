"""PostgreSQL as a tenant's warehouse, read by ``headwater query`` and ``check``: by the sink's notes in its registry."""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.string import TextLoader

from libs.postgresql.connection import connect, errors_named
from libs.postgresql.names import REGISTRY, STATE_SCHEMA, column_name, quoted
from libs.postgresql.settings import PostgresqlWarehouse as Settings
from libs.types.tenant import Deletes, SinkMode
from libs.types.warehouse import OWN_COLUMN_PREFIX, PROGRESS_VIEW, WarehouseTable, own_columns
from libs.warehouse_readers.table_progress import PROGRESS_SCHEMA, progress_table
from libs.warehouse_readers.warehouse import (
    DUCKDB_DIGITS,
    SORTED_BATCH_ROWS,
    KeyCondition,
    QueryFailed,
    SqlDialect,
    StoredTable,
    TenantTable,
    for_duckdb,
    named_table,
    sums_statement,
)

_ARROW_TYPES: Final = {
    "boolean": pa.bool_(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "date": pa.date32(),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
    "bytea": pa.binary(),
}
_OF_HISTORY: Final = frozenset(own_columns(SinkMode.HISTORY, Deletes.HARD))


class PostgresqlWarehouse:
    """See ``libs.warehouse_readers.warehouse.Warehouse``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def tables(self) -> tuple[TenantTable, ...]:
        """Raises TransientError, AccessDenied or PipelineHalted, see ``libs.postgresql.connection``."""
        with _reading(self._settings, REGISTRY) as connection:
            if not _has_registry(connection):
                return ()
            rows = connection.execute(f"SELECT name, source, source_table FROM {REGISTRY}").fetchall()
        found = [named_table(*row) for row in rows]
        return tuple(sorted(found, key=lambda table: (table.tenant, table.names[2])))

    def load(self, place: WarehouseTable) -> StoredTable | None:
        with _reading(self._settings, str(place)) as connection:
            if not _has_registry(connection):
                return None
            found = connection.execute(
                f"SELECT schema_name, table_name, columns FROM {REGISTRY} WHERE name = %s", (str(place),)
            ).fetchone()
            if found is None:
                return None
            schema, name, columns = found
        return stored_table(self._settings, quoted(schema, name), [item["name"] for item in columns])

    def progress(self, tables: Sequence[TenantTable]) -> pa.Table:
        view = quoted(STATE_SCHEMA, PROGRESS_VIEW)
        columns = [
            f"{quoted(name)}::text" if name in ("position", "offsets") else quoted(name)
            for name in PROGRESS_SCHEMA.names
            if name != "snapshot_id"
        ]
        with _reading(self._settings, view) as connection:
            if connection.execute("SELECT to_regclass(%s)", (view,)).fetchone() == (None,):
                raise QueryFailed(f"{view} is not there yet; the sink job makes it with its next batch")
            cursor = connection.cursor(row_factory=dict_row)
            tenants = sorted({each.tenant for each in tables})
            rows = cursor.execute(
                sql.SQL(f"SELECT {', '.join(columns)} FROM {view} WHERE tenant = ANY(%s)"), (tenants,)
            ).fetchall()
        return progress_table(rows)


def stored_table(settings: Settings, place: str, source_names: Sequence[str]) -> "PostgresqlTable | None":
    """The table at ``place``, quoted, with the columns that the source calls ``source_names``, and Headwater's own."""
    with _reading(settings, place) as connection:
        types = connection.execute(
            "SELECT attname::text, format_type(atttypid, atttypmod), atttypmod FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (place,),
        ).fetchall()
    if not types:
        return None
    by_own_name = {column_name(name): name for name in source_names}
    kept = {
        by_own_name.get(own, own): _Column(own, kind, modifier)
        for own, kind, modifier in types
        if own in by_own_name or own.startswith(OWN_COLUMN_PREFIX) or own in _OF_HISTORY
    }
    return PostgresqlTable(settings, place, kept)


@dataclass(frozen=True, slots=True)
class _Column:
    own_name: str
    type: str
    modifier: int
    """Of a numeric: its digits (PostgreSQL's source, ``numeric.c``, ``make_numeric_typmod``)."""

    @property
    def digits(self) -> tuple[int, int] | None:
        if not self.type.startswith("numeric("):
            return None
        return ((self.modifier - 4) >> 16) & 0xFFFF, (self.modifier - 4) & 0x7FF

    @property
    def arrow_type(self) -> pa.DataType:
        if self.digits is not None:
            return pa.decimal128(*self.digits) if self.digits[0] <= DUCKDB_DIGITS else pa.decimal256(*self.digits)
        return _ARROW_TYPES.get(self.type, pa.string())


@dataclass(frozen=True, slots=True)
class PostgresqlTable:
    """See ``libs.warehouse_readers.warehouse.StoredTable``."""

    settings: Settings
    place: str
    """Quoted."""
    known: dict[str, _Column]
    """By the source's names."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.known)

    @property
    def sql_dialect(self) -> SqlDialect:
        return SqlDialect.POSTGRESQL

    def sql_name(self, column: str) -> str:
        return quoted(self.known[column].own_name)

    def types(self) -> dict[str, pa.DataType]:
        return {name: column.arrow_type for name, column in self.known.items()}

    def count(self) -> int:
        with _reading(self.settings, self.place) as connection:
            row = connection.execute(sql.SQL(f"SELECT count(*) FROM {self.place}")).fetchone()
        assert row is not None
        return int(row[0])

    def rows(self) -> pa.Table:
        """Numbers of more digits than DuckDB's as text."""
        names = list(self.known)
        batches = list(self._batches(f"SELECT {self._list(names)} FROM {self.place}", names))
        table = pa.Table.from_batches(batches, self._schema(names))
        return for_duckdb(table)

    def sorted_rows(
        self,
        columns: Sequence[str],
        key: Sequence[str],
        *,
        latest_by: tuple[str, str] | None = None,
        where: str | None = None,
        among: tuple[str, Collection[int | str]] | None = None,
        only: KeyCondition | None = None,
        temporary_dir: Path,
    ) -> Iterator[pa.RecordBatch]:
        """See ``libs.warehouse_readers.warehouse.sorted_rows``; the server sorts."""
        names = [*columns, *(latest_by or ())]
        current = self._current_rows(key, latest_by, where, among=among, only=only)
        statement = f"SELECT {self._list(names)} FROM {current}"
        if key:
            statement += f" ORDER BY {self._ordered_list(key)}"
        yield from self._batches(statement, names)

    def sums(
        self,
        columns: Sequence[str],
        key: Sequence[str],
        *,
        part: str,
        value: str,
        latest_by: tuple[str, str] | None = None,
        where: str | None = None,
        only: KeyCondition | None = None,
        temporary_dir: Path,
    ) -> list[tuple[Any, int, int | None]]:
        """See ``libs.warehouse_readers.warehouse.StoredTable``; the server adds up."""
        current = self._current_rows(key, latest_by, where, among=None, only=only)
        with _reading(self.settings, self.place) as connection:
            return connection.execute(sql.SQL(sums_statement(current, part, value))).fetchall()

    def _current_rows(
        self,
        key: Sequence[str],
        latest_by: tuple[str, str] | None,
        where: str | None,
        *,
        among: tuple[str, Collection[int | str]] | None,
        only: KeyCondition | None,
    ) -> str:
        """The text after FROM."""
        conditions = [f"({where})"] if where is not None else []
        if among is not None and (condition := self._is_one_of(*among)):
            conditions.append(condition)
        if only is not None:
            conditions.append(only.sql)
        chosen = f"{self.place} WHERE {' AND '.join(conditions)}" if conditions else self.place
        if latest_by is None:
            return chosen
        order, operation = (self.sql_name(name) for name in latest_by)
        keys = self._ordered_list(key)
        newest = f"SELECT DISTINCT ON ({keys}) * FROM {chosen} ORDER BY {keys}, {order} DESC"
        return f"({newest}) newest WHERE {operation} <> 'd'"

    def _ordered_list(self, names: Sequence[str]) -> str:
        return ", ".join(self._ordered(name) for name in names)

    def _is_one_of(self, name: str, values: Collection[int | str]) -> str | None:
        """None: a column of another type than the values."""
        column = self.known[name]
        wanted = str if column.type == "text" else int
        if column.type not in ("text", "integer", "bigint") or not all(isinstance(value, wanted) for value in values):
            return None
        literals = ", ".join(sql.Literal(value).as_string(None) for value in values)
        return f"{quoted(column.own_name)} IN ({literals})"

    def _ordered(self, name: str) -> str:
        column = self.known[name]
        return quoted(column.own_name) + (' COLLATE "C"' if column.type == "text" else "")

    def _list(self, names: Sequence[str]) -> str:
        return ", ".join(quoted(self.known[name].own_name) for name in names)

    def _schema(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([pa.field(name, self.known[name].arrow_type) for name in names])

    def _batches(self, statement: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        schema = self._schema(names)
        with _reading(self.settings, self.place) as connection, connection.cursor(name="rows") as cursor:
            cursor.execute(sql.SQL(statement))
            while rows := cursor.fetchmany(SORTED_BATCH_ROWS):
                columns = zip(*rows, strict=True)
                arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _has_registry(connection: "psycopg.Connection[Any]") -> bool:
    [found] = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (REGISTRY,)).fetchone() or [False]
    return bool(found)


@contextlib.contextmanager
def _reading(settings: Settings, subject: str) -> Iterator["psycopg.Connection[Any]"]:
    """One transaction that cannot write."""
    connection: psycopg.Connection[Any] = connect(settings, application="headwater")
    connection.read_only = True
    connection.adapters.register_loader("json", TextLoader)
    try:
        with errors_named(settings, subject):
            yield connection
    finally:
        connection.close()
