"""One canonical Python value for each MySQL type, reached from both ends: MySQL's text and the warehouse's Arrow.

Two cells are equal when their canonical values are. The way from MySQL starts at the text that the server itself
prints and shares no code with the readers' decoders or the sinks, so that a fault of theirs shows as a difference.
Exactness per type:

    integers, BIT, YEAR   int (BIGINT UNSIGNED up to 2**64-1)
    DECIMAL               Decimal, compared by value; from text where the warehouse has no type of so many
                          digits, and from a double where the source's document says so
    FLOAT, DOUBLE         float, compared by value; FLOAT is read as the double that it stands for, of Vitess in six digits
    CHAR … TEXT, ENUM, SET  str
    BINARY … BLOB         bytes, trailing zeros included
    DATE                  date; one without month or day is NULL, or 1970-01-01 where the column may not be NULL, and a
                          day past its month's end runs into the next: as the readers have them
    TIME                  microseconds
    DATETIME              datetime without zone, dates as above;  TIMESTAMP: the same, of UTC
    JSON                  the parsed document: spaces and the order of names do not count; its null is not NULL
    geometries            bytes: SRID, then well-known binary
    VECTOR                the floats, each four bytes
"""

import base64
import datetime
import functools
import json
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from libs.check import oracle_values
from libs.check.json_values import parsed_document

Convert = Callable[[Any], Any]


SHORT_FLOAT: Final = "float of six digits"
"""A FLOAT of which no more is sure: Vitess copies rows as MySQL prints them, which is six digits (MySQL manual 14.24.2)."""

_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit"})
_BINARIES: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
TEXT_TYPES: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})
_GEOMETRIES: Final = frozenset(
    {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection"}
)
BINARY_TYPES: Final = _BINARIES | _GEOMETRIES
"""Types that MySQL prints as bytes."""
_TIME: Final = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?")
_EPOCH_DATE: Final = datetime.date(1970, 1, 1)
_EPOCH: Final = datetime.datetime(1970, 1, 1)


def select_expression(data_type: str, quoted_name: str) -> str:
    """The expression to SELECT, so that MySQL's text is exact."""
    match data_type:
        case "float" | "double":
            # FLOAT prints six digits, a DOUBLE(M,D) prints D; as a double it prints all that it has (MySQL manual 14.24.2).
            return f"CAST({quoted_name} AS DOUBLE)"
        case "bit":
            return f"{quoted_name} + 0"
        case "json" | "enum" | "set":  # members with CHARACTER SET binary come as bytes else
            return f"CAST({quoted_name} AS CHAR)"
        case "vector":
            return f"HEX({quoted_name})"  # the client takes its bytes for ASCII
        case _:
            return quoted_name


def order_expression(data_type: str, quoted_name: str) -> str:
    """The expression to ORDER BY, so that MySQL's order is that of canonical values: text by code point, not by collation."""
    if data_type in TEXT_TYPES:
        return f"CAST(CONVERT(CAST({quoted_name} AS CHAR) USING utf8mb4) AS BINARY)"
    return quoted_name


def key_literal(data_type: str, value: object) -> str | None:
    """A canonical value of a key as MySQL's SQL has it, so that an index finds it; None: it may not find its row again."""
    match value:
        case None:
            return None
        case int() if data_type == "time":
            hours, micros = divmod(abs(value), 3_600_000_000)
            minutes, micros = divmod(micros, 60_000_000)
            return f"'{'-' if value < 0 else ''}{hours:02}:{minutes:02}:{micros / 1e6:09.6f}'"
        case int() if data_type in _INTEGERS:
            return str(value)
        case Decimal() if data_type == "decimal":
            return f"{value:f}"
        case str() if data_type in TEXT_TYPES:
            return f"_utf8mb4 X'{value.encode().hex()}'"
        case bytes() if data_type in _BINARIES:
            return f"X'{value.hex()}'"
        # One without month or day may come after 1970's first: it is not found under that.
        case datetime.datetime() if value != _EPOCH:
            return f"'{value.isoformat(sep=' ')}'"
        case datetime.date() if value not in (_EPOCH_DATE, _EPOCH):
            return f"'{value.isoformat()}'"
        case _:
            return None


def from_source(data_type: str, *, is_optional: bool = True) -> Convert | None:
    """From the source's answer to the canonical value; None: it is that already."""
    if oracle_values.is_oracle_type(data_type):
        return oracle_values.from_oracle(data_type)
    return from_mysql_text(data_type, is_optional=is_optional)


def from_mysql_text(data_type: str, *, is_optional: bool = True) -> Convert | None:
    """From the text that MySQL prints (bytes for binary types) to the canonical value; None: it is that already."""
    match data_type:
        case _ if data_type in _INTEGERS:
            return int
        case "decimal":
            return Decimal
        case "float" | "double":
            return float
        case _ if data_type == SHORT_FLOAT:
            return float
        case "date":
            return functools.partial(_date_of_text, zero=None if is_optional else _EPOCH_DATE)
        case "datetime" | "timestamp":
            return functools.partial(_datetime_of_text, zero=None if is_optional else _EPOCH)
        case "time":
            return microseconds_of_time
        case "json":
            return parsed_document
        case "vector":
            return bytes.fromhex
        case _:
            return None


def from_arrow(data_type: str, arrow_type: pa.DataType) -> Convert | None:
    """From the result of ``to_pylist`` for ``arrow_type`` to the canonical value; None: it is that already.

    Raises:
        TypeError: no value of ``data_type`` can stand in a column of ``arrow_type``.
    """
    if oracle_values.is_oracle_type(data_type):
        return oracle_values.from_arrow(data_type, arrow_type)
    return _of_mysql_from_arrow(data_type, arrow_type)


def _of_mysql_from_arrow(data_type: str, arrow_type: pa.DataType) -> Convert | None:
    if data_type in _INTEGERS:
        if pa.types.is_integer(arrow_type):
            return None
        if pa.types.is_decimal(arrow_type) or pa.types.is_boolean(arrow_type):
            return int
        if _is_bytes(arrow_type):
            return _little_endian  # BIT(n)
    elif data_type == "decimal":
        if pa.types.is_decimal(arrow_type):
            return None
        if _is_text(arrow_type):
            return Decimal
        if pa.types.is_floating(arrow_type):
            return _shortest_decimal
    elif data_type == "float":
        if pa.types.is_floating(arrow_type):
            return None if pa.types.is_float32(arrow_type) else _as_float
    elif data_type == "double":
        if pa.types.is_floating(arrow_type):
            return None
    elif data_type == SHORT_FLOAT:
        if pa.types.is_floating(arrow_type):
            return _in_six_digits
    elif data_type == "date":
        if pa.types.is_date(arrow_type):
            return None
        if pa.types.is_integer(arrow_type):
            return _date_of_days
    elif data_type == "time":
        if pa.types.is_integer(arrow_type):
            return None
        if pa.types.is_time(arrow_type):
            return _microseconds_of_clock
    elif data_type in ("datetime", "timestamp"):
        if pa.types.is_timestamp(arrow_type):
            return None if arrow_type.tz is None else _utc_without_zone
        if _is_text(arrow_type):
            return _utc_of_iso
    elif data_type == "json":
        if _is_text(arrow_type):
            return parsed_document
    elif data_type in _BINARIES:
        if _is_bytes(arrow_type):
            return None
    elif data_type in _GEOMETRIES:
        if _is_text(arrow_type):
            return _stored_geometry
    elif data_type == "vector":
        if _is_text(arrow_type):
            return _stored_vector
    elif _is_text(arrow_type):
        return None
    raise TypeError(f"a MySQL {data_type} cannot stand in a column of type {arrow_type}")


def _is_text(arrow_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type)
    )


