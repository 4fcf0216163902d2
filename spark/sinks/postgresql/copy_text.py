"""The text form of rows that PostgreSQL's COPY reads."""

from collections.abc import Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as sf

from spark.transforms.sql_text import quoted as spark_quoted


def as_text(value: SparkColumn, spark_type: str) -> SparkColumn:
    """A value as PostgreSQL's input functions read it. The session's zone is UTC here and there."""
    match spark_type:
        case "binary":
            return sf.concat(sf.lit("\\x"), sf.hex(value))
        case _:
            return value.cast("string")


def copy_line(columns: Mapping[str, str]) -> SparkColumn:
    """A row as a line of COPY's text format (PostgreSQL manual, "COPY", File Formats); ``columns``: Spark's types by name."""
    fields = [_copy_field(sf.col(spark_quoted(name)), kind) for name, kind in columns.items()]
    return sf.concat(sf.concat_ws("\t", *fields), sf.lit("\n"))


def _copy_field(value: SparkColumn, spark_type: str) -> SparkColumn:
    text = as_text(value, spark_type)
    if spark_type == "binary":
        text = sf.concat(sf.lit("\\"), text)
    elif spark_type == "string":
        for character, escaped in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
            text = sf.replace(text, sf.lit(character), sf.lit(escaped))
    return sf.coalesce(text, sf.lit("\\N"))
