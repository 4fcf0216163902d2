"""What a decoder is set to, from the settings of its source."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from libs.events.dead_letter import UndecodedRow
from libs.source.key_columns import KeyColumns
from libs.source.vitess.settings import EventSettings
from libs.types.table import TableId
from libs.types.value_modes import ValueModes
from services.vstream_reader.tally import StreamTally


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """A decoder's settings for its source."""

    source: str
    keyspace: str
    is_captured: Callable[[TableId], bool]
    modes: ValueModes
    events: EventSettings
    key_columns: Sequence[KeyColumns] = ()
    spill_dir: Path | None = None
    is_recopy: bool = False
    """Only the rows that are copied are delivered: another stream delivers the changes."""
    for_tenants: tuple[str, ...] = ()
    """Only these tenants get the rows; empty: all that see the table."""
    source_partition: str = "0"
    set_aside: Callable[[UndecodedRow], None] | None = None
    """Takes a row that cannot be decoded, and decoding goes on; without it the error is raised."""
    tally: StreamTally = field(default_factory=StreamTally)
    """Counts the stream's content."""
