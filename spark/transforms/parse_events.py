"""From the JSON text of a row's image to its columns: a struct."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from libs.types.table import TableSchema
from spark.transforms.parsed_row import parsed_row
from spark.transforms.value_types import row_type


def parse_events(schema: TableSchema) -> Callable[[DataFrame], DataFrame]:
    """``image`` gives way to ``row``, of events that were all written under ``schema``; the other columns stay.

    ``row`` is NULL for a truncation only. JSON that does not fit the schema fails the query: a value that would silently
    become NULL is a lost value.
    """

    def parse(events: DataFrame) -> DataFrame:
        row = parsed_row(events.sparkSession, sf.col("image"), row_type(schema.columns)).alias("row")
        return events.select(*(name for name in events.columns if name != "image"), row)

    return parse
