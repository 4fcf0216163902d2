"""The transaction of the topic whose entries are being decoded."""

from dataclasses import dataclass, field

import msgspec

from libs.types.order import EventOrder
from libs.types.table import TableId


@dataclass(slots=True)
class RowCounts:
    """The rows of an open transaction."""

    delivered: int = 0
    """Row events delivered."""
    read: int = 0
    """Rows of messages, of all tables."""
    to_skip: int = 0
    """Rows that come again, because DTS began the transaction again."""
    by_table: dict[TableId, int] = field(default_factory=dict)
    """Row events delivered, of each table."""


@dataclass(slots=True)
class Transaction:
    """An open transaction: the facts of its first entry, and the counts of its rows."""

    gtid: str
    id: str
    order: EventOrder
    place: tuple[int, int]
    """Offset and number of the entry that opened it."""
    committed_at_us: int
    has_begin: bool
    id_json: bytes
    counts: RowCounts = field(default_factory=RowCounts)
    thread_id: int = 0
    has_begin_event: bool = False
    is_interrupted: bool = False
    """DTS began again further back before it ended."""

    @property
    def newest_order(self) -> EventOrder:
        """Of its newest row."""
        return msgspec.structs.replace(self.order, tx_ordinal=self.counts.delivered)
