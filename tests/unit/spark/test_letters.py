"""The topic of a tenant's letters, where Kafka is away."""

import pytest

from libs.config.connections import KafkaSettings
from libs.errors import TransientError
from spark.pending import letters
from tests.spark_session import SharedSpark


def test_that_nobody_says_which_topics_there_are_is_an_error_to_try_again_after(
    shared: SharedSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's own would count as the table's, which would be parked for it."""
    monkeypatch.setattr(letters, "_TIMEOUT_S", 1)
    nobody = KafkaSettings(bootstrap_servers="127.0.0.1:9")

    with pytest.raises(TransientError, match=r"acme\.dead-letter: Kafka does not say"):
        letters.create_topic(shared.session, nobody, "acme.dead-letter", 1)


def test_an_address_that_nobody_can_have_is_told_the_same_way(shared: SharedSpark) -> None:
    """A name server that is away says so of any; Java has it before the first question."""
    nowhere = KafkaSettings(bootstrap_servers="kafka.invalid:9092")

    with pytest.raises(TransientError, match=r"acme\.dead-letter"):
        letters.create_topic(shared.session, nowhere, "acme.dead-letter", 1)
