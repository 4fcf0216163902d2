"""The records of a topic, for tests: read once, and read on from there when they are asked for again."""

import time
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

_TIMEOUT_S: Final = 400.0
_PAUSE_S: Final = 0.1


class TopicRecords:
    """One consumer of a topic, or of one of its Kafka partitions. Uncommitted records are not shown, but with the isolation
    ``read_uncommitted``."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        kafka_partition: int | None = None,
        *,
        isolation: str = "read_committed",
    ) -> None:
        self._topic = topic
        self._kafka_partition = kafka_partition
        self._read_to: dict[int, int] = {}
        """By Kafka partition; empty while the topic is missing."""
        self._records: list[Message] = []
        self._last_error = ""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "test-reader",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )

    def read(self) -> list[Message]:
        """All records so far, Kafka partition by Kafka partition; none where the topic is missing."""
        if not self._read_to:
            self._begin()
        ends = {number: self._end(number) for number in self._read_to}
        deadline_s = time.monotonic() + _TIMEOUT_S
        while any(self._read_to[number] < end for number, end in ends.items()):
            assert time.monotonic() < deadline_s, (
                f"{self._topic}: read to {self._read_to} only, of {ends}; last error: {self._last_error}"
            )
            if (message := self._consumer.poll(1.0)) is not None:
                self._take(message)
        return sorted(self._records, key=lambda message: (message.partition(), message.offset()))

    def close(self) -> None:
        """Let go of the broker."""
        self._consumer.close()

    def _begin(self) -> None:
        found = self._consumer.list_topics(self._topic, timeout=120.0).topics[self._topic].partitions
        numbers = [number for number in found if self._kafka_partition in (None, number)]
        self._read_to = dict.fromkeys(numbers, 0)
        self._consumer.assign([TopicPartition(self._topic, number, 0) for number in numbers])

    def _end(self, number: int) -> int:
        """Of committed records: no transaction before it is open."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=120.0)
            except KafkaException as error:  # a topic that was made a moment ago has no leader yet
                if time.monotonic() > deadline_s:
                    raise AssertionError(f"{self._topic}: its end is not known within {_TIMEOUT_S:.0f} s") from error
                time.sleep(_PAUSE_S)
            else:
                return int(end)

    def _take(self, message: Message) -> None:
        error = message.error()
        number, offset = message.partition(), message.offset()
        assert number is not None
        assert offset is not None
        if error is None:
            self._records.append(message)
            # librdkafka reports an end after a fetch that came back empty, and none where writes do not pause.
            self._read_to[number] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._read_to[number] = offset
        elif error.fatal():
            raise KafkaException(error)
        else:  # the client tries again
            self._last_error = error.str()


def is_without_open_transaction(bootstrap_servers: str, topic: str) -> bool:
    """Whether all that was written is visible. Kafka answers a commit before it writes the markers that end the transaction in
    each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def ends(isolation: IsolationLevel) -> list[int]:
        partitions = admin.list_topics(topic, timeout=30.0).topics[topic].partitions
        latest = {TopicPartition(topic, number): OffsetSpec.latest() for number in sorted(partitions)}
        answers = admin.list_offsets(latest, isolation_level=isolation, request_timeout=30.0)
        return [answer.result(60).offset for answer in answers.values()]

    try:
        return ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED)
    except KafkaException:  # a broker that starts again, for example
        return False
