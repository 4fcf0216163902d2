"""The filters of a table version as an index: which tenants' conditions a row can meet at all, by one look-up.

The most common filter is ``tenant_code = '<own>'``. Asked one after the other, a thousand of them cost a row 5,500 µs of CPU.
A row's value is cut out once, and the groups that want it are looked up; the rest of a condition is asked of these alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from libs.errors import InvalidEvent
from libs.events.batch import OP_DELETE, OP_KEY_CHANGE_DELETE, OP_TRUNCATE, OP_UPDATE
from libs.tenants.filter_values import FilterKey
from services.router.project import Projection

_LEAST_GROUPS: Final = 4
"""With fewer, asking each costs no more than the look-up."""


class Candidates(NamedTuple):
    """The groups that a row is asked of."""

    numbers: Sequence[int]
    """By their places among the routes' groups."""
    is_all: bool = False
    """The row cannot be judged by its value: each group sees to it by itself."""


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """The groups whose conditions want certain values of one column."""

    column: str
    numbers: tuple[int, ...]
    by_value: Mapping[Any, tuple[int, ...]]
    key: FilterKey
    """Of one of them: how the column is read."""
    decode: Any
    """Of an event: its two images with this column alone."""

    def candidates(self, op: int, event: bytes) -> Candidates:
        """Who may get something of an event. An update is looked at on both sides: a row may leave one tenant for another."""
        if op == OP_TRUNCATE:
            return Candidates(self.numbers, is_all=True)
        try:
            images = self.decode(event)
            if op == OP_UPDATE:
                before, after = self._of(images.before), self._of(images.after)
                return Candidates(before if before == after else sorted({*before, *after}))
            is_gone = op in (OP_DELETE, OP_KEY_CHANGE_DELETE)
            return Candidates(self._of(images.before if is_gone else images.after))
        except (InvalidEvent, msgspec.DecodeError, KeyError, TypeError):
            return Candidates(self.numbers, is_all=True)

    def _of(self, image: Any) -> tuple[int, ...]:
        """Raises KeyError where the image, or its column, is not there."""
        if image is None or image.value is msgspec.UNSET:
            raise KeyError(self.column)
        return self.by_value.get(self.key.evaluate({self.column: image.value}), ())


@dataclass(frozen=True, slots=True, eq=False)
class FilterIndex:
    """Of all groups of a table version. Compared by identity: who was told something by it is remembered so."""

    columns: tuple[ColumnIndex, ...]
    others: tuple[int, ...]
    """Groups that are asked about every row."""


def filter_index(projections: Iterable[Projection]) -> FilterIndex | None:
    """The index of groups with these projections; None where it would gain nothing."""
    keys: dict[str, dict[int, FilterKey]] = defaultdict(dict)
    others: list[int] = []
    for number, projection in enumerate(projections):
        key = next((each.key for each in projection.filters if each.key is not None), None)
        if key is None:
            others.append(number)
        else:
            keys[key.column][number] = key
    columns: list[ColumnIndex] = []
    for column, of_groups in keys.items():
        if len(of_groups) < _LEAST_GROUPS:
            others += of_groups
        else:
            columns.append(_column_index(column, of_groups))
    return FilterIndex(tuple(columns), tuple(sorted(others))) if columns else None


def _column_index(column: str, keys: Mapping[int, FilterKey]) -> ColumnIndex:
    by_value: dict[Any, list[int]] = defaultdict(list)
    for number, key in keys.items():
        for value in key.values:
            by_value[value].append(number)
    image = msgspec.defstruct("Image", [("value", Any, msgspec.UNSET)], rename={"value": column})
    images = msgspec.defstruct("Images", [("before", image | None), ("after", image | None)])
    return ColumnIndex(
        column,
        tuple(keys),
        {value: tuple(numbers) for value, numbers in by_value.items()},
        next(iter(keys.values())),
        msgspec.json.Decoder(images).decode,
    )
