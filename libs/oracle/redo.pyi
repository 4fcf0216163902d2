"""Types of ``redo.pyx`` as Python sees them."""

from collections.abc import Sequence
from typing import Any

from libs.events.run_rows import RunRows
from libs.formats.row_images import EventFrame
from libs.oracle.redo_rows import PlainRows

INTEGER: int
DECIMAL: int
OWN_SCALE: int
MOMENT: int
TEXT: int
BINARY: int
CONVERTED: int

class OracleFrame(EventFrame):
    """An EventFrame of rows that differ in their time, SCN and place in the log."""

    def __init__(
        self,
        pieces: Sequence[bytes],
        behind_source: bytes,
        ends: Sequence[bytes],
        behind_numbers: bytes | None = None,
    ) -> None: ...

class RedoDecoder:
    """Decodes the rows of one table version."""

    column: str | None
    row: int
    plain_rows: int
    plain: PlainRows

    def __init__(
        self,
        readings: Sequence[Any],
        names: Sequence[bytes],
        column_names: Sequence[bytes],
        key_places: Sequence[int],
        plain: PlainRows,
    ) -> None: ...
    def decode(
        self, frame: OracleFrame, run: RunRows, rows: Sequence[tuple[Any, ...]], nth: int, end: int, room: int
    ) -> int: ...
    def add_cells(
        self,
        frame: OracleFrame,
        run: RunRows,
        op: int,
        row: tuple[Any, ...],
        before: Sequence[bytes] | None,
        after: Sequence[bytes] | None,
    ) -> None: ...
    def decoded(self, sql: bytes) -> tuple[int, bytes | None, bytes | None, bytes, bytes]: ...
