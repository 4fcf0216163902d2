"""Warehouses read without Spark, and Iceberg's: pyiceberg on the catalog's SQLite file; DuckDB for SQL.

``warehouses`` says which one a tenant's tables are in. ``headwater query`` and ``check`` call this; for Iceberg no service
needs to run. Spark's JDBC catalog wrote the file that the SqlCatalog reads here: both keep the same tables in the same file.
"""

import contextlib
import enum
import functools
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Protocol

import duckdb
import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.exceptions import ValidationError as UnreadableMetadata
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, In, IsNull, LessThanOrEqual, Or
from pyiceberg.expressions.parser import parse
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import ALWAYS_TRUE, Table
from pyiceberg.types import DecimalType, IntegerType, LongType, StringType

from libs.errors import HeadwaterError, InvalidSettings
from libs.tenants.place import nearest
from libs.types.table import TableId
from libs.types.warehouse import (
    CATALOG,
    OWN_COLUMN_PREFIX,
    PROGRESS_VIEW,
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    WarehouseTable,
)
from libs.warehouse_readers.iceberg_variants import has_variants, load_with_parts
from libs.warehouse_readers.table_progress import iceberg_progress, progress_table
from libs.warehouse_readers.variants import text_of, with_texts

SORT_MEMORY: Final = "512MB"
"""DuckDB's memory limit for sorting; beyond it DuckDB spills to the disk."""
SORT_THREADS: Final = 2
SORTED_BATCH_ROWS: Final = 10_000
PART_COLUMN: Final = f"{OWN_COLUMN_PREFIX}part"
VALUE_COLUMN: Final = f"{OWN_COLUMN_PREFIX}value"
_BEYOND_64_BITS: Final = 2**63
_MOST_SPANS: Final = 200
"""More are not compared with each file, as pyiceberg does."""


class QueryFailed(HeadwaterError):
    """The SQL is wrong, or names a missing table or column; the message says which."""


@dataclass(frozen=True, slots=True)
class TenantTable:
    """One table of one tenant."""

    tenant: str
    source: str
    table_id: TableId
    place: WarehouseTable

    @property
    def names(self) -> tuple[str, str, str]:
        """A user's names for it: ``orders``, ``shop.orders``, ``<source>.shop.orders``."""
        return self.table_id.table, str(self.table_id), f"{self.source}.{self.table_id}"


class SqlDialect(enum.Enum):
    """Whose SQL a table's expressions are in."""

    CLICKHOUSE = "clickhouse"
    DUCKDB = "duckdb"
    POSTGRESQL = "postgresql"


Span = tuple[int | None, int | None]
"""From and to; None: no bound. Where there is no lower one, NULL lies in it too."""


@dataclass(frozen=True, slots=True)
class KeySpans:
    """Where the numbers of a column lie."""

    column: str
    spans: tuple[Span, ...]
    """In one of these."""


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Between which texts a column lies, both included, by their characters' codes."""

    column: str
    low: str
    """Empty: no bound."""
    high: str
    """Of ASCII, as ``low``."""


@dataclass(frozen=True, slots=True)
class KeyCondition:
    """Which keys are meant."""

    sql: str
    """In the table's dialect, over its ``sql_name``s; of key columns alone."""
    within: tuple[KeySpans, ...] = ()
    """Each is so where the condition is true: rows outside of one may stay unread."""
    texts: tuple[TextSpan, ...] = ()
    """The same of texts."""


def all_of(*conditions: KeyCondition | None) -> KeyCondition | None:
    """Keys that meet each of ``conditions``; None: every key does."""
    given = [condition for condition in conditions if condition is not None]
    if not given:
        return None
    within = tuple(spans for condition in given for spans in condition.within)
    texts = tuple(span for condition in given for span in condition.texts)
    return KeyCondition(" AND ".join(condition.sql for condition in given), within, texts)


