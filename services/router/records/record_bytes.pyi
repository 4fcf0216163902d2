from collections.abc import Callable, Sequence

from services.router.batches.changes import Run

def total_size(column: Sequence[bytes | None]) -> int: ...
def ordinal_headers(before: bytes, behind: bytes, first: int, count: int) -> list[bytes]: ...

class PassedRows:
    def __init__(
        self,
        run: Run,
        *,
        before: bytes,
        behind: bytes,
        tombstones: bool,
        key_prefix: bytes = b"",
        value_prefix: bytes = b"",
    ) -> None: ...
    def __len__(self) -> int: ...
    def at(self, places: Sequence[int]) -> PassedRows: ...
    @property
    def payload_bytes(self) -> int: ...
    def kafka_partitions(self, count: int, of_keyless: int) -> bytes: ...

class BatchRecords:
    record_count: int
    size_bytes: int
    def __init__(
        self,
        take_piece: Callable[[memoryview], bytes],
        *,
        most_bytes: int,
        most_kept_bytes: int,
        most_records: int,
    ) -> None: ...
    def __len__(self) -> int: ...
    def copy(self) -> BatchRecords: ...
    def take_pieces(self) -> list[bytes]: ...
    def add_columns(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[bytes],
        start: int,
    ) -> int: ...
    def add_rows(self, rows: PassedRows, start: int, kafka_partitions: bytes | None = None, number: int = 0) -> int: ...
