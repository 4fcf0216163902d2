"""A look at a session that runs: whether it stands, its code cache, its executors."""

import time
from typing import Final

from pyspark.sql import SparkSession

from libs.errors import TransientError
from libs.telemetry.metrics import (
    SINK_EXECUTOR_CORES,
    SINK_EXECUTOR_FAILED_TASKS,
    SINK_EXECUTOR_STORAGE,
    SINK_EXECUTOR_STORAGE_USED,
    SINK_EXECUTOR_TASKS,
    SINK_EXECUTORS,
)
from spark.session.code_cache import CodeCacheWatch
from spark.session.executors import ExecutorCounts, executor_counts

# They report that often; asking the JVM takes milliseconds for each.
_LOOK_AT_CODE_CACHE_EVERY_S: Final = 10.0
_COUNT_EXECUTORS_EVERY_S: Final = 10.0


class SessionWatch:
    """Of one session. Its methods raise Py4JError or ConnectionError where the JVM is gone."""

    def __init__(self, spark: SparkSession, *, has_executors: bool) -> None:
        """``has_executors``: by the settings; else the driver works itself."""
        self._spark = spark
        self._code_cache = CodeCacheWatch(spark)
        self._counts_executors = has_executors
        self.has_workers = not has_executors
        """An executor at least is there, or none is needed."""
        self._looked_at_s = 0.0
        self._counted_at_s = 0.0

    def check_stands(self) -> None:
        """Raises TransientError where the session has ended by itself."""
        if self._spark.sparkContext._jsc.sc().isStopped():
            raise TransientError("the Spark session ended by itself; its log has the reason")

    def look(self) -> None:
        """Report what is due; cheap where nothing is."""
        now_s = time.monotonic()
        if now_s - self._looked_at_s >= _LOOK_AT_CODE_CACHE_EVERY_S:
            self._looked_at_s = now_s
            self._code_cache.look()
        is_due = not self.has_workers or now_s - self._counted_at_s >= _COUNT_EXECUTORS_EVERY_S
        if self._counts_executors and is_due:
            self._counted_at_s = now_s
            self._report(executor_counts(self._spark))

    def _report(self, found: ExecutorCounts) -> None:
        self.has_workers = found.executors > 0
        SINK_EXECUTORS.set(found.executors)
        SINK_EXECUTOR_CORES.set(found.cores)
        SINK_EXECUTOR_TASKS.set(found.running_tasks)
        SINK_EXECUTOR_FAILED_TASKS.set(found.failed_tasks)
        SINK_EXECUTOR_STORAGE_USED.set(found.storage_used_bytes)
        SINK_EXECUTOR_STORAGE.set(found.storage_bytes)
