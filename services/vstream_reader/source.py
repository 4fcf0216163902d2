"""The Vitess source: a copy where one is due, then the stream, as batches.

This module wires: ``client`` and ``answers`` read answers, ``decode`` makes rows of them, ``snapshot`` says what to ask for,
schema_history keeps the columns of FIELD events.
"""

import asyncio
import dataclasses
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import structlog

from libs.errors import (
    DiskFull,
    HeadwaterError,
    InvalidEvent,
    PipelineHalted,
    PositionPurged,
    SchemaUnknown,
    ServiceUnavailable,
    SourceMisconfigured,
    SourceUnavailable,
    TransientError,
)
from libs.events.batch import BatchBuilder, BatchIdentity
from libs.events.dead_letter import UndecodedRow, encode_undecoded_row
from libs.events.envelope import VitessSourceBlock
from libs.events.schema_change import SchemaChangeKind
from libs.failpoints import failpoint
from libs.mysql.ddl import TableChangeKind, apply_ddl, unseen_rows
from libs.mysql.ddl_syntax import DdlNotUnderstood
from libs.mysql.identifiers import quote_identifier
from libs.mysql.schema_change_event import schema_change_key, schema_change_value
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.failure_handling import LeftOut
from libs.source.incremental import taken_over
from libs.source.port import ReadBatch, ResumePoint, ShardProgress
from libs.source.unseen_rows import report_unseen_rows
from libs.source.vitess.settings import TransactionMetadata
from libs.source.vitess.tasks import partition_name
from libs.telemetry import metrics
from libs.types.checkpoint import Checkpoint, IncrementalSnapshot, SnapshotProgress
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from libs.types.table import TableId, TableSchema
from libs.types.unseen_rows import UnseenRows
from protos.vitess import binlogdata_pb2
from services.vstream_reader.answers import ANSWERS_AHEAD, Answers, Arrived
from services.vstream_reader.client import ShardsNotInStream, Vtgate
from services.vstream_reader.copy_progress import copying_shards
from services.vstream_reader.decode import StreamDecoder
from services.vstream_reader.decoder_options import DecoderOptions
from services.vstream_reader.found import DdlStatement, Found, NewTable, Reshard
from services.vstream_reader.position import Deal, VitessPosition, begun_again, decode_position, position_of
from services.vstream_reader.recopy import Recopy
from services.vstream_reader.reshard import copied_again, has_lost, let_go, lost, settled
from services.vstream_reader.settings import SnapshotMode, VstreamReaderSettings
from services.vstream_reader.snapshot import (
    anew,
    capture_filter,
    chosen_tables,
    copied_tables,
    first_position,
    is_copy_due,
    stream_request,
)
from services.vstream_reader.tally import StreamTally, TallyMetrics
from services.vstream_reader.tasks import (
    Beginning,
    Fellows,
    dealt_beginning,
    followed_where_ended,
    require_own_generation,
    shards_to_copy,
)
from services.vstream_reader.vgtid import inherited_epoch, overlap, shard_gtid_from_proto

log = structlog.get_logger()

