"""Reshards in the first moments of a copy, when shards have sent nothing yet: by one reader and by several tasks, over real
MySQL shards of the stand-in for vtgate."""

import asyncio
import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from libs.errors import SourceUnavailable
from libs.source.vitess.settings import StreamSettings
from libs.source.vitess.tasks import TaskSettings
from libs.stand_ins.vtgate.cluster import new_shard, on_every_shard
from libs.stand_ins.vtgate.copy_phase import TabletStream
from libs.stand_ins.vtgate.log_stream import TabletOptions
from libs.stand_ins.vtgate.reshard import reshard
from libs.stand_ins.vtgate.service import VtgateServer
from libs.stand_ins.vtgate.vstream import ServerOptions
from libs.types.checkpoint import IncrementalSnapshot
from services.vstream_reader.main_stream import MainStream
from services.vstream_reader.position import LetGo, VitessPosition, decode_position
from services.vstream_reader.settings import SnapshotMode, SnapshotSettings
from tests.conftest import MysqlServer, StartVtgate
from tests.integration.test_vstream_reader import Follower, MemoryHistory, purge_log, shards_hold, write
from tests.marks import gate, pairs

TIMEOUT_S = 120.0
ROWS = 40
QUARTERS = ("-40", "40-80", "80-c0", "c0-")
VIEW_ROWS = 4
SMALL_VIEWS = ServerOptions(tablet=TabletOptions(copy_rows=VIEW_ROWS, packet_bytes=30))


class Group:
    """The readers of a keyspace: one, or tasks that know each other by their checkpoints."""

    def __init__(self, server: VtgateServer, tasks: int, **settings: Any) -> None:
        self.server = server
        self.keyspace = server.topology.keyspaces[0].name
        self.history = MemoryHistory()
        settings["include_tables"] = (rf"{self.keyspace}\.(bare|t)",)
        self.readers = [
            Follower(
                server,
                history=self.history,
                fellows=_Fellows(self, number) if tasks > 1 else None,
                tasks=TaskSettings(number=number, of=tasks) if tasks > 1 else None,
                **settings,
            )
            for number in range(tasks)
        ]
        self.running: list[asyncio.Task[None] | None] = [None] * tasks

    def run(self, number: int) -> None:
        """Start a reader where it stopped, until it is killed."""
        self.running[number] = asyncio.create_task(self.readers[number].read(lambda _: False))

    def run_all(self) -> None:
        for number in range(len(self.readers)):
            self.run(number)

    async def kill(self, number: int) -> None:
        """In the midst of any work; an error that it ended with is raised."""
        task = self.running[number]
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @property
    def table(self) -> dict[int, Any]:
        """The rows that a sink has of all."""
        newest: dict[int, Any] = {}
        for reader in self.readers:
            for key, (order, row) in reader.rows.items():
                if key not in newest or newest[key][0] <= order:
                    newest[key] = (order, row)
        return {key: row["v"] for key, (_, row) in sorted(newest.items()) if row is not None}

    @property
    def serving(self) -> set[str]:
        return {shard.name for shard in self.server.topology.serving(self.keyspace)}

    def has_settled(self) -> bool:
        """The checkpoints have every shard that serves, and none else, once; and nothing is being copied."""
        checkpoints = [reader.checkpoint for reader in self.readers]
        read = [entry for each in checkpoints if each is not None for entry in decode_position(each.position).vgtid]
        return (
            sorted(entry.shard for entry in read) == sorted(self.serving)
            and all(entry.is_place for entry in read)
            and all(each is not None and each.snapshot is None and not each.incremental.tables for each in checkpoints)
        )

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Raises the error that a reader ended with."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert time.monotonic() < deadline_s, [reader.checkpoint for reader in self.readers]
            for task in self.running:
                if task is not None and task.done():
                    task.result()
            await asyncio.sleep(0.05)

    async def finish(self) -> None:
        """Until everything is there, though nobody writes; then every row is as the source has it, later changes too, and no
        change came twice."""
        stored = await asyncio.to_thread(shards_hold, self.server)
        await self.until(lambda: self.has_settled() and self.table == stored)
        await asyncio.to_thread(write, self.server, "UPDATE t SET v = 'last'")
        last = await asyncio.to_thread(shards_hold, self.server)
        with contextlib.suppress(AssertionError):
            await self.until(lambda: self.table == last)
        for number in range(len(self.readers)):
            await self.kill(number)
        changes = Counter(change for reader in self.readers for change in reader.changes)
        assert [change for change, times in changes.items() if times > 1] == []
        assert self.table == last


