"""Incremental snapshots of a real MySQL, under writes, kills and DDL, asked for in each of the ways."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from confluent_kafka import Producer

from libs.events.names import SIGNALS_TOPIC
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb
from protos.headwater.reader_control.v1.reader_control_pb2_grpc import ReaderControlStub
from tests.conftest import MysqlServer
from tests.integration.reader_pipeline import PublishedRow, ReaderPipeline
from tests.waiting import wait_until

WRITES_PAUSE_S = 0.02
"""Between rounds of statements: a chunk of a copy takes as long."""


@pytest.fixture
def start(start_reader: Callable[..., ReaderPipeline]) -> Callable[..., ReaderPipeline]:
    """A pipeline that copied nothing at its start."""

    def start_one(*, chunk_rows: int = 50, **settings: Any) -> ReaderPipeline:
        snapshot = {"mode": "no_data", "incremental_chunk_rows": chunk_rows}
        return start_reader(**{"snapshot": snapshot, **settings})

    return start_one


def send(pipeline: ReaderPipeline, kind: str, *, key: str | None = None, **data: Any) -> None:
    """A signal as a user of Debezium sends it: straight into the topic."""
    producer = Producer({"bootstrap.servers": pipeline.kafka.bootstrap_servers})
    value = json.dumps({"id": "a-signal", "type": kind, "data": data})
    producer.produce(SIGNALS_TOPIC, key=key or pipeline.source, value=value)
    assert producer.flush(120) == 0


def test_existing_rows_come_as_reads_once_and_changes_go_on(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """Keys of every kind, in chunks, while rows of the same tables change; the last event of each row is the row."""
    tables = {
        "numbers": "id INT UNSIGNED PRIMARY KEY, v INT",
        "words": "word VARCHAR(20) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v INT",
        "exact": "word VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_bin PRIMARY KEY, v INT",
        "parts": "a ENUM('z','m','a') NOT NULL, b BINARY(3) NOT NULL, c DATETIME(3) NOT NULL, v INT, PRIMARY KEY (a, b, c)",
        "empty_one": "id INT PRIMARY KEY, v INT",
    }
    for name, columns in tables.items():
        mysql_server.execute(f"CREATE TABLE {name} ({columns})", database=database)
    words = [f"{letter}{number}" for letter in ("a", "É", "ß", "Z", "b", "ç", "A_") for number in range(17)]
    mysql_server.execute(
        "INSERT INTO numbers VALUES " + ",".join(f"({4_294_967_295 - n}, 0)" for n in range(120)),
        "INSERT INTO words VALUES " + ",".join(f"('{word}', 0)" for word in words),
        "INSERT INTO exact VALUES " + ",".join(f"('{word}', 0)" for word in words),
        "INSERT INTO parts VALUES "
        + ",".join(
            f"('{a}', x'00{b:02x}FF', '2024-01-0{c} 00:00:00.00{c}', 0)"
            for a in "zma"
            for b in range(7)
            for c in range(1, 6)
        ),
        database=database,
    )
    pipeline = start(chunk_rows=7)
    pipeline.reader.start()
    pipeline.wait_for_log()

    with writing(
        mysql_server,
        database,
        "UPDATE numbers SET v = v + 1 WHERE id % 10 = 3",
        "UPDATE words SET v = v + 1 WHERE word LIKE 'b%'",
    ):
        send(pipeline, "execute-snapshot", **{"data-collections": [f"{database}.no_such_table", rf"{database}\..*"]})
        wait_until_finished(pipeline, *(f"{database}.{name}" for name in tables))
    mysql_server.execute("INSERT INTO empty_one VALUES (1, 1)", database=database)
    rows = pipeline.wait_for_rows(lambda rows: any(row.table.endswith("empty_one") for row in rows))

    assert_final_rows(rows, mysql_server, database, [*tables])
    reads = [row for row in rows if row.op == "r"]
    identities = [(row.table, tuple(row.key.values())) for row in reads if row.key]
    assert len(identities) == len(set(identities))
    assert {row.value["source"]["snapshot"] for row in reads} == {"incremental"}
    assert {row.value["source"]["snapshot"] for row in rows if row.op != "r"} == {"false"}
    assert "no captured table has this name" in pipeline.reader.log_text


def test_a_reader_killed_anywhere_loses_and_repeats_nothing_of_a_chunk(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """kill -9 between watermarks, between chunks and around commits, under writes: the signal acts once, no row comes twice."""
    mysql_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES " + ",".join(f"({number}, 0)" for number in range(600)),
        database=database,
    )
    pipeline = start(chunk_rows=40)
    pipeline.reader.start()
    pipeline.wait_for_log()
    pipeline.reader.kill()
    send(pipeline, "execute-snapshot", **{"data-collections": [f"{database}.t"]})
    kills = (
        "reader_between_watermarks=kill@2",
        "reader_between_incremental_chunks=kill@3",
        "reader_after_produce_before_commit=kill@4",
        "reader_after_commit=kill@4",
    )

    with writing(mysql_server, database, "UPDATE t SET v = v + 1 WHERE id % 7 = 1 ORDER BY RAND() LIMIT 5"):
        for failpoints in kills:
            pipeline.reader.start(failpoints=failpoints, waits=False)
            assert pipeline.reader.has_ended(within_s=180), pipeline.reader.log_text[-2000:]
        pipeline.reader.start()
        # Not by the log: a reader that was killed may have written that the table is finished before its last chunks were kept.
        pipeline.wait_for_rows(lambda rows: {row.key["id"] for row in rows if row.key} == {*range(600)})
    mysql_server.execute("INSERT INTO t VALUES (9999, 9)", database=database)
    rows = pipeline.wait_for_rows(lambda rows: any(row.key == {"id": 9999} for row in rows))

    assert_final_rows(rows, mysql_server, database, ["t"])
    changes = [row.order for row in rows if row.op != "r"]
    assert changes == sorted(set(changes))
    reads = [row.key["id"] for row in rows if row.op == "r" and row.key]
    assert len(reads) == len(set(reads))


def test_ddl_during_a_snapshot_has_the_chunk_read_again(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """Columns come and go, a shadow table is renamed into place, while chunks are read: every row has the columns of its
    schema version, and the last event of each row is the row."""
    mysql_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE gone (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES " + ",".join(f"({number}, 0)" for number in range(800)),
        "INSERT INTO gone VALUES " + ",".join(f"({number}, 0)" for number in range(50)),
        database=database,
    )
    pipeline = start(chunk_rows=20)
    pipeline.reader.start()
    pipeline.wait_for_log()
    send(pipeline, "execute-snapshot", **{"data-collections": [f"{database}.t", f"{database}.gone"]})

    with writing(mysql_server, database, "UPDATE t SET v = v + 1 WHERE id % 50 = 3"):
        for number in range(4):
            mysql_server.execute(
                f"ALTER TABLE t ADD COLUMN extra_{number} VARCHAR(10) NOT NULL DEFAULT 'new' FIRST", database=database
            )
            mysql_server.execute(f"ALTER TABLE t MODIFY v {'BIGINT' if number % 2 else 'INT'}", database=database)
        mysql_server.execute("DROP TABLE gone", database=database)
        wait_until_finished(pipeline, f"{database}.t")
    mysql_server.execute("INSERT INTO t (id, v) VALUES (9999, 9)", database=database)
    rows = pipeline.wait_for_rows(lambda rows: any(row.key == {"id": 9999} for row in rows))

    assert_final_rows(rows, mysql_server, database, ["t"])
    widths: dict[int, set[tuple[str, ...]]] = {}
    for row in rows:
        if row.table.endswith(".t"):
            widths.setdefault(row.schema_version, set()).add(tuple(row.value["after"]))
    assert all(len(columns) == 1 for columns in widths.values())


def test_pausing_stopping_and_conditions(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """By gRPC: a refusal names every mistake; the rest acts on the tables it names."""
    mysql_server.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v INT, colour VARCHAR(10))",
        "CREATE TABLE b (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE c (seq INT NOT NULL, v INT, UNIQUE KEY (seq))",
        "CREATE TABLE d (v INT, seq BIGINT NOT NULL, INDEX (seq))",
        "INSERT INTO a VALUES " + ",".join(f"({n}, {n}, '{'blue' if n % 3 else 'red'}')" for n in range(100)),
        "INSERT INTO b VALUES (1, 1)",
        "INSERT INTO c VALUES (1, 1), (2, 2)",
        "INSERT INTO d VALUES (1, 1), (2, 1)",
        database=database,
    )
    pipeline = start()
    pipeline.reader.start()
    pipeline.wait_for_log()
    with grpc.insecure_channel(pipeline.reader.client_settings.address) as channel:
        control = ReaderControlStub(channel)  # type: ignore[no-untyped-call]

        def signal(kind: str, **data: Any) -> None:
            text = json.dumps({"id": kind, "type": kind, "data": data})
            control.SendSignal(pb.SendSignalRequest(signal=text), timeout=120)

        with pytest.raises(grpc.RpcError) as refused:
            signal("execute-snapshot", **{"data-collections": [], "type": "BLOCKING"})
        signal("pause-snapshot")
        signal(
            "execute-snapshot",
            **{
                "data-collections": [f"{database}.{name}" for name in "badc"],
                "additional-conditions": [
                    {"data-collection": f"{database}.a", "filter": "colour = 'blue'"},
                    {"data-collection": f"{database}.c", "filter": "this is no SQL"},
                ],
            },
        )
        signal("stop-snapshot", **{"data-collections": [f"{database}.b"]})
        wait_until(
            lambda: [t.table[-1] for t in control.GetStatus(pb.GetStatusRequest()).incremental.tables] == [*"adc"],
            because="the tables a, d and c wait to be copied",
            seen=lambda: control.GetStatus(pb.GetStatusRequest()).incremental,
        )
        assert control.GetStatus(pb.GetStatusRequest()).incremental.is_paused
        assert not [row for row in pipeline.rows() if row.op == "r"]
        signal("resume-snapshot")
        wait_until_finished(pipeline, f"{database}.a")
        wait_until(
            lambda: not control.GetStatus(pb.GetStatusRequest()).incremental.tables, because="no table is being copied"
        )

    wanted = [n for n in range(100) if n % 3]
    rows = pipeline.wait_for_rows(lambda rows: len(rows) >= len(wanted))
    assert "data-collections: names no table" in str(refused.value)
    assert "BLOCKING" in str(refused.value)
    assert {row.table for row in rows} == {f"{database}.a"}
    assert sorted(row.value["after"]["id"] for row in rows) == wanted
    assert pipeline.reader.log_text.count('"incremental_table_refused"') == 2  # d has no key, c's condition is no SQL


def test_a_signal_table_and_a_surrogate_key(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """A row of the signal table acts once; rows that share a surrogate's value are all read, with a key after it and
    without."""
    mysql_server.execute(
        "CREATE TABLE signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
        "CREATE TABLE keyless (v INT, seq BIGINT NOT NULL, INDEX (seq))",
        "INSERT INTO keyless (v, seq) VALUES " + ",".join(f"({n}, {n // 7})" for n in range(90)),
        "CREATE TABLE ranked (id INT PRIMARY KEY, v INT, grade INT NOT NULL)",
        "INSERT INTO ranked VALUES " + ",".join(f"({n}, {n}, {n % 4})" for n in range(90)),
        database=database,
    )
    pipeline = start(signal_table=f"{database}.signals", chunk_rows=20)
    pipeline.reader.start()
    pipeline.wait_for_log()
    data = {"data-collections": [f"{database}.ranked"], "surrogate-key": "grade"}
    keyless = {"data-collections": [f"{database}.keyless"], "surrogate-key": "seq"}
    mysql_server.execute(
        f"INSERT INTO signals VALUES ('one', 'execute-snapshot', '{json.dumps(data)}')",
        f"INSERT INTO signals VALUES ('two', 'execute-snapshot', '{json.dumps(keyless)}')",
        "INSERT INTO signals VALUES ('three', 'log', '{\"message\": \"hello\"}')",
        "INSERT INTO signals VALUES ('four', 'no-such-type', '{}')",
        database=database,
    )
    wait_until_finished(pipeline, f"{database}.ranked", f"{database}.keyless")
    # Its row and the place after all signals are one transaction in Kafka.
    mysql_server.execute("INSERT INTO ranked VALUES (998, 9, 9)", database=database)
    pipeline.wait_for_rows(lambda rows: any(row.key == {"id": 998} for row in rows))
    pipeline.reader.kill()
    pipeline.reader.start()
    mysql_server.execute("INSERT INTO ranked VALUES (999, 9, 9)", database=database)
    rows = pipeline.wait_for_rows(lambda rows: any(row.key == {"id": 999} for row in rows))

    assert sorted(row.value["after"]["id"] for row in rows if row.op == "r" and row.table.endswith("ranked")) == [
        *range(90)
    ]
    assert sorted(row.value["after"]["v"] for row in rows if row.op == "r" and row.table.endswith("keyless")) == [
        *range(90)
    ]
    assert pipeline.reader.log_text.count('"signal_taken"') == 2
    assert pipeline.reader.log_text.count('"signal_logged"') == 1
    assert "no-such-type" in pipeline.reader.log_text


def test_rows_that_share_a_chosen_key_are_told_apart_within_a_window(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """Every row is read once or delivered by the log, whichever of its fellows changes meanwhile."""
    mysql_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, region INT NULL, v INT)",
        "INSERT INTO t VALUES " + ",".join(f"({n}, {n % 3 or 'NULL'}, 0)" for n in range(300)),
        database=database,
    )
    pipeline = start(chunk_rows=20, key_columns=[{"tables": r".*\.t", "columns": "region"}])
    pipeline.reader.start()
    pipeline.wait_for_log()

    with writing(mysql_server, database, "UPDATE t SET v = v + 1 WHERE id % 10 = 3 ORDER BY RAND() LIMIT 9"):
        send(pipeline, "execute-snapshot", **{"data-collections": [f"{database}.t"]})
        wait_until_finished(pipeline, f"{database}.t")
    mysql_server.execute("INSERT INTO t VALUES (999, 9, 9)", database=database)
    rows = pipeline.wait_for_rows(lambda rows: any(row.key == {"region": 9} for row in rows))

    newest = {row.value["after"]["id"]: row.value["after"]["v"] for row in rows}
    assert newest == dict(mysql_server.execute("SELECT id, v FROM t", database=database))
    reads = [row.value["after"]["id"] for row in rows if row.op == "r"]
    assert len(reads) == len(set(reads))


def test_a_signal_sent_while_the_reader_stands_still_acts_when_it_is_back(
    start: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """And one with another source's name does not."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)", database=database)
    pipeline = start()
    pipeline.reader.start()
    pipeline.wait_for_log()
    send(pipeline, "log", message="seen")
    wait_until(lambda: '"signal_logged"' in pipeline.reader.log_text, because="the reader logs the signal")
    assert pipeline.reader.stop() == 0

    send(pipeline, "execute-snapshot", key="another-source", **{"data-collections": [f"{database}.t"]})
    send(pipeline, "execute-snapshot", **{"data-collections": [f"{database}.t"]})
    pipeline.reader.start()
    wait_until_finished(pipeline, f"{database}.t")

    rows = pipeline.wait_for_rows(lambda rows: bool(rows))
    assert [(row.op, row.value["after"]) for row in rows] == [("r", {"id": 1, "v": 1})]
    assert pipeline.reader.log_text.count('"signal_taken"') == 1


