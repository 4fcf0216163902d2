"""A place in a MySQL server's log."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from libs.mysql.gtid import GtidSet


class BinlogPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Which transactions are done, and where the last of them ended.

    A log is resumed by ``gtid_set``; file and place then only inform a person. The log of a server without GTIDs (``by_file``)
    is resumed by file and place.
    """

    gtid_set: str
    """Every transaction that is done, as MySQL writes a GTID set. An XA transaction is done when it is committed or rolled
    back, not when it is prepared."""
    file: str
    pos: int
    epoch: int = 0
    """EventOrder.epoch of the events that follow."""
    by_file: bool = False
    last_transaction: str = ""
    """The newest of them that the log has shown, as MySQL writes a GTID; empty: none yet, or no GTIDs."""
    last_committed_at_us: int = 0
    """When that one was committed, at the server that numbered it: another history has another time."""
    file_made_at_s: int = 0
    """When the server began ``file``; 0: the log is still to say it. A log that was reset has another file of that name."""
    quarantined: Mapping[str, str] = {}
    """Tables (``database.table``) whose rows are passed over since they could not be read rightly, each with the reason."""
    unseen: Mapping[str, str] = {}
    """Tables of which rows changed and the log has none of these changes, each with the change's cause."""

    @property
    def rank(self) -> int:
        """EventOrder.rank of the last event before it: all that follow have a higher one."""
        if self.by_file:
            return rank_of_place(self.file, max(self.pos - 1, 0))
        return GtidSet.parse(self.gtid_set).transaction_count()

    def has_reached(self, other: "BinlogPosition") -> bool:
        """Everything that is done at ``other`` is done here."""
        if self.by_file:
            return rank_of_place(self.file, self.pos) >= rank_of_place(other.file, other.pos)
        return GtidSet.parse(self.gtid_set).is_superset(GtidSet.parse(other.gtid_set))


_FILE_NUMBER: Final = re.compile(r"\.(\d+)$")


def rank_of_place(file: str, pos: int) -> int:
    """EventOrder.rank of a transaction that begins there, for a server without GTIDs: it grows along the log's files.

    Files are numbered (``binlog.000042``) from 1 without gaps, and hold less than 2**40 bytes. RESET BINARY LOGS begins again,
    which purges the position.
    """
    number = _FILE_NUMBER.search(file)
    return (int(number[1]) if number else 0) << 40 | pos
