"""Incremental snapshots of a real MySQL, under writes, kills and DDL, asked for in each of the ways."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from libs.events.names import SIGNALS_TOPIC
from tests.conftest import KafkaBroker, MysqlServer, ValkeyServer
from tests.integration.reader_pipeline import PublishedRow, ReaderPipeline, start_pipeline


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> Iterator[str]:
    name = unique_name("inc")
    mysql_server.execute(f"CREATE DATABASE {name}")
    yield name
    mysql_server.execute(f"DROP DATABASE {name}")


@pytest.fixture
def start(
    tmp_path: Path, kafka_broker: KafkaBroker, valkey_server: ValkeyServer, mysql_server: MysqlServer, database: str
) -> Iterator[Callable[..., ReaderPipeline]]:
    """A pipeline that captures the test's own database and copied nothing at its start."""
    pipelines: list[ReaderPipeline] = []

    def start_one(*, chunk_rows: int = 50, **settings: Any) -> ReaderPipeline:
        captured = {
            "include_tables": [rf"{database}\..*"],
            "snapshot": {"mode": "no_data", "incremental_chunk_rows": chunk_rows},
            **settings,
        }
        pipelines.append(start_pipeline(tmp_path, database, kafka_broker, valkey_server, mysql_server, **captured))
        return pipelines[-1]

    yield start_one
    for pipeline in pipelines:
        pipeline.stop()


def send(pipeline: ReaderPipeline, kind: str, *, key: str | None = None, **data: Any) -> None:
    """A signal as a user of Debezium sends it: straight into the topic."""
    producer = Producer({"bootstrap.servers": pipeline.kafka.bootstrap_servers})
    value = json.dumps({"id": "a-signal", "type": kind, "data": data})
    producer.produce(SIGNALS_TOPIC, key=key or pipeline.source, value=value)
    assert producer.flush(10) == 0


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


def wait_until_finished(pipeline: ReaderPipeline, *tables: str, times: int = 1, timeout_s: float = 60.0) -> None:
    """Until the reader's log says that the snapshot of each table is done."""
    deadline_s = time.monotonic() + timeout_s
    lines: list[str] = []
    while True:
        lines = [line for line in pipeline.reader.log_text.splitlines() if "incremental_table_finished" in line]
        if all(sum(f'"{table}"' in line for line in lines) >= times for table in tables):
            return
        assert time.monotonic() < deadline_s, f"not finished:\n{pipeline.reader.log_text[-3000:]}"
        time.sleep(0.05)


@contextmanager
def writing(mysql_server: MysqlServer, database: str, *statements: str) -> Iterator[None]:
    """Runs ``statements`` again and again beside what the block does."""
    ends = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            with mysql_server.connect(database) as connection, connection.cursor() as cursor:
                while not ends.is_set():
                    for statement in statements:
                        cursor.execute(statement)
                    ends.wait(0.005)
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
