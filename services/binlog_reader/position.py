"""The binlog reader's source position: a ``BinlogPosition`` as the token that everybody else carries."""

from typing import Final

from libs.events.position_codec import PositionCodec
from libs.mysql.binlog_position import BinlogPosition

__all__ = ["SOURCE_KIND", "SOURCE_PARTITION", "BinlogPosition", "decode_position", "encode_position"]

SOURCE_KIND: Final = "mysql"
SOURCE_PARTITION: Final = "0"
"""A MySQL server has one log."""


_codec = PositionCodec(SOURCE_KIND, BinlogPosition)
encode_position = _codec.encode
decode_position = _codec.decode
