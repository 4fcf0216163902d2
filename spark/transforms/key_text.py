"""A row's key as one text, the same for all versions of its events."""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from libs.types.table import Column, TableSchema
from libs.warehouse.spark_types import spark_type
from spark.transforms.value_types import decoded, row_type

KEY_TEXT_COLUMN: Final = "key_text"
CORRUPT: Final = "_headwater_corrupt"
"""The field of a parsed JSON that holds its text where it does not fit."""
TOLERANT: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
"""Options of ``from_json``: a value that does not fit is NULL, with ``CORRUPT`` beside."""


def key_text(schemas: Iterable[TableSchema]) -> SparkColumn:
    """Of events of one table under several versions: the key's values as a JSON array of texts, in the key's order.

    Keys are compared by value, as in the table: two spellings of a number are one, and so are names before and after a
    rename. A key that cannot be read is its own text; an event without a key is a key of its own, by its place.
    """
    text = sf.lit(None).cast("string")
    for schema in schemas:
        text = sf.when(sf.col("schema_version") == schema.version, _values(schema)).otherwise(text)
    place = sf.concat(sf.lit("@"), sf.col("kafka_partition"), sf.lit(":"), sf.col("offset"))
    return sf.when(sf.col("key").isNull(), place).otherwise(sf.coalesce(text, sf.col("key")))


def tolerant_type(fields: StructType) -> StructType:
    """``fields`` with ``CORRUPT``."""
    return StructType([*fields.fields, StructField(CORRUPT, StringType())])


def _values(schema: TableSchema) -> SparkColumn:
    """NULL where the key cannot be read."""
    parts = [next(column for column in schema.columns if column.name == name) for name in schema.key]
    if not parts:
        return sf.lit(None).cast("string")
    parsed = sf.from_json("key", tolerant_type(row_type(parts)), TOLERANT)
    values = [decoded(part, parsed.getField(part.name), is_strict=False) for part in parts]
    texts = [_as_text(part, value) for part, value in zip(parts, values, strict=True)]
    array = sf.to_json(sf.array(*texts))
    return sf.when(parsed.getField(CORRUPT).isNull(), array)


def _as_text(column: Column, value: SparkColumn) -> SparkColumn:
    return sf.base64(value) if spark_type(column) == "binary" else value.cast("string")
