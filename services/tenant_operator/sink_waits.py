"""Which tenants stand still in their Spark jobs, and their faults there, as jobs say it in the topic of hand-overs.

A job says only what lasts, and that it is over (ADR 26). While Kafka is away, what was known stays.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec
import structlog

from libs.config.connections import KafkaSettings
from libs.errors import HeadwaterError
from libs.events.names import SINK_HANDOVERS_TOPIC
from libs.kafka.clients import ensure_topics
from libs.kafka.sink_handovers import sink_handovers_topic
from libs.kafka.tail import LogRecord, LogTail, identify_log
from libs.types.fault import Fault
from libs.types.sink_place import decode_faults, decode_wait, is_faults_key, is_wait_key, tenant_of_key

_PAUSE_S: Final = 5.0
"""Behind a failure."""
_READ_WITHIN_S: Final = 60.0
"""The whole topic, at the start."""

log = structlog.get_logger()


class SinkReports(Protocol):
    """The jobs' reports as they are now."""

    @property
    def reasons(self) -> Mapping[str, str] | None:
        """Why a tenant stands still, by ``wait_key``; None: the topic is not read yet, so an absence means nothing."""
        ...

    @property
    def faults(self) -> Mapping[str, Sequence[Fault]] | None:
        """A tenant's faults, by ``faults_key``; None as above."""
        ...


@dataclass(slots=True)
class NoJobs:
    """``SinkReports`` of a mesh without Spark jobs of the operator's."""

    reasons: Mapping[str, str] | None = field(default_factory=dict)
    faults: Mapping[str, Sequence[Fault]] | None = field(default_factory=dict)


class SinkWaits:
    """``SinkReports``, which ``run`` follows; ``on_change`` is called after each change."""

    def __init__(self, kafka: KafkaSettings, *, on_change: Callable[[], None]) -> None:
        self._kafka = kafka
        self._on_change = on_change
        self._is_fault_told = False
        self.reasons: Mapping[str, str] | None = None
        self.faults: Mapping[str, Sequence[Fault]] | None = None

    async def run(self) -> None:
        """Follow until cancelled. A Kafka that is away, or refuses, is logged once and asked again."""
        while True:
            try:
                await self._follow()
            except HeadwaterError as error:
                if not self._is_fault_told:
                    log.warning("sink_waits_not_followed", reason=str(error), retry_in_s=_PAUSE_S)
                self._is_fault_told = True
                await asyncio.sleep(_PAUSE_S)

    async def _follow(self) -> None:
        """Raises HeadwaterError: read it again."""
        topic = sink_handovers_topic(self._kafka.replication_factor)
        await asyncio.to_thread(ensure_topics, self._kafka, [topic])
        tail = LogTail(self._kafka, topic.name, await identify_log(self._kafka, topic.name), from_offsets={})
        reasons: dict[str, str] = {}
        faults: dict[str, tuple[Fault, ...]] = {}

        def apply(records: Sequence[LogRecord]) -> None:
            is_news = with_news(reasons, records)
            if (with_faults(faults, records) or is_news) and self.reasons is reasons:
                self._on_change()

        following = asyncio.create_task(tail.follow(apply))
        reading = asyncio.create_task(tail.stable_barrier(_READ_WITHIN_S))
        try:
            await asyncio.wait((following, reading), return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                await reading
                self.reasons, self.faults, self._is_fault_told = reasons, faults, False
                self._on_change()
            await following
        finally:
            for task in (following, reading):
                task.cancel()
            await asyncio.gather(following, reading, return_exceptions=True)
            await tail.close()


def with_news(reasons: dict[str, str], records: Sequence[LogRecord]) -> bool:
    """Take in a report; returns whether it changes anything. Records of hand-overs are ignored."""
    before = dict(reasons)
    for record in records:
        key = record.key.decode(errors="replace")
        if not is_wait_key(key):
            continue
        reasons.pop(key, None)
        if record.value is None:
            continue
        try:
            reasons[key] = decode_wait(record.value).because
        except msgspec.DecodeError:
            log.warning("sink_wait_unreadable", topic=SINK_HANDOVERS_TOPIC, key=key, offset=record.offset)
    return reasons != before


def with_faults(faults: dict[str, tuple[Fault, ...]], records: Sequence[LogRecord]) -> bool:
    """Take in a report; returns whether it changes anything. A job speaks for the tenant of the key alone."""
    before = dict(faults)
    for record in records:
        key = record.key.decode(errors="replace")
        if not is_faults_key(key):
            continue
        faults.pop(key, None)
        if record.value is None:
            continue
        try:
            said = decode_faults(record.value).faults
        except msgspec.DecodeError:
            log.warning("sink_faults_unreadable", topic=SINK_HANDOVERS_TOPIC, key=key, offset=record.offset)
            continue
        faults[key] = tuple(each for each in said if each.scope.tenant == tenant_of_key(key))
    return faults != before
