"""Statements that change rows without a row event: said aloud by every reader, since nobody behind it could find out.

A partition that is dropped, emptied or exchanged takes rows along of which the log has only the statement. No event can be made
of it: which rows they were, nobody knows any more.
"""

from collections.abc import Callable, Sequence

import structlog

from libs.mysql.ddl import UnseenRows
from libs.telemetry import metrics
from libs.types.table import TableId

log = structlog.get_logger()


def report_unseen_rows(
    found: UnseenRows | None,
    *,
    source: str,
    source_partition: str,
    is_captured: Callable[[TableId], bool],
    at: str,
) -> Sequence[TableId]:
    """Warn and count for each captured table that ``found`` is about; those tables. ``at``: the transaction, or the shard."""
    concerned = [table_id for table_id in found.table_ids if is_captured(table_id)] if found is not None else []
    for table_id in concerned:
        assert found is not None
        metrics.READER_UNSEEN_ROW_CHANGES.labels(source, source_partition).inc()
        log.warning(
            "rows_changed_unseen",
            table=str(table_id),
            clause=found.clause,
            at=at,
            mend="the log has none of these rows, and tenants' tables keep what is gone: `headwater resync TENANT TABLE` "
            "builds such a table anew, `headwater check TENANT` shows what differs",
        )
    return concerned
