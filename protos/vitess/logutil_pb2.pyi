from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Level(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INFO: _ClassVar[Level]
    WARNING: _ClassVar[Level]
    ERROR: _ClassVar[Level]
    CONSOLE: _ClassVar[Level]
INFO: Level
WARNING: Level
ERROR: Level
CONSOLE: Level

class Event(_message.Message):
    __slots__ = ("level", "file", "line", "value")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    level: Level
    file: str
    line: int
    value: str
    def __init__(self, level: _Optional[_Union[Level, str]] = ..., file: _Optional[str] = ..., line: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
