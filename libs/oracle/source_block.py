"""Debezium's ``source`` object of events that no row of the log brought: schema changes, truncations, copied rows.

Fields and their order are those of its Oracle connector 3.6.1; SCNs are text.
"""

from dataclasses import dataclass

import orjson

from libs.events.envelope import HEADWATER_VERSION
from libs.types.table import TableId


@dataclass(frozen=True, slots=True)
class EventPlace:
    """Where an event stands."""

    time_us: int
    """Microseconds since 1970."""
    scn: int | None
    snapshot: str = "false"
    """``true``, ``first``, ``last``, ``incremental`` … of a copied row."""
    commit_scn: int | None = None
    transaction_id: str | None = None
    thread: int | None = None
    rs_id: str | None = None
    user: str | None = None


def source_block(source: str, database: str, table_id: TableId, place: EventPlace) -> bytes:
    """The ``source`` object as JSON. ``table_id`` without a table: of a whole schema."""
    return orjson.dumps(
        {
            "version": HEADWATER_VERSION,
            "connector": "oracle",
            "name": source,
            "ts_ms": place.time_us // 1_000,
            "snapshot": place.snapshot,
            "db": database,
            "sequence": None,
            "ts_us": place.time_us,
            "ts_ns": place.time_us * 1_000,
            "schema": table_id.database,
            "table": table_id.table or None,
            "txId": place.transaction_id,
            "scn": None if place.scn is None else str(place.scn),
            "commit_scn": None if place.commit_scn is None else str(place.commit_scn),
            "lcr_position": None,
            "rs_id": place.rs_id.strip() if place.rs_id else None,
            "ssn": 0,
            "redo_thread": place.thread,
            "user_name": place.user,
            "redo_sql": None,
            "row_id": None,
            "commit_ts_ms": None,
            "start_scn": None,
            "start_ts_ms": None,
            "txSeq": None,
        }
    )
