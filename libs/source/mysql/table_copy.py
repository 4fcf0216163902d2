"""Copying rows of several tables and key ranges at once, out of read views of one moment.

``copy_range`` reads one range in chunks and encodes its rows as events; a ``RangeReader`` runs it, in a thread of this process
or in one of its own with a connection of its own; ``open_readers`` opens all their views at one position. Encoding is the
whole cost of a snapshot, so readers in processes make it faster until MySQL is the limit.

The first and the last row of a range stand apart: whether they are the first or last of their table, or of all, is known only
where all ranges come together.
"""

import asyncio
import itertools
import multiprocessing
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection as Pipe
from typing import Final

from libs.errors import AccessDenied, HeadwaterError, PipelineHalted, SourceUnavailable
from libs.events.batch import MAX_BATCH_BYTES, MAX_BATCH_ROWS, EncodedRows
from libs.events.run_rows import RunRows
from libs.formats.row_images import EventFrame
from libs.mysql.chunk_query import KeyPlace, chunk_list, chunk_statement, place_of
from libs.mysql.identifiers import quote_table
from libs.mysql.packets import Packets
from libs.mysql.row_key import row_key
from libs.mysql.text_row import text_rows_decoder, undecodable_text
from libs.mysql.text_rows import TextRowsDecoder
from libs.source.mysql.client import Connection, connect, hang_up, select_packets
from libs.source.mysql.settings import DatabaseSettings
from libs.source.mysql.snapshot import (
    CopiedAt,
    ReadView,
    begin_view,
    copied_tail,
    is_chunked,
    open_read_view,
    rows_in_view,
)
from libs.types.table import TableSchema

_SELECT_TIMEOUT_S: Final = 600.0
_OPEN_TIMEOUT_S: Final = 30.0
"""How long a reader's process may take to be there: it starts Python and loads its modules."""
_VIEW_TIMEOUT_S: Final = 5.0
"""How long all of them together may take to open their views, being connected: commits wait meanwhile."""
_END_TIMEOUT_S: Final = 5.0
_CHUNKS_AT_ONCE: Final = 4
"""Chunks that go from one thread or process to another at once: it costs as much as some hundred rows do."""


@dataclass(frozen=True, slots=True)
class TableRange:
    """Rows of one table to copy: those after one place of its key, up to another."""

    schema: TableSchema
    behind: KeyPlace = b""
    until: KeyPlace = b""
    select: str = ""
    """Read instead of the table: an SQL condition, or a SELECT whose rows have the table's columns."""

    @property
    def name(self) -> str:
        """The table, as ``database.table``."""
        return str(self.schema.table_id)


@dataclass(frozen=True, slots=True)
class UnreadRow:
    """A row of a table that could not be read."""

    column: str
    """At which decoding failed."""
    reason: str
    packet: bytes
    """The row as MySQL sent it, in its text protocol."""


@dataclass(frozen=True, slots=True)
class CopiedChunk:
    """Some rows of a range, in key order, as events."""

    first: tuple[bytes, bytes] | None
    """(row as JSON, key as JSON) of the range's first row; not in ``runs``."""
    runs: Sequence[EncodedRows]
    """Of one batch; two where a row that was held back has filled another one."""
    last: tuple[bytes, bytes] | None
    """Of the range's last row, where it is in this chunk."""
    rows: int
    """All of these."""
    last_key: KeyPlace
    """Where to go on after this chunk; b"": the range cannot be entered in its middle."""
    is_last: bool
    left_out: Sequence[UnreadRow] = ()
    """Not among ``rows``."""
    contradiction: str = ""
    """Of a last chunk: the view has another number of rows of the range than were read."""


