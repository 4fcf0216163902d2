"""TTC messages of the server, as bytes, and the requests that a client's messages carry.

The server has the capabilities of release 19c, so a client leaves out the fields of later releases.
As python-oracledb's thin mode reads and writes them (``impl/thin/messages``); where ojdbc wants another form, the text says so.
"""

import enum
import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from libs.stand_ins.oracle import cells
from libs.stand_ins.oracle.answers import TEXTS, Column, OracleType
from libs.stand_ins.oracle.logon import Pair
from libs.stand_ins.oracle.wire import Reader, Writer

UTF_8: Final = 873
UTF_16: Final = 2000
"""Oracle's numbers of AL32UTF8 and AL16UTF16."""

PROTOCOL: Final = 1
DATA_TYPES: Final = 2
FUNCTION: Final = 3
PIGGYBACK: Final = 17
_ERROR: Final = 4
_ROW_HEADER: Final = 6
ROW_DATA: Final = 7
_PARAMETER: Final = 8
_STATUS: Final = 9
_BIND_DIRECTIONS: Final = 11
LOB_DATA: Final = 14
_DESCRIBE: Final = 16
_IS_OUT: Final = 16
_IS_IN: Final = 32

_FIELDS_OF_19C: Final = 12
_MOST_ROWS: Final = 1 << 31
NO_MORE_ROWS: Final = 1403
_SCALED_IN_JAVA: Final = frozenset(
    {OracleType.NUMBER, OracleType.TIMESTAMP, OracleType.TIMESTAMP_TZ, OracleType.INTERVAL_DS}
)


class LobOperation(enum.IntEnum):
    """A client's question about a LOB."""

    LENGTH = 1
    READ = 2
    CHUNK_SIZE = 0x4000


class BindType(NamedTuple):
    """A bind variable's, or a defined column's, type."""

    code: int
    is_national: bool
    prefetched: int
    """Of a LOB that a client defined: so many characters or bytes come with its row."""


class Execute(NamedTuple):
    """A request to parse, execute or fetch."""

    options: int
    cursor: int
    """0: a new one."""
    statement: str | None
    """None: the cursor's own."""
    times: int
    wants_row_counts: bool
    binds: list[BindType]
    rows: list[list[bytes | None]]
    defines: list[BindType]


def protocol() -> bytes:
    """The server's capabilities."""
    message = Writer().byte(PROTOCOL).raw(b"\6\0x86_64/Linux 2.4.xx\0").raw(struct.pack("<H", UTF_8)).byte(3)
    fdo = bytes([0, 1, 0, 0, 0, 0, 0, 0, 0]) + struct.pack(">H", UTF_16)
    message.raw(struct.pack("<H", 0)).raw(struct.pack(">H", len(fdo))).raw(fdo)
    compile_time = bytearray(55)
    for place, value in {
        0: 6,  # SQL version
        1: 1,
        4: 0x80 | 32 | 8 | 2,  # logon types
        7: _FIELDS_OF_19C,
        8: 1,
        15: 0x29,
        16: 0x90,
        17: 3,
        18: 7,
        19: 3,
        21: 1,
        23: 0x80 | 0x40 | 0x08 | 0x02 | 0x01,  # LOBs: prefetch, and locators of this form
        26: 4,
        27: 1,
        31: 0x10,
        34: 12,
        37: 0x80 | 0x20 | 0x10,
        39: 8,
        42: 4 | 1,
    }.items():
        compile_time[place] = value
    run_time = bytearray(11)
    run_time[0], run_time[1], run_time[6] = 2, 1, 4 | 1  # texts of 32,767 bytes
    return bytes(message.value(bytes(compile_time)).value(bytes(run_time)).data)


def data_types() -> bytes:
    """Agreement to every type that the client named."""
    return bytes([DATA_TYPES, 0, 0])


def status(sequence: int) -> bytes:
    """A call without an answer has ended."""
    return bytes(Writer().byte(_STATUS).number(0).number(sequence).data)


def ended(sequence: int, *, cursor: int = 0, rows: int = 0, code: int = 0, text: str = "", place: int = 0) -> bytes:
    """The end of a call: with an error, or with 0."""
    message = Writer().byte(_ERROR).number(1).number(sequence).number(min(rows, _MOST_ROWS)).number(code)
    message.zeros(2).number(cursor).signed(place).zeros(6)
    message.zeros(5)  # ROWID of the last row
    message.zeros(2).byte(sequence).zeros(2)
    message.zeros(1)  # logical ROWID
    message.zeros(3)  # errors of a batch
    message.number(code).number(rows)
    if code:
        message.value(text.encode())
    return bytes(message.data)


def pairs(named: Sequence[Pair]) -> bytes:
    """An answer to a logon."""
    message = Writer().byte(_PARAMETER).number(len(named))
    for each in named:
        message.counted(each.name.encode()).counted(each.text.encode()).number(each.flags)
    return bytes(message.data)


