"""Soft deletes: a row that the source deleted or truncated stays, marked."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from libs.types.warehouse import COMMITTED_AT_COLUMN, DELETED_AT_COLUMN, DELETED_COLUMN, OP_COLUMN, ORDER_COLUMN
from spark.transforms.cut_envelope import DELETE
from spark.transforms.warehouse_columns import Truncation


def mark_deleted(truncation: Truncation | None) -> Callable[[DataFrame], DataFrame]:
    """Adds Headwater's two columns to the last change of each row; ``truncation`` deletes the rows from before it."""

    def mark(latest: DataFrame) -> DataFrame:
        changes = latest if truncation is None else latest.withColumns(_truncated(truncation))
        is_deleted = sf.col(OP_COLUMN) == DELETE
        return changes.withColumns(
            {DELETED_COLUMN: is_deleted, DELETED_AT_COLUMN: sf.when(is_deleted, sf.col(COMMITTED_AT_COLUMN))}
        )

    return mark


def _truncated(truncation: Truncation) -> dict[str, Column]:
    is_before = sf.col(ORDER_COLUMN) < truncation.order
    given = {
        OP_COLUMN: sf.lit(DELETE),
        ORDER_COLUMN: sf.lit(truncation.order),
        COMMITTED_AT_COLUMN: sf.timestamp_micros(sf.lit(truncation.committed_at_us)),
    }
    # A delete before it was the row's end already.
    is_ended = is_before & (sf.col(OP_COLUMN) != DELETE)
    return {name: sf.when(is_ended, value).otherwise(sf.col(name)) for name, value in given.items()}
