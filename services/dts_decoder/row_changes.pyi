from collections.abc import Callable, Sequence

from libs.events.run_rows import RunRows
from libs.formats.row_images import EventFrame
from services.dts_decoder.messages import EntryReader
from services.dts_decoder.values import Reading

INTEGER: int
TEXT: int
BINARY: int
DOUBLE: int
DECIMAL: int
DATE: int
DATETIME: int
TIMESTAMP: int
CONVERTED: int

class EntryFrame(EventFrame):
    def __init__(
        self, pieces: Sequence[bytes], behind_place: bytes, ends: Sequence[bytes], behind_numbers: bytes | None = None
    ) -> None: ...

class RowChangeDecoder:
    row: int
    rows_read: int
    room: int
    @property
    def column(self) -> int: ...
    @property
    def row_begin(self) -> int: ...
    @property
    def place(self) -> int: ...
    def __init__(
        self,
        readings: Sequence[Reading],
        names: Sequence[bytes],
        key_places: Sequence[int],
        to_utf8: Callable[[bytes, int], Callable[[bytes], bytes] | None],
    ) -> None: ...
    def decode(self, frame: EntryFrame, run: RunRows, entry: EntryReader, place: int) -> None: ...
