"""Local files that a session's driver writes, without a process for each (``LocalFiles.java``)."""

from pathlib import Path
from typing import Final

import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark.java import compiled
from spark.jobs.spark_errors import described

_SOURCE: Final = Path(__file__).with_name("LocalFiles.java")

log = structlog.get_logger()


def write_files_in_process(session: SparkSession) -> None:
    """From now on ``session``'s JVM sets the modes of its files by itself; else it starts ``chmod`` twice a file.

    Nothing depends on it: a Hadoop that does not allow it is logged, and has its own way. Executors of other
    processes have it in any case.
    """
    try:
        compiled(session, _SOURCE)().takeOver(session.sparkContext._jsc.hadoopConfiguration())
    except Py4JJavaError as error:
        log.info("session_starts_chmod", reason=described(error))
