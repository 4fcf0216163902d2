"""Incremental snapshots of a real MySQL beside the other events of the log, and beside its replicas."""

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from libs.source.mysql.client import Connection
from libs.source.mysql.settings import DatabaseSettings, SnapshotSettings
from libs.source.snapshot_mode import SnapshotMode
from libs.telemetry.faults import lasting_faults
from services.binlog_reader import chunks, incremental
from services.binlog_reader.incremental import Chunk
from tests.conftest import MysqlServer, StartMysql
from tests.integration.log_reading import LogReading, ids


async def test_changes_go_on_and_signals_are_heard_while_a_replica_holds_an_incremental_snapshot_up(
    start_mysql: StartMysql,
) -> None:
    """A replica that stands still lags infinitely far; one that does not answer counts as that."""
    source, replica = (start_mysql(server_id=server_id) for server_id in (11, 12))
    replica.execute(
        f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{source.host}', SOURCE_PORT = {source.port}, SOURCE_USER = 'root', "
        "SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
    )
    source.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY)",
        "CREATE TABLE d.u (id INT PRIMARY KEY)",
        "CREATE TABLE d.signals (id VARCHAR(40) PRIMARY KEY, type VARCHAR(40), data TEXT)",
        "INSERT INTO d.t VALUES (1), (2)",
        "INSERT INTO d.u VALUES (1), (2)",
    )
    reading = LogReading(
        source,
        settings={
            "include_tables": (r"d\..*",),
            "signal_table": "d.signals",
            "snapshot": SnapshotSettings(
                mode=SnapshotMode.NO_DATA,
                max_replica_lag_s=5.0,
                lag_replicas=(DatabaseSettings(host=replica.host, port=replica.port, user="root"),),
            ),
        },
    )
    await reading.begin()
    wanted = '{"data-collections": ["d.t", "d.u"]}'
    source.execute(f"INSERT INTO d.signals VALUES ('1', 'execute-snapshot', '{wanted}')", "INSERT INTO d.t VALUES (3)")

    stopped = await reading.read(lambda events: any(event.table == "d.t" for event in events))
    source.execute(
        "INSERT INTO d.signals VALUES ('2', 'stop-snapshot', '{\"data-collections\": [\"d.u\"]}')",
        "INSERT INTO d.t VALUES (4)",
    )
    heard = await reading.read(lambda events: any(event.table == "d.t" for event in events))
    waiting = [copy.table for copy in reading.checkpoint.incremental.tables] if reading.checkpoint else []
    replica.kill()
    source.execute("INSERT INTO d.t VALUES (5)")
    unanswered = await reading.read(lambda events: len(events) >= 1)
    replica.restart()
    replica.execute("START REPLICA")
    read = await reading.read(lambda events: sum(event.op == "r" for event in events) >= 5)

    assert [(event.op, event.after["id"]) for event in stopped if event.table == "d.t"] == [("c", 3)]
    assert [(event.op, event.after["id"]) for event in heard if event.table == "d.t"] == [("c", 4)]
    assert waiting == ["d.t"]
    assert [(event.op, *ids([event])) for event in unanswered] == [("c", 5)]
    assert [(event.table, *ids([event])) for event in read] == [("d.t", row_id) for row_id in (1, 2, 3, 4, 5)]


