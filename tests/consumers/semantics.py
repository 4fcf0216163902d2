"""Debezium's and Connect's logical types, read by their documentation: a published value in Python's values.

Shares no code with the product. Debezium documentation, MySQL connector, "Data type mappings".
"""

import base64
import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import orjson

Field = Mapping[str, Any]
"""Of a Connect schema, as JsonConverter writes it."""

_EPOCH: Final = dt.datetime(1970, 1, 1)


def fields_of(event: Mapping[str, Any]) -> dict[str, Field]:
    """Each column's field, of an event that carries its schemas."""
    [image] = [field for field in event["schema"]["fields"] if field["field"] == "after"]
    return {field["field"]: field for field in image["fields"]}


def read(field: Field, value: Any) -> Any:
    """The value that ``field`` says ``value`` is."""
    if value is None:
        return None
    name = field.get("name", "")
    if name in _READERS:
        return _READERS[name](field, value)
    if field["type"] == "bytes":
        return _bytes(value)
    return value


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value) if isinstance(value, str) else bytes(value)


def _decimal(field: Field, value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    unscaled = int.from_bytes(_bytes(value), "big", signed=True)
    return Decimal(unscaled).scaleb(-int(field["parameters"]["scale"]))


def _date(_: Field, value: Any) -> dt.date:
    return value if isinstance(value, dt.date) else (_EPOCH + dt.timedelta(days=value)).date()


def _moment(units_per_s: int) -> Callable[[Field, Any], dt.datetime]:
    def read_moment(_: Field, value: Any) -> dt.datetime:
        if isinstance(value, dt.datetime):
            return value.replace(tzinfo=None)
        return _EPOCH + dt.timedelta(microseconds=value * (1_000_000 // units_per_s))

    return read_moment


def _time(units_per_s: int) -> Callable[[Field, Any], dt.time]:
    def read_time(_: Field, value: Any) -> dt.time:
        if isinstance(value, dt.time):
            return value
        return (_EPOCH + dt.timedelta(microseconds=value * (1_000_000 // units_per_s))).time()

    return read_time


def _zoned(_: Field, value: str) -> dt.datetime:
    return dt.datetime.fromisoformat(value).astimezone(dt.UTC).replace(tzinfo=None)


_READERS: Final[dict[str, Callable[[Field, Any], Any]]] = {
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "org.apache.kafka.connect.data.Date": _date,
    "org.apache.kafka.connect.data.Time": _time(1_000),
    "org.apache.kafka.connect.data.Timestamp": _moment(1_000),
    "io.debezium.time.Date": _date,
    "io.debezium.time.Time": _time(1_000),
    "io.debezium.time.MicroTime": _time(1_000_000),
    "io.debezium.time.Timestamp": _moment(1_000),
    "io.debezium.time.MicroTimestamp": _moment(1_000_000),
    "io.debezium.time.ZonedTimestamp": _zoned,
    "io.debezium.data.Json": lambda _, value: orjson.loads(value),
}
