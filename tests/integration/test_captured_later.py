"""Tables that a source's settings take up later, in a real MySQL that is followed already."""

import json
from collections.abc import Callable, Iterator

import pytest

from libs.errors import SchemaUnknown
from libs.source.mysql.settings import SnapshotSettings
from libs.source.snapshot_mode import SnapshotMode
from tests.conftest import MysqlServer
from tests.integration.log_reading import LogReading


@pytest.fixture
def later(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> Iterator[str]:
    """A database that is there from the beginning, with rows, and captured only in the end."""
    name = unique_name("later")
    mysql_server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.old (id INT PRIMARY KEY, v INT)",
        f"CREATE TABLE {name}.other (id INT PRIMARY KEY)",
        f"INSERT INTO {name}.old VALUES (1, 1)",
        f"INSERT INTO {name}.other VALUES (1)",
    )
    yield name
    mysql_server.execute(f"DROP DATABASE {name}")


@pytest.fixture
def reading(mysql_server: MysqlServer, database: str) -> LogReading:
    mysql_server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.signals (id VARCHAR(40) PRIMARY KEY, type VARCHAR(40), data TEXT)",
        f"CREATE TABLE {database}.beside (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {database}.beside VALUES (1, 1)",
    )
    return LogReading(
        mysql_server,
        settings={
            "include_tables": (rf"{database}\.(t|signals)",),
            "signal_table": f"{database}.signals",
            "snapshot": SnapshotSettings(mode=SnapshotMode.NO_DATA),
        },
    )


async def test_a_database_that_is_captured_later_is_followed_from_its_first_row_on(
    reading: LogReading, mysql_server: MysqlServer, database: str, later: str
) -> None:
    """In a statement that changes a known table as well; then its DDL is followed, and a restart knows all of its tables."""
    await reading.begin()
    reading.settings["include_tables"] = (rf"{database}\.(t|signals)", rf"{later}\..*")
    mysql_server.execute(
        f"CREATE TABLE {later}.new (id INT PRIMARY KEY)",
        f"INSERT INTO {later}.new VALUES (1)",
        "BEGIN",
        f"INSERT INTO {database}.t VALUES (1)",
        f"UPDATE {later}.old, {database}.t SET {later}.old.v = 2, {database}.t.id = 2",
        "COMMIT",
    )

    first = await reading.read(lambda events: any(event.table == f"{later}.old" for event in events))
    mysql_server.execute(
        f"ALTER TABLE {later}.old ADD COLUMN w INT DEFAULT 3",
        f"INSERT INTO {later}.other VALUES (2)",
        f"UPDATE {later}.old SET w = 4 WHERE id = 1",
    )
    second = await reading.read(lambda events: len(events) >= 2)

    assert [event.after for event in first if event.table == f"{later}.old"] == [{"id": 1, "v": 2}]
    assert {event.table for event in first} == {f"{later}.new", f"{later}.old", f"{database}.t"}
    assert [event.after for event in second] == [{"id": 2}, {"id": 1, "v": 2, "w": 4}]


async def test_a_signal_reads_tables_that_are_captured_later_before_the_log_shows_them(
    reading: LogReading, mysql_server: MysqlServer, database: str, later: str
) -> None:
    """Of another database, and of one that was followed: its tables are known."""
    await reading.begin()
    reading.settings["include_tables"] = (rf"{database}\..*", rf"{later}\.o.*")
    wanted = json.dumps({"data-collections": [f"{database}.beside", rf"{later}\.o.*"]}).replace("\\", "\\\\")
    mysql_server.execute(f"INSERT INTO {database}.signals VALUES ('1', 'execute-snapshot', '{wanted}')")

    events = await reading.read(lambda events: sum(event.op == "r" for event in events) >= 3)

    assert [(event.table, event.after["id"]) for event in events if event.op == "r"] == [
        (f"{database}.beside", 1),
        (f"{later}.old", 1),
        (f"{later}.other", 1),
    ]


async def test_a_table_that_is_captured_later_beside_others_is_followed(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """With the schema that the log's DDL left it, also where the reader had to pass over some of it."""
    await reading.begin()
    mysql_server.execute(f"ALTER TABLE {database}.beside ADD COLUMN w INT", f"INSERT INTO {database}.t VALUES (1)")
    await reading.read(lambda events: len(events) >= 1)
    reading.settings["include_tables"] = (rf"{database}\..*",)
    mysql_server.execute(f"INSERT INTO {database}.beside VALUES (2, 2, 2)")

    events = await reading.read(lambda events: len(events) >= 1)

    assert [event.after for event in events] == [{"id": 2, "v": 2, "w": 2}]


async def test_a_history_that_was_lost_is_not_guessed_anew(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """Nothing is known of any table: that is no table captured later."""
    await reading.begin()
    reading.history.changes.clear()
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (1)")

    with pytest.raises(SchemaUnknown, match=r"snapshot\.mode: recovery"):
        await reading.read(lambda events: len(events) >= 1)
