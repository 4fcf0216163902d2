"""Copies of a real MySQL that meet a row, a statement or a table they cannot read."""

from collections.abc import Iterable
from typing import Any

import pytest

from libs.errors import PipelineHalted, SourceUnavailable, UndecodableValue
from libs.events.dead_letter import UndecodedRow, decode_undecoded_row
from libs.mysql.text_row import row_cells
from libs.source.failure_policy import FailureHandling
from libs.source.mysql.settings import SnapshotSettings
from libs.source.mysql.table_copy import Readers
from libs.source.snapshot_mode import SnapshotMode
from libs.types.value_modes import TimePrecision, ValueModes
from services.binlog_reader import initial_copy
from tests.conftest import MysqlServer
from tests.integration.log_reading import LogReading, events_of, ids

HANDLINGS = [FailureHandling.WARN, FailureHandling.SKIP, FailureHandling.DEAD_LETTER]
BAD = (0, 1, 4, 7)
"""Rows whose TIME has no form in the mode ``connect``: the first one is among them, and both of a chunk."""


def reading_of(server: MysqlServer, database: str, *, readers: int = 1, **settings: object) -> LogReading:
    return LogReading(
        server,
        settings={
            "include_tables": (rf"{database}\..*",),
            "snapshot": SnapshotSettings(chunk_rows=2 if readers == 1 else 3, readers=readers),
            "values": ValueModes(time_precision=TimePrecision.CONNECT),
            **settings,
        },
    )


def make_table(server: MysqlServer, database: str, *, key: str = "PRIMARY KEY (id)", bad: Iterable[int] = BAD) -> None:
    rows = ",".join(f"({n}, '{25 if n in bad else 1:02}:00:00')" for n in range(9))
    server.execute(f"CREATE TABLE t (id INT, t TIME, {key})", f"INSERT INTO t VALUES {rows}", database=database)


def letters_of(reading: LogReading) -> list[UndecodedRow]:
    return [decode_undecoded_row(letter) for batch in reading.batches for letter in batch.dead_letters]


@pytest.mark.parametrize("handling", HANDLINGS)
@pytest.mark.parametrize(("key", "readers"), [("PRIMARY KEY (id)", 1), ("PRIMARY KEY (id)", 2), ("INDEX (id)", 1)])
async def test_a_copy_goes_on_behind_a_bad_row(
    mysql_server: MysqlServer, database: str, handling: FailureHandling, key: str, readers: int
) -> None:
    """The other rows come once, marked as they always are; a dead letter holds the row as MySQL sent it."""
    make_table(mysql_server, database, key=key)
    reading = reading_of(mysql_server, database, failure_handling=handling, readers=readers)

    await reading.begin()

    events = events_of(reading.entries)
    assert ids(events) == [n for n in range(9) if n not in BAD]
    assert [event.value["source"]["snapshot"] for event in events] == ["first", "true", "true", "true", "last"]
    letters = letters_of(reading)
    if handling is not FailureHandling.DEAD_LETTER:
        assert letters == []
        return
    assert sorted(row_cells(letter.images) for letter in letters) == [[b"%d" % n, b"25:00:00"] for n in BAD]
    assert {(letter.table, letter.column, letter.is_snapshot) for letter in letters} == {("t", "t", True)}
    reasons = [letter.reason.replace(database, "") for letter in letters]
    assert all("time_precision" in reason and "25" not in reason for reason in reasons)


async def test_a_copy_halts_before_a_bad_row_where_it_is_told_to(mysql_server: MysqlServer, database: str) -> None:
    """By name, without the value."""
    make_table(mysql_server, database, bad=[5])
    reading = reading_of(mysql_server, database, failure_handling=FailureHandling.FAIL)

    with pytest.raises(UndecodableValue, match=rf"{database}\.t\.t in the snapshot") as failed:
        await reading.begin()

    assert "25" not in str(failed.value).replace(database, "")