@pytest.mark.parametrize("quiet_rows", [200, 0])
async def test_a_table_without_a_key_is_read_beside_writes_or_given_up_by_name(
    mysql_server: MysqlServer,
    database: str,
    quiet_rows: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A row is written during each chunk that asks for more than ``quiet_rows``: chunks shrink until none is, and no row
    comes twice. Where one is written during every chunk, the table leaves the snapshot and the others come."""
    mysql_server.execute(
        "CREATE TABLE signals (id VARCHAR(40) PRIMARY KEY, type VARCHAR(40), data TEXT)",
        "CREATE TABLE t (seq INT NOT NULL, INDEX (seq))",
        "CREATE TABLE u (id INT PRIMARY KEY, seq INT NOT NULL)",
        "INSERT INTO t VALUES " + ",".join(f"({n})" for n in range(900)),
        "INSERT INTO u VALUES (1, 1)",
        database=database,
    )
    reading = told_by_signals(mysql_server, database, chunk_rows=900)
    await reading.begin()
    read_rows = incremental._read_rows

    def read_beside_a_write(connection: Connection, chunk: Chunk, chunk_rows: int, **options: Any) -> None:
        read_rows(connection, chunk, chunk_rows, **options)
        if chunk_rows > quiet_rows and chunk.copy.table.endswith(".t"):
            mysql_server.execute(f"INSERT INTO {database}.t VALUES (10000)")

    monkeypatch.setattr(incremental, "_read_rows", read_beside_a_write)
    wanted = f'{{"data-collections": ["{database}.t", "{database}.u"], "surrogate-key": "seq"}}'
    mysql_server.execute(f"INSERT INTO {database}.signals VALUES ('1', 'execute-snapshot', '{wanted}')")

    events = await reading.read(lambda events: any(event.table == f"{database}.u" for event in events))

    read = [event.after["seq"] for event in events if event.op == "r" and event.table == f"{database}.t"]
    told = capfd.readouterr().out
    assert sorted(seq for seq in read if seq < 10_000) == ([*range(900)] if quiet_rows else [])
    assert ("and its rows changed during each of" in told) == (not quiet_rows)


async def test_a_copy_that_is_short_is_refused_by_name(
    mysql_server: MysqlServer, database: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The source's own count shows a chunk that ended its table too early; rows that came by the log are none of those. The
    other table is finished, and a fault stays until the first one is."""
    mysql_server.execute(
        "CREATE TABLE signals (id VARCHAR(40) PRIMARY KEY, type VARCHAR(40), data TEXT)",
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE TABLE u (id INT PRIMARY KEY)",
        *(f"INSERT INTO {name} VALUES {','.join(f'({n})' for n in range(30))}" for name in "tu"),
        database=database,
    )
    reading = told_by_signals(mysql_server, database, chunk_rows=10)
    await reading.begin()
    read_rows = incremental._read_rows
    is_short, numbers = True, itertools.count(100)

    def read_some_rows(connection: Connection, chunk: Chunk, chunk_rows: int, **options: Any) -> None:
        read_rows(connection, chunk, chunk_rows, **options)
        number = next(numbers)
        mysql_server.execute(
            f"INSERT INTO {database}.u VALUES ({number})", f"DELETE FROM {database}.u WHERE id = {number - 100}"
        )
        if is_short and chunk.table_id.table == "t":
            chunk.copy = msgspec.structs.replace(chunk.copy, last_key=chunk.copy.maximum_key)

    async def ask() -> list[str]:
        wanted = f'{{"data-collections": ["{database}.t", "{database}.u"]}}'
        mysql_server.execute(
            f"REPLACE INTO {database}.signals VALUES ({int(is_short)}, 'execute-snapshot', '{wanted}')"
        )
        await reading.read(
            lambda _: (
                reading.checkpoint is not None
                and not reading.checkpoint.incremental.tables
                and any(each.table.endswith(".u") for each in reading.checkpoint.incremental.finished[-1:])
            )
        )
        assert reading.checkpoint is not None
        return [each.table[-1] for each in reading.checkpoint.incremental.finished]

    monkeypatch.setattr(incremental, "_read_rows", read_some_rows)

    finished = await ask()
    refused = [
        fault.happened
        for fault in lasting_faults()
        if (fault.id, fault.scope.table) == ("copy_refused", f"{database}.t")
    ]
    is_short = False
    finished_then = await ask()

    assert finished == ["u"]
    assert len(refused) == 1
    assert "the source has 30 rows, and at least 20 of them were not read" in refused[0]
    assert finished_then == ["u", "t", "u"]
    assert not [
        fault for fault in lasting_faults() if (fault.id, fault.scope.table) == ("copy_refused", f"{database}.t")
    ]


@pytest.mark.parametrize("times", [3, 4])
@pytest.mark.parametrize("fault", ["a row is lost", "a value is another"])
async def test_a_chunk_that_is_not_what_the_source_has_is_read_again(
    mysql_server: MysqlServer,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    fault: str,
    times: int,
) -> None:
    """Three times; then the table is refused by name. The source counts and sums up the chunk's rows at the same moment."""
    mysql_server.execute(
        "CREATE TABLE signals (id VARCHAR(40) PRIMARY KEY, type VARCHAR(40), data TEXT)",
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), w DOUBLE)",
        "CREATE TABLE u (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 'one', 0.1), (2, 'two', NULL), (3, '', -0.0)",
        "INSERT INTO u VALUES (1)",
        database=database,
    )
    reading = told_by_signals(mysql_server, database, chunk_rows=10)
    await reading.begin()
    select, left = incremental.select_raw, itertools.count(-times)

    def faulty(connection: Connection, statement: str, timeout_s: float) -> Iterator[bytes]:
        packets = list(select(connection, statement, timeout_s))
        if len(packets) == 3 and next(left) < 0:
            packets = packets[:2] if fault == "a row is lost" else [packets[0].replace(b"one", b"eno"), *packets[1:]]
        return iter(packets)

    monkeypatch.setattr(incremental, "select_raw", faulty)
    wanted = f'{{"data-collections": ["{database}.t", "{database}.u"]}}'
    mysql_server.execute(f"INSERT INTO {database}.signals VALUES ('1', 'execute-snapshot', '{wanted}')")

    events = await reading.read(lambda events: any(event.table == f"{database}.u" for event in events))

    read = [event.after for event in events if event.op == "r" and event.table == f"{database}.t"]
    whole = [{"id": 1, "v": "one", "w": 0.1}, {"id": 2, "v": "two", "w": None}, {"id": 3, "v": "", "w": -0.0}]
    assert read == (whole if times == 3 else [])
    assert ("at the same moment the source has 3 with" in capfd.readouterr().out) == (times == 4)


