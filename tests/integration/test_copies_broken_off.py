"""A copy that is begun again, of a real MySQL, and the changes that the log showed meanwhile."""

import pytest

from libs.errors import SourceUnavailable
from libs.source.mysql.settings import SnapshotSettings
from libs.source.snapshot_mode import SnapshotMode
from services.binlog_reader.position import decode_position
from tests.conftest import MysqlServer
from tests.integration.log_reading import Event, LogReading, events_of, ids


@pytest.fixture
def reading(mysql_server: MysqlServer, database: str) -> LogReading:
    return LogReading(
        mysql_server,
        settings={"include_tables": (rf"{database}\..*",), "snapshot": SnapshotSettings(chunk_rows=2)},
    )


@pytest.fixture
def tables(mysql_server: MysqlServer, database: str) -> None:
    """Three of six rows each; they are copied in this order."""
    for name in "abc":
        mysql_server.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO {name} VALUES " + ",".join(f"({n}, 0)" for n in range(6)),
            database=database,
        )


async def break_off_in(reading: LogReading, table: str) -> None:
    """Read until some rows of ``table`` are copied, and not all."""

    def has_begun(_: object) -> bool:
        snapshot = reading.checkpoint.snapshot if reading.checkpoint else None
        return snapshot is not None and any(each.table == table for each in snapshot.ranges)

    await reading.read(has_begun)


def quarantined(reading: LogReading) -> list[str]:
    """Tables that the checkpoint passes over."""
    assert reading.checkpoint is not None
    return sorted(table.partition(".")[2] for table in decode_position(reading.checkpoint.position).quarantined)


@pytest.mark.usefixtures("tables")
async def test_a_quarantine_outlasts_the_copy_that_it_began_in(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """Of tables that were copied before, whole or in part. One that was not begun is read as it is now, and is right."""
    await break_off_in(reading, f"{database}.b")
    mysql_server.execute(
        "SET SESSION binlog_format = STATEMENT",
        f"USE {database}",
        *(f"UPDATE {name} SET v = 1" for name in "abc"),
    )

    await reading.begin()
    after_copy = quarantined(reading)
    mysql_server.execute(*(f"INSERT INTO {name} VALUES (7, 7)" for name in "abc"), database=database)
    changes = await reading.read(lambda events: len(events) >= 1)

    assert after_copy == quarantined(reading) == ["a", "b"]
    assert [(event.table, event.after) for event in changes] == [(f"{database}.c", {"id": 7, "v": 7})]
    copied = [event for event in events_of(reading.entries) if event.op == "r" and event.table == f"{database}.c"]
    assert [event.after for event in copied] == [{"id": n, "v": 1} for n in range(6)]


@pytest.mark.usefixtures("tables")
async def test_a_copy_of_everything_ends_every_quarantine(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """``always``: each table is read from its beginning, with the definition that it has now."""
    reading.settings["snapshot"] = SnapshotSettings(mode=SnapshotMode.ALWAYS)
    await reading.begin()
    mysql_server.execute("SET SESSION sql_log_bin = OFF", f"ALTER TABLE {database}.a ADD COLUMN unseen INT DEFAULT 5")
    mysql_server.execute("INSERT INTO a VALUES (7, 7, 7)", "INSERT INTO b VALUES (7, 7)", database=database)

    again = await reading.read(lambda events: sum(event.op == "r" for event in events) >= 6 + 1 + 7 + 6)
    mysql_server.execute("UPDATE a SET unseen = 6 WHERE id = 7", database=database)
    changed = await reading.read(lambda events: any(event.op == "u" for event in events))

    of_a = [event.after for event in again if event.table == f"{database}.a"]
    assert of_a == [*({"id": n, "v": 0, "unseen": 5} for n in range(6)), {"id": 7, "v": 7, "unseen": 7}]
    assert [event.after for event in changed if event.op == "u"] == [{"id": 7, "v": 7, "unseen": 6}]
    assert quarantined(reading) == []


@pytest.mark.usefixtures("tables")
async def test_always_goes_on_with_a_copy_that_was_broken_off(reading: LogReading, database: str) -> None:
    """Only a start after a finished copy begins another one: a copy that is killed again and again still comes to its end."""
    reading.settings["snapshot"] = SnapshotSettings(mode=SnapshotMode.ALWAYS, chunk_rows=2)
    await break_off_in(reading, f"{database}.b")

    await reading.begin()
    first = events_of(reading.entries)
    second = await reading.read(lambda events: len(events) >= 18)

    assert [(event.table[-1], *ids([event])) for event in first] == [(name, n) for name in "abc" for n in range(6)]
    assert [(event.table[-1], *ids([event])) for event in second] == [(name, n) for name in "abc" for n in range(6)]


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("mode", [SnapshotMode.INITIAL, SnapshotMode.ALWAYS])
async def test_no_copy_is_begun_again_while_an_xa_transaction_is_prepared(
    reading: LogReading, mysql_server: MysqlServer, database: str, mode: SnapshotMode
) -> None:
    """Its rows are in no view, and its commit stands after the view's position: they come once it is over."""
    reading.settings["snapshot"] = SnapshotSettings(mode=mode, chunk_rows=2)
    if mode is SnapshotMode.INITIAL:
        await break_off_in(reading, f"{database}.b")
    else:
        await reading.begin()
    mysql_server.execute("XA START 'w'", f"INSERT INTO {database}.c VALUES (7, 7)", "XA END 'w'", "XA PREPARE 'w'")

    try:
        with pytest.raises(SourceUnavailable, match="XA RECOVER"):
            await reading.begin()
            await reading.read(lambda events: any(event.op == "r" for event in events))
    finally:
        mysql_server.execute("XA COMMIT 'w'")
    mysql_server.execute(f"INSERT INTO {database}.c VALUES (8, 8)")
    after = await reading.read(lambda events: len(_rows_of(events, f"{database}.c")) == 8)

    assert _rows_of(after, f"{database}.c") == {**dict.fromkeys(range(6), 0), 7: 7, 8: 8}


def _rows_of(events: list[Event], table: str) -> dict[int, int]:
    return {event.after["id"]: event.after["v"] for event in events if event.table == table}
