"""Outcomes of a reader's recent signals: kept in its process, served by ReaderControl, waited for by ``headwater signal``.

A reader notes a signal when it takes or refuses it, and the end of each copy that the signal asked for. An end counts once a
checkpoint is durable that has the copy no more (``durable``): a reader that dies before does the copy again.
A process forgets its outcomes when it ends; the checkpoint keeps which copies wait and which were finished last.
"""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from libs.source.incremental import copies_of
from libs.source.signals import ExecuteSnapshot, Signal
from libs.types.checkpoint import IncrementalSnapshot, TableCopy

_KEPT: Final = 50
"""Signals of a source partition."""
_GIVEN_UP_KEPT: Final = 20
"""Tables of one signal that are named with their reason; the others are counted."""
STOPPED: Final = "stopped by a signal, or the table is gone"

_Key = tuple[str, str]
"""Table and signal of a copy."""


@dataclass(slots=True)
class SignalOutcome:
    """One signal. It is over when ``is_over``."""

    signal_id: str
    kind: str
    """``execute-snapshot``; empty: the signal was not understood."""
    at_us: int
    refused_because: str = ""
    """It did nothing; empty: it was taken."""
    not_done: tuple[str, ...] = ()
    """Its parts that failed, each with the reason."""
    tables: int = 0
    """How many copies it asked for."""
    finished: int = 0
    rows_read: int = 0
    """Of the finished copies."""
    given_up: dict[str, str] = field(default_factory=dict)
    """Tables whose copy ended early, each with the reason."""
    given_up_count: int = 0
    waiting: dict[_Key, "_End | None"] = field(default_factory=dict)
    """Copies that have not ended durably; with the end that waits for a checkpoint."""

    @property
    def is_over(self) -> bool:
        """Nothing more comes of it."""
        return not self.waiting


@dataclass(frozen=True, slots=True)
class _End:
    rows_read: int = 0
    because: str = ""
    """Empty: it was read to its end."""


_LOCK: Final = threading.Lock()
_OUTCOMES: Final[dict[tuple[str, str], dict[tuple[str, str], SignalOutcome]]] = {}
"""By source and source partition, then by the signal's id and kind, the oldest first."""


def note_refused(partition: tuple[str, str], signal_id: str, because: str) -> None:
    """A signal does nothing. An empty id is kept too: its sender gave none, or it was no signal at all."""
    _note(partition, SignalOutcome(signal_id, "", _now_us(), refused_because=because))


def note_taken(
    partition: tuple[str, str], signal: Signal, state: IncrementalSnapshot, not_done: Iterable[str] = ()
) -> None:
    """A signal has acted; ``state``: of the copies, after it."""
    copies = copies_of(state, signal) if isinstance(signal, ExecuteSnapshot) else ()
    outcome = SignalOutcome(
        signal.signal_id,
        signal.kind,
        _now_us(),
        not_done=tuple(not_done),
        tables=len(copies),
        waiting=dict.fromkeys(map(_key, copies)),
    )
    _note(partition, outcome)
    left = {_key(copy) for copy in state.tables}
    with _LOCK:
        for other in _OUTCOMES[partition].values():  # a stop ends copies that another signal asked for
            for key in [key for key, end in other.waiting.items() if end is None and key not in left]:
                other.waiting[key] = _End(because=STOPPED)


def note_finished(partition: tuple[str, str], copy: TableCopy) -> None:
    """A copy was read to its end, and goes into the next checkpoint."""
    _note_end(partition, _key(copy), _End(rows_read=copy.rows_read))


def note_given_up(partition: tuple[str, str], copies: Iterable[TableCopy], because: str) -> None:
    """Copies are done no more."""
    for copy in copies:
        _note_end(partition, _key(copy), _End(because=because))


def durable(partition: tuple[str, str], state: IncrementalSnapshot) -> None:
    """A checkpoint with ``state`` is durable."""
    left = {_key(copy) for copy in state.tables}
    with _LOCK:
        for outcome in _OUTCOMES.get(partition, {}).values():
            for key in [key for key, end in outcome.waiting.items() if end is not None and key not in left]:
                _end(outcome, key)


def recent_signals(partition: tuple[str, str]) -> list[SignalOutcome]:
    """The newest last."""
    with _LOCK:
        return list(_OUTCOMES.get(partition, {}).values())


def _end(outcome: SignalOutcome, key: _Key) -> None:
    end = outcome.waiting.pop(key)
    assert end is not None
    if not end.because:
        outcome.finished += 1
        outcome.rows_read += end.rows_read
        return
    outcome.given_up_count += 1
    if len(outcome.given_up) < _GIVEN_UP_KEPT:
        outcome.given_up[key[0]] = end.because


def _note(partition: tuple[str, str], outcome: SignalOutcome) -> None:
    with _LOCK:
        found = _OUTCOMES.setdefault(partition, {})
        name = outcome.signal_id, outcome.kind
        found.pop(name, None)  # of one that acts again, after a return to a checkpoint, this counts
        found[name] = outcome
        for oldest in list(found)[:-_KEPT]:
            del found[oldest]


def _note_end(partition: tuple[str, str], key: _Key, end: _End) -> None:
    with _LOCK:
        for outcome in _OUTCOMES.get(partition, {}).values():
            if key in outcome.waiting:
                outcome.waiting[key] = end


def _key(copy: TableCopy) -> _Key:
    return copy.table, copy.signal_id


def _now_us() -> int:
    return time.time_ns() // 1_000
