from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEVERITY_UNSPECIFIED: _ClassVar[Severity]
    SEVERITY_HALTED: _ClassVar[Severity]
    SEVERITY_DIFFERS: _ClassVar[Severity]
    SEVERITY_DEGRADED: _ClassVar[Severity]
SEVERITY_UNSPECIFIED: Severity
SEVERITY_HALTED: Severity
SEVERITY_DIFFERS: Severity
SEVERITY_DEGRADED: Severity

class ListFaultsRequest(_message.Message):
    __slots__ = ("most",)
    MOST_FIELD_NUMBER: _ClassVar[int]
    most: int
    def __init__(self, most: _Optional[int] = ...) -> None: ...

class ListFaultsResponse(_message.Message):
    __slots__ = ("faults", "lasting")
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    LASTING_FIELD_NUMBER: _ClassVar[int]
    faults: _containers.RepeatedCompositeFieldContainer[Fault]
    lasting: int
    def __init__(self, faults: _Optional[_Iterable[_Union[Fault, _Mapping]]] = ..., lasting: _Optional[int] = ...) -> None: ...

class Fault(_message.Message):
    __slots__ = ("id", "severity", "since_us", "source", "tenant", "table", "process", "happened", "remedy", "command", "docs")
    ID_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    HAPPENED_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    DOCS_FIELD_NUMBER: _ClassVar[int]
    id: str
    severity: Severity
    since_us: int
    source: str
    tenant: str
    table: str
    process: str
    happened: str
    remedy: str
    command: str
    docs: str
    def __init__(self, id: _Optional[str] = ..., severity: _Optional[_Union[Severity, str]] = ..., since_us: _Optional[int] = ..., source: _Optional[str] = ..., tenant: _Optional[str] = ..., table: _Optional[str] = ..., process: _Optional[str] = ..., happened: _Optional[str] = ..., remedy: _Optional[str] = ..., command: _Optional[str] = ..., docs: _Optional[str] = ...) -> None: ...
