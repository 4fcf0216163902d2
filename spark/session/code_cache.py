"""How full the JVM's code cache is. Full, the JVM compiles nothing any more, and Spark's generated code ends in errors."""

from typing import Final

from pyspark.sql import SparkSession

from libs.telemetry.faults import CODE_CACHE_FILLS, lift_fault, raise_fault
from libs.telemetry.metrics import SINK_CODE_CACHE, SINK_CODE_CACHE_USED
from libs.types.fault import FaultScope
from spark.jvm.java import java_class

FULL_SHARE: Final = 0.9
"""From this share on a fault is raised: the JVM does not free discarded parts of the cache at once."""
_CODE: Final = "Code"
"""One pool, or three of them in Java's default: ``CodeCache``, ``CodeHeap 'non-nmethods'`` …"""


class CodeCacheWatch:
    """Of one session's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        pools = java_class(spark, "java.lang.management.ManagementFactory").getMemoryPoolMXBeans()
        self._pools = {name: pool for pool in pools if (name := str(pool.getName())).startswith(_CODE)}

    def look(self) -> None:
        """Report how full it is; raise a fault while a pool is nearly full."""
        found = []
        for name, pool in self._pools.items():
            usage = pool.getUsage()
            found.append((usage.getUsed() / usage.getMax(), usage.getUsed(), usage.getMax(), name))
        if not found:
            return
        share, used, room, name = max(found)
        SINK_CODE_CACHE_USED.set(used)
        SINK_CODE_CACHE.set(room)
        if share >= FULL_SHARE:
            happened = f"{name}: {used >> 20} of {room >> 20} MB are used"
            raise_fault(CODE_CACHE_FILLS, FaultScope(), happened=happened)
        else:
            lift_fault(CODE_CACHE_FILLS, FaultScope())
