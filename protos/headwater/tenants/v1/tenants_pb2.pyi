from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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
