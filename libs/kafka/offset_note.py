"""The note that stands beside a committed offset in Kafka (``metadata`` of its documentation)."""

from confluent_kafka import TopicPartition


def note_of(place: TopicPartition) -> str:
    """The note of an offset that Kafka gave; empty if there is none. Anything may stand after the text that was written.

    confluent_kafka 2.16 reads up to a zero byte, and librdkafka copies a note without one. The bytes of other memory after it
    need be no text, which raises. A note therefore ends by a character of its own, and its readers look no further.
    """
    try:
        return place.metadata or ""
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", errors="replace")
