from protos.headwater.changes.v1.change_batch_pb2 import TableChange, TransactionBoundary

class Run:
    database: str
    table: str
    schema_version: int
    transaction_id: str
    epoch: int
    rank: str
    first_tx_ordinal: int
    committed_at_us: int
    is_snapshot: bool
    ops: bytes
    for_tenants: tuple[str, ...]
    largest_key: int
    largest_value: int
    def __len__(self) -> int: ...
    @property
    def keys(self) -> list[bytes]: ...
    @property
    def values(self) -> list[bytes]: ...

def read_entries(payload: bytes) -> tuple[bytes, list[Run | TableChange | TransactionBoundary]]: ...
