"""The tenants of a lane by their documents in force, and the book of routes that is made of them."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from libs.types.table import TableId
from libs.types.tenant import TenantSpec
from services.router.batches.batch_reading import Changes
from services.router.routes.batch_targets import unseen_addressees
from services.router.routes.book import RouteBook
from services.router.routes.encode import KnownSchemas
from services.router.routes.memory import RouteMemory
from services.router.transactions.outputs import LaneDependencies, log_refused_schemas

_REFUSED_RETRY_S: Final = 60.0
"""How often tenants whose schemas are refused, or whose tables' topics others have, are looked at again."""


class LaneRoutes:
    """Makes the book again when the documents change, and when a refusal may be over. Belongs to the lane's thread."""

    def __init__(self, source: str, shared: LaneDependencies, logger: Any) -> None:
        self._source = source
        self._shared = shared
        self._log = logger
        self._memory = RouteMemory()
        self._tenants: tuple[TenantSpec, ...] | None = None
        self.specs: Mapping[str, TenantSpec] = {}
        """The source's tenants, as of the last look."""
        self.book: RouteBook
        """As of the last look."""
        self._made_s = 0.0
        self._ended_by_then = 0
        """``Refusals.ended`` when the book was made."""
        self._logged_schemas: set[str] = set()
        """Of the book's refused schemas, those that were logged."""
        self._logged_unseen: set[tuple[str, TableId]] = set()
        """Tenants that could not get rows addressed to them, by the book."""
        self.look()

    def look(self) -> None:
        """Take in the documents in force: a change of them applies from the next transaction on."""
        tenants = self._shared.tenants()
        if tenants is not self._tenants:
            self._tenants = tenants
            self.specs = {
                spec.tenant: spec for spec in tenants if any(each.name == self._source for each in spec.sources)
            }
            self._shared.limits.set_tenants(tenants)
            self._shared.registry.forget_refusals()
            self.book = self._new_book(tenants)
        elif (self.book.refused_schemas or self.book.has_collisions) and (
            time.monotonic() > self._made_s + _REFUSED_RETRY_S or self._shared.refusals.ended != self._ended_by_then
        ):
            self.book = self._new_book(tenants)

    def look_for(self, batches: Sequence[Changes]) -> None:
        """``look``, before batches pass. Rows that are addressed to a tenant were asked for when its document said that it gets
        them: where the book does not say so, the document is newer than the last look."""
        self.look()
        audience = self.book.audience
        if all(unseen_addressees(batch, audience) <= self._logged_unseen for batch in batches):
            return
        self._shared.look_at_tenants()
        self.look()
        audience = self.book.audience
        unseen = {each for batch in batches for each in unseen_addressees(batch, audience)}
        for tenant, table_id in sorted(unseen - self._logged_unseen):
            self._log.warning(
                "copy_not_delivered",
                tenant_id=tenant,
                table=str(table_id),
                reason="rows were copied for this tenant alone, and by its document in force it does not see the table",
            )
        self._logged_unseen |= unseen

    def log_refused_schemas(self) -> None:
        """Each once a book."""
        log_refused_schemas(self.book, self._logged_schemas, self._log)

    def release_dropped_tables(self, batches: Sequence[Changes]) -> None:
        """Tables that a committed statement dropped give their topics back, and their refusals end."""
        for table_id in (table_id for batch in batches for table_id in batch.survey.dropped_tables):
            self._shared.refusals.forget_table(self._source, table_id)
            if self._shared.claims.release(self._source, table_id):
                self._tenants = None  # so that the next book is made again: its topic may be another's now

    def _new_book(self, tenants: tuple[TenantSpec, ...]) -> RouteBook:
        shared = self._shared
        fetch_schema, registry = shared.fetch_schema(self._source), KnownSchemas(shared.registry)
        self._made_s, self._ended_by_then = time.monotonic(), shared.refusals.ended
        self._logged_schemas.clear()
        self._logged_unseen.clear()
        return RouteBook(self._source, tenants, fetch_schema, shared.claims, shared.keys, registry, self._memory)
