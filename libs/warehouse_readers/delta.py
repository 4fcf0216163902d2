"""Delta as a tenant's warehouse, read by ``headwater query`` and ``check``: by delta-rs, without Spark or a running stack.

It reads deletion vectors and columns that are mapped by name, but no table with the feature ``typeWidening``: the sink writes a
table again whose column has widened (``rewrites_widened``), and such a table is refused here by name.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from deltalake import DeltaTable as Table
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from libs.errors import HeadwaterError, InvalidSettings
from libs.types.table import TableId
from libs.types.warehouse import BATCH_PROPERTY, SOURCE_PROPERTY, TABLE_PROPERTY, WarehouseTable
from libs.warehouse_readers.table_progress import progress_rows, progress_table
from libs.warehouse_readers.variants import with_texts
from libs.warehouse_readers.warehouse import (
    KeyCondition,
    KeySpans,
    SqlDialect,
    StoredTable,
    TenantTable,
    few_spans,
    quoted,
    sorted_batches,
    spans_sql,
    sums_of,
)

_LOG_FOLDER: Final = "_delta_log"
_NEWEST_VERSIONS: Final = 50
_SAID: Final = msgspec.json.Decoder(dict[str, str])
_INTEGERS: Final = ("byte", "short", "integer", "long")
_WHOLE_DECIMAL: Final = re.compile(r"decimal\(\d+,0\)")
_EXACT: Final = 2**53
"""delta-rs knows the least and greatest decimals of a file as doubles, and takes them for its rows' where they are the same."""
_LEVELS: Final = "*/*/*/*"
"""Tenant, source, database, table."""


class UnreadableTable(HeadwaterError):
    """delta-rs lacks a feature that the table uses; the message names it, with the remedy."""


class DeltaTables:
    """The tables under a folder, or a URI of an object store (``libs.warehouse_readers.warehouse.TableStore``)."""

    def __init__(self, root: str) -> None:
        self._root = root

    def load(self, place: WarehouseTable) -> StoredTable | None:
        table = self._table(place)
        return None if table is None else DeltaTable(place, table)

    def progress(self, tables: Sequence[TenantTable]) -> pa.Table:
        rows = []
        for each in tables:
            if (table := self._table(each.place)) is not None:
                named = {"table": str(each.table_id), "source": each.source}
                rows += [named | reached for reached in delta_progress(table)]
        return progress_table(rows)

    def _table(self, place: WarehouseTable) -> Table | None:
        try:
            return Table("/".join((self._root.rstrip("/"), *place.identifier)))
        except TableNotFoundError:  # being made at this moment
            return None


class DeltaWarehouse(DeltaTables):
    """Those of an embedded stack (``libs.warehouse_readers.warehouse.Warehouse``): a folder."""

    def __init__(self, folder: Path) -> None:
        """Raises InvalidSettings where nothing was ever written."""
        super().__init__(str(folder))
        self._folder = folder
        if not self._places():
            raise InvalidSettings(
                self._root,
                ["there is no table yet: the stack has not written any row, or --home names another folder"],
            )

    def tables(self) -> tuple[TenantTable, ...]:
        """By the sink's notes in their properties."""
        found = []
        for place in self._places():
            table = self._table(place)
            noted = {} if table is None else table.metadata().configuration
            if SOURCE_PROPERTY in noted:
                database, _, name = noted[TABLE_PROPERTY].partition(".")
                table_id = TableId(database=database, table=name)
                found.append(TenantTable(place.namespace[0], noted[SOURCE_PROPERTY], table_id, place))
        return tuple(sorted(found, key=lambda table: (table.tenant, table.names[2])))

    def _places(self) -> list[WarehouseTable]:
        logs = sorted(self._folder.glob(f"{_LEVELS}/{_LOG_FOLDER}"))
        return [WarehouseTable(namespace=log.parts[-5:-2], name=log.parts[-2]) for log in logs]


