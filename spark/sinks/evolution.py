"""What must change for a warehouse's table to hold a newer source schema: plain functions over names of types.

Which types a table may be changed between in place is each warehouse's own; that nothing is dropped or narrowed is not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spark.sinks.port import SinkColumn, SinkTable, TableRefused


@dataclass(frozen=True, slots=True)
class Evolution:
    """What a table's schema lacks."""

    added: tuple[SinkColumn, ...]
    widened: tuple[SinkColumn, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.widened)


def evolution(
    current: Mapping[str, str],
    table: SinkTable,
    *,
    type_of: Callable[[SinkColumn], str],
    is_wider: Callable[[str, str], bool],
) -> Evolution:
    """What to add to and widen in the ``current`` columns (name to type); nothing is ever dropped.

    ``type_of``: which type a column should have; ``is_wider(new, old)``: whether the warehouse can turn the old type into
    the new one in place, and every value fits.

    Raises:
        TableRefused: a column became another type that its old values do not fit.
    """
    known = {name.lower(): current_type for name, current_type in current.items()}
    added, widened = [], []
    for column in table.columns:
        current_type, wanted = known.get(column.name.lower()), type_of(column)
        if current_type is None:
            added.append(column)
        elif is_wider(wanted, current_type):
            widened.append(column)
        elif wanted != current_type and not is_wider(current_type, wanted):
            raise TableRefused(
                f"{table.name}: column {column.name} was {current_type} and is {wanted} now, which the stored "
                "values do not fit; rename the column at the source, or write the "
                "tenant's tables anew (docs/sinks.md, 'Write tables anew')"
            )
    return Evolution(tuple(added), tuple(widened))
