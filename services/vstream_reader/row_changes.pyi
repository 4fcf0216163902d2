"""Types of ``row_changes.pyx``."""

from collections.abc import Sequence

from libs.events.run_rows import RunRows
from libs.formats.row_images import EventFrame
from services.vstream_reader.fields import Reading
from services.vstream_reader.vevents import VEvents

INTEGER: int
UNSIGNED: int
DOUBLE: int
SINGLE: int
DECIMAL: int
TEXT: int
BINARY: int
JSON: int
DATE: int
TIME: int
DATETIME: int
TIMESTAMP: int
CONVERTED: int

class ValueAbsent(ValueError): ...
class ImagesAbsent(ValueError): ...

class RowChangesDecoder:
    """Decodes the rows of one table version."""

    column: int
    row: int
    cells: int
    event: int

    def __init__(
        self,
        readings: Sequence[Reading],
        names: Sequence[bytes],
        key_places: Sequence[int],
    ) -> None: ...
    def decode(
        self,
        frame: EventFrame,
        run: RunRows,
        events: VEvents,
        nth: int,
        table_name: bytes,
        shard: bytes,
        is_copy: bool,
        room: int,
    ) -> tuple[int, int, int]: ...
    def pass_over(self, events: VEvents) -> bytes: ...
