"""EventOrder: the sort key of every event, the same after each replay."""

from typing import Final

import msgspec

_EPOCH_DIGITS: Final = 10  # a 32-bit number
# The rank sums the sequence numbers of all GTID hosts of a position: 256 shards of 63 bits each stay
# below 10**22.
_RANK_DIGITS: Final = 26
_ORDINAL_DIGITS: Final = 10
_PREFIX: Final = f"%0{_EPOCH_DIGITS}d.%0{_RANK_DIGITS}d."
SORT_KEY_LENGTH: Final = _EPOCH_DIGITS + 1 + _RANK_DIGITS + 1 + _ORDINAL_DIGITS
"""Of each ``EventOrder.sort_key``."""


class EventOrder(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Place of an event among all events of its source partition; compare with ``<``.

    The epoch grows when the set of GTID hosts loses one or shards are re-cut; the rank counts the transactions
    executed up to and with the event's own, which for gapless GTID sets is the sum of their sequence numbers (docs/adr/0002;
    after Debezium's Vitess connector: ``VitessEpochProvider``, ``VitessRankProvider``); the ordinal counts the
    events of a transaction from 1. A copied row has the order ``after`` the last transaction that it holds, with ordinal 0.
    """

    epoch: int
    rank: int
    tx_ordinal: int

    def sort_key(self) -> str:
        """Text of fixed width whose plain string order is the event order (Kafka header, sink column)."""
        return f"{sort_key_prefix(self.epoch, self.rank)}{self.tx_ordinal:0{_ORDINAL_DIGITS}d}"

    def after(self) -> "EventOrder":
        """That of rows copied once this transaction is done: above each of its events, and below each of the next one's.

        The rank is the next transaction's, whose events have ordinals from 1. A copied row with the rank of the transaction
        itself would stand below changes that it holds already.

        >>> at = EventOrder(epoch=0, rank=7, tx_ordinal=2)
        >>> at < at.after() < EventOrder(epoch=0, rank=8, tx_ordinal=1)
        True
        """
        return EventOrder(epoch=self.epoch, rank=self.rank + 1, tx_ordinal=0)

    @classmethod
    def from_sort_key(cls, text: str) -> "EventOrder":
        """The order that ``sort_key`` wrote, also without its zeros (``0.4711.3``). Raises ValueError for any other text."""
        epoch, rank, ordinal = text.split(".")
        return cls(epoch=int(epoch), rank=int(rank), tx_ordinal=int(ordinal))


def sort_key_prefix(epoch: int, rank: int) -> str:
    """The common prefix of the sort keys of one transaction's events; the ordinal follows in ten digits.

    >>> sort_key_prefix(0, 7) + "%010d" % 1 == EventOrder(epoch=0, rank=7, tx_ordinal=1).sort_key()
    True
    """
    return _PREFIX % (epoch, rank)
