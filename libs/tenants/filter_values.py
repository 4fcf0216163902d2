"""A row filter's values: a row in its JSON form, and a key by which rows can be found that a filter may let pass."""

import base64
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

WireRow = Mapping[str, Any]
"""Column values in their JSON form (``libs.types.value``), parsed; at least those that the filter names."""
Evaluate = Callable[[WireRow], Any]


@dataclass(frozen=True, slots=True)
class Interval:
    """Values between two; None: there is no bound."""

    low: Any = None
    high: Any = None
    has_low: bool = True
    """The lower bound is one of them."""
    has_high: bool = True

    def within(self, other: "Interval") -> "Interval":
        """Those that are in both."""
        low, has_low = _tighter((self.low, self.has_low), (other.low, other.has_low), operator.gt)
        high, has_high = _tighter((self.high, self.has_high), (other.high, other.has_high), operator.lt)
        return Interval(low, high, has_low, has_high)


_Bound = tuple[Any, bool]


def _tighter(one: _Bound, other: _Bound, is_tighter: Callable[[Any, Any], bool]) -> _Bound:
    if one[0] is None or other[0] is None:
        return one if other[0] is None else other
    if one[0] == other[0]:
        return one[0], one[1] and other[1]
    return one if is_tighter(one[0], other[0]) else other


@dataclass(frozen=True, slots=True)
class FilterKey:
    """Conjuncts of a condition that compare one column with literals: no row of another value can meet it."""

    column: str
    evaluate: Evaluate
    """The column's value in a row, as ``values`` are; the same function of all conditions over a table version's column.

    Raises:
        InvalidEvent: as ``CompiledFilter.matches``.
    """
    values: frozenset[Any] = frozenset()
    """Those of ``=``, ``IN`` and ``=`` between OR."""
    interval: Interval | None = None
    """That of ``<``, ``>`` and BETWEEN; None: the values."""
    is_whole: bool = False
    """The condition says nothing else: each row of such a value meets it."""


EXACT: Final = Context(prec=200)
"""MySQL's decimals have up to 65 digits; the default context would round them to 28."""


def decimal_of_wire(text: str, scale: int) -> Decimal:
    """A DECIMAL's JSON form as the number it stands for, all digits kept."""
    unscaled = int.from_bytes(base64.b64decode(text), "big", signed=True)
    return EXACT.scaleb(Decimal(unscaled), -scale)
