"""An archive of the JVM's classes, so that a session starts with less CPU: ``python -m spark.session.class_archive``.

A session loads thousands of classes out of hundreds of jars and checks each. An archive holds them as the JVM has them in
memory (Java's documentation, "Class Data Sharing"). It fits one Java, one PySpark in one place; any other passes over it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from spark.session.start import class_path, open_session
from spark.settings import SessionSettings

_ROWS = 1_000
_DUMP_TIMEOUT_S = 300.0


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spark.session.class_archive", description=__doc__)
    parser.add_argument("archive", type=Path, help="the file to write, 170 MB")
    parser.add_argument("--java-home", help="the Java that will read it; by default JAVA_HOME's")
    parser.add_argument("--jars-dir", required=True, help="folder with the jars of Spark's connectors and warehouses")
    words = parser.parse_args(arguments)
    settings = SessionSettings(java_home=words.java_home, jars_dir=words.jars_dir)
    write_archive(words.archive.absolute(), settings)
    return 0


def write_archive(archive: Path, settings: SessionSettings) -> None:
    """Run a session through every job's steps, and keep the classes that it loaded. Takes half a minute.

    Raises:
        RuntimeError: the JVM ended without one; its output has the reason.
    """
    staged = archive.with_name(f".{archive.name}.{os.getpid()}")
    options = f'{settings.java_options} "-XX:ArchiveClassesAtExit={staged}"'
    with tempfile.TemporaryDirectory() as folder:
        config = {"spark.local.dir": f"{folder}/local", "spark.sql.warehouse.dir": f"{folder}/warehouse"}
        config["spark.driver.extraClassPath"] = class_path()
        wanted = msgspec.structs.replace(settings, java_options=options, config=config)
        spark = open_session(wanted, [], name="class-archive")
        _work(spark, Path(folder))
        gateway = SparkContext._gateway
        assert gateway is not None
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # at which PySpark's JVM ends
        exit_code = gateway.proc.wait(_DUMP_TIMEOUT_S)
    try:
        if exit_code != 0 or not staged.is_file():
            raise RuntimeError(f"{archive} was not written: the JVM ended with exit code {exit_code}")
        check_archive(staged, settings)
        staged.rename(archive)
    finally:
        staged.unlink(missing_ok=True)


def check_archive(archive: Path, settings: SessionSettings) -> None:
    """Have a JVM take it, its checksums included.

    Raises:
        RuntimeError: it does not; a JVM that came upon the gap of one that was cut off would end there.
    """
    java = f"{settings.java_home}/bin/java" if settings.java_home is not None else "java"
    options = (
        f"-XX:SharedArchiveFile={archive}",
        "-Xshare:on",
        "-XX:+VerifySharedSpaces",
        *settings.java_options.split(),
    )
    words = [java, *options, "-cp", class_path(), "-version"]
    with tempfile.TemporaryDirectory() as folder:  # for the JVM's files at its end
        done = subprocess.run(words, capture_output=True, text=True, timeout=_DUMP_TIMEOUT_S, check=False, cwd=folder)
    if done.returncode != 0:
        raise RuntimeError(f"{archive} was written, and is not taken: {done.stderr or done.stdout}")


def _work(spark: SparkSession, folder: Path) -> None:
    """A micro-batch's steps, twice: rows are kept, counted, parsed, joined and written."""
    for number in range(2):
        batch = spark.range(number, number + _ROWS).withColumnRenamed("id", "value")
        image = sf.to_json(sf.struct(sf.col("value").alias("id"), sf.lit("a").alias("note")))
        events = batch.select("value", image.alias("image")).coalesce(2).persist()
        events.groupBy((sf.col("value") % 2).alias("part")).agg(sf.count("*"), sf.max_by("image", "value")).collect()
        rows = events.select("value", sf.from_json("image", "id BIGINT, note STRING").alias("row"))
        rows.select("value", "row.*").write.mode("append").parquet(str(folder / "rows"))
        written = spark.read.parquet(str(folder / "rows"))
        written.join(rows.repartition(2, "value"), "value", "full").orderBy("value").limit(3).collect()
        events.unpersist()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
