"""ClickHouse as a tenant's warehouse, read by ``headwater query`` and ``check``: by its tables' comments."""

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from libs.clickhouse.connection import connect, errors_named
from libs.clickhouse.names import GONE_COLUMN, PROGRESS, database_name, literal, quoted
from libs.clickhouse.settings import ClickhouseWarehouse as Settings
from libs.clickhouse.tables import KnownTable, decoded, has_state, known_tables, stored_table
from libs.types.warehouse import OWN_SQL_TYPES, SOURCE_PROPERTY, TABLE_PROPERTY, WarehouseTable
from libs.warehouse_readers.table_progress import PROGRESS_SCHEMA, progress_table
from libs.warehouse_readers.warehouse import (
    DUCKDB_DIGITS,
    SORTED_BATCH_ROWS,
    KeyCondition,
    QueryFailed,
    SqlDialect,
    StoredTable,
    TenantTable,
    few_spans,
    for_duckdb,
    named_table,
    spans_sql,
    sums_statement,
)

_ARROW_TYPES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "ubigint": pa.uint64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")
# A cast of NULL is NULL; sorting and grouping go to the server's disk beyond that much memory.
_SETTINGS: Final[Mapping[str, Any]] = {
    "cast_keep_nullable": 1,
    "max_bytes_before_external_sort": 512_000_000,
    "max_bytes_before_external_group_by": 512_000_000,
    "max_block_size": SORTED_BATCH_ROWS,
}
# The answer is whole when it begins to come, so that none that is cut off is taken for all there is.
_WHOLE: Final = {"wait_end_of_query": 1}


