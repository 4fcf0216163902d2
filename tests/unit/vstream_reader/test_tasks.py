"""Which task reads which shards, and which positions a new generation takes over (``c_vitess.json``, tables)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.errors import PipelineHalted, SourceMisconfigured
from libs.source.vitess.tasks import TaskSettings, partition_name
from libs.source.vitess.vgtid import CURRENT, EMPTY, ShardGtid
from libs.types.checkpoint import NO_INCREMENTAL, Checkpoint, FencingToken, IncrementalSnapshot
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from services.vstream_reader.beginning import beginning_after_reset, first_beginning
from services.vstream_reader.position import Deal, VitessPosition, position_of
from services.vstream_reader.reshard import let_go, lost
from services.vstream_reader.settings import SnapshotMode, SnapshotSettings, VstreamReaderSettings
from services.vstream_reader.snapshot import first_position, position_of_new_copy
from services.vstream_reader.tasks import (
    Beginning,
    dealt_beginning,
    dealt_shards,
    earlier_partitions,
    followed_where_ended,
    last_places,
    previous_partitions,
    shards_to_copy,
    taken_over,
)

CASES = json.loads((Path(__file__).parents[2] / "golden" / "cases" / "c_vitess.json").read_text(encoding="utf-8"))


def tables(kind: str) -> list[Any]:
    return [pytest.param(table, id=table["id"]) for table in CASES["tables"] if table["kind"] == kind]


def place(gtids: dict[str, str], epochs: dict[str, int] | None = None) -> VitessPosition:
    return VitessPosition(
        vgtid=tuple(ShardGtid(keyspace="ks", shard=shard, gtid=gtid) for shard, gtid in gtids.items()),
        epochs=epochs or dict.fromkeys(gtids, 0),
    )


@pytest.mark.parametrize("case", tables("task_assignment"))
def test_shards_are_dealt_as_in_the_reference(case: dict[str, Any]) -> None:
    """Round-robin over the sorted shards, under the reference's names; a copy begins with an empty GTID."""
    count = min(case["max_tasks"], len(case["shards"]))
    for number, expected in enumerate(case["expect"]):
        tasks = TaskSettings(number=number, of=count, generation=case["config"]["vitess.offset.storage.task.key.gen"])
        shards = dealt_shards(tasks, case["shards"])

        if "key" in expected:
            assert partition_name(tasks) == expected["key"]
            assert list(shards) == expected["shards"]
        if "gtid" in expected:
            mode = SnapshotMode(case["config"]["snapshot.mode"])
            position = first_position(_settings(SnapshotSettings(mode=mode)), shards)
            assert {entry.gtid for entry in position.vgtid} == {expected["gtid"]}


@pytest.mark.parametrize(
    ("own", "serving", "copied"),
    [
        (["-80"], ["-80", "80-"], ["-80"]),
        (["-40", "40-80"], ["-40", "40-80", "80-"], ["-40", "40-80"]),  # dealt again: -40 and 80-
        (["-80"], ["-40", "40-80", "80-"], ["-40", "40-80"]),
        (["-40", "80-"], ["-20", "20-40", "40-80", "80-"], ["-20", "20-40", "80-"]),
        (["-40", "40-80"], ["-80", "80-"], ["-80"]),
        (["-40", "40-80", "80-c0"], ["-60", "60-c0", "c0-"], ["-60", "60-c0"]),
    ],
)
def test_a_task_copies_anew_what_it_reads(own: list[str], serving: list[str], copied: list[str]) -> None:
    """Not the shards that would be dealt to it now: the other tasks go on with theirs."""
    tasks = TaskSettings(number=0, of=2)

    assert shards_to_copy(tasks, place(dict.fromkeys(own, "g")), serving) == (copied, [])
    assert shards_to_copy(None, place(dict.fromkeys(own, "g")), serving) == (sorted(serving), [])