@pytest.mark.parametrize("handling", [*HANDLINGS, FailureHandling.FAIL])
async def test_an_incremental_copy_goes_on_behind_a_bad_row(
    mysql_server: MysqlServer, database: str, handling: FailureHandling, capfd: pytest.CaptureFixture[str]
) -> None:
    """With ``fail`` the table leaves the snapshot, named with the column; the log goes on all the same."""
    make_table(mysql_server, database)
    mysql_server.execute(
        "CREATE TABLE signals (id VARCHAR(40) PRIMARY KEY, type VARCHAR(40), data TEXT)",
        "CREATE TABLE u (id INT PRIMARY KEY)",
        "INSERT INTO u VALUES (1)",
        database=database,
    )
    reading = reading_of(
        mysql_server,
        database,
        failure_handling=handling,
        signal_table=f"{database}.signals",
        snapshot=SnapshotSettings(mode=SnapshotMode.NO_DATA, incremental_chunk_rows=2),
    )
    await reading.begin()
    wanted = f'{{"data-collections": ["{database}.t", "{database}.u"]}}'
    mysql_server.execute(f"INSERT INTO {database}.signals VALUES ('1', 'execute-snapshot', '{wanted}')")

    events = await reading.read(lambda events: any(event.table == f"{database}.u" for event in events))

    copied = [event.after["id"] for event in events if event.table == f"{database}.t"]
    letters = letters_of(reading)
    told = capfd.readouterr().out
    if handling is FailureHandling.FAIL:
        assert copied == []
        assert "incremental_table_refused" in told
        assert f"{database}.t.t in the snapshot" in told
        return
    assert copied == [n for n in range(9) if n not in BAD]
    if handling is FailureHandling.DEAD_LETTER:
        assert [row_cells(letter.images)[:2] for letter in letters] == [[b"%d" % n, b"25:00:00"] for n in BAD]


@pytest.mark.parametrize("select", ["no_such_column = 1", "id >", "SELECT id FROM no_such_table", "SELECT id FROM {t}"])
@pytest.mark.parametrize("readers", [1, 2])
async def test_a_select_that_mysql_refuses_halts_by_name(
    mysql_server: MysqlServer, database: str, select: str, readers: int
) -> None:
    """No retry helps."""
    make_table(mysql_server, database, bad=())
    reading = reading_of(mysql_server, database)
    overrides = {f"{database}.t": select.replace("{t}", f"{database}.t")}
    reading.settings["snapshot"] = SnapshotSettings(select_overrides=overrides, readers=readers)

    with pytest.raises(PipelineHalted, match=rf"select_overrides for {database}\.t"):
        await reading.begin()


@pytest.mark.parametrize(
    "ddl", ["ALTER TABLE t DROP COLUMN t", "ALTER TABLE t MODIFY id BIGINT", "DROP TABLE t", "RENAME TABLE t TO s"]
)
async def test_a_table_that_changes_behind_the_view_is_read_by_a_new_one(
    mysql_server: MysqlServer, database: str, ddl: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MySQL refuses the old view, and that is nobody's mistake: the log is followed up to a new one."""
    make_table(mysql_server, database, bad=())
    mysql_server.execute("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1), (2), (3)", database=database)
    reading = reading_of(mysql_server, database)
    await reading.read(lambda events: len(events) >= 1)
    assert reading.checkpoint is not None and [each.table for each in reading.checkpoint.snapshot.ranges] == [
        f"{database}.a"
    ]  # type: ignore[union-attr]
    open_readers, changed = initial_copy.open_readers, False

    def opened(*arguments: Any, **options: Any) -> Readers:
        nonlocal changed
        readers = open_readers(*arguments, **options)
        if not changed:
            mysql_server.execute(ddl, database=database)
            changed = True
        return readers

    monkeypatch.setattr(initial_copy, "open_readers", opened)
    with pytest.raises(SourceUnavailable, match="changed"):
        await reading.begin()
    await reading.begin()

    table = f"{database}.s" if "RENAME" in ddl else f"{database}.t"
    expected = [] if "DROP TABLE" in ddl else [*range(9)]
    assert ids([event for event in events_of(reading.entries) if event.table == table]) == expected
