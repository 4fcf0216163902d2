"""The DTS decoder's source position: where its Kafka topic is read on, and how far the source's own log had come there."""

from typing import Final

import msgspec

from libs.events.position_codec import PositionCodec

SOURCE_KIND: Final = "dts"


class DtsPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Token of a SourcePosition: always between two source transactions."""

    topic: str
    partition: int
    """Kafka partition of the subscription's topic."""
    offset: int
    """Of the message that holds the first entry not done; of a message in parts, the first part's."""
    entry: int = 0
    """Entries of that message that are done."""
    ps: int | None = None
    """DTS's own count of the last message done; None: none was."""
    gtid_set: str = ""
    """Transactions that came already, so that DTS's repeats are known; with holes where a partition holds only some."""
    synced_gtid_set: str = ""
    """The transactions that DTS has handed over, by the newest CHECKPOINT. At the next one the holes below it are closed."""
    epoch: int = 0
    """EventOrder.epoch of the events that follow."""
    server_id: int = 0
    """With the next two: where the last transaction stood at the source. By these its repeats are known where it has no
    GTIDs; else they show a person where."""
    file: str = ""
    pos: int = 0
    gtid: str = ""
    seq_id: int = 0


_codec = PositionCodec(SOURCE_KIND, DtsPosition)
encode_position = _codec.encode
decode_position = _codec.decode