@pytest.mark.parametrize(
    ("own", "serving", "copied", "followed"),
    [
        (["40-80"], ["-40", "40-c0", "c0-"], [], ["40-80"]),
        (["-40", "40-80"], ["-40", "40-c0", "c0-"], ["-40"], ["40-80"]),
        (["-80"], ["-40", "40-c0", "c0-"], [], ["-80"]),  # the task that takes it up has -40 too
        (["-40", "40-80"], ["-20", "20-60", "60-c0", "c0-"], [], ["-40", "40-80"]),
    ],
)
def test_a_task_copies_nothing_that_a_reshard_joined_with_anothers_shards(
    own: list[str], serving: list[str], copied: list[str], followed: list[str]
) -> None:
    """Both tasks would copy the shard, or neither: its part is followed to the journal, and let go. Where the log is gone it is
    let go at once, and nothing of it is left."""
    settings = msgspec.structs.replace(_settings(SnapshotSettings()), tasks=TaskSettings(number=0, of=2))
    before = place(dict.fromkeys(own, "MySQL56/a:1"), dict.fromkeys(own, 4))

    assert shards_to_copy(settings.tasks, before, serving) == (copied, followed)
    again = position_of_new_copy(settings, before, serving)
    without = position_of_new_copy(settings, lost(before, followed, NO_INCREMENTAL), serving)

    assert {entry.shard: entry.gtid for entry in again.vgtid} == {
        **dict.fromkeys(copied, ""),
        **dict.fromkeys(followed, "MySQL56/a:1"),
    }
    assert again.copied == dict.fromkeys(followed, ())
    assert set(again.epochs.values()) == {4}
    assert [entry.shard for entry in without.vgtid] == copied
    assert [entry.shard for part in without.let_go for entry in part.vgtid] == followed


def _settings(snapshot: SnapshotSettings) -> VstreamReaderSettings:
    unused: Any = {"address": "127.0.0.1:1"}
    return VstreamReaderSettings(
        source="s",
        vtgate=None,  # type: ignore[arg-type]  # not asked here
        keyspace="ks",
        snapshot=snapshot,
        schema_history=unused,
        checkpoint_committer=unused,
    )


@pytest.mark.parametrize("case", tables("offset_migration"))
def test_positions_move_as_in_the_reference(case: dict[str, Any]) -> None:
    """Per shard from the newest generation that has it; a shard that nobody would read any more is refused."""
    generations = generations_of(case)
    wanted: dict[str, Any] = {}
    for part in case.get("expect", {}).values():
        wanted |= part if isinstance(part, dict) else {}
    if case.get("expect") and not wanted:
        wanted = case["expect"]
    if "expect_error" in case:
        with pytest.raises(PipelineHalted, match="gone: s1"):
            taken_over(TaskSettings(number=0, of=case["tasks"]), case["shards"], last_places(generations))
        return

    moved: dict[str, str] = {}
    epochs: dict[str, int] = {}
    for number in range(case["tasks"]):
        position = taken_over(TaskSettings(number=number, of=case["tasks"]), case["shards"], last_places(generations))
        moved |= {entry.shard: entry.gtid for entry in position.vgtid}
        epochs |= position.epochs

    if wanted:
        assert moved == wanted
    if "expect_epochs" in case:
        assert epochs == case["expect_epochs"]


def generations_of(case: dict[str, Any]) -> list[list[VitessPosition]]:
    """A reader's own generation counts first, then the one before, then the reader without tasks."""
    by_generation: dict[int, list[VitessPosition]] = {}
    for name in {**case.get("task_offsets", {}), **case.get("task_epochs", {})}:
        epochs = case.get("task_epochs", {}).get(name)
        gtids = case.get("task_offsets", {}).get(name) or dict.fromkeys(epochs, "MySQL56/a:1")
        by_generation.setdefault(int(name.rpartition("_")[2]), []).append(place(gtids, epochs))
    whole = case.get("server_offset") or dict.fromkeys(case.get("server_epochs", {}), "MySQL56/a:1")
    generations = [by_generation[number] for number in sorted(by_generation, reverse=True)]
    return [*generations, [place(whole, case.get("server_epochs"))] if whole else []]


