"""Is the router making progress? Judged against the end of the changes topics, not by the process being there.

Consumers were seen to stop silently after a rebalance while their process lives on (faust-streaming issues 175, 532, 640).
So every few seconds the end of each assigned partition is compared with its lane's position: standing still with batches
after it is a stall. Offsets alone do not show it, because transaction markers and aborted batches take offsets too; so before a
lane is called stalled, a consumer of its own looks whether a committed batch really waits (``next_record``).
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from aiokafka import TopicPartition as KafkaPartition
from confluent_kafka import Consumer, KafkaException, TopicPartition

from libs.errors import TransientError
from libs.telemetry import metrics
from services.router.kafka.next_record import LOOK_TIMEOUT_S, next_record, open_looker
from services.router.lane.lane import Lane
from services.router.lane.lanes import ChangesPartition, Lanes
from services.router.settings import LaneSettings, RouterSettings
from services.router.transactions.lane_state import LanePosition

log = structlog.get_logger()

_CHECK_INTERVAL_S: Final = 5.0
"""At most; a short stall timeout is looked at three times."""
_BEAT_INTERVAL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Standing:
    """A partition whose position did not change since ``since_s``, with ``end`` beyond it."""

    next_offset: int
    end: int
    since_s: float


class Liveness:
    """Watches the lanes. ``run`` is a task of the event loop; ``alive`` and ``ready`` answer from any thread."""

    def __init__(self, settings: RouterSettings, topics: Sequence[str], lanes: Lanes) -> None:
        self._settings = settings
        self._topics = topics
        self._lanes = lanes
        self._standing: dict[ChangesPartition, Standing] = {}
        self._nothing_behind: dict[ChangesPartition, int] = {}
        self._beat_at_s = time.monotonic()
        self._stalled: str | None = None

    def alive(self) -> str | None:
        """None: progress is made, or there is nothing to do."""
        silent_s = time.monotonic() - self._beat_at_s
        if silent_s > self._settings.stall_timeout_s:
            return f"the event loop did nothing for {silent_s:.0f} s"
        return self._stalled

    def ready(self) -> str | None:
        """None: every assigned lane is open, or others have all partitions.

        A router without partitions waits for one to go. It counts as ready: a rollout, which ends the old router when the new
        one is ready, would never end else.
        """
        closed = [lane for lane in self._lanes.all() if lane.state.position is None]
        if closed:
            return f"{len(closed)} lane(s) are opening"
        return None if self._lanes.is_assigned else "Kafka has yet to name our partitions"

    async def run(self) -> None:
        """Check until cancelled.

        Raises:
            TransientError: nothing moved for twice the stall timeout; start the process again.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat())
            tasks.create_task(self._watch())

    async def _beat(self) -> None:
        """Show that the event loop turns."""
        while True:
            self._beat_at_s = time.monotonic()
            await asyncio.sleep(_BEAT_INTERVAL_S)

    async def _watch(self) -> None:
        # Not closed at the end: a thread may be inside it, and the process ends anyway.
        consumer = await asyncio.to_thread(open_looker, self._settings.kafka, self._settings.group)
        while True:
            await asyncio.sleep(min(_CHECK_INTERVAL_S, self._settings.stall_timeout_s / 3))
            await self._check(consumer)

    async def _check(self, consumer: Consumer) -> None:
        now_s = time.monotonic()
        try:
            positions = self._positions() or await asyncio.to_thread(_group_positions, consumer, self._topics)
            ends = await asyncio.to_thread(_ends, consumer, list(positions))
        except KafkaException as error:
            # Kafka is away: a restart does not help, so this is no stall.
            log.warning("progress_not_checked", reason=str(error.args[0]))
            return
        for lane in self._lanes.all():
            if lane.state.awaits is not None:  # it stands for another partition's sake, which is judged by itself
                positions.pop(ChangesPartition(*lane.assignment.place), None)
        self._standing = standing_partitions(self._standing, positions, ends, self._nothing_behind, now_s)
        reasons = []
        for partition, standing in list(self._standing.items()):
            stood_s = now_s - standing.since_s
            if stood_s < self._settings.stall_timeout_s:
                continue
            place = KafkaPartition(partition.topic, partition.kafka_partition)
            found = await asyncio.to_thread(next_record, consumer, place, standing.next_offset)
            if found is None:  # Kafka did not say
                continue
            if not found.is_there:
                self._nothing_behind[partition] = standing.end
                del self._standing[partition]
                continue
            reasons.append(
                f"{partition.topic}/{partition.kafka_partition} waits at {standing.next_offset} for {stood_s:.0f} s"
            )
            if stood_s > 2 * self._settings.stall_timeout_s:
                raise TransientError(f"the router is stalled: {'; '.join(reasons)}")
        self._stalled = "; ".join(reasons) or None
        self._set_metrics(positions, ends, now_s)

    def _positions(self) -> dict[ChangesPartition, int]:
        return {
            ChangesPartition(*lane.assignment.place): lane.state.position.next_offset if lane.state.position else 0
            for lane in self._lanes.all()
        }

    def _set_metrics(
        self, positions: dict[ChangesPartition, int], ends: dict[ChangesPartition, int], now_s: float
    ) -> None:
        for lane in self._lanes.all():
            position, partition = lane.state.position, ChangesPartition(*lane.assignment.place)
            if position is None or not position.source_partition:
                continue
            labels = (lane.assignment.source, position.source_partition)
            behind = max(ends.get(partition, 0) - position.next_offset, 0)
            # The commit marker of the newest transaction takes an offset too.
            is_caught_up = self._nothing_behind.get(partition) == ends.get(partition) or behind <= 1
            metrics.ROUTER_LAG.labels(*labels).set(0 if is_caught_up else behind)
            delay_s = 0.0 if is_caught_up else max(time.time() - position.committed_at_us / 1e6, 0.0)
            metrics.ROUTER_DELAY.labels(*labels).set(delay_s)
            _set_tenant_metrics(lane, position, labels, lag=0 if is_caught_up else behind, delay_s=delay_s)
            began_s = lane.state.transaction_began_s
            metrics.ROUTER_TRANSACTION_AGE.labels(*labels).set(0.0 if began_s is None else now_s - began_s)


