"""The transaction of a stream whose rows are being decoded."""

from dataclasses import dataclass, field

from libs.types.order import EventOrder
from libs.types.table import TableId
from services.vstream_reader.shard_set import Shard


@dataclass(slots=True)
class Transaction:
    """The transaction whose rows are being decoded."""

    shard: Shard
    id: str
    id_json: bytes
    local_id_json: bytes
    is_copy: bool
    committed_at_us: int
    began_at_us: int
    rows: int = 0
    rows_by_table: dict[TableId, int] = field(default_factory=dict)
    has_begun: bool = False

    @property
    def order(self) -> EventOrder:
        """Of its newest row; of a copy, the place in the log that its rows are of."""
        return EventOrder(epoch=self.shard.epoch, rank=self.shard.rank, tx_ordinal=0 if self.is_copy else self.rows)

    @property
    def row_order(self) -> EventOrder:
        """Of its newest row."""
        return self.order.after() if self.is_copy else self.order
