"""A row image, or a key, from its JSON text: Spark's ``from_json``, but read from bytes.

``from_json`` makes a decoder of bytes to characters for each text (ADR 16). Values and errors are those of
``from_json``, with two differences. A value that is no text, but goes into a column of text, stands there as in the event,
where
``from_json`` writes it again. Bytes that are no UTF-8 fail the text, where ``from_json`` has U+FFFD for them.
"""

from typing import Final

from pyspark.sql import Column, SparkSession
from pyspark.sql.types import StructType

from spark.jvm.java import column_method

_CLASS: Final = "ParseRow"


def parsed_row(spark: SparkSession, text: Column, row_type: StructType) -> Column:
    """NULL stays NULL. A text that does not fit ``row_type`` fails the query: a value that would silently become NULL is a lost
    value."""
    jvm_type = spark._jsparkSession.parseDataType(row_type.json())
    return column_method(_CLASS, (jvm_type,), "parse", jvm_type)(text)
