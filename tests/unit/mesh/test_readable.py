"""Row events for a person to read."""

import datetime
from decimal import Decimal
from typing import Any

import orjson
import pytest

from libs.mesh.readable import read_event, shorten, spell
from libs.mesh.tenant_topics import parse_row_topic
from libs.types.table import Column, TableId, TableSchema
from libs.types.value import LogicalKind, LogicalType

SCHEMA = TableSchema(
    table_id=TableId(database="shop", table="orders"),
    columns=(
        Column(name="id", source_type="bigint", logical_type=LogicalType(kind=LogicalKind.INT64)),
        Column(
            name="total",
            source_type="decimal(8,2)",
            logical_type=LogicalType(kind=LogicalKind.DECIMAL, precision=8, scale=2),
        ),
    ),
    key=("id",),
)


def event(op: str, before: Any, after: Any, *, wrapped: bool = False) -> bytes:
    payload = {"before": before, "after": after, "source": {"ts_us": 1_000_000, "gtid": "g:1"}, "op": op}
    return orjson.dumps({"schema": {}, "payload": payload} if wrapped else payload)


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_update_tells_what_changed(wrapped: bool) -> None:
    """With and without schemas in the message; decimals as numbers, times in UTC."""
    found = read_event(
        orjson.dumps({"id": 7}),
        event("u", {"id": 7, "total": "BMk="}, {"id": 7, "total": "BMo="}, wrapped=wrapped),
        SCHEMA,
    )

    assert found is not None
    assert found.operation == "UPDATE"
    assert found.key == {"id": 7}
    assert found.changes == (("total", Decimal("12.25"), Decimal("12.26")),)
    assert found.committed_at == datetime.datetime(1970, 1, 1, 0, 0, 1)
    assert found.transaction_id == "g:1"


def test_a_column_that_came_between_shows_as_changed() -> None:
    """Before an ADD COLUMN the row had no such column."""
    found = read_event(None, event("u", {"id": 1}, {"id": 1, "channel": "web"}), None)

    assert found is not None
    assert found.changes == (("channel", None, "web"),)


def test_a_tombstone_is_no_event() -> None:
    """It follows its delete and says nothing more."""
    assert read_event(b'{"id":1}', None, SCHEMA) is None


@pytest.mark.parametrize("value", [b"not json", b"[1]", b'{"status":"BEGIN"}'])
def test_what_is_no_row_event_is_refused(value: bytes) -> None:
    """The caller says so and goes on."""
    with pytest.raises(ValueError):
        read_event(None, value, SCHEMA)


@pytest.mark.parametrize(
    ("kind", "value", "spelt"),
    [
        (LogicalKind.DATE, -1, "1969-12-31"),
        (LogicalKind.MICRO_TIME, -3_600_000_001, "-01:00:00.000001"),
        (LogicalKind.MICRO_TIME, 90_000_000_000, "25:00:00"),
        (LogicalKind.TIMESTAMP_MS, 1_500, "1970-01-01 00:00:01.500000"),
        (LogicalKind.BYTES, "AAE=", "0x0001"),
        (LogicalKind.BYTES, "not base64!", "not base64!"),
        (LogicalKind.DATE, 10**12, 10**12),
        (LogicalKind.STRING, "x", "x"),
        (LogicalKind.DATE, None, None),
        (LogicalKind.DECIMAL, "__debezium_unavailable_value", "__debezium_unavailable_value"),
    ],
)
def test_values_are_spelt_as_a_database_would(kind: LogicalKind, value: Any, spelt: Any) -> None:
    """A value that does not fit its type stays as it came."""
    assert spell(value, LogicalType(kind=kind)) == spelt


def test_long_values_are_cut() -> None:
    """One event, one line."""
    assert len(shorten("x" * 500)) == 60
    assert shorten(None) == "NULL"
    assert shorten("a\nb") == r"'a\nb'"


@pytest.mark.parametrize(
    ("topic", "table"),
    [
        ("acme.shop.shop.orders", "orders"),
        ("acme.shop.shop.odd.name", "odd.name"),
        ("acme.shop", None),
        ("acme.shop.transaction", None),
        ("acme.headwater.table-schemas", None),
        ("acme.dead-letter", None),
        ("headwater.checkpoints", None),
    ],
)
def test_row_topics_are_told_from_others(topic: str, table: str | None) -> None:
    """By their four parts."""
    parsed = parse_row_topic(topic)

    assert (parsed.table if parsed is not None else None) == table
