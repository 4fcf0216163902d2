"""One main stream: opened at a place, decoded into batches, and left for the next one."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import msgspec
import structlog

from libs.errors import HeadwaterError, InvalidEvent, PipelineHalted, PositionPurged, SourceUnavailable
from libs.failpoints import failpoint
from libs.source.port import ReadBatch, ResumePoint, ShardProgress
from libs.telemetry import metrics
from libs.types.checkpoint import SnapshotProgress
from libs.types.table import TableId
from protos.vitess import binlogdata_pb2
from services.vstream_reader.answers import Answers
from services.vstream_reader.client import ShardsNotInStream, Vtgate
from services.vstream_reader.decode import StreamDecoder
from services.vstream_reader.found import DdlStatement, Found, NewForm, NewTable, Reshard
from services.vstream_reader.gather import Gatherer
from services.vstream_reader.handover import Handover
from services.vstream_reader.pace import Pace
from services.vstream_reader.position import begun_again
from services.vstream_reader.recopy import Recopy
from services.vstream_reader.reshard import ended_shards, followed
from services.vstream_reader.row_estimates import estimated_rows
from services.vstream_reader.second_stream import direct, take_answer
from services.vstream_reader.settings import SnapshotMode, VstreamReaderSettings
from services.vstream_reader.snapshot import copied_tables, stream_request
from services.vstream_reader.stream_start import StreamStart, moved_to
from services.vstream_reader.table_versions import TableVersions
from services.vstream_reader.tally import TallyMetrics

log = structlog.get_logger()

_QUIET_S: Final = 0.002
"""The stream is idle after this long without an answer. An empty queue shows nothing: only a wait lets it fill."""
_SIGNAL_POLL_S: Final = 0.2
_SHARDS_NAMED: Final = 4
"""In an error's place: a keyspace may have hundreds."""
_Error = TypeVar("_Error", bound=HeadwaterError)


@dataclass(frozen=True, slots=True)
class SourceParts:
    """The parts of an open source, which all its main streams use."""

    settings: VstreamReaderSettings
    vtgate: Vtgate
    tables: Sequence[str]
    """The captured ones, without their keyspace."""
    labels: tuple[str, str]
    """Source and source partition."""
    versions: TableVersions
    gatherer: Gatherer
    handover: Handover
    tally_metrics: TallyMetrics

    @property
    def copied_tables(self) -> Sequence[str]:
        """Those whose rows a copy has; empty: all of them. Raises as ``snapshot.copied_tables``."""
        return copied_tables(self.settings, self.tables)

    @property
    def captured(self) -> list[str]:
        """The captured tables as ``keyspace.table``."""
        return [str(TableId(database=self.settings.keyspace, table=table)) for table in self.tables]


