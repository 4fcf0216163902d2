"""The cursors of a connection: executed statements, and the rows that the client has not fetched yet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from libs.oracle.internal_values import OracleTimestamp, read_date, read_number
from libs.stand_ins.oracle import cells, messages
from libs.stand_ins.oracle.answers import LOBS, Column, OracleError, OracleType, RowId, Rows, Value
from libs.stand_ins.oracle.messages import BindType
from libs.stand_ins.oracle.packets import ProtocolError
from libs.stand_ins.oracle.wire import Writer

_LOCATOR_BYTES: Final = 40
LOB_CHUNK_BYTES: Final = 8_132
_LONGS: Final = frozenset({8, 24})
"""LONG and LONG RAW: a client defines LOBs so when it wants their values within the rows."""


class Fetched(NamedTuple):
    """Rows as bytes, and how it went on."""

    data: bytes
    is_over: bool
    error: OracleError | None


@dataclass(slots=True)
class Cursor:
    """One statement."""

    number: int
    statement: str = ""
    binds: list[BindType] = field(default_factory=list)
    defines: list[BindType] = field(default_factory=list)
    columns: Sequence[Column] | None = None
    """None: no query, or not executed yet."""
    rows: Iterator[Sequence[Value]] = field(default_factory=lambda: iter(()))
    fetched: int = 0

    @property
    def awaits_defines(self) -> bool:
        """Rows with LOBs come once the client has said how it wants them."""
        return not self.defines and any(column.type in LOBS for column in self.columns or ())

    def take(self, answer: Rows) -> None:
        """Begin with this result."""
        self.columns, self.rows, self.fetched = answer.columns, iter(answer.rows), 0


class Lobs:
    """The values of LOBs that the client has locators of, for the life of its connection."""

    def __init__(self) -> None:
        self._values: list[str | bytes] = []

    def locator(self, value: str | bytes) -> bytes:
        """The client's handle of the value."""
        self._values.append(value)
        is_text = isinstance(value, str)
        head = bytes([0, _LOCATOR_BYTES - 2, 0, 1, 2 if is_text else 1, 8, 0x80 if is_text else 0])
        return head.ljust(_LOCATOR_BYTES - 8, b"\0") + (len(self._values) - 1).to_bytes(8, "big")

    def value(self, locator: bytes) -> bytes:
        """CLOB: its UTF-16.

        Raises:
            OracleError: the locator is none of this connection's.
        """
        number = int.from_bytes(locator[_LOCATOR_BYTES - 8 :], "big")
        if number >= len(self._values):
            raise OracleError(22275, "invalid LOB locator specified")
        return in_units(self._values[number])

    @staticmethod
    def unit_bytes(locator: bytes) -> int:
        """A CLOB's lengths and places count UTF-16 units, a BLOB's bytes."""
        return 1 if locator[4] & 1 else 2


def in_units(value: str | bytes) -> bytes:
    """The bytes of a LOB on the wire."""
    return value.encode("utf-16-be") if isinstance(value, str) else value


def fetch(cursor: Cursor, rows: int, lobs: Lobs) -> Fetched:
    """Up to so many rows more."""
    assert cursor.columns is not None
    message = Writer()
    for _ in range(rows):
        try:
            row = next(cursor.rows, None)
        except OracleError as error:
            return Fetched(bytes(message.data), is_over=True, error=error)
        if row is None:
            return Fetched(bytes(message.data), is_over=True, error=None)
        cursor.fetched += 1
        message.byte(messages.ROW_DATA)
        for place, (column, value) in enumerate(zip(cursor.columns, row, strict=True)):
            defined = cursor.defines[place] if cursor.defines else None
            _write_cell(message, column, value, defined, lobs)
    return Fetched(bytes(message.data), is_over=False, error=None)


def _write_cell(message: Writer, column: Column, value: Value, defined: BindType | None, lobs: Lobs) -> None:
    if column.type in LOBS and defined is not None and defined.code in _LONGS:
        assert value is None or isinstance(value, (str, bytes))
        message.value(value.encode() if isinstance(value, str) else value).zeros(2)
    elif column.type in LOBS:
        _write_lob(message, value, defined, lobs)
    elif column.type is OracleType.ROWID:
        _write_row_id(message, value)
    else:
        message.value(None if value is None else cells.cell(column, value))
        if column.type is OracleType.LONG:
            message.zeros(2)


def _write_lob(message: Writer, value: Value, defined: BindType | None, lobs: Lobs) -> None:
    if value is None:
        message.number(0)
        return
    assert isinstance(value, (str, bytes))
    data = in_units(value)
    unit_bytes = 2 if isinstance(value, str) else 1
    message.number(_LOCATOR_BYTES).number(len(data) // unit_bytes).number(LOB_CHUNK_BYTES)
    if defined is not None and defined.prefetched:
        if isinstance(value, str):
            message.byte(1).number(messages.UTF_16).byte(1)
        message.value(data[: unit_bytes * defined.prefetched])
    message.value(lobs.locator(value))


def _write_row_id(message: Writer, value: Value) -> None:
    if value is None:
        message.byte(0)
        return
    assert isinstance(value, RowId)
    message.byte(14).number(value.object_id).number(value.file).zeros(1).number(value.block).number(value.row)


def bound_values(binds: Sequence[BindType], row: Sequence[bytes | None]) -> list[Value]:
    """Bind values as the database gets them.

    Raises:
        ProtocolError: a type that no test bound yet.
    """
    return [None if data is None else _bound(bind, data) for bind, data in zip(binds, row, strict=True)]


def _bound(bind: BindType, data: bytes) -> Value:
    match bind.code:
        case 2 | 3 | 6:
            return read_number(data)
        case 1 | 5 | 8 | 9 | 96:
            return data.decode("utf-16-be" if bind.is_national else "utf-8")
        case 23 | 24:
            return data
        case 12 | 180:
            return _moment(read_date(data))
        case 102:  # a cursor that the statement is to open
            return None
    raise ProtocolError(f"a bind value of type {bind.code}")


def _moment(read: OracleTimestamp) -> datetime:
    return datetime(read.year, read.month, read.day, read.hour, read.minute, read.second, read.nanosecond // 1_000)
