"""The initial copy of a real MySQL: side by side, broken off, overridden, and begun by each mode."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from pymysql.cursors import DictCursor

from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from tests.conftest import MysqlServer, StartMysql
from tests.integration.reader_pipeline import ReaderPipeline
from tests.integration.service_process import ServiceProcess
from tests.integration.test_incremental_snapshot import assert_final_rows, writing
from tests.waiting import wait_until


@pytest.fixture
def start(start_reader: Callable[..., ReaderPipeline]) -> Callable[..., ReaderPipeline]:
    """A pipeline with these settings of its snapshot."""
    return lambda **snapshot: start_reader(snapshot=snapshot)


def test_ranges_are_read_side_by_side_through_a_kill(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """Three processes, four tables, one of them without a key; killed after some chunks: every row once, and true."""
    tables = {"a": "PRIMARY KEY (id)", "b": "PRIMARY KEY (id, v)", "c": "UNIQUE KEY (id)", "keyless": "INDEX (v)"}
    for name, key in tables.items():
        mysql_server.execute(f"CREATE TABLE {name} (id INT NOT NULL, v INT NOT NULL, {key})", database=database)
        rows = ",".join(f"({-900 + 3 * n}, {n})" for n in range(600))
        mysql_server.execute(f"INSERT INTO {name} VALUES {rows}", f"ANALYZE TABLE {name}", database=database)
    pipeline = start(readers=3, chunk_rows=25)

    pipeline.reader.start(failpoints="reader_between_snapshot_chunks=kill@12", waits=False)
    with writing(mysql_server, database, "UPDATE a SET v = v + 1 WHERE id > 880 ORDER BY RAND() LIMIT 1"):
        assert pipeline.reader.has_ended(within_s=240)
        pipeline.reader.start()
        pipeline.wait_for_log()
        wait_until(lambda: '"snapshot_finished"' in pipeline.reader.log_text, because="the snapshot ends")
    mysql_server.execute("INSERT INTO a VALUES (9999, 9)", database=database)
    rows_read = pipeline.wait_for_rows(lambda rows: any(row.key == {"id": 9999} for row in rows))

    assert_final_rows([row for row in rows_read if row.key], mysql_server, database, ["a", "b", "c"])
    reads = [(row.table, *(row.key or row.value["after"]).values()) for row in rows_read if row.op == "r"]
    assert len(reads) == len(set(reads)) == 4 * 600
    markers = [row.value["source"]["snapshot"] for row in rows_read if row.op == "r"]
    assert markers.count("first") == 1
    assert markers.count("first_in_data_collection") == 3
    assert markers.count("last_in_data_collection") == 3
    assert [marker for marker in markers if marker == "last"] == markers[-1:]


@pytest.mark.parametrize("readers", [1, 2])
def test_a_copy_goes_on_behind_any_batch_of_a_select(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str, readers: int
) -> None:
    """7,500 rows of one SELECT are four batches; killed between two of them: every row once, the first and the last one marked,
    in its order."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", database=database)
    rows = ",".join(f"({n}, {n})" for n in range(7_500))
    mysql_server.execute(f"INSERT INTO t VALUES {rows}", "ANALYZE TABLE t", database=database)
    pipeline = start(chunk_rows=20_000, readers=readers)

    pipeline.reader.start(failpoints="reader_between_snapshot_chunks=kill@3", waits=False)
    assert pipeline.reader.has_ended(within_s=240)
    pipeline.reader.start()
    rows_read = pipeline.wait_for_rows(lambda rows: any(row.value["source"]["snapshot"] == "last" for row in rows))

    assert [row.key["id"] for row in rows_read] == [*range(7_500)]
    markers = [row.value["source"]["snapshot"] for row in rows_read]
    assert (markers[0], markers[-1], set(markers[1:-1])) == ("first", "last", {"true"})


