"""Row events for a person to read: values in the spelling of a database, changes as before → after.

``headwater tail`` calls this. Events carry values in Debezium's forms (a decimal is base64 of its digits, a date a
number of days); the schema that stands beside them in the tenant's ``table-schemas`` topic says which is which.
"""

import base64
import binascii
import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

import orjson

from libs.types.table import TableSchema
from libs.types.value import UNAVAILABLE_VALUE, LogicalKind, LogicalType

LONGEST_VALUE: Final = 60
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_EXACT: Final = Context(prec=200)
"""MySQL's DECIMAL has 65 digits, and an Oracle NUMBER up to 126 before the point."""
_OPERATIONS: Final = {"c": "INSERT", "u": "UPDATE", "d": "DELETE", "r": "READ", "t": "TRUNCATE"}


@dataclass(frozen=True, slots=True)
class ReadableEvent:
    """One row event."""

    operation: str
    """INSERT, UPDATE, DELETE, READ (a snapshot's row), TRUNCATE."""
    key: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    committed_at: datetime.datetime | None
    """At the source, in UTC."""
    transaction_id: str | None

    @property
    def changes(self) -> tuple[tuple[str, Any, Any], ...]:
        """(column, before, after) of an UPDATE's changes."""
        if self.before is None or self.after is None:
            return ()
        names = dict.fromkeys((*self.after, *self.before))
        return tuple(
            (name, self.before.get(name), self.after.get(name))
            for name in names
            if self.before.get(name) != self.after.get(name)
        )


def read_event(key: bytes | None, value: bytes | None, schema: TableSchema | None) -> ReadableEvent | None:
    """The event of one record; None for a tombstone.

    Without ``schema`` values stay in Debezium's forms.

    Raises:
        ValueError: the record is no row event in JSON.
    """
    if value is None:
        return None
    payload = _payload(value)
    if not isinstance(payload, dict) or payload.get("op") not in _OPERATIONS:
        raise ValueError("no row event")
    source = payload.get("source") or {}
    ts_us = source.get("ts_us") or (source.get("ts_ms") or 0) * 1000
    types = {column.name: column.logical_type for column in schema.columns} if schema is not None else {}
    key_payload = _payload(key) if key else {}
    return ReadableEvent(
        operation=_OPERATIONS[payload["op"]],
        key=_spell_row(key_payload, types) or {},
        before=_spell_row(payload.get("before"), types),
        after=_spell_row(payload.get("after"), types),
        committed_at=_EPOCH + datetime.timedelta(microseconds=ts_us) if ts_us else None,
        transaction_id=source.get("gtid"),
    )


def spell(value: Any, logical_type: LogicalType) -> Any:
    """A value of an event as a database would print it; one that does not fit its type stays as it is."""
    if value is None or value == UNAVAILABLE_VALUE:
        return value
    spelling = _SPELLINGS.get(logical_type.kind)
    try:
        return value if spelling is None else spelling(value, logical_type)
    except (TypeError, ValueError, OverflowError, binascii.Error):
        return value


def shorten(value: Any) -> str:
    """One line of at most LONGEST_VALUE characters."""
    match value:
        case None:
            text = "NULL"
        case str():
            text = repr(value)
        case bool():
            text = str(value).lower()
        case _:
            text = str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _payload(content: bytes) -> Any:
    document = orjson.loads(content)
    # With ``schemas: true`` each key and value stands in an envelope of its own (Kafka Connect's JsonConverter).
    if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
        return document["payload"]
    return document


def _spell_row(row: Any, types: Mapping[str, LogicalType]) -> Mapping[str, Any] | None:
    if not isinstance(row, dict):
        return None
    return {name: spell(value, types[name]) if name in types else value for name, value in row.items()}


def _decimal(value: str, logical_type: LogicalType) -> Decimal:
    unscaled = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
    return Decimal(unscaled).scaleb(-logical_type.scale, _EXACT)


def _own_scale(value: Mapping[str, Any], _: LogicalType) -> str:
    unscaled = int.from_bytes(base64.b64decode(value["value"], validate=True), "big", signed=True)
    return f"{Decimal(unscaled).scaleb(-value['scale'], _EXACT):f}"


def _time(value: int, _: LogicalType) -> str:
    sign = "-" if value < 0 else ""
    seconds, micros = divmod(abs(value), 1_000_000)
    clock = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{clock}.{micros:06d}".rstrip("0") if micros else clock


def _date(value: int, _: LogicalType) -> str:
    return (_EPOCH + datetime.timedelta(days=value)).date().isoformat()


def _timestamp_ms(value: int, _: LogicalType) -> str:
    return (_EPOCH + datetime.timedelta(milliseconds=value)).isoformat(" ")


def _timestamp_us(value: int, _: LogicalType) -> str:
    return (_EPOCH + datetime.timedelta(microseconds=value)).isoformat(" ")


def _bytes(value: str, _: LogicalType) -> str:
    return f"0x{base64.b64decode(value, validate=True).hex()}"


_SPELLINGS: Final[Mapping[LogicalKind, Callable[[Any, LogicalType], Any]]] = {
    LogicalKind.DECIMAL: _decimal,
    LogicalKind.VARIABLE_SCALE_DECIMAL: _own_scale,
    LogicalKind.MICRO_TIME: _time,
    LogicalKind.DATE: _date,
    LogicalKind.TIMESTAMP_MS: _timestamp_ms,
    LogicalKind.TIMESTAMP_US: _timestamp_us,
    LogicalKind.BYTES: _bytes,
    LogicalKind.BASE64: _bytes,
    LogicalKind.CONNECT_DATE: _date,
    LogicalKind.CONNECT_TIMESTAMP: _timestamp_ms,
    LogicalKind.TIMESTAMP_NS: lambda value, logical_type: _timestamp_us(value // 1000, logical_type),
    LogicalKind.TIME_MS: lambda value, logical_type: _time(value * 1000, logical_type),
    LogicalKind.CONNECT_TIME: lambda value, logical_type: _time(value * 1000, logical_type),
    LogicalKind.TIME_NS: lambda value, logical_type: _time(value // 1000, logical_type),
}
