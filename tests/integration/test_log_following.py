"""The log of a real MySQL, followed: what each kind of transaction in it gives."""

import secrets
from collections.abc import Callable, Iterator

import pytest

from libs.errors import DiskFull
from tests.conftest import MysqlServer
from tests.integration.log_reading import LogReading, ids


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> Iterator[str]:
    name = unique_name("log")
    mysql_server.execute(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v LONGTEXT)")
    yield name
    mysql_server.execute(f"DROP DATABASE {name}")


@pytest.fixture
def reading(mysql_server: MysqlServer, database: str) -> LogReading:
    return LogReading(mysql_server, settings={"include_tables": (rf"{database}\..*",)})


async def test_tagged_transactions_are_followed_and_resumed_behind(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """A tag's numbers are counted by themselves, orders grow through all of them, and a restart repeats none."""
    await reading.begin()
    with mysql_server.connect(database) as connection, connection.cursor() as cursor:
        for row_id, gtid_next in enumerate(("AUTOMATIC", "AUTOMATIC:one", "AUTOMATIC:two", "AUTOMATIC:one"), 1):
            cursor.execute(f"SET gtid_next = '{gtid_next}'")
            cursor.execute(f"INSERT INTO t VALUES ({row_id}, 'x')")
    first = await reading.read(lambda events: len(events) >= 4)
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (5, 'x')")

    second = await reading.read(lambda events: len(events) >= 1)

    assert ids(first) == [1, 2, 3, 4]
    assert ids(second) == [5]
    orders = [event.order for event in first + second]
    assert orders == sorted(set(orders))
    assert [event.value["source"]["gtid"].count(":") for event in first] == [1, 2, 2, 2]
    assert first[1].value["source"]["gtid"] == first[1].transaction_id
    (executed,) = mysql_server.execute("SELECT @@GLOBAL.gtid_executed")
    assert first[3].transaction_id.split(":")[1] == "one"
    assert ":one:" in executed[0]


async def test_compressed_transactions_give_the_same_events(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """What is read from a compressed transaction differs from a plain one in its place alone."""
    await reading.begin()
    work = (
        "BEGIN",
        f"INSERT INTO {database}.t VALUES (%d, REPEAT('long', 1000)), (%d, 'x')",
        f"UPDATE {database}.t SET v = CONCAT(v, 'y') WHERE id = %d",
        "COMMIT",
    )
    mysql_server.execute(*_numbered(work, 1))
    mysql_server.execute("SET SESSION binlog_transaction_compression = ON", *_numbered(work, 101))
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (200, 'x')")

    events = await reading.read(lambda events: len(events) >= 7)

    plain, compressed, (last,) = events[:3], events[3:6], events[6:]
    assert [event.op for event in compressed] == [event.op for event in plain]
    assert [event.after["v"] for event in compressed] == [event.after["v"] for event in plain]
    assert [event.order.tx_ordinal for event in compressed] == [1, 2, 3]
    assert len({event.value["source"]["pos"] for event in compressed}) == 1
    assert plain[-1].value["source"]["pos"] < compressed[0].value["source"]["pos"] < last.value["source"]["pos"]
    assert compressed[0].value["source"]["thread"] != plain[0].value["source"]["thread"]


async def test_a_compressed_transaction_larger_than_a_packet_is_kept_on_disk(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """It comes whole; and where there is no room for it, the error names the folder, and nothing is passed over."""
    await reading.begin()
    with mysql_server.connect(database, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_transaction_compression = ON")
        for row_id in range(18):
            cursor.execute("INSERT INTO t VALUES (%s, %s)", (row_id, secrets.token_hex(1 << 20)))
        connection.commit()
    reading.settings["spill_dir"] = "/dev/full"
    with pytest.raises(DiskFull, match=r"/dev/full.*spill_dir"):
        await reading.read(lambda events: len(events) >= 1)
    del reading.settings["spill_dir"]

    events = await reading.read(lambda events: len(events) >= 18)

    assert ids(events) == list(range(18))
    assert {len(event.after["v"]) for event in events} == {2 << 20}


def _numbered(statements: tuple[str, ...], first: int) -> list[str]:
    """The statements with numbers from ``first`` on for their %d."""
    return [statement % tuple(first + nth for nth in range(statement.count("%d"))) for statement in statements]
