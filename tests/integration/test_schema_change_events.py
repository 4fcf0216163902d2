"""The schema-change events of a real MySQL, at the snapshot and in the log, beside those that Debezium recorded."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protos.headwater.changes.v1.change_batch_pb2 import Entry, TableChange
from tests.conftest import MysqlServer
from tests.integration.log_reading import LogReading
from tests.unit.events.golden import records


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> Iterator[str]:
    name = unique_name("ddl")
    mysql_server.execute(f"CREATE DATABASE {name}")
    yield name
    mysql_server.execute(f"DROP DATABASE IF EXISTS {name}", f"DROP DATABASE IF EXISTS {name}_2")


def told(entries: list[Entry]) -> list[TableChange]:
    changes = [entry.table_change for entry in entries if entry.WhichOneof("entry") == "table_change"]
    return [change for change in changes if change.value]


def comparable(event: dict[str, Any], database: str) -> str:
    """An event without the parts of another server: times, places, names."""
    text = json.dumps(event).replace(database, "smp")
    event = json.loads(text)
    event["ts_ms"] = 0
    for name in ("version", "name", "ts_ms", "ts_us", "ts_ns", "file", "pos", "server_id", "gtid"):
        event["source"][name] = None
    return json.dumps(event)


def kind_of(event: dict[str, Any]) -> str:
    """CREATE TABLE, DROP DATABASE and so on; SET and USE as they begin."""
    first, second = event["ddl"].split()[:2]
    return str(first) if first in ("SET", "USE") else f"{first} {second}"


async def test_a_snapshot_tells_what_debezium_tells(mysql_server: MysqlServer, database: str) -> None:
    """The server's charset, DROP TABLE of each, then of each database DROP, CREATE, USE and its tables: the same events,
    fields in the same order. Debezium's order of tables within a database is that of a hash, and it reports other databases
    too."""
    recorded = [record["value"]["payload"] for record in records("v1")]
    recorded = [
        event for event in recorded if event["source"]["snapshot"] == "true" and event["databaseName"] in ("", "smp")
    ]
    creates = [event["ddl"] for event in recorded if event["ddl"].startswith("CREATE TABLE")]
    mysql_server.execute("SET SESSION sql_mode = ''", *creates, database=database)
    reading = LogReading(mysql_server, settings={"include_tables": (rf"{database}\..*",)})

    await reading.begin()

    events = [json.loads(change.value) for change in told(reading.entries)]
    assert [kind_of(event) for event in events] == [kind_of(event) for event in recorded]
    assert {comparable(event, database) for event in events} == {comparable(event, "smp") for event in recorded}
    assert len(events) == len(recorded) == 16
    keys = [json.loads(change.key) for change in told(reading.entries)]
    assert keys == [{"databaseName": event["databaseName"]} for event in events]
    assert all(change.is_snapshot for change in told(reading.entries))


async def test_statements_about_databases_are_told_once_and_name_the_tables_that_they_concern(
    mysql_server: MysqlServer, database: str
) -> None:
    """CREATE, ALTER and DROP DATABASE in the log: one event each, without tables in it, to nobody who sees none of them."""
    mysql_server.execute(
        "CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE other (id INT PRIMARY KEY)", database=database
    )
    reading = LogReading(
        mysql_server, settings={"include_tables": (rf"{database}\.a", rf"{database}_2\..*", rf"{database}_last\..*")}
    )
    await reading.begin()
    before = len(reading.entries)
    last = f"{database}_last"
    mysql_server.execute(
        f"CREATE DATABASE {database}_2 CHARACTER SET latin1",
        f"CREATE DATABASE {database}_hidden",
        f"DROP DATABASE {database}_hidden",
        f"ALTER DATABASE {database} CHARACTER SET utf8mb3",
        f"DROP DATABASE {database}",
        f"CREATE DATABASE {last}",
        f"CREATE TABLE {last}.t (id INT PRIMARY KEY)",
        f"INSERT INTO {last}.t VALUES (1)",
        f"DROP DATABASE {last}",
    )

    await reading.read(lambda events: len(events) >= 1)

    changes = [change for change in told(reading.entries[before:]) if not change.table]
    events = [json.loads(change.value) for change in changes]
    assert [
        (change.database, event["ddl"], [*change.database_tables])
        for change, event in zip(changes, events, strict=True)
    ][:4] == [
        (f"{database}_2", f"CREATE DATABASE {database}_2 CHARACTER SET latin1", []),
        (database, f"ALTER DATABASE {database} CHARACTER SET utf8mb3", ["a"]),
        (database, f"DROP DATABASE {database}", ["a"]),
        (last, f"CREATE DATABASE {last}", []),
    ]
    assert all(event["tableChanges"] == [] and event["source"]["table"] is None for event in events)
    assert all(event["source"]["snapshot"] == "false" and event["source"]["gtid"] for event in events)
    assert {change.table for change in told(reading.entries[before:])} == {"", "t"}
