"""What the commits of a tenant's tables say of themselves: the rows of ``_headwater_progress``, in every warehouse the same."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyiceberg.table import Table

from libs.sink_state.progress import decode_positions
from libs.types.warehouse import (
    BATCH_PROPERTY,
    REACHED_AT_PROPERTY,
    REACHED_OFFSETS_PROPERTY,
    REACHED_ORDER_PROPERTY,
    REACHED_POSITIONS_PROPERTY,
)

PROGRESS_SCHEMA: Final = pa.schema(
    {
        "table": pa.string(),
        "source": pa.string(),
        "source_partition": pa.string(),
        "position": pa.string(),
        "position_order": pa.string(),
        "order": pa.string(),
        "committed_at": pa.timestamp("us", "UTC"),
        "offsets": pa.string(),
        "batch": pa.string(),
        "snapshot_id": pa.int64(),
        "written_at": pa.timestamp("us", "UTC"),
    }
)
"""One row a table and source partition; a table of which no position is known has one with NULLs. ``snapshot_id`` is a version
of Delta's."""


def progress_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows of ``PROGRESS_SCHEMA``; missing values are NULL."""
    return pa.Table.from_pylist(list(rows), PROGRESS_SCHEMA)


def iceberg_progress(table: Table) -> Iterator[dict[str, Any]]:
    """By the newest snapshot of rows; nothing where there is none. Fills and maintenance that came since say nothing."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        said = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if BATCH_PROPERTY in said:
            yield from progress_rows(said, snapshot.snapshot_id, snapshot.timestamp_ms)
            return
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def progress_rows(said: Mapping[str, str], snapshot_id: int, written_at_ms: int) -> Iterator[dict[str, Any]]:
    """Of a commit that says ``said``, a batch among it."""
    reached = {
        "order": said.get(REACHED_ORDER_PROPERTY),
        "committed_at": _time(said[REACHED_AT_PROPERTY]) if REACHED_AT_PROPERTY in said else None,
        "offsets": said.get(REACHED_OFFSETS_PROPERTY),
        "batch": said[BATCH_PROPERTY],
        "snapshot_id": snapshot_id,
        "written_at": datetime.fromtimestamp(written_at_ms / 1e3, UTC),
    }
    positions = decode_positions(said.get(REACHED_POSITIONS_PROPERTY, "[]"))
    for each in positions:
        position = msgspec.json.encode(each.position).decode()
        yield reached | {
            "source_partition": each.source_partition,
            "position": position,
            "position_order": each.order,
        }
    if not positions:
        yield reached


def _time(text: str) -> datetime:
    return datetime.fromtimestamp(int(text) / 1e6, UTC)
