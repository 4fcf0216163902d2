"""A commit's facts about itself, under the same names in every warehouse with properties of commits: the batch, and how far
the table gets with it. ``libs.warehouse_readers.table_progress`` reads it."""

import json

from libs.sink_state.progress import encode_positions
from libs.types.warehouse import (
    BATCH_PROPERTY,
    REACHED_AT_PROPERTY,
    REACHED_OFFSETS_PROPERTY,
    REACHED_ORDER_PROPERTY,
    REACHED_POSITIONS_PROPERTY,
)
from spark.sinks.port import Reached


def commit_properties(batch: str, reached: Reached) -> dict[str, str]:
    """Of a commit that takes ``batch`` in."""
    return {
        BATCH_PROPERTY: batch,
        REACHED_ORDER_PROPERTY: reached.order,
        REACHED_AT_PROPERTY: str(reached.committed_at_us),
        REACHED_OFFSETS_PROPERTY: json.dumps({str(key): end for key, end in sorted(reached.offsets.items())}),
        REACHED_POSITIONS_PROPERTY: encode_positions(reached.positions).decode(),
    }
