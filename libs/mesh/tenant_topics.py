"""A tenant's topics as ``headwater`` reads them: which tables there are, the events of one, where a topic ends."""

import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from operator import attrgetter
from typing import Any, Final

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from libs.config.connections import KafkaSettings
from libs.errors import AccessDenied, BrokerUnavailable
from libs.events.delivered_schema import DeliveredSchema, decode_delivered_schema
from libs.events.names import ROW_TOPIC_TEMPLATES, SCHEMA_VERSION_HEADER, table_schemas_topic
from libs.kafka.clients import client_config
from libs.types.table import TableSchema
from libs.types.tenant import TopicLayout

TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.2
SCHEMAS_TIMEOUT_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class RowTopic:
    """One table's topic of one tenant, taken apart (libs.events.names.row_topic puts it together)."""

    name: str
    tenant: str
    source: str
    database: str
    table: str


def parse_row_topic(topic: str, template: str = ROW_TOPIC_TEMPLATES[TopicLayout.PER_TABLE]) -> RowTopic | None:
    """The parts of a row topic that is called as ``template`` says; None for any other topic.

    Tenant, source and database are taken to have no dots. Parts that the template leaves out are empty.
    """
    patterns = {"tenant": "[a-z0-9-]+", "source": "[^.]+", "database": "[^.]+", "table": ".+"}
    pieces = re.split(r"\{(\w+)\}", template)
    named = (f"(?P<{name}>{patterns[name]})" for name in pieces[1::2])
    literal = (re.escape(piece) for piece in pieces[0::2])
    pattern = "".join(piece for pair in zip_longest(literal, named, fillvalue="") for piece in pair)
    match = re.fullmatch(pattern, topic)
    if match is None or ".." in topic or topic.endswith("."):
        return None
    parts = match.groupdict()
    return RowTopic(topic, *(parts.get(name, "") for name in ("tenant", "source", "database", "table")))


def topic_names(kafka: KafkaSettings) -> list[str]:
    """Of all topics that there are, and that the user may see.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    try:
        return sorted(AdminClient({**client_config(kafka), "log_level": 0}).list_topics(timeout=TIMEOUT_S).topics)
    except KafkaException as error:
        raise BrokerUnavailable(f"Kafka at {kafka.bootstrap_servers} does not answer: is the stack up?") from error


def row_topics(
    kafka: KafkaSettings, tenant: str, template: str = ROW_TOPIC_TEMPLATES[TopicLayout.PER_TABLE]
) -> tuple[RowTopic, ...]:
    """The row topics of ``tenant`` that exist.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    parsed = (parse_row_topic(name, template) for name in topic_names(kafka))
    return tuple(sorted((topic for topic in parsed if topic and topic.tenant == tenant), key=lambda topic: topic.name))


