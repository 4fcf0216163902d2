"""Of all changes to a row within a micro-batch, the last: what the row is afterwards."""

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf


def latest_per_key(*, key: Sequence[Column], order: str) -> Callable[[DataFrame], DataFrame]:
    """Keep the change with the greatest ``order`` of each ``key``; where they arrived does not count.

    A repeat (equal order) is kept once. All columns stay as they are.
    """

    def keep_latest(changes: DataFrame) -> DataFrame:
        change = sf.struct(*(sf.col(_quoted(name)) for name in changes.columns))
        return changes.groupBy(*key).agg(sf.max_by(change, order).alias("latest")).select("latest.*")

    return keep_latest


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
