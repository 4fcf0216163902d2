"""Clients of the simulated Kafka, in the places of aiokafka's connection and of librdkafka's consumer and admin client.

aiokafka's producer itself (its transactions, its sender, its batches) is the real one: only ``AIOKafkaClient`` is replaced
here, which sends a request to a broker and waits for the answer.

Faults between the two are chosen by the seed (``Faults``): a request takes long, never comes, or its answer is lost; a
coordinator has moved; a leader is another. No request comes after its sender has given up and asked again: Kafka itself can
take it for one of the next transaction (KIP-890).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors
from aiokafka.protocol import produce, transaction
from confluent_kafka import KafkaError, KafkaException

from libs.errors import BrokerUnavailable, HeadwaterError, PipelineHalted
from tests.simulation.kafka import Kafka, Place
from tests.simulation.scheduler import Scheduler, here

_POLL_S: Final = 0.01
_NOT_COORDINATOR: Final = 16
_NOT_LEADER: Final = 6
_LOADING: Final = 14


@dataclass(slots=True)
class Faults:
    """How often each fault meets one request; all zero: none does."""

    slow: float = 0.0
    """It takes seconds."""
    longest_s: float = 3.0
    lost: float = 0.0
    """It never comes."""
    unanswered: float = 0.0
    """It is done, and nobody hears of it."""
    moved: float = 0.0
    """Somebody else is to be asked."""
    unavailable: float = 0.0
    """librdkafka and servers beside Kafka: no answer."""


class Wire:
    """The way to Kafka."""

    def __init__(self, scheduler: Scheduler, kafka: Kafka) -> None:
        self.scheduler = scheduler
        self.kafka = kafka
        self.faults = Faults()

    def happens(self, share: float) -> bool:
        """Whether a fault of this share does now."""
        return share > 0 and self.scheduler.random.random() < share

    def delay_s(self) -> float:
        """How long one way takes."""
        random = self.scheduler.random
        if self.happens(self.faults.slow):
            return random.uniform(0.3, self.faults.longest_s)
        return random.random() * 0.004


def _wire() -> Wire:
    wire: Wire = here().wire  # type: ignore[attr-defined]
    return wire


# --- aiokafka ------------------------------------------------------------------------------------------------------------


class Producer(AIOKafkaProducer):
    """aiokafka's. A killed process closes none."""

    def __del__(self) -> None:
        """Nothing to give back."""