def version(banner: str, number: int) -> bytes:
    """The server's name and number."""
    return bytes(Writer().byte(_PARAMETER).number(len(banner)).raw(banner.encode()).number(number).data)


def describe(columns: Sequence[Column], *, is_java: bool) -> bytes:
    """The columns of a query."""
    return bytes(Writer().byte(_DESCRIBE).value(b"\1").data) + columns_of(columns, is_java=is_java)


def columns_of(columns: Sequence[Column], *, is_java: bool) -> bytes:
    """The same without a head, as a cursor in a bind variable has them. ojdbc reads a scale in two bytes."""
    message = Writer().number(4_000).number(len(columns))
    if columns:
        message.byte(1)
    for place, column in enumerate(columns, start=1):
        has_charset = column.type in TEXTS
        charset = (UTF_16 if column.is_national else UTF_8) if has_charset else 0
        message.byte(column.type).byte(0).byte(column.precision)
        if is_java and column.type in _SCALED_IN_JAVA:
            message.signed(column.scale)
        else:
            message.byte(column.scale & 0xFF)
        message.number(column.size).zeros(4).number(charset).byte((2 if column.is_national else 1) * has_charset)
        message.number(column.size * has_charset).zeros(1)
        message.byte(column.is_nullable).zeros(1).counted(column.name.encode()).zeros(2).number(place).zeros(1)
    return bytes(message.counted(cells.date(datetime.now())).zeros(5).data)


def row_header(columns: int, rows: int) -> bytes:
    """What comes before rows."""
    return bytes(Writer().byte(_ROW_HEADER).zeros(1).number(columns).zeros(1).number(rows).zeros(3).data)


def parameters(cursor: int, *, wants_row_counts: bool) -> bytes:
    """A statement's returned parameters: the number of its cursor."""
    message = Writer().byte(_PARAMETER).number(6).zeros(2).number(cursor).zeros(6)
    if wants_row_counts:
        message.number(1).number(1)
    return bytes(message.data)


def bind_directions(places: int, out: set[int]) -> bytes:
    """Which bind variables of a block come back."""
    message = Writer().byte(_BIND_DIRECTIONS).zeros(1).number(places).zeros(1).number(1).zeros(3)
    return bytes(message.raw(bytes(_IS_OUT if place in out else _IS_IN for place in range(places))).data)


def read_text(message: Reader, size: int, *, is_java: bool) -> str:
    """A text of a known length. ojdbc leaves out the length that others write before it once more."""
    return (message.raw(size) if is_java else message.value() or b"").decode()


def read_logon(message: Reader, *, is_java: bool) -> tuple[str, dict[str, str]]:
    """The user, and the client's named texts."""
    has_user, user_bytes = message.byte(), message.number()
    message.number()
    message.byte()
    count = message.number()
    message.raw(2)
    user = read_text(message, user_bytes, is_java=is_java) if has_user else ""
    named = {}
    for _ in range(count):
        name = message.counted().decode(errors="replace")
        named[name] = message.counted().decode(errors="replace")
        message.number()
    return user, named


def read_execute(message: Reader, known: dict[int, list[BindType]], *, is_java: bool) -> Execute:
    """A request of function 94 (OALL8). ``known`` has the bind types of each cursor: a second execution leaves them out."""
    options, cursor = message.numbers(2)
    has_statement, statement_bytes = message.byte(), message.number()
    message.byte()
    further = message.number()
    message.raw(2)
    message.number()
    times = message.number()
    message.number()
    message.byte()
    binds = message.number()
    message.raw(5)
    message.byte()
    defines = message.number()
    message.number()
    message.raw(3)
    message.number()
    message.byte()
    message.numbers(2)
    message.byte()
    message.number()
    message.byte()
    message.byte()
    message.number()
    message.byte()
    message.number()
    message.raw(2)
    message.number()
    statement = read_text(message, statement_bytes, is_java=is_java) if has_statement else None
    settings = message.numbers(further)
    defined = [_read_bind_type(message) for _ in range(defines)]
    bound = [_read_bind_type(message) for _ in range(binds)] if binds else known.get(cursor, [])
    rows = read_bind_rows(message, bound) if binds else []
    return Execute(
        options=options,
        cursor=cursor,
        statement=statement,
        times=times or settings[1],
        wants_row_counts=bool(settings[9] & 0x4000),
        binds=bound,
        rows=rows,
        defines=defined,
    )


def read_bind_rows(message: Reader, bound: Sequence[BindType]) -> list[list[bytes | None]]:
    """The values of each row of bind variables."""
    rows = []
    while message.begins_with(ROW_DATA):
        message.byte()
        rows.append([message.value() for _ in bound])
    return rows


def _read_bind_type(message: Reader) -> BindType:
    code = message.byte()
    message.raw(3)
    message.numbers(3)
    message.counted()
    message.numbers(2)
    form = message.byte()
    prefetched, _ = message.numbers(2)
    return BindType(code, is_national=form == 2, prefetched=prefetched)
