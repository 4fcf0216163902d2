"""Statements that change rows without a row event: every reader reports them, because nobody after it could find out.

A dropped partition takes rows along, an ALTER rounds stored values, a table that nobody captured is renamed to a captured name:
the log has the statement alone. No event can be made of it. ``on_unseen_change`` is the reader's action besides the report.
"""

from collections.abc import Callable, Sequence

import structlog

from libs.errors import PipelineHalted
from libs.source.unseen_policy import UnseenAction, UnseenPolicy, action_for
from libs.telemetry import metrics
from libs.telemetry.faults import ROWS_CHANGED_UNSEEN, raise_fault
from libs.types.fault import FaultScope
from libs.types.table import TableId
from libs.types.unseen_rows import UnseenRows

log = structlog.get_logger()


def report_unseen_rows(
    found: UnseenRows | None,
    *,
    source: str,
    source_partition: str,
    is_captured: Callable[[TableId], bool],
    at: str,
    policies: Sequence[UnseenPolicy] = (),
) -> Sequence[TableId]:
    """Report each captured table that ``found`` is about; returns those tables. ``at``: the transaction and its place, or
    the shard.

    Raises:
        PipelineHalted: the policy of one of them says so; nothing of the statement was done.
    """
    concerned = [table_id for table_id in found.table_ids if is_captured(table_id)] if found is not None else []
    for table_id in concerned:
        assert found is not None
        if action_for(policies, table_id) is UnseenAction.HALT:
            raise PipelineHalted(
                f"{table_id}: {found.clause} (at {at}) changed rows of which the log has no event, and on_unseen_change halts "
                "for this table: set it to warn, and run `headwater resync TENANT TABLE` afterwards; or to resync, where "
                "the source can"
            )
    for table_id in concerned:
        assert found is not None
        metrics.READER_UNSEEN_ROW_CHANGES.labels(source, source_partition).inc()
        log.warning(
            "rows_changed_unseen",
            table=str(table_id),
            clause=found.clause,
            at=at,
            mend="the log has none of these rows, and tenants' tables keep what is gone: `headwater resync TENANT TABLE` "
            "builds such a table again, `headwater check TENANT` shows the differences",
        )
        raise_fault(
            ROWS_CHANGED_UNSEEN, FaultScope(source=source, table=str(table_id)), happened=f"{found.clause} at {at}"
        )
    return concerned
