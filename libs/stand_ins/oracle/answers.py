"""A database's answers to the stand-in's protocol: rows, counts, cursors and errors. No protocol in here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias


class OracleType(IntEnum):
    """A column's type on the wire. (Oracle Call Interface Programmer's Guide, "Data Types": external and internal codes.)"""

    VARCHAR2 = 1
    NUMBER = 2
    LONG = 8
    ROWID = 11
    DATE = 12
    RAW = 23
    CHAR = 96
    BINARY_FLOAT = 100
    BINARY_DOUBLE = 101
    CLOB = 112
    BLOB = 113
    TIMESTAMP = 180
    TIMESTAMP_TZ = 181
    INTERVAL_YM = 182
    INTERVAL_DS = 183
    TIMESTAMP_LTZ = 231


TEXTS = frozenset({OracleType.VARCHAR2, OracleType.CHAR, OracleType.LONG, OracleType.CLOB})
LOBS = frozenset({OracleType.CLOB, OracleType.BLOB})


_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


class RowId(NamedTuple):
    """A physical ROWID, as a driver prints it in 18 characters."""

    object_id: int
    """DATA_OBJECT_ID of the segment."""
    file: int
    block: int
    row: int

    def __str__(self) -> str:
        return f"{_in_64(self.object_id, 6)}{_in_64(self.file, 3)}{_in_64(self.block, 6)}{_in_64(self.row, 3)}"


def row_id_of(text: str) -> RowId:
    """The parts of a printed ROWID."""
    digits = [_ALPHABET.index(letter) for letter in text]
    parts = []
    for begin, end in ((0, 6), (6, 9), (9, 15), (15, 18)):
        number = 0
        for digit in digits[begin:end]:
            number = number * 64 + digit
        parts.append(number)
    return RowId(*parts)


def _in_64(number: int, digits: int) -> str:
    text = ""
    for _ in range(digits):
        number, digit = divmod(number, 64)
        text = _ALPHABET[digit] + text
    return text


class Months(NamedTuple):
    """An INTERVAL YEAR TO MONTH."""

    months: int
    """Below 0 for a negative interval."""


Value: TypeAlias = Decimal | int | float | str | bytes | datetime | timedelta | Months | RowId | None
"""A cell. NUMBER: Decimal or int; BINARY_FLOAT and BINARY_DOUBLE: float; RAW and BLOB: bytes; TIMESTAMP_TZ and TIMESTAMP_LTZ: a
datetime with its zone."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result, as a driver describes it."""

    name: str
    type: OracleType = OracleType.VARCHAR2
    size: int = 4_000
    """Bytes."""
    precision: int = 0
    scale: int = 0
    is_nullable: bool = True
    is_national: bool = False
    """NCHAR, NVARCHAR2, NCLOB: UTF-16 on the wire."""
    characters: int | None = None
    """The length of a text that is declared in characters."""
    default: str | None = None
    """The expression of its DEFAULT, or of a virtual column."""
    is_virtual: bool = False
    is_hidden: bool = False
    """INVISIBLE, or SET UNUSED."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A query's result. An ``OracleError`` that ``rows`` raises on the way reaches the driver after the rows before it."""

    columns: Sequence[Column]
    rows: Iterable[Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Done:
    """A statement without a result: how many rows it changed."""

    rows: int = 0


@dataclass(frozen=True, slots=True)
class Cursors:
    """A PL/SQL block that opened cursors: by the place of its bind variable, from 0."""

    opened: Mapping[int, Rows]


Answer: TypeAlias = Rows | Done | Cursors


class OracleError(Exception):
    """An error that the driver gets, ``ORA-00942: table or view does not exist``."""

    def __init__(self, code: int, text: str, place: int = 0) -> None:
        super().__init__(f"ORA-{code:05}: {text}")
        self.code = code
        self.place = place
        """Characters before the fault in the statement."""


class DatabaseSession(Protocol):
    """One connection's view of the database. Its methods raise ``OracleError``."""

    def execute(self, statement: str, binds: Sequence[Sequence[Value]]) -> Answer:
        """Carry out a statement, once for each row of bind values (once where there is none)."""
        ...

    def commit(self) -> None:
        """End the transaction."""
        ...

    def rollback(self) -> None:
        """Take the transaction back."""
        ...


class Database(Protocol):
    """The database of a stand-in."""

    @property
    def name(self) -> str:
        """Of the instance and its service."""
        ...

    def password(self, user: str) -> str | None:
        """None: there is no such user."""
        ...

    def connect(self, user: str) -> DatabaseSession:
        """A session of this user, whose password was right."""
        ...
