"""The metrics of a topic, and the warning before DTS deletes messages that were not read."""

import asyncio
import time
from typing import Final

from prometheus_client import Counter

from libs.source.status import ReaderStatus
from libs.telemetry import metrics
from services.dts_decoder.assembly import Assembler
from services.dts_decoder.client import Received, SubscriptionClient
from services.dts_decoder.decode import SubscriptionDecoder
from services.dts_decoder.retention import Headroom, Look
from services.dts_decoder.settings import SubscriptionSettings

_LOOK_EVERY_S: Final = 15.0


class TopicFigures:
    """Counts of a topic since it was opened."""

    def __init__(
        self,
        settings: SubscriptionSettings,
        client: SubscriptionClient,
        status: ReaderStatus | None,
        labels: tuple[str, str],
    ) -> None:
        self._client = client
        self._status = status
        self._labels = labels
        self._warn_headroom_h = settings.warn_headroom_h
        self._headroom = Headroom(settings.retention_h * 3600)
        self._looked_at_s = 0.0
        self._counted: dict[Counter, int] = {}

    def begin(self) -> None:
        """Assembler and decoder are new ones, and count from zero."""
        self._counted.clear()

    async def report(self, received: Received, assembler: Assembler, decoder: SubscriptionDecoder) -> None:
        """Count a turn of the topic; look, now and then, at how long DTS keeps the messages that wait."""
        metrics.DTS_PARTS_WAITING.labels(*self._labels).set(assembler.parts_waiting)
        for counter, total in (
            (metrics.DTS_PARTS_DISCARDED, assembler.discarded),
            (metrics.DTS_CHECKPOINTS, decoder.progress.checkpoints),
            (metrics.DTS_REPEATS, assembler.repeats + decoder.progress.repeats),
            (metrics.READER_TRANSACTIONS, decoder.progress.transactions),
        ):
            before = self._counted.get(counter, 0)
            counter.labels(*self._labels).inc(max(0, total - before))
            self._counted[counter] = total
        if time.monotonic() - self._looked_at_s < _LOOK_EVERY_S:
            return
        self._looked_at_s = time.monotonic()
        low, high = await asyncio.to_thread(self._client.ends)
        position = received.messages[-1].offset + 1 if received.messages else high
        age_s = max(0.0, time.time() - received.newest_at_ms / 1000) if received.more_waits else 0.0
        left_s = self._headroom.seen(Look(time.monotonic(), low, position, age_s))
        metrics.DTS_HEADROOM.labels(*self._labels).set(left_s)
        if self._status is not None:
            is_short = left_s < self._warn_headroom_h * 3600
            self._status.warning = headroom_warning(left_s) if is_short else None


def headroom_warning(left_s: float) -> str:
    """For an operator, when little time is left."""
    return (
        f"DTS deletes messages that were not read in {left_s / 3600:.1f} h at the present rate: give the decoder more CPU, or "
        "exclude tables; lost messages need a new snapshot"
    )
