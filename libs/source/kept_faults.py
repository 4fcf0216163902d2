"""Faults about rows outlive the reader that raised them: they travel in its checkpoint.

    raise_fault … ▶ kept_faults, into each checkpoint ▶ (another process) ▶ raise_again ▶ lift_fault …

A checkpoint is committed with the rows that it covers. One that lacks a fault's statement lies before it, so the statement is
read again, and the fault raised again.
"""

from typing import Final

import structlog

from libs.telemetry.faults import (
    CHANGES_LOST,
    COPY_REFUSED,
    ROWS_CHANGED_UNSEEN,
    ROWS_SET_ASIDE,
    FaultKind,
    keep_faults,
    lasting_faults,
    lift_fault,
    raise_fault,
)
from libs.types.checkpoint import Checkpoint, KeptFault
from libs.types.fault import FaultScope

log = structlog.get_logger()

KEPT: Final[dict[str, FaultKind]] = {
    kind.id: kind for kind in (ROWS_CHANGED_UNSEEN, ROWS_SET_ASIDE, COPY_REFUSED, CHANGES_LOST)
}
_MOST: Final = 500
"""Each transaction of Kafka's has them once more."""
_MOST_CHARACTERS: Final = 500


def kept_faults(source: str) -> tuple[KeptFault, ...]:
    """The faults of ``source`` that its checkpoint is to keep: the oldest ones, where there are very many."""
    kept = [
        KeptFault(
            id=fault.id,
            table=fault.scope.table,
            happened=fault.happened[:_MOST_CHARACTERS],
            since_us=fault.since_us,
        )
        for fault in lasting_faults()
        if fault.id in KEPT and fault.scope.source == source
    ]
    return tuple(sorted(kept, key=lambda each: (each.since_us, each.id, each.table))[:_MOST])


def raise_again(source: str, checkpoint: Checkpoint | None) -> None:
    """The faults of a checkpoint, at the start of the reader that goes on from there. Those of other releases are left out.

    Without a checkpoint, or where it is to begin again, all rows are copied: faults of earlier lives have ended.
    """
    if checkpoint is None or checkpoint.starts_over:
        keep_faults({kind: {} for kind in KEPT.values()}, lambda scope: scope.source == source)
        return
    for each in checkpoint.faults:
        if (kind := KEPT.get(each.id)) is not None:
            scope = FaultScope(source=source, table=each.table)
            raise_fault(kind, scope, happened=each.happened, since_us=each.since_us)


def lift_after_copy(source: str, table: str, *, begun_us: int) -> None:
    """A copy of ``table`` for everybody, whole, which began at ``begun_us``: it brought the rows of faults before that."""
    scope = FaultScope(source=source, table=table)
    for kind in (ROWS_CHANGED_UNSEEN, ROWS_SET_ASIDE, COPY_REFUSED):
        lift_fault(kind, scope, raised_before_us=begun_us)


def lift_for_no_rows(source: str, table: str) -> None:
    """``table`` was emptied or dropped at the source, and tenants have that event: no row of it differs."""
    scope = FaultScope(source=source, table=table)
    for kind in (ROWS_CHANGED_UNSEEN, ROWS_SET_ASIDE, COPY_REFUSED):
        lift_fault(kind, scope)


def report_copy(source: str, table: str, contradiction: str) -> None:
    """Raise a fault for a copy that is not whole, and so differs from its source; ``contradiction`` empty: it is whole."""
    if contradiction:
        log.error("copy_contradicts_its_view", table=table, reason=contradiction)
        raise_fault(COPY_REFUSED, FaultScope(source=source, table=table), happened=contradiction)


def note_replaced_topic(checkpoint: Checkpoint | None, topic: str, found_id: str) -> None:
    """Raise a fault where ``topic``, which has ``found_id`` now, is another one than the checkpoint's rows went to.

    Kafka forgets a group's offsets with a deleted topic, so the router begins at the new one without a word.
    """
    known = "" if checkpoint is None or checkpoint.starts_over else checkpoint.changes_topic_id
    if checkpoint is not None and known and found_id and known != found_id:
        raise_fault(
            CHANGES_LOST,
            FaultScope(source=checkpoint.partition.source),
            happened=f"{topic} was deleted and made again: its id is {found_id}, and rows up to the checkpoint went to {known}",
        )
