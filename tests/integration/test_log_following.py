"""The log of a real MySQL, followed: the events of each kind of transaction in it."""

import asyncio
import os
import secrets
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from libs.config.load import Secret
from libs.errors import DiskFull, PipelineHalted, PositionPurged, SourceMisconfigured, SourceUnavailable
from libs.mysql.charsets import charset_of_collation_id
from libs.mysql.grants import SEEING, create_user, grant_statements
from libs.mysql.gtid import GtidSet
from libs.mysql.packets import Packets
from libs.servers.process import stop
from libs.source.mysql.client import connect, raise_error_packet, start_dump
from libs.source.mysql.settings import DatabaseSettings, SnapshotSettings
from libs.source.snapshot_mode import SnapshotMode
from libs.source.unseen_policy import UnseenAction, UnseenPolicy
from libs.telemetry.faults import CHANGES_LOST, lasting_faults, lift_fault
from libs.types.fault import FaultScope
from libs.types.table import TableId
from services.binlog_reader.position import BinlogPosition, decode_position
from tests.conftest import MysqlServer, StartMysql
from tests.integration.log_reading import Event, LogReading, events_of, ids


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
    """The events of a compressed transaction differ from those of a plain one in their place alone."""
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


async def test_an_xa_transaction_counts_when_it_is_committed(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """Its rows come after those that were committed while it was prepared, those of a rolled back one never, over a restart
    too."""
    await reading.begin()
    table = f"{database}.t"
    for xid, row_id in (("one", 1), ("two", 2)):
        mysql_server.execute(
            f"XA START '{xid}', 'b', 3",
            f"INSERT INTO {table} VALUES ({row_id}, 'held'), ({row_id + 100}, 'held')",
            f"XA END '{xid}', 'b', 3",
            f"XA PREPARE '{xid}', 'b', 3",
        )
    mysql_server.execute(f"INSERT INTO {table} VALUES (3, 'x')")
    before = await reading.read(lambda events: len(events) >= 1)  # a reader that then dies
    mysql_server.execute(f"INSERT INTO {table} VALUES (4, 'x')", "XA COMMIT 'one', 'b', 3", "XA ROLLBACK 'two', 'b', 3")
    mysql_server.execute(
        "SET SESSION binlog_transaction_compression = ON",
        "XA START 'three'",
        f"INSERT INTO {table} VALUES (5, REPEAT('long', 1000))",
        "XA END 'three'",
        "XA COMMIT 'three' ONE PHASE",
        f"INSERT INTO {table} VALUES (6, 'x')",
    )

    after = await reading.read(lambda events: len(events) >= 5)
    mysql_server.execute(f"INSERT INTO {table} VALUES (7, 'x')")
    last = await reading.read(lambda events: len(events) >= 1)

    assert ids(before) == [3]
    assert ids(after) == [4, 1, 101, 5, 6]
    assert ids(last) == [7]
    orders = [event.order for event in before + after + last]
    assert orders == sorted(set(orders))
    (executed,) = mysql_server.execute("SELECT @@GLOBAL.gtid_executed")
    position = decode_position(reading.checkpoint.position) if reading.checkpoint else None
    assert position is not None and GtidSet.parse(position.gtid_set) == GtidSet.parse(executed[0])


async def test_a_snapshot_waits_for_prepared_transactions(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """Neither the read view nor the log after it would have their rows."""
    mysql_server.execute("XA START 'w'", f"INSERT INTO {database}.t VALUES (1, 'x')", "XA END 'w'", "XA PREPARE 'w'")

    with pytest.raises(SourceUnavailable, match="XA RECOVER"):
        await reading.begin()
    mysql_server.execute("XA COMMIT 'w'")
    await reading.begin()

    assert ids(events_of(reading.entries)) == [1]


async def test_a_change_logged_as_a_statement_quarantines_its_table_alone(
    reading: LogReading, mysql_server: MysqlServer, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its rows are nowhere in the log. The reason names table, transaction and remedy, and outlasts a restart."""
    mysql_server.execute(f"CREATE TABLE {database}.other (id INT PRIMARY KEY)")
    await reading.begin()
    mysql_server.execute(
        "SET SESSION binlog_format = STATEMENT",
        f"USE {database}",
        "INSERT INTO t VALUES (1, 'x')",
        "UPDATE `t` SET v = CONCAT(v, RAND()) WHERE id = 1",
    )
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (2, 'x')", f"INSERT INTO {database}.other VALUES (3)")

    first = await reading.read(lambda events: len(events) >= 1)
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (4, 'x')", f"INSERT INTO {database}.other VALUES (5)")
    second = await reading.read(lambda events: len(events) >= 1)
    told = capfd.readouterr().out

    assert ids(first + second) == [3, 5]
    assert "table_quarantined" in told
    assert f"{database}.t: the log has a change of it as a statement" in told
    assert "binlog_format = 'ROW'" in told


@pytest.mark.parametrize("sees_all", [True, False])
async def test_a_statement_changes_tables_that_it_does_not_name(
    mysql_server: MysqlServer, database: str, unique_name: Callable[[str], str], sees_all: bool
) -> None:
    """By a function. Of a user that may not see it the whole source is reported, but not of a change in a database that nobody
    captures. Rows that a CREATE TABLE brought along are not there either."""
    side, user = unique_name("side"), unique_name("u")
    mysql_server.execute(
        f"CREATE DATABASE {side}",
        f"CREATE TABLE {side}.w (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.mark (id INT PRIMARY KEY)",
        f"CREATE FUNCTION {database}.writes(n INT) RETURNS INT DETERMINISTIC "
        f"BEGIN INSERT INTO {database}.t VALUES (n, 'x'); RETURN n; END",
        create_user(user, "secret"),
        *grant_statements(user, [database]),
        *([f"GRANT {', '.join(SEEING)} ON *.* TO '{user}'@'%'"] if sees_all else []),
    )
    settings = {"include_tables": (rf"{database}\..*",)}
    reading = LogReading(mysql_server, settings=settings, database={"user": user, "password": Secret("secret")})
    await reading.begin()

    async def reported(mark: int, *statements: str) -> tuple[bool, set[str]]:
        """Whether changes may be lost, and the quarantined tables."""
        lift_fault(CHANGES_LOST, FaultScope(source="src"))
        mysql_server.execute("SET SESSION binlog_format = STATEMENT", *statements)
        mysql_server.execute(f"INSERT INTO {database}.mark VALUES ({mark})")
        await reading.read(lambda events: bool(events))
        assert reading.checkpoint is not None
        lost = [fault.happened for fault in lasting_faults() if fault.id == CHANGES_LOST.id]
        assert all(f"change in {database} as a statement" in words and "GRANT SHOW VIEW" in words for words in lost)
        return bool(lost), set(decode_position(reading.checkpoint.position).quarantined)

    seen = {f"{database}.t"} if sees_all else set()
    assert await reported(1, f"INSERT INTO {side}.w VALUES (1)") == (False, set())
    assert await reported(2, f"DO {database}.writes(1)") == (not sees_all, seen)
    made = f"{database}.filled"
    assert await reported(3, f"CREATE TABLE {made} TABLE {database}.mark") == (False, seen | {made})

    lift_fault(CHANGES_LOST, FaultScope(source="src"))
    mysql_server.execute(f"DROP DATABASE {side}", f"DROP USER '{user}'@'%'")


async def test_a_temporary_table_is_nobodys(reading: LogReading, mysql_server: MysqlServer, database: str) -> None:
    """A session that logs statements has one of a captured table's name: its changes concern no tenant. A change of another
    table by it quarantines that one."""
    mysql_server.execute(
        f"CREATE TABLE {database}.other (id INT PRIMARY KEY)", f"INSERT INTO {database}.t VALUES (1, 'x')"
    )
    await reading.begin()
    mysql_server.execute(
        "SET SESSION binlog_format = STATEMENT",
        f"USE {database}",
        "CREATE TEMPORARY TABLE t (id INT, w INT)",
        "INSERT INTO t VALUES (7, 8)",
        "ALTER TABLE t ADD c INT FIRST",
        "CREATE INDEX i ON t (w)",
        "DROP INDEX i ON t",
        "TRUNCATE t",
        f"ALTER TABLE {database}.t RENAME AS {database}.u",
        f"ALTER TABLE {database}.u RENAME AS {database}.t",
        "TRUNCATE TABLE t",
        "DROP TABLE t",
        f"CREATE TEMPORARY TABLE {database}.tmp AS SELECT id FROM t",
        "INSERT INTO other SELECT id + 10 FROM tmp",
    )
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (2, 'x')", f"INSERT INTO {database}.other VALUES (3)")
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (4, 'x')")

    events = await reading.read(lambda events: len(events) >= 2)

    assert [(event.op, event.after) for event in events] == [("c", {"id": 2, "v": "x"}), ("c", {"id": 4, "v": "x"})]
    assert reading.checkpoint is not None
    assert list(decode_position(reading.checkpoint.position).quarantined) == [f"{database}.other"]


async def test_rows_behind_a_statement_of_their_transaction_are_read(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """No kind of statement within a transaction ends it."""
    await reading.begin()
    mysql_server.execute(
        f"USE {database}",
        "SET SESSION binlog_format = STATEMENT",
        "CREATE TABLE logged (id INT PRIMARY KEY)",
        "SET GLOBAL log_bin_trust_function_creators = ON",
        "CREATE FUNCTION noted() RETURNS INT MODIFIES SQL DATA BEGIN INSERT INTO logged VALUES (1); RETURN 1; END",
        "SET GLOBAL log_bin_trust_function_creators = OFF",
        "SET SESSION binlog_format = MIXED",
        "BEGIN",
        "INSERT INTO t VALUES (1, UUID())",
        "DO noted()",
        "INSERT INTO t VALUES (2, UUID())",
        "COMMIT",
    )

    events = await reading.read(lambda events: len(events) >= 2)

    assert [event.after["id"] for event in events if event.table.endswith(".t")] == [1, 2]
    assert len({event.order.rank for event in events}) == 1


async def test_operations_that_are_not_wanted_are_skipped(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """Within one transaction too, where rows events stand side by side."""
    reading.settings["skipped_operations"] = ("u", "t")
    await reading.begin()
    table = f"{database}.t"
    mysql_server.execute(
        "BEGIN",
        f"INSERT INTO {table} VALUES (1, 'x')",
        f"UPDATE {table} SET v = 'y' WHERE id = 1",
        f"INSERT INTO {table} VALUES (2, 'x')",
        f"DELETE FROM {table} WHERE id = 1",
        "COMMIT",
        f"TRUNCATE TABLE {table}",
        f"INSERT INTO {table} VALUES (3, 'x')",
    )

    events = await reading.read(lambda events: len(events) >= 4)

    assert [(event.op, *ids([event])) for event in events] == [("c", 1), ("c", 2), ("d", 1), ("c", 3)]


async def test_transactions_of_other_servers_can_be_left_out(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """Their rows are passed over, their DDL is not, and the position moves on after them."""
    other = "11111111-2222-3333-4444-555555555555"
    reading.settings["gtid_source_excludes"] = ("1{8}-.*",)
    await reading.begin()
    with mysql_server.connect(database) as connection, connection.cursor() as cursor:
        for number, statement in enumerate(
            ("INSERT INTO t VALUES (1, 'x')", "ALTER TABLE t ADD COLUMN w INT", "INSERT INTO t VALUES (2, 'x', 2)"), 1
        ):
            cursor.execute(f"SET gtid_next = '{other}:{number}'")
            cursor.execute(statement)
        cursor.execute("SET gtid_next = AUTOMATIC")
        cursor.execute("INSERT INTO t VALUES (3, 'x', 3)")

    events = await reading.read(lambda events: len(events) >= 1)

    assert [event.after for event in events] == [{"id": 3, "v": "x", "w": 3}]


async def test_an_online_schema_change_is_one_change_of_its_table(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """gh-ost's and pt-online-schema-change's statements: no row of a shadow table, no end of the real one."""
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (1, 'a'), (2, 'b')")
    await reading.begin()
    started = len(reading.entries)
    gh_ost = (
        "CREATE /* gh-ost */ TABLE `_t_ghc` (id bigint unsigned auto_increment, last_update timestamp not null DEFAULT "
        "CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, hint varchar(64) charset ascii not null, value varchar(4096) "
        "charset ascii not null, primary key(id), unique key hint_uidx(hint)) auto_increment=256 comment='gh-ost'",
        "INSERT /* gh-ost */ INTO `_t_ghc` (id, hint, value) VALUES (NULLIF(2, 0), 'state', 'Migrated') "
        "ON DUPLICATE KEY UPDATE last_update = NOW(), value = VALUES(value)",
        "CREATE /* gh-ost */ TABLE `_t_gho` LIKE `t`",
        "ALTER /* gh-ost */ TABLE `_t_gho` ADD COLUMN w INT NOT NULL DEFAULT 7 AFTER id",
        "INSERT /* gh-ost */ IGNORE INTO `_t_gho` (`id`, `v`) (SELECT `id`, `v` FROM `t` FORCE INDEX (`PRIMARY`) "
        "WHERE (((`id` > 0)) AND ((`id` < 9))) LOCK IN SHARE MODE)",
        "INSERT INTO t VALUES (3, 'c')",
        "REPLACE /* gh-ost */ INTO `_t_gho` (`id`, `v`) VALUES (3, 'c')",
        "CREATE /* gh-ost */ TABLE `_t_del` (id int auto_increment primary key) comment='ghost-cut-over-sentry'",
        "DROP /* gh-ost */ TABLE IF EXISTS `_t_del`",
        "RENAME /* gh-ost */ TABLE `t` TO `_t_del`, `_t_gho` TO `t`",
        "INSERT INTO t VALUES (4, 8, 'd')",
        "DROP /* gh-ost */ TABLE IF EXISTS `_t_ghc`",
        "DROP /* gh-ost */ TABLE IF EXISTS `_t_del`",
    )
    pt_osc = (
        "CREATE TABLE `_t_new` (`id` int NOT NULL, `w` int NOT NULL DEFAULT '7', `v` longtext, PRIMARY KEY (`id`)) "
        "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4",
        "ALTER TABLE `_t_new` DROP COLUMN w, ADD COLUMN z VARCHAR(5)",
        "CREATE TRIGGER `pt_osc_t_del` AFTER DELETE ON `t` FOR EACH ROW DELETE IGNORE FROM `_t_new` "
        "WHERE `_t_new`.`id` <=> OLD.`id`",
        "CREATE TRIGGER `pt_osc_t_ins` AFTER INSERT ON `t` FOR EACH ROW REPLACE INTO `_t_new` (`id`, `v`) "
        "VALUES (NEW.`id`, NEW.`v`)",
        "INSERT LOW_PRIORITY IGNORE INTO `_t_new` (`id`, `v`) SELECT `id`, `v` FROM `t` LOCK IN SHARE MODE "
        "/*pt-online-schema-change 4242 copy table*/",
        "INSERT INTO t VALUES (5, 9, 'e')",
        f"ANALYZE TABLE `{database}`.`_t_new` /* pt-online-schema-change */",
        f"RENAME TABLE `{database}`.`t` TO `{database}`.`_t_old`, `{database}`.`_t_new` TO `{database}`.`t`",
        f"DROP TABLE IF EXISTS `{database}`.`_t_old`",
        f"DROP TRIGGER IF EXISTS `{database}`.`pt_osc_t_del`",
        "INSERT INTO t VALUES (6, 'f', 'z')",
    )
    mysql_server.execute(*gh_ost, *pt_osc, database=database)

    events = await reading.read(lambda events: len(events) >= 4)

    assert [event.after for event in events] == [
        {"id": 3, "v": "c"},
        {"id": 4, "w": 8, "v": "d"},
        {"id": 5, "w": 9, "v": "e"},
        {"id": 6, "v": "f", "z": "z"},
    ]
    changes = [e.table_change for e in reading.entries[started:] if e.WhichOneof("entry") == "table_change"]
    assert [(change.table, change.schema_version > 0) for change in changes] == [("t", True), ("t", True)]
    kinds = [orjson.loads(change.value)["tableChanges"][0]["type"] for change in changes]
    assert kinds == ["ALTER", "ALTER"]


async def test_a_table_that_the_log_contradicts_is_quarantined(
    reading: LogReading, mysql_server: MysqlServer, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A schema that is wrong stops its table, named with the statement that changed it; dropping the table ends that."""
    mysql_server.execute(f"CREATE TABLE {database}.other (id INT PRIMARY KEY)")
    await reading.begin()
    mysql_server.execute("SET SESSION sql_log_bin = OFF", f"ALTER TABLE {database}.t ADD COLUMN unseen INT")
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (1, 'x', 1)", f"INSERT INTO {database}.other VALUES (2)")

    first = await reading.read(lambda events: len(events) >= 1)
    mysql_server.execute(
        "DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (3)", database=database
    )
    emptied, *second = await reading.read(lambda events: len(events) >= 2)
    told = capfd.readouterr().out

    assert emptied.op == "t"
    assert ids(first + second) == [2, 3]
    assert f"{database}.t: the log has 3 columns" in told
    assert "re-snapshot the table" in told


@pytest.mark.parametrize(
    ("charset", "word"), [("latin1", "café"), ("gbk", "漢字"), ("cp1251", "ключ"), ("sjis", "表示")]
)
async def test_statements_are_read_in_their_clients_character_set(
    reading: LogReading, mysql_server: MysqlServer, database: str, charset: str, word: str
) -> None:
    """Names, members and comments are the server's own; the last byte of sjis's 表 is a backslash."""
    await reading.begin()
    before = len(reading.history.changes)
    with mysql_server.connect(database, charset=charset) as connection, connection.cursor() as cursor:
        for statement in (
            f"CREATE TABLE `{word}` (`{word}x` INT PRIMARY KEY, e ENUM('a', '{word}') COMMENT '{word}') COMMENT '{word}'",
            f"ALTER TABLE `{word}` ADD `{word} y` INT DEFAULT 7 AFTER `{word}x`",
            f"CREATE TABLE `{word}_copy` AS SELECT * FROM `{word}`",
            f"INSERT INTO `{word}` VALUES (1, 2, '{word}')",
            f"DROP TABLE `{word}_copy`",
        ):
            cursor.execute(statement)

    (event,) = await reading.read(lambda events: len(events) >= 1)

    assert event.after == {f"{word}x": 1, f"{word} y": 2, "e": word}
    _, _, created = reading.history.changes[before]
    assert created is not None
    assert (created.comment, created.columns[1].comment) == (word, word)
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (5, 'x')")
    await reading.read(lambda events: len(events) >= 1)
    assert reading.history.changes[-1][1:] == (TableId(database=database, table=f"{word}_copy"), None)


def test_collations_are_those_of_the_server(mysql_server: MysqlServer) -> None:
    """By number, as the log names the client's and Vitess a column's."""
    for number, charset in mysql_server.execute("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS"):
        assert charset_of_collation_id(number) == charset


async def test_a_quarantined_table_is_followed_again_once_a_signal_has_it_read_anew(
    reading: LogReading, mysql_server: MysqlServer, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the source's definition of now, as a new version; every row comes, and changes go on after it."""
    mysql_server.execute(
        f"CREATE TABLE {database}.signals (id VARCHAR(40) PRIMARY KEY, type VARCHAR(40), data TEXT)",
        f"INSERT INTO {database}.t VALUES (1, 'a'), (2, 'b')",
    )
    reading.settings["signal_table"] = f"{database}.signals"
    await reading.begin()
    mysql_server.execute("SET SESSION sql_log_bin = OFF", f"ALTER TABLE {database}.t ADD COLUMN unseen INT")
    mysql_server.execute(
        f"INSERT INTO {database}.t VALUES (3, 'c', 30)", f"INSERT INTO {database}.signals VALUES ('1', 'log', '{{}}')"
    )
    await reading.read(lambda events: len(events) >= 1)
    assert reading.checkpoint is not None
    quarantined = decode_position(reading.checkpoint.position).quarantined
    wanted = f'{{"data-collections": ["{database}.t"]}}'
    mysql_server.execute(f"INSERT INTO {database}.signals VALUES ('2', 'execute-snapshot', '{wanted}')")

    copied = await reading.read(lambda events: sum(event.op == "r" for event in events) >= 3)
    mysql_server.execute(f"UPDATE {database}.t SET unseen = 31 WHERE id = 3")
    changed = await reading.read(lambda events: len(events) >= 1)

    assert "re-snapshot the table" in quarantined[f"{database}.t"]
    assert [event.after for event in copied if event.op == "r"] == [
        {"id": 1, "v": "a", "unseen": None},
        {"id": 2, "v": "b", "unseen": None},
        {"id": 3, "v": "c", "unseen": 30},
    ]
    assert [event.after for event in changed] == [{"id": 3, "v": "c", "unseen": 31}]
    assert not decode_position(reading.checkpoint.position).quarantined
    assert "table_readmitted" in capfd.readouterr().out


async def test_tables_that_foreign_keys_change_without_the_log_are_told_while_they_are_there(
    start_mysql: StartMysql,
) -> None:
    """At the start, and as statements of the log bring and take foreign keys."""
    server = start_mysql(extra_options=("--innodb-native-foreign-keys=ON",))
    child = "(id INT PRIMARY KEY, p INT, CONSTRAINT {} FOREIGN KEY (p) REFERENCES p (id) ON DELETE {})"
    server.execute("CREATE DATABASE d", "CREATE DATABASE other")
    for database in ("d", "other"):
        server.execute(
            "CREATE TABLE p (id INT PRIMARY KEY)", f"CREATE TABLE c {child.format('fc', 'CASCADE')}", database=database
        )
    reading = LogReading(server, {"include_tables": [r"d\..*"]})

    def told() -> dict[str, str]:
        return {fault.scope.table: fault.happened for fault in lasting_faults() if fault.id == "cascades_not_logged"}

    await reading.begin()
    first = told()
    server.execute(
        f"CREATE TABLE n {child.format('fn', 'SET NULL')}",
        f"CREATE TABLE r {child.format('fr', 'RESTRICT')}",
        "ALTER TABLE c DROP FOREIGN KEY fc",
        "INSERT INTO p VALUES (1)",
        database="d",
    )
    await reading.read(lambda events: len(events) >= 1)
    second = told()
    server.execute("DROP TABLE n", "INSERT INTO p VALUES (2)", database="d")
    await reading.read(lambda events: len(events) >= 1)

    assert first == {"d.c": "d.c: fc, which follows p (ON DELETE CASCADE, ON UPDATE NO ACTION)"}
    assert second == {"d.n": "d.n: fn, which follows p (ON DELETE SET NULL, ON UPDATE NO ACTION)"}
    assert told() == {}


async def test_a_definition_that_the_history_cannot_hold_stops_its_table_alone(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """Whether the table was there before or grows so; the reason has the remedy and outlasts a restart. With shorter comments
    and a signal the table is followed."""
    wide = ", ".join(f"c{nth} TINYINT COMMENT '{'x' * 1_000}'" for nth in range(900))
    less = ", ".join(f"MODIFY c{nth} TINYINT" for nth in range(900))
    more = ", ".join(f"ADD c{nth} TINYINT COMMENT '{'x' * 1_000}'" for nth in range(900))
    mysql_server.execute(
        f"CREATE TABLE {database}.signals (id VARCHAR(40) PRIMARY KEY, type VARCHAR(40), data TEXT)",
        f"CREATE TABLE {database}.wide (id INT PRIMARY KEY, {wide})",
        f"CREATE TABLE {database}.grows (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.wide (id) VALUES (1)",
    )
    reading.settings["signal_table"] = f"{database}.signals"
    await reading.begin()
    mysql_server.execute(
        f"INSERT INTO {database}.wide (id) VALUES (2)",
        f"ALTER TABLE {database}.grows {more}",
        f"INSERT INTO {database}.grows (id) VALUES (3)",
        f"INSERT INTO {database}.t VALUES (4, 'x')",
    )
    first = await reading.read(lambda events: any(event.table == f"{database}.t" for event in events))
    mysql_server.execute(f"INSERT INTO {database}.grows (id) VALUES (5)", f"INSERT INTO {database}.t VALUES (6, 'x')")
    second = await reading.read(lambda events: any(event.table == f"{database}.t" for event in events))
    assert reading.checkpoint is not None
    quarantined = decode_position(reading.checkpoint.position).quarantined
    faults = {fault.scope.table: fault.happened for fault in lasting_faults() if fault.id == "table_quarantined"}
    wanted = f'{{"data-collections": ["{database}.wide", "{database}.grows"]}}'
    mysql_server.execute(
        f"ALTER TABLE {database}.wide {less}",
        f"ALTER TABLE {database}.grows {less}",
        f"INSERT INTO {database}.signals VALUES ('2', 'execute-snapshot', '{wanted}')",
    )
    copied = await reading.read(lambda events: sum(event.op == "r" for event in events) >= 4)
    mysql_server.execute(f"INSERT INTO {database}.wide (id) VALUES (7)")
    changed = await reading.read(lambda events: len(events) >= 1)

    assert ids([event for event in first + second if event.table != f"{database}.signals"]) == [4, 6]
    assert set(quarantined) == set(faults) == {f"{database}.wide", f"{database}.grows"}
    assert all("shorten the comments of its columns; then re-snapshot the table" in each for each in faults.values())
    assert sorted(ids([event for event in copied if event.op == "r"])) == [1, 2, 3, 5]
    assert ids(changed) == [7]
    assert not decode_position(reading.checkpoint.position).quarantined


async def test_a_renamed_column_that_was_not_seen_is_found_by_the_log_itself(
    reading: LogReading, mysql_server: MysqlServer, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Widths agree; with binlog_row_metadata=FULL the log has the names, so no value comes under a wrong one."""
    mysql_server.execute(
        f"CREATE TABLE {database}.all_of (y YEAR, u INT UNSIGNED, s INT, e ENUM('a','ź') CHARACTER SET latin2, "
        "st SET('x','y'), f FLOAT UNSIGNED, d DECIMAL(5,2), v VARCHAR(9), id BIGINT UNSIGNED PRIMARY KEY, b BIT(3), j JSON)",
        f"CREATE TABLE {database}.prefixed (id VARCHAR(50), v INT, PRIMARY KEY (id(5)))",
    )
    await reading.begin()
    mysql_server.execute("SET SESSION sql_log_bin = OFF", f"ALTER TABLE {database}.t RENAME COLUMN v TO w")
    mysql_server.execute("SET GLOBAL binlog_row_metadata = FULL")
    try:
        mysql_server.execute(
            f"INSERT INTO {database}.t VALUES (1, 'x')",
            f"INSERT INTO {database}.prefixed VALUES ('x', 1)",
            f"INSERT INTO {database}.all_of (id) VALUES (2)",
        )
    finally:
        mysql_server.execute("SET GLOBAL binlog_row_metadata = MINIMAL")
    mysql_server.execute(f"INSERT INTO {database}.all_of (id) VALUES (3)")

    events = await reading.read(lambda events: len(events) >= 3)

    assert ids(events) == ["x", 2, 3]
    assert f"{database}.t.v: the log calls it 'w'" in capfd.readouterr().out


async def test_a_rename_is_told_once(reading: LogReading, mysql_server: MysqlServer, database: str) -> None:
    """As in Debezium's events: an ALTER of the new name; the end of the old one is for the router alone."""
    await reading.begin()
    started = len(reading.entries)
    mysql_server.execute("RENAME TABLE t TO u", "INSERT INTO u VALUES (1, 'x')", database=database)
    await reading.read(lambda events: len(events) >= 1)

    changes = [e.table_change for e in reading.entries[started:] if e.WhichOneof("entry") == "table_change"]
    assert [(change.table, change.schema_version > 0, bool(change.value)) for change in changes] == [
        ("t", False, False),
        ("u", True, True),
    ]


async def test_a_server_without_gtids_is_followed_by_place(
    start_mysql: StartMysql, unique_name: Callable[[str], str]
) -> None:
    """Snapshot, log, restart, rotation and compressed transactions; orders grow, and a purged file halts by name."""
    server = start_mysql(extra_options=("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--binlog-checksum=NONE"))
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)")
    server.execute("INSERT INTO d.t VALUES (1, 'x')")
    reading = LogReading(server, settings={"include_tables": (r"d\..*",), "transaction_metadata": True})
    await reading.begin()
    server.execute(
        "INSERT INTO d.t VALUES (2, 'x')",
        "SET SESSION binlog_transaction_compression = ON",
        "INSERT INTO d.t VALUES (3, REPEAT('x', 1000))",
    )
    first = await reading.read(lambda events: len(events) >= 2)
    server.execute("FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (4, 'x'), (5, 'x')", "INSERT INTO d.t VALUES (6, 'x')")

    second = await reading.read(lambda events: len(events) >= 3)

    assert ids(first + second) == [2, 3, 4, 5, 6]
    snapshot_rows = [event for event in events_of(reading.entries) if event.is_snapshot]
    orders = [event.order for event in snapshot_rows + first + second]
    assert orders == sorted(set(orders))
    assert [event.value["source"]["gtid"] for event in first] == [None, None]
    assert second[0].transaction_id == second[1].transaction_id != second[2].transaction_id
    assert second[0].value["transaction"]["id"] == second[0].transaction_id
    server.execute("FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (7, 'x')")
    ((file, *_),) = server.execute("SHOW BINARY LOG STATUS")
    server.execute(f"PURGE BINARY LOGS TO '{file}'")
    with pytest.raises(PositionPurged, match=r"binlog\.000002:.*re-snapshot"):
        await reading.read(lambda events: len(events) >= 1)


async def test_a_log_without_gtids_is_followed_from_its_beginning_and_copied_past_a_gap(
    start_mysql: StartMysql,
) -> None:
    """``never`` begins with the oldest file; ``when_needed`` copies all rows once the place is gone, under greater orders."""
    server = start_mysql(extra_options=("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"))
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
    server.execute("FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (2)")
    never = SnapshotSettings(mode=SnapshotMode.NEVER)
    reading = LogReading(server, settings={"include_tables": (r"d\..*",), "snapshot": never})

    first = await reading.read(lambda events: len(events) >= 2)
    server.execute("INSERT INTO d.t VALUES (3)", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (4)")
    ((file, *_),) = server.execute("SHOW BINARY LOG STATUS")
    server.execute(f"PURGE BINARY LOGS TO '{file}'")
    with pytest.raises(PositionPurged, match="re-snapshot"):
        await reading.read(lambda events: len(events) >= 1)
    reading.settings["snapshot"] = SnapshotSettings(mode=SnapshotMode.WHEN_NEEDED)
    copied = await reading.read(lambda events: len(events) >= 4)
    server.execute("INSERT INTO d.t VALUES (5)")
    after = await reading.read(lambda events: len(events) >= 1)

    assert [(event.op, *ids([event])) for event in first] == [("c", 1), ("c", 2)]
    assert [(event.op, *ids([event])) for event in copied] == [("r", 1), ("r", 2), ("r", 3), ("r", 4)]
    assert [(event.op, *ids([event])) for event in after] == [("c", 5)]
    assert max(event.order for event in first) < min(event.order for event in copied)
    assert max(event.order for event in copied) < after[0].order


async def test_another_server_takes_over(start_mysql: StartMysql) -> None:
    """A replica becomes the source: no change is lost or repeated, orders go on growing, and the old server is passed over
    when it comes back without transactions that were read."""
    primary, replica = (start_mysql(server_id=server_id) for server_id in (11, 12))
    replica.execute(
        f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{primary.host}', SOURCE_PORT = {primary.port}, SOURCE_USER = 'root', "
        "SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1",
        "START REPLICA",
    )
    primary.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
    reading = LogReading(
        primary,
        settings={"include_tables": (r"d\..*",)},
        database={"failover_servers": (f"{replica.host}:{replica.port}",), "connect_timeout_s": 2},
    )
    await reading.begin()
    primary.execute("INSERT INTO d.t VALUES (2)")
    before = await reading.read(lambda events: len(events) >= 1)
    (executed,) = primary.execute("SELECT @@GLOBAL.gtid_executed")
    replica.execute(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed[0]}', 60)", "STOP REPLICA", "RESET REPLICA ALL")
    primary.kill()
    replica.execute("INSERT INTO d.t VALUES (3)", "INSERT INTO d.t VALUES (4)")

    after = await reading.read(lambda events: len(events) >= 2)
    primary.restart()
    replica.execute("INSERT INTO d.t VALUES (5)")
    last = await reading.read(lambda events: len(events) >= 1)

    assert [ids(events) for events in (before, after, last)] == [[2], [3, 4], [5]]
    orders = [event.order for event in before + after + last]
    assert orders == sorted(set(orders))
    assert before[0].transaction_id.split(":")[0] != after[0].transaction_id.split(":")[0]


async def test_a_source_that_is_stopped_or_that_ends_the_dump_is_read_again(start_mysql: StartMysql) -> None:
    """It says goodbye by an end of data, as it does when somebody ends its dump thread: nothing of that is lost log."""
    primary, replica = (start_mysql(server_id=server_id) for server_id in (11, 12))
    replica.execute(
        f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{primary.host}', SOURCE_PORT = {primary.port}, SOURCE_USER = 'root', "
        "SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1",
        "START REPLICA",
    )
    primary.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    reading = LogReading(
        primary,
        settings={"include_tables": (r"d\..*",)},
        database={"failover_servers": (f"{replica.host}:{replica.port}",), "connect_timeout_s": 2},
    )
    await reading.begin()

    for row_id, kill in enumerate(("KILL", "KILL QUERY"), 1):

        def end_dump(events: list[Event], kill: str = kill) -> bool:
            dumps = primary.execute("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'")
            for (thread,) in dumps if events else ():
                primary.execute(f"{kill} {thread}")
            return False

        primary.execute(f"INSERT INTO d.t VALUES ({row_id})")
        with pytest.raises(SourceUnavailable):
            await reading.read(end_dump)
    primary.execute("INSERT INTO d.t VALUES (3)")
    (executed,) = primary.execute("SELECT @@GLOBAL.gtid_executed")
    replica.execute(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed[0]}', 60)", "STOP REPLICA", "RESET REPLICA ALL")

    def stop_server(events: list[Event]) -> bool:
        if events:
            stop(primary.running, 60.0)
        return False

    with pytest.raises(SourceUnavailable):
        await reading.read(stop_server)
    replica.execute("INSERT INTO d.t VALUES (4)")
    after = await reading.read(lambda events: len(events) >= 1)

    assert ids(events_of(reading.entries)) == [1, 2, 3, 4]
    assert ids(after) == [4]


async def test_heartbeats_move_the_position_while_nothing_captured_changes(
    reading: LogReading, mysql_server: MysqlServer, unique_name: Callable[[str], str]
) -> None:
    """After changes of other tables at once, and at rest every heartbeat_interval_s."""
    reading.settings["heartbeat_interval_s"] = 0.2
    reading.database["heartbeat_s"] = 0.2
    await reading.begin()
    other = unique_name("other")
    mysql_server.execute(f"CREATE DATABASE {other}", f"CREATE TABLE {other}.t (id INT)", f"DROP DATABASE {other}")
    (executed,) = mysql_server.execute("SELECT @@GLOBAL.gtid_executed")
    given: list[int] = []

    def has_rested(_: object) -> bool:
        position = decode_position(reading.checkpoint.position) if reading.checkpoint else None
        if position is not None and GtidSet.parse(position.gtid_set) == GtidSet.parse(executed[0]):
            given.append(len(reading.batches))
        return len(given) >= 3

    events = await reading.read(has_rested)

    assert events == []
    assert all(batch.payload == b"" for batch in reading.batches[given[0] - 1 :])


async def test_two_readers_under_one_id_are_told_so(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """MySQL ends the older dump by the error that it has for a purged log too."""
    await reading.begin()
    other = LogReading(mysql_server, settings=dict(reading.settings), replica_server_id=reading.replica_server_id)
    await other.begin()
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (1, 'x')")
    begun: list[asyncio.Task[list[Event]]] = []

    def begin_other(events: list[Event]) -> bool:
        if events and not begun:
            begun.append(asyncio.create_task(other.read(lambda events: len(events) >= 2)))
        return False

    with pytest.raises(SourceMisconfigured, match=r"under the same server id .*replica_server_id"):
        await reading.read(begin_other)
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (2, 'x')")

    assert ids(await begun[0]) == [1, 2]


def test_a_log_that_is_purged_after_the_pre_flight_is_named_with_what_is_missing(start_mysql: StartMysql) -> None:
    """By MySQL itself."""
    server = start_mysql()
    server.execute("CREATE DATABASE d", "FLUSH BINARY LOGS", "CREATE DATABASE e")
    ((file, *_),) = server.execute("SHOW BINARY LOG STATUS")
    server.execute(f"PURGE BINARY LOGS TO '{file}'")
    ((uuid,),) = server.execute("SELECT @@GLOBAL.server_uuid")
    connection = connect(DatabaseSettings(host=server.host, port=server.port, user="root"))
    try:
        packets, _ = start_dump(
            connection,
            BinlogPosition(gtid_set="", file=file, pos=4),
            also_done=GtidSet(),
            replica_server_id=7,
            heartbeat_s=1.0,
            spill_dir=Path(tempfile.gettempdir()),
        ).receive()
        assert isinstance(packets, Packets)

        with pytest.raises(PositionPurged, match=rf"missing transactions are '{uuid}:1'.*re-snapshot"):
            for place, end in packets:
                raise_error_packet(packets.data, place, end)
    finally:
        connection.close()


async def test_a_silent_source_is_given_up_and_read_again(start_mysql: StartMysql) -> None:
    """A connection over which nothing comes, not even a heartbeat, is no connection."""
    server = start_mysql()
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    reading = LogReading(server, settings={"include_tables": (r"d\..*",)}, database={"heartbeat_s": 0.2})
    await reading.begin()
    server.execute("INSERT INTO d.t VALUES (1)")

    def freeze(events: list[Event]) -> bool:
        if events:
            os.kill(server.running.pid, signal.SIGSTOP)
        return False

    try:
        with pytest.raises(SourceUnavailable, match="not even a heartbeat"):
            await reading.read(freeze)
    finally:
        os.kill(server.running.pid, signal.SIGCONT)
    server.execute("INSERT INTO d.t VALUES (2)")

    assert ids(await reading.read(lambda events: len(events) >= 1)) == [2]


UNSEEN = (
    ("price", "ALTER TABLE {d}.price MODIFY v DECIMAL(6,1)", "v from decimal(6,3) to decimal(6,1)"),
    ("at", "ALTER TABLE {d}.at MODIFY v DATETIME", "v from datetime(6) to datetime"),
    ("born", "ALTER TABLE {d}.born ADD at TIMESTAMP DEFAULT CURRENT_TIMESTAMP", "ADD COLUMN at"),
    ("word", "ALTER TABLE {d}.word CONVERT TO CHARACTER SET latin1", "v from utf8mb4 to latin1"),
    ("part", "ALTER TABLE {d}.part DROP PARTITION p0", "DROP PARTITION"),
    ("swapped", "RENAME TABLE {d}.swapped TO {d}.aside_2, {d}.aside TO {d}.swapped", "RENAME of {d}.aside"),
    ("ghost", "RENAME TABLE {d}.ghost TO {d}._ghost_del, {d}._ghost_gho TO {d}.ghost", "v from int to tinyint"),
    ("wide", "ALTER TABLE {d}.wide MODIFY v BIGINT, ADD n INT NOT NULL DEFAULT (1 + 1)", ""),
)


def make_unseen_tables(mysql_server: MysqlServer, database: str) -> None:
    mysql_server.execute(
        f"USE {database}",
        "SET SESSION sql_mode = ''",
        "CREATE TABLE price (id INT PRIMARY KEY, v DECIMAL(6,3))",
        "CREATE TABLE at (id INT PRIMARY KEY, v DATETIME(6))",
        "CREATE TABLE born (id INT PRIMARY KEY)",
        "CREATE TABLE word (id INT PRIMARY KEY, v VARCHAR(9)) CHARACTER SET utf8mb4",
        "CREATE TABLE part (id INT PRIMARY KEY) PARTITION BY RANGE (id) "
        "(PARTITION p0 VALUES LESS THAN (2), PARTITION p1 VALUES LESS THAN MAXVALUE)",
        "CREATE TABLE swapped (id INT PRIMARY KEY)",
        "CREATE TABLE aside (id INT PRIMARY KEY)",
        "CREATE TABLE ghost (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE _ghost_gho (id INT PRIMARY KEY, v TINYINT)",
        "CREATE TABLE wide (id INT PRIMARY KEY, v INT)",
        "INSERT INTO price VALUES (1, 1.234)",
        "INSERT INTO part VALUES (1), (2)",
        "INSERT INTO swapped VALUES (1)",
        "INSERT INTO aside VALUES (7)",
    )


async def test_what_rows_become_without_the_log_is_told_until_they_are_read_again(
    mysql_server: MysqlServer, database: str
) -> None:
    """Narrower columns, computed columns, partitions, and a table renamed into the capture. The checkpoint has them by table,
    until the table is emptied or dropped. A change that widens is not reported."""
    make_unseen_tables(mysql_server, database)
    settings = {"include_tables": (rf"{database}\..*",), "exclude_tables": (rf"{database}\.aside.*",)}
    reading = LogReading(mysql_server, settings=settings)
    await reading.begin()
    mysql_server.execute("SET SESSION sql_mode = ''", *(statement.format(d=database) for _, statement, _ in UNSEEN))
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (1, 'x')")

    await reading.read(lambda events: len(events) >= 1)
    assert reading.checkpoint is not None
    unseen = decode_position(reading.checkpoint.position).unseen
    told = {fault.scope.table: fault.happened for fault in lasting_faults() if fault.id == "rows_changed_unseen"}

    wanted = {f"{database}.{table}": clause.format(d=database) for table, _, clause in UNSEEN if clause}
    assert set(unseen) == set(wanted)
    assert all(clause in unseen[table] and "binlog." in unseen[table] for table, clause in wanted.items())
    assert {table: told.get(table) for table in wanted} == dict(unseen)
    mysql_server.execute(f"TRUNCATE TABLE {database}.price", f"DROP TABLE {database}.at")
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (2, 'x')")
    await reading.read(lambda events: len(events) >= 1)
    assert set(decode_position(reading.checkpoint.position).unseen) == set(wanted) - {
        f"{database}.price",
        f"{database}.at",
    }


async def test_an_unseen_change_resyncs_or_halts_where_the_policy_says_so(
    mysql_server: MysqlServer, database: str
) -> None:
    """With resync the tenants' tables are emptied and read again; with halt nothing of the statement is done."""
    make_unseen_tables(mysql_server, database)
    resync = UnseenPolicy(tables=rf"{database}\.(price|part)", action=UnseenAction.RESYNC)
    halt = UnseenPolicy(tables=rf"{database}\.word", action=UnseenAction.HALT)
    settings = {"include_tables": (rf"{database}\..*",), "on_unseen_change": (resync, halt)}
    reading = LogReading(mysql_server, settings=settings)
    await reading.begin()
    mysql_server.execute(
        f"ALTER TABLE {database}.price MODIFY v DECIMAL(6,1)", f"ALTER TABLE {database}.part DROP PARTITION p0"
    )

    events = await reading.read(lambda events: sum(event.op == "r" for event in events) >= 2)
    rows = [(event.table.partition(".")[2], event.op, event.after and event.after["id"]) for event in events]
    assert sorted(rows) == [("part", "r", 2), ("part", "t", None), ("price", "r", 1), ("price", "t", None)]
    await reading.read(lambda _: not decode_position(reading.checkpoint.position).unseen)  # type: ignore[union-attr]

    mysql_server.execute("SET SESSION sql_mode = ''", f"ALTER TABLE {database}.word CONVERT TO CHARACTER SET latin1")
    with pytest.raises(PipelineHalted, match=r"word: v from utf8mb4 to latin1 \(at .*on_unseen_change"):
        await reading.read(lambda _: False)


async def test_a_statement_quarantines_what_it_reaches_by_others(
    reading: LogReading, mysql_server: MysqlServer, database: str
) -> None:
    """A view, a trigger of a table that nobody captures, and stored functions in SELECT and DO, over several steps."""
    tables = ("by_view", "by_trigger", "by_select", "by_do", "untouched")
    reading.settings["exclude_tables"] = (rf"{database}\.hidden",)
    mysql_server.execute(
        f"USE {database}",
        "SET GLOBAL log_bin_trust_function_creators = ON",
        *(f"CREATE TABLE {table} (id INT)" for table in (*tables, "hidden")),
        "INSERT INTO by_view VALUES (1)",
        "CREATE VIEW v AS SELECT id FROM by_view",
        "CREATE VIEW v2 AS SELECT id FROM v",
        "CREATE TRIGGER tr AFTER INSERT ON hidden FOR EACH ROW INSERT INTO by_trigger VALUES (NEW.id)",
        "CREATE FUNCTION f() RETURNS INT BEGIN INSERT INTO by_select VALUES (1); RETURN 1; END",
        "CREATE FUNCTION g() RETURNS INT BEGIN INSERT INTO by_do VALUES (1); RETURN 1; END",
    )
    await reading.begin()
    mysql_server.execute(
        f"USE {database}",
        "SET SESSION binlog_format = STATEMENT",
        "-- a comment\nUPDATE v2 SET id = 2",
        "INSERT INTO hidden VALUES (3)",
        "SELECT f()",
        "DO g()",
        "SET GLOBAL log_bin_trust_function_creators = OFF",
    )
    mysql_server.execute(f"INSERT INTO {database}.untouched VALUES (1)")

    await reading.read(lambda events: len(events) >= 1)

    assert reading.checkpoint is not None
    quarantined = decode_position(reading.checkpoint.position).quarantined
    assert set(quarantined) == {f"{database}.{table}" for table in tables if table != "untouched"}
