"""The Vitess source: a copy where one is due, then the stream, as batches.

``beginning`` says where, ``main_stream`` reads one stream after another, and ``second_stream`` copies tables again beside it.
``decode`` makes rows of vtgate's answers, ``gather`` cuts the batches, ``handover`` passes shards between tasks. This module
wires.
"""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import structlog

from libs.events.batch import BatchIdentity
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.port import ReadBatch, ResumePoint, ShardProgress
from libs.source.vitess.tasks import partition_name
from libs.telemetry import metrics
from libs.types.checkpoint import Checkpoint, IncrementalSnapshot, SnapshotProgress
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from services.vstream_reader.answers import ANSWERS_AHEAD
from services.vstream_reader.beginning import TakeOver, beginning_after_reset, first_beginning, resumed_beginning
from services.vstream_reader.client import Vtgate
from services.vstream_reader.decode import StreamDecoder
from services.vstream_reader.decoder_options import DecoderOptions
from services.vstream_reader.gather import Gatherer
from services.vstream_reader.handover import Handover
from services.vstream_reader.main_stream import MainStream, SourceParts
from services.vstream_reader.position import VitessPosition, position_of
from services.vstream_reader.preflight import require_sound_source
from services.vstream_reader.recopy import Recopy
from services.vstream_reader.settings import SnapshotMode, VstreamReaderSettings
from services.vstream_reader.snapshot import capture_filter, position_of_new_copy
from services.vstream_reader.stream_start import StreamStart
from services.vstream_reader.table_versions import TableVersions
from services.vstream_reader.tally import StreamTally, TallyMetrics
from services.vstream_reader.tasks import Beginning, Fellows
from services.vstream_reader.unseen_statements import StatementWatch

log = structlog.get_logger()


class VstreamSource:
    """One keyspace, or one task's shards of it, as a ``libs.source.port.Source``."""

    def __init__(
        self,
        settings: VstreamReaderSettings,
        schema_history: SchemaHistoryClient,
        take_over: TakeOver | None = None,
        fellows: Fellows | None = None,
    ) -> None:
        """``take_over``: of the generations of tasks before this one; see ``tasks.take_over``. ``fellows``: the other tasks of
        this one; without them a reshard that joins shards of several tasks halts the reader."""
        self._settings = settings
        self._schema_history = schema_history
        self._take_over = take_over
        self._fellows = fellows
        self._is_first_opening = True
        self._began_at: SourcePosition | None = None
        """The position of the checkpoint that this process began with."""
        self.partition = SourcePartition(source=settings.source, name=partition_name(settings.tasks))
        self._vtgate_has_answered = False
        self._watch = StatementWatch(settings.keyspace, capture_filter(settings))
        self._tally = StreamTally()
        self._tally_metrics = TallyMetrics((self.partition.source, self.partition.name), self._tally)

    @asynccontextmanager
    async def open(self, resume_from: Checkpoint | None, identity: BatchIdentity) -> AsyncIterator["VstreamChangeLog"]:
        """See ``libs.source.port.Source.open``."""
        async with Vtgate(self._settings.vtgate, has_answered=self._vtgate_has_answered) as vtgate:
            has_begun = resume_from is not None or self._vtgate_has_answered
            serving, tables = await require_sound_source(self._settings, vtgate, has_begun=has_begun)
            self._vtgate_has_answered = True
            progress = SnapshotProgress()
            if self._is_first_opening and resume_from is not None:
                self._began_at = resume_from.position
            self._is_first_opening = False
            if resume_from is None:
                beginning = await first_beginning(
                    self._settings, serving, vtgate, take_over=self._take_over, fellows=self._fellows
                )
            elif resume_from.starts_over:
                beginning = beginning_after_reset(self._settings, resume_from, serving)
            else:
                beginning = await resumed_beginning(self._settings, resume_from, serving, self._fellows)
                # Also where a copy broke off before any of it was durable.
                if self._settings.snapshot.mode is SnapshotMode.ALWAYS and resume_from.position == self._began_at:
                    position = position_of_new_copy(self._settings, beginning.position, serving)
                    beginning = dataclasses.replace(beginning, position=position, is_copying=True)
                else:
                    progress = resume_from.snapshot or progress
            labels = (self._settings.source, identity.source_partition)
            gatherer = Gatherer(self._settings, identity)
            parts = SourceParts(
                settings=self._settings,
                vtgate=vtgate,
                tables=tables,
                labels=labels,
                versions=TableVersions(self._settings, self._schema_history, gatherer.entries, labels, self._watch),
                gatherer=gatherer,
                handover=Handover(self._settings, vtgate, self._fellows),
                tally_metrics=self._tally_metrics,
            )
            change_log = VstreamChangeLog(parts, beginning, progress, self._tally)
            try:
                yield change_log
            finally:
                await asyncio.shield(asyncio.to_thread(change_log.close))