class _Fellows:
    """``Fellows`` by the commits of a test's other readers."""

    def __init__(self, group: Group, number: int) -> None:
        self._group = group
        self._number = number

    async def positions(self) -> Mapping[int, VitessPosition]:
        return {
            number: decode_position(reader.checkpoint.position)
            for number, reader in enumerate(self._group.readers)
            if number != self._number and reader.checkpoint is not None
        }

    async def asked(self, added: Mapping[int, Sequence[LetGo]]) -> Sequence[IncrementalSnapshot]:
        return [part.incremental for parts in added.values() for part in parts]

    async def published_ends(self, numbers: Iterable[int]) -> Mapping[int, int]:
        return {}


def fill(server: VtgateServer) -> None:
    """``t`` with rows, and ``bare``, which is copied before and has none."""
    keyspace = server.topology.keyspaces[0].name
    tables = (
        "CREATE TABLE bare (id BIGINT PRIMARY KEY, v INT)",
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(40))",
    )
    on_every_shard(server.topology, keyspace, tables)
    write(server, "INSERT INTO t (id, v) VALUES " + ",".join(f"({n}, 'v{n}')" for n in range(1, ROWS + 1)))


class Held:
    """A tablet that waits before it opens the read view of a table, or the one after so many."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shard: str, table: str, behind_views: int = 0) -> None:
        self.is_met, self._goes_on = threading.Event(), threading.Event()
        opens, opened = TabletStream._open_view, itertools.count()

        def open_view(stream: TabletStream, name: str) -> Any:
            if (stream._shard.name, name) == (shard, table) and next(opened) >= behind_views:
                self.is_met.set()
                self._goes_on.wait(TIMEOUT_S)
            return opens(stream, name)

        monkeypatch.setattr(TabletStream, "_open_view", open_view)

    def let_go(self) -> None:
        self._goes_on.set()


def kill_once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """A reader ends when it first comes to a method, and is started again from its checkpoint."""
    method = getattr(owner, name)

    def once(*arguments: Any) -> Any:
        monkeypatch.setattr(owner, name, method)
        raise SourceUnavailable("killed here")

    monkeypatch.setattr(owner, name, once)


def targets(keyspace: str, names: Sequence[str], servers: Sequence[MysqlServer]) -> list[Any]:
    places = zip(names, servers, strict=False)
    return [new_shard(keyspace, name, 500 + 100 * n, at.host, at.port) for n, (name, at) in enumerate(places)]


KILLED = {"runs": False, "killed": True}
NAMES = {"split": ("-40", "40-80"), "merge": ("-",)}
TASKS = {"one": (1, False), "stops": (1, True), "tasks": (2, False)}


@pytest.mark.parametrize(
    ("readers", "names", "table", "is_killed"),
    pairs(
        readers=TASKS,
        names=NAMES,
        table={"before its journal is passed": "bare", "before a row": "t"},
        is_killed=KILLED,
    ),
)
async def test_a_reshard_of_a_shard_whose_copy_has_not_begun_is_followed(
    readers: tuple[int, bool],
    names: tuple[str, ...],
    table: str,
    is_killed: bool,
    start_vtgate: StartVtgate,
    shard_servers: Callable[[int], list[MysqlServer]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shard's first read view is opened after its journal, which then never comes; or its place has come, and not a row.
    The other shard is in the midst of its copy. Nobody helps, also where the reader was killed in that moment."""
    tasks, stops = readers
    server = start_vtgate(options=SMALL_VIEWS)
    fill(server)
    held = Held(monkeypatch, "-80", table)
    group = Group(server, tasks, stream=StreamSettings(stop_on_reshard=stops))
    group.run_all()
    await asyncio.to_thread(held.is_met.wait, TIMEOUT_S)
    if tasks > 1:
        await group.until(lambda: bool(group.readers[1].reads))

    new = targets(group.keyspace, names, shard_servers(2))
    await asyncio.to_thread(reshard, server, new)
    if is_killed:
        await group.kill(0)
    held.let_go()
    await asyncio.to_thread(
        write, server, "DELETE FROM t WHERE id IN (1, 2, 3, 4)", "UPDATE t SET v = 'w' WHERE id > 30"
    )
    if is_killed:
        group.run(0)

    await group.finish()


