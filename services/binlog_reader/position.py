"""The binlog reader's source position: a ``BinlogPosition`` as the token that everybody else carries."""

from typing import Final

import msgspec

from libs.errors import PipelineHalted
from libs.mysql.binlog_position import BinlogPosition
from libs.types.position import SourcePosition

__all__ = ["SOURCE_KIND", "SOURCE_PARTITION", "BinlogPosition", "decode_position", "encode_position"]

SOURCE_KIND: Final = "mysql"
SOURCE_PARTITION: Final = "0"
"""A MySQL server has one log."""


_decoder = msgspec.json.Decoder(BinlogPosition)


def encode_position(position: BinlogPosition) -> SourcePosition:
    """The position as everybody else carries it."""
    return SourcePosition(source_kind=SOURCE_KIND, token=msgspec.json.encode(position))


def decode_position(position: SourcePosition) -> BinlogPosition:
    """What ``encode_position`` wrote.

    Raises:
        PipelineHalted: another kind of reader wrote it, or a newer release; reset the checkpoint or upgrade.
    """
    if position.source_kind != SOURCE_KIND:
        raise PipelineHalted(
            f"the checkpoint belongs to a {position.source_kind!r} source, not to {SOURCE_KIND!r}: "
            "give this source another name, or reset its checkpoint"
        )
    try:
        return _decoder.decode(position.token)
    except msgspec.DecodeError as error:
        raise PipelineHalted(f"the checkpoint's position cannot be read ({error}): reset the checkpoint") from error
