"""Topics of rows that a tenant may not have any more, because it has as many as the mesh grants it.

What is there stays, and is written: a table is refused only where a topic would have to be made for it. Kafka's own list
counts, so all routers agree but for a moment, in which two of them may each make one more. The topics that every tenant gets
count before they are there: a document is judged by them too.
"""

import collections
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from libs.config.topic_quotas import NO_TOPIC_QUOTAS, TopicQuotaSettings
from libs.errors import PipelineHalted
from libs.events.names import own_topics
from services.router.match import Target

_LIST_AGE_S: Final = 60.0
"""How old Kafka's list may be while a tenant has room by it."""
_REFUSING_AGE_S: Final = 5.0
"""The same where it has none: somebody may have deleted topics."""

ListTopics = Callable[[], Collection[str]]
"""All topics of Kafka; blocks. Raises BrokerUnavailable."""


class TopicQuotas:
    """Of all lanes of a process. Thread-safe."""

    def __init__(self, settings: TopicQuotaSettings = NO_TOPIC_QUOTAS, list_topics: ListTopics = frozenset) -> None:
        self._settings = settings
        self._list_topics = list_topics
        self._lock = threading.Lock()
        self._there: set[str] = set()
        self._counts: collections.Counter[str] = collections.Counter()
        """By tenant, of those there."""
        self._listed_s = float("-inf")

    def beyond(self, source: str, targets: Iterable[Target], *, is_trial: bool = False) -> dict[str, PipelineHalted]:
        """Those of ``targets`` that would be more than their tenants may have, each with the reason, by topic; the others count
        as made from now on, but in a trial. Blocks where Kafka is asked.

        Raises:
            BrokerUnavailable: Kafka does not tell which topics there are.
        """
        limited: list[Target] = []
        others: dict[str, str] = {}
        for each in targets:
            if self._settings.of(each.tenant) is None:
                continue
            if each.topic.name in own_topics(each.tenant, (source,)):
                others[each.topic.name] = each.tenant
            else:
                limited.append(each)
        with self._lock:
            if limited:
                self._list_anew(_LIST_AGE_S)
            if not is_trial:
                self._note({name: tenant for name, tenant in others.items() if name not in self._there})
            refused, granted = self._judged(limited)
            if refused and self._list_anew(_REFUSING_AGE_S):
                refused, granted = self._judged(limited)
            if not is_trial:
                self._note(granted)
        return refused

    def _note(self, made: Mapping[str, str]) -> None:
        """By topic, whose it is: they are made now."""
        self._there |= made.keys()
        self._counts.update(made.values())

    def _list_anew(self, age_s: float) -> bool:
        """Ask Kafka where its list is older; whether it was asked."""
        if time.monotonic() - self._listed_s <= age_s:
            return False
        self._there = set(self._list_topics())
        self._counts = collections.Counter(topic.partition(".")[0] for topic in self._there)
        self._listed_s = time.monotonic()
        return True

    def _judged(self, limited: Iterable[Target]) -> tuple[dict[str, PipelineHalted], dict[str, str]]:
        """Those refused; and those granted, each with its tenant."""
        refused: dict[str, PipelineHalted] = {}
        granted: dict[str, str] = {}
        for each in limited:
            name, most = each.topic.name, self._settings.of(each.tenant)
            if most is None or name in self._there or name in granted:
                continue
            of_everybody = own_topics(each.tenant, ())
            count = self._counts[each.tenant] + len(of_everybody - self._there)
            count += sum(tenant == each.tenant for tenant in granted.values())
            if count < most:
                granted[name] = each.tenant
            else:
                refused[name] = PipelineHalted(
                    f"topic {name}: tenant {each.tenant} has {count} topics and may have {most} (topicQuotas of the mesh, "
                    "topic_quotas.yaml of a home): exclude tables, "
                    "delete topics that nothing is written to any more, or have the quota raised"
                )
        return refused, granted
