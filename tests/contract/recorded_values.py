"""The value that a warehouse should hold for one that Debezium recorded, reckoned in plain Python from its JSON."""

import base64
import datetime
import json
import struct
from decimal import Context, Decimal
from typing import Any

from libs.types.table import Column
from libs.types.value import LogicalKind

EXACT = Context(prec=100)
EPOCH = datetime.datetime(1970, 1, 1)


def expected(item: Column, wire: Any) -> Any:
    """The value as Arrow gives it."""
    if wire is None:
        return None
    match item.logical_type.kind:
        case LogicalKind.INT64 if "unsigned" in item.source_type and item.source_type.startswith("bigint"):
            return wire % 2**64
        case LogicalKind.DECIMAL:
            exact = scaled(int.from_bytes(base64.b64decode(wire), "big", signed=True), item.logical_type.scale)
            return exact if item.logical_type.precision <= 38 else f"{exact:f}"
        case LogicalKind.BYTES | LogicalKind.BITS:
            return base64.b64decode(wire)
        case LogicalKind.DATE:
            return EPOCH.date() + datetime.timedelta(days=wire)
        case LogicalKind.TIMESTAMP_MS:
            return EPOCH + datetime.timedelta(milliseconds=wire)
        case LogicalKind.TIMESTAMP_US:
            return EPOCH + datetime.timedelta(microseconds=wire)
        case LogicalKind.ZONED_TIMESTAMP:
            return datetime.datetime.fromisoformat(wire)
        case LogicalKind.FLOAT32:
            return as_float32(wire)
        case LogicalKind.GEOMETRY | LogicalKind.POINT | LogicalKind.FLOAT_VECTOR:
            return _Json(wire)
        case _:
            return wire


class _Json:
    """Equal to every text of the same document."""

    def __init__(self, document: Any) -> None:
        self._document = document

    def __eq__(self, text: object) -> bool:
        return isinstance(text, str) and json.loads(text) == self._document


def scaled(unscaled: int, scale: int) -> Decimal:
    """The number of a DECIMAL."""
    return Decimal(unscaled).scaleb(-scale, EXACT)


def as_float32(number: float) -> float:
    """The double that a FLOAT stands for."""
    return float(struct.unpack("f", struct.pack("f", number))[0])
