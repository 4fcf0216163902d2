"""The reader's source position: a ``LogminerPosition`` as the token that everybody else carries."""

from typing import Final

from libs.events.position_codec import PositionCodec
from libs.oracle.log_position import LogminerPosition

__all__ = ["SOURCE_KIND", "SOURCE_PARTITION", "LogminerPosition", "decode_position", "encode_position"]

SOURCE_KIND: Final = "oracle"
SOURCE_PARTITION: Final = "0"
"""The threads of a database are read as one log."""


_codec = PositionCodec(SOURCE_KIND, LogminerPosition)
encode_position = _codec.encode
decode_position = _codec.decode
