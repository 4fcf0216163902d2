"""Several readers that share a keyspace's shards: the settings of each, and the name of its source partition.

As Debezium's Vitess connector with ``vitess.offset.storage.per.task`` (its documentation, "offset storage mode"): each change
of the number of tasks is a generation with source partitions of its own.
"""

import re
from typing import Final

import msgspec


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One of several readers that share a keyspace's shards: dealt round-robin, sorted by name."""

    number: int
    """From 0."""
    of: int
    """How many there are (``tasks.max``)."""
    generation: int = 0
    """One more at each change of ``of`` (``vitess.offset.storage.task.key.gen``)."""
    previous_tasks: int = 1
    """How many there were in the generation before (``vitess.prev.num.tasks``). Generation 0 follows a reader without
    tasks."""


WHOLE_KEYSPACE: Final = "0"
"""The source partition of a reader without tasks."""
_PARTITION: Final = re.compile(r"task(\d+)_(\d+)_(\d+)")


def partition_name(tasks: TaskSettings | None) -> str:
    """The source partition.

    >>> partition_name(TaskSettings(number=1, of=2, generation=3))
    'task1_2_3'
    """
    return WHOLE_KEYSPACE if tasks is None else f"task{tasks.number}_{tasks.of}_{tasks.generation}"


def changes_partition(name: str) -> int:
    """The Kafka partition of the changes topic that a source partition of a keyspace is published to; a later generation's
    task of the same number has the same.

    >>> changes_partition("task1_2_3"), changes_partition("0")
    (1, 0)
    """
    task = task_of(name)
    return 0 if task is None else task.number


def task_of(name: str) -> TaskSettings | None:
    """The task whose source partition ``name`` is, its ``previous_tasks`` unknown; None: it is no task's.

    >>> task_of("task1_2_3")
    TaskSettings(number=1, of=2, generation=3, previous_tasks=1)
    """
    found = _PARTITION.fullmatch(name)
    if found is None:
        return None
    number, of, generation = map(int, found.groups())
    return TaskSettings(number=number, of=of, generation=generation)