class _Rows:
    """Encodes a range's rows; all but its first and its last one as events."""

    def __init__(self, schema: TableSchema, decoder: TextRowsDecoder, frame: EventFrame, *, leaves_out: bool) -> None:
        self._schema = schema
        self._decoder = decoder
        self._leaves_out = leaves_out
        self._left_out: list[UnreadRow] = []
        self._has_begun = False
        self.frame = frame
        """Around the images of the rows to come."""
        self._first: tuple[bytes, bytes] | None = None
        self._full: list[tuple[EncodedRows, bytes]] = []
        """Runs that take no more rows, each with the packet of its last row."""
        self._run = RunRows()
        self.newest = b""
        """The newest row."""
        self._held = b""
        """The newest row that can be read, held back until another one follows: it may be the last."""

    def add(self, packets: Packets, nth: int, end: int) -> None:
        """Rows of an answer, at least one. Raises UndecodableValue unless rows are left out."""
        self.newest = _packet(packets, end - 1)
        end -= 1
        while end >= nth and self._read(_packet(packets, end)) is None:
            end -= 1
        if end < nth:
            return
        self._release()
        while nth < end and not self._has_begun:
            self._write_first(_packet(packets, nth))
            nth += 1
        self._write(packets, nth, end)
        self._held = _packet(packets, end)

    def full(self, place: Callable[[bytes], KeyPlace]) -> Iterator[CopiedChunk]:
        """A chunk of each run that is full; ``place``: where a row stands in the table's key."""
        full, self._full = self._full, []
        for run, last_packet in full:
            yield self._chunk([run], None, last_key=place(last_packet), is_last=False)

    def rest(self, *, last_key: KeyPlace, is_last: bool) -> CopiedChunk:
        """Everything else; of the range's last chunk the last row stands apart, else none is held back. After ``full``."""
        last = self._decoder.row(self._held) if is_last and self._held else None
        if not is_last:
            self._release()
        runs = [run for run, _ in self._full]
        if len(self._run):
            runs.append(EncodedRows(self._run.ops, self._run.encoded()))
        self._full, self._run = [], RunRows()
        return self._chunk(runs, last, last_key=last_key, is_last=is_last)

    def _chunk(
        self, runs: Sequence[EncodedRows], last: tuple[bytes, bytes] | None, *, last_key: KeyPlace, is_last: bool
    ) -> CopiedChunk:
        first, self._first = self._first, None
        rows = sum(map(len, runs)) + (first is not None) + (last is not None)
        left_out, self._left_out = self._left_out, []
        return CopiedChunk(first, runs, last, rows, last_key, is_last, left_out)

    def _release(self) -> None:
        if not self._held:
            return
        if self._has_begun:
            self._write(Packets(self._held, [(0, len(self._held))]), 0, 1)
        else:
            self._write_first(self._held)
        self._held = b""

    def _write_first(self, packet: bytes) -> None:
        self._first = self._read(packet)
        self._has_begun = self._first is not None

    def _read(self, packet: bytes) -> tuple[bytes, bytes] | None:
        """None: it is left out."""
        try:
            return self._decoder.row(packet)
        except Exception as error:
            self._leave_out(packet, error)
            return None

    def _leave_out(self, packet: bytes, error: Exception) -> None:
        failure = undecodable_text(self._schema, self._decoder, error)
        if not self._leaves_out:
            raise failure from error
        column = self._schema.columns[self._decoder.column].name
        self._left_out.append(UnreadRow(column, str(failure), packet))

    def _write(self, packets: Packets, nth: int, end: int) -> None:
        while nth < end:
            until = min(end, nth + MAX_BATCH_ROWS - len(self._run))
            room = MAX_BATCH_BYTES - self._run.size_bytes
            written = len(self._run)
            try:
                nth = self._decoder.decode(self.frame, self._run, packets, nth, until, room)
            except Exception as error:
                nth += len(self._run) - written
                self._leave_out(_packet(packets, nth), error)
                nth += 1
            if len(self._run) >= MAX_BATCH_ROWS or self._run.size_bytes >= MAX_BATCH_BYTES:
                self._full.append((EncodedRows(self._run.ops, self._run.encoded()), _packet(packets, nth - 1)))
                self._run = RunRows()


def copy_range(
    connection: Connection, part: TableRange, at: CopiedAt, *, source: str, chunk_rows: int, leaves_out: bool
) -> Iterator[CopiedChunk]:
    """All rows of ``part``, a chunk at a time, of which the last says so. Blocks.

    A SELECT reads ``chunk_rows``; a chunk has one batch of them at most, so that copying can be resumed after each batch.
    A table without a key that can be compared comes whole: it cannot be resumed after any chunk but the last.
    ``leaves_out``: a row that cannot be read is reported, and the others go on.

    Raises:
        SourceUnavailable: connection lost, or the table changed since the view was opened; resume with new views.
        PipelineHalted, AccessDenied: MySQL refuses the SELECT.
        UndecodableValue: a value does not fit its column, and nothing is left out; the message names it.
    """
    rows = _Rows(part.schema, text_rows_decoder(part.schema), _frame(at, part, source), leaves_out=leaves_out)
    limit = chunk_rows if is_chunked(part.schema) else 0
    behind = part.behind
    read = selects = 0

    def place(packet: bytes) -> KeyPlace:
        return place_of(part.schema, row_key(part.schema), packet) if limit else b""

    while True:
        rows.frame = _frame(at, part, source)
        has_more = False
        room = limit
        for packets, nth, end in _selected(connection, part, behind, limit):
            kept = min(end, nth + room) if limit else end
            has_more |= kept < end
            room -= kept - nth
            read += kept - nth
            if kept > nth:
                rows.add(packets, nth, kept)
                yield from rows.full(place)
        selects += 1
        behind = place(rows.newest) if has_more else b""
        rest = rows.rest(last_key=behind, is_last=not has_more)
        # One SELECT's answer is whole by itself; that several follow one another without a gap is counted.
        if not has_more and selects > 1:
            rest = replace(rest, contradiction=_contradiction(connection, part, read))
        yield rest
        if not has_more:
            return


