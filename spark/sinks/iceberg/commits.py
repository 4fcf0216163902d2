"""Commits that say of themselves which batch they are, and how far the table gets with it.

The properties are those of the thread that commits (Iceberg documentation, Spark writes, "CommitMetadata"): tables of one batch
are written by several threads of one session, each with its own.
"""

from collections.abc import Callable
from typing import Any, Final

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from spark.jvm.java import java_class, java_map
from spark.sinks.port import BatchIdentity, Reached
from spark.sinks.reached import commit_properties

_BATCH: Final = "headwater.iceberg.batch"


def begin_batch(spark: SparkSession, batch: BatchIdentity) -> None:
    """The batch of all tables that are written by ``spark`` from now on."""
    spark.conf.set(_BATCH, str(batch))


def batch_of(spark: SparkSession) -> str:
    """The one that ``begin_batch`` has set in ``spark``."""
    return str(spark.conf.get(_BATCH))


def commit(spark: SparkSession, reached: Reached, write: Callable[[], None]) -> None:
    """Run ``write``, which commits once, with the batch's identity and ``reached`` in that commit. Its exceptions pass."""
    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    properties = properties_of(spark, reached)
    call = _Call(write)
    exception = java_class(spark, "java.lang.Class").forName("java.lang.Exception")
    metadata = java_class(spark, "org.apache.iceberg.spark.CommitMetadata")
    metadata.withCommitProperties(properties, call, exception)
    if call.error is not None:
        raise call.error


def properties_of(spark: SparkSession, reached: Reached) -> Any:
    """The properties of a commit of the batch, in Java."""
    return java_map(spark, commit_properties(batch_of(spark), reached))


class _Call:
    """A Python function as Java's Callable. Its exception is kept: on the way through Java its type would be lost."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self.error: BaseException | None = None

    def call(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.error = error

    class Java:
        implements = ("java.util.concurrent.Callable",)