class MainStream:
    """The stream from ``start`` on; a second one that copies tables again runs beside it."""

    def __init__(self, parts: SourceParts, start: StreamStart, decoder: StreamDecoder, recopy: Recopy) -> None:
        self._parts = parts
        self._start = start
        self.decoder = decoder
        self._recopy = recopy
        self._journals: dict[int, binlogdata_pb2.Journal] = {}
        """Those that the stream has met, by their numbers."""
        self._progress = start.progress
        self._is_copying = start.is_copying
        """As the newest resume point has it."""
        self._pace = Pace(parts.labels, parts.settings.heartbeat_interval_s)
        self.next_start: StreamStart | None = None
        """Where the next main stream begins; None: this one goes on."""

    def shard_progress(self) -> list[ShardProgress]:
        """Every shard, as of both streams."""
        second = self._recopy.decoder
        copied_again = second.shards.copy.shards if second is not None else frozenset()
        return [
            replace(shard, is_copying=True) if shard.shard in copied_again else shard
            for shard in self.decoder.shard_progress()
        ]

    async def batches(self) -> AsyncGenerator[ReadBatch, None]:
        """The batches of this stream; afterwards ``next_start`` says where the next one begins.

        Raises:
            SourceUnavailable: vtgate ended the stream, or does not answer; open the source again.
            PositionPurged, PipelineHalted, InvalidEvent: the message names where the stream stood.
        """
        try:
            async with aclosing(self._until_end()) as batches:
                async for batch in batches:
                    yield batch
        except PositionPurged as error:
            if self._parts.settings.snapshot.mode is not SnapshotMode.WHEN_NEEDED:
                raise _placed(error, self.decoder) from error
            log.warning("copy_needed", reason=str(error))
            self._move_to(await self._parts.handover.begin_again(self.decoder.shards.place, self._recopy.state))
        except ShardsNotInStream as error:
            await self._confirm()
            kept = self._parts.handover.let_go(self._journals.values(), self.decoder.shards, self._recopy.state)
            if kept is None:
                raise _placed(error, self.decoder) from error
            self._move_to(moved_to(kept, self._snapshot_progress()))
        except (PipelineHalted, InvalidEvent) as error:
            raise _placed(error, self.decoder) from error
        if self.next_start is None:
            await self._confirm()
            if (journal := self._passed_journal()) is None:
                raise SourceUnavailable("vtgate ended the stream: it is opened again")
            self._follow_journal(journal)

    async def _until_end(self) -> AsyncGenerator[ReadBatch, None]:
        """Until vtgate ends the stream, a reshard is passed, or the task takes shards up.

        Raises:
            SourceMisconfigured: rows are to be copied, and no captured table is one whose rows are.
        """
        parts, decoder, pace = self._parts, self.decoder, self._pace
        to_copy = parts.copied_tables if self._is_copying else ()
        position = self._start.position
        request = stream_request(parts.settings, position, tables_to_copy=to_copy)
        if self._is_copying and not self._progress.rows_estimated:
            await self._estimate(to_copy or parts.tables)
        log.info("stream_opened", shards=[entry.shard for entry in position.vgtid], is_copy=self._is_copying)
        async with Answers(parts.vtgate, parts.settings.stream.heartbeat_interval_s) as answers:
            if position.vgtid:  # of no shard vtgate would stream all
                answers.open(decoder, request)
            while self.next_start is None:
                is_gathering = decoder.is_resumable and self._has_news()
                arrived = await answers.next(_QUIET_S if is_gathering else _SIGNAL_POLL_S)
                if arrived is not None and arrived.decoder is not decoder:
                    if await take_answer(self._recopy, arrived, answers, parts.versions):
                        yield parts.gatherer.take(self._resume_point())
                        failpoint("reader_between_incremental_chunks")
                elif arrived is not None:
                    if arrived.answer is None:
                        return
                    async for batch in self._decoded(arrived.answer):
                        yield batch
                    if self._passed_journal() is not None:
                        return
                if decoder.shards.begun.unconfirmed and not decoder.shards.begun.to_begin_again:
                    await self._confirm()
                if decoder.is_resumable and pace.is_due(is_quiet=arrived is None):
                    decoder.flush()
                    if self._has_news() or pace.is_heartbeat_due():
                        yield self._take()
                if not decoder.shards.copy.is_running and self._recopy.take_signals(parts.captured):
                    yield self._take()  # nothing else may come, and a signal's effect is to be kept
                if self._recopy.is_busy:
                    await direct(self._recopy, decoder, answers, parts.vtgate, parts.settings.keyspace)
                self._observe(answers)
                if decoder.is_resumable:
                    await self._settle()

    async def _estimate(self, tables: Sequence[str]) -> None:
        """Have the copy's progress say how much there is to copy."""
        keyspace = self._parts.settings.keyspace
        estimated = await estimated_rows(self._parts.vtgate, keyspace, tables, self.decoder.shards.names)
        self._progress = msgspec.structs.replace(self._progress, tables=len(tables), rows_estimated=estimated)

    async def _decoded(self, answer: bytes) -> AsyncGenerator[ReadBatch, None]:
        """One answer; batches that are full within it."""
        decoder, entries = self.decoder, self._parts.gatherer.entries
        metrics.READER_BYTES.labels(*self._parts.labels).inc(len(answer))
        decoder.tick(time.time_ns())
        for found in decoder.feed(answer):
            if found is not None:
                await self._handle(found)
            elif entries.is_full and (decoder.is_resumable or entries.is_overfull):
                yield self._take()
                await asyncio.sleep(0)

    async def _handle(self, found: Found) -> None:
        """The stream's content besides rows."""
        match found:
            case NewTable():
                await self._parts.versions.learn(found, self.decoder)
            case NewForm():
                self._parts.versions.note_form(found)
            case DdlStatement():
                self._parts.versions.add_statement(found, self.decoder.tables_of(found.shard))
            case Reshard():
                self._journals[found.journal.id] = found.journal
                born = [entry.shard for entry in found.journal.shard_gtids]
                log.info("reshard_announced", ended=sorted(ended_shards(found.journal)), born=born)

    # --- batches -----------------------------------------------------------------------------------------------------------

    def _has_news(self) -> bool:
        return (
            not self._parts.gatherer.entries.is_empty
            or self._pace.has_moved(self.decoder)
            or self._is_copying != self.decoder.shards.copy.is_running
        )

    def _take(self) -> ReadBatch:
        self._pace.taken(self.decoder)
        return self._parts.gatherer.take(self._resume_point())

    def _resume_point(self) -> ResumePoint | None:
        decoder = self.decoder
        if not decoder.is_resumable:
            return None
        copy = decoder.shards.copy
        if copy.cut_short:
            self._copy_rest_of(copy.cut_short.values(), sorted(copy.cut_short))
            copy.cut_short.clear()
        self._is_copying = copy.is_running
        return ResumePoint(
            position=decoder.shards.position,
            order=self._parts.gatherer.greatest(decoder.progress.last_order),
            committed_at_us=decoder.progress.committed_at_us or time.time_ns() // 1_000,
            snapshot=self._snapshot_progress() if copy.is_running else None,
            incremental=self._recopy.state,
        )

    def _snapshot_progress(self) -> SnapshotProgress:
        decoder, before = self.decoder, self._progress
        return SnapshotProgress(
            finished_tables=tuple(sorted(decoder.shards.tables_copied)),
            current_table=decoder.shards.copy.current_table,
            tables=before.tables,
            rows_copied=before.rows_copied + decoder.progress.rows_copied,
            rows_estimated=before.rows_estimated,
        )

    def _observe(self, answers: Answers) -> None:
        self._pace.count(self.decoder)
        now_s = time.monotonic()
        if self._parts.tally_metrics.is_due(now_s):
            self._parts.tally_metrics.report(self.shard_progress(), now_s)
            metrics.READER_QUEUE_ANSWERS.labels(*self._parts.labels).set(answers.waiting)
            metrics.READER_QUEUE_BYTES.labels(*self._parts.labels).set(answers.waiting_bytes)
        if self.decoder.shards.copy.is_running:
            failpoint("reader_between_snapshot_chunks")

    # --- reshards ----------------------------------------------------------------------------------------------------------

    async def _confirm(self) -> None:
        """Make sure that the shards which began with this stream did so before the journals that end them: after one, vtgate
        never leads on to the new shards.

        Raises:
            SourceUnavailable: one did not, or may not have; it is begun again, from the last checkpoint.
        """
        shards = self.decoder.shards
        begun = shards.begun.unconfirmed - shards.begun.to_begin_again
        if in_doubt := begun - shards.begun.held:
            executed = await self._parts.vtgate.executed(self._parts.settings.keyspace)
            if ended := sorted(in_doubt - executed.keys()):
                raise SourceUnavailable(f"a reshard ended {', '.join(ended)} when it was about to be read: begun again")
        shards.begun.confirm(begun)

    def _passed_journal(self) -> binlogdata_pb2.Journal | None:
        """A journal that every shard which it ends has come to, so that nothing more is to come of them."""
        held = self.decoder.shards.begun.held if self._journals else frozenset()
        return next((journal for journal in self._journals.values() if ended_shards(journal) <= held), None)

    def _follow_journal(self, journal: binlogdata_pb2.Journal) -> None:
        """The next stream begins where the journal says that the new shards go on: their first place is in the next checkpoint,
        though nothing may happen there."""
        shards, ended = self.decoder.shards, ended_shards(journal)
        if cut_short := ended & shards.copy.shards:
            self._copy_rest_of([shards.finished_tables(shard) for shard in cut_short], sorted(cut_short))
        position = begun_again(followed(shards.place, journal), shards.begun.to_begin_again)
        self._move_to(moved_to(position, self._snapshot_progress()))
        metrics.READER_RESHARDS.labels(*self._parts.labels).inc()
        log.info("reshard_followed", ended=sorted(ended), born=[entry.shard for entry in journal.shard_gtids])

    def _copy_rest_of(self, finished: Iterable[frozenset[str]], shards: Sequence[str]) -> None:
        """Have the tables copied again that shards had not finished when a reshard ended them, from their new shards and beside
        the stream: it begins at the journal, so deletes of rows that were copied before are in it. ``finished``: of each shard.

        vtgate cannot be asked for the rest alone: of a merge the old shards stood at different keys.
        """
        finished_everywhere = frozenset.intersection(*finished)
        rest = [t for t in self._parts.copied_tables or self._parts.tables if t not in finished_everywhere]
        log.info("copy_cut_short", shards=shards, copied_again=rest)
        keyspace = self._parts.settings.keyspace
        self._recopy.want(str(TableId(database=keyspace, table=table)) for table in rest)

    async def _settle(self) -> None:
        """Look after shards that wait for other tasks."""
        taken_up = await self._parts.handover.settle(self.decoder.shards, self._recopy.state, self._progress)
        if taken_up is not None:
            self._move_to(taken_up)

    def _move_to(self, start: StreamStart) -> None:
        """Open the next main stream there; rows decoded before it are in the batch."""
        self._parts.gatherer.greatest(self.decoder.progress.last_order)
        self.next_start = start


def _placed(error: _Error, decoder: StreamDecoder) -> _Error:
    """The error with where the stream stood: after the last transaction that ended."""
    shards = [f"{entry.shard or 'all shards'} at {entry.gtid or 'its copy'}" for entry in decoder.shards.place.vgtid]
    more = [f"{len(shards) - _SHARDS_NAMED} more"] if len(shards) > _SHARDS_NAMED else []
    return type(error)(f"stream after {', '.join([*shards[:_SHARDS_NAMED], *more])}: {error}")
