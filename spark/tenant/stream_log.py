"""A tenant's log of micro-batches: which offsets each one has, noted before it runs, and that it is done, noted after.

It is in the format of Spark's own checkpoint (Structured Streaming guide, "Recovery Semantics"; ``OffsetSeqLog``,
``CommitLog``), which earlier releases had Spark write: either goes on from the other's.

    metadata · sources/0/0: where the first batch begins · offsets/N: where batch N ends · commits/N: batch N is done
"""

import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from libs.durable_file import replace_durably
from libs.errors import PipelineHalted
from libs.sink_state.stream_offsets import StreamOffsets, load_begins, load_stream_offsets

_VERSION: Final = "v1"
_DONE: Final = f'{_VERSION}\n{{"nextBatchWatermarkMs":0}}'.encode()
_KEPT: Final = 10
"""Batches whose files stay. Two are enough to go on; the others are for diagnosis."""


class _Metadata(msgspec.Struct):
    id: str


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """How far the log is."""

    query_id: str
    batch_id: int
    """Of the newest batch that was noted; -1: none was."""
    is_done: bool
    """That one is done; of none: yes."""
    ends: StreamOffsets | None
    """Where it ends; before the first batch, where that is to begin. None: nothing is noted at all."""


class StreamLog:
    """One tenant's. One thread at a time."""

    def __init__(self, state_dir: Path, tenant: str) -> None:
        self._state_dir = state_dir
        self._tenant = tenant
        self._folder = state_dir / "checkpoints" / tenant

    def load(self) -> StreamPlace:
        """How far it is; a log that is not there begins now, with an identity of its own.

        Raises:
            PipelineHalted: a file of it holds something else; put it back.
        """
        newest = max(_numbers(self._folder / "offsets"), default=-1)
        is_done = newest < 0 or (self._folder / "commits" / str(newest)).is_file()
        try:
            return StreamPlace(self._query_id(), newest, is_done, self._ends(newest))
        except (msgspec.DecodeError, IndexError) as error:
            raise PipelineHalted(
                f"{self._folder} cannot be read: its newest batch is {newest}, and one of its files is not as Spark writes it; "
                "put them back from a backup, or write the tenant's tables again (docs/sinks/repair.md, 'Write tables again')"
            ) from error

    def begin(self, begins: StreamOffsets) -> None:
        """Note where the first batch begins."""
        # Spark's own reader passes over one byte at the begin.
        self._store("sources/0/0", b"\0" + _lines(_VERSION, _encoded(begins)))

    def note(self, batch_id: int, ends: StreamOffsets) -> None:
        """Note where a batch ends, before anything of it is written. It never ends elsewhere from then on."""
        times = msgspec.json.encode(
            {"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 1_000_000, "conf": {}}
        ).decode()
        self._store(f"offsets/{batch_id}", _lines(_VERSION, times, _encoded(ends)))

    def note_done(self, batch_id: int) -> None:
        """Note that all of a batch is written. Files of old batches go."""
        self._store(f"commits/{batch_id}", _DONE)
        for folder in (self._folder / "offsets", self._folder / "commits"):
            for number in _numbers(folder):
                if number <= batch_id - _KEPT:
                    (folder / str(number)).unlink(missing_ok=True)
                    (folder / f".{number}.crc").unlink(missing_ok=True)

    def _query_id(self) -> str:
        path = self._folder / "metadata"
        try:
            return msgspec.json.decode(path.read_bytes(), type=_Metadata).id
        except FileNotFoundError:
            made = _Metadata(str(uuid.uuid4()))
            self._store("metadata", msgspec.json.encode(made))
            return made.id

    def _ends(self, newest: int) -> StreamOffsets | None:
        try:
            if newest < 0:
                return load_begins(self._state_dir, self._tenant, 0)
            return load_stream_offsets(self._state_dir, self._tenant, newest)
        except FileNotFoundError:
            return None

    def _store(self, name: str, content: bytes) -> None:
        path = self._folder / name
        replace_durably(path, content)
        # Spark's file system would complain of an earlier release's files there.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _numbers(folder: Path) -> list[int]:
    return [int(each.name) for each in folder.iterdir() if each.name.isdigit()] if folder.is_dir() else []


def _encoded(offsets: StreamOffsets) -> str:
    return msgspec.json.encode(offsets).decode()


def _lines(*lines: str) -> bytes:
    return "\n".join(lines).encode()
