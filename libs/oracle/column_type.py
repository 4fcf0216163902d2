"""Oracle's column types, as DDL and DBA_TAB_COLS write them.

ANSI and DB2 names are Oracle's own types: INTEGER is NUMBER(38,0), DOUBLE PRECISION is FLOAT(126)
(Oracle Database SQL Language Reference, "Data Types").
"""

from dataclasses import dataclass
from typing import Final

from libs.oracle.sql_lexer import TokenCursor, tokens_of


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

    def __str__(self) -> str:
        """As ``Column.source_type`` has it; ``parse_column_type`` reads it.

        >>> str(OracleType("NUMBER", 38)), str(OracleType("TIMESTAMP WITH TIME ZONE", 6))
        ('NUMBER', 'TIMESTAMP(6) WITH TIME ZONE')
        """
        first, _, rest = self.name.partition(" ")
        match self.name:
            case "NUMBER":
                return "NUMBER" if self.scale is None else f"NUMBER({self.size},{self.scale})"
            case "INTERVAL YEAR TO MONTH":
                return f"INTERVAL YEAR({self.size}) TO MONTH"
            case "INTERVAL DAY TO SECOND":
                return f"INTERVAL DAY({self.size}) TO SECOND({self.scale})"
            case _ if self.size is None:
                return self.name
            case _:
                return f"{first}({self.size}) {rest}".rstrip()


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


def parse_column_type(text: str) -> OracleType:
    """The type of a text, as DDL or ``Column.source_type`` has it.

    Raises:
        UnknownColumnType: it is none of Oracle's own.
        UnreadableSql: its parameters have no known form.
    """
    return read_column_type(TokenCursor(tokens_of(text)))


def type_of_catalog(
    data_type: str,
    *,
    data_length: int | None = None,
    char_length: int | None = None,
    precision: int | None = None,
    scale: int | None = None,
) -> OracleType:
    """The type of a row of DBA_TAB_COLS: DATA_TYPE, DATA_LENGTH, CHAR_LENGTH, DATA_PRECISION, DATA_SCALE.

    It equals the type that the DDL of the column gives (Oracle Database Reference, "ALL_TAB_COLUMNS").

    >>> str(type_of_catalog("NUMBER", data_length=22)), str(type_of_catalog("NUMBER", data_length=22, scale=0))
    ('NUMBER', 'NUMBER(38,0)')

    Raises:
        UnknownColumnType: an object type, or another that no rule here knows.
    """
    match data_type:
        case "NUMBER":
            return OracleType("NUMBER", _MOST_DIGITS if precision is None else precision, scale)
        case "FLOAT":
            return OracleType("FLOAT", _MOST_BITS if precision is None else precision)
        case "CHAR" | "VARCHAR2" | "NCHAR" | "NVARCHAR2":
            return OracleType(data_type, char_length or data_length)
        case "RAW" | "UROWID":
            return OracleType(data_type, data_length)
        case _:
            return parse_column_type(data_type)


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