def few_spans(only: KeyCondition | None) -> Iterator[KeySpans]:
    """Those of ``only`` that are cheaper to compare with than to read past; wider ones, where 64 bits do not hold a number."""
    for each in () if only is None else only.within:
        if 0 < len(each.spans) <= _MOST_SPANS:
            yield KeySpans(each.column, tuple(_within_64_bits(low, high) for low, high in each.spans))


def _within_64_bits(low: int | None, high: int | None) -> Span:
    return (
        None if low is None or low <= -_BEYOND_64_BITS else min(low, _BEYOND_64_BITS - 1),
        None if high is None or high >= _BEYOND_64_BITS else max(high, -_BEYOND_64_BITS),
    )


def spans_sql(name: str, spans: Sequence[Span]) -> str:
    """SQL, of every dialect, that is true of the numbers in ``spans`` of the column that it calls ``name``."""
    return f"({' OR '.join(_span_sql(name, low, high) for low, high in spans)})"


def _span_sql(name: str, low: int | None, high: int | None) -> str:
    if low is None:
        return "1 = 1" if high is None else f"{name} IS NULL OR {name} <= {high}"
    return f"{name} >= {low}" if high is None else f"{name} BETWEEN {low} AND {high}"


class StoredTable(Protocol):
    """A table as a warehouse holds it now."""

    @property
    def columns(self) -> tuple[str, ...]:
        """By the source's names; Headwater's own too."""
        ...

    @property
    def sql_dialect(self) -> SqlDialect:
        """Of ``sums`` and ``KeyCondition``."""
        ...

    def sql_name(self, column: str) -> str:
        """A column in SQL, quoted."""
        ...

    def types(self) -> dict[str, pa.DataType]:
        """As ``sorted_rows`` gives each column, or near it: a text may be a large one."""
        ...

    def count(self) -> int:
        """How many rows it has."""
        ...

    def rows(self) -> pa.Table:
        """All of them, in memory."""
        ...

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
        """See ``sorted_rows``."""
        ...

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
        """Of the rows of ``sorted_rows``, by ``part``: how many, and the sum of ``value``; both SQL over ``columns``."""
        ...


class TableStore(Protocol):
    """Where tenants' tables lie, read without Spark, each by its place."""

    def load(self, place: WarehouseTable) -> StoredTable | None:
        """None before the sink has made it."""
        ...

    def progress(self, tables: Sequence[TenantTable]) -> pa.Table:
        """What the newest commits of a tenant's tables say of themselves (``PROGRESS_SCHEMA``).

        Raises:
            QueryFailed: this warehouse's commits do not say it.
        """
        ...


class Warehouse(TableStore, Protocol):
    """One whose tables can be listed."""

    def tables(self) -> tuple[TenantTable, ...]:
        """Every table of every tenant."""
        ...


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """See ``StoredTable``."""

    table: Table

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.table.schema().fields)

    @property
    def sql_dialect(self) -> SqlDialect:
        return SqlDialect.DUCKDB

    def sql_name(self, column: str) -> str:
        return quoted(column)

    def types(self) -> dict[str, pa.DataType]:
        return {field.name: text_of(field.type) for field in schema_to_pyarrow(self.table.schema())}

    def count(self) -> int:
        return self.table.scan().count()

    def rows(self) -> pa.Table:
        return with_texts(self.table.scan().to_arrow().to_reader()).read_all()

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
        return sorted_rows(
            self.table,
            columns,
            key,
            latest_by=latest_by,
            where=where,
            among=among,
            only=only,
            temporary_dir=temporary_dir,
        )

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
        scanned = _scanned(self.table, columns, latest_by, where, among=None, only=only)
        return sums_of(
            scanned, columns, key, part=part, value=value, latest_by=latest_by, only=only, temporary_dir=temporary_dir
        )


