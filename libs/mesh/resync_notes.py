"""Notes of the resyncs that are under way: one file a tenant, kept while the sink has not answered.

``resync`` writes them and goes on from them after a break; ``status`` reads them.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from libs.durable_file import replace_durably
from libs.errors import InvalidSettings


class Resync(msgspec.Struct, frozen=True, kw_only=True):
    """One that is under way."""

    id: str
    """Of the signal and of the request to the sink."""
    topic: str
    source: str
    table: str
    """``database.table`` at the source."""
    begun_at_us: int
    """Microseconds since 1970."""
    from_offsets: Mapping[int, int]
    """Where the table's topic ended before the copy was asked for, by Kafka partition; empty: a log's, from its first event."""
    signal_offset: int | None = None
    """Of the signal, in ``headwater.signals``; None: not sent, as far as is known, or there is none."""
    to_offsets: Mapping[int, int] | None = None
    """Where the table's topic ended after the copy, or of a log when it began; None: the copy is not all there."""

    @property
    def doing(self) -> str:
        """The awaited step, in words."""
        return "copying the source's rows" if self.to_offsets is None else "the sink builds it"


def running_resyncs(notes_dir: Path, tenant: str) -> dict[str, Resync]:
    """Those of ``tenant`` that have begun and are not answered, by topic. ``notes_dir``: as ``SinkView`` has it.

    Raises:
        InvalidSettings: the file is of another release, or broken.
    """
    path = _notes(notes_dir, tenant)
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        raise InvalidSettings(str(path), [f"cannot be read: {error}; remove it, and resync again"]) from error


def forget(notes_dir: Path, tenant: str, topic: str) -> Resync | None:
    """Forget one that is over, or given up; returns it. None: there was none."""
    running = running_resyncs(notes_dir, tenant)
    if topic in running:
        _write(notes_dir, tenant, {each: resync for each, resync in running.items() if each != topic})
    return running.get(topic)


def store(notes_dir: Path, tenant: str, resync: Resync) -> None:
    """Write the note of a resync over that of its table. Durable when this returns."""
    _write(notes_dir, tenant, {**running_resyncs(notes_dir, tenant), resync.topic: resync})


def _write(notes_dir: Path, tenant: str, running: Mapping[str, Resync]) -> None:
    replace_durably(_notes(notes_dir, tenant), msgspec.json.encode(running), writer=str(os.getpid()))


def _notes(notes_dir: Path, tenant: str) -> Path:
    return notes_dir / "resyncs" / f"{tenant}.json"


_decoder = msgspec.json.Decoder(dict[str, Resync])
