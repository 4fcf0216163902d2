"""Several readers of one keyspace: the stack waits for all of them and shows all of them, and none of those before."""

import json
from pathlib import Path

import pytest

from libs.errors import InvalidSettings
from libs.mesh import catch_up
from libs.mesh.catch_up import (
    NotCaughtUp,
    SentSignals,
    StackHops,
    wait_for_copies,
    wait_for_snapshots,
    wait_for_whole_copy,
)
from libs.mesh.documents import Documents, read_documents
from libs.mesh.home import Home, home_at, write_examples
from libs.mesh.reader_tasks import Generation, last_generations, of_todays_readers, store_generations
from libs.mysql.gtid import GtidSet
from libs.operations.status import SourceStatus, _routed
from libs.types.checkpoint import Checkpoint, FinishedCopy, IncrementalSnapshot, SnapshotProgress, TableCopy
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from libs.types.progress import Progress

HOST = "11111111-1111-1111-1111-111111111111"
SIGNAL = SentSignals(("1",), 4)


def checkpoint(
    name: str,
    shard: str = "-80",
    *,
    snapshot: SnapshotProgress | None = None,
    incremental: IncrementalSnapshot | None = None,
) -> Checkpoint:
    token = {"vgtid": [{"keyspace": "ks", "shard": shard, "gtid": f"MySQL56/{HOST}:1-5"}]}
    return Checkpoint(
        partition=SourcePartition(source="shop", name=name),
        position=SourcePosition(source_kind="vitess", token=json.dumps(token).encode()),
        order=EventOrder(epoch=0, rank=5, tx_ordinal=0),
        fencing_token=1,
        committed_at_us=1,
        published_at_us=1,
        snapshot=snapshot,
        incremental=incremental or IncrementalSnapshot(signals_offset=9),
    )


OLD = checkpoint("0", snapshot=SnapshotProgress(), incremental=IncrementalSnapshot())
"""Of the reader before: a copy that it did not finish is not waited for."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Of a stack whose keyspace has two readers now."""
    made = home_at(tmp_path)
    write_examples(made)
    (made.sources_dir / "shop.yaml").write_text("kind: vitess\nvtgate: {}\nkeyspace: ks\ntasks: 2\n")
    store_generations(made, {"shop": Generation(tasks=2)})
    return made


@pytest.fixture
def documents(home: Home) -> Documents:
    return read_documents(home)


def have(monkeypatch: pytest.MonkeyPatch, home: Home, *found: Checkpoint) -> None:
    monkeypatch.setattr(catch_up, "checkpoints", lambda _: of_todays_readers(found, last_generations(home)))


def test_a_snapshot_is_done_when_every_reader_has_done_its_part(
    home: Home, documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = SnapshotProgress(rows_copied=7, rows_estimated=9)
    have(monkeypatch, home, OLD, checkpoint("task0_2_0"))
    with pytest.raises(NotCaughtUp, match="the whole snapshot"):
        wait_for_snapshots(home, documents, timeout_s=0)

    have(monkeypatch, home, OLD, checkpoint("task0_2_0"), checkpoint("task1_2_0", snapshot=half))
    with pytest.raises(NotCaughtUp, match="7 of about 9 rows"):
        wait_for_snapshots(home, documents, timeout_s=0)

    have(monkeypatch, home, OLD, checkpoint("task0_2_0"), checkpoint("task1_2_0"))
    wait_for_snapshots(home, documents, timeout_s=0)


def test_a_copy_is_done_when_every_reader_has_heard_of_it_and_done_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = (FinishedCopy(table="ks.t", signal_id="1"),)
    done = checkpoint("task0_2_0", incremental=IncrementalSnapshot(signals_offset=5, finished=finished))
    unheard = checkpoint("task1_2_0", incremental=IncrementalSnapshot(signals_offset=4))
    copying = IncrementalSnapshot(signals_offset=5, tables=(TableCopy(table="ks.t", signal_id="1"),))

    have(monkeypatch, home, OLD, done, unheard)
    for wait in (
        lambda: wait_for_copies(StackHops(home), {"shop": SIGNAL}, timeout_s=0),
        lambda: wait_for_whole_copy(StackHops(home), "shop", "ks.t", SIGNAL, timeout_s=0),
    ):
        with pytest.raises(NotCaughtUp, match="a signal"):
            wait()

    have(monkeypatch, home, OLD, done, checkpoint("task1_2_0", incremental=copying))
    with pytest.raises(NotCaughtUp, match="a copy of"):
        wait_for_copies(StackHops(home), {"shop": SIGNAL}, timeout_s=0)

    have(monkeypatch, home, OLD, done, checkpoint("task1_2_0", incremental=done.incremental))
    wait_for_copies(StackHops(home), {"shop": SIGNAL}, timeout_s=0)
    wait_for_whole_copy(StackHops(home), "shop", "ks.t", SIGNAL, timeout_s=0)


def test_what_the_readers_have_is_what_all_of_them_have(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own shards' transactions."""
    gtids = GtidSet.parse(f"{HOST}:1-5")
    have(monkeypatch, home, OLD, checkpoint("task0_2_0", "-80"), checkpoint("task1_2_0", "80-"))

    assert catch_up._readers_behind(StackHops(home), {"shop": {"-80": gtids, "80-": gtids}}) is None
    later = GtidSet.parse(f"{HOST}:1-7")
    assert str(catch_up._readers_behind(StackHops(home), {"shop": {"-80": gtids, "80-": later}})).endswith(
        "by 2 transaction(s)"
    )


def test_what_was_routed_of_several_readers_is_one_line(home: Home) -> None:
    """The reader of the oldest position is shown, the events of all are counted, and earlier readers' rows are past."""

    def progress(name: str, rows: int, committed_at_s: int) -> Progress:
        return Progress(
            partition=SourcePartition(source="shop", name=name),
            tenant="acme",
            hop="router",
            table="",
            order=EventOrder(epoch=0, rank=rows, tx_ordinal=0),
            committed_at_us=committed_at_s * 1_000_000,
            rows=rows,
        )

    sources = [
        SourceStatus(source="shop", source_partition=name, state="streaming", committed_at_us=20_000_000)
        for name in ("task0_2_0", "task1_2_0")
    ]

    (line,) = _routed([progress("0", 500, 1), progress("task0_2_0", 7, 20), progress("task1_2_0", 8, 15)], sources)

    assert (line.events, line.lag_s) == (15, 5.0)


def test_a_broken_file_of_what_ran_last_is_told(home: Home) -> None:
    """A guess would begin the shards again."""
    (home.data_dir / "tasks.json").write_text("{")

    with pytest.raises(InvalidSettings, match=r"tasks\.json"):
        last_generations(home)