def test_a_first_generation_follows_a_reader_without_tasks() -> None:
    """Also when it begins with generation 1, as the reference advises."""
    assert previous_partitions(TaskSettings(number=0, of=2)) == [["0"]]
    assert previous_partitions(TaskSettings(number=0, of=2, generation=1)) == [["task0_1_0"], ["0"]]


def test_without_any_position_there_is_nothing_to_take_over() -> None:
    """A task begins by itself then."""
    assert last_places([[], []]) == {}


def test_shards_are_taken_over_from_those_who_read_them_last() -> None:
    """Not from a task of other shards, nor from a generation whose shards another took over since, be it under other names."""
    first, second = dict.fromkeys(("-40", "80-c0"), "g1"), dict.fromkeys(("40-60", "60-80"), "g1")
    whole = dict.fromkeys(("-40", "40-80", "80-c0", "c0-"), "g0")

    places = last_places([[place(first), place(second)], [place(whole)]])

    assert {shard: (each.entry.gtid, each.reader) for shard, each in places.items()} == {
        "-40": ("g1", (0, 0)),
        "80-c0": ("g1", (0, 0)),
        "40-60": ("g1", (0, 1)),
        "60-80": ("g1", (0, 1)),
        "c0-": ("g0", (1, 0)),
    }


def test_shards_that_were_let_go_are_taken_over_unless_another_task_reads_them() -> None:
    """Of two journals one was followed by the generation before, of the other each task still had its own part."""
    halves = ("-40", "40-80")
    waiting = tuple(
        let_go(place({"80-c0": "g3", "c0-": "g4"}), 8, [shard], NO_INCREMENTAL).let_go[0] for shard in ("80-c0", "c0-")
    )
    followed = [let_go(place({shard: "g1"}), 7, halves, NO_INCREMENTAL).let_go[0] for shard in halves]
    reads = msgspec.structs.replace(place({"-80": "g2"}), let_go=(waiting[0],))
    lets_go = msgspec.structs.replace(place({}), let_go=(followed[1], waiting[1]))

    places = last_places([[reads, lets_go]])

    assert {shard: (each.entry.gtid, each.reader) for shard, each in places.items()} == {
        "-80": ("g2", (0, 0)),
        "80-c0": ("g3", (0, 0)),
        "c0-": ("g4", (0, 1)),
    }


@pytest.mark.parametrize(
    ("read", "serving"),
    [
        (["-80", "80-"], ["-80", "80-c0", "c0-"]),
        (["-80", "80-"], ["-"]),
        (["-40", "40-80", "80-"], ["-20", "20-80", "80-"]),
    ],
    ids=["split", "merge", "both"],
)
def test_shards_that_were_re_cut_while_nothing_ran_are_dealt_under_their_old_names(
    read: list[str], serving: list[str]
) -> None:
    """Each is read to its journal by one task, whichever shards serve when that begins; vtgate leads on from there."""
    places = last_places([[place(dict.fromkeys(read, "MySQL56/a:1"))]])

    dealt = [taken_over(TaskSettings(number=number, of=2), serving, places) for number in range(2)]

    assert sorted(entry.shard for position in dealt for entry in position.vgtid) == sorted(read)
    assert dealt == [taken_over(TaskSettings(number=number, of=2), read, places) for number in range(2)]


def test_a_shard_that_nobody_read_is_told() -> None:
    """Beginning it anywhere would lose or repeat rows."""
    places = last_places([[place({"-80": "MySQL56/a:1", "80-c0": "MySQL56/a:1"})]])

    with pytest.raises(PipelineHalted, match=r"gone: none; never read: c0-"):
        taken_over(TaskSettings(number=0, of=2), ["-80", "80-c0", "c0-"], places)


def test_more_tasks_than_shards_that_were_read_are_told_when_there_can_be_more() -> None:
    """A split that nobody has followed yet."""
    places = last_places([[place({"-80": "MySQL56/a:1", "80-": "MySQL56/a:1"})]])

    with pytest.raises(SourceMisconfigured, match="at most 2 tasks, and with more in the generation after"):
        taken_over(TaskSettings(number=2, of=3), ["-80", "80-c0", "c0-"], places)


