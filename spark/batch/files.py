"""The decisions about a tenant's last micro-batch, kept through restarts: its cut, and how far it read on.

``whole_transactions`` and ``read_ahead`` decide, before anything of the batch is written; these files only remember.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from libs.durable_file import replace_durably
from libs.errors import PipelineHalted
from libs.sink_state.cut import Cut, cut_path, decode_cut, encode_cut
from libs.sink_state.read_ahead import ReadAhead, decode_read_ahead, encode_read_ahead, read_ahead_path

Decided = TypeVar("Decided")


class BatchFile(Generic[Decided]):
    """One tenant's file of one kind."""

    def __init__(
        self,
        path: Path,
        empty: Decided,
        decode: Callable[[bytes], Decided],
        encode: Callable[[Decided], bytes],
        *,
        without: str,
    ) -> None:
        """``empty``: the value before anything was stored. ``without``: the effect on events of taking a file for empty."""
        self._path = path
        self._empty = empty
        self._decode = decode
        self._encode = encode
        self._without = without

    def load(self) -> Decided:
        """The last stored value.

        Raises:
            PipelineHalted: the file cannot be read; put it back.
        """
        try:
            return self._decode(self._path.read_bytes())
        except FileNotFoundError:
            return self._empty
        except msgspec.DecodeError as error:
            raise PipelineHalted(
                f"{self._path} cannot be read: without it events {self._without}; put it back from a backup, or write the "
                "tenant's tables again (docs/sinks/repair.md, 'Write tables again')"
            ) from error

    def store(self, decided: Decided) -> None:
        """Replace the file whole, durably."""
        replace_durably(self._path, self._encode(decided))


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """One tenant's two."""

    cut: BatchFile[Cut]
    """Where the last batch was cut."""
    read_ahead: BatchFile[ReadAhead]
    """How far the last batch read on."""


def batch_files(state_dir: Path, tenant: str) -> BatchFiles:
    """A tenant's files in the job's state."""
    return BatchFiles(
        cut=BatchFile(cut_path(state_dir, tenant), Cut(), decode_cut, encode_cut, without="that wait would be lost"),
        read_ahead=BatchFile(
            read_ahead_path(state_dir, tenant),
            ReadAhead(),
            decode_read_ahead,
            encode_read_ahead,
            without="that were taken in would come twice",
        ),
    )
