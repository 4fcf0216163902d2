"""Rows of which the log holds a part: a column whose value is not there keeps the value that it had.

A source that logs less than whole rows (``binlog_row_image`` NOBLOB or MINIMAL, partial JSON) has a placeholder in place of
such a value, the same text for every type of column, in base64 where the column is binary (Debezium documentation,
``unavailable.value.placeholder``). Only an update lacks values, and its row before lacks them as well: elsewhere that text is
a value.
"""

import base64
import re
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from libs.types.value import UNAVAILABLE_VALUE
from libs.types.warehouse import COMMITTED_AT_COLUMN, OP_COLUMN, ORDER_COLUMN, UNAVAILABLE_COLUMN
from spark.transforms.sql_text import quoted

PLACEHOLDERS: Final = (UNAVAILABLE_VALUE, base64.b64encode(UNAVAILABLE_VALUE.encode()).decode())
"""As it is, and in base64."""
_ANY: Final = "|".join(re.escape(placeholder) for placeholder in PLACEHOLDERS)
_DELETE: Final = "d"
# Within a text a quote is escaped, so that a member's name is the only text that a colon follows.
_VALUE: Final = rf'":"(?:{_ANY})"'


def holds_placeholder(image: Column) -> Column:
    """Whether a value of the image may be a placeholder: by a look at the text, which one that holds the text passes too."""
    return sf.contains(image, sf.lit(PLACEHOLDERS[0])) | sf.contains(image, sf.lit(PLACEHOLDERS[1]))


def split_unavailable(events: DataFrame) -> DataFrame:
    """Placeholders in ``image`` become null; ``unavailable`` has the names of their columns.

    In a row that ``is_partial`` says is whole, such a text is a value. A deleted row may lack values, and is not asked.
    """
    # The names by a parse: an expression that finds them looks from each quote of a long text to the text's end.
    known_as = sf.from_json("image", "map<string,string>")
    names = sf.map_keys(sf.map_filter(known_as, lambda _, value: value.isin(*PLACEHOLDERS)))
    may_lack = sf.col("is_partial") | (sf.col("op") == _DELETE)
    return events.withColumns(
        {
            "unavailable": sf.when(may_lack, names).otherwise(sf.array().cast("array<string>")),
            "image": sf.when(may_lack, sf.regexp_replace("image", _VALUE, '":null')).otherwise(sf.col("image")),
        }
    )


def latest_known_per_key(*, key: Sequence[str]) -> Callable[[DataFrame], DataFrame]:
    """As ``latest_per_key``, of rows with ``UNAVAILABLE_COLUMN``: each column has its last value that is known.

    ``UNAVAILABLE_COLUMN`` then names the columns without a value in the batch. A row after a delete is whole,
    so that no value of the row before it is taken.
    """

    def keep_latest(changes: DataFrame) -> DataFrame:
        own = (OP_COLUMN, ORDER_COLUMN, COMMITTED_AT_COLUMN)
        names = [name for name in changes.columns if name not in (*key, *own, UNAVAILABLE_COLUMN)]
        last = sf.max_by(sf.struct(*own), ORDER_COLUMN).alias("_headwater_last")
        values = [_last_known(name).alias(name) for name in names]
        grouped = changes.groupBy(*(quoted(name) for name in key)).agg(last, *values)
        never_known = sf.filter(
            sf.array(*(sf.when(sf.col(quoted(name)).isNull(), sf.lit(name)) for name in names)), sf.isnotnull
        )
        return grouped.select(
            *(sf.col(quoted(name)) for name in key),
            *(sf.col(quoted(name)).getField("value").alias(name) for name in names),
            *(sf.col("_headwater_last").getField(name).alias(name) for name in own),
            (never_known if names else sf.array().cast("array<string>")).alias(UNAVAILABLE_COLUMN),
        ).select(*(quoted(name) for name in changes.columns))

    return keep_latest


def _last_known(name: str) -> Column:
    is_known = ~sf.array_contains(UNAVAILABLE_COLUMN, name)
    return sf.max_by(sf.struct(sf.col(quoted(name)).alias("value")), sf.when(is_known, sf.col(ORDER_COLUMN)))
