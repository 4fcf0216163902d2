"""An open transaction of the log."""

from dataclasses import dataclass, field
from typing import IO

from libs.mysql.binlog_events import GtidEvent
from libs.types.order import EventOrder
from libs.types.table import TableId


@dataclass(frozen=True, slots=True)
class HeldTransaction:
    """An XA transaction that is prepared, or on its way to it: its captured tables' events, as the log has them."""

    gtid: GtidEvent
    file: str
    events: IO[bytes]
    captured: set[bytes] = field(default_factory=set)
    """Numbers of the tables whose rows are held."""


@dataclass(slots=True)
class Transaction:
    """One whose end the log has not shown."""

    gtid: str
    """Of a server without GTIDs: the transaction's place, as Debezium names it."""
    event: GtidEvent
    order: EventOrder
    committed_at_us: int
    gtid_json: bytes
    is_passed: bool
    xa: HeldTransaction | None = None
    """The prepared one that this ends."""
    rows: int = 0
    rows_by_table: dict[TableId, int] = field(default_factory=dict)
    thread_id: int = 0
    has_begun: bool = False
    """Its BEGIN was published."""
    is_open: bool = False
    """The log has its BEGIN: statements within do not end it."""