def test_select_overrides_choose_the_rows(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """A condition, or a whole SELECT as Debezium has it; tables that none names are copied whole."""
    for name in ("a", "b", "c"):
        mysql_server.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO {name} VALUES " + ",".join(f"({n}, {n % 5})" for n in range(40)),
            database=database,
        )
    pipeline = start(
        chunk_rows=3,
        select_overrides={
            f"{database}.a": "v = 3",
            f"{database}.b": f"SELECT * FROM {database}.b WHERE id BETWEEN 10 AND 19 ORDER BY v DESC",
        },
    )

    pipeline.reader.start()
    rows = pipeline.wait_for_rows(lambda rows: any(row.value["source"]["snapshot"] == "last" for row in rows))

    copied = {name: [row.value["after"]["id"] for row in rows if row.table == f"{database}.{name}"] for name in "abc"}
    assert copied == {"a": [*range(3, 40, 5)], "b": [*range(10, 20)], "c": [*range(40)]}


def test_always_copies_at_each_start_and_initial_only_follows_nothing(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)", database=database)
    pipeline = start(mode="always")
    pipeline.reader.start()
    pipeline.wait_for_log()
    pipeline.reader.stop()
    mysql_server.execute("UPDATE t SET v = 2", database=database)

    pipeline.reader.settings = {**pipeline.reader.settings, "snapshot": {"mode": "initial_only"}}
    pipeline.reader.start()
    wait_until(lambda: '"snapshot_only_finished"' in pipeline.reader.log_text, because="the snapshot ends")
    pipeline.reader.stop()
    before = pipeline.wait_for_rows(bool)
    pipeline.reader.settings = {**pipeline.reader.settings, "snapshot": {"mode": "always"}}
    pipeline.reader.start()
    rows = pipeline.wait_for_rows(lambda rows: len(rows) >= 3)

    assert [(row.op, row.value["after"]["v"]) for row in before] == [("r", 1)]
    assert [(row.op, row.value["after"]["v"]) for row in rows] == [("r", 1), ("u", 2), ("r", 2)]


def test_never_follows_the_log_from_its_beginning_and_when_needed_copies_past_a_gap(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """The shared server holds its whole log. Then its log is cut off while the reader stands still."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)", database=database)
    pipeline = start(mode="never")
    pipeline.reader.start()
    rows = pipeline.wait_for_rows(lambda rows: len(rows) >= 1)
    assert [(row.op, row.value["after"]) for row in rows] == [("c", {"id": 1, "v": 1})]
    pipeline.reader.stop()

    mysql_server.execute("INSERT INTO t VALUES (2, 2)", "FLUSH BINARY LOGS", database=database)
    (*_, newest) = mysql_server.execute("SHOW BINARY LOGS")
    mysql_server.execute(f"PURGE BINARY LOGS TO '{newest[0]}'")
    pipeline.reader.start(waits=False)
    assert pipeline.reader.wait_for_exit() != 0
    assert "re-snapshot" in pipeline.reader.log_text

    pipeline.reader.settings = {**pipeline.reader.settings, "snapshot": {"mode": "when_needed"}}
    pipeline.reader.start()
    rows = pipeline.wait_for_rows(lambda rows: len(rows) >= 3)
    assert [(row.op, row.value["after"]["id"]) for row in rows[1:]] == [("r", 1), ("r", 2)]
    assert all(row.order > rows[0].order for row in rows[1:])


def test_a_source_that_was_reset_is_copied_again_in_a_new_epoch(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """Changes since its place come to nobody; the copy wins over all earlier events, and the log is followed from it on."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)", database=database)
    pipeline = start()
    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: len(rows) >= 1)
    pipeline.wait_for_log()
    pipeline.reader.stop()
    mysql_server.execute("UPDATE t SET v = 2", database=database)

    async def reset() -> None:
        async with CheckpointCommitterClient(pipeline.services.checkpoint_committer.client_settings) as client:
            (mine,) = [each for each in await client.list_checkpoints() if each.partition.source == pipeline.source]
            await client.reset(mine.partition, position=None, reason="restored", starts_over=True)

    asyncio.run(reset())
    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: len(rows) >= 2)
    mysql_server.execute("UPDATE t SET v = 3", database=database)
    before, copied, after = pipeline.wait_for_rows(lambda rows: len(rows) >= 3)

    assert [(row.op, row.value["after"]["v"]) for row in (before, copied, after)] == [("r", 1), ("r", 2), ("u", 3)]
    assert copied.order[0] == before.order[0] + 1 == after.order[0]
    assert '"checkpoint_was_reset"' in pipeline.reader.log_text
    pipeline.reader.stop()
    pipeline.reader.start()  # the reset was done once
    pipeline.wait_for_log()
    assert len(pipeline.rows()) == 3


