"""Several readers that share a keyspace's shards: each one's shards, and the work that a new one takes over.

Shards sorted by name are dealt round-robin. Each change of the number of tasks is a generation, which takes over from those
before it; ``libs.source.vitess.tasks`` has the names.
"""

import asyncio
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec
import structlog
from confluent_kafka.admin import AdminClient

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable, Fenced, PipelineHalted, SourceMisconfigured
from libs.events.names import changes_topic
from libs.kafka.clients import client_config
from libs.kafka.tail import fetch_end_offsets
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.source import incremental
from libs.source.port import ReadBatch, ResumePoint
from libs.source.publisher import Publisher
from libs.source.signal_topic import beginning_of
from libs.source.vitess.tasks import WHOLE_KEYSPACE, TaskSettings, changes_partition, partition_name, task_of
from libs.source.vitess.vgtid import ShardGtid, TableLastKey
from libs.types.checkpoint import NO_INCREMENTAL, Checkpoint, FencingToken, IncrementalSnapshot
from libs.types.position import SourcePartition
from services.vstream_reader.copy_progress import copying_shards
from services.vstream_reader.position import (
    Deal,
    LetGo,
    VitessPosition,
    decode_position,
    followed_to_its_end,
    position_of,
)
from services.vstream_reader.vgtid import lies_within, overlap

log = structlog.get_logger()

_NOTE_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a source partition goes on, or begins."""

    position: VitessPosition
    """Of its own shards."""
    is_copying: bool
    """Tables are being copied there."""
    incremental: IncrementalSnapshot = NO_INCREMENTAL
    """Former signals' pending requests."""
    awaited: Mapping[int, int] = field(default_factory=dict)
    """Up to where the changes topic is routed first, by Kafka partition: the shards' former readers have published there."""
    must_commit_first: bool = False
    """To be committed before anything is read: the other tasks begin by it."""
    was_reset: bool = False
    """A person had reset the readers that had the shards before: all is to be copied again."""


def dealt_shards(tasks: TaskSettings | None, shards: Sequence[str]) -> Sequence[str]:
    """The shards that a task reads; all where there are no tasks.

    >>> dealt_shards(TaskSettings(number=0, of=2), ["-80", "80-90", "90-"])
    ['-80', '90-']
    """
    ordered = sorted(shards)
    return ordered if tasks is None else ordered[tasks.number :: tasks.of]


def dealt_beginning(deal: Deal, tasks: TaskSettings, serving: Sequence[str]) -> VitessPosition:
    """Where a task that has read nothing begins, as task 0 dealt: all tasks come to the same, whichever shards serve when each
    begins. ``serving``: the shards that serve now.

    Raises:
        SourceMisconfigured: there are more tasks than shards, and none for this one.
    """
    entries = {entry.shard: entry for entry in deal.beginnings}
    mine = dealt_shards(tasks, list(entries))
    if not mine:
        raise SourceMisconfigured(
            f"task {tasks.number} has no shard to read: there are {tasks.of} tasks and {len(entries)} shard(s) "
            f"({', '.join(entries)}); read with at most {len(entries)} tasks"
        )
    position = VitessPosition(
        vgtid=tuple(entries[shard] for shard in mine),
        epochs=dict.fromkeys(mine, 0),
        deal=deal if tasks.number == 0 else None,
    )
    return followed_where_ended(position, deal.executed, serving)


def followed_where_ended(
    position: VitessPosition, executed: Mapping[str, str], serving: Sequence[str]
) -> VitessPosition:
    """The position with every shard that has not begun and serves no more followed from where it stood when it was dealt. To
    begin it now would be after the journal that ended it, which then never came."""
    for entry in position.vgtid:
        if not entry.is_place and executed.get(entry.shard) and entry.shard not in serving:
            log.info("shard_ended_before_it_began", shard=entry.shard, followed_from=executed[entry.shard])
            position = followed_to_its_end(position, entry.shard, executed[entry.shard])
    return position


