from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TabletType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[TabletType]
    PRIMARY: _ClassVar[TabletType]
    MASTER: _ClassVar[TabletType]
    REPLICA: _ClassVar[TabletType]
    RDONLY: _ClassVar[TabletType]
    BATCH: _ClassVar[TabletType]
    SPARE: _ClassVar[TabletType]
    EXPERIMENTAL: _ClassVar[TabletType]
    BACKUP: _ClassVar[TabletType]
    RESTORE: _ClassVar[TabletType]
    DRAINED: _ClassVar[TabletType]
UNKNOWN: TabletType
PRIMARY: TabletType
MASTER: TabletType
REPLICA: TabletType
RDONLY: TabletType
BATCH: TabletType
SPARE: TabletType
EXPERIMENTAL: TabletType
BACKUP: TabletType
RESTORE: TabletType
DRAINED: TabletType

class KeyRange(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: bytes
    end: bytes
    def __init__(self, start: _Optional[bytes] = ..., end: _Optional[bytes] = ...) -> None: ...

class TabletAlias(_message.Message):
    __slots__ = ("cell", "uid")
    CELL_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    cell: str
    uid: int
    def __init__(self, cell: _Optional[str] = ..., uid: _Optional[int] = ...) -> None: ...

class Tablet(_message.Message):
    __slots__ = ("alias", "hostname", "keyspace", "shard", "key_range", "type")
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    KEYSPACE_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    KEY_RANGE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    alias: TabletAlias
    hostname: str
    keyspace: str
    shard: str
    key_range: KeyRange
    type: TabletType
    def __init__(self, alias: _Optional[_Union[TabletAlias, _Mapping]] = ..., hostname: _Optional[str] = ..., keyspace: _Optional[str] = ..., shard: _Optional[str] = ..., key_range: _Optional[_Union[KeyRange, _Mapping]] = ..., type: _Optional[_Union[TabletType, str]] = ...) -> None: ...
