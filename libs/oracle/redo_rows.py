"""Changes of one table version: SQL_REDO as the JSON of each column, before and after.

``redo`` (compiled) reads the statements that LogMiner usually writes. ``PlainRows`` reads any other, and says why one cannot
be read; it is the reference that the compiled reading is held to.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import orjson

from libs.events.batch import OP_CREATE, OP_DELETE, OP_UPDATE
from libs.oracle import redo
from libs.oracle.column_type import OracleType, parse_column_type
from libs.oracle.logical import is_large
from libs.oracle.printed_values import redo_reader
from libs.oracle.redo import RedoDecoder
from libs.oracle.redo_sql import RowOperation, read_statement
from libs.oracle.redo_values import NotLogged, RedoValue, UnreadableRedo, read_value
from libs.oracle.values import UnwritableValue, json_writer
from libs.types.table import Column, TableSchema
from libs.types.value import LogicalKind


class RedoRow(NamedTuple):
    """A row of V$LOGMNR_CONTENTS that changes a captured table."""

    sql: bytes
    """SQL_REDO whole, in UTF-8."""
    scn: int
    time_us: int
    thread: int
    ssn: int
    rs_id: bytes
    """Without blanks at its ends; empty: none."""
    row_id: bytes
    """Empty: none."""
    ordinal: int
    """Place among the changes of its transaction that are left, from 1."""


class RowCells(NamedTuple):
    """A change: JSON of each column of the schema, in its order."""

    op: int
    """``OP_CREATE``, ``OP_UPDATE`` or ``OP_DELETE`` of ``libs.events.batch``."""
    before: list[bytes] | None
    """None: an INSERT."""
    after: list[bytes] | None
    """None: a DELETE."""


class UnloggedValue(ValueError):
    """The log lacks the value of a column; it is not NULL. The caller reads the row again at the source, or it fails."""

    def __init__(self, column: str) -> None:
        super().__init__(f"the log lacks the value of column {column}")
        self.column = column


class LostValue(ValueError):
    """The log lacks the value of a column, and the source no longer has it. The message has the reason and the remedy."""


class ColumnReading(NamedTuple):
    """How the compiled decoder reads one column."""

    kind: int
    """One of ``redo``'s."""
    most_digits: int
    """Of an integer that is taken as it is printed."""
    scale: int
    unit_ns: int
    """Of a moment."""
    unavailable: bytes | None
    """JSON of a value that the log lacks. None: the row fails."""
    is_large: bool
    """An INSERT that does not name the column lacks its value; another column's is NULL then."""


def redo_decoder(schema: TableSchema, *, unavailable: str | None = None) -> RedoDecoder:
    """The decoder of a table version's rows.

    ``unavailable`` stands for a value that the log lacks; None: such a row fails. WHERE clauses never have a large
    column's value.
    """
    rows = PlainRows(schema, unavailable=unavailable)
    places = {column.name: place for place, column in enumerate(schema.columns)}
    return RedoDecoder(
        [_reading(column, rows.unavailable[column.name], column.name in rows.large) for column in schema.columns],
        [orjson.dumps(column.name) for column in schema.columns],
        [column.name.encode() for column in schema.columns],
        [places[name] for name in schema.key],
        rows,
    )


def failure_reason(schema: TableSchema, column: str | None, error: Exception) -> str:
    """Why a row cannot be delivered, and the remedy, in words that hold no value. ``column``: ``RedoDecoder.column``."""
    place = "" if column is None else f"column {column}: "
    match error:
        case UnloggedValue():
            table = f'"{schema.table_id.database}"."{schema.table_id.table}"'
            return (
                f"{error}; run ALTER TABLE {table} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS at the source, or name a "
                "values.unavailable_placeholder"
            )
        case UnwritableValue() | LostValue():
            return f"{place}{error}"
        case UnicodeDecodeError():
            return "its SQL_REDO is no UTF-8 text; repair the row at the source, or exclude the table"
        case _:
            return f"{place}its SQL_REDO has no form that is known ({error}); exclude the table, and report the form"


_NOTHING: Final[Mapping[str, bytes]] = {}


