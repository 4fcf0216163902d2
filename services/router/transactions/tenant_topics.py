"""The topics that tenants' records go to: those that are known to exist, and those that Kafka makes now."""

import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from libs.config.connections import KafkaSettings
from libs.errors import PipelineHalted
from libs.kafka.clients import TopicSpec, create_topics
from services.router.batches.batch_reading import Changes
from services.router.kafka.kafka_refusals import TopicsRefused
from services.router.routes.batch_targets import route_targets, routes_of, targets_without_rows
from services.router.routes.book import RouteView
from services.router.routes.match import TableRoutes, Target
from services.router.routes.topic_quotas import TopicQuotas

_BROKERS_CHOICE: Final = -1

RefusedTopics = Sequence[tuple[Target, PipelineHalted]]


class TenantTopics:
    """Of one writer. It alone asks Kafka for topics, and forgets those of tenants that are gone."""

    def __init__(self, source: str, kafka: KafkaSettings, quotas: TopicQuotas) -> None:
        self._source = source
        self._kafka = kafka
        self._quotas = quotas
        self._known: set[str] = set()
        self._complete: weakref.WeakValueDictionary[int, TableRoutes] = weakref.WeakValueDictionary()
        """Routes whose topics are all known, by their identity: with 1,000 tenants each batch has 2,000 to look at."""

    @property
    def known(self) -> Collection[str]:
        """The names of those that exist."""
        return self._known

    def create_for(self, batch: Changes, view: RouteView) -> RefusedTopics:
        """``create`` the topics that a batch may need by its view; looks up and registers the schemas that it needs.

        Raises:
            SchemaUnknown, ServiceUnavailable: see ``RouteView.routes``.
        """
        new = [routes for routes in routes_of(batch, view) if id(routes) not in self._complete]
        targets = (target for routes in new for target in route_targets(routes))
        refused = self.create((*targets, *targets_without_rows(batch, view)))
        if not refused:
            self._complete.update((id(routes), routes) for routes in new)
        return refused

    def create(self, targets: Iterable[Target]) -> RefusedTopics:
        """Make the topics that are missing; those that Kafka will not have as their tenants' documents want them, or that are
        more than their tenants may have.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        missing = {target.topic.name: target for target in targets if target.topic.name not in self._known}
        beyond = self._quotas.beyond(self._source, missing.values())
        errors = beyond | create_topics(
            self._kafka, [target.topic for name, target in missing.items() if name not in beyond]
        )
        self._known.update(missing.keys() - errors.keys())
        refused = []
        for name, error in errors.items():
            if not isinstance(error, PipelineHalted):
                raise error
            refused.append((missing[name], error))
        return refused

    def create_for_dead_letters(self, targets: Iterable[Target]) -> None:
        """The topic is created with the broker's defaults if need be: letters must lie somewhere. Raises TopicsRefused."""
        refused = self.create(targets)
        simplest = [
            Target(target.tenant, TopicSpec(name=target.topic.name, replication_factor=_BROKERS_CHOICE))
            for target, _ in refused
        ]
        still_refused = self.create(simplest)
        if still_refused:
            names = frozenset(target.topic.name for target, _ in still_refused)
            raise TopicsRefused("; ".join(str(error) for _, error in still_refused), names)

    def forget(self, prefix: str) -> None:
        """As if topics that begin so had never been seen."""
        self._known = {topic for topic in self._known if not topic.startswith(prefix)}
        self._complete.clear()
