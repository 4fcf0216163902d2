"""A JSON document's text as Spark's VARIANT, if that holds all that it says.

Spark's own ``parse_json`` takes more: a number that its decimals do not hold becomes the nearest double, one beyond doubles
infinity, and text after the document is left out. Here such a text is refused, as one is that is no JSON, has a name
twice in an object, or makes a value of more than 128 MiB, Spark's limit.

Equal values may be spelled differently afterwards: 1.50 as 1.5, 1e2 as 100.0, -0.0 as 0, an object's names in their order.
"""

from typing import Final

from pyspark.sql import Column

from libs.warehouse.spark_types import VARIANT_TYPE
from spark.jvm.java import column_function

_CLASS: Final = "ParseVariant"


def parsed_variant(text: Column, *, is_strict: bool) -> Column:
    """NULL stays NULL. A text that is refused fails the query, as ``from_json`` does; not ``is_strict``: it becomes NULL."""
    parse = column_function(_CLASS, "parse", VARIANT_TYPE)
    return parse(text, is_strict)
