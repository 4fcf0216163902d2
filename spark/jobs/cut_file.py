"""Where a tenant's last micro-batch was cut, kept through restarts. ``whole_transactions`` decides; this only remembers."""

from pathlib import Path

import msgspec

from libs.durable_file import replace_durably
from libs.errors import PipelineHalted
from libs.types.consistency import Cut, cut_path, decode_cut, encode_cut


class CutFile:
    """One tenant's file."""

    def __init__(self, state_dir: Path, tenant: str) -> None:
        self._path = cut_path(state_dir, tenant)

    def load(self) -> Cut:
        """What was stored last.

        Raises:
            PipelineHalted: the file cannot be read; put it back.
        """
        try:
            return decode_cut(self._path.read_bytes())
        except FileNotFoundError:
            return Cut()
        except msgspec.DecodeError as error:
            raise PipelineHalted(
                f"{self._path} cannot be read: without it events that wait would be lost; put it back from a backup, or write "
                "the tenant's tables anew (docs/sinks.md, 'Write tables anew')"
            ) from error

    def store(self, cut: Cut) -> None:
        """Replace the file whole, durably."""
        replace_durably(self._path, encode_cut(cut))