def test_a_copy_waits_for_replicas_that_lag(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str, start_mysql: StartMysql
) -> None:
    """A replica that is set to lag holds up the next chunk; the rows come once it is near again."""
    replica = start_mysql(server_id=4711)
    source = f"SOURCE_HOST = '{mysql_server.host}', SOURCE_PORT = {mysql_server.port}, SOURCE_USER = 'root'"
    (executed,) = mysql_server.execute("SELECT @@GLOBAL.gtid_executed")
    replica.execute(
        f"CREATE DATABASE {database}",
        "RESET BINARY LOGS AND GTIDS",
        f"SET GLOBAL gtid_purged = '{executed[0]}'",  # transactions of other tests
        f"CHANGE REPLICATION SOURCE TO {source}, SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_DELAY = 3600",
        f"CHANGE REPLICATION FILTER REPLICATE_WILD_DO_TABLE = ('{database}.%')",
        "START REPLICA",
    )
    mysql_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)", database=database
    )
    wait_until(lambda: _seconds_behind(replica) > 1, because="the replica lags")
    pipeline = start(max_replica_lag_s=0.5, lag_replicas=[{"host": replica.host, "port": replica.port, "user": "root"}])

    pipeline.reader.start(waits=False)
    wait_until(
        lambda: pipeline.reader.log_text.count('"snapshot_waits_for_replicas"') > 1,
        because="the snapshot waits for the replica",
    )
    assert pipeline.rows() == []
    replica.execute("STOP REPLICA", "CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 0", "START REPLICA")
    rows = pipeline.wait_for_rows(lambda rows: len(rows) >= 2)

    assert [(row.op, row.key) for row in rows] == [("r", {"id": 1}), ("r", {"id": 2})]


def _seconds_behind(replica: MysqlServer) -> int:
    with replica.connect() as connection, connection.cursor(DictCursor) as cursor:
        cursor.execute("SHOW REPLICA STATUS")
        [status] = cursor.fetchall()
    return int(status["Seconds_Behind_Source"] or 0)


def test_recovery_goes_on_where_the_schema_history_was_lost(
    start: Callable[..., ReaderPipeline],
    mysql_server: MysqlServer,
    database: str,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Halted by name without it; then the schemas are learned again, no row is copied again and none is missing."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)", database=database)
    pipeline = start()
    pipeline.reader.start()
    pipeline.wait_for_log()
    pipeline.wait_for_rows(lambda rows: len(rows) >= 1)
    pipeline.reader.stop()
    mysql_server.execute("INSERT INTO t VALUES (2, 2)", database=database)
    empty = ServiceProcess.of(
        "schema_history",
        tmp_path / "empty",
        {
            **pipeline.services.schema_history.settings,
            "topic": unique_name("empty"),
            "transactional_id": unique_name("empty"),
        },
    )
    empty.start()
    request.addfinalizer(empty.stop)
    address = {"schema_history": {"address": empty.client_settings.address}}
    pipeline.reader.settings = {**pipeline.reader.settings, **address}

    pipeline.reader.start(waits=False)
    assert pipeline.reader.wait_for_exit() != 0
    assert "start once with snapshot.mode: recovery" in pipeline.reader.log_text
    pipeline.reader.settings = {**pipeline.reader.settings, "snapshot": {"mode": "recovery"}}
    pipeline.reader.start()
    mysql_server.execute("UPDATE t SET v = 3 WHERE id = 1", database=database)
    rows = pipeline.wait_for_rows(lambda rows: len(rows) >= 3)

    assert [(row.op, row.value["after"]) for row in rows] == [
        ("r", {"id": 1, "v": 1}),
        ("c", {"id": 2, "v": 2}),
        ("u", {"id": 1, "v": 3}),
    ]