def shards_to_copy(
    tasks: TaskSettings | None, position: VitessPosition, serving: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """The shards of a reader that copies everything once more: all that serve, and of a task those that it reads. And those of
    a task that a reshard after its position has joined with other tasks' shards: they come to one task first (``reshard``).

    A reshard may have left a task other shards than ``dealt_shards`` gives it now. Where it happened after the task's
    position, the task copies the shards that its own became, be they split or joined.

    >>> before = VitessPosition(vgtid=(ShardGtid(keyspace="ks", shard="-80", gtid=""),))
    >>> shards_to_copy(TaskSettings(number=0, of=2), before, ["-40", "40-80", "80-"])
    (['-40', '40-80'], [])
    >>> shards_to_copy(TaskSettings(number=0, of=2), before, ["-40", "40-"])
    ([], ['-80'])
    """
    if tasks is None:
        return sorted(serving), []
    own = {entry.shard for entry in position.vgtid}
    gone = own - set(serving)
    born = {shard for shard in serving if shard not in own and any(overlap(shard, ended) for ended in gone)}
    joined: set[str] = set()
    shared = {shard for shard in born if not lies_within(shard, gone)}
    while shared:  # a shard's other successors come to the same task
        born -= shared
        joined |= {ended for ended in gone if any(overlap(shard, ended) for shard in shared)}
        shared = {shard for shard in born if any(overlap(shard, ended) for ended in joined)}
    return sorted((own - gone) | born), sorted(joined)


def previous_partitions(tasks: TaskSettings) -> Sequence[Sequence[str]]:
    """The source partitions of the generation before, and of a reader without tasks: newest first.

    >>> previous_partitions(TaskSettings(number=0, of=4, generation=2, previous_tasks=2))
    [['task0_2_1', 'task1_2_1'], ['0']]
    """
    if tasks.generation == 0:
        return [[WHOLE_KEYSPACE]]
    before = [f"task{number}_{tasks.previous_tasks}_{tasks.generation - 1}" for number in range(tasks.previous_tasks)]
    return [before, [WHOLE_KEYSPACE]]


def is_former_partition(tasks: TaskSettings | None, name: str) -> bool:
    """A reader of the source partition ``name`` may have acted on a task's signals before the task ever ran.

    >>> third = TaskSettings(number=0, of=2, generation=2, previous_tasks=4)
    >>> [is_former_partition(third, name) for name in ("0", "task5_9_0", "task3_4_1", "task1_2_2")]
    [True, True, True, False]
    """
    if tasks is None:
        return False
    found = task_of(name)
    return name == WHOLE_KEYSPACE or (found is not None and found.generation < tasks.generation)


def earlier_partitions(tasks: TaskSettings | None, known: Iterable[str]) -> Sequence[Sequence[str]]:
    """The source partitions of every generation before, newest first; that of a reader without tasks is the last.

    ``known``: those of the source that have a checkpoint. A generation whose tasks did not all begin left its other shards to
    the one before it, so the generation before alone does not do.

    >>> earlier_partitions(TaskSettings(number=0, of=2, generation=3, previous_tasks=4), ["0", "task0_4_2", "task0_3_1"])
    [['task0_4_2', 'task1_4_2', 'task2_4_2', 'task3_4_2'], ['task0_3_1'], ['0']]

    Raises:
        PipelineHalted: a generation of this number, or a later one, has read the source with another number of tasks: its
            shards would be begun again.
    """
    read = sorted((found.generation, name, found) for name in known if (found := task_of(name)) is not None)
    newest = read[-1][2] if read else None
    if newest is not None and (
        tasks is None
        or newest.generation > tasks.generation
        or any(found.generation == tasks.generation and found.of != tasks.of for _, _, found in read)
    ):
        wanted = 1 if tasks is None else tasks.of
        raise PipelineHalted(
            f"the keyspace was read by {newest.of} task(s) of generation {newest.generation} last, and this reader would begin "
            f"its shards again: to read with {wanted}, start tasks of generation {newest.generation + 1} (tasks.of: {wanted}, "
            f"tasks.generation: {newest.generation + 1}, tasks.previous_tasks: {newest.of})"
        )
    if tasks is None:
        return []
    generations: dict[int, dict[str, None]] = {}
    if tasks.generation > 0:
        generations[tasks.generation - 1] = dict.fromkeys(previous_partitions(tasks)[0])
    for generation, name, _ in read:
        if generation < tasks.generation:
            generations.setdefault(generation, {})[name] = None
    return [*(list(generations[number]) for number in sorted(generations, reverse=True)), [WHOLE_KEYSPACE]]


@dataclass(frozen=True, slots=True)
class LastPlace:
    """Where a shard was read to."""

    entry: ShardGtid
    epoch: int
    copied: tuple[TableLastKey, ...] | None
    """As in a position; None: it is not being copied, or has not begun."""
    reader: tuple[int, int]
    """Whose position has it: which generation, and which of it."""
    executed: str = ""
    """Of one that has not begun: where it stood when it was dealt."""


def last_places(generations: Sequence[Sequence[VitessPosition]]) -> Mapping[str, LastPlace]:
    """Where each shard was read to, by the newest generation that has it; ``generations``: newest first.

    A shard of which a newer generation has a part, or that it has a part of, is that generation's under another name. So is
    one that a task let go, and that another of the same generation reads since; and one that was dealt to a task before its
    start, if nobody reads it.
    """
    found: dict[str, LastPlace] = {}
    for nth, positions in enumerate(generations):
        numbered = list(enumerate(positions))
        executed = {
            shard: at for each in positions if each.deal is not None for shard, at in each.deal.executed.items()
        }
        read = [(number, position, position.vgtid) for number, position in numbered]
        left = [(number, part, part.vgtid) for number, position in numbered for part in position.let_go]
        dealt = [(number, each, each.deal.beginnings) for number, each in numbered if each.deal is not None]
        for parts in (read, left, dealt):
            known = set(found)
            for number, part, vgtid in parts:
                for entry in vgtid:
                    if not any(_covers(name, entry.shard) for name in known):
                        epoch, copied = part.epochs.get(entry.shard, 0), part.copied.get(entry.shard)
                        at = "" if entry.is_place else executed.get(entry.shard, "")
                        found[entry.shard] = LastPlace(entry, epoch, copied, (nth, number), at)
    return found


def _covers(known: str, shard: str) -> bool:
    """Of names without a range each is a shard by itself."""
    return known == shard or ("-" in known and "-" in shard and overlap(known, shard))


def taken_over(tasks: TaskSettings, serving: Sequence[str], places: Mapping[str, LastPlace]) -> VitessPosition:
    """The start of a task of a new generation: its share of the formerly read shards, each at its last place.

    They are dealt under the names that they had then, not those of now: all tasks of a generation come to the same, whenever
    each begins. vtgate leads from a shard that was re-cut to those that serve; where it joined those of several tasks, as
    ``reshard``.

    Raises:
        PipelineHalted: a shard that was read has no successor, or one that serves was never read; rows would be lost.
        SourceMisconfigured: there are more tasks than shards, and none for this one.
    """
    gone, born = places.keys() - set(serving), set(serving) - places.keys()
    lost = [shard for shard in sorted(gone) if not any(overlap(shard, other) for other in born)]
    unread = [shard for shard in sorted(born) if not any(overlap(shard, other) for other in gone)]
    if lost or unread:
        raise PipelineHalted(
            f"the shards that serve are not those that were read (gone: {', '.join(lost) or 'none'}; never read: "
            f"{', '.join(unread) or 'none'}): name in 'shards' those that were read, or follow the keyspace "
            "under another source name"
        )
    mine = dealt_shards(tasks, list(places))
    if not mine:
        raise SourceMisconfigured(
            f"task {tasks.number} has no shard to read: {tasks.of} tasks go on with {len(places)} shard(s) "
            f"({', '.join(sorted(places))}); read with at most {len(places)} tasks"
            + ", and with more in the generation after, once these have followed the reshard"
            * bool(gone)
        )
    copied = {shard: keys for shard in mine if (keys := places[shard].copied) is not None}
    position = VitessPosition(
        vgtid=tuple(places[shard].entry for shard in mine),
        epochs={shard: places[shard].epoch for shard in mine},
        copied=copied,
    )
    return followed_where_ended(position, {shard: places[shard].executed for shard in mine}, serving)


async def take_over(
    tasks: TaskSettings | None,
    source: str,
    serving: Sequence[str],
    *,
    committer: CheckpointCommitterClient,
    kafka: KafkaSettings,
    lease_s: float,
) -> Beginning | None:
    """A task's inheritance from former generations: the position of its shards, and their pending copies.

    None: none has read anything. ``tasks`` None: a reader without tasks, which takes nothing over. ``serving``: the shards
    that serve now.

    Waits until none of their readers runs; then fences those that may have lost their lease unknowingly, and notes in their
    checkpoints that they were taken over: a reader of theirs that is started again halts (``require_own_generation``). Those
    that another task of this generation has noted are done with.

    Raises:
        PipelineHalted, SourceMisconfigured: as ``taken_over`` and ``earlier_partitions``; nothing is noted then, so the
            generation before can go on.
        ServiceUnavailable, BrokerUnavailable, Fenced: try again.
    """
    # The view holds all that was committed before: the caller has asked for its own checkpoint, after the read barrier.
    listed = [each.partition.name for each in await committer.list_checkpoints() if each.partition.source == source]
    owner = f"takeover-{uuid.uuid4()}"
    partitions = [
        [SourcePartition(source=source, name=name) for name in names] for names in earlier_partitions(tasks, listed)
    ]
    every = [partition for names in partitions for partition in names]
    known = {p: checkpoint for p in every if (checkpoint := await committer.checkpoint(p)) is not None}
    going_on = [p for p, checkpoint in known.items() if not decode_position(checkpoint.position).taken_over_by]
    tokens = await _all_leases(going_on, owner, committer, lease_s)
    try:
        publishers = {p: _publisher(kafka, p, token) for p, token in tokens.items()}
        for publisher in publishers.values():
            await publisher.start()
        found = {p: checkpoint for p in known if (checkpoint := await committer.checkpoint(p)) is not None}
        generations = [[found[p] for p in names if p in found] for names in partitions]
        places = last_places([[decode_position(each.position) for each in generation] for generation in generations])
        if tasks is None or not places:
            return None
        position = taken_over(tasks, serving, places)
        before = [generations[n][of] for n, of in sorted({places[entry.shard].reader for entry in position.vgtid})]
        states = [
            await with_signals_offset(state, checkpoint.partition, kafka)
            for checkpoint in before
            for state in _asked(checkpoint, position)
        ]
        was_reset = any(map(_was_reset, before))
        names = [checkpoint.partition.name for checkpoint in before]
        awaited = await published_ends(source, partition_name(tasks), names, kafka)
        for partition, publisher in publishers.items():
            await _note_taken_over(found[partition], publisher, partition_name(tasks), committer)
    finally:
        for partition, token in tokens.items():
            await committer.release(partition, owner, token)
    return Beginning(
        position, bool(copying_shards(position)), incremental.taken_over(states), awaited, was_reset=was_reset
    )


def _was_reset(checkpoint: Checkpoint) -> bool:
    """A person reset it, and its reader had not begun again when it was taken over. A reset after that counts for nothing."""
    position = decode_position(checkpoint.position)
    return position.was_reset or (checkpoint.starts_over and not position.taken_over_by)


def _asked(checkpoint: Checkpoint, position: VitessPosition) -> Iterator[IncrementalSnapshot]:
    """A task's requests about shards of ``position``: for released ones, as of the release."""
    yield checkpoint.incremental
    for part in decode_position(checkpoint.position).let_go:
        if any(entry in part.vgtid for entry in position.vgtid):
            yield part.incremental


async def with_signals_offset(
    state: IncrementalSnapshot, partition: SourcePartition, kafka: KafkaSettings
) -> IncrementalSnapshot:
    """A task's requests, with the place of its signals: one whose first copy had not ended had not looked at them."""
    if state.signals_offset is not None:
        return state
    offset = await asyncio.to_thread(beginning_of, kafka, partition)
    return msgspec.structs.replace(state, signals_offset=offset)


async def published_ends(source: str, own: str, others: Iterable[str], kafka: KafkaSettings) -> Mapping[int, int]:
    """End offsets of the Kafka partitions of the changes topic that ``others``, source partitions, publish to: records that
    one of them has committed stand below. The Kafka partition of ``own`` is left out, because it has an order of its own.

    Raises:
        BrokerUnavailable: try again.
    """
    numbers = sorted({changes_partition(other) for other in others} - {changes_partition(own)})
    if not numbers:
        return {}
    admin = AdminClient(client_config(kafka))
    # Not the last stable offsets: the end of a transaction is written to each partition by itself, to this one perhaps last.
    return await asyncio.to_thread(fetch_end_offsets, admin, changes_topic(source), numbers)


class Fellows(Protocol):
    """The other tasks of a task's generation."""

    async def positions(self) -> Mapping[int, VitessPosition]:
        """Each one's commits, by its number; none of one that has not begun.

        Raises:
            ServiceUnavailable: try again.
        """
        ...

    async def asked(self, added: Mapping[int, Sequence[LetGo]]) -> Sequence[IncrementalSnapshot]:
        """The tasks' requests when they released shards, with the place of their signals; by their numbers.

        Raises:
            BrokerUnavailable: try again.
        """
        ...

    async def published_ends(self, numbers: Iterable[int]) -> Mapping[int, int]:
        """Where the Kafka partitions end that tasks of these numbers publish to; see ``tasks.published_ends``.

        Raises:
            BrokerUnavailable: try again.
        """
        ...


@dataclass(frozen=True, slots=True)
class CommittedFellows:
    """``Fellows`` from checkpoint_committer."""

    tasks: TaskSettings
    source: str
    committer: CheckpointCommitterClient
    kafka: KafkaSettings

    async def positions(self) -> Mapping[int, VitessPosition]:
        """See ``Fellows.positions``."""
        numbers = [number for number in range(self.tasks.of) if number != self.tasks.number]
        found = await asyncio.gather(*(self.committer.checkpoint(self._partition(number)) for number in numbers))
        return {
            number: decode_position(checkpoint.position)
            for number, checkpoint in zip(numbers, found, strict=True)
            if checkpoint is not None
        }

    async def asked(self, added: Mapping[int, Sequence[LetGo]]) -> Sequence[IncrementalSnapshot]:
        """See ``Fellows.asked``."""
        return [
            await with_signals_offset(part.incremental, self._partition(number), self.kafka)
            for number, parts in added.items()
            for part in parts
        ]

    async def published_ends(self, numbers: Iterable[int]) -> Mapping[int, int]:
        """See ``Fellows.published_ends``."""
        names = [self._partition(number).name for number in numbers]
        return await published_ends(self.source, partition_name(self.tasks), names, self.kafka)

    def _partition(self, number: int) -> SourcePartition:
        task = msgspec.structs.replace(self.tasks, number=number)
        return SourcePartition(source=self.source, name=partition_name(task))


def require_own_generation(position: VitessPosition, tasks: TaskSettings | None) -> None:
    """Raises PipelineHalted: the shards were taken over by tasks of a later generation."""
    if position.taken_over_by:
        raise PipelineHalted(
            f"the shards of {partition_name(tasks)} were taken over by {position.taken_over_by}, a task of a later "
            "generation: stop this reader; to read with as many tasks as it belongs to, start them as the next generation "
            "(tasks.generation)"
        )


async def _all_leases(
    partitions: Sequence[SourcePartition], owner: str, committer: CheckpointCommitterClient, lease_s: float
) -> dict[SourcePartition, FencingToken]:
    """Of all or of none: a waiting task holds nothing, so tasks that start together do not wait for one another."""
    is_logged = False
    while True:
        tokens: dict[SourcePartition, FencingToken] = {}
        try:
            for partition in partitions:
                tokens[partition] = await committer.acquire(partition, owner, lease_s)
        except Fenced as error:
            for partition, token in tokens.items():
                await committer.release(partition, owner, token)
            if not is_logged:
                log.warning(
                    "previous_task_still_runs", reason=str(error), remedy="stop the tasks of the generation before"
                )
            is_logged = True
            await asyncio.sleep(1.0)
        else:
            return tokens


def _publisher(kafka: KafkaSettings, partition: SourcePartition, token: FencingToken) -> Publisher:
    return Publisher(kafka, partition, fencing_token=token, on_published=lambda _: None)


async def _note_taken_over(
    checkpoint: Checkpoint, publisher: Publisher, by: str, committer: CheckpointCommitterClient
) -> None:
    """Raises BrokerUnavailable: it was not noted."""
    position = decode_position(checkpoint.position)
    if position.taken_over_by:
        return
    noted = msgspec.structs.replace(position, taken_over_by=by, was_reset=_was_reset(checkpoint))
    resume = ResumePoint(
        position=position_of(noted),
        order=checkpoint.order,
        committed_at_us=checkpoint.committed_at_us,
        snapshot=checkpoint.snapshot,
        incremental=checkpoint.incremental,
    )
    publisher.run(checkpoint.rows_published)
    try:
        await publisher.publish(ReadBatch(payload=b"", rows=0, resume=resume))
    finally:
        await publisher.stop(_NOTE_TIMEOUT_S)
    kept = await committer.checkpoint(checkpoint.partition)
    if kept is None or not decode_position(kept.position).taken_over_by:
        raise BrokerUnavailable(f"the takeover of {checkpoint.partition.name} was not noted: it is tried again")
