"""OPEN RESETLOGS: the redo is followed over it, or refused where changes were read that are gone."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from libs.errors import PositionPurged
from libs.source.oracle.settings import OracleSnapshotSettings
from libs.source.snapshot_mode import SnapshotMode
from services.logminer_reader import source as source_module
from services.logminer_reader.position import decode_position
from services.logminer_reader.signals import Signals
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


def insert(read: Reading, *ids: int) -> int:
    """A transaction; the SCN of its COMMIT."""
    transaction = read.model.begin()
    for row_id in ids:
        transaction.insert(read.model.tables["SHOP", "T"], {"ID": row_id, "V": "v"})
    scn = transaction.commit()
    assert scn is not None
    return scn


def copied(read: Reading, mode: SnapshotMode = SnapshotMode.INITIAL) -> Following:
    following = Following(
        settings_of(read, mode),
    )
    insert(read, 1)
    asyncio.run(following.copy())
    return following


def settings_of(read: Reading, mode: SnapshotMode) -> Any:
    read.snapshot = OracleSnapshotSettings(mode=mode)
    read.__post_init__()
    return read.settings


def followed(following: Following, count: int) -> list[tuple[str, int]]:
    events = asyncio.run(following.read(lambda events: len(events) >= count))
    return [(event["op"], (event["after"] or event["before"])["ID"]) for event in events]


def epoch_of(following: Following) -> int:
    assert following.checkpoint is not None
    return decode_position(following.checkpoint.position).epoch


def test_the_rest_of_the_old_redo_is_read_then_the_new(read: Reading) -> None:
    """Twice: the second one came while the reader was at the first."""
    following = copied(read)
    insert(read, 2)
    lost = read.model.begin()
    lost.insert(read.model.tables["SHOP", "T"], {"ID": 99, "V": "open at the end"})
    scn = insert(read, 3)
    insert(read, 98)
    read.model.reset_logs(scn)
    insert(read, 4)
    read.model.switch_logs()
    insert(read, 5)
    read.model.reset_logs()
    insert(read, 6)

    assert followed(following, 5) == [("c", 2), ("c", 3), ("c", 4), ("c", 5), ("c", 6)]
    assert epoch_of(following) == 2
    insert(read, 7)
    assert followed(following, 1) == [("c", 7)]


def test_changes_that_were_read_and_are_gone_are_refused(read: Reading) -> None:
    following = copied(read)
    scn = insert(read, 2)
    insert(read, 3)
    assert followed(following, 2) == [("c", 2), ("c", 3)]
    read.model.reset_logs(scn)
    insert(read, 4)

    with pytest.raises(PositionPurged, match=rf"RESETLOGS at SCN {scn + 1}.*no part of the database.*when_needed"):
        followed(following, 1)


def test_when_needed_copies_again_under_a_new_epoch(read: Reading) -> None:
    following = copied(read, SnapshotMode.WHEN_NEEDED)
    scn = insert(read, 2)
    insert(read, 3)
    assert followed(following, 2) == [("c", 2), ("c", 3)]
    read.model.reset_logs(scn)
    insert(read, 4)

    assert followed(following, 3) == [("r", 1), ("r", 2), ("r", 4)]
    assert epoch_of(following) == 1


def test_an_incarnation_that_the_database_does_not_come_from_is_refused(read: Reading) -> None:
    following = copied(read)
    first = read.model.incarnations.pop()
    read.model.incarnations.append(first._replace(resetlogs_id=7))

    with pytest.raises(PositionPurged, match=r"does not come from it .*RESETLOGS_ID 7"):
        followed(following, 1)


def test_a_last_log_that_was_never_archived_is_named(read: Reading) -> None:
    """A failover may lose it. Its thread's redo does not reach the branch."""
    following = copied(read)
    read.model.switch_logs()
    insert(read, 2)
    lost = read.model.thread.current
    read.model.reset_logs()
    insert(read, 3)
    lost.deleted_from.add(1)

    with pytest.raises(PositionPurged, match=f"log {lost.sequence} of thread 1 is gone"):
        followed(following, 2)
