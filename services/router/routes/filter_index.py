"""The filters of a table version as an index: which tenants' conditions a row can meet at all, by one look-up.

The most common filter is ``tenant_code = '<own>'``. Asked one after the other, a thousand of them cost a row 5,500 µs of CPU.
A column's value is cut out of a row once, and the groups that want it are looked up: by the value, or by the interval that it
lies in. The rest of a condition is asked of these alone, and nothing where there is no rest.
"""

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from libs.errors import InvalidEvent
from libs.events.batch import OP_DELETE, OP_KEY_CHANGE_DELETE, OP_TRUNCATE, OP_UPDATE
from libs.tenants.filter_values import FilterKey, Interval
from services.router.routes.project import Projection, openings_of

_MOST_PLACES: Final = 1_000_000
"""Of intervals that lie over one another: so many times a group may stand in the index of a column, 8 bytes each."""
_KEPT_VALUES: Final = 10_000
"""Of a column, whose groups are known without reading them."""

_decode_value = msgspec.json.Decoder().decode


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
    place: int | None
    """Among the table's columns; None: not known."""
    numbers: tuple[int, ...]
    judged: frozenset[int]
    """Of them, those whose conditions say nothing else: a row of such a value is theirs."""
    by_value: Mapping[Any, tuple[int, ...]]
    bounds: tuple[Any, ...]
    """Of the intervals, in order."""
    between: tuple[tuple[int, ...], ...]
    """Below the first bound, at it, between it and the next, and so on."""
    key: FilterKey
    """Of one of them: how the column is read."""
    decode: Any
    """Of an event: its two images with this column alone."""
    _known: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    """By a value's JSON."""

    def candidates(self, op: int, event: bytes) -> Candidates:
        """The groups that may get an event. An update counts on both sides: a row may leave one tenant for another."""
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

    def wanted_by(self, value: bytes) -> tuple[int, ...] | None:
        """The groups that want a value, which is given as JSON; None: it cannot be judged."""
        numbers = self._known.get(value)
        if numbers is None:
            try:
                numbers = self._of_value(_decode_value(value))
            except (InvalidEvent, msgspec.DecodeError, KeyError, TypeError):
                return None
            if len(self._known) >= _KEPT_VALUES:
                self._known.clear()
            self._known[value] = numbers
        return numbers

    def _of(self, image: Any) -> tuple[int, ...]:
        """Raises KeyError where the image, or its column, is not there."""
        if image is None or image.value is msgspec.UNSET:
            raise KeyError(self.column)
        return self._of_value(image.value)

    def _of_value(self, wire: Any) -> tuple[int, ...]:
        """Raises as ``FilterKey.evaluate``."""
        value = self.key.evaluate({self.column: wire})
        found = self.by_value.get(value, ())
        if not self.bounds or value is None:
            return found
        place = bisect_left(self.bounds, value)
        is_bound = place < len(self.bounds) and self.bounds[place] == value
        inside = self.between[2 * place + is_bound]
        return (*found, *inside) if found and inside else found or inside


@dataclass(frozen=True, slots=True, eq=False)
class FilterIndex:
    """Of all groups of a table version. Compared by identity, by which the caller remembers its receivers."""

    columns: tuple[ColumnIndex, ...]
    others: tuple[int, ...]
    """Groups that are asked about every row."""


def filter_index(projections: Iterable[Projection]) -> FilterIndex | None:
    """The index of groups with these projections; None where it would gain nothing."""
    keys: dict[str, dict[int, FilterKey]] = defaultdict(dict)
    judged: set[int] = set()
    others: list[int] = []
    columns: tuple[bytes, ...] = ()
    for number, projection in enumerate(projections):
        key = _narrowest(projection)
        if key is None:
            others.append(number)
            continue
        columns = projection.columns
        keys[key.column][number] = key
        if key.is_whole and len(projection.filters) == 1:
            judged.add(number)
    found: list[ColumnIndex] = []
    for column, of_groups in keys.items():
        taken, left = _fitting(of_groups)
        others += left
        found.append(_column_index(column, columns, taken, judged))
    return FilterIndex(tuple(found), tuple(sorted(others))) if found else None


def _narrowest(projection: Projection) -> FilterKey | None:
    """One with values, else an interval."""
    keys = [each.key for each in projection.filters if each.key is not None]
    return next((key for key in keys if key.interval is None), next(iter(keys), None))


def _fitting(keys: Mapping[int, FilterKey]) -> tuple[dict[int, FilterKey], list[int]]:
    """Those that the index takes in, and the numbers of those that would make it too large."""
    bounds = _bounds(keys.values())
    taken, left, places = dict(keys), [], 0
    for number, key in keys.items():
        if key.interval is None:
            continue
        begin, end = _span(bounds, key.interval)
        places += max(end - begin, 0)
        if places > _MOST_PLACES:
            places -= max(end - begin, 0)
            left.append(number)
            del taken[number]
    return taken, left


def _bounds(keys: Iterable[FilterKey]) -> list[Any]:
    of_intervals = (key.interval for key in keys if key.interval is not None)
    return sorted({bound for each in of_intervals for bound in (each.low, each.high) if bound is not None})


def _span(bounds: Sequence[Any], interval: Interval) -> tuple[int, int]:
    """Of an interval in ``ColumnIndex.between``: from, and up to without it."""
    begin, end = 0, 2 * len(bounds) + 1
    if interval.low is not None:
        begin = 2 * bisect_left(bounds, interval.low) + (1 if interval.has_low else 2)
    if interval.high is not None:
        end = 2 * bisect_left(bounds, interval.high) + (2 if interval.has_high else 1)
    return begin, end


def _column_index(
    column: str, columns: tuple[bytes, ...], keys: Mapping[int, FilterKey], judged: Iterable[int]
) -> ColumnIndex:
    by_value: dict[Any, list[int]] = defaultdict(list)
    bounds = _bounds(keys.values())
    between: list[list[int]] = [[] for _ in range(2 * len(bounds) + 1)]
    for number, key in keys.items():
        for value in key.values:
            by_value[value].append(number)
        if key.interval is not None:
            for inside in itertools.islice(between, *_span(bounds, key.interval)):
                inside.append(number)
    (opening,) = openings_of((column,))
    return ColumnIndex(
        column,
        columns.index(opening) if opening in columns else None,
        tuple(keys),
        frozenset(judged).intersection(keys),
        {value: tuple(numbers) for value, numbers in by_value.items()},
        tuple(bounds),
        tuple(map(tuple, between)),
        next(iter(keys.values())),
        _images_decoder(column),
    )


class _Image(NamedTuple):
    value: Any


class _Images(NamedTuple):
    before: _Image | None
    after: _Image | None


class _WholeImages(msgspec.Struct):
    before: dict[str, Any] | None
    after: dict[str, Any] | None


def _images_decoder(column: str) -> Callable[[bytes], Any]:
    """Of an event its two images, each with the value of this column."""
    try:
        image = msgspec.defstruct("Image", [("value", Any, msgspec.UNSET)], rename={"value": column})
    except ValueError:  # msgspec takes no name with a quote, a backslash or a control character
        decode = msgspec.json.Decoder(_WholeImages).decode

        def value_of(image: dict[str, Any] | None) -> _Image | None:
            return None if image is None else _Image(image.get(column, msgspec.UNSET))

        def images_of(event: bytes) -> _Images:
            whole = decode(event)
            return _Images(value_of(whole.before), value_of(whole.after))

        return images_of
    images = msgspec.defstruct("Images", [("before", image | None), ("after", image | None)])
    return msgspec.json.Decoder(images).decode
