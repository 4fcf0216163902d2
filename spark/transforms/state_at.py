"""A table as it was at its source at some moment, from the log of its changes that an ``append`` table is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from libs.types.warehouse import (
    COMMITTED_AT_COLUMN,
    DELETED_AT_COLUMN,
    DELETED_COLUMN,
    IMAGE_COLUMN,
    OP_COLUMN,
    ORDER_COLUMN,
    UNAVAILABLE_COLUMN,
)
from spark.transforms.cut_envelope import DELETE, TRUNCATE
from spark.transforms.latest_per_key import latest_per_key
from spark.transforms.log_images import AFTER
from spark.transforms.mark_deleted import mark_deleted
from spark.transforms.partial_rows import latest_known_per_key
from spark.transforms.sql_text import quoted
from spark.transforms.warehouse_columns import Truncation

_UPDATE: Final = "u"
_SNAPSHOT: Final = "r"
_FIRST: Final = "_headwater_first"


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The part of a log up to a moment."""

    changes: int
    """Rows of the log up to it, images before updates not counted."""
    begins_at_us: int | None
    """When the source committed the log's first change, whenever that was; None: the log is empty."""
    ends_at_us: int | None
    """The same of its last."""
    truncation: Truncation | None
    """The last up to the moment."""


def bounds_of(log: DataFrame, until: Column) -> LogBounds:
    """One pass over the log. ``until``: which of its rows are up to the moment."""
    is_change = _is_change() & until
    truncations = sf.when((sf.col(OP_COLUMN) == TRUNCATE) & until, sf.col(ORDER_COLUMN))
    row = log.agg(
        sf.count(sf.when(is_change, 1)).alias("changes"),
        sf.unix_micros(sf.min(COMMITTED_AT_COLUMN)).alias("begins"),
        sf.unix_micros(sf.max(COMMITTED_AT_COLUMN)).alias("ends"),
        sf.max(truncations).alias("truncated"),
        sf.unix_micros(sf.max_by(COMMITTED_AT_COLUMN, truncations)).alias("truncated_at"),
    ).first()
    assert row is not None
    truncation = None if row.truncated is None else Truncation(row.truncated, row.truncated_at)
    return LogBounds(row.changes, row.begins, row.ends, truncation)


def state_at(
    until: Column, truncation: Truncation | None, *, key: Sequence[str], unavailable: Sequence[str] = ()
) -> Callable[[DataFrame], DataFrame]:
    """The rows of the source at the moment, with the order and the commit time of each one's last change.

    ``truncation``: the last one up to the moment. ``unavailable``: columns of which a NULL in an update says that the log does
    not hold the value; they keep the one from before.
    """

    def rebuild(log: DataFrame) -> DataFrame:
        changes = log.where(until & _is_change()).drop(IMAGE_COLUMN)
        if unavailable:
            latest = changes.withColumn(UNAVAILABLE_COLUMN, _unavailable(unavailable)).transform(
                latest_known_per_key(key=key)
            )
            latest = latest.drop(UNAVAILABLE_COLUMN)
        else:
            latest = changes.transform(latest_per_key(key=key, order=ORDER_COLUMN))
        marked = latest.transform(mark_deleted(truncation))
        return marked.where(~sf.col(DELETED_COLUMN)).drop(OP_COLUMN, DELETED_COLUMN, DELETED_AT_COLUMN)

    return rebuild


def unknown_rows(until: Column, *, key: Sequence[str]) -> Callable[[DataFrame], DataFrame]:
    """Counts, in one row, keys without an entry up to the moment, whose later entries say that they may have been there.

    ``existed``: their first change is an update or a delete, so the source had them, and the log began too late.
    ``may_have_existed``: a copy of the source brought them; they may have come before the moment or after.
    """

    def count(log: DataFrame) -> DataFrame:
        is_known = sf.coalesce(sf.bool_or(until), sf.lit(False)).alias("is_known")
        keys = log.where(sf.col(OP_COLUMN) != TRUNCATE).groupBy(*(quoted(name) for name in key))
        first = keys.agg(is_known, sf.min_by(OP_COLUMN, ORDER_COLUMN).alias(_FIRST)).where("NOT is_known")
        return first.agg(
            sf.count(sf.when(sf.col(_FIRST).isin(_UPDATE, DELETE), 1)).alias("existed"),
            sf.count(sf.when(sf.col(_FIRST) == _SNAPSHOT, 1)).alias("may_have_existed"),
        )

    return count


def compared(then: DataFrame, now: DataFrame, *, key: Sequence[str]) -> DataFrame:
    """How many rows are as they were, differ, went and came, in one row. A row is the result of the change of its order."""
    orders = [
        rows.select(*(sf.col(quoted(name)) for name in key), sf.col(ORDER_COLUMN).alias(alias))
        for rows, alias in ((then, "then_order"), (now, "now_order"))
    ]
    # A chosen key may be NULL, which equals nothing but by <=>.
    left, right = orders[0].alias("l"), orders[1].alias("r")
    same_key = [sf.col(f"l.{quoted(name)}").eqNullSafe(sf.col(f"r.{quoted(name)}")) for name in key]
    joined = left.join(right, on=same_key, how="full_outer")
    is_same = sf.col("then_order") == sf.col("now_order")
    return joined.agg(
        sf.count(sf.when(is_same, 1)).alias("same"),
        sf.count(sf.when(~is_same, 1)).alias("changed_since"),
        sf.count(sf.when(sf.col("now_order").isNull(), 1)).alias("gone_since"),
        sf.count(sf.when(sf.col("then_order").isNull(), 1)).alias("come_since"),
    )


def _is_change() -> Column:
    """An entry with the result for its row: not an image before an update, and no truncation."""
    return (sf.col(IMAGE_COLUMN) == AFTER) | (sf.col(OP_COLUMN) == DELETE)


def _unavailable(columns: Sequence[str]) -> Column:
    names = [sf.when((sf.col(OP_COLUMN) == _UPDATE) & sf.col(quoted(name)).isNull(), sf.lit(name)) for name in columns]
    return sf.filter(sf.array(*names), sf.isnotnull)
