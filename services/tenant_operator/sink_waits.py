"""Which tenants stand still in their Spark jobs, as these say it in the topic of hand-overs, kept in memory as it is now.

A job says only what lasts, and that it is over (ADR 26). While Kafka is away, what was known stays.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from libs.config.connections import KafkaSettings
from libs.errors import HeadwaterError
from libs.events.names import SINK_HANDOVERS_TOPIC
from libs.kafka.clients import ensure_topics
from libs.kafka.sink_handovers import sink_handovers_topic
from libs.kafka.tail import LogRecord, LogTail, identify_log
from libs.types.sink_place import decode_wait, is_wait_key

_PAUSE_S: Final = 5.0
"""Behind a failure."""
_READ_WITHIN_S: Final = 60.0
"""The whole topic, at the start."""

log = structlog.get_logger()


class SinkWaits:
    """The jobs' reports. ``run`` follows them; ``on_change`` is called after each change."""

    def __init__(self, kafka: KafkaSettings, *, on_change: Callable[[], None]) -> None:
        self._kafka = kafka
        self._on_change = on_change
        self._is_fault_told = False
        self.reasons: Mapping[str, str] | None = None
        """Why a tenant stands still, by ``wait_key``; None: the topic is not read yet, so an absence means nothing."""

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

        def apply(records: Sequence[LogRecord]) -> None:
            if with_news(reasons, records) and self.reasons is reasons:
                self._on_change()

        following = asyncio.create_task(tail.follow(apply))
        reading = asyncio.create_task(tail.stable_barrier(_READ_WITHIN_S))
        try:
            await asyncio.wait((following, reading), return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                await reading
                self.reasons, self._is_fault_told = reasons, False
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
