"""The memory of a lane's routes across changes of a tenant's document: tenants by table, and the views of table versions.

A book of routes is made again with each change of the tenants. With 1,000 tenants and 50,000 tables that took minutes of CPU.
So the part of it that the tenants' own documents decide is kept here, and mended for those alone whose documents changed.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from libs.errors import is_of_all
from libs.formats.connect_schema import EnvelopeForm
from libs.tenants.row_filter import CompiledFilter
from libs.types.patterns import any_table, literal_prefix
from libs.types.table import TableId, TableSchema
from libs.types.tenant import SourceSelection
from services.router.routes.encode import EventSchemas
from services.router.routes.project import Projection

_MOST_CHANGES: Final = 100
"""Of documents, that a table's tenants are mended by; of more they are found again."""


class _Patterns(NamedTuple):
    """Of a selection: which tables it is of. Tenants with equal ones are asked together."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]

    def select(self, name: str) -> bool:
        """Whether ``database.table`` is selected; where that cannot be judged it counts as selected, and is refused later."""
        try:
            return any_table(self.include, name) and not any_table(self.exclude, name)
        except Exception as error:
            if is_of_all(error):
                raise
            return True


class SeenTables:
    """Which tenants see which tables of a source."""

    def __init__(self) -> None:
        self._patterns: dict[str, _Patterns] = {}
        """By tenant."""
        self._tenants: dict[str, dict[_Patterns, set[str]]] = {}
        """By the common beginning of every table of an include, and by patterns."""
        self._lengths: Counter[int] = Counter()
        """Of these beginnings: how many there are of a length."""
        self._changes: list[frozenset[str]] = []
        """The tenants whose patterns changed, at each change since ``_first``."""
        self._first = 0
        self._seen: dict[TableId, tuple[int, tuple[str, ...]]] = {}
        """How many changes there had been when that was found."""
        self._alike: dict[tuple[str, ...], tuple[str, ...]] = {}
        """Each set of tenants once."""

    def take(self, selections: Mapping[str, SourceSelection]) -> None:
        """From now on these tenants, and no others, with these selections."""
        changed = self._patterns.keys() - selections.keys()
        for tenant, selection in selections.items():
            patterns = self._patterns.get(tenant)
            if (
                patterns is None
                or patterns.include != selection.include_tables
                or patterns.exclude != selection.exclude_tables
            ):
                changed.add(tenant)
        if not changed:
            return
        for tenant in changed:
            self._forget(tenant)
            if tenant in selections:
                self._add(tenant, selections[tenant])
        self._alike.clear()
        self._changes.append(frozenset(changed))
        if len(self._changes) > _MOST_CHANGES:
            self._first += 1
            del self._changes[0]

    def who(self, table_id: TableId) -> tuple[str, ...]:
        """The tenants that see a table, by their names; the same object for tables that the same ones see."""
        known, number = self._seen.get(table_id), self._first + len(self._changes)
        if known is not None and known[0] == number:
            return known[1]
        name = str(table_id)
        if known is None or known[0] < self._first:
            found = self._found(name)
        else:
            changed = frozenset[str]().union(*self._changes[known[0] - self._first :])
            now = {each for each in changed if each in self._patterns and self._patterns[each].select(name)}
            if now == changed.intersection(known[1]):
                self._seen[table_id] = (number, known[1])
                return known[1]
            found = now.union(known[1]) - (changed - now)
        tenants = tuple(sorted(found))
        tenants = self._alike.setdefault(tenants, tenants)
        self._seen[table_id] = (number, tenants)
        return tenants

    def _found(self, name: str) -> set[str]:
        found: set[str] = set()
        selected: dict[_Patterns, bool] = {}
        for length in self._lengths:
            for patterns, tenants in self._tenants.get(name[:length], _NOBODY).items():
                if patterns not in selected:
                    selected[patterns] = patterns.select(name)
                if selected[patterns]:
                    found |= tenants
        return found

    def _add(self, tenant: str, selection: SourceSelection) -> None:
        patterns = self._patterns[tenant] = _Patterns(selection.include_tables, selection.exclude_tables)
        for prefix in {literal_prefix(each) for each in patterns.include}:
            if prefix not in self._tenants:
                self._tenants[prefix] = {}
                self._lengths[len(prefix)] += 1
            self._tenants[prefix].setdefault(patterns, set()).add(tenant)

    def _forget(self, tenant: str) -> None:
        patterns = self._patterns.pop(tenant, None)
        if patterns is None:
            return
        for prefix in {literal_prefix(each) for each in patterns.include}:
            tenants = self._tenants[prefix]
            tenants[patterns].discard(tenant)
            if not tenants[patterns]:
                del tenants[patterns]
            if not tenants:
                del self._tenants[prefix]
                self._lengths[len(prefix)] -= 1
                if not self._lengths[len(prefix)]:
                    del self._lengths[len(prefix)]


_NOBODY: Final[dict[_Patterns, set[str]]] = {}


@dataclass(slots=True)
class VersionViews:
    """Of one table version in one form: its views by all of a document that decides them, and its conditions by their text."""

    table: TableSchema
    views: dict[Any, tuple[Projection, EventSchemas | None]] = field(default_factory=dict)
    conditions: dict[str, CompiledFilter] = field(default_factory=dict)


_Version = tuple[TableId, int, EnvelopeForm]


class RouteMemory:
    """Of one source, for one book at a time."""

    def __init__(self) -> None:
        self.seen = SeenTables()
        self._views: dict[_Version, VersionViews] = {}
        self._earlier: dict[_Version, VersionViews] = {}
        """Of the book before."""

    def begin_book(self) -> None:
        """What the book before did not use is forgotten."""
        self._earlier, self._views = self._views, {}

    def views(self, table: TableSchema, form: EnvelopeForm) -> VersionViews:
        """What was compiled of a table version before."""
        place = (table.table_id, table.version, form)
        known = self._views.get(place) or self._earlier.get(place)
        return known if known is not None and known.table == table else VersionViews(table)

    def keep(self, form: EnvelopeForm, views: VersionViews) -> None:
        """Remember the parts of a table version that are in use."""
        self._views[views.table.table_id, views.table.version, form] = views