def _contradiction(connection: Connection, part: TableRange, read: int) -> str:
    """Why ``read`` rows are not those of ``part`` in the connection's view; empty: they are, or counting takes too long."""
    counted = rows_in_view(
        connection,
        part.schema,
        behind=part.behind,
        until=part.until,
        condition="" if _is_select(part) else part.select,
        table=_selected_table(part),
    )
    return contradiction(part.name, counted, read)


def contradiction(table: str, counted: int | None, read: int) -> str:
    """In words: the rows of a table that a view has, and that were read from it; empty: they agree."""
    if counted is None or counted == read:
        return ""
    return f"{table}: the copy read {read} rows, and its read view has {counted} of them"


def _is_select(part: TableRange) -> bool:
    return part.select.lstrip()[:6].upper() == "SELECT"


def _selected_table(part: TableRange) -> str:
    """SQL that stands for the table; empty: the table itself."""
    if not _is_select(part):
        return ""
    return f"({part.select}) AS {quote_table(part.schema.table_id).partition('.')[2]}"


def _selected(
    connection: Connection, part: TableRange, behind: KeyPlace, limit: int
) -> Iterator[tuple[Packets, int, int]]:
    try:
        yield from select_packets(connection, _statement(part, behind, limit), _SELECT_TIMEOUT_S)
    except AccessDenied:
        raise
    except PipelineHalted as error:
        if part.select:
            raise PipelineHalted(f"{error}; correct snapshot.select_overrides for {part.name}") from error
        # The reader's own SELECT is sound SQL: only DDL after the view, which a new view's log shows, has it refused.
        raise SourceUnavailable(f"{part.name} was changed since the snapshot's view was opened: {error}") from error


def _frame(at: CopiedAt, part: TableRange, source: str) -> EventFrame:
    """Around the images of copied rows, which have no place of their own in the log: all of it comes after them."""
    tail = copied_tail(at, part.schema.table_id, source, b'"true"', time.time_ns())
    return EventFrame(tail, b"", (b"", b"", b"", b""))


def _packet(packets: Packets, nth: int) -> bytes:
    place, end = packets[nth]
    return packets.data[place:end]


def _statement(part: TableRange, behind: KeyPlace, limit: int) -> str:
    """One more row than the limit means that there are more."""
    schema = part.schema
    key = row_key(schema) if limit else ()
    return chunk_statement(
        schema,
        chunk_list(schema, key),
        key,
        behind=behind,
        until=part.until,
        condition="" if _is_select(part) else part.select,
        limit=limit and limit + 1,
        table=_selected_table(part),
    )


# --- readers ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Job:
    """The copy order of a reader's process."""

    part: TableRange
    at: CopiedAt
    source: str
    chunk_rows: int
    leaves_out: bool


class RangeReader:
    """One view, and its reader: a thread of this process, or a process with a connection of its own."""

    def __init__(self, view: ReadView | None, worker: "_Worker | None") -> None:
        self._view = view
        self._worker = worker

    async def copy(self, job: _Job) -> AsyncIterator[Sequence[CopiedChunk]]:
        """As ``copy_range``, some at once."""
        if self._worker is not None:
            await asyncio.to_thread(self._worker.pipe.send, job)
            receive: Callable[[], Sequence[CopiedChunk]] = self._worker.receive
        else:
            assert self._view is not None
            receive = _chunks_of(self._view.connection, job).__next__
        while True:
            chunks = await asyncio.to_thread(receive)
            yield chunks
            if chunks[-1].is_last:
                return


def _chunks_of(connection: Connection, job: _Job) -> Iterator[Sequence[CopiedChunk]]:
    chunks = copy_range(
        connection, job.part, job.at, source=job.source, chunk_rows=job.chunk_rows, leaves_out=job.leaves_out
    )
    while some := tuple(itertools.islice(chunks, _CHUNKS_AT_ONCE)):
        yield some


