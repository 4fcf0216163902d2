"""How far a mesh's readers got, by the topic that they write their checkpoints to: for a mesh of which Kafka alone is reached.

checkpoint_committer itself answers the mesh's own pods alone. Nothing is written.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Final

from confluent_kafka import OFFSET_BEGINNING
from google.protobuf.message import DecodeError

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable
from libs.events.checkpoint_codec import checkpoint_key, decode_checkpoint
from libs.events.names import CHECKPOINTS_TOPIC
from libs.mesh.tenant_topics import open_consumer, partitions_of, read_to_end
from libs.source.vitess.tasks import task_of
from libs.types.checkpoint import Checkpoint

READ_TIMEOUT_S: Final = 120.0
"""The topic is compacted by the hour; later records are read once."""


class RecordedCheckpoints:
    """The newest checkpoint of each source partition. The topic is read once, and then its later records."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._next: dict[tuple[str, int], int] = {}
        self._newest: dict[bytes, Checkpoint] = {}

    def by_source(self, sources: Iterable[str]) -> dict[str, list[Checkpoint] | None]:
        """Of each source's readers; None: not all of them have written one yet. Blocks.

        Raises:
            BrokerUnavailable: Kafka does not answer, or has no such topic.
            AccessDenied: the user may not read it.
        """
        self._read_on()
        return {
            source: readers_now([each for each in self._newest.values() if each.partition.source == source])
            for source in sources
        }

    def _read_on(self) -> None:
        with closing(open_consumer(self._kafka)) as consumer:
            partitions = partitions_of(consumer, CHECKPOINTS_TOPIC)
            if not partitions:
                raise BrokerUnavailable(
                    f"Kafka shows no topic {CHECKPOINTS_TOPIC}, which readers write: look whether this is the mesh's "
                    "Kafka, and grant the user READ and DESCRIBE on it"
                )
            places = [(CHECKPOINTS_TOPIC, number) for number in partitions]
            starts = {place: self._next.get(place, OFFSET_BEGINNING) for place in places}
            for message in read_to_end(consumer, starts, timeout_s=READ_TIMEOUT_S):
                self._take(message.key() or b"", message.value())
                self._next[str(message.topic()), int(message.partition() or 0)] = int(message.offset() or 0) + 1

    def _take(self, key: bytes, value: bytes | None) -> None:
        """The newest of a key counts; leases and resets have other keys."""
        if value is None:
            self._newest.pop(key, None)
            return
        try:
            checkpoint = decode_checkpoint(value)
        except (DecodeError, ValueError):
            return
        if checkpoint_key(checkpoint.partition) == key:
            self._newest[key] = checkpoint


def readers_now(found: Sequence[Checkpoint]) -> list[Checkpoint] | None:
    """One source's checkpoints without those that earlier generations of its tasks left; None: a reader has none yet."""
    tasks = [(task, each) for each in found if (task := task_of(each.partition.name)) is not None]
    if not tasks:
        return list(found) or None
    newest = max(task.generation for task, _ in tasks)
    of_newest = [(task, each) for task, each in tasks if task.generation == newest]
    return [each for _, each in of_newest] if len(of_newest) == of_newest[0][0].of else None
