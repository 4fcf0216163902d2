"""Progress: how far one hop of a tenant's way got."""

import msgspec

from libs.types.order import EventOrder
from libs.types.position import SourcePartition


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The durable progress of one hop; a later report replaces an earlier one."""

    tenant: str
    hop: str
    """``router`` or ``sink``."""
    partition: SourcePartition
    table: str = ""
    """``database.table``; empty where the hop is counted for all tables together."""
    committed_at_us: int
    """Commit time, at the source, of the newest event that is durable after this hop; microseconds since 1970."""
    order: EventOrder
    rows: int = 0
    reported_at_us: int = 0
