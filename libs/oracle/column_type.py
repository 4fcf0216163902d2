"""Oracle's column types, as DDL and DBA_TAB_COLS write them.

ANSI and DB2 names are Oracle's own types: INTEGER is NUMBER(38,0), DOUBLE PRECISION is FLOAT(126)
(Oracle Database SQL Language Reference, "Data Types").
"""

from dataclasses import dataclass
from typing import Final

from libs.oracle.sql_lexer import TokenCursor


class UnknownColumnType(ValueError):
    """A type that no rule here knows, such as an object type."""


@dataclass(frozen=True, slots=True)
class OracleType:
    """A type with its parameters."""

    name: str
    """Oracle's own name: ``NUMBER``, ``VARCHAR2``, ``TIMESTAMP WITH TIME ZONE``, ``INTERVAL DAY TO SECOND`` …"""
    size: int | None = None
    """Digits of a NUMBER (38 of ``NUMBER(*,0)``), bits of a FLOAT, characters or bytes of a text, digits of a fraction, of a
    year or of days."""
    scale: int | None = None
    """Digits after the point of a NUMBER; None: any number of them. Digits of the fraction of an INTERVAL DAY TO SECOND."""


_TEXTS: Final = {
    "CHAR": "CHAR",
    "CHARACTER": "CHAR",
    "VARCHAR": "VARCHAR2",
    "VARCHAR2": "VARCHAR2",
    "NCHAR": "NCHAR",
    "NVARCHAR2": "NVARCHAR2",
    "RAW": "RAW",
    "UROWID": "UROWID",
}
_WHOLE: Final = frozenset({"INT", "INTEGER", "SMALLINT"})
_NUMBERS: Final = frozenset({"NUMBER", "NUMERIC", "DECIMAL", "DEC"})
_PLAIN: Final = frozenset(
    {"DATE", "CLOB", "NCLOB", "BLOB", "BFILE", "ROWID", "BINARY_FLOAT", "BINARY_DOUBLE", "XMLTYPE", "JSON", "BOOLEAN"}
)
_DEFAULT_FRACTION: Final = 6
_DEFAULT_LEADING: Final = 2
_MOST_DIGITS: Final = 38
_MOST_BITS: Final = 126
_FLOAT_BITS: Final = {"FLOAT": _MOST_BITS, "REAL": 63}


def read_column_type(cursor: TokenCursor) -> OracleType:
    """Steps over a type, and returns it.

    Raises:
        UnknownColumnType: no type of Oracle's own stands there.
        UnreadableSql: its parameters have no known form.
    """
    name = cursor.name()
    if name in ("SYS", "PUBLIC") and cursor.took_symbol("."):
        name = cursor.name()
    if name == "NATIONAL":
        return _text(cursor, "N" + _TEXTS.get(cursor.name(), ""))
    if name in _TEXTS:
        return _text(cursor, _TEXTS[name])
    if name in _NUMBERS:
        return _number(cursor, name)
    if name in _WHOLE:
        return OracleType("NUMBER", _MOST_DIGITS, 0)
    if name in _FLOAT_BITS or (name == "DOUBLE" and cursor.took("PRECISION")):
        sizes = _sizes(cursor)
        return OracleType("FLOAT", sizes[0] if sizes else _FLOAT_BITS.get(name, _MOST_BITS))
    if name == "LONG":
        return OracleType("LONG RAW" if cursor.took("RAW") else "LONG")
    if name == "TIMESTAMP":
        return _timestamp(cursor)
    if name == "INTERVAL":
        return _interval(cursor)
    if name in _PLAIN:
        return OracleType(name)
    raise UnknownColumnType(f"the type {name} is not one of Oracle's own")


def _text(cursor: TokenCursor, name: str) -> OracleType:
    if cursor.took("VARYING"):
        name = "NVARCHAR2" if name.startswith("N") else "VARCHAR2"
    if not cursor.took_symbol("("):
        return OracleType(name, None if name == "UROWID" else 1)
    size = cursor.integer()
    if not cursor.took("CHAR"):
        cursor.took("BYTE")
    cursor.expect_symbol(")")
    return OracleType(name, size)


def _number(cursor: TokenCursor, name: str) -> OracleType:
    sizes = _sizes(cursor)
    if not sizes:
        return OracleType("NUMBER", _MOST_DIGITS, None if name == "NUMBER" else 0)
    return OracleType("NUMBER", sizes[0], sizes[1] if len(sizes) > 1 else 0)


def _timestamp(cursor: TokenCursor) -> OracleType:
    sizes = _sizes(cursor)
    fraction = sizes[0] if sizes else _DEFAULT_FRACTION
    if cursor.took("WITH", "LOCAL", "TIME", "ZONE"):
        return OracleType("TIMESTAMP WITH LOCAL TIME ZONE", fraction)
    if cursor.took("WITH", "TIME", "ZONE"):
        return OracleType("TIMESTAMP WITH TIME ZONE", fraction)
    return OracleType("TIMESTAMP", fraction)


def _interval(cursor: TokenCursor) -> OracleType:
    unit = cursor.name()
    sizes = _sizes(cursor)
    leading = sizes[0] if sizes else _DEFAULT_LEADING
    if unit == "YEAR" and cursor.took("TO", "MONTH"):
        return OracleType("INTERVAL YEAR TO MONTH", leading)
    if unit == "DAY" and cursor.took("TO", "SECOND"):
        fraction = _sizes(cursor)
        return OracleType("INTERVAL DAY TO SECOND", leading, fraction[0] if fraction else _DEFAULT_FRACTION)
    raise UnknownColumnType(f"INTERVAL {unit} is no type")


def _sizes(cursor: TokenCursor) -> list[int]:
    """``(10, -2)``; ``*`` stands for the most digits."""
    if not cursor.took_symbol("("):
        return []
    sizes = [_MOST_DIGITS if cursor.took_symbol("*") else cursor.integer()]
    while cursor.took_symbol(","):
        sizes.append(-cursor.integer() if cursor.took_symbol("-") else cursor.integer())
    cursor.expect_symbol(")")
    return sizes
