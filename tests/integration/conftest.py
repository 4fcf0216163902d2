"""Servers and services that several integration tests start."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark.sinks.registry import SINKS
from tests.conftest import KafkaBroker, MysqlServer
from tests.integration.reader_pipeline import ReaderPipeline, pipeline_of
from tests.integration.service_process import Services
from tests.integration.sink_tenant import StartTenant, start_tenants
from tests.marks import rest
from tests.spark_session import without_generated_code


@pytest.fixture
def start_reader(
    tmp_path: Path, kafka_broker: KafkaBroker, services: Services, mysql_server: MysqlServer, database: str
) -> Iterator[Callable[..., ReaderPipeline]]:
    """Starts pipelines that capture the test's own database, with these settings of the reader."""
    pipelines: list[ReaderPipeline] = []

    def start_one(**settings: Any) -> ReaderPipeline:
        captured = {"include_tables": [rf"{database}\..*"], **settings}
        pipelines.append(pipeline_of(tmp_path, database, kafka_broker, services, mysql_server, **captured))
        return pipelines[-1]

    yield start_one
    for pipeline in pipelines:
        pipeline.stop()


@pytest.fixture(params=["iceberg", *rest(*sorted({*SINKS} - {"iceberg"}), because="the gate shows it on Iceberg")])
def warehouse(request: pytest.FixtureRequest) -> str:
    """Each kind; the gate has Iceberg."""
    return str(request.param)


@pytest.fixture
def start_tenant(bootstrap_servers: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartTenant]:
    """Makes tenants of a warehouse, with their topics."""
    yield from start_tenants(bootstrap_servers, tmp_path, request)


@pytest.fixture
def interpreted() -> Iterator[None]:
    """See ``without_generated_code``."""
    with without_generated_code():
        yield
