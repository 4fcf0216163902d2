"""A query that is to be woken, where Kafka is away."""

import pytest

from libs.config.connections import KafkaSettings
from libs.errors import TransientError
from libs.types.tenant import TenantSpec
from spark.pending import letters
from spark.tenant.wake import wake
from tests.spark_session import SharedSpark


def test_that_kafka_is_away_is_an_error_to_try_again_after(
    shared: SharedSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none of Java's, which would end the job of all tenants."""
    monkeypatch.setattr(letters, "_TIMEOUT_S", 1)
    nobody = KafkaSettings(bootstrap_servers="127.0.0.1:9")

    with pytest.raises(TransientError, match=r"acme\.headwater\.wakes"):
        wake(shared.session, nobody, TenantSpec(tenant="acme", sources=()))
