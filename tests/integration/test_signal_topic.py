"""A reader's place in the topic of signals is of one topic, not of a name."""

import json
import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from libs.config.connections import KafkaSettings
from libs.events.names import SIGNALS_TOPIC
from libs.kafka.clients import ensure_topics
from libs.source.signal_topic import SignalRecord, SignalTopic, passed_signal, send_signal, signals_topic
from libs.types.checkpoint import IncrementalSnapshot
from libs.types.position import SourcePartition
from tests.conftest import StartKafka
from tests.waiting import wait_until

SHOP = SourcePartition(source="shop", name="0")


def signal(signal_id: str) -> str:
    return json.dumps({"id": signal_id, "type": "log", "data": {"message": "m"}})


def followed(
    kafka: KafkaSettings, state: IncrementalSnapshot, ids: list[str], meanwhile: Callable[[], None] = lambda: None
) -> IncrementalSnapshot:
    """A reader's life from ``state``, until it has passed these signals; ``meanwhile`` is done once it follows the topic."""
    topic, seen = SignalTopic(kafka, SHOP, state), list[SignalRecord]()

    def arrived() -> list[str]:
        seen.extend(topic.records())
        return [json.loads(record.text)["id"] for record in seen if record.text is not None]

    try:
        wait_until(lambda: arrived() is not None and bool(seen), because="the reader follows the topic", seen=arrived)
        meanwhile()
        wait_until(lambda: arrived() == ids, because="each signal comes once, in order", seen=arrived)
    finally:
        topic.close()
    for record in seen:
        state = passed_signal(state, record)
    return state


def test_signals_of_a_topic_that_was_made_again_are_acted_upon(start_kafka: StartKafka) -> None:
    """Also where the new topic has more records than the reader had passed in the former one."""
    kafka = KafkaSettings(bootstrap_servers=start_kafka().bootstrap_servers)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def make() -> None:
        ensure_topics(kafka, [signals_topic(1)])

    def make_again() -> None:
        admin.delete_topics([SIGNALS_TOPIC])[SIGNALS_TOPIC].result(60)
        deadline_s = time.monotonic() + 60
        while SIGNALS_TOPIC in admin.list_topics(timeout=60).topics:
            assert time.monotonic() < deadline_s
        make()

    def send(*ids: str) -> None:
        for signal_id in ids:
            send_signal(kafka, SHOP.source, signal(signal_id))

    make()
    before = followed(kafka, IncrementalSnapshot(), ["1", "2"], lambda: send("1", "2"))
    make_again()
    send("3", "4", "5")
    after = followed(kafka, before, ["3", "4", "5"])
    send("6")

    assert followed(kafka, after, ["6"]).signals_offset == 4
    assert before.signals_topic_id != after.signals_topic_id
