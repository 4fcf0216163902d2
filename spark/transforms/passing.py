"""Of events, those that a cut lets pass: the transactions before it, and snapshot rows, which are of none."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from libs.types.consistency import Cut
from spark.transforms.survey import SNAPSHOT_ORDINAL


def is_live() -> Column:
    """Whether the event is of a transaction: no snapshot row, and no request to the sink."""
    return sf.col("order").isNotNull() & ~sf.col("order").endswith(SNAPSHOT_ORDINAL)


def passing(cut: Cut, events: DataFrame) -> DataFrame:
    """``events`` without those that wait."""
    return events if cut.until is None else events.where(~is_live() | (sf.col("order") < cut.until))
