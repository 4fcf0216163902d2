"""Of events, those that a cut lets pass: the transactions before it, and rows of a copy, which are of none."""

import functools

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from libs.sink_state.cut import Cut
from libs.sink_state.progress import ParkedTable
from spark.transforms.survey import SNAPSHOT_ORDINAL


def is_live() -> Column:
    """Whether the event is of a transaction: no snapshot row, and no request to the sink."""
    return sf.col("order").isNotNull() & ~sf.col("order").endswith(SNAPSHOT_ORDINAL)


def passing(cut: Cut, events: DataFrame) -> DataFrame:
    """``events`` without those that wait."""
    return events if cut.until is None else events.where(~is_live() | (sf.col("order") < cut.until))


def not_copied(waiting: ParkedTable, events: DataFrame) -> DataFrame:
    """``events`` of a parked table without the rows of a copy that it has."""
    copied = [
        (sf.col("kafka_partition") == partition) & (sf.col("offset") < waiting.copies_from[partition])
        for partition, begin in waiting.from_offsets.items()
        if begin < waiting.copies_from.get(partition, 0)
    ]
    return events.where(is_live() | ~functools.reduce(Column.__or__, copied)) if copied else events
