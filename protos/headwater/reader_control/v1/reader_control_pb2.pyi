from protos.headwater.checkpoints.v1 import checkpoint_pb2 as _checkpoint_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReaderState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READER_STATE_UNSPECIFIED: _ClassVar[ReaderState]
    READER_STATE_STARTING: _ClassVar[ReaderState]
    READER_STATE_SNAPSHOTTING: _ClassVar[ReaderState]
    READER_STATE_STREAMING: _ClassVar[ReaderState]
    READER_STATE_PAUSED: _ClassVar[ReaderState]
    READER_STATE_HALTED: _ClassVar[ReaderState]
    READER_STATE_CONNECTING: _ClassVar[ReaderState]
    READER_STATE_DISCONNECTED: _ClassVar[ReaderState]
READER_STATE_UNSPECIFIED: ReaderState
READER_STATE_STARTING: ReaderState
READER_STATE_SNAPSHOTTING: ReaderState
READER_STATE_STREAMING: ReaderState
READER_STATE_PAUSED: ReaderState
READER_STATE_HALTED: ReaderState
READER_STATE_CONNECTING: ReaderState
READER_STATE_DISCONNECTED: ReaderState

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("source", "source_partition", "state", "position", "rows_published", "committed_at_us", "snapshot", "halted_because", "incremental", "incremental_remaining_s", "quarantined", "shards", "snapshot_remaining_s", "last_error", "error_since_us", "next_try_us", "signals")
    class QuarantinedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ROWS_PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_US_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    HALTED_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    INCREMENTAL_FIELD_NUMBER: _ClassVar[int]
    INCREMENTAL_REMAINING_S_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_REMAINING_S_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_SINCE_US_FIELD_NUMBER: _ClassVar[int]
    NEXT_TRY_US_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    source: str
    source_partition: str
    state: ReaderState
    position: _checkpoint_pb2.SourcePosition
    rows_published: int
    committed_at_us: int
    snapshot: _checkpoint_pb2.SnapshotProgress
    halted_because: str
    incremental: _checkpoint_pb2.IncrementalSnapshot
    incremental_remaining_s: float
    quarantined: _containers.ScalarMap[str, str]
    shards: _containers.RepeatedCompositeFieldContainer[ShardStatus]
    snapshot_remaining_s: float
    last_error: str
    error_since_us: int
    next_try_us: int
    signals: _containers.RepeatedCompositeFieldContainer[SignalOutcome]
    def __init__(self, source: _Optional[str] = ..., source_partition: _Optional[str] = ..., state: _Optional[_Union[ReaderState, str]] = ..., position: _Optional[_Union[_checkpoint_pb2.SourcePosition, _Mapping]] = ..., rows_published: _Optional[int] = ..., committed_at_us: _Optional[int] = ..., snapshot: _Optional[_Union[_checkpoint_pb2.SnapshotProgress, _Mapping]] = ..., halted_because: _Optional[str] = ..., incremental: _Optional[_Union[_checkpoint_pb2.IncrementalSnapshot, _Mapping]] = ..., incremental_remaining_s: _Optional[float] = ..., quarantined: _Optional[_Mapping[str, str]] = ..., shards: _Optional[_Iterable[_Union[ShardStatus, _Mapping]]] = ..., snapshot_remaining_s: _Optional[float] = ..., last_error: _Optional[str] = ..., error_since_us: _Optional[int] = ..., next_try_us: _Optional[int] = ..., signals: _Optional[_Iterable[_Union[SignalOutcome, _Mapping]]] = ...) -> None: ...

class SignalOutcome(_message.Message):
    __slots__ = ("signal_id", "kind", "at_us", "refused_because", "not_done", "tables", "waiting", "finished", "rows_read", "given_up", "given_up_count", "copied_by")
    class GivenUpEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SIGNAL_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    AT_US_FIELD_NUMBER: _ClassVar[int]
    REFUSED_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    NOT_DONE_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    ROWS_READ_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_COUNT_FIELD_NUMBER: _ClassVar[int]
    COPIED_BY_FIELD_NUMBER: _ClassVar[int]
    signal_id: str
    kind: str
    at_us: int
    refused_because: str
    not_done: _containers.RepeatedScalarFieldContainer[str]
    tables: int
    waiting: int
    finished: int
    rows_read: int
    given_up: _containers.ScalarMap[str, str]
    given_up_count: int
    copied_by: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, signal_id: _Optional[str] = ..., kind: _Optional[str] = ..., at_us: _Optional[int] = ..., refused_because: _Optional[str] = ..., not_done: _Optional[_Iterable[str]] = ..., tables: _Optional[int] = ..., waiting: _Optional[int] = ..., finished: _Optional[int] = ..., rows_read: _Optional[int] = ..., given_up: _Optional[_Mapping[str, str]] = ..., given_up_count: _Optional[int] = ..., copied_by: _Optional[_Iterable[str]] = ...) -> None: ...

class ShardStatus(_message.Message):
    __slots__ = ("shard", "position", "epoch", "committed_at_us", "lag_s", "transactions", "rows", "is_ended", "rows_copied", "is_copying")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_US_FIELD_NUMBER: _ClassVar[int]
    LAG_S_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    IS_ENDED_FIELD_NUMBER: _ClassVar[int]
    ROWS_COPIED_FIELD_NUMBER: _ClassVar[int]
    IS_COPYING_FIELD_NUMBER: _ClassVar[int]
    shard: str
    position: str
    epoch: int
    committed_at_us: int
    lag_s: float
    transactions: int
    rows: int
    is_ended: bool
    rows_copied: int
    is_copying: bool
    def __init__(self, shard: _Optional[str] = ..., position: _Optional[str] = ..., epoch: _Optional[int] = ..., committed_at_us: _Optional[int] = ..., lag_s: _Optional[float] = ..., transactions: _Optional[int] = ..., rows: _Optional[int] = ..., is_ended: _Optional[bool] = ..., rows_copied: _Optional[int] = ..., is_copying: _Optional[bool] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SendSignalRequest(_message.Message):
    __slots__ = ("signal",)
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    signal: str
    def __init__(self, signal: _Optional[str] = ...) -> None: ...

class SendSignalResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...
