"""Shards of several tasks that a reshard joins: under any kills, one task reads them, and nothing is left behind."""

import random
from dataclasses import dataclass
from itertools import combinations

import msgspec
import pytest

from libs.source.vitess.tasks import TaskSettings
from libs.source.vitess.vgtid import EMPTY, ShardGtid
from libs.types.checkpoint import NO_INCREMENTAL, IncrementalSnapshot, TableCopy
from services.vstream_reader.position import VitessPosition, decode_position, position_of
from services.vstream_reader.reshard import copied_again, has_lost, let_go, lost, settled
from services.vstream_reader.tasks import shards_to_copy
from services.vstream_reader.vgtid import overlap

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
    """A reader: the position that it holds, and the one that it has committed."""

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

    def lose(self) -> None:
        """The log after its place is purged, and all journals are: the serving shard is the whole keyspace."""
        _, joined = shards_to_copy(TaskSettings(number=0, of=3), self.holds, ["-"])
        born = [] if joined or not self.holds.vgtid else ["-"]
        self.holds = lost(self.holds, joined, NO_INCREMENTAL)
        if born:
            self.holds = msgspec.structs.replace(self.holds, vgtid=place("-").vgtid, epochs={"-": 0})


@pytest.mark.parametrize("has_losses", [False, True], ids=["followed", "purged"])
def test_joined_shards_come_to_one_task_whoever_is_killed(has_losses: bool) -> None:
    """Merges of merges by three tasks in any order of journals met, looks, commits, kills and logs that are purged: in the end
    one task reads the whole keyspace, and no task remembers anything."""
    for seed in range(200):
        try:
            _join_at_random(random.Random(seed), has_losses=has_losses)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def _join_at_random(chance: random.Random, *, has_losses: bool) -> None:
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
                found = settled(task.holds, number, others)
                if number == 0 and not found.added and has_lost(found.position, others):
                    found = copied_again(found.position, others, ["-"])
                task.holds = found.position
            case "lose":
                task.lose()
            case "commit":
                task.committed = decode_position(position_of(task.holds))
            case "kill":
                task.holds = task.committed
        read = [name for each in tasks for name in names(each.committed)]
        assert not any(overlap(*pair) for pair in combinations(read, 2)), "two tasks read one shard"

    for _ in range(chance.randrange(200)):
        step(chance.choice(["meet", "look", "commit", "kill", *["lose"] * has_losses]))
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


def test_what_became_of_lost_shards_is_copied_once_all_of_it_was_let_go() -> None:
    """In a later epoch than any of them had; shards that wait at the journal go along."""
    own = let_go(place("-80"), 7, ("-80", "80-"), NO_INCREMENTAL)
    reads_on = {1: msgspec.structs.replace(place("80-"), epochs={"80-": 4})}
    lets_go = {1: lost(reads_on[1], ["80-"], NO_INCREMENTAL)}

    waits = copied_again(own, {1: lost(place("80-c0"), ["80-c0"], NO_INCREMENTAL), 2: place("c0-")}, ["-"])
    found = copied_again(own, lets_go, ["-"])

    assert (waits.position, waits.awaited) == (own, {"c0-"} | {"-"})
    assert not has_lost(own, reads_on)
    assert has_lost(own, lets_go)
    assert [(entry.shard, entry.gtid) for entry in found.position.vgtid] == [("-", EMPTY)]
    assert found.position.epochs == {"-": 4}
    assert sorted(found.added) == [0, 1]
    assert settled(lets_go[1], 1, {0: found.position}).position.let_go == ()


def test_what_was_asked_for_goes_with_the_shards() -> None:
    """A task may hear a signal when it has let its shards go, and the one that takes them up may have heard it before."""
    asked = IncrementalSnapshot(tables=(TableCopy(table="ks.t", signal_id="1"),), signals_offset=4)
    ended = ("-80", "80-")

    own, other = let_go(place("-80"), 7, ended, NO_INCREMENTAL), let_go(place("80-"), 7, ended, asked)

    found = settled(own, 0, {1: other})
    assert found.added == {0: [own.let_go[0]], 1: [other.let_go[0]]}
    assert found.added[1][0].incremental == asked
    assert names(found.position) == ["-80", "80-"]