class IcebergTables:
    """The tables of a catalog (``TableStore``)."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def load(self, place: WarehouseTable) -> StoredTable | None:
        table = load_table(self._catalog, place)
        return None if table is None else IcebergTable(table)

    def progress(self, tables: Sequence[TenantTable]) -> pa.Table:
        rows = []
        for each in tables:
            if (table := load_table(self._catalog, each.place)) is not None:
                named = {"table": str(each.table_id), "source": each.source}
                rows += [named | reached for reached in iceberg_progress(table)]
        return progress_table(rows)


class IcebergWarehouse(IcebergTables):
    """Those of an embedded stack (``Warehouse``): a catalog in a file of SQLite."""

    def __init__(self, catalog_file: Path, folder: Path) -> None:
        """Raises InvalidSettings where nothing was ever written."""
        catalog = open_catalog(catalog_file, folder)
        super().__init__(catalog)
        self._list = functools.partial(tenant_tables, catalog_file, catalog)

    def tables(self) -> tuple[TenantTable, ...]:
        return self._list()


def open_catalog(catalog_file: Path, folder: Path) -> SqlCatalog:
    """The catalog in ``catalog_file``, whose tables lie in ``folder``.

    Raises:
        InvalidSettings: nothing was ever written there.
    """
    if not _places(catalog_file):
        raise InvalidSettings(
            str(catalog_file),
            ["there is no table yet: the stack has not written any row, or --home names another folder"],
        )
    return SqlCatalog(
        CATALOG,
        uri=f"sqlite:///{catalog_file}",
        warehouse=folder.as_uri(),
        init_catalog_tables="false",  # they are there, and a reader must not write
    )


def tenant_tables(catalog_file: Path, catalog: SqlCatalog) -> tuple[TenantTable, ...]:
    """Every table of every tenant, by the sink's notes in its properties."""
    found = []
    for place in _places(catalog_file):
        table = load_table(catalog, place)
        if table is None or SOURCE_PROPERTY not in table.properties:
            continue
        database, _, name = table.properties[TABLE_PROPERTY].partition(".")
        table_id = TableId(database=database, table=name)
        found.append(TenantTable(place.namespace[0], table.properties[SOURCE_PROPERTY], table_id, place))
    return tuple(sorted(found, key=lambda table: (table.tenant, table.names[2])))


def load_table(catalog: Catalog, place: WarehouseTable) -> Table | None:
    """The Iceberg table as it is now; None before the sink has made it.

    Raises:
        VariantsUnreadable: it has VARIANT columns, and this catalog's cannot be read.
    """
    try:
        return catalog.load_table(place.identifier)
    except NoSuchTableError:
        return None
    except (ValidationError, UnreadableMetadata) as error:
        if not has_variants(error):
            raise
        return load_with_parts(catalog, place)


