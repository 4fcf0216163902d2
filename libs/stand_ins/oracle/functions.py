"""Oracle's functions that DuckDB lacks: macros of its SQL, and plain Python.

(Oracle Database SQL Language Reference, "Functions", "Datetime Format Models"; PL/SQL Packages, DBMS_ROWID.)
"""

import re
import string
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any, Final
from zoneinfo import ZoneInfo

from libs.stand_ins.oracle import redo
from libs.stand_ins.oracle.answers import Months, RowId, Value, row_id_of

_ROW_ID_DIGITS: Final = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
_IN_ORDER: Final = "".join(sorted(_ROW_ID_DIGITS))

MACROS: Final = (
    f"CREATE MACRO ROWID_KEY(x) AS translate(x, '{_ROW_ID_DIGITS}', '{_IN_ORDER}')",
    "CREATE MACRO CHARTOROWID(x) AS x",
    "CREATE MACRO ROWIDTOCHAR(x) AS x",
    "CREATE MACRO JOINED(a, b) AS nullif(concat(a, b), '')",
    "CREATE MACRO RAWTOHEX(x) AS hex(x)",
    "CREATE MACRO HEXTORAW(x) AS unhex(x)",
    "CREATE MACRO NVL2(x, a, b) AS CASE WHEN x IS NOT NULL THEN a ELSE b END",
    "CREATE MACRO INSTR(x, y) AS strpos(x, y)",
    "CREATE MACRO LENGTHB(x) AS strlen(x)",
    "CREATE MACRO EMPTY_CLOB() AS ''",
    "CREATE MACRO EMPTY_BLOB() AS ''::BLOB",
    "CREATE MACRO AS_CLOB(x) AS x",
    "CREATE MACRO SYS_EXTRACT_UTC(x) AS timezone('UTC', x)",
    "CREATE MACRO DBMS_LOB_GETLENGTH(x) AS length(x)",
)


def _row_id(kind: Decimal, object_id: Decimal, file: Decimal, block: Decimal, row: Decimal) -> str:
    return str(RowId(int(object_id), int(file), int(block), int(row)))


CHARSETS: Final = {"AL32UTF8": 873, "UTF8": 871, "AL16UTF16": 2000, "WE8ISO8859P1": 31, "WE8MSWIN1252": 178}
"""Numbers of character sets."""


def _charset_number(name: str) -> int | None:
    return CHARSETS.get(name)


FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], tuple[str, ...], str]]] = {
    "DBMS_ROWID_ROWID_CREATE": (_row_id, ("DECIMAL(38,0)",) * 5, "VARCHAR"),
    "DBMS_ROWID_ROWID_OBJECT": (lambda text: row_id_of(text).object_id, ("VARCHAR",), "BIGINT"),
    "DBMS_ROWID_ROWID_RELATIVE_FNO": (lambda text: row_id_of(text).file, ("VARCHAR",), "BIGINT"),
    "DBMS_ROWID_ROWID_BLOCK_NUMBER": (lambda text: row_id_of(text).block, ("VARCHAR",), "BIGINT"),
    "DBMS_ROWID_ROWID_ROW_NUMBER": (lambda text: row_id_of(text).row, ("VARCHAR",), "BIGINT"),
    "NLS_CHARSET_ID": (_charset_number, ("VARCHAR",), "BIGINT"),
}
"""Each with the types of its arguments and of its result."""
OF_THE_DATABASE: Final = {
    "SCN_TO_TIMESTAMP": ("DECIMAL(38,0)", "TIMESTAMP"),
    "TIMESTAMP_TO_SCN": ("TIMESTAMP", "BIGINT"),
}
"""Functions that ask the database and may be asked for each row: the types of argument and result."""

CLOBS: Final = frozenset({"DBMS_METADATA_GET_DDL"})
"""Functions of the database whose result is a CLOB."""
OF_THE_ENGINE: Final = frozenset(
    {*FUNCTIONS, *(macro.split("(")[0].split()[-1] for macro in MACROS)}
    | {"LPAD", "RPAD", "REGEXP_REPLACE", "MOD", "FLOOR", "CEIL", "TRUNC", "GREATEST", "LEAST", "STRFTIME"}
)

_MOST_DIGITS: Final = 40
_FORMAT: Final = re.compile(r"SYYYY|YYYY|MM|DD|HH24|MI|SS|FF\d?|TZH|TZM|TZR|\"[^\"]*\"|.", re.DOTALL)


def to_char(value: Value, form: str) -> str | None:
    """TO_CHAR of a moment, or of a number without a format.

    Raises:
        TypeError: no test asked for this yet.
    """
    match value, form:
        case None, _:
            return None
        case datetime(), _:
            return "".join(_part(value, part) for part in _FORMAT.findall(form))
        case int() | Decimal(), "":
            return _number(Decimal(value))
        case float(), "":
            return redo.printed_float(value)
        case Months() | timedelta(), "":
            return redo.printed_interval(value)
        case str(), "":
            return value
    raise TypeError(f"TO_CHAR of {value!r} as {form!r}")


def _number(number: Decimal) -> str:
    """As TO_CHAR without a format: 40 digits at most, then an exponent; no zero before the point."""
    with localcontext(prec=_MOST_DIGITS):
        plain = number.normalize()
    text = f"{plain:f}"
    if len(text) > _MOST_DIGITS:
        mantissa, exponent = f"{plain:E}".split("E")
        return f"{mantissa}E{exponent[0]}{int(exponent[1:]):02}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def _part(value: datetime, part: str) -> str:
    offset = value.utcoffset() or timedelta()
    hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
    sign = "-" if offset < timedelta() else "+"
    nanoseconds = f"{value.microsecond:06}000"
    match part:
        case "SYYYY":
            return f" {value.year:04}"
        case "YYYY":
            return f"{value.year:04}"
        case "MM" | "DD" | "HH24" | "MI" | "SS":
            return value.strftime({"MM": "%m", "DD": "%d", "HH24": "%H", "MI": "%M", "SS": "%S"}[part])
        case "TZH":
            return f"{sign}{hours:02}"
        case "TZM":
            return f"{minutes:02}"
        case "TZR":
            return value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else f"{sign}{hours:02}:{minutes:02}"
    if part.startswith("FF"):
        return nanoseconds[: int(part[2:] or 6)]
    return part.strip('"')