KNOWN = ["0", "task0_2_0", "task1_2_0", "task0_3_1"]
"""Of generation 1 one task of three has begun."""


def test_shards_of_a_generation_that_began_in_part_are_looked_for_in_those_before() -> None:
    """Else the others would begin again, or where a reader without tasks stood long ago."""
    tasks = TaskSettings(number=0, of=4, generation=2, previous_tasks=3)

    assert earlier_partitions(tasks, KNOWN) == [
        ["task0_3_1", "task1_3_1", "task2_3_1"],
        ["task0_2_0", "task1_2_0"],
        ["0"],
    ]
    assert earlier_partitions(TaskSettings(number=0, of=2), ["0"]) == [["0"]]
    assert earlier_partitions(None, ["0"]) == []


@pytest.mark.parametrize(
    "tasks",
    [None, TaskSettings(number=0, of=2, generation=1, previous_tasks=2), TaskSettings(number=1, of=2)],
    ids=["no tasks", "same generation", "earlier generation"],
)
def test_tasks_that_nobody_counted_on_are_refused(tasks: TaskSettings | None) -> None:
    """A number that was changed and a generation that was not: the shards would begin again, and rows be lost or repeated."""
    with pytest.raises(PipelineHalted, match="generation 2") as refused:
        earlier_partitions(tasks, KNOWN)

    assert "tasks.previous_tasks: 3" in str(refused.value)


def test_a_task_without_a_shard_says_how_many_there_can_be() -> None:
    """It would wait for ever for rows that another task reads."""
    with pytest.raises(SourceMisconfigured, match="at most 2 tasks"):
        dealt_beginning(deal_of("-80", "80-"), TaskSettings(number=2, of=3), ["-80", "80-"])


def deal_of(*shards: str) -> Deal:
    """A copy of these, each of which stood somewhere."""
    return Deal(beginnings=place(dict.fromkeys(shards, "")).vgtid, executed={s: f"MySQL56/{s}:1" for s in shards})


@pytest.mark.parametrize("serving", [["-40", "40-80", "80-c0", "c0-"], ["-40", "40-c0", "c0-"], ["-"]])
def test_tasks_begin_with_what_was_dealt_whatever_serves_when_they_do(serving: list[str]) -> None:
    """A shard that a reshard has ended meanwhile is followed from where it stood: by a task that begins late, by the first one
    that is started again, and by the next generation, where some of this one never began."""
    deal = deal_of("-40", "40-80", "80-c0", "c0-")

    begun = [dealt_beginning(deal, TaskSettings(number=number, of=2), serving) for number in range(2)]
    first = dealt_beginning(deal, TaskSettings(number=0, of=2), list(deal.executed))
    places = last_places([[first]])
    after = [taken_over(TaskSettings(number=number, of=4, generation=1), serving, places) for number in range(4)]

    for positions in (begun, after, [followed_where_ended(first, deal.executed, serving), begun[1]]):
        found = {entry.shard: entry.gtid for position in positions for entry in position.vgtid}
        assert sorted(entry.shard for position in positions for entry in position.vgtid) == sorted(deal.executed)
        assert found == {shard: "" if shard in serving else f"MySQL56/{shard}:1" for shard in deal.executed}
        followed = {shard for position in positions for shard, keys in position.copied.items() if keys == ()}
        assert followed == deal.executed.keys() - set(serving)
    assert [position.deal for position in begun] == [deal, None]


def test_a_dealt_shard_is_not_taken_over_from_the_deal_once_somebody_reads_it() -> None:
    """Nor the shards that a reshard has made of it."""
    first = msgspec.structs.replace(place({"-40": "MySQL56/a:9"}), deal=deal_of("-40", "40-80", "80-c0", "c0-"))
    second = place({"40-60": "MySQL56/b:9", "60-80": "MySQL56/c:9"})

    places = last_places([[first, second]])

    assert {shard: each.entry.gtid for shard, each in places.items()} == {
        "-40": "MySQL56/a:9",
        "40-60": "MySQL56/b:9",
        "60-80": "MySQL56/c:9",
        "80-c0": "",
        "c0-": "",
    }