def delta_progress(table: Table) -> Iterator[dict[str, Any]]:
    """By the newest version that took a batch in; nothing where there is none, or where the log holds it no more."""
    for versions in (_NEWEST_VERSIONS, None):  # all of them only where it comes to that
        for entry in table.history(versions):
            try:
                said = _SAID.decode(entry.get("userMetadata") or "{}")
            except msgspec.DecodeError:  # somebody else's
                continue
            if BATCH_PROPERTY in said:
                yield from progress_rows(said, entry["version"], entry["timestamp"])
                return


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """See ``StoredTable``; as it was when it was loaded."""

    place: WarehouseTable
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
        schema = self._read(f"SELECT {self._listed(self.columns)} FROM t LIMIT 0").schema
        return {field.name: field.type for field in schema}

    def count(self) -> int:
        return int(self._read("SELECT count(*) AS rows FROM t").read_all()["rows"][0].as_py())

    def rows(self) -> pa.Table:
        return self._read(f"SELECT {self._listed(self.columns)} FROM t").read_all()

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
        """See ``libs.warehouse_readers.warehouse.sorted_rows``."""
        scanned = self._scanned(columns, latest_by, where, only, among)
        yield from sorted_batches(scanned, columns, key, latest_by=latest_by, only=only, temporary_dir=temporary_dir)

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
        scanned = self._scanned(columns, latest_by, where, only)
        return sums_of(
            scanned, columns, key, part=part, value=value, latest_by=latest_by, only=only, temporary_dir=temporary_dir
        )

    def _scanned(
        self,
        columns: Sequence[str],
        latest_by: tuple[str, str] | None,
        where: str | None,
        only: KeyCondition | None,
        among: tuple[str, Collection[int | str]] | None = None,
    ) -> pa.RecordBatchReader:
        """The parts of ``only`` and ``among`` that leave out files and row groups, by their least and greatest values."""
        types = {field.name: str(field.type.type) for field in self.table.schema().fields}
        conditions = [] if where is None else [f"({where})"]
        if among is not None:
            conditions += _is_one_of(types[among[0]], *among)
        for each in few_spans(only):
            conditions += _lies_in(types[each.column], each)
        for text in () if only is None else only.texts:
            conditions += _lies_between(types[text.column], text.column, text.low, text.high)
        chosen = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return self._read(f"SELECT {self._listed((*columns, *(latest_by or ())))} FROM t{chosen}")

    def _listed(self, names: Sequence[str]) -> str:
        return ", ".join(quoted(name) for name in names)

    def _read(self, sql: str) -> pa.RecordBatchReader:
        """The answer, of the types that Iceberg's reader gives."""
        try:
            answer: Any = QueryBuilder().register("t", self.table).execute(sql)
            reader = pa.RecordBatchReader.from_stream(answer)
        except DeltaError as error:
            features = ", ".join(self.table.protocol().reader_features or ())
            raise UnreadableTable(
                f"{self.place}: delta-rs cannot read it, which uses {features or 'no table feature'}; a table that was widened "
                "is written again by the sink with its next batch, unless warehouses.delta.rewrites_widened is false: then ask "
                "Spark"
            ) from error
        reader = with_texts(reader)
        return reader.cast(pa.schema([_plain(field) for field in reader.schema]))


def _lies_in(delta_type: str, spans: KeySpans) -> Iterator[str]:
    """True of rows whose column lies in ``spans``, and perhaps of others; nothing: of all."""
    is_exact = all(high is not None and max(abs(low or 0), abs(high)) <= _EXACT for low, high in spans.spans)
    if delta_type in _INTEGERS or (is_exact and _WHOLE_DECIMAL.fullmatch(delta_type)):
        yield spans_sql(quoted(spans.column), spans.spans)


def _is_one_of(delta_type: str, name: str, values: Collection[int | str]) -> Iterator[str]:
    """The same of rows whose column has one of ``values``."""
    numbers = [value for value in values if isinstance(value, int)]
    texts = [value for value in values if isinstance(value, str)]
    if numbers and not texts:
        for each in few_spans(KeyCondition("", (KeySpans(name, ((min(numbers), max(numbers)),)),))):
            yield from _lies_in(delta_type, each)
    if texts and not numbers:
        yield from _lies_between(delta_type, name, min(texts), max(texts))


def _lies_between(delta_type: str, name: str, *bounds: str) -> Iterator[str]:
    """The same of rows whose column lies between two texts."""
    if delta_type == "string":
        low, high = ("'" + text.replace("'", "''") + "'" for text in bounds)
        yield f"{quoted(name)} BETWEEN {low} AND {high}"


def _plain(field: pa.Field) -> pa.Field:
    """Without views, which are how delta-rs holds texts and bytes in memory."""
    if pa.types.is_string_view(field.type):
        return field.with_type(pa.large_string())
    if pa.types.is_binary_view(field.type):
        return field.with_type(pa.large_binary())
    return field
