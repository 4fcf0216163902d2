"""The window around one chunk of an incremental snapshot, in GTID sets: no lock and no write at the source.

A chunk is read by SELECT while the log stands still: ``gtid_executed`` before it is the *low watermark*, the transactions
executed during it are the *high* one. When the log goes on, transactions of the low watermark are in the chunk already; the
first one beyond it opens the window; rows changed within it are taken out of the chunk, for the log delivers them; the first
transaction beyond the high watermark closes the window, and the rest of the chunk is delivered in front of it. At a
source that is silent there is no such transaction: the end of one, or a heartbeat, closes the window when the high watermark
has been reached.

Everything here goes from values to values; ``services.binlog_reader.incremental`` does the reading. Every reader whose log is
ordered by GTIDs can use it. Source of the algorithm: seeds/001 ("Read-only incremental snapshots", Debezium's blog, 2022)
and DBLog (Andreakis and Papapanagiotou, 2020).

It differs from Debezium in one thing. There a transaction that is in neither watermark always closes the window, also while
transactions of the high watermark are still to come (a gap in the set that is filled late, another server's transaction):
their rows are then delivered as they were and are as they will be, out of order. Here such a transaction counts as inside.
"""

from dataclasses import dataclass, replace
from typing import Final

from libs.mysql.gtid import GtidHost, GtidSet

Gtid = tuple[str, str, int]
"""uuid, tag (empty: none), number: the answer of ``gtid.parse_gtid``."""

_NOTHING: Final = GtidSet()


@dataclass(frozen=True, slots=True)
class Window:
    """The watermarks of one chunk, and where the log stands between them."""

    low: GtidSet
    """Executed before the chunk was read."""
    high: GtidSet | None = None
    """Executed while it was read; None: not known yet, and until then the window stays open."""
    unseen: GtidSet = _NOTHING
    """The transactions of both watermarks that the log has yet to show."""
    current: Gtid | None = None
    """The transaction that the log is in, or was in last."""
    is_open: bool = False
    """The log has passed the low watermark and not the high one: rows that change now are taken out of the chunk."""
    is_closed: bool = False
    """The log has passed the high watermark: the chunk is due, and the window is over."""


def open_low(executed: GtidSet) -> Window:
    """The window of a chunk that is about to be read, when the source has executed ``executed``."""
    return Window(low=executed)


def set_high(window: Window, executed: GtidSet, seen: GtidSet) -> Window:
    """The chunk has been read and the source has executed ``executed``; the log has shown ``seen`` of it so far."""
    return replace(window, high=executed.subtract(window.low), unseen=executed.union(window.low).subtract(seen))


def spans_servers(window: Window) -> bool:
    """Transactions of several servers were executed while the chunk was read: read it again.

    A heartbeat is compared by its number, which says something about the other transactions of its own server alone.
    """
    return window.high is not None and len({host.uuid for host in window.high.hosts}) > 1


def see_transaction(window: Window, gtid: Gtid) -> Window:
    """The log shows ``gtid``, once or for each of its events; closed: deliver the chunk before any row of it."""
    if window.is_closed:
        return window
    unseen = window.unseen if gtid == window.current else _without(window.unseen, window.current)
    window = replace(window, unseen=unseen, current=gtid)
    if window.low.contains(*gtid):
        return window
    if window.high is None or window.high.contains(*gtid):
        return replace(window, is_open=True)
    is_past = not unseen or _is_beyond(window, gtid)
    return replace(window, is_open=not is_past, is_closed=is_past)


def reached_high(window: Window, gtid: Gtid | None) -> bool:
    """Whether the chunk is due when a transaction has ended or a heartbeat came, ``gtid`` being the newest one.

    None: the log has shown no transaction at all, so there was none to wait for.
    """
    if window.high is None or window.is_closed:
        return False
    return gtid is None or not _without(window.unseen, gtid) or _is_beyond(window, gtid, or_last=True)


def _is_beyond(window: Window, gtid: Gtid, *, or_last: bool = False) -> bool:
    """The transaction comes after all of its server's in the high watermark (or is their last); of the low one where
    nothing was executed between the two. A server numbers its transactions in the order of its log."""
    high = window.high if window.high else window.low
    uuid, tag, number = gtid
    runs = high.intervals.get(GtidHost(uuid, tag), ())
    return bool(runs) and number >= runs[-1][1] + (not or_last)


def _without(unseen: GtidSet, gtid: Gtid | None) -> GtidSet:
    if gtid is None or not unseen.contains(*gtid):
        return unseen
    uuid, tag, number = gtid
    return unseen.subtract(GtidSet({GtidHost(uuid, tag): ((number, number),)}))
