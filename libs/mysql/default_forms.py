"""Which literals of a DEFAULT are read here. MySQL takes many more; those it is asked for.

Without strict mode the server makes a value of almost any text: ``'12:34:56 PM'`` is a TIME, ``'2020-01-02'`` in a TIME column
is 00:20:20, ``8.1e4`` is a DATE. The forms below are those of which ``tests/integration/test_defaults.py`` asks the server, and
all that SHOW CREATE prints.
"""

import datetime
import re
from typing import Final

from libs.mysql.column_type import MysqlType
from libs.mysql.ddl_syntax import DefaultKind, DefaultValue
from libs.mysql.logical import canonical_default
from libs.mysql.sql_lexer import bytes_of_literal

_DAY: Final = r"\s*\d{1,4}[^\w\s]\d{1,2}[^\w\s]\d{1,2}"
_CLOCK: Final = r"(?:T| +)\d{1,2}(?:[^\w\s]\d{1,2}(?:[^\w\s]\d{1,2}(?:\.\d*)?)?)?"
_YEAR: Final = r"19\d\d|20\d\d|21[0-4]\d|215[0-5]"
_TEXTS: Final = {
    "number": re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII),
    "year": re.compile(rf"\s*(?:\d\d?|000|0000|{_YEAR})\s*", re.ASCII),
    "time": re.compile(r"-?(?:(?:\d+ )?\d{1,3}:\d{1,2}(?::\d{1,2}(?:\.\d*)?)?|\d{1,7}(?:\.\d*)?)", re.ASCII),
    "moment": re.compile(rf"{_DAY}(?:{_CLOCK})?|\d{{6}}|\d{{8}}|(?:\d{{12}}|\d{{14}})(?:\.\d*)?", re.ASCII),
}
_NUMBERS: Final = {
    "year": re.compile(rf"0+|\d\d?|{_YEAR}", re.ASCII),
    "time": re.compile(r"-?\d{1,7}(?:\.\d*)?", re.ASCII),
    "moment": re.compile(r"0|\d{3,6}|\d{8}|(?:\d{12}|\d{14})(?:\.\d*)?", re.ASCII),
    "bit": re.compile(r"\d+", re.ASCII),
}
_WITHOUT_TEXT: Final = frozenset(
    {
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geomcollection",
        "vector",
    }
)
_KINDS: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"), "number"),
    **dict.fromkeys(("date", "datetime", "timestamp"), "moment"),
}


def has_printed_values(mysql_type: MysqlType) -> bool:
    """Whether a value has a text: a geometry and a vector are made by expressions alone."""
    return mysql_type.name not in _WITHOUT_TEXT


def is_known_form(mysql_type: MysqlType, default: DefaultValue) -> bool:
    """Whether the server reads the literal as ``logical.canonical_default`` does, in every SQL mode that takes it."""
    kind = _KINDS.get(mysql_type.name, mysql_type.name)
    match default.kind:
        case DefaultKind.TEXT:
            form = _TEXTS.get(kind)
        case DefaultKind.NUMBER:
            form = _NUMBERS.get(kind)
        case _:
            return kind not in ("year", "time", "moment")
    return form is None or form.fullmatch(default.text) is not None


def is_kept(mysql_type: MysqlType, text: str) -> bool:
    """Whether a column holds the value ``text`` as it is. An expression's may be another one without strict mode: it is cut, or
    is a zero. A literal that is not held is refused."""
    canonical = canonical_default(mysql_type, text)
    match mysql_type.name:
        case "enum":
            return text in mysql_type.members
        case "set":
            return set(text.split(",")) <= {"", *mysql_type.members}
        case "bit":
            value = bytes_of_literal(canonical)
            return value is not None and int.from_bytes(value, "big") < 1 << (mysql_type.length or 1)
        case "float" | "double" if mysql_type.is_unsigned and float(canonical) < 0:
            return False
        case "float" | "double" if mysql_type.scale is not None:
            return abs(float(canonical)) < float(f"1e{(mysql_type.precision or 0) - mysql_type.scale}")
        case "time":
            hours, minutes, seconds = (abs(float(part)) for part in canonical.split(":"))
            return hours < 839 and minutes < 60 and seconds < 60
        case "timestamp" if not "1970-01-02" < canonical < "2038-01-19":
            return False
        case "date" | "datetime" | "timestamp":
            return _is_day(canonical[:10])
        case _:
            return True


def _is_day(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True
