"""Rows of one version of a table as JSON: key, before and after, in the form of the other readers."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from libs.errors import UndecodableValue
from libs.events.batch import OP_CREATE, OP_DELETE, OP_KEY_CHANGE_CREATE, OP_KEY_CHANGE_DELETE, OP_UPDATE
from libs.events.envelope import json_text
from libs.oracle.column_type import parse_column_type
from libs.oracle.log_rows import Operation
from libs.oracle.logical import LARGE_TYPES
from libs.oracle.printed_values import redo_reader
from libs.oracle.redo_values import NOT_LOGGED, Expression, Quoted, RedoValue, text_of
from libs.oracle.values import json_writer
from libs.types.table import Column, TableSchema
from services.logminer_reader.row_changes import RowChange

_NULL: Final = b"null"


class RowEvent(NamedTuple):
    """One event of a row; images are JSON, ``null`` where there is none."""

    op: int
    """As ``libs.events.batch`` has them."""
    key: bytes
    """Empty: the table has no key."""
    before: bytes
    after: bytes


class UnreadableColumn(UndecodableValue):
    """A row's value cannot be read. Names its column; the row is treated by ``failure_handling``."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column = column


class TableRows:
    """Writes rows of one version of a table. ``unavailable`` stands for a value that the log lacks; None: such a row fails."""

    def __init__(self, schema: TableSchema, unavailable: str | None) -> None:
        self.schema = schema
        self._unavailable = None if unavailable is None else json_text(unavailable)
        self._columns = [column for column in schema.columns if not column.is_virtual]
        self._names = [json_text(column.name) for column in self._columns]
        self._readers = [redo_reader(column) for column in self._columns]
        self._writers = [json_writer(column) for column in self._columns]
        places = {column.name: place for place, column in enumerate(self._columns)}
        self._key = [places[name] for name in schema.key]
        self._names_of_numbers = {f"COL {column.number}": column.name for column in schema.columns}
        self._known = frozenset(column.name for column in schema.columns)
        self._last_number = max((column.number for column in schema.columns), default=0)

    def events(self, change: RowChange) -> list[RowEvent]:
        """A change as its events: two where the key changed.

        Raises:
            UnreadableColumn: a value has no form that is known, or the log lacks it.
        """
        if change.unreadable is not None:
            raise UnreadableColumn("", str(change.unreadable))
        match change.operation:
            case Operation.INSERT:
                cells = self._cells(change.after, is_insert=True)
                return [RowEvent(OP_CREATE, self._key_of(cells), _NULL, self._image(cells))]
            case Operation.DELETE:
                cells = self._cells(change.before)
                return [RowEvent(OP_DELETE, self._key_of(cells), self._image(cells), _NULL)]
            case Operation.UPDATE:
                return self._update(change)
        raise UnreadableColumn("", "the log holds the change, and not its values (UNSUPPORTED)")

    def _update(self, change: RowChange) -> list[RowEvent]:
        before = self._cells(change.before)
        after = self._cells({**change.before, **change.after})
        old_key, key = self._key_of(before), self._key_of(after)
        if old_key == key:
            return [RowEvent(OP_UPDATE, key, self._image(before), self._image(after))]
        return [
            RowEvent(OP_KEY_CHANGE_DELETE, old_key, self._image(before), _NULL),
            RowEvent(OP_KEY_CHANGE_CREATE, key, _NULL, self._image(after)),
        ]

    def _cells(self, values: Mapping[str, RedoValue], *, is_insert: bool = False) -> list[bytes]:
        cells: list[bytes] = []
        named = self._named(values)
        for place, column in enumerate(self._columns):
            lacking = NOT_LOGGED if not is_insert or _is_large(column) else None
            value = named.get(column.name, lacking)
            cells.append(_NULL if value is None else self._cell(place, column, value))
        return cells

    def _named(self, values: Mapping[str, RedoValue]) -> Mapping[str, RedoValue]:
        """Values by the names of this version. Under another version LogMiner numbers columns: ``COL 3``.

        Raises:
            UnreadableColumn: the log names a column that this version lacks.
        """
        if values.keys() <= self._known:
            return values
        named: dict[str, RedoValue] = {}
        for name, value in values.items():
            if name in self._known:
                named[name] = value
            elif name in self._names_of_numbers:
                named[self._names_of_numbers[name]] = value
            elif not self._is_hidden(name):
                raise UnreadableColumn(name, f"version {self.schema.version} of the table has no column {name}")
        return named

    def _is_hidden(self, name: str) -> bool:
        """Columns that Oracle keeps for itself: unused ones, and those of indexes over expressions."""
        number = name.removeprefix("COL ")
        is_gap = number != name and number.isdecimal() and int(number) <= self._last_number
        return is_gap or name.startswith(("SYS_NC", "SYS_C")) or name == "ORA_ARCHIVE_STATE"

    def _cell(self, place: int, column: Column, value: RedoValue) -> bytes:
        if value is NOT_LOGGED:
            if self._unavailable is None or place in self._key:
                raise UnreadableColumn(column.name, _lacking(self.schema, column.name))
            return self._unavailable
        try:
            return self._writers[place](self._readers[place](value))
        except (UndecodableValue, ValueError, ArithmeticError) as error:
            raise UnreadableColumn(column.name, f"{type(error).__name__} in {column.source_type}: {error}") from error

    def _image(self, cells: list[bytes]) -> bytes:
        return b"{%b}" % b",".join([b"%b:%b" % pair for pair in zip(self._names, cells, strict=True)])

    def _key_of(self, cells: list[bytes]) -> bytes:
        if not self._key:
            return b""
        return b"{%b}" % b",".join([b"%b:%b" % (self._names[place], cells[place]) for place in self._key])


def _is_large(column: Column) -> bool:
    return parse_column_type(column.source_type).name in LARGE_TYPES


def plain_text(value: RedoValue) -> str | None:
    """A text of a column that has no other form, such as a signal's; None: NULL, or the log lacks it."""
    return text_of(value) if isinstance(value, Quoted | Expression) else None


def _lacking(schema: TableSchema, column: str) -> str:
    owner, table = schema.table_id.database, schema.table_id.table
    return (
        f'the log lacks the value of {column}: ALTER TABLE "{owner}"."{table}" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS; '
        "for a large value set values.unavailable_placeholder"
    )
