"""Which rows of a large table a merge brings to its changes: those that may have one of their keys, by a Bloom filter.

A MERGE that inserts is an outer join from the changes' side. Spark then sends every row of the table to the task of its key and
sorts it there, with its file's name and its place: twenty million for two hundred thousand changes. The filter leaves out
nearly all of them where they are read. It adds no condition to that of equal keys, so the result is the same with it and
without it.

Spark has both halves for its own use: it builds such filters for joins of other shapes (``InjectRuntimeFilter``).
"""

from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark.jvm.java import java_class
from spark.sinks.port import SinkTable
from spark.transforms.sql_text import quoted

MOST_CHANGED: Final = 4
"""A table with fewer rows than so many times the batch's is merged as it is: too many of them would stay."""
_MOST_CHANGES: Final = 2_000_000
"""A filter of them has 2.4 MB, which each task is sent."""
_FALSE_POSITIVES: Final = 0.01
_HASH: Final = "hash"
_FUNCTION: Final = "headwater_might_contain"
_EXPRESSION: Final = "org.apache.spark.sql.catalyst.expressions.BloomFilterMightContain"
_HASHED_TYPES: Final = ("tinyint", "smallint", "int", "bigint", "string", "binary", "date", "timestamp", "decimal")
"""Where equal values have one hash. Fractions are left out: 0.0 equals -0.0."""


def key_filter(spark: SparkSession, stored: DataFrame, table: SinkTable, changes: DataFrame) -> str | None:
    """A condition of SQL on the table's rows, ``t``, at the cost of a job over the changes' keys; None where their hashes say
    nothing, or there are too many. ``stored``: the table."""
    if not 0 < table.changes <= _MOST_CHANGES or not _are_hashed_alike(stored, changes, table.key):
        return None
    hashes = changes.select(sf.xxhash64(*(sf.col(quoted(name)) for name in table.key)).alias(_HASH))
    # Of nothing at all, where every key of the batch is parked, Spark makes no filter.
    hashes = hashes.union(spark.range(1).toDF(_HASH))
    built = hashes._jdf.stat().bloomFilter(_HASH, table.changes, _FALSE_POSITIVES)
    written = java_class(spark, "java.io.ByteArrayOutputStream")()
    built.writeTo(written)
    _make_function(spark)
    keys = ", ".join(f"t.{quoted(name)}" for name in table.key)
    return f"{_FUNCTION}(X'{bytes(written.toByteArray()).hex()}', xxhash64({keys}))"


def _are_hashed_alike(stored: DataFrame, changes: DataFrame, key: tuple[str, ...]) -> bool:
    """A number has another hash in each type."""
    types = [(stored.schema[name].dataType, changes.schema[name].dataType) for name in key]
    return all(of == to and of.simpleString().partition("(")[0] in _HASHED_TYPES for of, to in types)


def _make_function(spark: SparkSession) -> None:
    """In the session; Spark's SQL has no name for it."""
    registry: Any = spark._jsparkSession.sessionState().functionRegistry()
    identifier = java_class(spark, "org.apache.spark.sql.catalyst.FunctionIdentifier")(_FUNCTION)
    if registry.functionExists(identifier):
        return
    none = getattr(java_class(spark, "scala.None$"), "MODULE$")
    tag = java_class(spark, "scala.reflect.ClassTag").apply(
        java_class(spark, "org.apache.spark.util.Utils").classForName(_EXPRESSION, True, False)
    )
    bases = getattr(java_class(spark, "org.apache.spark.sql.catalyst.analysis.FunctionRegistryBase$"), "MODULE$")
    built = bases.build(_FUNCTION, none, tag)
    registry.registerFunction(identifier, built._1(), built._2())
