"""The settings of a job with executors, and the refusals."""

from pathlib import Path
from typing import Any

import pytest

from libs.config.load import convert_document
from spark.session.executors import executor_config, pod_config
from spark.settings import ExecutorSettings, SessionSettings
from spark.sinks.registry import open_sinks

TOLD: dict[str, Any] = {
    "instances": 2,
    "image": "registry/headwater-spark:1",
    "pod_template_file": "/executor.yaml",
    "namespace": "mesh",
    "job": "packed-0",
    "driver_pod": "headwater-sink-packed-0-0",
    "driver_address": "10.0.0.7",
}
MASTER = "k8s://https://kubernetes.default.svc"


def mistakes_of(**session: Any) -> list[str]:
    mistakes: list[str] = []
    convert_document(SessionSettings, {"jars_dir": "unused", **session}, place="session", mistakes=mistakes)
    return mistakes


def test_executors_talk_to_nobody_but_their_own_driver_and_one_another() -> None:
    config = executor_config(ExecutorSettings(**TOLD)) | pod_config("-XX:+UseParallelGC")

    assert config["spark.authenticate"] == config["spark.network.crypto.enabled"] == "true"
    assert config["spark.driver.host"] == "10.0.0.7"
    assert config["spark.executor.extraJavaOptions"] == "-XX:+UseParallelGC"
    assert config["spark.kubernetes.executor.label.headwater.dev/executor-of"] == "packed-0"
    assert "spark.kubernetes.executor.limit.cores" not in config


@pytest.mark.parametrize(
    ("session", "words"),
    [
        ({"master": MASTER}, "executors: is missing"),
        ({"executors": TOLD}, "executors: master local[2] makes none"),
        ({"master": MASTER, "executors": TOLD | {"instances": 0, "cores": 0}}, "instances: must be at least 1"),
    ],
)
def test_master_and_executors_go_together(session: dict[str, Any], words: str) -> None:
    assert not mistakes_of(master=MASTER, executors=TOLD)

    assert words in "; ".join(mistakes_of(**session))


def warehouses(folder: Path) -> dict[str, Any]:
    return {
        "iceberg": {"warehouse_dir": f"{folder}/lake", "catalog": {"kind": "sqlite", "file": f"{folder}/catalog.db"}},
        "delta": {"warehouse_dir": f"file://{folder}/delta"},
    }


def test_a_warehouse_that_executors_do_not_see_is_refused_with_every_folder(tmp_path: Path) -> None:
    mistakes: list[str] = []

    assert open_sinks(warehouses(tmp_path), mistakes=mistakes, shared_dirs=["/shared"]) == {}

    places = [mistake.partition(": ")[0] for mistake in mistakes]
    assert places == [
        "warehouses.iceberg.warehouse_dir",
        "warehouses.iceberg.catalog.file",
        "warehouses.delta.warehouse_dir",
    ]
    assert all("sink.extraVolumes with ReadWriteMany" in mistake for mistake in mistakes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shared", [True, False])
def test_a_warehouse_is_taken_that_all_see_or_that_nobody_else_has_to(tmp_path: Path, *, shared: bool) -> None:
    mistakes: list[str] = []

    found = open_sinks(warehouses(tmp_path), mistakes=mistakes, shared_dirs=[str(tmp_path)] if shared else None)

    assert (set(found), mistakes) == ({"iceberg", "delta"}, [])


def test_a_warehouse_that_is_a_service_or_an_object_store_is_taken() -> None:
    known = {
        "iceberg": {"warehouse_dir": "lake", "catalog": {"kind": "rest", "uri": "https://catalog"}},
        "delta": {"warehouse_dir": "s3a://bucket/lake"},
    }
    mistakes: list[str] = []

    assert set(open_sinks(known, mistakes=mistakes, shared_dirs=[])) == {"iceberg", "delta"}
    assert mistakes == []
