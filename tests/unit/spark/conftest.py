"""The shared session for unit tests of transforms and of the Iceberg sink; Kafka has no part in them."""

from collections.abc import Iterator

import pytest

from tests.spark_session import SharedSpark, shared_spark, without_generated_code


@pytest.fixture(scope="session")
def shared() -> SharedSpark:
    """A real Spark with a real Iceberg catalog."""
    return shared_spark()


@pytest.fixture
def interpreted() -> Iterator[None]:
    """See ``without_generated_code``."""
    with without_generated_code():
        yield
