"""The promises of every source, as a suite: ``tests/contract/test_sources.py`` runs it for each kind of ``READER_OF_KIND``.

A kind brings a ``SourceHarness`` that writes to a real source; the suite knows nothing of the source itself.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from libs.events.batch import BatchIdentity
from libs.source.port import ReadBatch, ResumePoint, Source
from libs.types.checkpoint import Checkpoint, FencingToken
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch

TIMEOUT_S = 60.0


class SourceHarness(Protocol):
    """A source under test, with one captured table of an integer key ``id`` and a text ``v``."""

    def source(self) -> Source:
        """The source, not open."""
        ...

    async def insert(self, first: int, last: int) -> None:
        """Insert the rows ``first`` to ``last``, in one transaction."""
        ...

    async def change_and_delete(self, row_id: int) -> None:
        """Update a row, then delete it, in two transactions."""
        ...

    async def add_column_and_insert(self, column: str, row_id: int) -> None:
        """Add a column to the table, then insert a row that has it."""
        ...

    async def purge_log(self) -> None:
        """Make the source forget its log up to now."""
        ...

    async def open_connections(self) -> int:
        """Connections that the source sees of readers."""
        ...


@dataclass(frozen=True, slots=True)
class Row:
    """A row event as the suite compares it."""

    op: str
    key: bytes
    order: tuple[int, int, int]
    schema_version: int


async def read_until(
    source: Source, resume_from: Checkpoint | None, is_enough: Callable[[list[Row]], bool]
) -> tuple[list[Row], list[ReadBatch]]:
    """Open the source and read batches until the rows are enough and no copy is under way; then close it."""
    rows: list[Row] = []
    batches: list[ReadBatch] = []

    async def read() -> None:
        async with (
            source.open(resume_from, _identity(source)) as change_log,
            aclosing(_closable(change_log.batches())) as all_,
        ):
            async for batch in all_:
                batches.append(batch)
                rows.extend(rows_of(batch))
                if is_enough(rows) and batch.resume is not None and batch.resume.snapshot is None:
                    return

    await asyncio.wait_for(read(), TIMEOUT_S)
    return rows, batches


def checkpoint_of(source: Source, resume: ResumePoint) -> Checkpoint:
    """A publisher's checkpoint for ``resume``."""
    return Checkpoint(
        partition=source.partition,
        position=resume.position,
        order=resume.order,
        fencing_token=FencingToken(1),
        committed_at_us=resume.committed_at_us,
        published_at_us=0,
        snapshot=resume.snapshot,
        incremental=resume.incremental,
    )


def rows_of(batch: ReadBatch) -> list[Row]:
    """The row events of a batch."""
    rows: list[Row] = []
    for entry in ChangeBatch.FromString(batch.payload).entries:
        run = entry.run
        for index, (op, key) in enumerate(zip(run.ops.decode(), run.keys, strict=True)):
            ordinal = 0 if run.is_snapshot else run.first_tx_ordinal + index
            rows.append(Row(op, key, (run.epoch, int(run.rank), ordinal), run.schema_version))
    return rows


def last_resume(batches: list[ReadBatch]) -> ResumePoint:
    """The newest place from which reading may go on."""
    return next(batch.resume for batch in reversed(batches) if batch.resume is not None)


def _identity(source: Source) -> BatchIdentity:
    return BatchIdentity(
        source=source.partition.source,
        source_partition=source.partition.name,
        connector="contract",
        run_id="contract",
        fencing_token=1,
    )


async def _closable(batches: AsyncIterator[ReadBatch]) -> AsyncGenerator[ReadBatch, None]:
    async for batch in batches:
        yield batch


# --- the promises ----------------------------------------------------------------------------------------------------


