"""Several readers that share a keyspace's shards: who reads which, and what each is called.

As Debezium's Vitess connector with ``vitess.offset.storage.per.task`` (seed 002, "offset storage mode"): shards sorted by name
are dealt round-robin, and each change of the number of tasks is a generation with source partitions of its own.
"""

from collections.abc import Sequence
from typing import Final

from services.vstream_reader.settings import TaskSettings

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


def previous_partitions(tasks: TaskSettings) -> Sequence[str]:
    """The source partitions of the generation before."""
    if tasks.generation == 0:
        return [WHOLE_KEYSPACE]
    names = [f"task{number}_{tasks.previous_tasks}_{tasks.generation - 1}" for number in range(tasks.previous_tasks)]
    return [*names, WHOLE_KEYSPACE] if tasks.generation == 1 and tasks.previous_tasks == 1 else names