class ClickhouseTables:
    """See ``libs.warehouse_readers.warehouse.Warehouse``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def tables(self) -> tuple[TenantTable, ...]:
        """Raises TransientError, AccessDenied or PipelineHalted, see ``libs.clickhouse.connection``."""
        with _reading(self._settings, "system.tables") as client:
            known = [(each.database, _named(each)) for each in known_tables(client)]
        # A copy that is being made with other columns lies elsewhere.
        found = [table for database, table in known if database == self._database(table.place)]
        return tuple(sorted(found, key=lambda table: (table.tenant, table.names[2])))

    def load(self, place: WarehouseTable) -> StoredTable | None:
        database = self._database(place)
        with _reading(self._settings, str(place)) as client:
            stored = stored_table(client, database, place.name)
        if stored is None:
            return None
        comment, names = stored
        noted = decoded(comment)
        if noted is None or noted.name != str(place):
            return None
        types = noted.types | {name: kind for name, kind in OWN_SQL_TYPES.items() if name in names}
        return ClickhouseTable(
            self._settings,
            quoted(database, place.name),
            {name: _arrow_type(types[name]) for name in names if name in types},
            is_final=GONE_COLUMN in names,
        )

    def progress(self, tables: Sequence[TenantTable]) -> pa.Table:
        columns = [name for name in PROGRESS_SCHEMA.names if name != "snapshot_id"]
        tenants = ", ".join(literal(name) for name in sorted({each.tenant for each in tables}))
        with _reading(self._settings, PROGRESS) as client:
            if not has_state(client):
                raise QueryFailed(f"{PROGRESS} is not there yet; the sink job makes it with its first batch")
            rows = client.query(
                f"SELECT {', '.join(map(quoted, columns))} FROM {PROGRESS} WHERE tenant IN ({tenants})",
                query_tz="UTC",
            ).result_rows
        return progress_table(dict(zip(columns, row, strict=True)) for row in rows)

    def _database(self, place: WarehouseTable) -> str:
        return database_name(self._settings.database, place)


@dataclass(frozen=True, slots=True)
class ClickhouseTable:
    """See ``libs.warehouse_readers.warehouse.StoredTable``."""

    settings: Settings
    place: str
    """Quoted."""
    known: dict[str, pa.DataType]
    """Of the columns, by the source's names."""
    is_final: bool
    """Of the rows of a key the newest counts: it is read with FINAL."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.known)

    @property
    def sql_dialect(self) -> SqlDialect:
        return SqlDialect.CLICKHOUSE

    def sql_name(self, column: str) -> str:
        return quoted(column)

    def types(self) -> dict[str, pa.DataType]:
        return dict(self.known)

    def count(self) -> int:
        with _reading(self.settings, self.place) as client:
            [[count]] = client.query(f"SELECT count() FROM {self._source}").result_rows
        return int(count)

    def rows(self) -> pa.Table:
        """Numbers of more digits than DuckDB's as text."""
        names = list(self.known)
        table = pa.Table.from_batches(self._batches(self._source, names, ""), self._schema(names))
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
        """See ``libs.warehouse_readers.warehouse.sorted_rows``; the server sorts, text by its bytes."""
        current = self._current_rows(key, latest_by, where, among=among, only=only)
        ordered = f" ORDER BY {', '.join(map(quoted, key))}" if key else ""
        yield from self._batches(current, [*columns, *(latest_by or ())], ordered)

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
        statement = sums_statement(current, part, value)
        with _reading(self.settings, self.place) as client:
            return [(part, count, total) for part, count, total in client.query(statement).result_rows]

    @property
    def _source(self) -> str:
        return f"{self.place} FINAL" if self.is_final else self.place

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
            # The table's own index knows nothing of an expression over a column.
            numbers = {name for name, kind in self.known.items() if pa.types.is_integer(kind)}
            conditions += [
                spans_sql(quoted(each.column), each.spans) for each in few_spans(only) if each.column in numbers
            ]
            conditions += [
                f"{quoted(each.column)} BETWEEN {literal(each.low)} AND {literal(each.high)}"
                for each in only.texts
                if pa.types.is_string(self.known[each.column])
            ]
        chosen = f"{self._source} WHERE {' AND '.join(conditions)}" if conditions else self._source
        if latest_by is None:
            return chosen
        order, operation = map(quoted, latest_by)
        keys = ", ".join(map(quoted, key))
        newest = f"SELECT * FROM {chosen} ORDER BY {keys}, {order} DESC LIMIT 1 BY {keys}"
        return f"({newest}) WHERE {operation} <> 'd'"

    def _is_one_of(self, name: str, values: Collection[int | str]) -> str | None:
        """None: a column of another type than the values."""
        kind = self.known[name]
        wanted = str if pa.types.is_string(kind) else int
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind)) or not all(
            isinstance(value, wanted) for value in values
        ):
            return None
        listed = ", ".join(literal(value) if isinstance(value, str) else str(value) for value in values)
        return f"{quoted(name)} IN ({listed})"

    def _schema(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([pa.field(name, self.known[name]) for name in names])

    def _batches(self, current: str, names: Sequence[str], ordered: str) -> Iterator[pa.RecordBatch]:
        schema = self._schema(names)
        statement = f"SELECT {', '.join(map(quoted, names))} FROM {current}{ordered}"
        # Of texts and bytes alike ClickHouse has strings; as bytes they come as they are.
        with (
            _reading(self.settings, self.place) as client,
            client.query_arrow_stream(statement, settings=_WHOLE, use_strings=False) as blocks,
        ):
            for block in blocks:
                columns = [column.cast(field.type) for column, field in zip(block.columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _arrow_type(own_type: str) -> pa.DataType:
    if number := _DECIMAL.fullmatch(own_type):
        digits, scale = int(number[1]), int(number[2])
        return pa.decimal128(digits, scale) if digits <= DUCKDB_DIGITS else pa.decimal256(digits, scale)
    return _ARROW_TYPES[own_type]


def _named(known: KnownTable) -> TenantTable:
    noted = known.noted
    return named_table(noted.name, noted.properties[SOURCE_PROPERTY], noted.properties[TABLE_PROPERTY])


@contextlib.contextmanager
def _reading(settings: Settings, subject: str) -> Iterator[Client]:
    client = connect(settings, application="headwater", query_settings=_SETTINGS)
    try:
        with errors_named(settings, subject):
            yield client
    finally:
        client.close()
