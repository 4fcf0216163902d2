from mmap import mmap

DML_EVENT: int

def read_envelope(value: bytes) -> tuple[int, int, int, int, int]: ...

class EntryReader:
    version: int
    source_type: int
    message_type: int
    timestamp_s: int
    """Commit time at the source, in seconds since 1970."""
    server_id: int
    position: int
    seq_id: int
    file_name: bytes
    gtid: bytes
    schema_name: bytes
    table_name: bytes
    event_kind: int
    """Number of Event's field; 0: the entry has no event."""
    event_begin: int
    event_end: int
    entry_begin: int
    entry_end: int
    entries: int
    """How many have been read."""
    dml_type: int
    columns: bytes
    """As they are serialised."""
    rows_begin: int

    @property
    def place(self) -> int: ...
    def __init__(self, data: bytes | memoryview | mmap) -> None: ...
    def advance(self) -> bool: ...
    def event(self) -> bytes: ...
    def piece(self, begin: int, end: int) -> bytes: ...
    def read_dml(self) -> None: ...
    def skip_rows(self, place: int, rows: int) -> tuple[int, int]: ...
