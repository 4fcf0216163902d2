"""aiokafka's errors by the lane's next step, and the topics that Kafka refuses records of."""

from typing import Final

from aiokafka import errors as kafka_errors

from libs.errors import BrokerUnavailable, Fenced, HeadwaterError, PipelineHalted


class TopicsRefused(PipelineHalted):
    """Kafka will not take records of some topics, and takes all others."""

    def __init__(self, message: str, topics: frozenset[str]) -> None:
        super().__init__(message)
        self.topics = topics


_OF_ALL: Final = (
    kafka_errors.ProducerFenced,
    kafka_errors.InvalidProducerEpoch,
    kafka_errors.OutOfOrderSequenceNumber,
    kafka_errors.InvalidProducerIdMapping,
    kafka_errors.InvalidTxnState,
    kafka_errors.TransactionalIdAuthorizationFailed,
    kafka_errors.ClusterAuthorizationFailedError,
)


def is_of_topic(error: BaseException) -> bool:
    """Kafka's answer to a batch is about its topic (a grant, a limit, a policy of it), not about the router, and will not be
    another one at once."""
    return (
        isinstance(error, kafka_errors.BrokerResponseError) and not error.retriable and not isinstance(error, _OF_ALL)
    )


def unauthorized_topics(error: BaseException | None) -> dict[str, str]:
    """The topics that an error says the router may not write, with the remedy."""
    if not isinstance(error, kafka_errors.TopicAuthorizationFailedError) or not error.args:
        return {}
    named = error.args[0]
    return dict.fromkeys((named,) if isinstance(named, str) else named, _GRANT)


_GRANT: Final = "grant the router WRITE and DESCRIBE on it"
_REMEDIES: Final[dict[type[BaseException], str]] = {
    kafka_errors.MessageSizeTooLargeError: "raise the topic's max.message.bytes",
    kafka_errors.RecordListTooLargeError: "raise the topic's segment.bytes",
}


def reason_with_remedy(error: BaseException) -> str:
    """Kafka's words for a refusal of a topic's records, with the remedy if it is known."""
    if isinstance(error, kafka_errors.TopicAuthorizationFailedError):
        return _GRANT
    remedy = _REMEDIES.get(type(error))
    return repr(error) if remedy is None else f"{error!r}; {remedy}"


_FENCED: Final = (kafka_errors.ProducerFenced, kafka_errors.InvalidProducerEpoch)
_REFUSED: Final = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.TransactionalIdAuthorizationFailed,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
)


def as_ours(error: BaseException) -> HeadwaterError:
    """aiokafka's error by the lane's next step; it may be the cause of a vaguer one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _FENCED):
            return Fenced(f"another router has the partition: {cause!r}")
        if isinstance(cause, _REFUSED):
            return PipelineHalted(
                f"Kafka refuses the router ({cause!r}); grant WRITE on topics and transactional ids, READ on its group"
            )
        cause = cause.__cause__
    return BrokerUnavailable(f"a Kafka transaction failed: {error!r}")