class _Cluster:
    """A client's knowledge of topics."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """None: not known."""
        count = self.known.get(topic)
        return None if count is None else set(range(count))

    def leader_for_partition(self, place: Any) -> int | None:
        """The only broker."""
        return 0 if place.topic in self.known else None


class Client:
    """``AIOKafkaClient``."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop, request_timeout_ms: int, client_id: str, **_: Any) -> None:
        self._loop = loop
        self._timeout_s = request_timeout_ms / 1000
        self._client_id = client_id
        self._wire = _wire()
        self._topics: set[str] = set()
        self.cluster = _Cluster()

    async def bootstrap(self) -> None:
        """Connect."""
        await self._travel()
        if self._wire.happens(self._wire.faults.lost):
            raise kafka_errors.KafkaConnectionError("unable to bootstrap")

    async def close(self) -> None:
        """Nothing is open."""

    async def ready(self, _node: int, *, group: object = None) -> bool:
        """Whether a connection is there."""
        return True

    def get_random_node(self) -> int:
        """The only one."""
        return 0

    async def coordinator_lookup(self, _kind: object, _key: str) -> int:
        """The only broker."""
        await self._travel()
        if self._wire.happens(self._wire.faults.moved):
            raise kafka_errors.CoordinatorNotAvailableError
        return 0

    def set_topics(self, topics: Sequence[str]) -> "asyncio.Future[bool]":
        """Which to ask for."""
        new = set(topics) - self._topics
        self._topics = set(topics)
        if new or not topics:
            return self.force_metadata_update()
        known: asyncio.Future[bool] = self._loop.create_future()
        known.set_result(True)
        return known

    def force_metadata_update(self) -> "asyncio.Future[bool]":
        """Ask."""
        return asyncio.ensure_future(self._update())

    async def _update(self) -> bool:
        await self._travel()
        topics = self._wire.kafka.topics
        self.cluster.known = {topic: topics[topic] for topic in sorted(self._topics) if topic in topics}
        return True

    async def _maybe_wait_metadata(self) -> None:
        """It is there at once."""

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        deadline_s = self._loop.time() + self._timeout_s
        while (found := self.cluster.partitions_for_topic(topic)) is None:
            if self._loop.time() > deadline_s:
                raise kafka_errors.UnknownTopicOrPartitionError
            self._topics.add(topic)
            await self._update()
        return found

    async def send(self, _node: int, request: Any, *, group: object = None) -> Any:
        """A request's answer. Raises aiokafka's errors."""
        wire, faults = self._wire, self._wire.faults
        await self._travel()
        if wire.happens(faults.lost):
            wire.scheduler.note(f"{type(request).__name__} is lost")
            raise kafka_errors.KafkaConnectionError("connection lost")
        if wire.happens(faults.moved):
            return self._elsewhere(request)
        answer = self._done(request)
        if wire.scheduler.traces:
            wire.scheduler.note(f"{_brief(request)} -> {answer.__dict__}")
        await self._travel()
        if wire.happens(faults.unanswered):
            wire.scheduler.note(f"the answer to {type(request).__name__} is lost")
            raise kafka_errors.KafkaConnectionError("connection lost")
        return answer

    async def _travel(self) -> None:
        await asyncio.sleep(self._wire.delay_s())

    def _done(self, request: Any) -> Any:
        kafka = self._wire.kafka
        match request:
            case transaction.InitProducerIdRequest():
                error, producer_id, epoch = kafka.init_producer(
                    request._transactional_id, request._transaction_timeout_ms / 1000
                )
                return SimpleNamespace(error_code=error, producer_id=producer_id, producer_epoch=epoch)
            case transaction.AddPartitionsToTxnRequest():
                places = [Place(topic, number) for topic, numbers in request._topics for number in numbers]
                errors = kafka.add_partitions(*_who(request), sorted(places))
                return SimpleNamespace(errors=[(place.topic, [(place.number, error)]) for place, error in errors])
            case transaction.AddOffsetsToTxnRequest():
                return SimpleNamespace(error_code=kafka.add_group(*_who(request), request._group_id))
            case transaction.TxnOffsetCommitRequest():
                offsets = [
                    (Place(topic, number), offset, note)
                    for topic, numbers in request._topics
                    for number, offset, note in numbers
                ]
                error = kafka.commit_offsets(*_who(request), request._group_id, offsets)
                return SimpleNamespace(errors=[(place.topic, [(place.number, error)]) for place, _, _ in offsets])
            case transaction.EndTxnRequest():
                error = kafka.end_transaction(*_who(request), commits=bool(request._transaction_result))
                return SimpleNamespace(error_code=error)
            case produce.ProduceRequest():
                return _produced(
                    request,
                    lambda place, payload: kafka.produce(request._transactional_id, place, payload),
                )
        raise AssertionError(f"{type(request).__name__} is not simulated")

    def _elsewhere(self, request: Any) -> Any:
        error = self._wire.scheduler.random.choice((_NOT_COORDINATOR, _LOADING))
        match request:
            case transaction.AddPartitionsToTxnRequest():
                return SimpleNamespace(
                    errors=[(topic, [(number, error) for number in numbers]) for topic, numbers in request._topics]
                )
            case transaction.TxnOffsetCommitRequest():
                return SimpleNamespace(
                    errors=[
                        (topic, [(number, error) for number, _, _ in numbers]) for topic, numbers in request._topics
                    ]
                )
            case produce.ProduceRequest():
                return _produced(request, lambda _place, _payload: (_NOT_LEADER, -1))
        return SimpleNamespace(error_code=error, producer_id=-1, producer_epoch=-1)


def _who(request: Any) -> tuple[str, int, int]:
    return request._transactional_id, request._producer_id, request._producer_epoch


def _brief(request: Any) -> str:
    shown = {
        name.lstrip("_"): value for name, value in vars(request).items() if name not in ("_timeout", "_required_acks")
    }
    if isinstance(request, produce.ProduceRequest):
        shown["topics"] = [(topic, [number for number, _ in batches]) for topic, batches in request._topics]
    return f"{type(request).__name__.removesuffix('Request')} {shown}"


def _produced(request: Any, done: Callable[[Place, bytes], tuple[int, int]]) -> Any:
    answers = []
    for topic, batches in request._topics:
        parts = []
        for number, payload in batches:
            error, offset = done(Place(topic, number), bytes(payload))
            parts.append((number, error, offset, -1, 0, [], None))
        answers.append((topic, parts))
    return SimpleNamespace(topics=answers, API_VERSION=8)


# --- librdkafka ----------------------------------------------------------------------------------------------------------


def _ask(wire: Wire) -> None:
    """A question that blocks the thread. Raises KafkaException."""
    wire.scheduler.sleep(wire.delay_s())
    if wire.happens(wire.faults.unavailable):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))
    wire.kafka.tick()