def _is_bytes(arrow_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(arrow_type)
        or pa.types.is_large_binary(arrow_type)
        or pa.types.is_binary_view(arrow_type)
        or pa.types.is_fixed_size_binary(arrow_type)
    )


def _date_of_text(text: str, *, zero: datetime.date | None) -> datetime.date | None:
    year, month, day = map(int, text.split("-"))
    return datetime.date(year, month, 1) + datetime.timedelta(days=day - 1) if month and day else zero


def _datetime_of_text(text: str, *, zero: datetime.datetime | None) -> datetime.datetime | None:
    date, _, clock = text.partition(" ")
    day = _date_of_text(date, zero=None)
    return zero if day is None else datetime.datetime.combine(day, datetime.time.fromisoformat(clock))


def microseconds_of_time(text: str) -> int:
    """Microseconds of ``-838:59:58.999999``: TIME counts hours beyond a day (MySQL manual 13.2.3)."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no TIME")
    sign, hours, minutes, seconds, fraction = match.groups()
    micros = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return -micros if sign else micros


def _microseconds_of_clock(value: datetime.time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _shortest_decimal(value: float) -> Decimal:
    """A DECIMAL through a source with ``decimal: double``: up to 15 digits are left."""
    return Decimal(repr(value))


def _as_float(value: float) -> float:
    """A FLOAT(M,D), which is kept in four bytes and declared a double: the double that those stand for."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _in_six_digits(value: float) -> float:
    return float(f"{value:.6g}")


def _date_of_days(days: int) -> datetime.date:
    return _EPOCH_DATE + datetime.timedelta(days=days)


def _utc_without_zone(value: datetime.datetime) -> datetime.datetime:
    return value.astimezone(datetime.UTC).replace(tzinfo=None)


def _utc_of_iso(text: str) -> datetime.datetime:
    value = datetime.datetime.fromisoformat(text)
    return value if value.tzinfo is None else _utc_without_zone(value)


def _stored_geometry(text: str) -> bytes:
    geometry = json.loads(text)
    return (geometry["srid"] or 0).to_bytes(4, "little") + base64.b64decode(geometry["wkb"])


def _stored_vector(text: str) -> bytes:
    numbers = json.loads(text)
    return struct.pack(f"<{len(numbers)}f", *numbers)


def _little_endian(value: bytes) -> int:
    return int.from_bytes(value, "little")
