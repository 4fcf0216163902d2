"""The pending work of an incremental snapshot, as a value: signals change it, chunks move it on, checkpoints keep it.

Plain functions, the same for every reader. Because the state travels in the checkpoint that is committed together with the
rows it covers, a signal acts once and a chunk is delivered once, whenever the reader dies.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from libs.source.signals import ExecuteSnapshot, PauseSnapshot, ResumeSnapshot, Signal, StopSnapshot, matches
from libs.types.checkpoint import FinishedCopy, IncrementalSnapshot, TableCopy

_FINISHED_KEPT: Final = (
    20  # they are in every checkpoint; a caller that asked for a copy looks for its end every second
)


def take_signal(
    state: IncrementalSnapshot, signal: Signal, captured: Iterable[str]
) -> tuple[IncrementalSnapshot, list[str]]:
    """The state once ``signal`` has acted, and its parts that failed; ``captured``: names ``database.table``.

    A table that waits already with the same conditions, for the same tenants, is not queued twice; one that is being read is
    read again after it. A signal for some tenants acts once by its id: the sender may repeat it when in doubt.
    """
    match signal:
        case ExecuteSnapshot():
            return _execute(state, signal, sorted(captured))
        case StopSnapshot(tables=()):
            return msgspec.structs.replace(state, tables=(), is_paused=False), []
        case StopSnapshot(tables=patterns):
            left = tuple(t for t in state.tables if not any(matches(pattern, t.table) for pattern in patterns))
            unknown = [p for p in patterns if not any(matches(p, t.table) for t in state.tables)]
            return msgspec.structs.replace(state, tables=left), [f"{p}: no snapshot of it to stop" for p in unknown]
        case PauseSnapshot():
            return msgspec.structs.replace(state, is_paused=True), []
        case ResumeSnapshot():
            return msgspec.structs.replace(state, is_paused=False), []
    return state, []


def _execute(
    state: IncrementalSnapshot, signal: ExecuteSnapshot, captured: Sequence[str]
) -> tuple[IncrementalSnapshot, list[str]]:
    tables, notes = list(state.tables), []
    for pattern in signal.tables:
        found = [pattern] if pattern in captured else [name for name in captured if matches(pattern, name)]
        if not found:
            notes.append(f"{pattern}: no captured table has this name")
        for name in found:
            copy = TableCopy(
                table=name,
                condition=_condition_of(signal, name),
                surrogate_key=signal.surrogate_key,
                signal_id=signal.signal_id,
                for_tenants=signal.for_tenants,
            )
            if _has_acted(state, copy):
                continue
            if not any(_is_same_request(copy, waiting) for waiting in tables):
                tables.append(copy)
    return msgspec.structs.replace(state, tables=tuple(tables)), notes


def copies_of(state: IncrementalSnapshot, signal: ExecuteSnapshot) -> tuple[TableCopy, ...]:
    """The waiting copies that give ``signal`` its rows: its own, and those of earlier signals that asked for the same."""
    own = tuple(copy for copy in state.tables if copy.signal_id == signal.signal_id)
    known = {copy.table for copy in own}
    return (
        *own,
        *(
            copy
            for copy in state.tables
            if copy.table not in known
            and not has_begun(copy)
            and (copy.surrogate_key, copy.for_tenants) == (signal.surrogate_key, signal.for_tenants)
            and any(matches(pattern, copy.table) for pattern in signal.tables)
            and copy.condition == _condition_of(signal, copy.table)
        ),
    )


def _condition_of(signal: ExecuteSnapshot, table: str) -> str:
    """Of the rows that ``signal`` wants of a table; empty: all."""
    conditions = [condition for of, condition in signal.conditions if matches(of, table)]
    return " AND ".join(f"({condition})" for condition in conditions) if len(conditions) > 1 else "".join(conditions)


def _is_same_request(copy: TableCopy, waiting: TableCopy) -> bool:
    """It waits and has not begun, so one reading serves both."""
    return not has_begun(waiting) and _request(copy) == _request(waiting)


def has_begun(copy: TableCopy) -> bool:
    """Rows of it may have been read."""
    return bool(copy.maximum_key or copy.last_key)


def is_read(copy: TableCopy) -> bool:
    """All of its chunks were delivered: only the proof that it is complete is left."""
    return bool(copy.maximum_key) and copy.last_key == copy.maximum_key


def rows_arrived(state: IncrementalSnapshot, rows: int) -> IncrementalSnapshot:
    """The log brought so many rows into the first table."""
    copy = state.tables[0]
    return put_first(state, msgspec.structs.replace(copy, rows_arrived=copy.rows_arrived + rows))


def rows_missing(copy: TableCopy, counted: int) -> int:
    """How many of the rows that the source counted neither a chunk nor the log brought: at least so many were lost.

    A row that is there and was in no chunk came after the chunk of its place was read, so the log shows it coming.
    """
    return max(0, counted - copy.rows_read - copy.rows_arrived)


def _request(copy: TableCopy) -> tuple[str, str, str, tuple[str, ...]]:
    return copy.table, copy.condition, copy.surrogate_key, copy.for_tenants


def _has_acted(state: IncrementalSnapshot, copy: TableCopy) -> bool:
    """The same signal for the same tenants is known: its sender was killed before the note, and sent it again."""
    asked = (copy.table, copy.signal_id, copy.for_tenants)
    known = [(each.table, each.signal_id, each.for_tenants) for each in state.tables]
    known += [(each.table, each.signal_id, each.for_tenants) for each in state.finished]
    return bool(copy.for_tenants and copy.signal_id) and asked in known


def is_same_copy(copy: TableCopy, other: TableCopy) -> bool:
    """The two are one copy of a table, however far each says that it got."""
    return copy.signal_id == other.signal_id and _request(copy) == _request(other)


def chunk_delivered(state: IncrementalSnapshot, copy: TableCopy, *, is_last: bool) -> IncrementalSnapshot:
    """The first table stands where ``copy`` says; the last chunk of a table takes it off the list, to the finished ones.

    A table that was stopped meanwhile stays off, and one that was asked for again since begins at its beginning.
    """
    if not state.tables or not is_same_copy(state.tables[0], copy):
        return state
    rest = state.tables[1:]
    if not is_last:
        return msgspec.structs.replace(state, tables=(copy, *rest))
    end = FinishedCopy(
        table=copy.table,
        signal_id=copy.signal_id,
        condition=copy.condition,
        rows_read=copy.rows_read,
        for_tenants=copy.for_tenants,
    )
    return msgspec.structs.replace(state, tables=rest, finished=(*state.finished, end)[-_FINISHED_KEPT:])


def begin_again(state: IncrementalSnapshot, table: str) -> IncrementalSnapshot:
    """The key along which ``table`` is read has changed: places in the old one mean nothing any more."""
    return msgspec.structs.replace(
        state,
        tables=tuple(
            msgspec.structs.replace(copy, last_key=b"", maximum_key=b"", rows_read=0, rows_arrived=0)
            if copy.table == table
            else copy
            for copy in state.tables
        ),
    )


def taken_over(states: Sequence[IncrementalSnapshot]) -> IncrementalSnapshot:
    """The pending work of a reader that goes on for several; ``states``: theirs, with the offsets of their signals.

    Unfinished work of one of them is done from its start: a place in a table means nothing to a reader of other parts of
    it. Signals are followed from the least advanced one, so none is passed over; a signal that another has acted on
    already acts again, in its order, and may copy a table twice. Finished is what all of them have finished.
    """
    if not states:
        return IncrementalSnapshot()
    first, *others = sorted(states, key=lambda state: state.signals_offset or 0)
    tables: list[TableCopy] = []
    for copy in (copy for state in (first, *others) for copy in state.tables):
        if not any(is_same_copy(copy, known) for known in tables):
            tables.append(from_beginning(copy))
    return msgspec.structs.replace(
        first,
        tables=tuple(tables),
        finished=tuple(
            end for end in first.finished if all(_end_of(end) in map(_end_of, state.finished) for state in others)
        ),
    )


def from_beginning(copy: TableCopy) -> TableCopy:
    """The same request, of which nothing was read yet."""
    return msgspec.structs.replace(
        copy, last_key=b"", maximum_key=b"", rows_read=0, rows_estimated=0, chunks_read=0, rows_arrived=0
    )


def _end_of(copy: FinishedCopy) -> tuple[str, str, str, tuple[str, ...]]:
    return copy.table, copy.signal_id, copy.condition, copy.for_tenants


def put_first(state: IncrementalSnapshot, copy: TableCopy) -> IncrementalSnapshot:
    """The first table stands where ``copy`` says, which no chunk has brought it to: it begins, or begins again."""
    return msgspec.structs.replace(state, tables=(copy, *state.tables[1:]))


def drop_first(state: IncrementalSnapshot) -> IncrementalSnapshot:
    """The first request cannot be done; another one of the same table, with other conditions, may."""
    return msgspec.structs.replace(state, tables=state.tables[1:])


def drop_table(state: IncrementalSnapshot, table: str) -> IncrementalSnapshot:
    """``table`` is gone, or cannot be read: the snapshot goes on with the others."""
    return msgspec.structs.replace(state, tables=tuple(copy for copy in state.tables if copy.table != table))
