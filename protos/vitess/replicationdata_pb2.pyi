from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Status(_message.Message):
    __slots__ = ("position", "replication_lag_seconds")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_LAG_SECONDS_FIELD_NUMBER: _ClassVar[int]
    position: str
    replication_lag_seconds: int
    def __init__(self, position: _Optional[str] = ..., replication_lag_seconds: _Optional[int] = ...) -> None: ...