def reset_checkpoint(position: SourcePosition, epoch: int) -> Checkpoint:
    return Checkpoint(
        partition=SourcePartition(source="s", name="0"),
        position=position,
        order=EventOrder(epoch=epoch, rank=9, tx_ordinal=0),
        fencing_token=FencingToken(7),
        committed_at_us=1,
        published_at_us=1,
        incremental=IncrementalSnapshot(signals_offset=42),
        starts_over=True,
    )


@pytest.mark.parametrize(
    ("mode", "gtid", "is_copying"), [(SnapshotMode.INITIAL, EMPTY, True), (SnapshotMode.NO_DATA, CURRENT, False)]
)
def test_a_reset_keyspace_begins_with_all_that_serves_and_its_epochs_go_on(
    mode: SnapshotMode, gtid: str, is_copying: bool
) -> None:
    """``start_vgtid`` was for the first start; signals that were acted upon are not followed again. A split shard's epoch is
    that of the newest."""
    settings = msgspec.structs.replace(_settings(SnapshotSettings(mode=mode)), start_vgtid="MySQL56/a:1")
    before = place({"-80": "MySQL56/a:7", "80-": "MySQL56/b:7"}, {"-80": 3, "80-": 5})

    found = beginning_after_reset(settings, reset_checkpoint(position_of(before), 5), ["-80", "80-c0", "c0-"])

    assert {entry.shard: entry.gtid for entry in found.position.vgtid} == dict.fromkeys(("-80", "80-c0", "c0-"), gtid)
    assert found.position.epochs == {"-80": 3, "80-c0": 5, "c0-": 5}
    assert found.is_copying == is_copying
    assert found.incremental.signals_offset == 42


def test_a_source_that_was_of_another_kind_begins_above_its_epoch() -> None:
    """Nothing of the position can be read."""
    of_mysql = SourcePosition(source_kind="mysql", token=b"{}")

    found = beginning_after_reset(_settings(SnapshotSettings()), reset_checkpoint(of_mysql, 4), ["-"])

    assert found.position.vgtid == (ShardGtid(keyspace="ks", shard="-", gtid=EMPTY),)
    assert found.position.epochs == {"-": 4}


def test_a_reset_task_lets_shards_go_that_were_joined_and_halts_where_another_reads_its_shards() -> None:
    settings = msgspec.structs.replace(_settings(SnapshotSettings()), tasks=TaskSettings(number=1, of=2))
    before = place({"80-": "MySQL56/b:7"}, {"80-": 5})

    found = beginning_after_reset(settings, reset_checkpoint(position_of(before), 5), ["-"])
    taken = msgspec.structs.replace(before, taken_over_by="task0_3_1")
    with pytest.raises(PipelineHalted, match="taken over by task0_3_1"):
        beginning_after_reset(settings, reset_checkpoint(position_of(taken), 5), ["-"])

    assert found.position.vgtid == ()
    [left] = found.position.let_go
    assert (left.is_lost, [entry.shard for entry in left.vgtid]) == (True, ["80-"])


async def test_a_task_that_takes_over_from_reset_readers_copies_all_of_its_shards() -> None:
    """Those were reset, and none had begun again."""
    settings = msgspec.structs.replace(_settings(SnapshotSettings()), tasks=TaskSettings(number=0, of=1, generation=1))
    before = place({"-80": "MySQL56/a:7", "80-": "MySQL56/b:7"}, {"-80": 3, "80-": 5})

    async def take_over(serving: Sequence[str]) -> Beginning:
        return Beginning(before, False, was_reset=True)

    found = await first_beginning(
        settings,
        ["-80", "80-"],
        None,  # type: ignore[arg-type]  # is not asked
        take_over=take_over,
        fellows=None,
    )

    assert {entry.gtid for entry in found.position.vgtid} == {EMPTY}
    assert (found.position.epochs, found.is_copying) == ({"-80": 3, "80-": 5}, True)
