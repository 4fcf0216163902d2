"""A row filter's values: a row in its JSON form, and a key by which rows can be found that a filter may let pass."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

WireRow = Mapping[str, Any]
"""Column values in their JSON form (``libs.types.value``), parsed; at least those that the filter names."""
Evaluate = Callable[[WireRow], Any]


@dataclass(frozen=True, slots=True)
class FilterKey:
    """A conjunct ``column = literal`` or ``column IN (literals)`` of a condition: no row of another value can meet it."""

    column: str
    evaluate: Evaluate
    """The column's value in a row, as ``values`` are; the same function of all conditions over a table version's column.

    Raises:
        InvalidEvent: as ``CompiledFilter.matches``.
    """
    values: frozenset[Any]


EXACT: Final = Context(prec=200)
"""MySQL's decimals have up to 65 digits; the default context would round them to 28."""


def decimal_of_wire(text: str, scale: int) -> Decimal:
    """A DECIMAL's JSON form as the number it stands for, all digits kept."""
    unscaled = int.from_bytes(base64.b64decode(text), "big", signed=True)
    return EXACT.scaleb(Decimal(unscaled), -scale)
