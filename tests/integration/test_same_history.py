"""A server whose log was reset counts its transactions from 1 again: the reader halts by name and passes none over."""

import asyncio

import pytest

from libs.errors import PositionPurged, SourceUnavailable
from libs.source.mysql.settings import SnapshotSettings
from libs.source.snapshot_mode import SnapshotMode
from services.binlog_reader import log_following
from tests.conftest import MysqlServer, StartMysql
from tests.integration.log_reading import Event, LogReading, ids

RESET = "RESET BINARY LOGS AND GTIDS"


def reading_of(server: MysqlServer) -> LogReading:
    settings = {"include_tables": (r"d\..*",), "snapshot": SnapshotSettings(mode=SnapshotMode.NO_DATA)}
    return LogReading(server, settings=settings, database={"heartbeat_s": 1.0})


async def followed_until_reset(
    server: MysqlServer, monkeypatch: pytest.MonkeyPatch
) -> tuple[LogReading, LogReading, asyncio.Task[list[Event]]]:
    """A reading that was ended and resumed, one that follows the log, and its task, on a log that was just reset."""
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    reading, live = reading_of(server), reading_of(server)
    for each in (reading, live):
        await each.begin()
    seen = []
    for number in (1, 2):
        server.execute(f"INSERT INTO d.t VALUES ({number})")
        seen += ids(await reading.read(bool))
    assert seen == [1, 2]
    monkeypatch.setattr(log_following, "_HISTORY_LOOK_S", 0.0)
    follows = asyncio.Event()

    def first_came(events: list[Event]) -> bool:
        if events:
            follows.set()
        return False

    following = asyncio.create_task(live.read(first_came))
    await follows.wait()
    await asyncio.to_thread(server.execute, RESET)
    return reading, live, following


async def test_a_log_that_was_reset_is_another_history(
    start_mysql: StartMysql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two runs, with new numbers that cover the old ones; and while the log is followed, where nothing would come."""
    server = start_mysql(server_id=13)
    reading, live, following = await followed_until_reset(server, monkeypatch)

    with pytest.raises(SourceUnavailable, match="no longer has transactions that it had"):
        await following
    with pytest.raises(PositionPurged, match="does not have transactions that were already read"):
        await live.read(bool)
    server.execute(*(f"INSERT INTO d.t VALUES ({number})" for number in range(10, 20)))
    with pytest.raises(PositionPurged, match="has another history than the one that was read"):
        await reading.read(bool)


async def test_a_file_of_the_same_name_is_another_one_after_a_reset(
    start_mysql: StartMysql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without GTIDs: the new file has grown beyond the old place, and its first rows would be passed over."""
    server = start_mysql(server_id=14, extra_options=("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"))
    reading, _live, following = await followed_until_reset(server, monkeypatch)

    with pytest.raises(SourceUnavailable, match="up to which it was read"):
        await following
    server.execute(*(f"INSERT INTO d.t VALUES ({number})" for number in range(10, 60)))
    with pytest.raises(PositionPurged, match="is another file than the log had before"):
        await reading.read(bool)


async def test_transactions_that_were_declared_as_executed_are_missed(
    start_mysql: StartMysql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a dump that is restored without the log: its rows are there, its GTIDs count, and the log shows neither."""
    server = start_mysql(server_id=15)
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    live = reading_of(server)
    await live.begin()
    monkeypatch.setattr(log_following, "_HISTORY_LOOK_S", 0.0)
    server.execute("INSERT INTO d.t VALUES (0)")
    follows = asyncio.Event()
    following = asyncio.create_task(live.read(lambda events: bool(events and follows.set())))
    await follows.wait()
    server.execute(
        "SET SESSION sql_log_bin = 0",
        "INSERT INTO d.t VALUES (1)",
        "SET GLOBAL gtid_purged = '+00000000-1111-2222-3333-444444444444:1-3'",
    )
    server.execute("INSERT INTO d.t VALUES (2)")

    with pytest.raises(
        SourceUnavailable, match=r"that its log does not hold \(00000000-1111-2222-3333-444444444444:1-3"
    ):
        await following
    with pytest.raises(PositionPurged, match="purged"):
        await live.read(bool)


async def test_a_log_that_is_reset_before_anybody_looked_is_another_history(start_mysql: StartMysql) -> None:
    """Within the seconds between the begin and the first look."""
    server = start_mysql(server_id=16)
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    live = reading_of(server)
    await live.begin()
    following = asyncio.create_task(live.read(bool))
    await asyncio.sleep(1.0)
    server.execute(RESET)

    with pytest.raises(SourceUnavailable, match="no longer has transactions that it had"):
        await following
