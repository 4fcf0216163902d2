from protos.headwater.checkpoints.v1 import checkpoint_pb2 as _checkpoint_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SchemaChange(_message.Message):
    __slots__ = ("source", "database", "table", "kind", "version", "order", "position", "committed_at_us", "ddl", "table_schema", "renamed_from")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[SchemaChange.Kind]
        KIND_SNAPSHOT: _ClassVar[SchemaChange.Kind]
        KIND_CREATE: _ClassVar[SchemaChange.Kind]
        KIND_ALTER: _ClassVar[SchemaChange.Kind]
        KIND_DROP: _ClassVar[SchemaChange.Kind]
    KIND_UNSPECIFIED: SchemaChange.Kind
    KIND_SNAPSHOT: SchemaChange.Kind
    KIND_CREATE: SchemaChange.Kind
    KIND_ALTER: SchemaChange.Kind
    KIND_DROP: SchemaChange.Kind
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_US_FIELD_NUMBER: _ClassVar[int]
    DDL_FIELD_NUMBER: _ClassVar[int]
    TABLE_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    RENAMED_FROM_FIELD_NUMBER: _ClassVar[int]
    source: str
    database: str
    table: str
    kind: SchemaChange.Kind
    version: int
    order: _checkpoint_pb2.EventOrder
    position: _checkpoint_pb2.SourcePosition
    committed_at_us: int
    ddl: str
    table_schema: bytes
    renamed_from: str
    def __init__(self, source: _Optional[str] = ..., database: _Optional[str] = ..., table: _Optional[str] = ..., kind: _Optional[_Union[SchemaChange.Kind, str]] = ..., version: _Optional[int] = ..., order: _Optional[_Union[_checkpoint_pb2.EventOrder, _Mapping]] = ..., position: _Optional[_Union[_checkpoint_pb2.SourcePosition, _Mapping]] = ..., committed_at_us: _Optional[int] = ..., ddl: _Optional[str] = ..., table_schema: _Optional[bytes] = ..., renamed_from: _Optional[str] = ...) -> None: ...

class RecordSchemaChangeRequest(_message.Message):
    __slots__ = ("change",)
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    change: SchemaChange
    def __init__(self, change: _Optional[_Union[SchemaChange, _Mapping]] = ...) -> None: ...

class RecordSchemaChangeResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class GetTableSchemaRequest(_message.Message):
    __slots__ = ("source", "database", "table", "version", "order")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    source: str
    database: str
    table: str
    version: int
    order: _checkpoint_pb2.EventOrder
    def __init__(self, source: _Optional[str] = ..., database: _Optional[str] = ..., table: _Optional[str] = ..., version: _Optional[int] = ..., order: _Optional[_Union[_checkpoint_pb2.EventOrder, _Mapping]] = ...) -> None: ...

class GetTableSchemaResponse(_message.Message):
    __slots__ = ("change",)
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    change: SchemaChange
    def __init__(self, change: _Optional[_Union[SchemaChange, _Mapping]] = ...) -> None: ...

class ListTablesRequest(_message.Message):
    __slots__ = ("source", "order", "behind")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    source: str
    order: _checkpoint_pb2.EventOrder
    behind: TableName
    def __init__(self, source: _Optional[str] = ..., order: _Optional[_Union[_checkpoint_pb2.EventOrder, _Mapping]] = ..., behind: _Optional[_Union[TableName, _Mapping]] = ...) -> None: ...

class ListTablesResponse(_message.Message):
    __slots__ = ("tables", "more_behind")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    MORE_BEHIND_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[SchemaChange]
    more_behind: TableName
    def __init__(self, tables: _Optional[_Iterable[_Union[SchemaChange, _Mapping]]] = ..., more_behind: _Optional[_Union[TableName, _Mapping]] = ...) -> None: ...

class TableName(_message.Message):
    __slots__ = ("database", "table")
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    database: str
    table: str
    def __init__(self, database: _Optional[str] = ..., table: _Optional[str] = ...) -> None: ...

class WatchSchemaChangesRequest(_message.Message):
    __slots__ = ("source",)
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    source: str
    def __init__(self, source: _Optional[str] = ...) -> None: ...
