"""How far a tenant's last micro-batch read on, kept through restarts. ``read_ahead`` decides; this only remembers."""

from pathlib import Path

import msgspec

from libs.durable_file import replace_durably
from libs.errors import PipelineHalted
from libs.types.read_ahead import ReadAhead, decode_read_ahead, encode_read_ahead, read_ahead_path


class ReadAheadFile:
    """One tenant's file."""

    def __init__(self, state_dir: Path, tenant: str) -> None:
        self._path = read_ahead_path(state_dir, tenant)

    def load(self) -> ReadAhead:
        """What was stored last.

        Raises:
            PipelineHalted: the file cannot be read; put it back.
        """
        try:
            return decode_read_ahead(self._path.read_bytes())
        except FileNotFoundError:
            return ReadAhead()
        except msgspec.DecodeError as error:
            raise PipelineHalted(
                f"{self._path} cannot be read: without it events that were taken in would come twice; put it back from a "
                "backup, or write the tenant's tables anew (docs/sinks.md, 'Write tables anew')"
            ) from error

    def store(self, ahead: ReadAhead) -> None:
        """Replace the file whole, durably."""
        replace_durably(self._path, encode_read_ahead(ahead))