@pytest.mark.parametrize(
    ("readers", "names", "is_killed"),
    pairs(readers={**TASKS, "tasks stop": (2, True)}, names=NAMES, is_killed=KILLED),
)
async def test_a_copy_that_a_reshard_cuts_short_ends_though_nobody_writes(
    readers: tuple[int, bool],
    names: tuple[str, ...],
    is_killed: bool,
    start_vtgate: StartVtgate,
    shard_servers: Callable[[int], list[MysqlServer]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other shard's copy has ended, and the keyspace is at rest: the journal has the places where the new shards begin,
    which vtgate would not send. So too for a reader that was killed when it had the journal, and had said so to nobody."""
    tasks, stops = readers
    server = start_vtgate(options=SMALL_VIEWS)
    fill(server)
    held = Held(monkeypatch, "-80", "t", behind_views=2)
    group = Group(server, tasks, stream=StreamSettings(stop_on_reshard=stops))
    if is_killed:
        kill_once(monkeypatch, MainStream, "_follow_journal")
    group.run_all()
    await asyncio.to_thread(held.is_met.wait, TIMEOUT_S)
    other = server.topology.shard(group.keyspace, "80-").primary
    ((of_other,),) = await asyncio.to_thread(other.execute, "SELECT COUNT(*) FROM t")
    await group.until(lambda: len(group.table) == VIEW_ROWS * 2 + int(str(of_other)))

    apart = shard_servers(4)[2:]  # shards of one server see each other's transactions
    await asyncio.to_thread(reshard, server, targets(group.keyspace, names, apart))
    held.let_go()

    await group.finish()
    assert bool(sum(reader.times_lost for reader in group.readers)) is is_killed


async def test_a_merge_that_one_shard_awaits_and_the_other_has_passed_is_followed(
    start_vtgate: StartVtgate, shard_servers: Callable[[int], list[MysqlServer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has reported its place alone and comes to its journal; the other's first view is after its own."""
    server = start_vtgate(options=SMALL_VIEWS)
    fill(server)
    both = [Held(monkeypatch, "-80", "t"), Held(monkeypatch, "80-", "bare")]
    group = Group(server, 1)
    group.run_all()
    for held in both:
        await asyncio.to_thread(held.is_met.wait, TIMEOUT_S)

    await asyncio.to_thread(reshard, server, targets(group.keyspace, ("-",), shard_servers(1)))
    for held in both:
        held.let_go()

    await group.finish()


@pytest.mark.parametrize("is_late", [False, True], ids=["killed", "late"])
async def test_tasks_keep_what_they_were_dealt_through_a_reshard_before_their_first_row(
    is_late: bool,
    start_vtgate: StartVtgate,
    shard_servers: Callable[[int], list[MysqlServer]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dealt again, the shards that serve after the reshard would be another task's: one read twice, another by nobody. So for
    a task that starts for the first time then."""
    server = start_vtgate(shards=QUARTERS, options=SMALL_VIEWS)
    fill(server)
    held = Held(monkeypatch, "-40", "t")
    group = Group(server, 2)
    group.run(0)
    if not is_late:
        group.run(1)
    await asyncio.to_thread(held.is_met.wait, TIMEOUT_S)
    if not is_late:
        await group.until(lambda: bool(group.readers[1].reads))

    await asyncio.to_thread(reshard, server, targets(group.keyspace, ("40-c0",), shard_servers(1)))
    if is_late:
        held.let_go()
        group.run(1)
    else:
        await group.kill(0)
        held.let_go()
        group.run(0)

    await group.finish()


async def test_a_task_that_copies_at_each_start_follows_a_merge_meanwhile(
    start_vtgate: StartVtgate, shard_servers: Callable[[int], list[MysqlServer]]
) -> None:
    """``snapshot.mode: always``: its shard comes to the joined one first, which is copied then."""
    server = start_vtgate(options=SMALL_VIEWS)
    fill(server)
    group = Group(server, 2, snapshot=SnapshotSettings(mode=SnapshotMode.ALWAYS))
    group.run_all()
    await group.until(group.has_settled)
    for number in range(2):
        await group.kill(number)
    await asyncio.to_thread(write, server, "DELETE FROM t WHERE id IN (1, 2, 3, 4)")
    await asyncio.to_thread(reshard, server, targets(group.keyspace, ("-",), shard_servers(1)))
    copied = sum(len(reader.reads) for reader in group.readers)

    group.run_all()
    await group.finish()

    assert sum(len(reader.reads) for reader in group.readers) >= copied + ROWS - 4


@pytest.mark.parametrize(
    ("cuts", "purged", "seed"),
    pairs(
        cuts={"merge": (("-",),), "split and merge": (("-20", "20-40"), ("40-c0",))},
        purged={"both": (0, 1), "first": (0,), "second": (1,)},
        seed={"0": 0, "1": 1},
    ),
)
async def test_shards_that_were_joined_behind_a_purged_log_are_copied_anew_by_one_task(
    cuts: tuple[tuple[str, ...], ...],
    purged: tuple[int, ...],
    seed: int,
    start_vtgate: StartVtgate,
    shard_servers: Callable[[int], list[MysqlServer]],
) -> None:
    """``snapshot.mode: when_needed``: a task that cannot follow to the journal any more lets go for good, and task 0 copies
    the shards that the reshard made; whichever starts first, and whichever is killed at any moment. Nobody else reads the
    shards that were let go."""
    chance = random.Random(f"{cuts} {purged} {seed}")
    server = start_vtgate(shards=("-80", "80-") if cuts == (("-",),) else QUARTERS, options=SMALL_VIEWS)
    fill(server)
    group = Group(server, 2, snapshot=SnapshotSettings(mode=SnapshotMode.WHEN_NEEDED))
    group.run_all()
    await group.until(group.has_settled)
    for number in range(2):
        await group.kill(number)
    old = server.topology.serving(group.keyspace)
    apart = shard_servers(5)[4:] * 2  # where no log is purged
    await asyncio.to_thread(write, server, "DELETE FROM t WHERE id < 5", "UPDATE t SET v = 'new' WHERE id > 20")
    for names in cuts:
        await asyncio.to_thread(reshard, server, targets(group.keyspace, names, apart))
    for number in purged:
        for shard in old[number::2]:
            await asyncio.to_thread(purge_log, shard)
    for reader in group.readers:
        reader.reads.clear()

    for number in chance.sample(range(2), 2):
        group.run(number)
        await asyncio.sleep(chance.uniform(0, 2))
    for _ in range(seed * 4):
        number = chance.randrange(2)
        await group.kill(number)
        await asyncio.sleep(chance.uniform(0, 0.5))
        group.run(number)
        await asyncio.sleep(chance.uniform(0, 1.5))

    await group.until(group.has_settled)
    for reader in group.readers:  # nobody can know of rows that were deleted in a log that is purged
        reader.rows = {row_id: row for row_id, row in reader.rows.items() if row_id >= 5}
    await group.finish()
    assert not set(group.readers[0].reads) & set(group.readers[1].reads)


CUTS = {"split": ("-40", "40-80"), "merge": ("-80",), "joined": ("40-c0",), "both": ("-20", "20-c0"), "all": ("-",)}


RANDOM = [(cut, seed) for cut in CUTS for seed in range(6)]
"""An even seed has one reader."""


@pytest.mark.parametrize(
    ("cut", "seed"),
    gate(
        [("split", 0), ("both", 1)],
        RANDOM,
        because="the gate has one reader and two, and each cut by the tests above",
    ),
)
async def test_readers_killed_at_random_around_a_reshard_in_the_copy_lose_and_repeat_nothing(
    cut: str, seed: int, start_vtgate: StartVtgate, shard_servers: Callable[[int], list[MysqlServer]]
) -> None:
    """Two readers with two shards each, or one with all, each killed and started again at any moment while rows change."""
    chance = random.Random(f"{cut} {seed}")
    server = start_vtgate(shards=("-80", "80-") if cut == "split" else QUARTERS, options=SMALL_VIEWS)
    fill(server)
    group = Group(server, 1 + seed % 2)
    for reader in group.readers:
        reader.pause_s = chance.choice([0.0, 0.01, 0.05])
    new = targets(group.keyspace, CUTS[cut], shard_servers(4))

    async def change() -> None:
        for _ in range(40):
            number = chance.randrange(1, ROWS + 1)
            kind = chance.choice(["DELETE FROM t WHERE id = {}", "UPDATE t SET v = CONCAT(v, '+') WHERE id = {}"])
            await asyncio.to_thread(
                write, server, kind.format(number), f"INSERT INTO t (id, v) VALUES ({next(ids)}, 'n')"
            )
            await asyncio.sleep(chance.uniform(0, 0.05))

    async def kill() -> None:
        for _ in range(chance.randrange(1, 8)):
            number = chance.randrange(len(group.readers))
            await group.kill(number)
            await asyncio.sleep(chance.uniform(0, 0.3))
            group.run(number)
            await asyncio.sleep(chance.uniform(0, 0.5))

    ids = itertools.count(1_000)
    group.run_all()
    await group.until(lambda: group.readers[0].checkpoint is not None)  # as many tasks as shards were dealt
    changing, killing = asyncio.create_task(change()), asyncio.create_task(kill())
    await asyncio.sleep(chance.uniform(0, 0.8))
    await asyncio.to_thread(reshard, server, new)
    await asyncio.gather(changing, killing)

    await group.finish()
