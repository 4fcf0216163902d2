"""Shards of several tasks that a reshard joins: whoever is killed whenever, one task reads them, and nothing is left behind."""

import random
from dataclasses import dataclass

import msgspec
import pytest

from libs.source.vitess.vgtid import ShardGtid
from libs.types.checkpoint import NO_INCREMENTAL, IncrementalSnapshot, TableCopy
from services.vstream_reader.position import VitessPosition, decode_position, position_of
from services.vstream_reader.reshard import let_go, settled

QUARTERS = ("-40", "40-80", "80-c0", "c0-")
LEFT, RIGHT, ALL = (1, "-80", ("-40", "40-80")), (2, "80-", ("80-c0", "c0-")), (3, "-", ("-80", "80-"))
"""Journals: their number, the shard that is born, those that end."""


def place(*shards: str) -> VitessPosition:
    return VitessPosition(
        vgtid=tuple(ShardGtid(keyspace="ks", shard=shard, gtid="MySQL56/a:1") for shard in shards),
        epochs=dict.fromkeys(shards, 0),
    )


def names(position: VitessPosition) -> list[str]:
    return [entry.shard for entry in position.vgtid]


@dataclass
class Task:
    """A reader: what it holds, and what of that it has committed."""

    holds: VitessPosition
    committed: VitessPosition

    def meet(self) -> None:
        """Its stream meets a journal: vtgate goes on where it streams all shards of it, else ends the stream."""
        for journal, born, ended in (LEFT, RIGHT, ALL):
            here = set(ended) & set(names(self.holds))
            if here == set(ended):
                rest = [name for name in names(self.holds) if name not in here]
                followed = place(*rest, born)
                self.holds = msgspec.structs.replace(self.holds, vgtid=followed.vgtid, epochs=followed.epochs)
            elif here:
                self.holds = let_go(self.holds, journal, ended, NO_INCREMENTAL)


@pytest.mark.parametrize("seed", range(200))
def test_joined_shards_come_to_one_task_whoever_is_killed(seed: int) -> None:
    """Merges of merges by three tasks in any order of journals met, looks, commits and kills: in the end one task reads the
    whole keyspace, and no task remembers anything."""
    chance = random.Random(seed)
    dealt = [place("-40", "c0-"), place("40-80"), place("80-c0")]
    tasks = [Task(position, position) for position in dealt]

    def step(kind: str) -> None:
        number = chance.randrange(len(tasks))
        task = tasks[number]
        match kind:
            case "meet":
                task.meet()
            case "look":
                others = {n: other.committed for n, other in enumerate(tasks) if n != number}
                task.holds = settled(task.holds, number, others).position
            case "commit":
                task.committed = decode_position(position_of(task.holds))
            case "kill":
                task.holds = task.committed
        read = [name for each in tasks for name in names(each.committed)]
        assert len(read) == len(set(read)), "two tasks read one shard"

    for _ in range(chance.randrange(200)):
        step(chance.choice(["meet", "look", "commit", "kill"]))
    for _ in range(600):
        step(chance.choice(["meet", "look", "commit"]))

    assert sorted(name for each in tasks for name in names(each.committed)) == ["-"]
    assert [(each.committed.let_go, each.committed.taken_up) for each in tasks] == [((), ())] * 3


def test_what_still_misses_is_told() -> None:
    """Of three shards that become one, one is still read by a task that does not run."""
    ended = ("-40", "40-80", "80-")
    own = let_go(place("-40"), 7, ended, NO_INCREMENTAL)
    other = let_go(place("40-80"), 7, ended, NO_INCREMENTAL)

    found = settled(own, 0, {1: other, 2: place("80-")})

    assert found.awaited == {"80-"}
    assert (found.position, found.added) == (own, {})


def test_what_was_asked_for_goes_with_the_shards() -> None:
    """A task may hear a signal when it has let its shards go, and the one that takes them up may have heard it before."""
    asked = IncrementalSnapshot(tables=(TableCopy(table="ks.t", signal_id="1"),), signals_offset=4)
    ended = ("-80", "80-")

    own, other = let_go(place("-80"), 7, ended, NO_INCREMENTAL), let_go(place("80-"), 7, ended, asked)

    found = settled(own, 0, {1: other})
    assert found.added == {0: [own.let_go[0]], 1: [other.let_go[0]]}
    assert found.added[1][0].incremental == asked
    assert names(found.position) == ["-80", "80-"]
