"""Records of a changes topic that nobody can read: the lane halts at them, or sets them aside, as its settings say."""

from collections.abc import Sequence
from typing import Any

from aiokafka import TopicPartition

from libs.errors import PipelineHalted
from libs.telemetry import metrics
from libs.telemetry.faults import CHANGES_RECORD_SET_ASIDE, raise_fault
from libs.types.fault import FaultScope
from services.router.batches.batch_reading import Changes
from services.router.transactions.outputs import WaitingBatch


def require_readable(place: TopicPartition, waiting: Sequence[WaitingBatch], batches: Sequence[Changes]) -> None:
    """Raises PipelineHalted at the first that cannot be read."""
    for each, batch in zip(waiting, batches, strict=True):
        if batch.unreadable is not None:
            raise PipelineHalted(
                f"{place.topic}/{place.partition}: the record at offset {each.offset} is no ChangeBatch "
                f"({batch.unreadable}); if a newer reader wrote it, bring this router to its release; else set "
                "lane.unreadable_records: set_aside to pass it over, and resync the source's tables"
            )


def report_unreadable(
    source: str, place: TopicPartition, waiting: Sequence[WaitingBatch], batches: Sequence[Changes]
) -> str | None:
    """Raise the fault of those that a transaction passes over, before its commit: no later router reads them again.

    Returns where the last one is, and why; None: all can be read.
    """
    last = None
    for each, batch in zip(waiting, batches, strict=True):
        if batch.unreadable is not None:
            last = (
                f"{place.topic}/{place.partition}: the record at offset {each.offset} is no ChangeBatch "
                f"({batch.unreadable}) and was set aside: find out who wrote it, and resync the source's tables if a reader did"
            )
    if last is not None:
        raise_fault(CHANGES_RECORD_SET_ASIDE, FaultScope(source=source), happened=last)
    return last


def count_unreadable(source: str, waiting: Sequence[WaitingBatch], batches: Sequence[Changes], logger: Any) -> None:
    """Count and log those that a committed transaction passed over."""
    for each, batch in zip(waiting, batches, strict=True):
        if batch.unreadable is not None:
            metrics.ROUTER_UNREADABLE_RECORDS.labels(source).inc()
            logger.error(
                "changes_record_set_aside", offset=each.offset, size_bytes=len(each.payload), reason=batch.unreadable
            )