def _set_tenant_metrics(
    lane: Lane, position: LanePosition, labels: tuple[str, str], *, lag: int, delay_s: float
) -> None:
    behind = lane.behind
    for tenant in position.tenants:
        own = behind.get(tenant)
        own_lag, own_delay_s = lag, delay_s
        if own is not None and own.next_offset < position.next_offset:
            own_lag += position.next_offset - own.next_offset
            committed_at_us = own.reached.committed_at_us
            own_delay_s = max(time.time() - committed_at_us / 1e6, 0.0) if committed_at_us else math.nan
        metrics.ROUTER_TENANT_LAG.labels(tenant, *labels).set(own_lag)
        metrics.ROUTER_TENANT_DELAY.labels(tenant, *labels).set(own_delay_s)
        metrics.ROUTER_TENANT_BEHIND.labels(tenant, *labels).set(0 if own is None else 2 if own.is_stuck else 1)


def standing_partitions(
    before: dict[ChangesPartition, Standing],
    positions: dict[ChangesPartition, int],
    ends: dict[ChangesPartition, int],
    nothing_behind: dict[ChangesPartition, int],
    now_s: float,
) -> dict[ChangesPartition, Standing]:
    """The partitions that have an end beyond their position, each with the time since when it stands there.

    An end of which ``nothing_behind`` says that only markers stand before it does not count.
    """
    standing = {}
    for partition, next_offset in positions.items():
        end = ends.get(partition, 0)
        if end <= next_offset or nothing_behind.get(partition) == end:
            continue
        earlier = before.get(partition)
        is_same = earlier is not None and earlier.next_offset == next_offset
        standing[partition] = Standing(next_offset, end, earlier.since_s if earlier and is_same else now_s)
    return standing


def _ends(consumer: Consumer, partitions: Sequence[ChangesPartition]) -> dict[ChangesPartition, int]:
    return {
        partition: consumer.get_watermark_offsets(TopicPartition(*partition), timeout=LOOK_TIMEOUT_S, cached=False)[1]
        for partition in partitions
    }


def _group_positions(consumer: Consumer, topics: Sequence[str]) -> dict[ChangesPartition, int]:
    """The group's committed offsets: read while this process has no lane, to notice a group without members."""
    partitions = [
        TopicPartition(topic, number)
        for topic in topics
        for number in consumer.list_topics(topic, timeout=LOOK_TIMEOUT_S).topics[topic].partitions
    ]
    committed = consumer.committed(partitions, timeout=LOOK_TIMEOUT_S)
    return {ChangesPartition(item.topic, item.partition): max(item.offset, 0) for item in committed}


_OLDEST_SHARE: Final = 0.75
"""Of Kafka's own limit for a transaction: it ends as ours before Kafka aborts it, which a lane would take for another owner."""


def watch_transactions(lanes: Lanes, settings: LaneSettings, exit_process: Callable[[int], None]) -> None:
    """End the process when a transaction stands still for too long, or runs into Kafka's own limit. Runs in a thread of its
    own, for ever.

    A lane gives up each of its calls in time, but a thread may stand inside one that no exception leaves: librdkafka's did
    after a broker's crash. Ending at once is safe, because Kafka aborts open transactions.
    """
    oldest_s = _OLDEST_SHARE * settings.transaction_timeout_s
    while True:
        time.sleep(1.0)
        for lane in lanes.all():
            now_s = time.monotonic()
            age_s = max((now_s - began_s for began_s, _ in lane.transactions), default=0.0)
            standing_s = max((now_s - moved_s for _, moved_s in lane.transactions), default=0.0)
            if standing_s > settings.stuck_transaction_s or age_s > oldest_s:
                log.error(
                    "transaction_stuck",
                    topic=lane.assignment.topic,
                    kafka_partition=lane.assignment.kafka_partition,
                    age_s=round(age_s),
                    standing_s=round(standing_s),
                )
                exit_process(1)
