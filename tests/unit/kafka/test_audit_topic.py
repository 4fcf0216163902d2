"""Calls that come faster than Kafka takes their records cost no memory, and no thread each."""

import threading

import pytest
import structlog.testing

from libs.config.connections import KafkaSettings
from libs.kafka import audit_topic
from libs.kafka.audit_topic import AuditTopic
from libs.types.audit import AuditRecord


def test_records_that_kafka_does_not_take_are_bounded_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()

    def away(*_: object) -> None:
        is_over.wait()

    monkeypatch.setattr(audit_topic, "ensure_topics", away)
    monkeypatch.setattr(audit_topic, "_MOST_WAITING", 10)
    take = AuditTopic(KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    before = threading.active_count()

    with structlog.testing.capture_logs() as logs:
        for number in range(100):
            take(AuditRecord(at_us=number, service="s", method="Pause", peer="p"))

    assert threading.active_count() <= before + 1
    assert take._waiting.qsize() <= 10
    assert [each["event"] for each in logs] == ["audit_record_not_written"]
