from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RefusedKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSED_TABLE: _ClassVar[RefusedKind]
    REFUSED_DOCUMENT: _ClassVar[RefusedKind]
    REFUSED_SCHEMA_CHANGES: _ClassVar[RefusedKind]
    REFUSED_TRANSACTIONS: _ClassVar[RefusedKind]
    REFUSED_RECORDS: _ClassVar[RefusedKind]
REFUSED_TABLE: RefusedKind
REFUSED_DOCUMENT: RefusedKind
REFUSED_SCHEMA_CHANGES: RefusedKind
REFUSED_TRANSACTIONS: RefusedKind
REFUSED_RECORDS: RefusedKind

class Refusal(_message.Message):
    __slots__ = ("tenant", "source", "database", "table", "schema_version", "reason", "found_at_us", "is_of_document", "is_of_registry", "what", "router", "is_of_topic", "is_of_claim", "kafka_partition")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FOUND_AT_US_FIELD_NUMBER: _ClassVar[int]
    IS_OF_DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    IS_OF_REGISTRY_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    ROUTER_FIELD_NUMBER: _ClassVar[int]
    IS_OF_TOPIC_FIELD_NUMBER: _ClassVar[int]
    IS_OF_CLAIM_FIELD_NUMBER: _ClassVar[int]
    KAFKA_PARTITION_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    source: str
    database: str
    table: str
    schema_version: int
    reason: str
    found_at_us: int
    is_of_document: bool
    is_of_registry: bool
    what: RefusedKind
    router: str
    is_of_topic: bool
    is_of_claim: bool
    kafka_partition: int
    def __init__(self, tenant: _Optional[str] = ..., source: _Optional[str] = ..., database: _Optional[str] = ..., table: _Optional[str] = ..., schema_version: _Optional[int] = ..., reason: _Optional[str] = ..., found_at_us: _Optional[int] = ..., is_of_document: _Optional[bool] = ..., is_of_registry: _Optional[bool] = ..., what: _Optional[_Union[RefusedKind, str]] = ..., router: _Optional[str] = ..., is_of_topic: _Optional[bool] = ..., is_of_claim: _Optional[bool] = ..., kafka_partition: _Optional[int] = ...) -> None: ...

class TellRefusalsRequest(_message.Message):
    __slots__ = ("sources", "found", "over", "router")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    ROUTER_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedScalarFieldContainer[str]
    found: _containers.RepeatedCompositeFieldContainer[Refusal]
    over: _containers.RepeatedCompositeFieldContainer[Refusal]
    router: str
    def __init__(self, sources: _Optional[_Iterable[str]] = ..., found: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., over: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., router: _Optional[str] = ...) -> None: ...

class TellRefusalsResponse(_message.Message):
    __slots__ = ("standing",)
    STANDING_FIELD_NUMBER: _ClassVar[int]
    standing: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, standing: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class WatchTenantsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TenantDocument(_message.Message):
    __slots__ = ("tenant", "document")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    document: str
    def __init__(self, tenant: _Optional[str] = ..., document: _Optional[str] = ...) -> None: ...

class TenantsChange(_message.Message):
    __slots__ = ("in_force", "left", "is_whole")
    IN_FORCE_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    IS_WHOLE_FIELD_NUMBER: _ClassVar[int]
    in_force: _containers.RepeatedCompositeFieldContainer[TenantDocument]
    left: _containers.RepeatedScalarFieldContainer[str]
    is_whole: bool
    def __init__(self, in_force: _Optional[_Iterable[_Union[TenantDocument, _Mapping]]] = ..., left: _Optional[_Iterable[str]] = ..., is_whole: _Optional[bool] = ...) -> None: ...
