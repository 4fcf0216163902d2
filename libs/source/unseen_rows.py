"""Statements that change rows without a row event: every reader reports them, because nobody after it could find out.

A dropped partition takes rows along, an ALTER rounds stored values, a table that nobody captured is renamed to a captured name:
the log has the statement alone. No event can be made of it. ``on_unseen_change`` is the reader's action besides the report.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import structlog

from libs.errors import PipelineHalted
from libs.mysql.ddl import TableChange, UnseenRows, computed_columns, cut_columns
from libs.source.unseen_policy import SHADOW_TABLES, UnseenAction, UnseenPolicy, action_for
from libs.telemetry import metrics
from libs.telemetry.faults import ROWS_CHANGED_UNSEEN, raise_fault
from libs.types.fault import FaultScope
from libs.types.table import TableId, TableSchema

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
            "builds such a table anew, `headwater check TENANT` shows what differs",
        )
        raise_fault(
            ROWS_CHANGED_UNSEEN, FaultScope(source=source, table=str(table_id)), happened=f"{found.clause} at {at}"
        )
    return concerned


def renamed_unseen(
    changes: Sequence[TableChange],
    before: Mapping[TableId, TableSchema],
    is_captured: Callable[[TableId], bool],
    *,
    is_strict: bool,
    shadow_tables: Sequence[str] = SHADOW_TABLES,
) -> Iterator[UnseenRows]:
    """Renames to a captured name: the rows of before came under another one, or nobody delivered them. A shadow table has the
    rows of the one whose place it takes, as its columns can hold them."""
    renames = {change.table_id: change for change in changes if change.previous_id is not None}
    for table_id, previous in _origins(changes).items():
        old, new = before.get(table_id), renames[table_id].schema
        if not is_captured(table_id):
            continue
        if any(re.fullmatch(pattern, previous.table) for pattern in shadow_tables):
            cut = cut_columns(old, new, is_strict=is_strict) if old is not None and new is not None else []
            if cut:
                yield UnseenRows(f"RENAME of {previous} to it: {', '.join(cut)}", (table_id,))
        elif is_captured(previous) and previous in before:
            yield UnseenRows(f"RENAME of {previous} to it, whose rows came under that name", (table_id,))
        else:
            yield UnseenRows(f"RENAME of {previous}, whose rows were not captured, to it", (table_id,))


def _origins(changes: Iterable[TableChange]) -> Mapping[TableId, TableId]:
    """By the name that a statement gave a table in the end, the one that it had; tables that exchange their names by a third
    one among them."""
    origins: dict[TableId, TableId] = {}
    for change in changes:
        if change.previous_id is not None:
            origins[change.table_id] = origins.pop(change.previous_id, change.previous_id)
    return {table_id: previous for table_id, previous in origins.items() if table_id != previous}


def redefined_unseen(
    changes: Iterable[TableChange], before: Mapping[TableId, TableSchema], *, is_strict: bool
) -> Iterator[UnseenRows]:
    """Tables whose columns cannot hold all that they held, or whose new columns the server filled, by definitions alone."""
    for change in changes:
        if change.schema is not None and change.table_id in before:
            old = before[change.table_id]
            clauses = [*cut_columns(old, change.schema, is_strict=is_strict), *computed_columns(old, change.schema)]
            if clauses:
                yield UnseenRows(", ".join(clauses), (change.table_id,))