class _Worker:
    """The parent's side of a reader's process."""

    def __init__(self, settings: DatabaseSettings) -> None:
        context = multiprocessing.get_context(
            "spawn"
        )  # a fork would share librdkafka's threads, which it does not have
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, settings), name="snapshot-reader", daemon=True)
        self.process.start()
        theirs.close()

    def receive(self, timeout_s: float = _SELECT_TIMEOUT_S) -> Sequence[CopiedChunk]:
        """The process's next message. Raises the process's error; SourceUnavailable when it is gone."""
        try:
            if not self.pipe.poll(timeout_s):
                raise SourceUnavailable("a snapshot reader's process does not answer")
            answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise SourceUnavailable("a snapshot reader's process has died") from error
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.join(_END_TIMEOUT_S)
        if self.process.is_alive():
            self.process.kill()


def _work(pipe: Pipe, settings: DatabaseSettings) -> None:
    """A reader's process: connect, open a view on request, copy requested ranges, until the parent is gone."""
    try:
        connection = connect(settings)
        pipe.send(None)
        pipe.recv()
        begin_view(connection)
        pipe.send(None)
        while True:
            job: _Job = pipe.recv()
            for chunks in _chunks_of(connection, job):
                pipe.send(chunks)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
    except HeadwaterError as error:
        with suppress(OSError):
            pipe.send(error)


class Readers:
    """Readers whose views are of one position."""

    def __init__(self, view: ReadView, workers: Sequence[_Worker]) -> None:
        self.view = view
        """Of the same moment, for other questions to the source."""
        self._workers = workers

    async def copy_all(
        self,
        parts: Sequence[TableRange],
        *,
        source: str,
        chunk_rows: int,
        leaves_out: bool,
        wait: Callable[[], Awaitable[None]],
    ) -> AsyncIterator[tuple[int, CopiedChunk]]:
        """(number of the range, chunk), each range in its order; several ranges at a time. Raises as ``copy_range``.

        ``wait`` is awaited before the first chunk and after some: while it lasts, no reader goes further than the chunks that
        wait already.
        Tables that come whole are copied at the end, one after another: nothing can be resumed while one is on its way.
        """
        at = CopiedAt(self.view.position, self.view.order, self.view.taken_at_us)
        readers = [RangeReader(None, worker) for worker in self._workers] or [RangeReader(self.view, None)]
        whole = [number for number, part in enumerate(parts) if not is_chunked(part.schema)]
        waiting = [number for number in range(len(parts)) if number not in whole]
        # One, for all: a reader goes on with its next ones while it waits to hand these over, and each takes 4 MB here.
        chunks: asyncio.Queue[tuple[int, Sequence[CopiedChunk]] | None] = asyncio.Queue(1)

        async def read(reader: RangeReader, numbers: list[int]) -> None:
            if numbers:
                await wait()
            while numbers:
                number = numbers.pop(0)
                async for some in reader.copy(_Job(parts[number], at, source, chunk_rows, leaves_out)):
                    await chunks.put((number, some))
                    await wait()

        async def read_all() -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    for reader in readers:
                        group.create_task(read(reader, waiting))
                await read(readers[0], whole)
            except Exception:
                await chunks.put(None)
                raise
            await chunks.put(None)  # not when cancelled: nobody takes it then

        reading = asyncio.create_task(read_all())
        try:
            while (found := await chunks.get()) is not None:
                number, some = found
                for chunk in some:
                    yield number, chunk
            await reading
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)  # an error of a copy that is broken off is nobody's

    def close(self) -> None:
        """End the processes and the view. Blocks shortly."""
        for worker in self._workers:
            worker.close()
        hang_up(self.view.connection)  # a copy that is broken off does not wait for its SELECT


def open_readers(
    settings: DatabaseSettings, *, epoch: int, processes: int, lock_wait_s: int, waits_for_xa: bool
) -> Readers:
    """Views of one moment: one read in this process, or ``processes`` (more than 1) of their own. Blocks; no lock remains.

    Raises as ``open_read_view``.
    """
    workers = [_Worker(settings) for _ in range(processes if processes > 1 else 0)]
    try:
        for worker in workers:
            worker.receive(_OPEN_TIMEOUT_S)

        def open_all() -> None:
            for worker in workers:
                worker.pipe.send(None)
            ends_s = time.monotonic() + _VIEW_TIMEOUT_S
            for worker in workers:
                worker.receive(max(0.0, ends_s - time.monotonic()))

        view = open_read_view(
            settings, epoch=epoch, lock_wait_s=lock_wait_s, beside=open_all, waits_for_xa=waits_for_xa
        )
        return Readers(view, workers)
    except BaseException:
        for worker in workers:
            worker.close()
        raise