class _Message:
    def __init__(self, offset: int, value: bytes | None, error: KafkaError | None = None) -> None:
        self._parts = offset, value, error

    def offset(self) -> int:
        """Of the record, or of the end."""
        return self._parts[0]

    def value(self) -> bytes | None:
        """The record's."""
        return self._parts[1]

    def error(self) -> KafkaError | None:
        """None: it is a record."""
        return self._parts[2]


class Consumer:
    """``confluent_kafka.Consumer``, of a member of no group."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._wire = _wire()
        self._place: Place | None = None
        self._offset = 0

    def committed(self, places: Sequence[Any], timeout: float) -> list[Any]:
        """Of ``read_committed``, stable offsets: those of open transactions are waited for."""
        wire = self._wire
        _ask(wire)
        deadline_s = wire.scheduler.now_s + timeout
        [asked] = places
        place, group = Place(asked.topic, asked.partition), self._config["group.id"]
        waits = self._config.get("isolation.level") == "read_committed"
        while waits and not wire.kafka.is_stable(group, place):
            if wire.scheduler.now_s > deadline_s:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            wire.scheduler.sleep(_POLL_S)
        found = wire.kafka.committed_offset(group, place)
        return [SimpleNamespace(offset=-1001 if found is None else found[0])]

    def assign(self, places: Sequence[Any]) -> None:
        """Read on from there."""
        [asked] = places
        self._place, self._offset = Place(asked.topic, asked.partition), asked.offset

    def unassign(self) -> None:
        """Read no more."""
        self._place = None

    def poll(self, timeout: float) -> _Message | None:
        """The next committed record, the end, or None."""
        wire, place = self._wire, self._place
        assert place is not None
        wire.scheduler.sleep(wire.delay_s())
        if wire.happens(wire.faults.unavailable):
            return None
        log, deadline_s = wire.kafka.logs[place], wire.scheduler.now_s + timeout
        while True:
            wire.kafka.tick()
            stored = next(log.committed_from(self._offset), None)
            if stored is not None:
                self._offset = stored.offset + stored.count
                return _Message(stored.offset, stored.payload)
            if self._config.get("enable.partition.eof"):
                return _Message(max(self._offset, log.stable_end), None, KafkaError(KafkaError._PARTITION_EOF))
            if wire.scheduler.now_s > deadline_s:
                return None
            wire.scheduler.sleep(_POLL_S)

    def close(self) -> None:
        """Nothing is open."""


class _Answer:
    """A future that is asked for once."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask

    def result(self, _timeout: float | None = None) -> Any:
        """Blocks."""
        return self._ask()


class AdminClient:
    """``confluent_kafka.admin.AdminClient``."""

    def __init__(self, _config: dict[str, Any]) -> None:
        self._wire = _wire()

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, _Answer]:
        """Each with an id; no topic is ever made again."""

        def ask() -> Any:
            _ask(self._wire)
            return SimpleNamespace(topic_id="simulated")

        return {name: _Answer(ask) for name in topics.topic_names}

    def list_consumer_groups(self, **_: Any) -> _Answer:
        """All."""

        def ask() -> Any:
            _ask(self._wire)
            groups = [SimpleNamespace(group_id=group) for group in self._wire.kafka.groups()]
            return SimpleNamespace(valid=groups, errors=[])

        return _Answer(ask)

    def list_consumer_group_offsets(
        self, requests: Sequence[Any], *, require_stable: bool, **_: Any
    ) -> dict[str, _Answer]:
        """Where they are to be stable: an error where one is not."""
        [request] = requests
        [asked] = request.topic_partitions
        group, place = request.group_id, Place(asked.topic, asked.partition)

        def ask() -> Any:
            _ask(self._wire)
            if require_stable and not self._wire.kafka.is_stable(group, place):
                raise KafkaException(KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT))
            offset, note = self._wire.kafka.committed_offset(group, place) or (-1001, "")
            found = SimpleNamespace(offset=offset, metadata=note, error=None)
            return SimpleNamespace(topic_partitions=[found])

        return {group: _Answer(ask)}


def create_topics(_settings: object, topics: Sequence[Any], *, is_trial: bool = False) -> dict[str, HeadwaterError]:
    """``libs.kafka.clients.create_topics``. Topics of ``wire.refused`` are not made."""
    if not topics:
        return {}
    wire = _wire()
    wire.scheduler.sleep(wire.delay_s())
    if wire.happens(wire.faults.unavailable):
        return {topic.name: BrokerUnavailable("Kafka did not answer") for topic in topics}
    refused: set[str] = getattr(wire, "refused", set())
    errors: dict[str, HeadwaterError] = {}
    for topic in topics:
        if topic.name in refused and topic.name not in wire.kafka.topics:
            errors[topic.name] = PipelineHalted(f"Kafka refuses topic {topic.name}")
        elif not is_trial:
            wire.kafka.create_topic(topic.name)
    return errors