async def test_a_read_is_after_every_change_that_it_holds(
    mysql_server: MysqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two updates of a row in one transaction at a quiet source; and two more, committed when the log stands still already:
    the chunk has them before the log does. A TRUNCATE as the last transaction before empties no copy."""
    mysql_server.execute(
        "CREATE TABLE signals (id VARCHAR(40) PRIMARY KEY, type VARCHAR(40), data TEXT)",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 0), (2, 0)",
        database=database,
    )
    reading = told_by_signals(mysql_server, database, chunk_rows=1)
    await reading.begin()
    writes = iter([("UPDATE t SET v = 10 WHERE id = 2", "UPDATE t SET v = 11 WHERE id = 2"), ("TRUNCATE t",)])

    def read_after_a_write(*args: Any, **options: Any) -> Chunk | None:
        mysql_server.execute("BEGIN", *next(writes, ()), "COMMIT", database=database)
        return incremental.read_between_watermarks(*args, **options)

    monkeypatch.setattr(chunks, "read_between_watermarks", read_after_a_write)
    wanted = f'{{"data-collections": ["{database}.t"]}}'
    mysql_server.execute(
        "BEGIN",
        f"INSERT INTO signals VALUES ('1', 'execute-snapshot', '{wanted}')",
        "UPDATE t SET v = 1 WHERE id = 1",
        "UPDATE t SET v = 2 WHERE id = 1",
        "COMMIT",
        database=database,
    )

    events = await reading.read(lambda events: any(event.op == "t" for event in events))

    orders = [event.order for event in events]
    assert orders == sorted(orders)
    rows = [
        (event.op, event.after["id"], event.after["v"])
        for event in events
        if event.table.endswith(".t") and event.after
    ]
    assert rows == [("u", 1, 1), ("u", 1, 2), ("u", 2, 10), ("u", 2, 11), ("r", 1, 2)]


async def test_a_signal_table_is_heard_where_new_rows_are_skipped(
    mysql_server: MysqlServer, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """In every form in which a transaction stands in the log."""
    mysql_server.execute(
        "CREATE TABLE signals (id VARCHAR(40) PRIMARY KEY, type VARCHAR(40), data TEXT)",
        "CREATE TABLE t (id INT PRIMARY KEY)",
        database=database,
    )
    reading = LogReading(
        mysql_server,
        settings={
            "include_tables": (rf"{database}\..*",),
            "signal_table": f"{database}.signals",
            "skipped_operations": ("c", "u", "t"),
        },
    )
    await reading.begin()
    signal = "INSERT INTO signals VALUES ('{0}', 'log', '{{\"message\": \"m{0}\"}}')"
    mysql_server.execute(
        "BEGIN", "INSERT INTO t VALUES (1)", signal.format(1), "INSERT INTO t VALUES (2)", "COMMIT", database=database
    )
    mysql_server.execute(
        "SET SESSION binlog_transaction_compression = ON",
        "BEGIN",
        signal.format(2),
        "DELETE FROM t WHERE id = 1",
        "COMMIT",
        database=database,
    )

    events = await reading.read(lambda events: any(event.op == "d" for event in events))

    assert [(event.table[-1], event.op) for event in events] == [("s", "c"), ("s", "c"), ("t", "d")]
    told = capfd.readouterr().out
    assert "message=m1" in told
    assert "message=m2" in told


def told_by_signals(mysql_server: MysqlServer, database: str, *, chunk_rows: int) -> LogReading:
    """A reading of the log alone, whose copies are asked for in the table ``signals``."""
    return LogReading(
        mysql_server,
        settings={
            "include_tables": (rf"{database}\..*",),
            "signal_table": f"{database}.signals",
            "snapshot": SnapshotSettings(mode=SnapshotMode.NO_DATA, incremental_chunk_rows=chunk_rows),
        },
    )
