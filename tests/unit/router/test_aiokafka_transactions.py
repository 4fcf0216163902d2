"""The private parts of aiokafka that the router changes are those of the release that is installed."""

import asyncio
import re
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import CoordinationType
from aiokafka.producer import sender
from aiokafka.producer.sender import AddPartitionsToTxnHandler

from services.router.kafka import aiokafka_transactions
from services.router.kafka.aiokafka_transactions import (
    MADE_FOR,
    count_from,
    end_at_kafka,
    hear_refusals,
    require_release,
)

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
PLACE = TopicPartition("t", 0)


def transactional_producer() -> AIOKafkaProducer:
    """One that has not begun to connect; wants a running loop."""
    return AIOKafkaProducer(transactional_id="of-a-test", bootstrap_servers="localhost:1")


def test_every_pin_is_the_release_that_the_parts_were_read_in() -> None:
    pins = re.findall(r'"aiokafka==([^"]+)"', PROJECT.read_text(encoding="utf-8"))

    assert set(pins) == {MADE_FOR}


@pytest.mark.parametrize("release", ["0.13.0", "0.14.1", "0.15.0", "1.0.0"])
def test_another_release_is_refused_with_the_remedy(release: str) -> None:
    with pytest.raises(ImportError, match=rf"aiokafka is {re.escape(release)}, .* install requirements/router.txt"):
        require_release(release)


def test_aiokafka_reads_how_soon_to_ask_for_the_next_transaction() -> None:
    """The constant is aiokafka's own, so a release may stop to read it: commits would then be three times as slow."""
    assert "BACKOFF_OVERRIDE" in AddPartitionsToTxnHandler.handle_response.__code__.co_names
    assert sender.BACKOFF_OVERRIDE < 0.02


async def test_a_refusal_is_noted_before_aiokafka_forgets_the_transaction() -> None:
    """``note`` hears that Kafka knew of it; then it is forgotten, and an abort is made to reach Kafka again."""
    producer, error, noted = transactional_producer(), RuntimeError("refused"), []
    manager = producer._txn_manager
    hear_refusals(producer, lambda error, was_begun: noted.append((error, was_begun)))
    manager.set_pid_and_epoch(1, 0)
    manager.begin_transaction()
    manager.maybe_add_partition_to_txn(PLACE)
    manager.partition_added(PLACE)

    manager.error_transaction(error)

    assert noted == [(error, True)]
    assert not manager._txn_partitions
    assert isinstance(manager._transaction_waiter.exception(), RuntimeError)
    end_at_kafka(producer, PLACE)
    assert manager.txn_partitions == {PLACE}
    await producer.stop()


async def test_a_refused_batchs_number_is_the_next_ones() -> None:
    producer = transactional_producer()
    manager = producer._txn_manager
    manager.increment_sequence_number(PLACE, 7)

    count_from(producer, PLACE, 3)
    count_from(producer, PLACE, 5)

    assert manager.sequence_number(PLACE) == 3
    await producer.stop()


async def test_another_group_has_its_coordinator_looked_up() -> None:
    """aiokafka keeps one coordinator a kind; the former group's is forgotten, and the group is named to Kafka again."""
    producer = transactional_producer()
    producer._txn_manager._txn_consumer_group = "former"
    producer._sender._coordinators[CoordinationType.GROUP] = 1

    aiokafka_transactions.name_another_group(producer)

    assert producer._txn_manager._txn_consumer_group is None
    assert CoordinationType.GROUP not in producer._sender._coordinators
    assert aiokafka_transactions.sender_task(producer) is None
    await producer.stop()


async def test_batches_of_other_partitions_fail_with_the_refusal() -> None:
    """Else aiokafka would send them outside of any transaction."""
    producer, error = transactional_producer(), RuntimeError("refused")
    hear_refusals(producer, lambda *_: None)
    producer._txn_manager.set_pid_and_epoch(1, 0)
    producer._txn_manager.begin_transaction()
    batch = producer.create_batch()
    batch.append(key=None, value=b"v", timestamp=None)
    batch.close()
    acknowledged = await producer._message_accumulator.add_batch(batch, PLACE, 1.0)

    producer._txn_manager.error_transaction(error)

    assert producer._message_accumulator._batches == {}
    with pytest.raises(RuntimeError, match="refused"):
        await acknowledged
    producer._txn_manager._transaction_waiter.exception()
    await asyncio.wait_for(producer.stop(), 10)
