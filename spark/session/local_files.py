"""Local files that a session's driver writes, without a process for each (``LocalFiles.java``)."""

from typing import Final

import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark.jvm.errors import described
from spark.jvm.java import compiled

_CLASS: Final = "LocalFiles"

log = structlog.get_logger()


def write_files_in_process(session: SparkSession) -> None:
    """From now on ``session``'s JVM sets the modes of its files by itself; else it starts ``chmod`` twice a file.

    Nothing depends on it: a Hadoop that does not allow it is logged, and has its own way. Executors of other
    processes have it in any case.
    """
    try:
        compiled(session, _CLASS)().takeOver(session.sparkContext._jsc.hadoopConfiguration())
    except Py4JJavaError as error:
        log.info("session_starts_chmod", reason=described(error))
