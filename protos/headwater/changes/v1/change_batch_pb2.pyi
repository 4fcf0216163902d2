from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChangeBatch(_message.Message):
    __slots__ = ("source", "source_partition", "fencing_token", "run_id", "connector", "published_at_us", "entries", "removed_fields", "has_ordered_transactions", "awaited")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CONNECTOR_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_US_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELDS_FIELD_NUMBER: _ClassVar[int]
    HAS_ORDERED_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    source: str
    source_partition: str
    fencing_token: int
    run_id: str
    connector: str
    published_at_us: int
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    removed_fields: _containers.RepeatedScalarFieldContainer[str]
    has_ordered_transactions: bool
    awaited: _containers.RepeatedCompositeFieldContainer[PartitionEnd]
    def __init__(self, source: _Optional[str] = ..., source_partition: _Optional[str] = ..., fencing_token: _Optional[int] = ..., run_id: _Optional[str] = ..., connector: _Optional[str] = ..., published_at_us: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., removed_fields: _Optional[_Iterable[str]] = ..., has_ordered_transactions: _Optional[bool] = ..., awaited: _Optional[_Iterable[_Union[PartitionEnd, _Mapping]]] = ...) -> None: ...

class PartitionEnd(_message.Message):
    __slots__ = ("kafka_partition", "end_offset")
    KAFKA_PARTITION_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    kafka_partition: int
    end_offset: int
    def __init__(self, kafka_partition: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("run", "table_change", "transaction_boundary")
    RUN_FIELD_NUMBER: _ClassVar[int]
    TABLE_CHANGE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    run: Run
    table_change: TableChange
    transaction_boundary: TransactionBoundary
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ..., table_change: _Optional[_Union[TableChange, _Mapping]] = ..., transaction_boundary: _Optional[_Union[TransactionBoundary, _Mapping]] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("database", "table", "schema_version", "transaction_id", "epoch", "rank", "first_tx_ordinal", "committed_at_us", "is_snapshot", "ops", "keys", "values", "for_tenants")
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    FIRST_TX_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_US_FIELD_NUMBER: _ClassVar[int]
    IS_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    FOR_TENANTS_FIELD_NUMBER: _ClassVar[int]
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
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    for_tenants: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, database: _Optional[str] = ..., table: _Optional[str] = ..., schema_version: _Optional[int] = ..., transaction_id: _Optional[str] = ..., epoch: _Optional[int] = ..., rank: _Optional[str] = ..., first_tx_ordinal: _Optional[int] = ..., committed_at_us: _Optional[int] = ..., is_snapshot: _Optional[bool] = ..., ops: _Optional[bytes] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., for_tenants: _Optional[_Iterable[str]] = ...) -> None: ...

class TableChange(_message.Message):
    __slots__ = ("database", "table", "schema_version", "epoch", "rank", "tx_ordinal", "committed_at_us", "is_snapshot", "key", "value", "database_tables")
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    TX_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_US_FIELD_NUMBER: _ClassVar[int]
    IS_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_TABLES_FIELD_NUMBER: _ClassVar[int]
    database: str
    table: str
    schema_version: int
    epoch: int
    rank: str
    tx_ordinal: int
    committed_at_us: int
    is_snapshot: bool
    key: bytes
    value: bytes
    database_tables: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, database: _Optional[str] = ..., table: _Optional[str] = ..., schema_version: _Optional[int] = ..., epoch: _Optional[int] = ..., rank: _Optional[str] = ..., tx_ordinal: _Optional[int] = ..., committed_at_us: _Optional[int] = ..., is_snapshot: _Optional[bool] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., database_tables: _Optional[_Iterable[str]] = ...) -> None: ...

class TransactionBoundary(_message.Message):
    __slots__ = ("status", "transaction_id", "committed_at_us", "table_event_counts")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSPECIFIED: _ClassVar[TransactionBoundary.Status]
        STATUS_BEGIN: _ClassVar[TransactionBoundary.Status]
        STATUS_END: _ClassVar[TransactionBoundary.Status]
    STATUS_UNSPECIFIED: TransactionBoundary.Status
    STATUS_BEGIN: TransactionBoundary.Status
    STATUS_END: TransactionBoundary.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_US_FIELD_NUMBER: _ClassVar[int]
    TABLE_EVENT_COUNTS_FIELD_NUMBER: _ClassVar[int]
    status: TransactionBoundary.Status
    transaction_id: str
    committed_at_us: int
    table_event_counts: _containers.RepeatedCompositeFieldContainer[TableEventCount]
    def __init__(self, status: _Optional[_Union[TransactionBoundary.Status, str]] = ..., transaction_id: _Optional[str] = ..., committed_at_us: _Optional[int] = ..., table_event_counts: _Optional[_Iterable[_Union[TableEventCount, _Mapping]]] = ...) -> None: ...

class TableEventCount(_message.Message):
    __slots__ = ("database", "table", "events")
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    database: str
    table: str
    events: int
    def __init__(self, database: _Optional[str] = ..., table: _Optional[str] = ..., events: _Optional[int] = ...) -> None: ...
