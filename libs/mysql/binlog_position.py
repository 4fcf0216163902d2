"""A place in a MySQL server's log."""

import msgspec


class BinlogPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Which transactions are done, and where the last of them ended. A log is resumed by ``gtid_set``; file and place only
    tell a person where."""

    gtid_set: str
    """Every transaction that is done, as MySQL writes a GTID set."""
    file: str
    pos: int
    epoch: int = 0
    """EventOrder.epoch of the events that follow."""
