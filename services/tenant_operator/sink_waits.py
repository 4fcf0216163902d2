"""Which tenants stand still in their Spark jobs, and their faults there, as jobs say it in the topic of hand-overs.

A job reports only lasting waits, and their end (ADR 26). While Kafka is away, the known reports stay.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

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

Report = TypeVar("Report")

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
        self._is_fault_reported = False
        self.reasons: Mapping[str, str] | None = None
        self.faults: Mapping[str, Sequence[Fault]] | None = None

    async def run(self) -> None:
        """Follow until cancelled. A Kafka that is away, or refuses, is logged once and asked again."""
        while True:
            try:
                await self._follow()
            except HeadwaterError as error:
                if not self._is_fault_reported:
                    log.warning("sink_waits_not_followed", reason=str(error), retry_in_s=_PAUSE_S)
                self._is_fault_reported = True
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
                self.reasons, self.faults, self._is_fault_reported = reasons, faults, False
                self._on_change()
            await following
        finally:
            for task in (following, reading):
                task.cancel()
            await asyncio.gather(following, reading, return_exceptions=True)
            await tail.close()


def with_news(reasons: dict[str, str], records: Sequence[LogRecord]) -> bool:
    """Take in a report; returns whether it changes anything. Records of hand-overs are ignored."""
    return _take_in(
        reasons, records, is_wait_key, lambda _key, value: decode_wait(value).because, "sink_wait_unreadable"
    )


def with_faults(faults: dict[str, tuple[Fault, ...]], records: Sequence[LogRecord]) -> bool:
    """Take in a report; returns whether it changes anything. A job speaks for the tenant of the key alone."""

    def of_tenant(key: str, value: bytes) -> tuple[Fault, ...]:
        return tuple(each for each in decode_faults(value).faults if each.scope.tenant == tenant_of_key(key))

    return _take_in(faults, records, is_faults_key, of_tenant, "sink_faults_unreadable")


def _take_in(
    reported: dict[str, Report],
    records: Sequence[LogRecord],
    is_ours: Callable[[str], bool],
    read: Callable[[str, bytes], Report],
    unreadable_event: str,
) -> bool:
    """A record takes the place of the one before under its key; one without a value, or one that is unreadable, ends it."""
    before = dict(reported)
    for record in records:
        key = record.key.decode(errors="replace")
        if not is_ours(key):
            continue
        reported.pop(key, None)
        if record.value is None:
            continue
        try:
            reported[key] = read(key, record.value)
        except msgspec.DecodeError:
            log.warning(unreadable_event, topic=SINK_HANDOVERS_TOPIC, key=key, offset=record.offset)
    return reported != before