def _places(catalog_file: Path) -> tuple[WarehouseTable, ...]:
    """The catalog's own list: pyiceberg's walk over namespaces wants a table that Spark makes later than others."""
    if not catalog_file.exists():
        return ()
    with contextlib.closing(sqlite3.connect(f"{catalog_file.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            rows = connection.execute(
                "SELECT table_namespace, table_name FROM iceberg_tables WHERE catalog_name = ?", (CATALOG,)
            ).fetchall()
        except sqlite3.OperationalError:  # the catalog is being made at this moment
            return ()
    return tuple(WarehouseTable(namespace=tuple(namespace.split(".")), name=name) for namespace, name in rows)


def tables_of(tables: Sequence[TenantTable], tenant: str) -> tuple[TenantTable, ...]:
    """Those of ``tenant``.

    Raises:
        InvalidSettings: there is none; the message names the tenants that have some.
    """
    found = tuple(table for table in tables if table.tenant == tenant)
    if not found:
        known = sorted({table.tenant for table in tables})
        raise InvalidSettings(f"tenant {tenant}", [f"has no table in the warehouse; {nearest(tenant, known)}"])
    return found


def run_query(warehouse: TableStore, tables: Sequence[TenantTable], sql: str) -> pa.Table:
    """The answer of ``sql`` over ``tables``, which it calls ``orders``, ``shop.orders`` or ``"source.shop".orders``.

    ``_headwater_progress`` has their commits' properties. The tables that the statement mentions are read whole
    into memory. Times with a zone are shown in UTC. Names that differ in case alone are one to DuckDB: each is meant by its own
    spelling in quotes.

    Raises:
        QueryFailed: the statement is wrong, is no query, or names a table that is not there.
    """
    own_names = _distinct_names(tables)
    with _in_memory() as connection:
        for table in tables:
            if table.table_id.table.casefold() in sql.casefold():
                _register(connection, warehouse, table, tables, own_names)
        sql = _QUOTED.sub(lambda found: _renamed(found[0], own_names), sql)
        if PROGRESS_VIEW in sql.casefold():
            connection.register(PROGRESS_VIEW, without_zones(warehouse.progress(tables)))
        try:
            # From here on it reads the registered tables, and no file, address or variable of this process.
            connection.execute("SET python_enable_replacements = false")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            statement = _the_query(connection.extract_statements(sql))
            return connection.sql(statement).to_arrow_table()
        except duckdb.Error as error:
            known = ", ".join(sorted(str(table.table_id) for table in tables))
            hint = "; write names that differ in their case alone in quotes" if own_names else ""
            raise QueryFailed(f"{str(error).strip()}\n(tables of this tenant: {known}{hint})") from error


_QUOTED: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
"""A text, or a name in quotes."""


def _distinct_names(tables: Sequence[TenantTable]) -> dict[str, str]:
    """Names for DuckDB of those that it would take for one, by their spelling."""
    spelled: dict[tuple[bool, str], set[str]] = {}
    for table in tables:
        database, name = table.table_id.database, table.table_id.table
        spelled.setdefault((True, name.casefold()), set()).add(name)
        for schema in (database, f"{table.source}.{database}"):
            spelled.setdefault((False, schema.casefold()), set()).add(schema)
    return {
        name: f"{name} ({nth})"
        for names in spelled.values()
        if len(names) > 1
        for nth, name in enumerate(sorted(names), start=1)
    }


def _renamed(token: str, names: Mapping[str, str]) -> str:
    name = token[1:-1].replace('""', '"')
    return quoted(names[name]) if token.startswith('"') and name in names else token


def _the_query(statements: Sequence[duckdb.Statement]) -> duckdb.Statement:
    """The one statement, if it only reads.

    A result is no sign of a query: DuckDB 2 answers a ``CREATE`` with one too. By their type ``WITH``, ``FROM``, ``VALUES``,
    ``DESCRIBE`` and ``SUMMARIZE`` are SELECT; EXPLAIN is not allowed, because ``EXPLAIN ANALYZE COPY`` would write a file.
    """
    if len(statements) != 1:
        raise QueryFailed(f"one statement is wanted, here are {len(statements)}: write one SELECT")
    if statements[0].type is not duckdb.StatementType.SELECT:
        raise QueryFailed(f"{statements[0].type.name} is no query: the warehouse is read only, write a SELECT")
    return statements[0]


def _register(
    connection: duckdb.DuckDBPyConnection,
    warehouse: TableStore,
    table: TenantTable,
    tables: Sequence[TenantTable],
    own_names: Mapping[str, str],
) -> None:
    stored = warehouse.load(table.place)
    if stored is None:
        return
    rows = f"rows of table {tables.index(table)}"
    connection.register(rows, without_zones(stored.rows()))
    name = table.table_id.table
    schemas = [f"{table.source}.{table.table_id.database}"]
    if _count(tables, lambda other: other.table_id == table.table_id) == 1:
        schemas.append(table.table_id.database)
    if _count(tables, lambda other: other.table_id.table == name) == 1:
        schemas.append("main")
    for schema in (own_names.get(schema, schema) for schema in schemas):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        view = f"{quoted(schema)}.{quoted(own_names.get(name, name))}"
        connection.execute(f"CREATE VIEW {view} AS SELECT * FROM {quoted(rows)}")


def _count(tables: Sequence[TenantTable], is_meant: Callable[[TenantTable], bool]) -> int:
    return sum(1 for table in tables if is_meant(table))


DUCKDB_DIGITS: Final = 38
"""A number of more is no number there."""


def for_duckdb(rows: pa.Table) -> pa.Table:
    """``rows`` with numbers of more digits than DuckDB's as text."""
    fields = [field.with_type(pa.string()) if pa.types.is_decimal256(field.type) else field for field in rows.schema]
    return rows.cast(pa.schema(fields))


def named_table(name: str, source: str, source_table: str) -> TenantTable:
    """The table whose place prints as ``name``, as a warehouse's own list has it beside the source's names."""
    levels = name.split(".")
    database, _, table = source_table.partition(".")
    place = WarehouseTable(namespace=tuple(levels[:-1]), name=levels[-1])
    return TenantTable(levels[0], source, TableId(database=database, table=table), place)


def without_zones(rows: pa.Table) -> pa.Table:
    """``rows`` with each time of a zone as plain UTC: DuckDB knows zones only with an extension that it downloads."""
    return rows.cast(_schema_without_zones(rows.schema))


def _schema_without_zones(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        field.with_type(pa.timestamp(field.type.unit)) if pa.types.is_timestamp(field.type) and field.type.tz else field
        for field in schema
    )


def sorted_rows(
    table: Table,
    columns: Sequence[str],
    key: Sequence[str],
    *,
    latest_by: tuple[str, str] | None = None,
    where: str | None = None,
    among: tuple[str, Collection[int | str]] | None = None,
    only: KeyCondition | None = None,
    temporary_dir: Path,
) -> Iterator[pa.RecordBatch]:
    """The rows of an Iceberg table in the order of ``key``, text by code point; memory stays within SORT_MEMORY.

    ``latest_by``: names of the order and the operation column of a table that holds every change; only the newest row
    of each key comes then, and none where that is a delete. ``where``: only such rows; words that SQL and pyiceberg share.
    ``among``: only rows where a column has one of these values, and perhaps others. ``only``: only rows with such keys.
    """
    scanned = _scanned(table, columns, latest_by, where, among=among, only=only)
    yield from sorted_batches(scanned, columns, key, latest_by=latest_by, only=only, temporary_dir=temporary_dir)


def _scanned(
    table: Table,
    columns: Sequence[str],
    latest_by: tuple[str, str] | None,
    where: str | None,
    *,
    among: tuple[str, Collection[int | str]] | None,
    only: KeyCondition | None,
) -> pa.RecordBatchReader:
    chosen: BooleanExpression = parse(where) if where else ALWAYS_TRUE
    if among is not None and _can_choose(table, *among):
        chosen = And(chosen, In(among[0], among[1]))  # type: ignore[call-arg,arg-type]
    for each in few_spans(only):
        if (number := _number_of(table, each.column)) is not None:
            chosen = And(chosen, functools.reduce(Or, (_in_span(each.column, *span, number) for span in each.spans)))
    for text in () if only is None else only.texts:
        if isinstance(table.schema().find_field(text.column).field_type, StringType):
            low = GreaterThanOrEqual(text.column, text.low)  # type: ignore[call-arg,arg-type]
            chosen = And(chosen, low, LessThanOrEqual(text.column, text.high))  # type: ignore[call-arg,arg-type]
    return with_texts(
        table.scan(row_filter=chosen, selected_fields=(*columns, *(latest_by or ()))).to_arrow_batch_reader()
    )


def sorted_batches(
    unsorted: pa.RecordBatchReader,
    columns: Sequence[str],
    key: Sequence[str],
    *,
    latest_by: tuple[str, str] | None,
    only: KeyCondition | None = None,
    temporary_dir: Path,
) -> Iterator[pa.RecordBatch]:
    """``sorted_rows`` of a reader's rows: ``columns``, and those of ``latest_by`` after them."""
    with _sorting(unsorted, temporary_dir) as connection:
        statement = _current_rows(columns, key, latest_by, only)
        if key:
            statement += f" ORDER BY {_listed(key)}"
        yield from connection.sql(statement).to_arrow_reader(SORTED_BATCH_ROWS)


def sums_of(
    unsorted: pa.RecordBatchReader,
    columns: Sequence[str],
    key: Sequence[str],
    *,
    part: str,
    value: str,
    latest_by: tuple[str, str] | None,
    only: KeyCondition | None,
    temporary_dir: Path,
) -> list[tuple[Any, int, int | None]]:
    """``StoredTable.sums`` of a reader's rows: ``columns``, and those of ``latest_by`` after them."""
    zoneless = unsorted.cast(_schema_without_zones(unsorted.schema))
    with _sorting(zoneless, temporary_dir) as connection:
        current = _current_rows(columns, key, latest_by, only)
        return connection.sql(sums_statement(f"({current})", part, value)).fetchall()


def sums_statement(current: str, part: str, value: str) -> str:
    """``StoredTable.sums`` in the SQL of every warehouse. ``current``: the text after FROM that gives the rows."""
    valued = f"SELECT {part} AS {PART_COLUMN}, {value} AS {VALUE_COLUMN} FROM {current}"
    return f"SELECT {PART_COLUMN}, count(*), sum({VALUE_COLUMN}) FROM ({valued}) AS valued GROUP BY {PART_COLUMN}"


@contextlib.contextmanager
def _sorting(unsorted: pa.RecordBatchReader, temporary_dir: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that knows a reader as ``unsorted``."""
    with _in_memory() as connection:
        connection.execute(f"SET memory_limit = '{SORT_MEMORY}'")
        connection.execute(f"SET threads = {SORT_THREADS}")
        connection.execute("SET temp_directory = " + "'" + str(temporary_dir).replace("'", "''") + "'")
        connection.register("unsorted", unsorted)
        yield connection


def _current_rows(
    columns: Sequence[str], key: Sequence[str], latest_by: tuple[str, str] | None, only: KeyCondition | None
) -> str:
    statement = f"SELECT {_listed((*columns, *(latest_by or ())))} FROM unsorted"
    if only is not None:
        statement += f" WHERE {only.sql}"
    if latest_by is not None:
        order, operation = (quoted(name) for name in latest_by)
        newest = f"row_number() OVER (PARTITION BY {_listed(key)} ORDER BY {order} DESC) = 1"
        statement = f"SELECT * FROM ({statement} QUALIFY {newest}) WHERE {operation} <> 'd'"
    return statement


def _listed(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def _in_span(column: str, low: int | None, high: int | None, number: Callable[[int], object]) -> BooleanExpression:
    to: BooleanExpression = ALWAYS_TRUE if high is None else LessThanOrEqual(column, number(high))  # type: ignore[call-arg,arg-type]
    if low is None:
        return ALWAYS_TRUE if high is None else Or(IsNull(column), to)  # type: ignore[call-arg,arg-type]
    return And(GreaterThanOrEqual(column, number(low)), to)  # type: ignore[call-arg,arg-type]


def _number_of(table: Table, column: str) -> Callable[[int], object] | None:
    """A whole number in the form that pyiceberg compares with the column; None: it cannot, all rows are read."""
    match table.schema().find_field(column).field_type:
        case IntegerType() | LongType():
            return int
        case DecimalType(scale=0):
            return Decimal
        case _:
            return None


def _can_choose(table: Table, column: str, values: Collection[int | str]) -> bool:
    """pyiceberg can compare the column with the values; where it cannot, all rows are read."""
    kind = table.schema().find_field(column).field_type
    if isinstance(kind, StringType):
        return all(isinstance(value, str) for value in values)
    return isinstance(kind, IntegerType | LongType) and all(isinstance(value, int) for value in values)


def quoted(name: str) -> str:
    """A name as DuckDB's SQL may hold it."""
    return '"' + name.replace('"', '""') + '"'


@contextlib.contextmanager
def _in_memory() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(":memory:")
    try:
        yield connection
    finally:
        connection.close()


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """The rows of a batch as Python values."""
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)
