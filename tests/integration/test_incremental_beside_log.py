"""Incremental snapshots of a real MySQL beside what else is in the log, and beside its replicas."""

from libs.source.mysql.settings import DatabaseSettings, SnapshotMode, SnapshotSettings
from tests.conftest import StartMysql
from tests.integration.log_reading import LogReading, ids


async def test_changes_go_on_and_signals_are_heard_while_a_replica_holds_an_incremental_snapshot_up(
    start_mysql: StartMysql,
) -> None:
    """A replica that stands still is infinitely far behind; one that does not answer counts as that."""
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
