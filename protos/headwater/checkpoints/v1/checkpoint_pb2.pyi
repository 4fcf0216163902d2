from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SourcePosition(_message.Message):
    __slots__ = ("source_kind", "token")
    SOURCE_KIND_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    source_kind: str
    token: bytes
    def __init__(self, source_kind: _Optional[str] = ..., token: _Optional[bytes] = ...) -> None: ...

class EventOrder(_message.Message):
    __slots__ = ("epoch", "rank", "tx_ordinal")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    TX_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    rank: str
    tx_ordinal: int
    def __init__(self, epoch: _Optional[int] = ..., rank: _Optional[str] = ..., tx_ordinal: _Optional[int] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("source", "source_partition", "position", "order", "fencing_token", "committed_at_us", "published_at_us", "rows_published", "snapshot", "incremental", "starts_over", "changes_topic_id", "faults")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_US_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_US_FIELD_NUMBER: _ClassVar[int]
    ROWS_PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    INCREMENTAL_FIELD_NUMBER: _ClassVar[int]
    STARTS_OVER_FIELD_NUMBER: _ClassVar[int]
    CHANGES_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    source: str
    source_partition: str
    position: SourcePosition
    order: EventOrder
    fencing_token: int
    committed_at_us: int
    published_at_us: int
    rows_published: int
    snapshot: SnapshotProgress
    incremental: IncrementalSnapshot
    starts_over: bool
    changes_topic_id: str
    faults: _containers.RepeatedCompositeFieldContainer[KeptFault]
    def __init__(self, source: _Optional[str] = ..., source_partition: _Optional[str] = ..., position: _Optional[_Union[SourcePosition, _Mapping]] = ..., order: _Optional[_Union[EventOrder, _Mapping]] = ..., fencing_token: _Optional[int] = ..., committed_at_us: _Optional[int] = ..., published_at_us: _Optional[int] = ..., rows_published: _Optional[int] = ..., snapshot: _Optional[_Union[SnapshotProgress, _Mapping]] = ..., incremental: _Optional[_Union[IncrementalSnapshot, _Mapping]] = ..., starts_over: _Optional[bool] = ..., changes_topic_id: _Optional[str] = ..., faults: _Optional[_Iterable[_Union[KeptFault, _Mapping]]] = ...) -> None: ...

class KeptFault(_message.Message):
    __slots__ = ("id", "table", "happened", "since_us")
    ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    HAPPENED_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    id: str
    table: str
    happened: str
    since_us: int
    def __init__(self, id: _Optional[str] = ..., table: _Optional[str] = ..., happened: _Optional[str] = ..., since_us: _Optional[int] = ...) -> None: ...

class IncrementalSnapshot(_message.Message):
    __slots__ = ("tables", "is_paused", "signals_offset", "signals_topic_id", "finished")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[TableCopy]
    is_paused: bool
    signals_offset: int
    signals_topic_id: str
    finished: _containers.RepeatedCompositeFieldContainer[FinishedCopy]
    def __init__(self, tables: _Optional[_Iterable[_Union[TableCopy, _Mapping]]] = ..., is_paused: _Optional[bool] = ..., signals_offset: _Optional[int] = ..., signals_topic_id: _Optional[str] = ..., finished: _Optional[_Iterable[_Union[FinishedCopy, _Mapping]]] = ...) -> None: ...

class FinishedCopy(_message.Message):
    __slots__ = ("table", "signal_id", "condition", "rows_read", "for_tenants")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_ID_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    ROWS_READ_FIELD_NUMBER: _ClassVar[int]
    FOR_TENANTS_FIELD_NUMBER: _ClassVar[int]
    table: str
    signal_id: str
    condition: str
    rows_read: int
    for_tenants: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, table: _Optional[str] = ..., signal_id: _Optional[str] = ..., condition: _Optional[str] = ..., rows_read: _Optional[int] = ..., for_tenants: _Optional[_Iterable[str]] = ...) -> None: ...

