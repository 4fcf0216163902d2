"""Clients that cannot reach Kafka: the reasons in their errors, and no lines besides."""

import subprocess
import sys
from pathlib import Path

import pytest

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable
from libs.kafka import clients
from libs.kafka.clients import TopicSpec, ensure_topics

REPOSITORY = Path(__file__).parents[3]
NOBODY_LISTENS = "127.0.0.1:1"
THREE_CLIENTS = f"""
import time
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from libs.config.connections import KafkaSettings
from libs.kafka.clients import client_config

config = client_config(KafkaSettings(bootstrap_servers="{NOBODY_LISTENS}"))
clients = [AdminClient(config), Producer({{**config, "transactional.id": "t"}}), Consumer({{**config, "group.id": "g"}})]
clients[2].subscribe(["t"])
time.sleep(3)
"""


def test_clients_without_a_broker_write_nothing_by_themselves() -> None:
    """No line of librdkafka's stands between a service's JSON; by default it were some two hundred here."""
    program = [sys.executable, "-c", THREE_CLIENTS]

    ended = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_what_cannot_be_created_for_want_of_a_broker_names_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong address is read off the first error of a service, not guessed from a time-out."""
    monkeypatch.setattr(clients, "CREATE_TOPICS_TIMEOUT_S", 1.5)

    with pytest.raises(BrokerUnavailable, match=r"topic t in time: .*127\.0\.0\.1:1 failed: Connection refused"):
        ensure_topics(KafkaSettings(bootstrap_servers=NOBODY_LISTENS), [TopicSpec(name="t")])
