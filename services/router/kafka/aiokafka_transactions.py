"""The private parts of aiokafka that a lane's transactions need, each with its reason: nothing else of ours touches one.

aiokafka has no public call for these (issues and releases up to 0.14.0). They hold for one release exactly, so the import fails
under another one: read ``aiokafka/producer/{transaction_manager,sender,message_accumulator}.py`` of the new release, then raise
``MADE_FOR``. tests/unit/router/test_aiokafka_transactions.py holds each part against the release that is installed.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import aiokafka
from aiokafka import TopicPartition
from aiokafka.client import CoordinationType
from aiokafka.producer import sender

MADE_FOR: Final = "0.14.0"

_NEXT_TRANSACTION_RETRY_S: Final = 0.004
"""Kafka asks for a second attempt after most commits: until their markers are written, some ms, it takes no new transaction.
aiokafka has a constant for it, 20 ms, and no setting."""


def require_release(installed: str) -> None:
    """Raises ImportError: ``installed`` is another release than the one that this module was made for."""
    if installed != MADE_FOR:
        raise ImportError(
            f"aiokafka is {installed}, and services/router/kafka/aiokafka_transactions.py changes private parts of {MADE_FOR}: "
            "install requirements/router.txt"
        )


require_release(aiokafka.__version__)
sender.BACKOFF_OVERRIDE = _NEXT_TRANSACTION_RETRY_S


def hear_refusals(producer: Any, note: Callable[[BaseException, bool], None]) -> None:
    """Call ``note`` with each error after which the running transaction can only be aborted, and with whether Kafka knew of it.

    With such an error aiokafka forgets the partitions and the group that the transaction had at Kafka. It then sends, outside
    of any transaction, the batches that wait for other partitions. So ``note`` comes first, and these batches fail.
    """
    manager, accumulator = producer._txn_manager, producer._message_accumulator
    theirs = manager.error_transaction

    def error_transaction(error: BaseException) -> None:
        note(error, bool(manager._txn_partitions) or manager._txn_consumer_group is not None)
        for place in [place for place in accumulator._batches if place not in manager._txn_partitions]:
            for batch in accumulator._batches.pop(place):
                batch.failure(error)
        theirs(error)

    manager.error_transaction = error_transaction


def end_at_kafka(producer: Any, place: TopicPartition) -> None:
    """Have the next abort reach Kafka. aiokafka ends a transaction without partitions in itself alone, and it forgot these."""
    producer._txn_manager._txn_partitions.add(place)


def count_from(producer: Any, place: TopicPartition, base_sequence: int) -> None:
    """Set the partition's next sequence number back to that of a batch which Kafka refused.

    Kafka counts the records that it took, aiokafka the records that it sent.
    """
    numbers = producer._txn_manager._sequence_numbers
    numbers[place] = min(numbers[place], base_sequence)


def name_another_group(producer: Any) -> None:
    """Let the running transaction take the offset of a further consumer group.

    aiokafka's transaction names one group only: it is to find the other's coordinator, and to name that group to Kafka.
    """
    producer._txn_manager._txn_consumer_group = None
    producer._sender._coordinator_dead(CoordinationType.GROUP)


def sender_task(producer: Any) -> "asyncio.Task[None] | None":
    """The task that sends. Its exception is the cause of the vaguer errors of all calls after its end."""
    task: asyncio.Task[None] | None = producer._sender.sender_task
    return task
