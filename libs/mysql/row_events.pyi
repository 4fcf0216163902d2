from collections.abc import Sequence

from libs.events.run_rows import RunRows
from libs.formats.row_images import EventFrame
from libs.mysql.packets import Packets
from libs.mysql.row_image import Reading

INTEGER: int
UNSIGNED: int
BOOLEAN: int
YEAR: int
ENUM: int
DECIMAL: int
DECIMAL_TEXT: int
DATE: int
TIME: int
DATETIME: int
TIMESTAMP: int
TEXT: int
BINARY: int
CONVERTED: int
MAX_DECIMAL_DIGITS: int

class RowsDecoder:
    @property
    def column(self) -> int: ...
    @property
    def row(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def event(self) -> int: ...
    @property
    def added(self) -> int: ...
    def __init__(
        self, readings: Sequence[Reading], names: Sequence[bytes], key_places: Sequence[int], unavailable: bytes | None
    ) -> None: ...
    def decode(
        self,
        frame: EventFrame,
        run: RunRows,
        events: Packets,
        nth: int,
        number: bytes,
        table_map: bytes,
        checksum_bytes: int,
        room: int,
    ) -> tuple[int, int, int]: ...
    def pass_over(self, events: Packets, checksum_bytes: int) -> tuple[bytes, bool]: ...
