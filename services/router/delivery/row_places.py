"""The rows of a run that each group of tenants may get, by an index over the groups' filters."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from libs.events.batch import OP_KEY_CHANGE_CREATE, OP_KEY_CHANGE_DELETE
from services.router.delivery.run_values import RunValues
from services.router.routes.filter_index import ColumnIndex

KEY_CHANGE: Final = bytes((OP_KEY_CHANGE_DELETE, OP_KEY_CHANGE_CREATE))
"""The operations of a changed key: two rows side by side."""


class JudgedRows(NamedTuple):
    """The row that a group judges."""

    places: Sequence[int]
    """Of rows of the run, in order; a changed key by its first half."""
    is_judged: bool = False
    """The group's filters hold of all of them, before and after."""


def places_by_group(rows: RunValues, column: ColumnIndex) -> tuple[bool, dict[int, list[int]]]:
    """For each group that a row of the run may be for, the rows, in order; of a changed key both halves. And whether each row's
    value, before and after, is one that the group wants."""
    sides = None if rows.cuts is None or column.place is None else rows.cuts.values(column.place)
    if sides is not None and (wanted := _wanted(rows.ops, sides, column)) is not None:
        return wanted
    found: dict[int, list[int]] = {}
    ops, values = rows.ops, rows.values
    for place, is_pair in starts_of(rows):
        numbers = column.candidates(ops[place], values[place]).numbers
        if is_pair:
            numbers = sorted({*numbers, *column.candidates(ops[place + 1], values[place + 1]).numbers})
        for number in numbers:
            found.setdefault(number, []).append(place)
    return False, found


_Side = Sequence[bytes | None]


def _wanted(ops: bytes, sides: tuple[_Side, _Side], column: ColumnIndex) -> tuple[bool, dict[int, list[int]]] | None:
    """As ``places_by_group``, by a column's values; None: one of them cannot be judged."""
    found: dict[int, list[int]] = {}
    is_judged = True
    for place, (before, after) in enumerate(zip(*sides, strict=True)):
        value = before if after is None else after
        numbers = None if value is None else column.wanted_by(value)
        if numbers is None:
            return None
        if before is not None and before != value:
            left = column.wanted_by(before)
            if left is None:
                return None
            if left != numbers:
                is_judged = False
                numbers = tuple(sorted({*left, *numbers}))
        for number in numbers:
            if number in found:
                found[number].append(place)
            else:
                found[number] = [place]
    return is_judged, found


def starts_of(rows: RunValues) -> Iterator[tuple[int, bool]]:
    """The places of rows, and whether the two halves of a changed key begin there."""
    if not rows.has_key_changes:
        yield from ((place, False) for place in range(len(rows.run)))
        return
    place = 0
    while place < len(rows.run):
        is_pair = rows.ops[place : place + 2] == KEY_CHANGE
        yield place, is_pair
        place += 2 if is_pair else 1
