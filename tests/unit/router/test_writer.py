"""aiokafka's errors by what the lane does next, and which of its log lines pass."""

import logging

import pytest
from aiokafka import errors

from libs.errors import BrokerUnavailable, Fenced, HeadwaterError, PipelineHalted
from services.router.writer import _NowAndThen, as_ours


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
    """Fenced stops the lane, PipelineHalted waits for a human, BrokerUnavailable starts the process anew."""
    assert type(as_ours(error)) is ours


def test_vague_error_is_judged_by_its_cause() -> None:
    """aiokafka's sender wraps what ended it."""
    vague = errors.KafkaError("Unexpected error during batch delivery")
    vague.__cause__ = errors.InvalidProducerEpoch()

    assert isinstance(as_ours(vague), Fenced)


def test_line_that_repeats_is_told_now_and_then() -> None:
    """A broker that is away is told of, not fifty times a second."""
    passes = _NowAndThen()

    def line(text: str) -> logging.LogRecord:
        return logging.LogRecord("aiokafka", logging.ERROR, "", 0, text, (), None)

    assert [passes(line(text)) for text in ("a", "a", "b", "a")] == [True, False, True, False]