@pytest.mark.parametrize(
    "killed_at", ["reader_after_produce_before_commit=kill", "reader_between_snapshot_chunks=kill@2"]
)
def test_a_signal_that_comes_before_the_first_checkpoint_or_during_the_copy_is_not_lost(
    start_reader: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str, killed_at: str
) -> None:
    """Killed before anything was durable, or in the middle of the initial snapshot: the signal acts once, after the copy."""
    mysql_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES " + ",".join(f"({number}, 0)" for number in range(90)),
        database=database,
    )
    pipeline = start_reader(snapshot={"chunk_rows": 20})
    pipeline.reader.start(failpoints=killed_at, waits=False)
    assert pipeline.reader.has_ended(within_s=180), pipeline.reader.log_text[-2000:]

    send(pipeline, "execute-snapshot", **{"data-collections": [f"{database}.t"]})
    pipeline.reader.start()
    wait_until_finished(pipeline, f"{database}.t")

    rows = pipeline.wait_for_rows(lambda rows: len(rows) >= 180)
    copied = [row.value["after"]["id"] for row in rows if row.value["source"]["snapshot"] == "incremental"]
    assert sorted(copied) == [*range(90)]
    assert pipeline.reader.log_text.count('"signal_taken"') == 1


def wait_until_finished(pipeline: ReaderPipeline, *tables: str, times: int = 1) -> None:
    """Until the reader's log says that the snapshot of each table is done."""

    def are_finished() -> bool:
        lines = [line for line in pipeline.reader.log_text.splitlines() if "incremental_table_finished" in line]
        return all(sum(f'"{table}"' in line for line in lines) >= times for table in tables)

    wait_until(
        are_finished,
        because=f"the snapshot of {', '.join(tables)} is done {times} time(s)",
        seen=lambda: pipeline.reader.log_text[-3_000:],
    )


