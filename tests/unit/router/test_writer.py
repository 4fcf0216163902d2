"""aiokafka's errors by the lane's next step, and which of its log lines pass."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition, errors

from libs.errors import BrokerUnavailable, Fenced, HeadwaterError, PipelineHalted
from services.router.kafka.aiokafka_log import _NowAndThen
from services.router.kafka.kafka_refusals import as_ours
from services.router.kafka.writer import TransactionWriter, _Sent
from services.router.records.record_batch import CODECS, RecordBatch, empty_batch, take_body
from services.router.settings import LaneSettings
from tests.simulation.scheduler import Scheduler, simulated_clock


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (errors.ProducerFenced(), Fenced),
        (errors.InvalidProducerEpoch(), Fenced),
        (errors.TopicAuthorizationFailedError("t"), PipelineHalted),
        (errors.TransactionalIdAuthorizationFailed("id"), PipelineHalted),
        (errors.GroupAuthorizationFailedError("g"), PipelineHalted),
        (errors.MessageSizeTooLargeError(), BrokerUnavailable),
        (errors.KafkaConnectionError(), BrokerUnavailable),
        (errors.UnknownError(), BrokerUnavailable),
    ],
)
def test_error_becomes_the_one_that_says_what_to_do(error: Exception, ours: type[HeadwaterError]) -> None:
    """Fenced stops the lane, PipelineHalted waits for a human, BrokerUnavailable starts the process again."""
    assert type(as_ours(error)) is ours


def test_vague_error_is_judged_by_its_cause() -> None:
    """aiokafka's sender wraps the error that ended it."""
    vague = errors.KafkaError("Unexpected error during batch delivery")
    vague.__cause__ = errors.InvalidProducerEpoch()

    assert isinstance(as_ours(vague), Fenced)


def test_line_that_repeats_is_told_now_and_then() -> None:
    """A broker that is away is logged, not fifty times a second."""
    passes = _NowAndThen()

    def line(text: str) -> logging.LogRecord:
        return logging.LogRecord("aiokafka", logging.ERROR, "", 0, text, (), None)

    assert [passes(line(text)) for text in ("a", "a", "b", "a")] == [True, False, True, False]


def _wait_for(acknowledged_s: Sequence[float]) -> float:
    """Let a transaction's batches, each of a topic, be acknowledged after so long; returns how long the wait was.

    Raises the error that the wait raised.
    """
    took_s: list[float] = []
    refused: list[BrokerUnavailable] = []

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        writer = TransactionWriter(None, TopicPartition("changes", 0), "group", LaneSettings())
        codec = CODECS["none"]()
        for number, after_s in enumerate(acknowledged_s):
            future: asyncio.Future[Any] = loop.create_future()
            place = TopicPartition(f"topic-{number}", 0)
            writer._in_flight[future] = _Sent(place, RecordBatch(take_body(empty_batch(codec), codec), 0))
            loop.call_later(after_s, future.set_result, None)
        began_s = loop.time()
        try:
            await writer._acknowledged()
        except BrokerUnavailable as error:
            refused.append(error)
            return
        assert not writer._in_flight
        took_s.append(loop.time() - began_s)

    with simulated_clock():
        Scheduler(1).run(lambda: asyncio.run(wait()))
    for error in refused:
        raise error
    return took_s[0]


def test_many_batches_may_take_as_long_as_one_after_the_other_is_acknowledged() -> None:
    """Kafka opened 200 new topics for a transaction, half a second each, and the router ended after 30 s."""
    assert round(_wait_for([0.5 * number for number in range(1, 201)])) == 100


def test_a_transaction_without_batches_waits_for_none() -> None:
    """No tenant gets a row of it, and its offset is to be committed all the same."""
    assert _wait_for([]) == 0


def test_batches_that_nobody_acknowledges_end_the_wait() -> None:
    """The message counts those that lack, not those that came."""
    with pytest.raises(BrokerUnavailable, match="acknowledged none of 2 batches within 30 s"):
        _wait_for([1.0, 2.0, 40.0, 50.0])
