"""A session, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from libs.mesh.processes import SINK_JAVA_OPTIONS

REPOSITORY = Path(__file__).parents[3]
SCRIPT = f"""
import sys

from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from libs.config.iceberg_catalog import CatalogKind, CatalogSettings
from libs.setup.spark_toolchain import find_toolchain
from spark.jvm.java import java_class
from spark.session.start import open_session
from spark.settings import SessionSettings
from spark.sinks.iceberg.settings import Settings
from spark.sinks.iceberg.sink import open_sink
from spark.tenant.query import TenantQuery
from spark.transforms.local_rows import local_rows

settings = SessionSettings(**find_toolchain().session, java_options={SINK_JAVA_OPTIONS!r})
spark = open_session(settings, [], name="lean")
assert spark.range(3).where(sf.col("id") > sf.lit(1)).count() == 1
print(sorted({{"pandas", "pyarrow"}} & sys.modules.keys()))
print([row["name"] for row in local_rows(spark, [("a",), ("b",)], "name string").collect()])

try:
    spark.range(2).selectExpr("CAST(concat('a row has ', id) AS INT)").write.format("noop").mode("overwrite").save()
except PySparkException as error:
    assert "a row has" in str(error)
log = java_class(spark, "org.apache.logging.log4j.LogManager").getLogger("org.example.Writer")
cause = java_class(spark, "java.lang.Exception")("a row has that")
broken = java_class(spark, "java.lang.IllegalStateException")("a row has this", cause)
log.warn("not written: " + str(broken.toString()), broken)
log.warn("left alone", java_class(spark, "java.util.concurrent.TimeoutException")("for 30 s"))
print("logged")

catalog = CatalogSettings(kind=CatalogKind.JDBC, uri="jdbc:postgresql://127.0.0.1:1/none")
sink = open_sink(Settings(warehouse_dir="s3://lake/warehouse", catalog=catalog))
open_session(settings, [sink], name="none")
"""
"""One session for the claims below: a start of Java costs more than all of them."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path_factory.mktemp("session"),
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.servers  # starts Java
def test_logs_of_spark_tell_errors_without_the_values_that_their_texts_have(
    done: "subprocess.CompletedProcess[str]",
) -> None:
    """Spark's condition, the classes and the places are there, and the text where it is about a machine or a network."""
    assert done.stdout.endswith("logged\n"), done.stderr
    assert "a row has" not in done.stdout + done.stderr
    assert "SparkNumberFormatException: [CAST_INVALID_INPUT]\n" in done.stderr
    assert "at org.apache.spark.sql.errors.QueryExecutionErrors$.invalidInputInCastToNumberError(" in done.stderr
    assert "WARN Writer: not written: java.lang.IllegalStateException" in done.stderr
    assert "Caused by: java.lang.Exception\n" in done.stderr
    assert "java.util.concurrent.TimeoutException: for 30 s" in done.stderr


@pytest.mark.servers  # starts Java
def test_a_driver_loads_neither_pandas_nor_arrow_before_it_needs_them(
    done: "subprocess.CompletedProcess[str]",
) -> None:
    """They are half of its memory. Rows of its own go through Arrow still."""
    assert done.stdout.splitlines()[:2] == ["[]", "['a', 'b']"], done.stderr


@pytest.mark.servers  # starts Java
def test_tables_in_s3_without_the_jar_of_its_client_are_refused_with_the_remedy(
    done: "subprocess.CompletedProcess[str]",
) -> None:
    assert done.returncode == 1
    assert "session.more_jars_dir: no jar has software.amazon.awssdk" in done.stderr
    assert "put iceberg-aws-bundle there" in done.stderr
