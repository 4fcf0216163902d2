"""The published table, in one call."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import KafkaBroker, MysqlServer
from tests.consumers.published import Published, published
from tests.integration.service_process import Services

Publish = Callable[..., Published]


@pytest.fixture
def publish(
    tmp_path: Path, kafka_broker: KafkaBroker, services: Services, mysql_server: MysqlServer, database: str
) -> Iterator[Publish]:
    """Publishes the table once, in value modes and formats."""
    with contextlib.ExitStack() as ended:

        def start(values: Mapping[str, str], formats: Mapping[str, Mapping[str, Any]], **more: Any) -> Published:
            return ended.enter_context(
                published(
                    tmp_path / "published",
                    kafka_broker,
                    services,
                    mysql_server,
                    database,
                    values=values,
                    formats=formats,
                    **more,
                )
            )

        yield start
