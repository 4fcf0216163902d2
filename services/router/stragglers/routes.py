"""One straggler's routes, and the topics and schemas that are refused to it."""

import time
from collections.abc import Mapping
from typing import Any, Final

from libs.errors import HeadwaterError
from libs.telemetry import metrics
from libs.types.tenant import TenantSpec
from services.router.batches.batch_reading import Changes
from services.router.routes.book import RouteBook, RouteView
from services.router.transactions.outputs import LaneDependencies, log_refused_schemas
from services.router.transactions.tenant_topics import TenantTopics

_REFUSAL_PATIENCE_S: Final = 10.0
"""How long a topic's first refusal is doubted: a broker that is away for a moment makes Kafka refuse topics too."""
_REFUSED_RETRY_S: Final = 60.0
"""How often Kafka is asked again for topics that it refused."""


class RefusedForNow(HeadwaterError):
    """A topic was refused a moment ago. Try again after a pause."""


class StragglerRoutes:
    """Made again with the tenant's document, and when a refusal may be over. One thread at a time uses them."""

    def __init__(self) -> None:
        self._book: RouteBook | None = None
        self._spec: TenantSpec | None = None
        """The document that the book was made of."""
        self._ended_by_then = 0
        """``Refusals.ended`` when the book was made."""
        self.refused_topics: Mapping[str, str] = {}
        """With the reason; safe to read."""
        self._refused_since_s = 0.0
        self._logged: set[str] = set()
        """Topics whose refusal was logged, by the book."""

    @property
    def view(self) -> RouteView:
        """The routes of the one tenant; after ``renew``."""
        assert self._book is not None
        return self._book.view()

    def renew(self, source: str, spec: TenantSpec, shared: LaneDependencies) -> None:
        """Make the book again if it has to be."""
        book, ended = self._book, shared.refusals.ended
        is_refused = self.refused_topics or (book is not None and book.has_collisions)
        is_due = is_refused and (
            time.monotonic() - self._refused_since_s > _REFUSED_RETRY_S or ended != self._ended_by_then
        )
        if book is None or self._spec is not spec or is_due:
            self._spec, self._ended_by_then = spec, ended
            self._book = RouteBook(
                source, (spec,), shared.fetch_schema(source), shared.claims, shared.keys, shared.registry
            )
            self._logged.clear()

    def prepare(self, batch: Changes, topics: TenantTopics, logger: Any) -> None:
        """Look the batch's schemas up and make its topics. Raises ServiceUnavailable, RefusedForNow."""
        assert self._book is not None
        while refused := topics.create_for(batch, self.view):
            names = [target.topic.name for target, _ in refused]
            now_s = time.monotonic()
            if not set(names) <= self.refused_topics.keys():
                self.refused_topics = {target.topic.name: str(error) for target, error in refused}
                self._refused_since_s = now_s
            if now_s < self._refused_since_s + _REFUSAL_PATIENCE_S and not self._logged & set(names):
                raise RefusedForNow(str(refused[0][1]))
            for target, error in refused:
                self._book.refuse_topic(target.topic.name, str(error))
                self._logged.add(target.topic.name)
                logger.error(
                    "tenant_topic_refused", tenant_id=target.tenant, refused=target.topic.name, reason=str(error)
                )
                metrics.TENANT_TOPICS_REFUSED.labels(target.tenant).inc()
            self._refused_since_s = now_s

    def note_refused(self, logger: Any) -> None:
        """The tenants that are refused once all batches are prepared."""
        assert self._book is not None
        refused_schemas = {topic: refused.reason for topic, refused in self._book.refused_schemas.items()}
        self.refused_topics = refused_schemas | self._book.refused_topics
        if log_refused_schemas(self._book, self._logged, logger):
            self._refused_since_s = time.monotonic()
