"""Constant labels on every metric of a process (``telemetry.tags``), as Debezium's ``custom.metric.tags`` on its MBeans."""

import copy
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric


class TaggedRegistry(CollectorRegistry):
    """A view of a registry in which every sample carries the tags; Prometheus' client writes a page from it."""

    def __init__(self, registry: CollectorRegistry, tags: Mapping[str, str]) -> None:
        super().__init__()
        self._registry = registry
        self._tags = dict(tags)

    def collect(self) -> Iterator[Metric]:
        """Every metric; a copy, because some collectors answer with the same object each time."""
        for metric in self._registry.collect():
            tagged = copy.copy(metric)
            tagged.samples = [sample._replace(labels={**sample.labels, **self._tags}) for sample in metric.samples]
            yield tagged
