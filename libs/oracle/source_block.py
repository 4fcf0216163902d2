"""Debezium's ``source`` object of events that no row of the log brought: schema changes, truncations, copied rows."""

from dataclasses import dataclass
from itertools import chain, zip_longest

from libs.events.envelope import OracleSourceBlock, json_text
from libs.types.table import TableId


@dataclass(frozen=True, slots=True)
class EventPlace:
    """Where an event stands."""

    time_us: int
    """Microseconds since 1970."""
    scn: int
    snapshot: str = "false"
    """``true``, ``first``, ``last``, ``incremental`` … of a copied row."""
    thread: int | None = None
    rs_id: str | None = None
    user: str | None = None
    """Of the session that carried a statement out."""


def source_block(source: str, database: str, table_id: TableId, place: EventPlace) -> bytes:
    """The ``source`` object as JSON, as ``OracleSourceBlock`` has it of a row."""
    block = OracleSourceBlock(source, database, table_id.database, table_id.table)
    pieces = block.pieces(snapshot=json_text(place.snapshot), user=place.user)
    times = (b"%d" % (place.time_us // 1_000), b"%d" % place.time_us, b"%d000" % place.time_us)
    rs_id = b"null" if place.rs_id is None else json_text(place.rs_id.strip())
    thread = b"null" if place.thread is None else b"%d" % place.thread
    varying = (*times, b'"%d"' % place.scn, rs_id, b"null", thread, b"null", b"null")
    return b"".join(chain.from_iterable(zip_longest(pieces, varying, fillvalue=b"")))
