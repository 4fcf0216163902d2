"""Incarnations of a database: OPEN RESETLOGS ends one and begins the next, after a failover or a recovery to a point in time.

SCNs go on from the branch, and sequences of logs begin again with 1. Redo of the earlier incarnation counts below the branch
alone; what it has from there on happened in a database that is no more.
(Oracle Database Backup and Recovery User's Guide, "Database Incarnations".)
"""

from collections.abc import Iterable
from typing import NamedTuple


class DatabaseIncarnation(NamedTuple):
    """A row of V$DATABASE_INCARNATION."""

    number: int
    prior_number: int
    """INCARNATION# of the one that it branched off from."""
    resetlogs_change: int
    """RESETLOGS_CHANGE#: its first SCN."""
    resetlogs_id: int
    is_current: bool


class NoAncestor(ValueError):
    """The database does not come from the incarnation; the message says from which it comes."""


def incarnation_after(incarnations: Iterable[DatabaseIncarnation], resetlogs_id: int) -> DatabaseIncarnation | None:
    """The incarnation that branched off from that of ``resetlogs_id`` on the way to the current one; None: it is current.

    Raises:
        NoAncestor: the current one does not come from it.
    """
    by_number = {each.number: each for each in incarnations}
    each = next((each for each in by_number.values() if each.is_current), None)
    after: DatabaseIncarnation | None = None
    way: list[int] = []
    while each is not None and each.resetlogs_id not in way:
        if each.resetlogs_id == resetlogs_id:
            return after
        way.append(each.resetlogs_id)
        after, each = each, by_number.get(each.prior_number)
    raise NoAncestor(f"it comes from the incarnations of RESETLOGS_ID {', '.join(map(str, way)) or 'none'}")
