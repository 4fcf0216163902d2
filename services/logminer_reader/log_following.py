"""The redo, followed: mined in a thread, decoded at each COMMIT, and cut into batches."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec
import structlog

from libs.oracle.column_type import parse_column_type
from libs.oracle.incarnations import DatabaseIncarnation
from libs.oracle.log_position import commit_order
from libs.oracle.logical import is_large
from libs.oracle.undo import UndoContradiction
from libs.source.oracle.settings import LackingValues
from libs.source.port import ReadBatch, ResumePoint
from libs.telemetry import metrics
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from services.logminer_reader.decode import Schemas, TransactionDecoder
from services.logminer_reader.gather import Gatherer
from services.logminer_reader.incremental import IncrementalCopy
from services.logminer_reader.log_reports import LogReports
from services.logminer_reader.log_steps import Committed, LogSteps, Step
from services.logminer_reader.log_views import next_incarnation, server_offset
from services.logminer_reader.mined_rows import CapturedTables, MinedDdl, MinedRow
from services.logminer_reader.mining import Mined, mine
from services.logminer_reader.position import SOURCE_PARTITION, LogminerPosition
from services.logminer_reader.remining import Remining, TornTransaction
from services.logminer_reader.rereading import SourceReader
from services.logminer_reader.schema_changes import SchemaChanges
from services.logminer_reader.settings import LogminerReaderSettings
from services.logminer_reader.signals import Signals
from services.logminer_reader.transactions import OpenTransactions
from services.logminer_reader.windows import Windows

log = structlog.get_logger()

_POSITION_S: Final = 5.0
"""The position is kept at least so often, whatever changes: an idle source is never read again from long ago."""
_CLOSE_S: Final = 2.0
_GATHERED: Final = object()
_Answer = TypeVar("_Answer")


class FollowedSchemas(Schemas, Protocol):
    """The versions of the captured tables."""

    @property
    def captured(self) -> list[TableSchema]:
        """The newest version of each."""
        ...

    @property
    def awaited(self) -> Collection[TableId]:
        """Tables whose definitions the log is to bring."""
        ...

    @property
    def quarantined(self) -> Mapping[str, str]:
        """Tables whose rows are passed over, each with the reason."""
        ...


@dataclass(frozen=True, slots=True)
class BesideLog:
    """The parts that act on the log's steps, or read beside it."""

    changes: SchemaChanges
    copies: IncrementalCopy
    signals: Signals


@dataclass(slots=True)
class _Place:
    """How far everything is gathered."""

    position: LogminerPosition
    order: EventOrder
    """Of the last event before it."""
    committed_at_us: int

    def advance(self, step: Committed, events: int) -> None:
        """A transaction was gathered."""
        self.position = msgspec.structs.replace(
            self.position, done_scn=step.scn, done_commits=step.nth + 1, low_scn=step.low_scn
        )
        self.order = msgspec.structs.replace(commit_order(self.position.epoch, step.scn, step.nth), tx_ordinal=events)
        self.committed_at_us = step.time_us

    def enter(self, incarnation: DatabaseIncarnation) -> None:
        """The redo of an incarnation is gathered, up to this one. Transactions that were open there are rolled back."""
        self.position = msgspec.structs.replace(
            self.position,
            resetlogs_change=incarnation.resetlogs_change,
            resetlogs_id=incarnation.resetlogs_id,
            epoch=self.position.epoch + 1,
            done_scn=incarnation.resetlogs_change,
            done_commits=0,
            low_scn=None,
            dropped=(),
        )

    def end_window(self, steps: LogSteps) -> None:
        """All of a window was gathered."""
        done_scn, done_commits = steps.done
        self.position = msgspec.structs.replace(
            self.position, done_scn=done_scn, done_commits=done_commits, low_scn=steps.low_scn
        )
        self.committed_at_us = max(self.committed_at_us, steps.committed_at_us)