class PlainRows:
    """Reads any statement of one table version, in plain Python."""

    def __init__(self, schema: TableSchema, *, unavailable: str | None) -> None:
        """Raises UnknownColumnType: a column is of a type that no reading knows."""
        self._schema = schema
        self._columns = {column.name: column for column in schema.columns}
        self._names_of_numbers = {column.number: column.name for column in schema.columns if column.number}
        self._last_number = max(self._names_of_numbers, default=0)
        self._readers = {column.name: redo_reader(column) for column in schema.columns}
        self._writers = {column.name: json_writer(column) for column in schema.columns}
        placeholder = None if unavailable is None else orjson.dumps(unavailable)
        self.unavailable = {column: None if column in schema.key else placeholder for column in self._columns}
        """JSON by column; None: a row that lacks it fails."""
        self.large = {column.name for column in schema.columns if is_large(parse_column_type(column.source_type))}
        """Columns whose values may come in rows of their own."""
        self.column: str | None = None
        """After an error: the column where it happened; None: the statement itself is wrong."""

    def read(self, sql: bytes) -> RowCells:
        """The change of a statement.

        Raises:
            UnreadableRedo, UnwritableValue, UnicodeDecodeError: it cannot be delivered (``failure_reason``).
            UnloggedValue: a column's value is to be read again at the source.
        """
        self.column = None
        statement = read_statement(sql.decode())
        return self.cells(_OPS[statement.operation], statement.before, statement.after)

    def named(self, values: Mapping[str, RedoValue]) -> dict[str, RedoValue]:
        """Values by the names of the schema, where the log may have numbers. Raises as ``read``."""
        self.column = None
        found = {name: value for printed, value in values.items() if (name := self._name(printed)) is not None}
        self.column = None
        return found

    def cells(
        self,
        op: int,
        before: Mapping[str, RedoValue],
        after: Mapping[str, RedoValue],
        read_before: Mapping[str, bytes] = _NOTHING,
        read_after: Mapping[str, bytes] = _NOTHING,
    ) -> RowCells:
        """A change whose values are at hand, by the names that the log has. Raises as ``read``.

        ``read_before`` and ``read_after``: JSON of columns that ``before`` and ``after`` lack, read at the source.
        """
        self.column = None
        new = {**self._cells(after), **read_after}
        if op == OP_CREATE:
            return RowCells(op, None, [new.get(column) or self._not_inserted(column) for column in self._columns])
        known = {**self._cells(before), **read_before}
        old = [known.get(column) or self._missing(column) for column in self._columns]
        if op == OP_DELETE:
            return RowCells(op, old, None)
        return RowCells(op, old, [new.get(name, cell) for name, cell in zip(self._columns, old, strict=True)])

    def cell(self, column: str, value: RedoValue) -> bytes:
        """JSON of one value. Raises as ``read``."""
        if isinstance(value, NotLogged):
            return self._missing(column)
        return self._writers[column](self._readers[column](value))

    def convert(self, place: int, text: bytes) -> bytes:
        """JSON of a value as SQL_REDO has it, of the column at a place. Raises as ``read``."""
        printed = text.decode()
        value, end = read_value(printed, 0)
        if end != len(printed):
            raise UnreadableRedo("the end of a value", end)
        return self.cell(self._schema.columns[place].name, value)

    def _cells(self, values: Mapping[str, RedoValue]) -> dict[str, bytes]:
        cells: dict[str, bytes] = {}
        for printed, value in values.items():
            self.column = self._name(printed)
            if self.column is not None:
                cells[self.column] = self.cell(self.column, value)
        return cells

    def _name(self, printed: str) -> str | None:
        """The column's; None: one that no SELECT shows.

        Rows of another version have numbers (INTCOL#), which count unused, virtual and hidden columns too.
        """
        if printed in self._columns:
            return printed
        if (numbered := _NUMBERED.fullmatch(printed)) and int(numbered[1]) <= self._last_number:
            return self._names_of_numbers.get(int(numbered[1]))
        if _HIDDEN.fullmatch(printed):
            return None
        self.column = printed
        raise UnreadableRedo(f"a column of {self._schema.table_id} (version {self._schema.version})", 0)

    def _not_inserted(self, column: str) -> bytes:
        return self._missing(column) if column in self.large else b"null"

    def _missing(self, column: str) -> bytes:
        if (cell := self.unavailable[column]) is None:
            self.column = column
            raise UnloggedValue(column)
        return cell


_OPS: Final = {RowOperation.INSERT: OP_CREATE, RowOperation.UPDATE: OP_UPDATE, RowOperation.DELETE: OP_DELETE}
_NUMBERED: Final = re.compile(r"COL (\d+)", re.ASCII)
_HIDDEN: Final = re.compile(r"SYS_N?C\d+\S*\$|ORA_ARCHIVE_STATE")
"""Columns of indexes over expressions, columns that are SET UNUSED, and the state of in-database archiving."""


_INTEGER_DIGITS: Final = {LogicalKind.INT8: 2, LogicalKind.INT16: 4, LogicalKind.INT32: 9, LogicalKind.INT64: 18}
_UNITS_NS: Final = {
    LogicalKind.TIMESTAMP_MS: 1_000_000,
    LogicalKind.CONNECT_TIMESTAMP: 1_000_000,
    LogicalKind.TIMESTAMP_US: 1_000,
    LogicalKind.TIMESTAMP_NS: 1,
}
_TEXTS: Final = frozenset(
    {"CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2", "CLOB", "NCLOB", "LONG", "ROWID", "UROWID", "XMLTYPE"}
)
_MOST_SCALE: Final = 18


def _reading(column: Column, unavailable: bytes | None, is_large: bool) -> ColumnReading:
    """Compiled where the form is a common one."""
    kind, oracle_type = _compiled_kind(column, parse_column_type(column.source_type)), column.logical_type
    return ColumnReading(
        kind,
        _INTEGER_DIGITS.get(oracle_type.kind, 0),
        oracle_type.scale if kind == redo.DECIMAL else 0,
        _UNITS_NS.get(oracle_type.kind, 1),
        unavailable,
        is_large,
    )


def _compiled_kind(column: Column, oracle_type: OracleType) -> int:
    match column.logical_type.kind:
        case kind if kind in _INTEGER_DIGITS:
            return redo.INTEGER
        case LogicalKind.DECIMAL if 0 <= column.logical_type.scale <= _MOST_SCALE:
            return redo.DECIMAL
        case LogicalKind.VARIABLE_SCALE_DECIMAL:
            return redo.OWN_SCALE
        case kind if kind in _UNITS_NS:
            return redo.MOMENT
        case LogicalKind.BYTES | LogicalKind.BASE64:
            return redo.BINARY
        case _ if oracle_type.name in _TEXTS:
            return redo.TEXT
        case _:
            return redo.CONVERTED
