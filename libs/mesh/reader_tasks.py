"""How many readers a keyspace has, and which generation of them runs: kept over starts, so that nobody counts.

The source's document says ``tasks``; ``<home>/data/tasks.json`` has the last number. Readers whose number changes are the next
generation, and take over from those before it (``services/vstream_reader/tasks.py``).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from libs.durable_file import replace_durably
from libs.errors import InvalidSettings
from libs.mesh.documents import Documents, SourceDocument, VitessDocument
from libs.mesh.home import Home
from libs.source.vitess.tasks import TaskSettings, partition_name
from libs.types.checkpoint import Checkpoint

_FILE: Final = "tasks.json"


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """The readers of one keyspace."""

    tasks: int
    generation: int = 0
    previous_tasks: int = 1


Generations = Mapping[str, Generation]
"""By source; of one that never had several readers there is none."""


def tasks_of(document: SourceDocument) -> int:
    """How many readers the document asks for."""
    return document.tasks if isinstance(document, VitessDocument) else 1


def next_generation(last: Generation | None, tasks: int) -> Generation | None:
    """The generation to run now, after ``last``; None: a reader without tasks, as ever.

    >>> next_generation(None, 1), next_generation(None, 2)
    (None, Generation(tasks=2, generation=0, previous_tasks=1))
    >>> next_generation(Generation(tasks=2), 3)
    Generation(tasks=3, generation=1, previous_tasks=2)
    """
    if last is None:
        return Generation(tasks=tasks) if tasks > 1 else None
    if last.tasks == tasks:
        return last
    return Generation(tasks=tasks, generation=last.generation + 1, previous_tasks=last.tasks)


def settings_of(generation: Generation | None) -> Sequence[TaskSettings | None]:
    """Each reader's settings, in the order of their numbers."""
    if generation is None:
        return (None,)
    return [
        TaskSettings(
            number=number,
            of=generation.tasks,
            generation=generation.generation,
            previous_tasks=generation.previous_tasks,
        )
        for number in range(generation.tasks)
    ]


def planned_generations(home: Home, documents: Documents) -> Generations:
    """The generations of a stack of ``documents`` that is started now. Raises as ``last_generations``."""
    last = last_generations(home)
    found = {name: next_generation(last.get(name), tasks_of(source)) for name, source in documents.sources.items()}
    return {name: generation for name, generation in found.items() if generation is not None}


def store_generations(home: Home, planned: Generations) -> None:
    """Before the readers are started. A source whose document is away keeps its last generation."""
    known = {**last_generations(home), **planned}
    if known:
        replace_durably(_file(home), msgspec.json.format(msgspec.json.encode(known)))


def last_generations(home: Home) -> Generations:
    """The generations started last.

    Raises:
        InvalidSettings: the file is broken; the message says how to mend it.
    """
    path = _file(home)
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Generation])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        raise InvalidSettings(
            str(path),
            [
                f"cannot be read: {error}; remove it: a reader that is started then says in its log which generation is next"
            ],
        ) from error


def of_todays_readers(found: Sequence[Checkpoint], generations: Generations) -> list[Checkpoint]:
    """Without those that earlier generations left behind."""
    names = {
        source: {partition_name(task) for task in settings_of(generation)} for source, generation in generations.items()
    }
    return [each for each in found if each.partition.name in names.get(each.partition.source, (each.partition.name,))]


def _file(home: Home) -> Path:
    return home.data_dir / _FILE