class TableCopy(_message.Message):
    __slots__ = ("table", "condition", "surrogate_key", "signal_id", "last_key", "maximum_key", "rows_read", "rows_estimated", "chunks_read", "for_tenants", "rows_arrived")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    SURROGATE_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_KEY_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_KEY_FIELD_NUMBER: _ClassVar[int]
    ROWS_READ_FIELD_NUMBER: _ClassVar[int]
    ROWS_ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_READ_FIELD_NUMBER: _ClassVar[int]
    FOR_TENANTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_ARRIVED_FIELD_NUMBER: _ClassVar[int]
    table: str
    condition: str
    surrogate_key: str
    signal_id: str
    last_key: bytes
    maximum_key: bytes
    rows_read: int
    rows_estimated: int
    chunks_read: int
    for_tenants: _containers.RepeatedScalarFieldContainer[str]
    rows_arrived: int
    def __init__(self, table: _Optional[str] = ..., condition: _Optional[str] = ..., surrogate_key: _Optional[str] = ..., signal_id: _Optional[str] = ..., last_key: _Optional[bytes] = ..., maximum_key: _Optional[bytes] = ..., rows_read: _Optional[int] = ..., rows_estimated: _Optional[int] = ..., chunks_read: _Optional[int] = ..., for_tenants: _Optional[_Iterable[str]] = ..., rows_arrived: _Optional[int] = ...) -> None: ...

class SnapshotProgress(_message.Message):
    __slots__ = ("finished_tables", "current_table", "last_key", "rows_copied", "rows_estimated", "ranges", "tables")
    FINISHED_TABLES_FIELD_NUMBER: _ClassVar[int]
    CURRENT_TABLE_FIELD_NUMBER: _ClassVar[int]
    LAST_KEY_FIELD_NUMBER: _ClassVar[int]
    ROWS_COPIED_FIELD_NUMBER: _ClassVar[int]
    ROWS_ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    finished_tables: _containers.RepeatedScalarFieldContainer[str]
    current_table: str
    last_key: bytes
    rows_copied: int
    rows_estimated: int
    ranges: _containers.RepeatedCompositeFieldContainer[RangeProgress]
    tables: int
    def __init__(self, finished_tables: _Optional[_Iterable[str]] = ..., current_table: _Optional[str] = ..., last_key: _Optional[bytes] = ..., rows_copied: _Optional[int] = ..., rows_estimated: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[RangeProgress, _Mapping]]] = ..., tables: _Optional[int] = ...) -> None: ...

class RangeProgress(_message.Message):
    __slots__ = ("table", "last_key", "until")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    LAST_KEY_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    table: str
    last_key: bytes
    until: bytes
    def __init__(self, table: _Optional[str] = ..., last_key: _Optional[bytes] = ..., until: _Optional[bytes] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("source", "source_partition", "owner", "fencing_token", "granted_at_us", "lease_ms")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    GRANTED_AT_US_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    source: str
    source_partition: str
    owner: str
    fencing_token: int
    granted_at_us: int
    lease_ms: int
    def __init__(self, source: _Optional[str] = ..., source_partition: _Optional[str] = ..., owner: _Optional[str] = ..., fencing_token: _Optional[int] = ..., granted_at_us: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class CheckpointReset(_message.Message):
    __slots__ = ("source", "source_partition", "position", "fencing_token", "reason", "reset_at_us")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RESET_AT_US_FIELD_NUMBER: _ClassVar[int]
    source: str
    source_partition: str
    position: SourcePosition
    fencing_token: int
    reason: str
    reset_at_us: int
    def __init__(self, source: _Optional[str] = ..., source_partition: _Optional[str] = ..., position: _Optional[_Union[SourcePosition, _Mapping]] = ..., fencing_token: _Optional[int] = ..., reason: _Optional[str] = ..., reset_at_us: _Optional[int] = ...) -> None: ...
