from protos.headwater.checkpoints.v1 import checkpoint_pb2 as _checkpoint_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AcquireSourcePartitionRequest(_message.Message):
    __slots__ = ("source", "source_partition", "owner", "lease_ms")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    source: str
    source_partition: str
    owner: str
    lease_ms: int
    def __init__(self, source: _Optional[str] = ..., source_partition: _Optional[str] = ..., owner: _Optional[str] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class AcquireSourcePartitionResponse(_message.Message):
    __slots__ = ("fencing_token", "expires_at_us")
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_US_FIELD_NUMBER: _ClassVar[int]
    fencing_token: int
    expires_at_us: int
    def __init__(self, fencing_token: _Optional[int] = ..., expires_at_us: _Optional[int] = ...) -> None: ...

class ReleaseSourcePartitionRequest(_message.Message):
    __slots__ = ("source", "source_partition", "owner", "fencing_token")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    source: str
    source_partition: str
    owner: str
    fencing_token: int
    def __init__(self, source: _Optional[str] = ..., source_partition: _Optional[str] = ..., owner: _Optional[str] = ..., fencing_token: _Optional[int] = ...) -> None: ...

class ReleaseSourcePartitionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCheckpointRequest(_message.Message):
    __slots__ = ("source", "source_partition")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    source: str
    source_partition: str
    def __init__(self, source: _Optional[str] = ..., source_partition: _Optional[str] = ...) -> None: ...

class GetCheckpointResponse(_message.Message):
    __slots__ = ("checkpoint",)
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _checkpoint_pb2.Checkpoint
    def __init__(self, checkpoint: _Optional[_Union[_checkpoint_pb2.Checkpoint, _Mapping]] = ...) -> None: ...

class ListCheckpointsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListCheckpointsResponse(_message.Message):
    __slots__ = ("checkpoints",)
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    checkpoints: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.Checkpoint]
    def __init__(self, checkpoints: _Optional[_Iterable[_Union[_checkpoint_pb2.Checkpoint, _Mapping]]] = ...) -> None: ...

class ResetCheckpointRequest(_message.Message):
    __slots__ = ("source", "source_partition", "position", "reason", "starts_over")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STARTS_OVER_FIELD_NUMBER: _ClassVar[int]
    source: str
    source_partition: str
    position: _checkpoint_pb2.SourcePosition
    reason: str
    starts_over: bool
    def __init__(self, source: _Optional[str] = ..., source_partition: _Optional[str] = ..., position: _Optional[_Union[_checkpoint_pb2.SourcePosition, _Mapping]] = ..., reason: _Optional[str] = ..., starts_over: _Optional[bool] = ...) -> None: ...

class ResetCheckpointResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Progress(_message.Message):
    __slots__ = ("tenant", "hop", "source", "source_partition", "table", "committed_at_us", "order", "rows", "reported_at_us")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    HOP_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_US_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REPORTED_AT_US_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    hop: str
    source: str
    source_partition: str
    table: str
    committed_at_us: int
    order: _checkpoint_pb2.EventOrder
    rows: int
    reported_at_us: int
    def __init__(self, tenant: _Optional[str] = ..., hop: _Optional[str] = ..., source: _Optional[str] = ..., source_partition: _Optional[str] = ..., table: _Optional[str] = ..., committed_at_us: _Optional[int] = ..., order: _Optional[_Union[_checkpoint_pb2.EventOrder, _Mapping]] = ..., rows: _Optional[int] = ..., reported_at_us: _Optional[int] = ...) -> None: ...

class ReportProgressRequest(_message.Message):
    __slots__ = ("progress",)
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    progress: _containers.RepeatedCompositeFieldContainer[Progress]
    def __init__(self, progress: _Optional[_Iterable[_Union[Progress, _Mapping]]] = ...) -> None: ...

class ReportProgressResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ForgetProgressRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class ForgetProgressResponse(_message.Message):
    __slots__ = ("reports",)
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    reports: int
    def __init__(self, reports: _Optional[int] = ...) -> None: ...

class GetProgressRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class GetProgressResponse(_message.Message):
    __slots__ = ("progress",)
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    progress: _containers.RepeatedCompositeFieldContainer[Progress]
    def __init__(self, progress: _Optional[_Iterable[_Union[Progress, _Mapping]]] = ...) -> None: ...