class VstreamChangeLog:
    """An open Vitess source (``libs.source.port.ChangeLog``): one main stream after another."""

    def __init__(
        self, parts: SourceParts, beginning: Beginning, progress: SnapshotProgress, tally: StreamTally
    ) -> None:
        """``tally`` counts the streams' content."""
        self._parts = parts
        self._start = StreamStart(
            beginning.position,
            beginning.is_copying,
            progress,
            is_new=not beginning.position.vgtid,
            awaited=beginning.awaited,
        )
        self._must_commit_first = beginning.must_commit_first
        self._options = _decoder_options(parts, tally)
        self._recopy = self._recopy_of(beginning.incremental)
        self._stream: MainStream | None = None
        metrics.READER_QUEUE_ANSWERS_CAPACITY.labels(*parts.labels).set(ANSWERS_AHEAD)
        most_bytes = ANSWERS_AHEAD * parts.settings.vtgate.max_message_bytes
        metrics.READER_QUEUE_BYTES_CAPACITY.labels(*parts.labels).set(most_bytes)

    def close(self) -> None:
        """End the work beside the streams. Blocks shortly."""
        self._recopy.close()

    def shards(self) -> Sequence[ShardProgress]:
        """See ``libs.source.port.HasShards.shards``."""
        return self._stream.shard_progress() if self._stream is not None else ()

    async def batches(self) -> AsyncIterator[ReadBatch]:
        """See ``libs.source.port.ChangeLog.batches``."""
        self._recopy.follow_signals(self._parts.settings.kafka)
        await self._parts.versions.load()
        if self._must_commit_first:
            yield self._first_checkpoint()
        start: StreamStart | None = self._start
        while start is not None:
            await self._take_up(start)
            decoder = self._decoder(start.position, is_copying=start.is_copying)
            if start.is_new:
                decoder.shards.note(start.position.let_go, start.position.taken_up)
            stream = self._stream = MainStream(self._parts, start, decoder, self._recopy)
            async with aclosing(stream.batches()) as batches:
                async for batch in batches:
                    yield batch
            start = stream.next_start

    async def _take_up(self, start: StreamStart) -> None:
        """The second stream ended with the main one; of shards that are taken up the signals' requests come along."""
        self._recopy.ended()
        if start.incremental is not None:
            await asyncio.to_thread(self._recopy.close)
            self._recopy = self._recopy_of(start.incremental)
            self._recopy.follow_signals(self._parts.settings.kafka)
        self._parts.gatherer.entries.await_others(start.awaited)

    def _first_checkpoint(self) -> ReadBatch:
        start = self._start
        resume = ResumePoint(
            position=position_of(start.position),
            order=EventOrder(epoch=0, rank=0, tx_ordinal=0),
            committed_at_us=time.time_ns() // 1_000,
            snapshot=SnapshotProgress() if start.is_copying else None,
            incremental=self._recopy.state,
        )
        return ReadBatch(payload=b"", rows=0, resume=resume)

    def _recopy_of(self, state: IncrementalSnapshot) -> Recopy:
        return Recopy(self._parts.settings, state, labels=self._parts.labels, make_decoder=self._copying_decoder)

    def _copying_decoder(self, position: VitessPosition, for_tenants: tuple[str, ...]) -> StreamDecoder:
        options = dataclasses.replace(self._options, is_recopy=True, for_tenants=for_tenants)
        return self._decoder(position, is_copying=True, options=options)

    def _decoder(
        self, position: VitessPosition, *, is_copying: bool, options: DecoderOptions | None = None
    ) -> StreamDecoder:
        return StreamDecoder(
            options or self._options,
            position,
            self._parts.versions.known,
            batch=self._parts.gatherer.entries,
            is_copying=is_copying,
        )


def _decoder_options(parts: SourceParts, tally: StreamTally) -> DecoderOptions:
    settings, gatherer = parts.settings, parts.gatherer
    return DecoderOptions(
        source=settings.source,
        keyspace=settings.keyspace,
        is_captured=capture_filter(settings),
        modes=settings.values,
        events=settings.events,
        key_columns=settings.key_columns,
        spill_dir=Path(settings.spill_dir),
        source_partition=parts.labels[1],
        set_aside=gatherer.set_aside if gatherer.goes_on else None,
        tally=tally,
    )
