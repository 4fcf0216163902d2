"""The image's command: the sink job, or the commands that Spark on Kubernetes asks for."""

import sys
from pathlib import Path

import pytest

from libs.errors import InvalidSettings
from spark.jobs.container import command

HOME = Path("/spark")
POD = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_EXECUTOR_POD_NAME": "acme-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number}" for number in range(11)},
}


def test_an_executor_is_told_what_its_pod_was() -> None:
    java, *words = command(["executor"], POD | {"JAVA_HOME": "/java", "SPARK_CLASSPATH": "/jars/*"}, HOME)

    assert java == "/java/bin/java"
    assert words[:11] == [f"-Dnumber={number}" for number in range(11)]
    assert words[11:15] == ["-Xms512m", "-Xmx512m", "-cp", "/jars/*:/spark/jars/*"]
    assert dict(zip(words[16::2], words[17::2], strict=True)) == {
        "--driver-url": POD["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.9",
        "--resourceProfileId": "0",
        "--podName": "acme-exec-3",
    }


def test_a_driver_is_submitted_in_its_own_container() -> None:
    words = command(["driver", "--class", "x"], {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7"}, HOME)

    assert words[0] == "/spark/bin/spark-submit"
    assert words[-4:] == ["--deploy-mode", "client", "--class", "x"]
    assert set(words[2:-4:2]) == {"spark.driver.bindAddress=10.0.0.7", "spark.driver.host=10.0.0.7"}


def test_other_words_are_the_sink_jobs() -> None:
    words = command(["--settings", "file"], {}, HOME)

    assert words == [sys.executable, "-m", "spark.jobs.sink_job", "--settings", "file"]


def test_an_executor_that_nobody_told_anything_says_what_is_missing() -> None:
    with pytest.raises(InvalidSettings) as refused:
        command(["executor"], {name: POD[name] for name in POD if name != "SPARK_EXECUTOR_ID"}, HOME)

    assert "SPARK_EXECUTOR_ID: is missing" in str(refused.value)
    assert "SPARK_DRIVER_URL" not in str(refused.value)