@dataclass(slots=True)
class _Mining:
    """What mines, as long as the log is open."""

    windows: Windows
    transactions: OpenTransactions
    steps: LogSteps
    remining: Remining
    rereading: SourceReader
    after: DatabaseIncarnation | None = None
    """The incarnation that follows; None: the one that is mined is the current one."""
    call: asyncio.Future[Any] | None = None
    """What a thread is in."""

    async def in_thread(self, function: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """Carry a call out that blocks; one at a time. Where the caller is cancelled, the call goes on."""
        self.call = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
        answer: _Answer = await asyncio.shield(self.call)
        return answer

    async def close(self) -> None:
        """Let go of the database. A thread that waits for it is interrupted after a while."""
        parts = (self.windows, self.remining, self.rereading)
        if self.call is not None:
            for _ in range(2):
                await asyncio.wait([self.call], timeout=_CLOSE_S)
                if self.call.done():
                    break
                for part in parts:
                    part.interrupt()
        if self.call is None or self.call.done():
            for part in parts:
                await asyncio.to_thread(part.close)
        self.transactions.close()


class LogFollowing:
    """Follows the redo from a position on."""

    def __init__(
        self, settings: LogminerReaderSettings, schemas: FollowedSchemas, beside: BesideLog, gatherer: Gatherer
    ) -> None:
        self._settings = settings
        self._schemas = schemas
        self._beside = beside
        self._gatherer = gatherer
        self._mining: _Mining | None = None
        self._captured_of: list[TableSchema] | None = None
        self._captured_tables = CapturedTables(())

    async def close(self) -> None:
        """Let go of the database."""
        mining, self._mining = self._mining, None
        if mining is not None:
            await mining.close()

    async def batches(
        self, position: LogminerPosition, order: EventOrder, committed_at_us: int, until_scn: int | None = None
    ) -> AsyncIterator[ReadBatch]:
        """The redo after ``position``, without end; or all that was committed below ``until_scn``, and nothing more.

        Raises:
            PositionPurged, SourceUnavailable, AccessDenied, PipelineHalted, UndecodableValue, DiskFull: as the port has them.
        """
        place = _Place(position, order, committed_at_us)
        while True:
            self._mining = mining = await asyncio.to_thread(self._open, place.position)
            self._beside.signals.transactions = mining.transactions
            after = mining.after
            end_scn = min(until_scn or after.resetlogs_change, after.resetlogs_change) if after else until_scn
            async for batch in self._of_incarnation(place, mining, end_scn):
                yield batch
            await self.close()
            if after is None or end_scn != after.resetlogs_change:
                return
            place.enter(after)
            self._beside.copies.forget_chunk()
            log.warning("resetlogs_followed", scn=after.resetlogs_change, epoch=place.position.epoch)
            yield self._gatherer.take(self._resume_point(place))

    async def _of_incarnation(self, place: _Place, mining: _Mining, until_scn: int | None) -> AsyncIterator[ReadBatch]:
        """``batches``, of one incarnation's redo."""
        decoder = self._decoder(place.position.epoch, mining)
        reports = LogReports(self._settings.source)
        log.info("log_opened", done_scn=place.position.done_scn, mined_from=place.position.mined_from)
        kept_s = time.monotonic()
        mined = mine(mining.windows, mining.steps, self._captured, self._settings.mining)
        while until_scn is None or place.position.done_scn < until_scn:
            each: Mined = await mining.in_thread(next, mined)
            steps = [step for step in each.steps if until_scn is None or step.scn < until_scn]
            for step in steps:
                async for batch in self._copies_before(step.scn, place):
                    yield batch
                async for batch in self._act_on(step, place, decoder, mining):
                    yield batch
                if self._gatherer.entries.is_full:
                    yield self._gatherer.take(self._resume_point(place))
            if len(steps) < len(each.steps):
                break
            if each.ends_window:
                place.end_window(mining.steps)
                reports.window_ended(place.position, mining.steps, mining.transactions)
                async for batch in self._copies_before(place.position.done_scn, place):
                    yield batch
                if not self._gatherer.is_empty or time.monotonic() - kept_s >= _POSITION_S:
                    kept_s = time.monotonic()
                    yield self._gatherer.take(self._resume_point(place))
            elif not steps:
                async for batch in self._beside_log(place):
                    yield batch
                await asyncio.sleep(each.pause_s)
        if not self._gatherer.is_empty:
            yield self._gatherer.take(self._resume_point(place))

    async def _beside_log(self, place: _Place) -> AsyncIterator[ReadBatch]:
        """While no redo is to be read: signals, and the next chunk of a copy."""
        before = self._gatherer.incremental
        await self._beside.signals.take_new(place.order, place.position)
        await self._beside.copies.read_next(place.position.epoch)
        # A database at rest writes no redo, so no window ends: the chunk is due already.
        async for batch in self._copies_before(place.position.done_scn, place):
            yield batch
        if self._gatherer.incremental != before:  # a signal's effect is kept, whatever comes next
            yield self._gatherer.take(self._resume_point(place))

    async def _act_on(
        self, step: Step, place: _Place, decoder: TransactionDecoder, mining: _Mining
    ) -> AsyncIterator[ReadBatch]:
        """Gather one step; then its signals, where it has rows of the signal table."""
        if isinstance(step, MinedDdl):
            before = {str(schema.table_id): schema for schema in self._schemas.captured}
            await self._beside.changes.apply(step, place.position)
            self._beside.copies.tables_changed(before)
            return
        async for batch in self._transaction(step, decoder, mining):
            yield batch
        place.advance(step, decoder.events)
        for row in decoder.taken_signals():
            await self._beside.signals.take_row(row, place.order, place.position)

    async def _copies_before(self, scn: int, place: _Place) -> AsyncIterator[ReadBatch]:
        """A chunk of a copy goes before every commit at or above its own SCN."""
        due_scn = self._beside.copies.due_scn
        if due_scn is not None and scn >= due_scn:
            async for batch in self._beside.copies.deliver(place.position):
                yield batch

    def _open(self, position: LogminerPosition) -> _Mining:
        """Blocks. Raises as ``batches``."""
        settings, spill_dir = self._settings, Path(self._settings.spill_dir)
        windows = Windows(settings.database, settings.mining, position.resetlogs_id)
        try:
            after = next_incarnation(windows.views, position)
            windows.ends_before = ends_before = None if after is None else after.resetlogs_change
            offset = server_offset(windows.views)
        except Exception:
            windows.close()
            raise
        transactions = OpenTransactions(
            spill_dir,
            memory_bytes=settings.mining.transaction_memory_mb << 20,
            whole_from_scn=position.done_scn,
            server_offset=offset,
            dropped=position.dropped,
        )
        remining = Remining(settings.database, settings.mining, position, transactions, spill_dir, ends_before)
        rereading = SourceReader(settings.source, settings.database)
        is_wanted = self._is_wanted if settings.mining.passes_over else None
        steps = LogSteps(position, transactions, is_wanted)
        return _Mining(windows, transactions, steps, remining, rereading, after)

    def _is_wanted(self, start: MinedRow) -> bool:
        """Whether a transaction's user and client count."""
        mining = self._settings.mining
        return mining.users.has(start.user or "") and mining.client_ids.has(start.info or "")

    def _decoder(self, epoch: int, mining: _Mining) -> TransactionDecoder:
        settings = self._settings
        reads_again = settings.lacking_values is LackingValues.READ_AGAIN
        return TransactionDecoder(
            settings.source,
            settings.database.database_name,
            self._schemas,
            self._gatherer,
            mining.transactions.names,
            epoch=epoch,
            unavailable=settings.values.unavailable_placeholder,
            rereading=mining.rereading if reads_again else None,
            signal_table=settings.signal_table,
            transaction_metadata=settings.transaction_metadata,
        )

    def _captured(self) -> CapturedTables:
        """Made once for the same definitions: there may be thousands, and each window asks."""
        schemas = self._schemas.captured
        if schemas != self._captured_of:
            types = {column.source_type for schema in schemas for column in schema.columns}
            has_large = any(is_large(parse_column_type(text)) for text in types)
            tables = {schema.table_id for schema in schemas} | set(self._schemas.awaited)
            passes_over = self._settings.mining.passes_over
            self._captured_tables = CapturedTables(tuple(sorted(tables)), has_large, passes_over)
            self._captured_of = schemas
        return self._captured_tables

    def _resume_point(self, place: _Place) -> ResumePoint:
        mining = self._mining
        dropped = place.position.dropped if mining is None else mining.transactions.dropped(place.position.done_scn)
        position = msgspec.structs.replace(place.position, quarantined=self._schemas.quarantined, dropped=dropped)
        return self._gatherer.resume_point(position, place.order, place.committed_at_us)

    async def _transaction(
        self, step: Committed, decoder: TransactionDecoder, mining: _Mining
    ) -> AsyncIterator[ReadBatch]:
        """Gather a transaction. One that cannot be trusted is mined once more, by itself."""
        first = step.transaction
        try:
            try:
                if not step.is_whole and decoder.has_large(first):
                    step = await self._mined_again(step, mining, "cut")
                async for batch in self._gathered(decoder, decoder.gather, step, mining):
                    yield batch
            except UndoContradiction as error:
                log.warning("transaction_contradicts_itself", xid=first.xid.hex(), scn=step.scn, reason=str(error))
                again = await self._mined_again(step, mining, "contradiction")
                step.transaction.close()
                step = again
                async for batch in self._gathered(decoder, decoder.gather_or_leave_out, step, mining):
                    yield batch
            except TornTransaction as error:
                decoder.leave_out(step, str(error))
        finally:
            first.close()
            step.transaction.close()

    async def _mined_again(self, step: Committed, mining: _Mining, why: str) -> Committed:
        log.info("transaction_mined_again", xid=step.transaction.xid.hex(), scn=step.scn, why=why)
        metrics.ORACLE_REMINED.labels(self._settings.source, SOURCE_PARTITION, why).inc()
        again = await mining.in_thread(mining.remining.mined_again, step, self._captured())
        return replace(step, transaction=again, is_whole=True)

    async def _gathered(
        self,
        decoder: TransactionDecoder,
        gather: Callable[[Committed], Iterator[None]],
        step: Committed,
        mining: _Mining,
    ) -> AsyncIterator[ReadBatch]:
        """Batches of a transaction that is larger than one. A thread gathers where the source may be asked."""
        gathering = gather(step)
        if not decoder.is_slow(step):
            for _ in gathering:
                yield self._gatherer.take(None)
            return
        while await mining.in_thread(next, gathering, _GATHERED) is not _GATHERED:
            yield self._gatherer.take(None)
