"""The lanes of this process: one for each partition of a changes topic that Kafka assigned to it.

``app`` passes on the events of Faust's consumer: partitions taken away, partitions given, a batch. Health, progress and
the watchdog look at the lanes from here.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import NamedTuple

import structlog

from libs.telemetry import metrics
from services.router.lane.lane import Assignment, Lane
from services.router.routes.refusals import RecordsFate
from services.router.transactions.outputs import LaneDependencies, WaitingBatch

log = structlog.get_logger()


class ChangesPartition(NamedTuple):
    """A partition of a changes topic."""

    topic: str
    kafka_partition: int


class Lanes:
    """The open lanes. Belongs to the event loop; ``all`` may be called from any thread."""

    def __init__(self, sources_by_topic: dict[str, str], shared: LaneDependencies) -> None:
        self._sources_by_topic = sources_by_topic
        self._shared = shared
        self._lanes: dict[ChangesPartition, Lane] = {}
        self.empty_since_s: float | None = time.monotonic()
        """``time.monotonic()`` since when there is no lane; None while there is one."""
        self.is_assigned = False
        """Whether Kafka has assigned partitions to this process, also if there are none for it."""

    def all(self) -> tuple[Lane, ...]:
        """The lanes now."""
        return tuple(self._lanes.values())

    def degraded(self) -> str | None:
        """Which tenants' topics are refused, which tenants are stuck, and why; None: none. Called from any thread."""
        reasons = {topic: reason for lane in self.all() for topic, reason in lane.refused_topics.items()}
        for lane in self.all():
            for tenant, position in lane.behind.items():
                if position.is_stuck:
                    reasons.setdefault(tenant, f"{tenant} lags alone: {position.reason}")
        parked = [lane.state.parked for lane in self.all() if lane.state.parked is not None]
        unreadable = [lane.state.unreadable for lane in self.all() if lane.state.unreadable is not None]
        return "; ".join([*parked, *unreadable, *reasons.values()]) or None

    def records_fates(self) -> list[RecordsFate]:
        """Of each open lane, whose records cannot be written. Called from any thread."""
        return [fate for lane in self.all() if (fate := lane.records_fate) is not None]

    def route_for_all_since(self, changed_at_s: float) -> bool:
        """Whether every lane that routes now began after ``changed_at_s`` (``time.monotonic()``). Called from any thread."""
        begun = [lane.state.routing_since_s for lane in self.all()]
        return all(since_s is None or since_s > changed_at_s for since_s in begun)

    def may_write_apart_for(self, tenant: str, gone_since_s: float) -> bool:
        """Whether a tenant that is behind, and whose document went away then, may yet get records. Called from any thread."""
        return any(lane.may_write_apart_for(tenant, gone_since_s) for lane in self.all())

    async def open(self, partitions: Iterable[ChangesPartition], generation: int) -> None:
        """Start a lane for each partition; it opens by itself, see ``opened``. Old lanes were closed before."""
        await self.close()
        for partition in partitions:
            source = self._sources_by_topic.get(partition.topic)
            if source is not None:
                self._lanes[partition] = Lane(Assignment(source, *partition, generation), self._shared)
        self.is_assigned = True
        self._count()

    async def opened(self) -> None:
        """Wait until every lane has fenced its old owner and knows where to go on.

        Raises:
            HeadwaterError: one of them could not.
        """
        await asyncio.gather(*(lane.opened() for lane in self.all()))

    async def close(self) -> None:
        """Let running transactions end, and stop all lanes."""
        lanes, self._lanes = self.all(), {}
        self.is_assigned = False
        self._count()
        await asyncio.gather(*(lane.close() for lane in lanes))

    async def wait_for_room(self, partition: ChangesPartition, payload_bytes: int) -> None:
        """Return when the partition's lane has room for a batch of this size, or when there is no such lane."""
        lane = self._lanes.get(partition)
        if lane is not None:
            await lane.wait_for_room(payload_bytes)

    async def offer(self, partition: ChangesPartition, generation: int | None, batch: WaitingBatch) -> None:
        """Hand a batch to its lane; dropped where there is none, or when it was fetched under another assignment."""
        lane = self._lanes.get(partition)
        if lane is not None and lane.assignment.generation == generation:
            await lane.offer(batch)

    def _count(self) -> None:
        metrics.ROUTER_LANES.set(len(self._lanes))
        self.empty_since_s = None if self._lanes else time.monotonic()
