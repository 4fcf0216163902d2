"""A reshard that joins shards of several tasks: how they come to be one task's.

vtgate follows a journal only in a stream that has every shard which the journal ends. So each task lets its own ones go, where
they stand before the journal, and reads its others on; when all have, the task of the lowest number among them takes them up,
its stream meets the journal with all of them, and goes on to the new shards. A released shard stands in its former reader's
checkpoint, a taken one in its new reader's: a task that is killed anywhere goes on by its own notes.

    let go (each task) ▶ all there? ▶ taken up (the lowest) ▶ noted: forgotten (the others) ▶ forgotten (the lowest)

Where the log of some was purged before they came to the journal (``snapshot.mode: when_needed``), there is no following it:
they are released as lost, and task 0 alone copies the shards that serve in the place of all of them.

Plain functions from positions to positions; ``source`` opens and ends the streams.
"""

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from libs.source.incremental import taken_over
from libs.source.vitess.vgtid import EMPTY, ShardGtid
from libs.types.checkpoint import IncrementalSnapshot
from protos.vitess import binlogdata_pb2
from services.vstream_reader.position import LetGo, VitessPosition
from services.vstream_reader.vgtid import inherited_epoch, lies_within, overlap, shard_gtid_from_proto


@dataclass(frozen=True, slots=True)
class Settled:
    """A task's step after a look at the others' checkpoints."""

    position: VitessPosition
    added: Mapping[int, Sequence[LetGo]] = field(default_factory=dict)
    """The shards that it takes up, by their former task, itself included: its stream is opened again, with these shards."""
    awaited: Set[str] = frozenset()
    """Shards that nobody has let go yet."""


def ended_shards(journal: binlogdata_pb2.Journal) -> frozenset[str]:
    """The shards that a journal ends."""
    return frozenset(participant.shard for participant in journal.participants)


def followed(place: VitessPosition, journal: binlogdata_pb2.Journal) -> VitessPosition:
    """The place once every shard that the journal ends has come to it: the new shards begin where it says.

    vtgate, which leads on by itself, reports them with the next change only.
    """
    ended = ended_shards(journal)
    born = tuple(shard_gtid_from_proto(entry) for entry in journal.shard_gtids)
    kept = tuple(entry for entry in place.vgtid if entry.shard not in ended)
    epochs = {entry.shard: place.epochs[entry.shard] for entry in kept}
    epochs |= {entry.shard: inherited_epoch(entry.shard, place.epochs) for entry in born}
    copied = {shard: keys for shard, keys in place.copied.items() if shard not in ended}
    return msgspec.structs.replace(place, vgtid=(*kept, *born), epochs=epochs, copied=copied)


def let_go(
    position: VitessPosition,
    journal_id: int,
    ended: Sequence[str],
    incremental: IncrementalSnapshot,
    *,
    staying: Set[str] = frozenset(),
) -> VitessPosition:
    """The position without the shards of it that the journal ends; where they stood is kept in it. ``staying``: shards that
    are not let go yet.

    Others may have been let go for the same journal before: a merge of shards that another merge, which came late, has made.
    """
    gone = ({entry.shard for entry in position.vgtid} & set(ended)) - staying
    before = _let_go_for(journal_id, position) or LetGo(journal_id=journal_id, ended=tuple(sorted(ended)))
    left = LetGo(
        journal_id=journal_id,
        ended=before.ended,
        vgtid=(*before.vgtid, *(entry for entry in position.vgtid if entry.shard in gone)),
        epochs={**before.epochs, **{shard: position.epochs[shard] for shard in gone}},
        copied={**before.copied, **{shard: keys for shard, keys in position.copied.items() if shard in gone}},
        incremental=taken_over([before.incremental, incremental]) if before.vgtid else incremental,
    )
    return msgspec.structs.replace(
        position,
        vgtid=tuple(entry for entry in position.vgtid if entry.shard not in gone),
        epochs={shard: epoch for shard, epoch in position.epochs.items() if shard not in gone},
        copied={shard: keys for shard, keys in position.copied.items() if shard not in gone},
        let_go=(*(part for part in position.let_go if part.journal_id != journal_id), left),
    )


def lost(position: VitessPosition, shards: Sequence[str], incremental: IncrementalSnapshot) -> VitessPosition:
    """The position without shards that were joined with other tasks', and whose log is purged; that is kept in it."""
    if not shards:
        return position
    gone = [entry for entry in position.vgtid if entry.shard in shards]
    digest = hashlib.sha256(msgspec.json.encode(gone)).digest()
    number = -1 - int.from_bytes(digest[:7])  # each task's own: the task that takes them up names it
    after = let_go(position, number, sorted(shards), incremental)
    *before, left = after.let_go
    return msgspec.structs.replace(after, let_go=(*before, msgspec.structs.replace(left, is_lost=True, copied={})))


