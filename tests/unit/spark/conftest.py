"""The shared session for unit tests of transforms and of the Iceberg sink; Kafka has no part in them."""

import pytest

from tests.spark_session import SharedSpark, shared_spark


@pytest.fixture(scope="session")
def shared() -> SharedSpark:
    """A real Spark with a real Iceberg catalog."""
    return shared_spark()
