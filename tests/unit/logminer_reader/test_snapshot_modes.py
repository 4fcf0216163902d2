"""``snapshot.mode`` of the whole reader over the stand-in: its first steps, with a checkpoint and without one."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from libs.errors import SchemaUnknown
from libs.source.oracle.settings import OracleSnapshotSettings
from libs.source.snapshot_mode import SnapshotMode
from libs.types.checkpoint import IncrementalSnapshot
from libs.types.position import SourcePosition
from services.logminer_reader import source as source_module
from services.logminer_reader.signals import Signals
from services.logminer_reader.source import OracleChangeLog
from tests.oracle.following import Following
from tests.oracle.reading import Reading, reading, run


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka has no signals, and the pre-flight, which has tests of its own, is left out at each of the many starts."""
    monkeypatch.setattr(Signals, "open", lambda _: None)
    monkeypatch.setattr(source_module, "require_sound_source", lambda _: None)


@pytest.fixture
def read() -> Iterator[Reading]:
    with reading() as found:
        run(found.listener, 'CREATE TABLE SHOP.T ("ID" NUMBER(9) PRIMARY KEY, "V" VARCHAR2(20))')
        yield found


def source(read: Reading, mode: SnapshotMode, before: Following | None = None) -> Following:
    """A process with this mode, which goes on where another one ended."""
    settings = msgspec.structs.replace(read.settings, snapshot=OracleSnapshotSettings(mode=mode))
    return Following(settings) if before is None else replace(before, settings=settings)


def insert(read: Reading, *ids: int) -> None:
    for row_id in ids:
        run(read.listener, f"INSERT INTO SHOP.T VALUES ({row_id}, 'v{row_id}')")


def seen(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Operation and key."""
    return [(event["op"], (event["after"] or event["before"])["ID"]) for event in events]


def follow(following: Following, count: int) -> list[tuple[str, int]]:
    return seen(asyncio.run(following.read(lambda events: len(events) >= count)))


def test_always_follows_the_log_up_to_a_copy_of_all_rows_at_each_start(read: Reading) -> None:
    insert(read, 1)
    first = source(read, SnapshotMode.ALWAYS)
    assert seen(asyncio.run(first.copy())) == [("r", 1)]

    insert(read, 2)
    opened = read.model.begin()
    table = read.model.tables["SHOP", "T"]
    opened.insert(table, {"ID": 3, "V": "open at the copy"})
    second = source(read, SnapshotMode.ALWAYS, first)
    assert follow(second, 3) == [("c", 2), ("r", 1), ("r", 2)]

    opened.commit()
    insert(read, 4)
    third = source(read, SnapshotMode.INITIAL, second)
    assert follow(third, 2) == [("c", 3), ("c", 4)]


@pytest.mark.parametrize("kind", ["oracle", "mysql"])
def test_a_reset_begins_again_in_a_new_epoch_and_repeats_no_signal(read: Reading, kind: str) -> None:
    """Also where the source was of another kind before, whose position says nothing here."""
    insert(read, 1)
    following = source(read, SnapshotMode.INITIAL)
    assert seen(asyncio.run(following.copy())) == [("r", 1)]
    before = following.checkpoint
    assert before is not None
    insert(read, 2)
    following.checkpoint = msgspec.structs.replace(
        before,
        position=before.position if kind == "oracle" else SourcePosition(source_kind="mysql", token=b"{}"),
        incremental=IncrementalSnapshot(signals_offset=42),
        starts_over=True,
    )

    assert sorted(seen(asyncio.run(following.copy()))) == [("r", 1), ("r", 2)]
    after = following.checkpoint
    insert(read, 3)
    assert follow(following, 1) == [("c", 3)]
    assert after.order.epoch == before.order.epoch + 1
    assert after.incremental.signals_offset == 42


def test_always_leaves_what_commits_after_the_copys_scn_to_the_log(
    read: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window that reaches the copy's SCN has a later commit: it comes after the copied rows."""
    insert(read, 1)
    first = source(read, SnapshotMode.ALWAYS)
    asyncio.run(first.copy())
    chosen = OracleChangeLog._copy_again_at

    async def then_commit(self: OracleChangeLog, at: Any) -> Any:
        found = await chosen(self, at)
        await asyncio.to_thread(insert, read, 3)
        return found

    insert(read, 2)
    read.model.switch_logs()  # whose SCN is after the commit's
    monkeypatch.setattr(OracleChangeLog, "_copy_again_at", then_commit)
    assert follow(source(read, SnapshotMode.ALWAYS, first), 4) == [("c", 2), ("r", 1), ("r", 2), ("c", 3)]


def test_never_begins_at_the_oldest_log(read: Reading) -> None:
    insert(read, 1)
    read.model.switch_logs()
    insert(read, 2)
    assert follow(source(read, SnapshotMode.NEVER), 2) == [("c", 1), ("c", 2)]


def test_never_refuses_rows_whose_create_table_is_not_in_the_log(read: Reading) -> None:
    insert(read, 1)
    read.model.switch_logs()
    insert(read, 2)
    for log in read.model.thread.logs[:1]:
        log.deleted_from.update(range(1, read.model.thread.destinations + 1))
        log.is_overwritten = True
    with pytest.raises(SchemaUnknown, match=r"SHOP\.T .*CREATE TABLE"):
        follow(source(read, SnapshotMode.NEVER), 1)


def test_recovery_learns_the_tables_again(read: Reading) -> None:
    """The history is lost, and so is a table's definition; none was changed meanwhile."""
    insert(read, 1)
    first = source(read, SnapshotMode.INITIAL)
    asyncio.run(first.copy())
    insert(read, 2)
    first.history.changes.clear()
    recovered = source(read, SnapshotMode.RECOVERY, first)
    assert follow(recovered, 1) == [("c", 2)]
    assert [str(table_id) for _, table_id, _, _ in recovered.history.changes] == ["SHOP.T"]


@pytest.mark.parametrize("mode", [SnapshotMode.NO_DATA, SnapshotMode.SCHEMA_ONLY])
def test_no_data_begins_now(read: Reading, mode: SnapshotMode) -> None:
    insert(read, 1)
    following = source(read, mode)
    asyncio.run(following.read(lambda _: True))
    insert(read, 2)
    assert follow(following, 1) == [("c", 2)]