async def existing_rows_come_first_then_changes(harness: SourceHarness) -> None:
    """A source never read before gives its rows as ``r``, then their changes, with growing orders."""
    await harness.insert(1, 5)
    source = harness.source()
    has_copied = asyncio.Event()

    def is_enough(rows: list[Row]) -> bool:
        has_copied.set()  # the read view is older than the rows: changes from now on are in the log alone
        return any(row.op == "d" for row in rows)

    reading = asyncio.create_task(read_until(source, None, is_enough))
    await asyncio.wait_for(has_copied.wait(), TIMEOUT_S)
    await harness.change_and_delete(3)

    rows, _ = await reading

    assert sorted(row.key for row in rows if row.op == "r") == [b'{"id":%d}' % row_id for row_id in range(1, 6)]
    assert [row.op for row in rows if row.op != "r"] == ["u", "d"]
    changes = [row.order for row in rows if row.op != "r"]
    assert changes == sorted(set(changes))
    assert max(row.order for row in rows if row.op == "r") < changes[0]


async def reading_resumes_without_gap_or_repeat(harness: SourceHarness) -> None:
    """After a resume point come exactly the changes that were not read before it."""
    await harness.insert(1, 3)
    source = harness.source()
    _, batches = await read_until(source, None, lambda rows: len(rows) >= 3)
    await harness.insert(4, 6)
    _, more = await read_until(source, checkpoint_of(source, last_resume(batches)), lambda rows: len(rows) >= 3)
    await harness.insert(7, 9)

    rows, _ = await read_until(source, checkpoint_of(source, last_resume(more)), lambda rows: len(rows) >= 3)

    assert [row.key for row in rows] == [b'{"id":%d}' % row_id for row_id in (7, 8, 9)]


async def a_replay_carries_the_same_orders(harness: SourceHarness) -> None:
    """The same log read twice gives the same rows with the same orders and versions."""
    await harness.insert(1, 2)
    source = harness.source()
    _, batches = await read_until(source, None, lambda rows: len(rows) >= 2)
    start = checkpoint_of(source, last_resume(batches))
    await harness.insert(3, 40)
    await harness.add_column_and_insert("extra", 41)
    await harness.change_and_delete(7)

    first, _ = await read_until(source, start, lambda rows: any(row.op == "d" for row in rows))
    second, _ = await read_until(source, start, lambda rows: any(row.op == "d" for row in rows))

    assert first == second
    assert first[-1].schema_version > first[0].schema_version


async def no_resume_point_lies_inside_a_transaction(harness: SourceHarness) -> None:
    """However a large transaction is cut into batches, only its end may be resumed from."""
    await harness.insert(1, 1)
    source = harness.source()
    _, batches = await read_until(source, None, lambda rows: len(rows) >= 1)
    await harness.insert(2, 20_001)

    _, batches = await read_until(source, checkpoint_of(source, last_resume(batches)), lambda rows: len(rows) >= 20_000)

    large = [batch for batch in batches if batch.rows]
    assert len(large) > 1
    assert all(batch.resume is None for batch in large[:-1])


async def a_purged_position_halts(harness: SourceHarness, position_purged: type[Exception]) -> None:
    """The log from the resume point is gone: a named error, never a jump."""
    await harness.insert(1, 1)
    source = harness.source()
    _, batches = await read_until(source, None, lambda rows: len(rows) >= 1)
    await harness.insert(2, 2)
    await harness.purge_log()

    error: Exception | None = None
    try:
        await read_until(source, checkpoint_of(source, last_resume(batches)), lambda rows: len(rows) >= 1)
    except position_purged as raised:
        error = raised
    assert error is not None
    assert "re-snapshot" in str(error)


async def closing_releases_every_connection(harness: SourceHarness) -> None:
    """A source that was closed holds nothing at the database."""
    await harness.insert(1, 1)
    before = await harness.open_connections()

    await read_until(harness.source(), None, lambda rows: len(rows) >= 1)

    await _eventually(lambda: harness.open_connections(), before)


async def _eventually(ask: Callable[[], Awaitable[int]], expected: int) -> None:
    for _ in range(50):
        if await ask() <= expected:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{await ask()} connections are open, {expected} were before")