@contextmanager
def writing(mysql_server: MysqlServer, database: str, *statements: str) -> Iterator[None]:
    """Runs ``statements`` again and again beside the block."""
    ends = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            with mysql_server.connect(database) as connection, connection.cursor() as cursor:
                while not ends.is_set():
                    for statement in statements:
                        cursor.execute(statement)
                    ends.wait(WRITES_PAUSE_S)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
    assert not failures, failures


def assert_final_rows(
    rows: list[PublishedRow], mysql_server: MysqlServer, database: str, tables: list[str], value: str = "v"
) -> None:
    """Applied by order, newest wins, the events make the tables; and orders never fall along a row's history."""
    newest: dict[tuple[str, Any], PublishedRow] = {}
    for row in rows:
        identity = (row.table, tuple((row.key or {}).values()))
        before = newest.get(identity)
        assert before is None or before.order[:2] <= row.order[:2], (before, row)
        if before is None or before.order <= row.order:
            newest[identity] = row
    for table in tables:
        found = sorted(
            str(row.value["after"][value])
            for (name, _), row in newest.items()
            if name == f"{database}.{table}" and row.value["after"] is not None
        )
        assert found == sorted(
            str(each[0]) for each in mysql_server.execute(f"SELECT {value} FROM {table}", database=database)
        )