def has_lost(own: VitessPosition, others: Mapping[int, VitessPosition]) -> bool:
    """Some task lists shards that were let go as lost."""
    return any(part.is_lost for position in (own, *others.values()) for part in position.let_go)


def copied_again(own: VitessPosition, others: Mapping[int, VitessPosition], serving: Sequence[str]) -> Settled:
    """Task 0's step for shards that were released as lost, and those that wait for them; ``serving``: the shards that serve.

    It alone takes them up, so no two tasks do, in any order of their looks. It waits until no task reads what became of
    them, and until all that became of them was somebody's.
    """
    positions = {0: own, **others}
    taken = {journal for position in positions.values() for journal in position.taken_up}
    parts = [(task, p) for task, position in positions.items() for p in position.let_go if p.journal_id not in taken]
    whole = {part.journal_id for _, part in parts if _is_whole(part, [each for _, each in parts])}
    # The others are followed to their journal.
    parts = [(task, part) for task, part in parts if part.journal_id not in whole]
    gone = {entry.shard for _, part in parts if part.is_lost for entry in part.vgtid}
    born: set[str] = set()
    reached = -1
    while reached < len(gone):
        reached = len(gone)
        born = {shard for shard in serving if any(overlap(shard, name) for name in gone)}
        for _, part in parts:
            names = {entry.shard for entry in part.vgtid}
            if gone & set(part.ended) or any(overlap(name, shard) for name in names for shard in born):
                gone |= names
    read = {e.shard for each in positions.values() for e in each.vgtid if any(overlap(e.shard, b) for b in born)}
    awaited = read | {shard for shard in born if not lies_within(shard, gone)}
    if awaited or not gone:
        return Settled(own, awaited=awaited)
    added: dict[int, list[LetGo]] = {}
    for task, part in parts:
        if any(entry.shard in gone for entry in part.vgtid):
            added.setdefault(task, []).append(part)
    chosen = list(chain.from_iterable(added.values()))
    numbers = {part.journal_id: None for part in chosen}
    newest = max(epoch for part in chosen for epoch in part.epochs.values())
    keyspace = chosen[0].vgtid[0].keyspace
    entries = (ShardGtid(keyspace=keyspace, shard=shard, gtid=EMPTY) for shard in born)
    position = msgspec.structs.replace(
        own,
        vgtid=tuple(sorted((*own.vgtid, *entries), key=lambda entry: entry.shard)),
        epochs={**own.epochs, **dict.fromkeys(born, newest)},
        let_go=tuple(part for part in own.let_go if part.journal_id not in numbers),
        taken_up=(*own.taken_up, *numbers),
    )
    return Settled(position, added)


def _is_whole(part: LetGo, parts: Sequence[LetGo]) -> bool:
    """All that the journal ends was let go, to be followed."""
    there = {entry.shard for each in parts if each.journal_id == part.journal_id for entry in each.vgtid}
    return not part.is_lost and there >= set(part.ended)


def settled(own: VitessPosition, number: int, others: Mapping[int, VitessPosition]) -> Settled:
    """The step of the task of this number for waiting shards; ``others``: all that the other tasks have committed."""
    kept: list[LetGo] = []
    added: dict[int, list[LetGo]] = {}
    awaited: set[str] = set()
    taken_up = [journal for journal in own.taken_up if any(_let_go_for(journal, other) for other in others.values())]
    for mine in own.let_go:
        journal = mine.journal_id
        if any(journal in other.taken_up for other in others.values()):
            continue  # their task has said so where it is not lost
        parts = {task: part for task, other in others.items() if (part := _let_go_for(journal, other)) is not None}
        parts[number] = mine
        missing = set(mine.ended) - {entry.shard for part in parts.values() for entry in part.vgtid}
        if mine.is_lost or missing or number != min(parts):
            kept.append(mine)
            awaited |= missing
        else:
            for task, part in sorted(parts.items()):
                added.setdefault(task, []).append(part)
            taken_up.append(journal)
    position = msgspec.structs.replace(own, let_go=tuple(kept), taken_up=tuple(taken_up))
    return Settled(_with(position, list(chain.from_iterable(added.values()))), added, awaited)


def _let_go_for(journal: int, position: VitessPosition) -> LetGo | None:
    return next((part for part in position.let_go if part.journal_id == journal), None)


def _with(position: VitessPosition, added: Sequence[LetGo]) -> VitessPosition:
    entries = [*position.vgtid, *chain.from_iterable(part.vgtid for part in added)]
    return msgspec.structs.replace(
        position,
        vgtid=tuple(sorted(entries, key=lambda entry: entry.shard)),
        epochs=dict(chain(position.epochs.items(), *(part.epochs.items() for part in added))),
        copied=dict(chain(position.copied.items(), *(part.copied.items() for part in added))),
    )
