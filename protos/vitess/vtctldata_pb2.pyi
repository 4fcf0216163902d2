from protos.vitess import logutil_pb2 as _logutil_pb2
from protos.vitess import replicationdata_pb2 as _replicationdata_pb2
from protos.vitess import topodata_pb2 as _topodata_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExecuteVtctlCommandRequest(_message.Message):
    __slots__ = ("args", "action_timeout")
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ACTION_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    args: _containers.RepeatedScalarFieldContainer[str]
    action_timeout: int
    def __init__(self, args: _Optional[_Iterable[str]] = ..., action_timeout: _Optional[int] = ...) -> None: ...

class ExecuteVtctlCommandResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: _logutil_pb2.Event
    def __init__(self, event: _Optional[_Union[_logutil_pb2.Event, _Mapping]] = ...) -> None: ...

class ShardReplicationPositionsRequest(_message.Message):
    __slots__ = ("keyspace", "shard")
    KEYSPACE_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    keyspace: str
    shard: str
    def __init__(self, keyspace: _Optional[str] = ..., shard: _Optional[str] = ...) -> None: ...

class ShardReplicationPositionsResponse(_message.Message):
    __slots__ = ("replication_statuses", "tablet_map")
    class ReplicationStatusesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _replicationdata_pb2.Status
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_replicationdata_pb2.Status, _Mapping]] = ...) -> None: ...
    class TabletMapEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _topodata_pb2.Tablet
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_topodata_pb2.Tablet, _Mapping]] = ...) -> None: ...
    REPLICATION_STATUSES_FIELD_NUMBER: _ClassVar[int]
    TABLET_MAP_FIELD_NUMBER: _ClassVar[int]
    replication_statuses: _containers.MessageMap[str, _replicationdata_pb2.Status]
    tablet_map: _containers.MessageMap[str, _topodata_pb2.Tablet]
    def __init__(self, replication_statuses: _Optional[_Mapping[str, _replicationdata_pb2.Status]] = ..., tablet_map: _Optional[_Mapping[str, _topodata_pb2.Tablet]] = ...) -> None: ...
