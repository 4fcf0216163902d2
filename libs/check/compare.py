"""Two streams of rows in key order become a list of differences; neither stream is ever held whole."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

MISSING: Final = object()

MOST_SUSPECTS: Final = 10_000
"""So many keys of rows that differ are kept, to look at them again."""

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """One cell that differs, or (``column`` is None) one row that only one side has."""

    key: Row
    column: str | None
    source: Any
    """The source's value; for a row that is missing there, ``MISSING``."""
    warehouse: Any


@dataclass(slots=True)
class Comparison:
    """The result of comparing one table."""

    rows_compared: int = 0
    """Keys seen on either side."""
    rows_different: int = 0
    cells_compared: int = 0
    first: list[Difference] = field(default_factory=list)
    """The first differences, at most the limit that was asked for."""
    suspects: list[Row] = field(default_factory=list)
    """Keys of the rows that differ, at most MOST_SUSPECTS; none of a table without a key."""


def together(first: Comparison, second: Comparison, limit: int) -> Comparison:
    """The results of two comparisons, added up."""
    return Comparison(
        rows_compared=first.rows_compared + second.rows_compared,
        rows_different=first.rows_different + second.rows_different,
        cells_compared=first.cells_compared + second.cells_compared,
        first=[*first.first, *second.first][:limit],
        suspects=[*first.suspects, *second.suspects][:MOST_SUSPECTS],
    )


def compare_sorted(
    source: Iterable[Row],
    warehouse: Iterable[Row],
    *,
    columns: Sequence[str],
    key: Sequence[str],
    limit: int,
    unlogged: Sequence[int] = (),
) -> Comparison:
    """Merge two streams of canonical rows, both in key order; a key that stands twice on a side is a difference. ``unlogged``:
    see ``as_logged``.

    Raises:
        ValueError: a stream is not in order: a fault of its sorter.
    """
    places = tuple(columns.index(name) for name in key)
    found = Comparison()
    source_rows = _keyed(source, places, "source")
    warehouse_rows = _keyed(warehouse, places, "warehouse")
    left, right = next(source_rows, None), next(warehouse_rows, None)
    while left is not None or right is not None:
        found.rows_compared += 1
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            note(found, [Difference(left[0], None, left[1], MISSING)], limit)
            left = next(source_rows, None)
        elif left is None or right[0] < left[0]:
            note(found, [Difference(right[0], None, MISSING, right[1])], limit)
            right = next(warehouse_rows, None)
        else:
            found.cells_compared += len(columns)
            if left[1] != right[1] and left[1] != (logged := as_logged(right[1], left[1], unlogged)):
                note(found, cells(left[0], left[1], logged, columns), limit)
            left, right = next(source_rows, None), next(warehouse_rows, None)
    return found


def compare_by_key(
    source: Iterable[Row],
    warehouse: Iterable[Row],
    *,
    columns: Sequence[str],
    key: Sequence[str],
    limit: int,
    unlogged: Sequence[int] = (),
) -> Comparison:
    """As ``compare_sorted``, in any order; holds every row in memory.

    For keys that a mask changed, so that the source cannot sort by them.
    """
    places = tuple(columns.index(name) for name in key)

    def in_order(rows: Iterable[Row]) -> list[Row]:
        return sorted(rows, key=lambda row: tuple(row[place] for place in places))

    return compare_sorted(
        in_order(source), in_order(warehouse), columns=columns, key=key, limit=limit, unlogged=unlogged
    )


def as_logged(warehouse: Row, source: Row, unlogged: Sequence[int]) -> Row:
    """``warehouse`` with the source's values where a log has NULL in a column that takes none at the source: the entry is older
    than the column, or its change did not bring the value. ``unlogged``: the places of such columns."""
    if not any(warehouse[place] is None for place in unlogged):
        return warehouse
    filled = list(warehouse)
    for place in unlogged:
        filled[place] = source[place] if filled[place] is None else filled[place]
    return tuple(filled)


def compare_as_bags(source: Iterable[Row], warehouse: Iterable[Row], *, limit: int) -> Comparison:
    """Compare tables without a key: each row must stand as often on one side as on the other.

    Holds one entry for each distinct row in memory.
    """
    counts: dict[str, int] = {}
    samples: dict[str, Row] = {}
    found = Comparison()
    for rows, step in ((source, 1), (warehouse, -1)):
        for row in rows:
            found.rows_compared += step > 0
            found.cells_compared += len(row) if step > 0 else 0
            identity = repr(tuple(_identity(value) for value in row))
            counts[identity] = counts.get(identity, 0) + step
            if counts[identity] == 0:
                samples.pop(identity, None)
                del counts[identity]
            else:
                samples[identity] = row
    for identity, count in counts.items():
        for _ in range(abs(count)):
            row = samples[identity]
            note(found, [Difference((), None, row if count > 0 else MISSING, row if count < 0 else MISSING)], limit)
    return found


def _keyed(rows: Iterable[Row], places: Sequence[int], side: str) -> Iterator[tuple[Row, Row]]:
    previous: Row | None = None
    for row in rows:
        key = tuple(row[place] for place in places)
        if previous is not None and key < previous:
            raise ValueError(f"the {side}'s rows are not in key order")
        previous = key
        yield key, row


def _identity(value: Any) -> Any:
    """A form whose repr is equal for equal values."""
    match value:
        case Decimal():
            return value.normalize()
        case dict():
            return sorted((name, _identity(inner)) for name, inner in value.items())
        case list():
            return [_identity(inner) for inner in value]
        case bool():
            return value
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def cells(key: Row, source: Row, warehouse: Row, columns: Sequence[str]) -> list[Difference]:
    """The cells of one row that differ."""
    return [
        Difference(key, name, left, right)
        for name, left, right in zip(columns, source, warehouse, strict=True)
        if left != right
    ]


def note(found: Comparison, differences: Sequence[Difference], limit: int) -> None:
    """Count one row that differs, and keep ``differences``, its cells, as long as there are fewer than ``limit``."""
    found.rows_different += 1
    if len(found.suspects) < MOST_SUSPECTS and differences[0].key:
        found.suspects.append(differences[0].key)
    found.first.extend(differences[: max(0, limit - len(found.first))])
