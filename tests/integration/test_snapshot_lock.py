"""How long the views of a copy hold back the writers of a real MySQL."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import pytest

from libs.errors import AccessDenied, SourceUnavailable
from libs.source.mysql import table_copy
from libs.source.mysql.settings import DatabaseSettings, SnapshotLock, SnapshotSettings
from libs.source.mysql.snapshot import ReadView, open_read_view
from tests.conftest import MysqlServer, StartMysql
from tests.integration.log_reading import LogReading, events_of, ids


@contextmanager
def long_query(server: MysqlServer, table: str) -> Iterator[None]:
    """A statement that reads ``table`` until the block ends, and has done so for a second."""
    connection = server.connect()

    def run() -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT SLEEP(300) FROM {table} LIMIT 1")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        while not server.execute(
            "SELECT 1 FROM information_schema.PROCESSLIST WHERE TIME >= 1 AND INFO LIKE 'SELECT SLEEP(300)%'"
        ):
            time.sleep(0.05)
        yield
    finally:
        server.execute(f"KILL QUERY {connection.thread_id()}")
        thread.join()
        connection.close()


def settings_of(server: MysqlServer) -> DatabaseSettings:
    return DatabaseSettings(host=server.host, port=server.port, user="root")


async def test_a_copy_goes_on_without_a_lock_that_is_not_to_be_had(
    mysql_server: MysqlServer, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """After a statement that has run for ``lock_wait_s``; nobody else waits for it either."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    reading = LogReading(
        mysql_server,
        settings={"include_tables": (rf"{database}\..*",), "snapshot": SnapshotSettings(lock_wait_s=1)},
    )

    with long_query(mysql_server, f"{database}.t"):
        await reading.begin()
        mysql_server.execute("INSERT INTO t VALUES (2)", database=database)

    assert ids(events_of(reading.entries)) == [1]
    told = capfd.readouterr().out
    assert "snapshot_lock_skipped" in told
    assert "with_lock=False" in told


async def test_a_user_who_may_lock_can_do_without(
    mysql_server: MysqlServer, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """No lock is asked for."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    reading = LogReading(
        mysql_server,
        settings={"include_tables": (rf"{database}\..*",), "snapshot": SnapshotSettings(lock=SnapshotLock.NONE)},
    )
    mysql_server.execute("SET GLOBAL general_log = ON", "SET GLOBAL log_output = 'TABLE'")
    try:
        await reading.begin()
    finally:
        mysql_server.execute("SET GLOBAL general_log = OFF", "SET GLOBAL log_output = 'FILE'")

    asked = mysql_server.execute("SELECT CAST(argument AS CHAR) FROM mysql.general_log WHERE argument LIKE '%LOCK%'")
    assert [text for (text,) in asked if "general_log" not in text] == []
    assert ids(events_of(reading.entries)) == [1]
    assert "with_lock=False" in capfd.readouterr().out


def test_a_server_without_gtids_is_not_copied_without_a_lock(start_mysql: StartMysql) -> None:
    """It is tried again while a statement is in the way; a setting that forbids the lock is for a person to mend."""
    server = start_mysql(extra_options=("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"))
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")

    with long_query(server, "d.t"), pytest.raises(SourceUnavailable, match="lock_wait_s"):
        open_read_view(settings_of(server), epoch=0, lock_wait_s=1)
    with pytest.raises(AccessDenied, match=r"snapshot\.lock"):
        open_read_view(settings_of(server), epoch=0, lock_wait_s=0)
    open_read_view(settings_of(server), epoch=0, lock_wait_s=1).connection.close()


def test_a_reader_that_hangs_does_not_hold_the_lock(
    mysql_server: MysqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The views of all processes are to be open within one bound; writers go on after it, and the processes are gone."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    monkeypatch.setattr(table_copy, "_VIEW_TIMEOUT_S", 0.5)
    monkeypatch.setattr(table_copy, "_END_TIMEOUT_S", 0.5)
    readers: list[BaseProcess] = []

    def stop_and_open(*arguments: object, **settings: object) -> ReadView:
        readers.extend(each for each in multiprocessing.active_children() if each.name == "snapshot-reader")
        for reader in readers:
            assert reader.pid is not None
            os.kill(reader.pid, signal.SIGSTOP)
        return open_read_view(*arguments, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(table_copy, "open_read_view", stop_and_open)
    with pytest.raises(SourceUnavailable, match="does not answer"):
        table_copy.open_readers(settings_of(mysql_server), epoch=0, processes=2, lock_wait_s=2, waits_for_xa=False)

    assert len(readers) == 2
    for reader in readers:
        reader.join(30)
        assert not reader.is_alive()
    mysql_server.execute("INSERT INTO t VALUES (1)", database=database)
