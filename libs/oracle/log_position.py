"""A place in an Oracle database's redo, and the order of its commits.

Several transactions may commit at one SCN. They are numbered from 0 by thread and record, over all transactions of the
database, so the numbers are the same whatever is captured.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from libs.types.order import EventOrder

COMMITS_OF_AN_SCN: Final = 1 << 16
"""A rank has room for so many commits at one SCN."""


class LogminerPosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which commits are done, and where mining begins for those that are not.

    A window of redo ends at an SCN up to which every thread's redo is written, so nothing is kept by thread, and no
    transaction by its id.
    """

    dbid: int
    resetlogs_change: int
    """RESETLOGS_CHANGE# of the incarnation whose redo is read."""
    resetlogs_id: int
    epoch: int = 0
    """EventOrder.epoch of the events that follow; it grows with each RESETLOGS that is followed."""
    done_scn: int
    """Every commit below is done."""
    done_commits: int = 0
    """So many commits at ``done_scn`` are done too."""
    low_scn: int | None = None
    """SCN of the first captured row of the oldest transaction that is open; None: there is none, or it is not below
    ``done_scn``. Mining begins here."""
    dropped: tuple[str, ...] = ()
    """XIDs of open transactions that a signal had passed over, in hexadecimal. ``low_scn`` does not wait for them, so the rows
    from there on are not all that they wrote."""
    quarantined: Mapping[str, str] = {}
    """Tables (``SCHEMA.TABLE``) whose rows are passed over since they could not be read rightly, each with the reason."""

    @property
    def mined_from(self) -> int:
        """The SCN of the first row to mine."""
        return self.done_scn if self.low_scn is None else min(self.low_scn, self.done_scn)

    def has(self, scn: int, nth: int) -> bool:
        """Whether a commit is done."""
        return scn < self.done_scn or (scn == self.done_scn and nth < self.done_commits)


def commit_order(epoch: int, scn: int, nth: int) -> EventOrder:
    """The order of a transaction's beginning; its events have the ordinals from 1."""
    return EventOrder(epoch=epoch, rank=scn * COMMITS_OF_AN_SCN + nth, tx_ordinal=0)


def snapshot_order(epoch: int, scn: int) -> EventOrder:
    """The order of rows that were read AS OF an SCN.

    Whether they have a commit at that very SCN is not documented. Their order is below each commit there, so a change that
    they have already may come once more, and none is lost.
    """
    return commit_order(epoch, scn, 0)
