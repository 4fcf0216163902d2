from collections.abc import Sequence
from typing import Any

from libs.events.run_rows import RunRows
from libs.formats.row_images import EventFrame
from libs.mysql.packets import Packets

INTEGER: int
WRAPPED: int
DOUBLE: int
DECIMAL: int
DATE: int
DATETIME: int
TIMESTAMP: int
TEXT: int
BINARY: int
CONVERTED: int

class TextRowsDecoder:
    column: int
    def __init__(self, readings: Sequence[Any], names: Sequence[bytes], key_places: Sequence[int]) -> None: ...
    def decode(self, frame: EventFrame, run: RunRows, packets: Packets, nth: int, end: int, room: int) -> int: ...
    def row(self, packet: bytes) -> tuple[bytes, bytes]: ...

def row_checksum(packet: bytes, is_summed: bytes) -> int: ...
