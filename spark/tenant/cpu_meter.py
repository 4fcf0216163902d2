"""Whose CPU it was: seconds of Spark's tasks, and of the threads that drive a batch, by tenant (``CpuMeter.java``).

All tenants of a job share one JVM, and each has a query of its own, whose stages bear the tenant's name as their pool. Threads
are measured by their own clocks: the query's, and those that go through a batch's tables, in Python and in the JVM, where each
thread of Python has one of its own that works for it.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Final

from pyspark.sql import SparkSession

from libs.telemetry.metrics import SINK_TENANT_CPU
from spark.jvm.java import compiled

_CLASS: Final = "CpuMeter"
_NS: Final = 1e-9


class CpuMeter:
    """Of one session. For any thread."""

    def __init__(self, spark: SparkSession) -> None:
        """Tasks that end from now on are counted, once Spark's listeners have heard of them."""
        self._java = compiled(spark, _CLASS)()
        spark.sparkContext._jsc.sc().addSparkListener(self._java)

    @contextlib.contextmanager
    def driving(self, tenant: str) -> Iterator[None]:
        """Charge this thread's CPU in the block to the tenant. Of the JVM's thread that works for it, all since the
        last call: it is the tenant's alone. Failures are ignored: the JVM may be gone."""
        before_ns = time.thread_time_ns()
        yield
        took_ns = time.thread_time_ns() - before_ns + self._java.takeOfThisThread()
        SINK_TENANT_CPU.labels(tenant).inc(took_ns * _NS)

    def count_tasks(self) -> None:
        """Count the tasks' CPU since the last call. A call to the JVM: once a second is often enough."""
        for line in self._java.takeOfTasks().splitlines():
            tenant, _, took_ns = line.rpartition("\t")
            SINK_TENANT_CPU.labels(tenant).inc(int(took_ns) * _NS)
