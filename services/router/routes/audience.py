"""The tenants of one source, and which of them see a table, by their documents."""

from collections.abc import Iterable, Sequence

from libs.errors import is_of_all
from libs.types.table import TableId
from libs.types.tenant import TenantSpec
from services.router.routes.match import Subscriber
from services.router.routes.memory import SeenTables


class Audience:
    """Made once for a set of documents. Its answers never change, and each is worked out once."""

    def __init__(self, source: str, tenants: Iterable[TenantSpec], seen: SeenTables) -> None:
        """``seen``: of the audiences of this source before; no other one uses it from now on."""
        self.source = source
        self.subscribers = tuple(
            Subscriber(spec, selection) for spec in tenants for selection in spec.sources if selection.name == source
        )
        self.readers_of_transactions = tuple(each for each in self.subscribers if each.spec.topics.transactions)
        seen.take({each.tenant: each.selection for each in self.subscribers})
        self._seen = seen
        self._seen_by: dict[TableId, tuple[Subscriber, ...]] = {}
        self._subscribers_of: dict[tuple[str, ...], tuple[Subscriber, ...]] = {}
        """One tuple for all tables that the same tenants see."""

    def who_sees(self, table_id: TableId) -> tuple[Subscriber, ...]:
        """The tenants that get the table."""
        subscribers = self._seen_by.get(table_id)
        if subscribers is None:
            seen = self._seen.who(table_id)
            subscribers = self._subscribers_of.get(seen)
            if subscribers is None:
                tenants = frozenset(seen)
                subscribers = tuple(each for each in self.subscribers if each.tenant in tenants)
                self._subscribers_of[seen] = subscribers
            self._seen_by[table_id] = subscribers
        return subscribers

    def who_sees_any(self, database: str, tables: Sequence[str]) -> tuple[Subscriber, ...]:
        """The tenants that get one of the database's tables, or would get each that it may have one day."""
        return tuple(
            subscriber
            for subscriber in self.subscribers
            if any(_may_see(subscriber, TableId(database=database, table=table)) for table in ("", *tables))
        )


def _may_see(subscriber: Subscriber, table_id: TableId) -> bool:
    """Whether it sees the table; where that cannot be judged it counts as seeing it, and its route is refused."""
    try:
        return subscriber.sees(table_id)
    except Exception as error:
        if is_of_all(error):
            raise
        return True
