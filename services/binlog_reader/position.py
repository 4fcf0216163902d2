"""The binlog reader's source position: which transactions are done, and where the last of them ended."""

from typing import Final

import msgspec

from libs.errors import PipelineHalted
from libs.types.position import SourcePosition

SOURCE_KIND: Final = "mysql"


class BinlogPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Token of a SourcePosition. The log is resumed by ``gtid_set``; file and place only tell a person where."""

    gtid_set: str
    """Every transaction that is done, as MySQL writes a GTID set."""
    file: str
    pos: int
    epoch: int = 0
    """EventOrder.epoch of the events that follow."""


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
