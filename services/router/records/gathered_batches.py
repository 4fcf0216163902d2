"""The records of a transaction until they are sent: a batch for each Kafka partition, or for several that get the very same."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from aiokafka import TopicPartition

from services.router.records.partitioner import kafka_partition_of
from services.router.records.record_batch import GrowingRecords, Records
from services.router.records.record_bytes import BatchRecords, PassedRows


@dataclass(slots=True, eq=False)
class Gathered:
    """Records that will be one batch of a Kafka partition, or of several that get the very same."""

    records: BatchRecords
    places: list[TopicPartition]

    def joined_by(self, topic: str, other: "Gathered") -> "Gathered":
        """This one, from now on for the other's ``topic`` too; both are empty."""
        if other is not self:
            self.places += other._give_up([topic])
        return self

    def parted(self, topics: Sequence[str]) -> "Gathered":
        """The same records so far, for ``topics`` alone: later ones are for them and not for the others."""
        return Gathered(self.records.copy(), self._give_up(topics))

    def _give_up(self, topics: Sequence[str]) -> list[TopicPartition]:
        given_up = [place for place in self.places if place.topic in topics]
        self.places = [place for place in self.places if place.topic not in topics]
        return given_up


class GatheredBatches:
    """For each topic that the running transaction writes to, and for each of its Kafka partitions, the batch to be; topics
    that get the very same records share it."""

    def __init__(
        self,
        batches_of: Callable[[str], Awaitable[list[Gathered]]],
        send: Callable[[Gathered], Awaitable[None]],
    ) -> None:
        """``batches_of``: the empty batches of a topic that is new to the transaction. ``send``: takes a full batch, which is
        empty afterwards."""
        self._batches_of = batches_of
        self._send = send
        self._by_topic: dict[str, list[Gathered]] = {}
        self.size_bytes = 0
        self._turn = 0

    def clear(self) -> None:
        """Forget all topics: one may have got more Kafka partitions."""
        self._by_topic.clear()

    def with_records(self) -> Iterator[Gathered]:
        """The batches that are not empty when their turn comes, in the order of their topics: one that several topics share is
        sent once, and empty at the others' turns."""
        for batches in list(self._by_topic.values()):
            for gathered in batches:
                if len(gathered.records):
                    yield gathered

    async def write(self, records: Records | PassedRows, topics: Iterable[str]) -> None:
        """Add the records to each topic's batches. Raises as ``batches_of`` and ``send``."""
        alike: dict[Gathered, list[str]] = {}
        empty: Gathered | None = None
        for topic in topics:
            batches = self._by_topic.get(topic) or await self._new_topic(topic)
            if len(batches) > 1:
                await self._spread(records, batches)
                continue
            if not len(batches[0].records):
                empty = batches[0] = batches[0] if empty is None else empty.joined_by(topic, batches[0])
            alike.setdefault(batches[0], []).append(topic)
        for gathered, sharers in alike.items():
            if len(sharers) < len(gathered.places):
                gathered = gathered.parted(sharers)
                self.size_bytes += gathered.records.size_bytes
                self._by_topic |= {topic: [gathered] for topic in sharers}
            await self._gather(gathered, records)

    async def _new_topic(self, topic: str) -> list[Gathered]:
        batches = self._by_topic[topic] = await self._batches_of(topic)
        return batches

    async def _spread(self, records: Records | PassedRows, batches: Sequence[Gathered]) -> None:
        """To each Kafka partition its records. Those without a key may go anywhere: all to one, to another each time."""
        self._turn += 1
        count = len(batches)
        keyless = self._turn % count
        if isinstance(records, PassedRows):
            numbers = records.kafka_partitions(count, keyless)
            for number, gathered in enumerate(batches):
                await self._gather(gathered, records, numbers, number)
            return
        parts: defaultdict[int, GrowingRecords] = defaultdict(GrowingRecords)
        for key, value, headers in zip(*records, strict=True):
            parts[keyless if key is None else kafka_partition_of(key, count)].add(key, value, headers)
        for number, part in parts.items():
            await self._gather(batches[number], part.records)

    async def _gather(
        self, gathered: Gathered, records: Records | PassedRows, numbers: bytes | None = None, number: int = 0
    ) -> None:
        """Fill one batch after the other; with ``numbers``, by the rows of that ``number``."""
        batch, done = gathered.records, 0
        while True:
            before = batch.size_bytes
            if isinstance(records, PassedRows):
                done = batch.add_rows(records, done, numbers, number)
                is_done = done == len(records)
            else:
                done = batch.add_columns(*records, done)
                is_done = done == len(records.values)
            self.size_bytes += batch.size_bytes - before
            if is_done:
                return
            await self._send(gathered)
