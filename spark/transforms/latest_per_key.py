"""The last of all changes to a row within a micro-batch: the row afterwards."""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark.transforms.sql_text import quoted


def latest_per_key(*, key: Sequence[str], order: str) -> Callable[[DataFrame], DataFrame]:
    """Keep the change with the greatest ``order`` of each ``key``; where they arrived does not count.

    A repeat (equal order) is kept once. All columns stay as they are, and the rows stay spread by ``key``: a join by the same
    columns shuffles nothing again.
    """

    def keep_latest(changes: DataFrame) -> DataFrame:
        others = [name for name in changes.columns if name not in key]
        latest = sf.max_by(sf.struct(*(sf.col(quoted(name)) for name in others)), quoted(order)).alias(
            "_headwater_latest"
        )
        # Not the key out of the struct: Spark knows how rows are spread only by the columns that it grouped them by.
        return (
            changes.groupBy(*(quoted(name) for name in key))
            .agg(latest)
            .select(
                *(
                    sf.col(quoted(name)) if name in key else sf.col("_headwater_latest").getField(name).alias(name)
                    for name in changes.columns
                )
            )
        )

    return keep_latest
