"""The batches of a decoder: the copy and the topic gather here, and each batch is cut with the place to resume from."""

import time

from libs.events.batch import BatchBuilder, BatchIdentity
from libs.source.failure_handling import LeftOut
from libs.source.failure_policy import FailureHandling
from libs.source.port import ReadBatch, ResumePoint
from libs.types.checkpoint import SnapshotProgress
from libs.types.order import EventOrder
from services.dts_decoder.dead_letters import encode_message, encode_set_aside
from services.dts_decoder.decode import SubscriptionDecoder
from services.dts_decoder.position import DtsPosition, encode_position
from services.dts_decoder.set_aside import SetAside
from services.dts_decoder.settings import DtsDecoderSettings


class Gatherer:
    """Rows, schema changes and entries left out, in the topic's order, until they are taken as a batch."""

    def __init__(self, settings: DtsDecoderSettings, identity: BatchIdentity, labels: tuple[str, str]) -> None:
        self._subscription = settings.subscription
        self._handling = settings.failure_handling
        self._left_out = LeftOut(settings.failure_handling or FailureHandling.DEAD_LETTER, *labels)
        self.entries = BatchBuilder(identity)
        self.progress: SnapshotProgress | None = None
        """Of the initial snapshot, while it is unfinished: each resume point holds it."""

    @property
    def goes_on(self) -> bool:
        """A message or an entry that cannot be decoded is left out, and the others go on."""
        return self._handling is not None and self._left_out.goes_on

    @property
    def goes_on_after_rows(self) -> bool:
        """A row that cannot be decoded is left out, and the others go on."""
        return self._left_out.goes_on

    @property
    def is_empty(self) -> bool:
        """Nothing is gathered, and nothing was left out."""
        return self.entries.is_empty and self._left_out.is_empty

    def set_aside(self, found: SetAside) -> None:
        """Entries that could not be decoded."""
        letter = encode_set_aside(self._subscription.topic, self._subscription.partition, found)
        self._left_out.add(found.reason, letter, table=found.table)

    def set_message_aside(self, offset: int, reason: str, value: bytes) -> None:
        """A message, or a part of one, that could not be joined."""
        letter = encode_message(self._subscription.topic, self._subscription.partition, offset, reason, value)
        self._left_out.add(reason, letter)

    def is_due(self, decoder: SubscriptionDecoder) -> bool:
        """A batch is full, and the topic may be cut here."""
        return self.entries.is_full and (decoder.is_between_transactions or self.entries.is_overfull)

    def take(self, resume: ResumePoint | None) -> ReadBatch:
        """Everything gathered, as one batch."""
        payload, rows = self.entries.take(time.time_ns() // 1_000)
        return ReadBatch(payload=payload, rows=rows, resume=resume, dead_letters=self._left_out.taken())

    def drained(self, decoder: SubscriptionDecoder) -> ReadBatch:
        """Everything decoded so far: nothing waits for more messages to come."""
        decoder.flush()
        return self.take(self.decoder_resume_point(decoder))

    def decoder_resume_point(self, decoder: SubscriptionDecoder) -> ResumePoint | None:
        """The decoder's place; None inside a transaction."""
        if not decoder.is_between_transactions:
            return None
        return self.resume_point(decoder.position, decoder.progress.last_order, decoder.progress.committed_at_us)

    def resume_point(self, position: DtsPosition, order: EventOrder, committed_at_us: int) -> ResumePoint:
        """A place to go on from, with the snapshot's progress."""
        return ResumePoint(
            position=encode_position(position), order=order, committed_at_us=committed_at_us, snapshot=self.progress
        )
