"""Topics of rows that a tenant may not have any more, because it has as many as the mesh grants it.

Existing topics stay, and are written: a table is refused only if a topic would have to be made for it. Kafka's own list
counts, so all routers agree but for a moment, in which two of them may each make one more. The topics that every tenant gets
count before they are there: a document is judged by them too.
"""

import collections
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from libs.errors import PipelineHalted
from libs.events.names import own_topics
from libs.tenants.topic_quotas import NO_TOPIC_QUOTAS, TopicQuotaSettings
from services.router.routes.match import Target

_LIST_AGE_S: Final = 60.0
"""How old Kafka's list may be while a tenant has room by it."""
_REFUSING_AGE_S: Final = 5.0
"""The same where it has none: somebody may have deleted topics."""

ListTopics = Callable[[], Mapping[str, int]]
"""All topics of Kafka, each with its number of Kafka partitions; blocks. Raises BrokerUnavailable."""


class TopicQuotas:
    """Of all lanes of a process. Thread-safe."""

    def __init__(self, settings: TopicQuotaSettings = NO_TOPIC_QUOTAS, list_topics: ListTopics = dict) -> None:
        self._settings = settings
        self._list_topics = list_topics
        self._lock = threading.Lock()
        self._there: dict[str, int] = {}
        self._counts: collections.Counter[str] = collections.Counter()
        """By tenant, of those there."""
        self._partitions: collections.Counter[str] = collections.Counter()
        """By tenant, Kafka partitions of those there."""
        self._listed_s = float("-inf")

    def beyond(self, source: str, targets: Iterable[Target], *, is_trial: bool = False) -> dict[str, PipelineHalted]:
        """Those of ``targets`` that would be more than their tenants may have, each with the reason, by topic; the others count
        as made from now on, but in a trial. Blocks where Kafka is asked.

        Raises:
            BrokerUnavailable: Kafka does not list its topics.
        """
        limited: list[Target] = []
        others: list[Target] = []
        for each in targets:
            if self._settings.of(each.tenant) is None and self._settings.partitions_of(each.tenant) is None:
                continue
            is_of_rows = each.topic.name not in own_topics(each.tenant, (source,))
            (limited if is_of_rows else others).append(each)
        with self._lock:
            if limited:
                self._list_again(_LIST_AGE_S)
            if not is_trial:
                self._note([each for each in others if each.topic.name not in self._there])
            refused, granted = self._judged(limited)
            if refused and self._list_again(_REFUSING_AGE_S):
                refused, granted = self._judged(limited)
            if not is_trial:
                self._note(granted)
        return refused

    def _note(self, made: Iterable[Target]) -> None:
        """They are made now."""
        for each in made:
            self._there[each.topic.name] = each.topic.kafka_partitions
            self._counts[each.tenant] += 1
            self._partitions[each.tenant] += each.topic.kafka_partitions

    def _list_again(self, age_s: float) -> bool:
        """Ask Kafka where its list is older; whether it was asked."""
        if time.monotonic() - self._listed_s <= age_s:
            return False
        self._there = dict(self._list_topics())
        self._counts.clear()
        self._partitions.clear()
        for topic, partitions in self._there.items():
            tenant = topic.partition(".")[0]
            self._counts[tenant] += 1
            self._partitions[tenant] += partitions
        self._listed_s = time.monotonic()
        return True

    def _judged(self, limited: Iterable[Target]) -> tuple[dict[str, PipelineHalted], list[Target]]:
        """Those refused; and those granted."""
        refused: dict[str, PipelineHalted] = {}
        granted: dict[str, Target] = {}
        for each in limited:
            name, most = each.topic.name, self._settings.of(each.tenant)
            if name in self._there or name in granted:
                continue
            of_everybody = len(own_topics(each.tenant, ()) - self._there.keys())
            own = [one for one in granted.values() if one.tenant == each.tenant]
            count = self._counts[each.tenant] + of_everybody + len(own)
            partitions = self._partitions[each.tenant] + of_everybody + sum(one.topic.kafka_partitions for one in own)
            most_partitions = self._settings.partitions_of(each.tenant)
            if most_partitions is not None and partitions + each.topic.kafka_partitions > most_partitions:
                refused[name] = PipelineHalted(
                    f"topic {name}: tenant {each.tenant} has {partitions} Kafka partitions, this one would have "
                    f"{each.topic.kafka_partitions}, and it may have {most_partitions} (topicQuotas of the mesh, "
                    "topic_quotas.yaml of a home): take fewer (topics.kafka_partitions), exclude tables, or have "
                    "the quota raised"
                )
            elif most is None or count < most:
                granted[name] = each
            else:
                refused[name] = PipelineHalted(
                    f"topic {name}: tenant {each.tenant} has {count} topics and may have {most} (topicQuotas of the mesh, "
                    "topic_quotas.yaml of a home): exclude tables, "
                    "delete topics that nothing is written to any more, or have the quota raised"
                )
        return refused, list(granted.values())
