"""Waiting for the outcome of a signal: every reader of the source is asked until each has one."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from libs.config.connections import WatchedService
from libs.operations.status import SignalStatus, SourceStatus, ask_reader

_POLL_S: Final = 0.5


class SignalProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The readers' work for one signal, at a moment."""

    said: str
    """Of the readers that have no outcome yet."""
    rows_read: int = 0
    rows_estimated: int = 0
    """Of the tables that are being read; 0: not known."""
    remaining_s: float | None = None


class SignalEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome at every reader of the source."""

    signal_id: str
    is_done: bool
    """Every part of it was done."""
    tables: int = 0
    """Copied tables, of all readers together."""
    rows_read: int = 0
    failures: tuple[str, ...] = ()
    """Each with its reader and its reason."""


def wait_for_signal(
    readers: Sequence[WatchedService],
    source: str,
    signal_id: str,
    offset: int,
    *,
    timeout_s: float,
    on_progress: Callable[[SignalProgress], None],
) -> SignalEnd:
    """Ask the readers until each of them has an outcome, or is halted, or the time is over. Blocks.

    ``offset``: of the signal in its topic, by which a reader that was started again knows that it has passed it.
    """
    deadline_s = time.monotonic() + timeout_s
    ends: dict[str, SignalEnd] = {}
    while True:
        for reader, status in zip(readers, asyncio.run(_ask(readers, source)), strict=True):
            end = end_at(reader.name, status, signal_id, offset)
            ends.pop(reader.name, None)
            if isinstance(end, SignalEnd):
                ends[reader.name] = end
            else:
                on_progress(end)
        if len(ends) == len(readers):
            break
        if time.monotonic() > deadline_s:
            waited = f"no outcome within {timeout_s:,.0f} s; it goes on: `headwater status` shows it"
            for reader in readers:
                ends.setdefault(
                    reader.name,
                    SignalEnd(signal_id=signal_id, is_done=False, failures=(f"{reader.name}: {waited}",)),
                )
            break
        time.sleep(_POLL_S)
    return SignalEnd(
        signal_id=signal_id,
        is_done=all(each.is_done for each in ends.values()),
        tables=sum(each.tables for each in ends.values()),
        rows_read=sum(each.rows_read for each in ends.values()),
        failures=tuple(failure for each in ends.values() for failure in each.failures),
    )


async def _ask(readers: Sequence[WatchedService], source: str) -> list[SourceStatus]:
    return list(await asyncio.gather(*(ask_reader(source, each.grpc) for each in readers)))


def end_at(reader: str, status: SourceStatus, signal_id: str, offset: int) -> SignalEnd | SignalProgress:
    """The outcome at one reader, or its work so far."""
    if status.state == "halted":
        said = f"{reader}: is halted, and the signal acts once it goes on: {status.detail}"
        return SignalEnd(signal_id=signal_id, is_done=False, failures=(said,))
    if status.state == "unknown":
        return SignalProgress(said=f"{reader}: {status.detail}")
    if status.signals_offset is None or status.signals_offset <= offset:  # an earlier signal may have had the same id
        return SignalProgress(said=f"{reader}: has yet to reach the signal ({status.state})")
    outcome = next((each for each in reversed(status.signals) if each.signal_id == signal_id), None)
    if outcome is not None and not outcome.waiting:
        return _end_of(reader, outcome)
    served = {signal_id, *(outcome.copied_by if outcome is not None else ())}
    copies = [each for each in status.incremental if each.signal_id in served]
    if outcome is None and not copies:
        # It passed the signal in an earlier run of its process: the checkpoint has the rest.
        if signal_id in status.finished_copies:
            return SignalEnd(signal_id=signal_id, is_done=True, rows_read=status.finished_copies[signal_id])
        said = (
            f"{reader}: passed the signal before its process was started again, and no copy of it waits or was finished "
            "last: its log has the outcome (`signal_taken`, `signal_refused`)"
        )
        return SignalEnd(signal_id=signal_id, is_done=False, failures=(said,))
    reading = status.incremental[0] if status.incremental else None
    return SignalProgress(
        said=_said(reader, status, len(copies) or (outcome.waiting if outcome is not None else 0)),
        rows_read=sum(each.rows_read for each in copies),
        rows_estimated=sum(each.rows_estimated for each in copies),
        remaining_s=status.incremental_remaining_s if reading in copies else None,
    )


def _said(reader: str, status: SourceStatus, waiting: int) -> str:
    reading = status.incremental[0].table if status.incremental else ""
    doing = "paused" if status.incremental_is_paused else f"reads {reading}" if reading else "begins"
    return f"{reader}: {doing}, {waiting} table(s) to go"


def _end_of(reader: str, outcome: SignalStatus) -> SignalEnd:
    beside = outcome.given_up_count - len(outcome.given_up)
    return SignalEnd(
        signal_id=outcome.signal_id,
        is_done=outcome.is_well,
        tables=outcome.finished,
        rows_read=outcome.rows_read,
        failures=(
            *((f"{reader}: refused: {outcome.refused_because}",) if outcome.refused_because else ()),
            *(f"{reader}: not done: {each}" for each in outcome.not_done),
            *(f"{reader}: {table}: given up: {why}" for table, why in outcome.given_up.items()),
            *((f"{reader}: {beside} more tables given up",) if beside else ()),
        ),
    )
