"""Values as they travel in TTC: Oracle's storage formats, the other way round than ``libs.oracle.internal_values`` reads them.

(Oracle Call Interface Programmer's Guide, "Data Types".)
"""

import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from libs.stand_ins.oracle.answers import Column, Months, OracleType, RowId, Value

_ZERO: Final = b"\x80"
_MOST_PAIRS: Final = 20
_NEGATIVE_END: Final = b"\x66"
_INTERVAL_BIAS: Final = 1 << 31


def number(value: Decimal | int) -> bytes:
    """NUMBER: an exponent of 100, then digits of base 100; negative ones are complemented and end with 102."""
    exact = Decimal(value)
    if not exact:
        return _ZERO
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int), f"{value} is no finite number"
    text = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - len(text)
    if exponent % 2:
        text, exponent = f"{text}0", exponent - 1
    text = text.zfill(len(text) + len(text) % 2)
    pairs = [int(text[place : place + 2]) for place in range(0, len(text), 2)]
    hundreds = exponent // 2 + len(pairs) - 1
    if not sign:
        return bytes([193 + hundreds, *(pair + 1 for pair in pairs)])
    end = _NEGATIVE_END if len(pairs) < _MOST_PAIRS else b""
    return bytes([62 - hundreds, *(101 - pair for pair in pairs)]) + end


def date(value: datetime) -> bytes:
    """DATE: seven bytes."""
    century, year = divmod(value.year, 100)
    return bytes(
        [century + 100, year + 100, value.month, value.day, value.hour + 1, value.minute + 1, value.second + 1]
    )


def timestamp(value: datetime) -> bytes:
    """TIMESTAMP: a DATE, and four bytes of nanoseconds where there are any."""
    return date(value) + (struct.pack(">I", value.microsecond * 1_000) if value.microsecond else b"")


def zoned_timestamp(value: datetime) -> bytes:
    """TIMESTAMP WITH TIME ZONE: the moment in UTC, and its offset."""
    offset = value.utcoffset() or timedelta()
    hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
    sign = -1 if offset < timedelta() else 1
    nanoseconds = struct.pack(">I", value.microsecond * 1_000)
    return date(value.astimezone(UTC)) + nanoseconds + bytes([20 + sign * hours, 60 + sign * minutes])


def interval(value: timedelta) -> bytes:
    """INTERVAL DAY TO SECOND."""
    whole = abs(value)
    sign = -1 if value < timedelta() else 1
    minutes, seconds = divmod(whole.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days = struct.pack(">I", _INTERVAL_BIAS + sign * whole.days)
    clock = bytes([60 + sign * hours, 60 + sign * minutes, 60 + sign * seconds])
    return days + clock + struct.pack(">I", _INTERVAL_BIAS + sign * whole.microseconds * 1_000)


def months(value: Months) -> bytes:
    """INTERVAL YEAR TO MONTH."""
    years, rest = divmod(abs(value.months), 12)
    sign = -1 if value.months < 0 else 1
    return struct.pack(">I", _INTERVAL_BIAS + sign * years) + bytes([60 + sign * rest])


def binary_number(value: float, form: str) -> bytes:
    """BINARY_FLOAT (``>f``) and BINARY_DOUBLE (``>d``): turned so that bytes sort as numbers do."""
    data = struct.pack(form, value)
    if data[0] & 0x80:
        return bytes(byte ^ 0xFF for byte in data)
    return bytes([data[0] | 0x80]) + data[1:]


def cell(column: Column, value: Value) -> bytes:
    """A value that is neither NULL, a LOB nor a ROWID.

    Raises:
        TypeError: the value does not fit the column's type: the model of the database is wrong.
    """
    match column.type, value:
        case OracleType.NUMBER, Decimal() | int():
            return number(value)
        case OracleType.BINARY_FLOAT, float():
            return binary_number(value, ">f")
        case OracleType.BINARY_DOUBLE, float():
            return binary_number(value, ">d")
        case OracleType.VARCHAR2 | OracleType.CHAR | OracleType.LONG, str():
            return value.encode("utf-16-be" if column.is_national else "utf-8")
        case OracleType.DATE, datetime():
            return date(value)
        case OracleType.TIMESTAMP, datetime():
            return timestamp(value)
        case OracleType.TIMESTAMP_TZ, datetime():
            return zoned_timestamp(value)
        case OracleType.TIMESTAMP_LTZ, datetime():
            return timestamp(value.astimezone(UTC))
        case OracleType.INTERVAL_YM, Months():
            return months(value)
        case OracleType.INTERVAL_DS, timedelta():
            return interval(value)
        case OracleType.RAW, bytes() if not isinstance(value, RowId):
            return value
    raise TypeError(f"{column.name} is {column.type.name}, and its value {value!r} is not")
