"""From an event's text to its parts: ``op``, ``order``, ``committed_at_us`` and the row as a struct."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType

from libs.types.table import TableSchema
from spark.transforms.value_types import row_type

DELETE = "d"


def parse_events(schema: TableSchema, *, is_wrapped: bool) -> Callable[[DataFrame], DataFrame]:
    """Parse events that were all written under ``schema``; ``row`` is the state after the change, of a delete before.

    ``row`` is NULL for a truncation only. JSON that does not fit the schema fails the query: a value that would silently
    become NULL is a lost value.
    """
    row = row_type(schema)
    source = StructType([StructField("ts_us", LongType())])
    envelope = StructType(
        [
            StructField("before", row),
            StructField("after", row),
            StructField("source", source),
            StructField("op", StringType()),
        ]
    )
    text_type = StructType([StructField("payload", envelope)]) if is_wrapped else envelope

    def parse(events: DataFrame) -> DataFrame:
        parsed = sf.from_json("value", text_type, {"mode": "FAILFAST"})
        event = parsed["payload"] if is_wrapped else parsed
        return events.select("order", event.alias("event")).select(
            sf.col("event.op").alias("op"),
            "order",
            sf.col("event.source.ts_us").alias("committed_at_us"),
            sf.when(sf.col("event.op") == DELETE, sf.col("event.before")).otherwise(sf.col("event.after")).alias("row"),
        )

    return parse