def open_consumer(kafka: KafkaSettings) -> Consumer:
    """A consumer that belongs to no group, commits nothing and sees committed records only."""
    return Consumer(
        {
            **client_config(kafka),
            "group.id": "headwater-command",  # demanded by librdkafka; never joined, because partitions are assigned
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )


def partitions_of(consumer: Consumer, topic: str) -> tuple[int, ...]:
    """Kafka partitions of ``topic``; none where it does not exist. Raises BrokerUnavailable."""
    try:
        found = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    except KafkaException as error:
        raise BrokerUnavailable(f"Kafka does not answer about topic {topic}: is the stack up?") from error
    return () if found.error is not None else tuple(sorted(found.partitions))


def end_offsets(kafka: KafkaSettings, topics: Collection[str]) -> Mapping[tuple[str, int], int]:
    """The offset after the last record of each Kafka partition, open transactions not counted. In two requests.

    Raises:
        BrokerUnavailable: Kafka does not answer, or a broker does not say a partition's end.
    """
    found = committed_ends(kafka, topics)
    for topic in topics:
        if topic not in found:
            raise BrokerUnavailable(f"Kafka at {kafka.bootstrap_servers} does not say where topic {topic} ends")
    return {(topic, partition): end for topic, ends in found.items() for partition, end in ends.items()}


def committed_ends(kafka: KafkaSettings, topics: Collection[str]) -> dict[str, dict[int, int]]:
    """The offset after the last record of each Kafka partition, by topic, of any number of topics in two requests: 50,000 one
    by one take minutes. Open transactions are not counted.

    A topic that does not exist has no partitions. One whose end a broker did not say, or of which a partition has no leader,
    is left out.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    consumer = open_consumer(kafka)
    found: dict[str, dict[int, int]] = {topic: {} for topic in topics}
    try:
        known = consumer.list_topics(timeout=TIMEOUT_S).topics
        asked = []
        for topic in topics:
            partitions = known[topic].partitions if topic in known else {}
            if any(partition.leader < 0 for partition in partitions.values()):
                del found[topic]
            else:
                asked += [TopicPartition(topic, partition, OFFSET_END) for partition in partitions]
        # The end stands where a timestamp is awaited: -1 is the latest offset (Kafka protocol, ListOffsets). The admin client's
        # request for the same makes a future of each partition, which is two and a half times the work.
        answers = consumer.offsets_for_times(asked, timeout=TIMEOUT_S) if asked else []
    except KafkaException as error:
        raise BrokerUnavailable(f"Kafka at {kafka.bootstrap_servers} does not answer: is the stack up?") from error
    finally:
        consumer.close()
    for answer in answers:
        if answer.error is not None:
            found.pop(answer.topic, None)
        elif answer.topic in found:
            found[answer.topic][answer.partition] = answer.offset
    return found


def has_records_between(
    consumer: Consumer, topic: str, partition: int, start: int, end: int, *, without_tombstones: bool = False
) -> bool:
    """Whether a committed record has an offset in [start, end): offsets have gaps where transactions ended.

    ``without_tombstones``: one that has a value, which a sink takes in.
    """
    if start >= end:
        return False
    consumer.assign([TopicPartition(topic, partition, start)])
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        while time.monotonic() < deadline_s:
            message = consumer.poll(POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                if int(message.offset() or 0) >= end:
                    return False
                if message.value() is not None or not without_tombstones:
                    return True
                continue
            if error.code() == KafkaError._PARTITION_EOF:
                return False
            raise BrokerUnavailable(f"topic {topic} cannot be read: {error.str()}")
    finally:
        consumer.unassign()
    raise BrokerUnavailable(f"topic {topic} could not be read in {TIMEOUT_S:.0f} s")


def follow_topic(consumer: Consumer, topic: str, *, from_beginning: bool) -> Iterator[Message | None]:
    """Every record of ``topic``, for ever; None whenever there is none at the moment.

    Raises:
        BrokerUnavailable: Kafka went away for good.
    """
    start = OFFSET_BEGINNING if from_beginning else OFFSET_END
    consumer.assign([TopicPartition(topic, partition, start) for partition in partitions_of(consumer, topic)])
    while True:
        message = consumer.poll(POLL_S)
        error = message.error() if message is not None else None
        if message is None or (error is not None and error.code() == KafkaError._PARTITION_EOF):
            yield None
        elif error is None:
            yield message
        elif error.fatal():
            raise BrokerUnavailable(f"topic {topic} cannot be read: {error.str()}")


def read_to_end(consumer: Consumer, starts: Mapping[tuple[str, int], int], *, timeout_s: float) -> Iterator[Message]:
    """Every committed record from ``starts`` to the ends that the partitions have now, in no order across them.

    Raises:
        BrokerUnavailable: the ends were not reached within ``timeout_s``.
        AccessDenied: the user may not read one of them.
    """
    deadline_s = time.monotonic() + timeout_s
    unread = {place: _end_of(consumer, *place, deadline_s) for place in starts}
    consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in starts.items()])
    try:
        while unread:
            for message in consumer.consume(1_000, timeout=POLL_S):
                place = (str(message.topic()), int(message.partition() or 0))
                error = message.error()
                if error is not None:
                    # librdkafka reports an end after a fetch that came back empty, and of none where writes do not pause.
                    if error.code() == KafkaError._PARTITION_EOF:
                        unread.pop(place, None)
                    elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        raise _may_not_read(place[0])
                elif place in unread:
                    following = int(message.offset() or 0) + 1
                    if following <= unread[place]:
                        yield message
                    if following >= unread[place]:
                        del unread[place]
            if time.monotonic() > deadline_s:
                raise BrokerUnavailable(
                    f"{len(unread)} Kafka partition(s) were not read to their end in {timeout_s:.0f} s"
                )
    finally:
        consumer.unassign()


def _end_of(consumer: Consumer, topic: str, partition: int, deadline_s: float) -> int:
    """The offset after the last committed record before any open transaction."""
    while True:
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
        except KafkaException as error:
            if isinstance(fault := error.args[0], KafkaError) and fault.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise _may_not_read(topic) from error
            if time.monotonic() > deadline_s:
                raise BrokerUnavailable(f"Kafka does not say where topic {topic} ends: {error}") from error
            time.sleep(POLL_S)  # a topic that was made a moment ago has no leader yet
        else:
            return int(end)


def _may_not_read(topic: str) -> AccessDenied:
    return AccessDenied(f"topic {topic}: Kafka's user may not read it; grant READ on it")


class DeliveredSchemas:
    """The schemas that a tenant's events are written under, read from its ``table-schemas`` topic when asked for."""

    def __init__(self, kafka: KafkaSettings, tenant: str) -> None:
        self._kafka = kafka
        self._topic = table_schemas_topic(tenant)
        self._known: dict[tuple[str, int], TableSchema] = {}
        self._looked_for: set[tuple[str, int]] = set()

    def of(self, message: Message) -> TableSchema | None:
        """The schema of a row event's record; None where it names no version or the version is not there."""
        version = header(message, SCHEMA_VERSION_HEADER)
        if version is None or not version.isdigit():
            return None
        wanted = (str(message.topic()), int(version))
        if wanted not in self._known and wanted not in self._looked_for:
            self._looked_for.add(wanted)
            self._read()
        return self._known.get(wanted)

    def _read(self) -> None:
        try:
            for delivered in _delivered_schemas(self._kafka, self._topic):
                self._known[delivered.topic, delivered.table_schema.version] = delivered.table_schema
        except (BrokerUnavailable, msgspec.DecodeError):
            return  # values stay in the event's own spelling


def delivered_topics(kafka: KafkaSettings, tenant: str) -> tuple[RowTopic, ...]:
    """The topics of ``tenant`` that rows were delivered to, under any of its document's names.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        AccessDenied: the user may not read the tenant's ``table-schemas``.
    """
    found = set()
    for delivered in _delivered_schemas(kafka, table_schemas_topic(tenant)):
        table_id = delivered.table_schema.table_id
        found.add(RowTopic(delivered.topic, tenant, delivered.source, table_id.database, table_id.table))
    return tuple(sorted(found, key=attrgetter("name", "source", "database", "table")))


def _delivered_schemas(kafka: KafkaSettings, topic: str) -> Iterator[DeliveredSchema]:
    consumer = open_consumer(kafka)
    try:
        starts = {(topic, partition): OFFSET_BEGINNING for partition in partitions_of(consumer, topic)}
        for message in read_to_end(consumer, starts, timeout_s=SCHEMAS_TIMEOUT_S):
            value = message.value()
            if value is not None:
                yield decode_delivered_schema(value)
    finally:
        consumer.close()


def header(message: Message, name: str) -> str | None:
    """The text of a record's header; None where it has none of that name."""
    headers: Any = message.headers() or []
    for key, value in headers:
        if key == name and value is not None:
            return bytes(value).decode(errors="replace")
    return None
