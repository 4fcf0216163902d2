"""``key_columns`` on a real MySQL: the events' key is the chosen one, and no row is lost to it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from libs.source.key_columns import KeyColumns
from libs.source.mysql.settings import SnapshotSettings
from libs.telemetry.faults import lasting_faults
from tests.conftest import MysqlServer
from tests.integration.log_reading import LogReading


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> Iterator[str]:
    name = unique_name("key")
    mysql_server.execute(f"CREATE DATABASE {name}")
    yield name
    mysql_server.execute(f"DROP DATABASE {name}")


def keys_of(reading: LogReading) -> list[tuple[str, Any]]:
    """Operation and key of everything that was published, in order."""
    return [
        (op, json.loads(key) if key else None)
        for entry in reading.entries
        for op, key in zip(entry.run.ops.decode(), entry.run.keys, strict=True)
    ]


async def test_rows_that_share_a_chosen_key_all_come_and_a_change_of_it_is_a_delete_and_a_create(
    mysql_server: MysqlServer, database: str
) -> None:
    """Chunks go along the table's own key, so that the chosen one may repeat and be NULL; the log's own word on the primary
    key (binlog_row_metadata=FULL) is no contradiction."""
    rows = ",".join(f"({number}, {'NULL' if number % 5 == 0 else number % 3}, 0)" for number in range(1, 24))
    mysql_server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, region INT, v INT)",
        f"INSERT INTO {database}.t VALUES {rows}",
    )
    chosen = (KeyColumns(tables=rf"{database}\.t", columns="region"), KeyColumns(tables=".*", columns="id"))
    settings = {
        "include_tables": (rf"{database}\..*",),
        "key_columns": chosen,
        "snapshot": SnapshotSettings(chunk_rows=4),
    }
    reading = LogReading(mysql_server, settings=settings)
    await reading.begin()
    copied = keys_of(reading)
    mysql_server.execute("SET GLOBAL binlog_row_metadata = FULL")
    mysql_server.execute(
        f"UPDATE {database}.t SET v = 1 WHERE id = 1",
        f"UPDATE {database}.t SET id = 100 WHERE id = 2",
        f"UPDATE {database}.t SET region = 7 WHERE id = 1",
        f"DELETE FROM {database}.t WHERE id = 5",
        f"RENAME TABLE {database}.t TO {database}.renamed",
        f"INSERT INTO {database}.renamed VALUES (101, 1, 1)",
        "SET GLOBAL binlog_row_metadata = MINIMAL",
    )

    await reading.read(lambda events: len(events) >= 6)

    assert [op for op, _ in copied] == ["r"] * 23
    assert [key for _, key in copied][:5] == [{"region": part} for part in (1, 2, 0, 1, None)]
    assert keys_of(reading)[23:] == [
        ("u", {"region": 1}),
        ("u", {"region": 2}),
        ("D", {"region": 1}),
        ("C", {"region": 7}),
        ("d", {"region": None}),
        ("c", {"id": 101}),
    ]


async def test_a_table_without_a_key_is_copied_again_along_the_chosen_one(
    mysql_server: MysqlServer, database: str
) -> None:
    """As the document says, its rows are distinguished by it; a chosen column that may be NULL needs a surrogate key."""
    mysql_server.execute(
        f"CREATE TABLE {database}.signals (id VARCHAR(40) PRIMARY KEY, type VARCHAR(40), data TEXT)",
        f"CREATE TABLE {database}.t (a INT NOT NULL, b INT NOT NULL, v INT)",
        f"CREATE TABLE {database}.w (a INT, v INT)",
        f"INSERT INTO {database}.t VALUES {','.join(f'({n // 3}, {n % 3}, {n})' for n in range(10))}",
        f"INSERT INTO {database}.w VALUES (1, 1)",
    )
    chosen = (KeyColumns(tables=r".*\.t", columns="a|b"), KeyColumns(tables=r".*\.w", columns="a"))
    settings = {
        "include_tables": (rf"{database}\..*",),
        "key_columns": chosen,
        "signal_table": f"{database}.signals",
        "snapshot": SnapshotSettings(incremental_chunk_rows=4),
    }
    reading = LogReading(mysql_server, settings=settings)
    await reading.begin()
    data = json.dumps({"data-collections": [f"{database}.w", f"{database}.t"]})
    mysql_server.execute(f"INSERT INTO {database}.signals VALUES ('1', 'execute-snapshot', '{data}')")

    events = await reading.read(lambda events: sum(event.op == "r" for event in events) >= 10)

    read = [event.after for event in events if event.op == "r"]
    assert read == [{"a": n // 3, "b": n % 3, "v": n} for n in range(10)]
    (fault,) = [fault for fault in lasting_faults() if fault.id == "copy_refused"]
    assert "has no key to read it along; name a unique column as surrogate-key" in fault.happened


async def test_another_key_is_a_new_version_from_the_restart_on(mysql_server: MysqlServer, database: str) -> None:
    """Delivered rows keep their key; a table without a key of its own gets one; columns that are not there count as none."""
    mysql_server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, code CHAR(2) NOT NULL)",
        f"CREATE TABLE {database}.w (a INT, b INT)",
        f"INSERT INTO {database}.t VALUES (1, 'aa')",
        f"INSERT INTO {database}.w VALUES (1, 2)",
    )
    reading = LogReading(mysql_server, settings={"include_tables": (rf"{database}\..*",)})
    await reading.begin()

    reading.settings["key_columns"] = (
        KeyColumns(tables=r".*\.t", columns="c.*"),
        KeyColumns(tables=r".*\.w", columns="b|a"),
        KeyColumns(tables=".*", columns="id"),
    )
    mysql_server.execute(
        f"INSERT INTO {database}.t VALUES (2, 'bb')",
        f"INSERT INTO {database}.w VALUES (3, NULL)",
        f"ALTER TABLE {database}.t DROP COLUMN code",
        f"INSERT INTO {database}.t VALUES (3)",
    )
    await reading.read(lambda events: len(events) >= 3)

    assert keys_of(reading) == [
        ("r", {"id": 1}),
        ("r", None),
        ("c", {"code": "bb"}),
        ("c", {"a": 3, "b": None}),
        ("c", {"id": 3}),
    ]
