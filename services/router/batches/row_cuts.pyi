from collections.abc import Callable, Sequence

from services.router.batches.changes import Run

KEPT: int
LEFT_OUT: int
MASKED: int

class RowCuts:
    is_plain: bool
    def __init__(self, run: Run, names: tuple[bytes, ...]) -> None: ...
    def values(self, column: int) -> tuple[list[bytes | None], list[bytes | None]] | None: ...
    def pieces(self, actions: bytes, openings: tuple[bytes, ...]) -> list[list[bytes]] | None: ...

def masked_values(
    rows: list[list[bytes]], masks: tuple[Callable[[bytes], bytes], ...], places: Sequence[int] | None = None
) -> list[bytes]: ...