_MAX_GATHERING_S: Final = 0.1
"""While more of the stream comes, a batch is gathered until it is full, but no longer than this: it bounds latency."""
_QUIET_S: Final = 0.002
"""The stream is idle after this long without an answer. An empty queue shows nothing: only a wait lets it fill."""
_SHARDS_TOLD: Final = 4
"""Of an error's place: a keyspace may have hundreds."""
_SIGNAL_POLL_S: Final = 0.2
_FELLOWS_POLL_S: Final = 1.0
"""How often a task whose shards wait for others looks at their commits."""
_STILL_WAITING_S: Final = 60.0
_Error = TypeVar("_Error", bound=HeadwaterError)
TakeOver = Callable[[Sequence[str]], Awaitable[Beginning | None]]
"""From the shards that serve to the places of the task's own ones, and the pending copies of them."""


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
                beginning = await self._beginning(serving, vtgate)
            else:
                beginning = await self._resumed(resume_from, serving)
                # Also where a copy broke off before any of it was durable.
                if self._settings.snapshot.mode is SnapshotMode.ALWAYS and resume_from.position == self._began_at:
                    position = anew(self._settings, beginning.position, serving)
                    beginning = dataclasses.replace(beginning, position=position, is_copying=True)
                else:
                    progress = resume_from.snapshot or progress
            change_log = VstreamChangeLog(
                self._settings,
                self._schema_history,
                vtgate,
                identity,
                beginning,
                tables=tables,
                progress=progress,
                fellows=self._fellows,
                tally=self._tally,
                tally_metrics=self._tally_metrics,
            )
            try:
                yield change_log
            finally:
                await asyncio.shield(asyncio.to_thread(change_log.close))

    async def _beginning(self, serving: Sequence[str], vtgate: Vtgate) -> Beginning:
        """Where a source partition without a checkpoint begins.

        Raises:
            SourceMisconfigured: there are more tasks than shards, and none for this one.
        """
        if self._take_over is not None and (found := await self._take_over(serving)) is not None:
            log.info(
                "positions_taken_over",
                shards=[entry.shard for entry in found.position.vgtid],
                copied_again=[copy.table for copy in found.incremental.tables],
                signals_offset=found.incremental.signals_offset,
            )
            return found
        tasks = self._settings.tasks
        if tasks is None:
            position = first_position(self._settings, serving)
            return Beginning(position, is_copy_due(position))
        deal = await self._dealt(serving, vtgate)
        position = dealt_beginning(deal, tasks, serving)
        return Beginning(position, bool(copying_shards(position)), must_commit_first=position.deal is not None)

    async def _dealt(self, serving: Sequence[str], vtgate: Vtgate) -> Deal:
        """The tasks' first shards: as task 0 found them, which the others wait for. A reshard may come between their starts."""
        tasks = self._settings.tasks
        assert tasks is not None
        told_at_s = 0.0
        while tasks.number > 0 and self._fellows is not None:
            first = (await self._fellows.positions()).get(0)
            if first is not None and first.deal is not None:
                return first.deal
            if first is not None:
                break  # it had none, or dropped it, because all had begun
            if (now_s := time.monotonic()) >= told_at_s:
                told_at_s = now_s + _STILL_WAITING_S
                log.warning("first_task_awaited", remedy="see that task 0 runs: it deals the shards to all tasks")
            await asyncio.sleep(_FELLOWS_POLL_S)
        executed = await vtgate.executed(self._settings.keyspace)
        if ended := [shard for shard in serving if shard not in executed]:
            raise SourceUnavailable(f"a reshard ends {', '.join(ended)} just now: the shards are dealt when it is over")
        position = first_position(self._settings, serving)
        return Deal(beginnings=position.vgtid, executed={shard: executed[shard] for shard in serving})

    async def _resumed(self, checkpoint: Checkpoint, serving: Sequence[str]) -> Beginning:
        """Raises PipelineHalted: another task reads these shards now. ServiceUnavailable: try again."""
        position = decode_position(checkpoint.position)
        require_own_generation(position, self._settings.tasks)
        if position.deal is not None:
            position = followed_where_ended(position, position.deal.executed, serving)
            if self._settings.tasks is not None and self._fellows is not None:
                others = await self._fellows.positions()
                is_awaited = len(others) < self._settings.tasks.of - 1 or any(not e.is_place for e in position.vgtid)
                position = position if is_awaited else msgspec.structs.replace(position, deal=None)
        return Beginning(position, checkpoint.snapshot is not None, checkpoint.incremental)


async def require_sound_source(
    settings: VstreamReaderSettings, vtgate: Vtgate, *, has_begun: bool
) -> tuple[Sequence[str], Sequence[str]]:
    """The pre-flight: the shards that are read, by this task or another, and the tables captured; sorted.

    ``has_begun``: there is a checkpoint, and a shard that the settings name may have given way to others since.

    Raises:
        SourceUnavailable: no answer; try again.
        SourceMisconfigured: every fault, with its mend. AccessDenied, PipelineHalted.
    """
    keyspaces = await vtgate.keyspaces()
    if settings.keyspace not in keyspaces:
        known = ", ".join(sorted(keyspaces)) or "none"
        raise SourceMisconfigured(f"vtgate has no keyspace {settings.keyspace!r}; known: {known}; correct 'keyspace'")
    serving = await vtgate.shards(settings.keyspace)
    named = sorted(settings.shards or serving)
    unknown = [shard for shard in named if shard not in serving]
    if unknown and has_begun:
        log.info("shards_have_given_way", gone=unknown, serving=serving)
        named = [shard for shard in sorted(serving) if any(overlap(shard, each) for each in named)]
    elif unknown:
        raise SourceMisconfigured(
            f"keyspace {settings.keyspace} has no shard {', '.join(unknown)}; it has {', '.join(serving)}: correct 'shards', "
            "or leave it empty to read all of them, through reshards too"
        )
    tables = chosen_tables(settings, await vtgate.tables(settings.keyspace))
    if not tables:
        raise SourceMisconfigured(
            f"no table of keyspace {settings.keyspace} matches include_tables ({', '.join(settings.include_tables)}): "
            "correct the pattern (it must match keyspace.table)"
        )
    return named, tables


