"""Several readers that share a keyspace's shards: who reads which, and what each is called.

As Debezium's Vitess connector with ``vitess.offset.storage.per.task`` (seed 002, "offset storage mode"): shards sorted by name
are dealt round-robin, and each change of the number of tasks is a generation with source partitions of its own.
"""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Final

import structlog

from libs.config.connections import KafkaSettings
from libs.errors import Fenced, PipelineHalted
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.source.publisher import Publisher
from libs.types.checkpoint import Checkpoint
from libs.types.position import SourcePartition
from services.vstream_reader.position import VitessPosition, decode_position
from services.vstream_reader.settings import TaskSettings

log = structlog.get_logger()

WHOLE_KEYSPACE: Final = "0"
"""The source partition of a reader without tasks."""


def partition_name(tasks: TaskSettings | None) -> str:
    """The source partition.

    >>> partition_name(TaskSettings(number=1, of=2, generation=3))
    'task1_2_3'
    """
    return WHOLE_KEYSPACE if tasks is None else f"task{tasks.number}_{tasks.of}_{tasks.generation}"


def dealt_shards(tasks: TaskSettings | None, shards: Sequence[str]) -> Sequence[str]:
    """The shards that a task reads; all where there are no tasks.

    >>> dealt_shards(TaskSettings(number=0, of=2), ["-80", "80-90", "90-"])
    ['-80', '90-']
    """
    ordered = sorted(shards)
    return ordered if tasks is None else ordered[tasks.number :: tasks.of]


def previous_partitions(tasks: TaskSettings) -> Sequence[Sequence[str]]:
    """The source partitions of the generation before, and of a reader without tasks: newest first.

    >>> previous_partitions(TaskSettings(number=0, of=4, generation=2, previous_tasks=2))
    [['task0_2_1', 'task1_2_1'], ['0']]
    """
    if tasks.generation == 0:
        return [[WHOLE_KEYSPACE]]
    before = [f"task{number}_{tasks.previous_tasks}_{tasks.generation - 1}" for number in range(tasks.previous_tasks)]
    return [before, [WHOLE_KEYSPACE]]


def taken_over(
    mine: Sequence[str], serving: Sequence[str], generations: Sequence[Sequence[VitessPosition]]
) -> VitessPosition | None:
    """The position of ``mine``, each shard's from the newest generation that has it; None: no generation has any.

    Raises:
        PipelineHalted: a shard has no position, or one that had is not read by anybody any more: shards were re-cut while
            nothing ran. The old readers follow that when they are started once more.
    """
    positions = [position for generation in generations for position in generation]
    if not positions:
        return None
    known = {entry.shard: (entry, position) for position in reversed(positions) for entry in position.vgtid}
    newest = next(generation for generation in generations if generation)
    lost = {entry.shard for position in newest for entry in position.vgtid} - set(serving)
    unknown = set(mine) - known.keys()
    if lost or unknown:
        raise PipelineHalted(
            f"the shards were re-cut since the generation before (gone: {', '.join(sorted(lost)) or 'none'}; without a "
            f"position: {', '.join(sorted(unknown)) or 'none'}): start that generation once more until it has followed the "
            "reshard, then this one"
        )
    return VitessPosition(
        vgtid=tuple(known[shard][0] for shard in mine),
        epochs={shard: known[shard][1].epochs[shard] for shard in mine},
        copied={shard: known[shard][1].copied[shard] for shard in mine if shard in known[shard][1].copied},
    )


async def previous_checkpoints(
    source: str, tasks: TaskSettings, *, committer: CheckpointCommitterClient, kafka: KafkaSettings, lease_s: float
) -> Sequence[Sequence[Checkpoint]]:
    """The last checkpoints of the generations before, once none of their readers can write any more.

    Waits for the leases of those that still run; then fences what may have lost its lease without knowing.

    Raises:
        ServiceUnavailable, BrokerUnavailable: try again.
    """
    found: list[list[Checkpoint]] = []
    for names in previous_partitions(tasks):
        generation = []
        for name in names:
            partition = SourcePartition(source=source, name=name)
            if await committer.checkpoint(partition) is not None:
                await _end_writers(partition, committer, kafka, lease_s)
                checkpoint = await committer.checkpoint(partition)
                generation += [checkpoint] if checkpoint is not None else []
        found.append(generation)
    return found


async def _end_writers(
    partition: SourcePartition, committer: CheckpointCommitterClient, kafka: KafkaSettings, lease_s: float
) -> None:
    owner = f"takeover-{uuid.uuid4()}"
    waits = False
    while True:
        try:
            token = await committer.acquire(partition, owner, lease_s)
            break
        except Fenced as error:
            if not waits:
                log.warning(
                    "previous_task_still_runs", reason=str(error), remedy="stop the tasks of the generation before"
                )
            waits = True
            await asyncio.sleep(1.0)
    try:
        await Publisher(kafka, partition, fencing_token=token, on_published=lambda _: None).start()
    finally:
        await committer.release(partition, owner, token)


def positions_of(generations: Sequence[Sequence[Checkpoint]]) -> Sequence[Sequence[VitessPosition]]:
    """What the checkpoints hold."""
    return [[decode_position(checkpoint.position) for checkpoint in generation] for generation in generations]