class VstreamChangeLog:
    """An open Vitess source (``libs.source.port.ChangeLog``)."""

    def __init__(
        self,
        settings: VstreamReaderSettings,
        schema_history: SchemaHistoryClient,
        vtgate: Vtgate,
        identity: BatchIdentity,
        beginning: Beginning,
        *,
        tables: Sequence[str],
        progress: SnapshotProgress,
        fellows: Fellows | None,
        tally: StreamTally,
        tally_metrics: TallyMetrics,
    ) -> None:
        self._settings = settings
        self._schema_history = schema_history
        self._vtgate = vtgate
        self._position = beginning.position
        self._must_commit_first = beginning.must_commit_first
        self._tables = tables
        self._progress = progress
        self._is_copying = beginning.is_copying
        self._batch = BatchBuilder(
            dataclasses.replace(
                identity,
                removed_fields=settings.events.remove_fields,
                has_ordered_transactions=settings.events.transaction_metadata is TransactionMetadata.ORDERED,
            )
        )
        self._batch.await_others(beginning.awaited)
        self._labels = (settings.source, identity.source_partition)
        self._bytes_read = metrics.READER_BYTES.labels(*self._labels)
        metrics.READER_QUEUE_ANSWERS_CAPACITY.labels(*self._labels).set(ANSWERS_AHEAD)
        most_bytes = ANSWERS_AHEAD * settings.vtgate.max_message_bytes
        metrics.READER_QUEUE_BYTES_CAPACITY.labels(*self._labels).set(most_bytes)
        self._schemas: dict[TableId, TableSchema] = {}
        """The newest version of each table that was met."""
        self._versions: dict[TableSchema, TableSchema] = {}
        self._announced: dict[int, binlogdata_pb2.Journal] = {}
        """Journals that the main stream has met, by their numbers."""
        self._fellows = fellows
        self._looks_at_s = self._told_at_s = 0.0
        self._has_moved = False
        """The next main stream begins at ``_position``, which is not where this one stood."""
        self._order = EventOrder(epoch=0, rank=0, tx_ordinal=0)
        """The greatest of all checkpoints: a shard that was let go may have had it, and none may go backwards."""
        self._left_out = LeftOut(settings.failure_handling, *self._labels)
        self._options = DecoderOptions(
            source=settings.source,
            keyspace=settings.keyspace,
            is_captured=capture_filter(settings),
            modes=settings.values,
            events=settings.events,
            key_columns=settings.key_columns,
            spill_dir=Path(settings.spill_dir),
            source_partition=identity.source_partition,
            set_aside=self._set_aside if self._left_out.goes_on else None,
            tally=tally,
        )
        self._tally_metrics = tally_metrics
        self._decoder: StreamDecoder | None = None
        """Of the main stream."""
        self._recopy = self._recopy_of(beginning.incremental)

    def close(self) -> None:
        """End the work beside the streams. Blocks shortly."""
        self._recopy.close()

    def shards(self) -> Sequence[ShardProgress]:
        """See ``libs.source.port.HasShards.shards``."""
        if self._decoder is None:
            return ()
        second = self._recopy.decoder
        copied_again = second.shards.copy.shards if second is not None else frozenset()
        return [
            dataclasses.replace(shard, is_copying=True) if shard.shard in copied_again else shard
            for shard in self._decoder.shard_progress()
        ]

    def _recopy_of(self, state: IncrementalSnapshot) -> Recopy:
        return Recopy(self._settings, state, labels=self._labels, make_decoder=self._copying_decoder)

    async def batches(self) -> AsyncIterator[ReadBatch]:
        """See ``libs.source.port.ChangeLog.batches``."""
        self._recopy.follow_signals(self._settings.kafka)
        for schema in await self._schema_history.list_tables(self._settings.source):
            self._remember(schema)
        if self._must_commit_first:
            yield self._first_checkpoint()
        while True:
            self._recopy.ended()  # a second stream ends with the main one
            decoder = self._decoder = StreamDecoder(
                self._options, self._position, self._versions, batch=self._batch, is_copying=self._is_copying
            )
            if self._has_moved or not self._position.vgtid:
                decoder.shards.note(
                    self._position.let_go, self._position.taken_up
                )  # to be published, though no row may come
            self._announced.clear()
            self._has_moved = False
            try:
                async with aclosing(self._stream(decoder)) as stream:
                    async for batch in stream:
                        yield batch
            except PositionPurged as error:
                if self._settings.snapshot.mode is not SnapshotMode.WHEN_NEEDED:
                    raise _placed(error, decoder) from error
                log.warning("copy_needed", reason=str(error))
                await self._begin_again(decoder)
                continue
            except ShardsNotInStream as error:
                await self._confirm(decoder)
                if self._fellows is None or not self._let_go(decoder):
                    raise _placed(error, decoder) from error
            except (PipelineHalted, InvalidEvent) as error:
                raise _placed(error, decoder) from error
            if not self._has_moved:
                await self._confirm(decoder)
                if (journal := self._passed_journal(decoder)) is None:
                    raise SourceUnavailable("vtgate ended the stream: it is opened again")
                self._follow_journal(journal, decoder)

    def _first_checkpoint(self) -> ReadBatch:
        resume = ResumePoint(
            position=position_of(self._position),
            order=self._order,
            committed_at_us=time.time_ns() // 1_000,
            snapshot=SnapshotProgress() if self._is_copying else None,
            incremental=self._recopy.state,
        )
        return ReadBatch(payload=b"", rows=0, resume=resume)

    async def _confirm(self, decoder: StreamDecoder) -> None:
        """Make sure that the shards which began with this stream did so before the journals that end them: after one, vtgate
        never leads on to the new shards.

        Raises:
            SourceUnavailable: one did not, or may not have; it is begun again, from the last checkpoint.
        """
        begun = decoder.shards.unconfirmed - decoder.shards.to_begin_again
        if in_doubt := begun - decoder.shards.held:
            executed = await self._vtgate.executed(self._settings.keyspace)
            if ended := sorted(in_doubt - executed.keys()):
                raise SourceUnavailable(f"a reshard ended {', '.join(ended)} when it was about to be read: begun again")
        decoder.shards.confirm(begun)

    def _passed_journal(self, decoder: StreamDecoder) -> binlogdata_pb2.Journal | None:
        """A journal that every shard which it ends has come to, so that nothing more is to come of them."""
        held = decoder.shards.held if self._announced else frozenset()
        return next((journal for journal in self._announced.values() if _ended(journal) <= held), None)

    def _follow_journal(self, journal: binlogdata_pb2.Journal, decoder: StreamDecoder) -> None:
        """The next stream begins where the journal says that the new shards go on: their first place is in the next checkpoint,
        though nothing may happen there. vtgate, which leads on by itself, reports them with the next change only."""
        ended, place = _ended(journal), decoder.shards.place
        born = tuple(shard_gtid_from_proto(entry) for entry in journal.shard_gtids)
        kept = tuple(entry for entry in place.vgtid if entry.shard not in ended)
        epochs = {entry.shard: place.epochs[entry.shard] for entry in kept}
        epochs |= {entry.shard: inherited_epoch(entry.shard, place.epochs) for entry in born}
        self._copy_rest_of(
            {shard: decoder.shards.finished_tables(shard) for shard in ended & decoder.shards.copy.shards}
        )
        copied = {shard: keys for shard, keys in place.copied.items() if shard not in ended}
        self._progress = self._progress_of(decoder)
        position = msgspec.structs.replace(place, vgtid=(*kept, *born), epochs=epochs, copied=copied)
        self._move_to(decoder, begun_again(position, decoder.shards.to_begin_again))
        metrics.READER_RESHARDS.labels(*self._labels).inc()
        log.info("reshard_followed", ended=sorted(ended), born=[entry.shard for entry in born])

    # --- a reshard that joins shards of several tasks (``reshard``) ---------------------------------------------------------

    def _let_go(self, decoder: StreamDecoder) -> bool:
        """Read on without the shards that a reshard joins with other tasks'. False: no such journal has come.

        Raises:
            PipelineHalted: another reader's settings leave one of them out.
        """
        place = position = decoder.shards.place
        for journal in self._announced.values():
            ended = _ended(journal)
            own = ended & decoder.shards.names
            if not own & decoder.shards.held or own == ended:
                continue
            if unread := [shard for shard in sorted(ended) if not self._is_read(shard)]:
                raise PipelineHalted(
                    f"a reshard joins {', '.join(sorted(own))} with shards that nobody reads ({', '.join(unread)}): name them "
                    "in 'shards' too, for all tasks"
                )
            staying = decoder.shards.to_begin_again
            position = let_go(position, journal.id, sorted(ended), self._recopy.state, staying=staying)
            log.info("shards_let_go", shards=sorted(own - staying), joined_with=sorted(ended - own))
        if position is place:
            return False
        position = begun_again(position, decoder.shards.to_begin_again)
        self._progress = self._progress_of(decoder)
        self._move_to(decoder, position)
        return True

    async def _begin_again(self, decoder: StreamDecoder) -> None:
        """The next stream copies everything. Shards that were joined with other tasks' are let go for good (``reshard``)."""
        serving, place = await self._serving(), decoder.shards.place
        _, joined = shards_to_copy(self._settings.tasks, place, serving)
        if joined:
            log.warning("shards_lost", shards=joined, remedy="see that task 0 runs: it copies what they became")
        self._progress = SnapshotProgress()
        self._move_to(decoder, anew(self._settings, lost(place, joined, self._recopy.state), serving))

    async def _serving(self) -> Sequence[str]:
        """The shards that serve; for those of the settings their successors."""
        return [shard for shard in await self._vtgate.shards(self._settings.keyspace) if self._is_read(shard)]

    def _is_read(self, shard: str) -> bool:
        named = self._settings.shards
        return not named or any(overlap(shard, each) for each in named)

    def _move_to(self, decoder: StreamDecoder, position: VitessPosition) -> None:
        """Open the next main stream at ``position``; rows decoded before it are in the batch."""
        self._order = max(self._order, decoder.progress.last_order)
        self._position, self._is_copying, self._has_moved = position, bool(copying_shards(position)), True

    @property
    def _takes_lost_shards(self) -> bool:
        """Task 0, where others may lose shards that it has no part in."""
        tasks, mode = self._settings.tasks, self._settings.snapshot.mode
        return tasks is not None and tasks.number == 0 and mode is SnapshotMode.WHEN_NEEDED

    async def _settle(self, decoder: StreamDecoder) -> None:
        """Look, now and then, whether the shards that wait can be taken up, by this task or another."""
        if self._fellows is None or (now_s := time.monotonic()) < self._looks_at_s:
            return
        assert self._settings.tasks is not None
        if not decoder.shards.is_handing_over and not self._takes_lost_shards:
            return
        self._looks_at_s = now_s + _FELLOWS_POLL_S
        place = decoder.shards.place
        try:
            others = await self._fellows.positions()
            found = settled(place, self._settings.tasks.number, others)
            if self._settings.tasks.number == 0 and not found.added and has_lost(found.position, others):
                found = copied_again(found.position, others, await self._serving())
                self._progress = SnapshotProgress() if found.added else self._progress
            states = await self._fellows.asked(found.added)
            awaited = await self._fellows.published_ends(found.added)
        except TransientError as error:
            log.info("fellow_tasks_unknown", reason=str(error))
            return
        if found.awaited and now_s >= self._told_at_s:
            self._told_at_s = now_s + _STILL_WAITING_S
            log.warning("shards_await_other_tasks", missing=sorted(found.awaited), remedy="see that all tasks run")
        if found.added:
            shards = [entry.shard for parts in found.added.values() for part in parts for entry in part.vgtid]
            log.info("shards_taken_up", shards=sorted(shards))
            failpoint("reader_before_shards_taken_up")
            await asyncio.to_thread(self._recopy.close)
            self._recopy = self._recopy_of(taken_over([self._recopy.state, *states]))
            self._recopy.follow_signals(self._settings.kafka)
            self._batch.await_others(awaited)
            self._move_to(decoder, found.position)
        elif (found.position.let_go, found.position.taken_up) != (place.let_go, place.taken_up):
            decoder.shards.note(found.position.let_go, found.position.taken_up)

    # --- one stream --------------------------------------------------------------------------------------------------------

    async def _stream(self, decoder: StreamDecoder) -> AsyncGenerator[ReadBatch, None]:
        """The batches of one stream, until vtgate ends it or a reshard is passed; a second one that copies tables again runs
        beside it.

        Raises:
            SourceMisconfigured: rows are to be copied, and no captured table is one whose rows are.
        """
        to_copy = copied_tables(self._settings, self._tables) if self._is_copying else ()
        request = stream_request(self._settings, self._position, tables_to_copy=to_copy)
        if self._is_copying and not self._progress.rows_estimated:
            estimated = await self._estimate(to_copy or self._tables, sorted(decoder.shards.names))
            tables = len(to_copy or self._tables)
            self._progress = msgspec.structs.replace(self._progress, tables=tables, rows_estimated=estimated)
        log.info("stream_opened", shards=[entry.shard for entry in self._position.vgtid], is_copy=self._is_copying)
        pace = _Pace(self._labels, self._settings.heartbeat_interval_s)
        async with Answers(self._vtgate, self._settings.stream.heartbeat_interval_s) as answers:
            if self._position.vgtid:  # of no shard vtgate would stream all
                answers.open(decoder, request)
            while not self._has_moved:
                is_gathering = decoder.is_resumable and self._has_news(decoder, pace)
                arrived = await answers.next(_QUIET_S if is_gathering else _SIGNAL_POLL_S)
                if arrived is not None and arrived.decoder is not decoder:
                    async for batch in self._recopied(decoder, answers, arrived):
                        yield batch
                elif arrived is not None:
                    if arrived.answer is None:
                        return
                    async for batch in self._decoded(decoder, arrived.answer, pace):
                        yield batch
                    if self._passed_journal(decoder) is not None:
                        return
                if decoder.shards.unconfirmed and not decoder.shards.to_begin_again:
                    await self._confirm(decoder)
                if decoder.is_resumable and pace.is_due(is_quiet=arrived is None):
                    decoder.flush()
                    if self._has_news(decoder, pace) or pace.is_heartbeat_due():
                        yield self._take(decoder, pace)
                if not decoder.shards.copy.is_running and self._recopy.take_signals(self._captured()):
                    yield self._take(decoder, pace)  # nothing else may come, and a signal's effect is to be kept
                if self._recopy.is_busy:
                    await self._direct_recopy(decoder, answers)
                self._observe(decoder, answers, pace)
                if decoder.is_resumable:
                    await self._settle(decoder)

    def _has_news(self, decoder: StreamDecoder, pace: "_Pace") -> bool:
        return not self._batch.is_empty or pace.has_moved(decoder) or self._is_copying != decoder.shards.copy.is_running

    async def _decoded(self, decoder: StreamDecoder, answer: bytes, pace: "_Pace") -> AsyncGenerator[ReadBatch, None]:
        """One answer; batches that are full within it."""
        self._bytes_read.inc(len(answer))
        decoder.tick(time.time_ns())
        for found in decoder.feed(answer):
            if found is not None:
                await self._handle(found, decoder)
            elif self._batch.is_full and (decoder.is_resumable or self._batch.is_overfull):
                yield self._take(decoder, pace)
                await asyncio.sleep(0)

    async def _recopied(
        self, decoder: StreamDecoder, answers: Answers, arrived: Arrived
    ) -> AsyncGenerator[ReadBatch, None]:
        """An answer of the second stream: its rows are one batch, with the place that it reached in the resume point."""
        second = arrived.decoder
        if second is not self._recopy.decoder:
            return  # of a stream that was ended meanwhile
        now_s = time.monotonic()
        error = arrived.error
        if arrived.answer is not None:
            error = await self._feed_second(second, arrived.answer)
        if error is not None or arrived.answer is None:
            self._recopy.broke(error, now_s)
            is_over = True
        else:
            is_over = self._recopy.delivered()
        if is_over:
            answers.end(second)
            self._recopy.ended()
        yield self._take(decoder, None)
        failpoint("reader_between_incremental_chunks")

    async def _feed_second(self, second: StreamDecoder, answer: bytes) -> HeadwaterError | None:
        """Let the second stream's decoder have an answer; what is wrong with it, if something is. Whole rows before that are in
        the batch: they are right, and come again.

        Raises:
            ServiceUnavailable: schema_history does not answer. DiskFull.
        """
        second.tick(time.time_ns())
        try:
            for found in second.feed(answer):
                if isinstance(found, NewTable):
                    await self._learn(found, second)
        except (ServiceUnavailable, DiskFull):
            raise
        except HeadwaterError as error:
            return error
        finally:
            second.flush()
        return None

    async def _direct_recopy(self, decoder: StreamDecoder, answers: Answers) -> None:
        """Open or end the second stream, as signals and reshards want it."""
        second = self._recopy.decoder
        if second is not None and self._recopy.is_to_end(decoder.shards.names):
            answers.end(second)
            self._recopy.ended()
        if not decoder.shards.names:
            self._recopy.pass_over()
        if decoder.shards.copy.is_running or (request := self._recopy.due(decoder, time.monotonic())) is None:
            return
        assert self._recopy.decoder is not None
        assert self._recopy.running is not None
        if not self._recopy.running.rows_estimated:
            table = self._recopy.running.table.partition(".")[2]
            self._recopy.expect(await self._estimate([table], sorted(decoder.shards.names)))
        answers.open(self._recopy.decoder, request)

    def _copying_decoder(self, position: VitessPosition, for_tenants: tuple[str, ...]) -> StreamDecoder:
        options = dataclasses.replace(self._options, is_recopy=True, for_tenants=for_tenants)
        return StreamDecoder(options, position, self._versions, batch=self._batch, is_copying=True)

    def _captured(self) -> list[str]:
        return [str(TableId(database=self._settings.keyspace, table=table)) for table in self._tables]

    def _take(self, decoder: StreamDecoder, pace: "_Pace | None") -> ReadBatch:
        if pace is not None:
            pace.taken(decoder)
        payload, rows = self._batch.take(time.time_ns() // 1_000)
        letters = self._left_out.taken()
        return ReadBatch(payload=payload, rows=rows, resume=self._resume_point(decoder), dead_letters=letters)

    def _set_aside(self, row: UndecodedRow) -> None:
        self._left_out.add(row.reason, encode_undecoded_row(row), table=f"{row.database}.{row.table}")

    def _resume_point(self, decoder: StreamDecoder) -> ResumePoint | None:
        if not decoder.is_resumable:
            return None
        self._copy_rest_of(decoder.shards.copy.cut_short)
        decoder.shards.copy.cut_short.clear()
        self._is_copying = decoder.shards.copy.is_running
        self._order = max(self._order, decoder.progress.last_order)
        return ResumePoint(
            position=decoder.shards.position,
            order=self._order,
            committed_at_us=decoder.progress.committed_at_us or time.time_ns() // 1_000,
            snapshot=self._progress_of(decoder) if decoder.shards.copy.is_running else None,
            incremental=self._recopy.state,
        )

    def _copy_rest_of(self, cut_short: Mapping[str, frozenset[str]]) -> None:
        """Have the tables copied again that shards had not finished when a reshard ended them, from their new shards and beside
        the stream: it begins at the journal, so deletes of rows that were copied before are in it.

        vtgate cannot be asked for the rest alone: of a merge the old shards stood at different keys.
        """
        if not cut_short:
            return
        finished = frozenset.intersection(*cut_short.values())
        rest = [table for table in copied_tables(self._settings, self._tables) or self._tables if table not in finished]
        log.info("copy_cut_short", shards=sorted(cut_short), copied_again=rest)
        self._recopy.want(str(TableId(database=self._settings.keyspace, table=table)) for table in rest)

    def _progress_of(self, decoder: StreamDecoder) -> SnapshotProgress:
        return SnapshotProgress(
            finished_tables=tuple(sorted(decoder.shards.tables_copied)),
            current_table=decoder.shards.copy.current_table,
            tables=self._progress.tables,
            rows_copied=self._progress.rows_copied + decoder.progress.rows_copied,
            rows_estimated=self._progress.rows_estimated,
        )

    async def _estimate(self, tables: Sequence[str], shards: Sequence[str]) -> int:
        """How many rows the copy should have; 0 where it is unknown: a copy does without."""
        keyspace = self._settings.keyspace
        try:
            of_shards = await asyncio.gather(*(self._vtgate.row_estimates(keyspace, shard) for shard in shards))
        except HeadwaterError as error:
            log.info("rows_not_estimated", reason=str(error))
            return 0
        return sum(estimates.get(table, 0) for estimates in of_shards for table in tables)

    def _observe(self, decoder: StreamDecoder, answers: Answers, pace: "_Pace") -> None:
        pace.count(decoder)
        now_s = time.monotonic()
        if self._tally_metrics.is_due(now_s):
            self._tally_metrics.report(self.shards(), now_s)
            metrics.READER_QUEUE_ANSWERS.labels(*self._labels).set(answers.waiting)
            metrics.READER_QUEUE_BYTES.labels(*self._labels).set(answers.waiting_bytes)
        if decoder.shards.copy.is_running:
            failpoint("reader_between_snapshot_chunks")

    # --- the stream's content besides rows ---------------------------------------------------------------------------------

    async def _handle(self, found: Found, decoder: StreamDecoder) -> None:
        match found:
            case NewTable():
                await self._learn(found, decoder)
            case DdlStatement():
                self._tell(found)
            case Reshard():
                self._announced[found.journal.id] = found.journal
                log.info(
                    "reshard_announced",
                    ended=[participant.shard for participant in found.journal.participants],
                    born=[entry.shard for entry in found.journal.shard_gtids],
                )

    def _remember(self, schema: TableSchema) -> None:
        self._schemas[schema.table_id] = schema
        self._versions[_unversioned(schema)] = schema

    async def _learn(self, found: NewTable, decoder: StreamDecoder) -> None:
        """Find the version of a table's form in the history, or record it as a new one.

        Shards change their tables one after another, and a stream that is opened again sends every table again: a form that
        was there before is that version again, whichever shard or replay brings it.
        """
        table_id = found.schema.table_id
        version = 1
        while found.schema not in self._versions:
            try:
                known = await self._schema_history.table_schema(self._settings.source, table_id, version)
            except SchemaUnknown:
                break
            self._versions[_unversioned(known)] = known
            version += 1
        if found.schema not in self._versions:
            recorded = await self._schema_history.record_schema_change(
                source=self._settings.source,
                table_id=table_id,
                kind=SchemaChangeKind.ALTER if table_id in self._schemas else SchemaChangeKind.SNAPSHOT,
                order=found.order,
                position=found.position,
                committed_at_us=found.committed_at_us,
                ddl=create_statement(found.schema),
                table_schema=found.schema,
            )
            failpoint("reader_after_schema_recorded_before_publish")
            self._remember(msgspec.structs.replace(found.schema, version=recorded))
            metrics.READER_SCHEMA_CHANGES.labels(*self._labels).inc()
        versioned = self._versions[found.schema]
        decoder.learn(found.schema, versioned)
        # The schema at once, so that a new column is known before its rows. No event: Debezium sends statements only.
        self._batch.add_table_change(
            table_id,
            schema_version=versioned.version,
            order=found.order,
            committed_at_us=found.committed_at_us,
            is_snapshot=False,
            key=b"",
            value=b"",
        )

    def _tell(self, found: DdlStatement) -> None:
        """A statement, for the schema-change topics of tenants that see its tables."""
        keyspace = self._settings.keyspace
        with suppress(DdlNotUnderstood):
            self._report_unseen(unseen_rows(keyspace, found.statement, tables=self._schemas), found.shard)
        for table_id, is_truncated in tables_of(self._schemas, keyspace, found.statement).items():
            if not self._options.is_captured(table_id):
                continue
            if is_truncated:
                log.warning("truncate_not_followed", table=str(table_id), shard=found.shard)
                self._report_unseen(UnseenRows("TRUNCATE TABLE", (table_id,)), found.shard)
            block = VitessSourceBlock(self._settings.source, keyspace, table_id.table, found.shard)
            self._batch.add_table_change(
                table_id,
                schema_version=0,
                order=found.order,
                committed_at_us=found.committed_at_us,
                is_snapshot=False,
                key=schema_change_key(keyspace),
                value=schema_change_value(
                    source_block=block.filled(time_us=found.committed_at_us, snapshot=b'"false"', vgtid=found.vgtid),
                    ts_ms=time.time_ns() // 1_000_000,
                    database=keyspace,
                    ddl=found.statement,
                    table_id=None,
                    schema=None,
                    kind="ALTER",
                ),
            )

    def _report_unseen(self, unseen: UnseenRows | None, shard: str) -> None:
        """Raises PipelineHalted: ``on_unseen_change`` says so."""
        report_unseen_rows(
            unseen,
            source=self._settings.source,
            source_partition=self._labels[1],
            is_captured=self._options.is_captured,
            at=shard,
            policies=self._settings.on_unseen_change,
        )


def _placed(error: _Error, decoder: StreamDecoder) -> _Error:
    """The error with where the stream stood: after the last transaction that ended."""
    shards = [f"{entry.shard or 'all shards'} at {entry.gtid or 'its copy'}" for entry in decoder.shards.place.vgtid]
    more = [f"{len(shards) - _SHARDS_TOLD} more"] if len(shards) > _SHARDS_TOLD else []
    return type(error)(f"stream behind {', '.join([*shards[:_SHARDS_TOLD], *more])}: {error}")


def _ended(journal: binlogdata_pb2.Journal) -> frozenset[str]:
    return frozenset(participant.shard for participant in journal.participants)


def _unversioned(schema: TableSchema) -> TableSchema:
    return msgspec.structs.replace(schema, version=0)


def tables_of(schemas: dict[TableId, TableSchema], keyspace: str, statement: str) -> dict[TableId, bool]:
    """The tables that a statement concerns, in their order, and whether it truncates them."""
    try:
        changes = apply_ddl(schemas, keyspace, statement)
    except DdlNotUnderstood as error:
        return dict.fromkeys(sorted(error.table_ids), False)
    found = {
        table: change.kind is TableChangeKind.TRUNCATE
        for change in changes
        for table in (change.table_id, change.previous_id)
        if table is not None
    }
    return dict(sorted(found.items()))


def create_statement(schema: TableSchema) -> str:
    """A table's form as a statement, for people who read the history: vtgate tells columns, not the statement behind them."""
    columns = [
        f"{quote_identifier(column.name)} {column.source_type}{'' if column.is_optional else ' NOT NULL'}"
        for column in schema.columns
    ]
    key = [f"PRIMARY KEY ({', '.join(map(quote_identifier, schema.key))})"] if schema.key else []
    return f"CREATE TABLE {quote_identifier(schema.table_id.table)} ({', '.join([*columns, *key])})"


class _Pace:
    """When a batch is handed over, and the stream's counts until then."""

    def __init__(self, labels: tuple[str, str], heartbeat_interval_s: float) -> None:
        self._labels = labels
        self._heartbeat_interval_s = heartbeat_interval_s
        self._taken_s = 0.0
        self._transactions = metrics.READER_TRANSACTIONS.labels(*labels)
        self._reshards = metrics.READER_RESHARDS.labels(*labels)
        self._gathers_until_s = 0.0
        self._counted = self._told = self._reshards_counted = 0

    def is_due(self, *, is_quiet: bool) -> bool:
        """Nothing more has arrived, or too much time has passed since a batch was taken."""
        return is_quiet or time.monotonic() > self._gathers_until_s

    def has_moved(self, decoder: StreamDecoder) -> bool:
        """The position is another than when a batch was taken, be it that nothing captured changed."""
        return decoder.shards.places != self._told

    def taken(self, decoder: StreamDecoder) -> None:
        """A batch was taken."""
        self._told = decoder.shards.places
        self._taken_s = time.monotonic()
        self._gathers_until_s = self._taken_s + _MAX_GATHERING_S

    def is_heartbeat_due(self) -> bool:
        """No batch was taken for so long that one without anything in it is due."""
        return 0 < self._heartbeat_interval_s <= time.monotonic() - self._taken_s

    def count(self, decoder: StreamDecoder) -> None:
        """Add the counts since the last call to the metrics."""
        self._transactions.inc(decoder.progress.transactions - self._counted)
        self._counted = decoder.progress.transactions
        self._reshards.inc(decoder.shards.reshards - self._reshards_counted)
        self._reshards_counted = decoder.shards.reshards
