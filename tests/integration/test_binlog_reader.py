"""The binlog reader on a real MySQL and a real Kafka."""

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import MysqlServer
from tests.integration.reader_pipeline import PublishedRow, ReaderPipeline

ALL_TYPES = """
CREATE TABLE types (
  id INT NOT NULL PRIMARY KEY,
  ti TINYINT, tiu TINYINT UNSIGNED, flag BOOLEAN, si SMALLINT, siu SMALLINT UNSIGNED, mi MEDIUMINT, miu MEDIUMINT UNSIGNED,
  i INT, iu INT UNSIGNED, bi BIGINT, biu BIGINT UNSIGNED, small_dec DECIMAL(5,0), amount DECIMAL(12,2), big_dec DECIMAL(65,30),
  f FLOAT, d DOUBLE, b1 BIT(1), b10 BIT(10), ch CHAR(10), vc VARCHAR(255), wide VARCHAR(2000),
  latin VARCHAR(50) CHARACTER SET latin1,
  gbk VARCHAR(50) CHARACTER SET gbk, bin4 BINARY(4), vb VARBINARY(16), bl BLOB, tx TEXT, mtx MEDIUMTEXT,
  da DATE, tm TIME, tm6 TIME(6), dt DATETIME, dt3 DATETIME(3), dt6 DATETIME(6), ts TIMESTAMP NULL, ts3 TIMESTAMP(3) NULL,
  ts6 TIMESTAMP(6) NULL, y YEAR, en ENUM('a','with,comma','ź'), st SET('x','y','z'), js JSON
)
"""
VALUES = [
    "NULL," * 40 + "NULL",
    "-128,0,0,-32768,0,-8388608,0,-2147483648,0,-9223372036854775808,0,-99999,-9999999999.99,"
    "-99999999999999999999999999999999999.999999999999999999999999999999,-3.4028235e38,-1.7976931348623157e308,b'0',b'0',"
    "'','','','','',x'00000000',x'','','','','1000-01-01','-838:59:59','-838:59:58.999999','1000-01-01 00:00:00',"
    "'1000-01-01 00:00:00.001','1000-01-01 00:00:00.000001','1970-01-01 00:00:01','1970-01-01 00:00:01.001',"
    "'1970-01-01 00:00:01.000001',1901,'a','','null'",
    "127,255,1,32767,65535,8388607,16777215,2147483647,4294967295,9223372036854775807,18446744073709551615,99999,"
    "9999999999.99,99999999999999999999999999999999999.999999999999999999999999999999,3.4028235e38,1.7976931348623157e308,"
    "b'1',b'1111111111','ąę😀','zażółć \"q\" \\\\ \\n\\t',REPEAT('ż',700),'café ÿ','漢字',x'DEADBEEF',x'00FF00FF',"
    "REPEAT(x'AB',300),'😀',REPEAT('m',70000),'9999-12-31','838:59:59','838:59:58.999999','9999-12-31 23:59:59',"
    "'9999-12-31 23:59:59.999','9999-12-31 23:59:59.999999','2038-01-19 03:14:07','2038-01-19 03:14:07.499',"
    "'2038-01-19 03:14:07.499999',2155,'ź','x,y,z',"
    '\'{"s":"a, b: c","n":-1.5e10,"a":[1,null,true,{"k":[]}],"e":{},"d":0.1}\'',
    "1,1,1,1,1,1,1,1,1,1,1,0,-0.01,0.000000000000000000000000000001,1.1,0.1,b'1',b'1',' lead','x\\0y','%s %d','é','a',x'0100',"
    "x'00',x'00',' ','','2024-02-29','00:00:00','-00:00:00.000001','1969-12-31 23:59:59','1969-12-31 23:59:59.999',"
    "'1969-12-31 23:59:59.999999','2001-09-09 01:46:40','2001-09-09 01:46:40.120','2001-09-09 01:46:40.120000',1970,"
    "'with,comma','y','[\"str\", 1e20, 18446744073709551615, 1.0, 12.50]'",
    "1,1,1,1,1,1,1,1,1,1,9223372036854775808,0,0,0,16777217,5e-324,b'1',b'10','a','a','a','a','a',x'01020304',x'',x'','','',"
    "'0000-00-00','12:34:56','12:34:56.789012','0000-00-00','0000-00-00','0000-00-00','0000-00-00','0000-00-00','0000-00-00',0,"
    "'bogus','','{}'",
]


def test_a_stored_value_has_one_form_in_snapshot_and_log(
    start_reader: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """The same values read by SELECT and from the log end in the same JSON, for every type."""
    lenient = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
    mysql_server.execute(ALL_TYPES, database=database)
    for number, values in enumerate(VALUES):
        mysql_server.execute(lenient, f"INSERT INTO types VALUES ({number}, {values})", database=database)
    pipeline = start_reader()

    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: len(rows) >= len(VALUES))
    for number, values in enumerate(VALUES):
        mysql_server.execute(lenient, f"INSERT INTO types VALUES ({100 + number}, {values})", database=database)
    rows = pipeline.wait_for_rows(lambda rows: len(rows) >= 2 * len(VALUES))

    copied = {row.value["after"].pop("id"): row.value["after"] for row in rows if row.is_snapshot}
    logged = {row.value["after"].pop("id") - 100: row.value["after"] for row in rows if not row.is_snapshot}
    for number in range(len(VALUES)):
        assert copied[number] == logged[number]
    assert copied[2]["js"] == '{"a":[1,null,true,{"k":[]}],"d":0.1,"e":{},"n":-15000000000.0,"s":"a, b: c"}'
    assert copied[4]["da"] is None


def test_the_first_and_last_rows_of_a_snapshot_are_marked(
    start_reader: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """Debezium's markers: first, first_in_data_collection, last_in_data_collection, last."""
    mysql_server.execute(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE TABLE b (id INT PRIMARY KEY)",
        "INSERT INTO a VALUES (1),(2),(3)",
        "INSERT INTO b VALUES (1),(2),(3)",
        database=database,
    )
    pipeline = start_reader(snapshot={"chunk_rows": 2})

    pipeline.reader.start()
    rows = pipeline.wait_for_rows(lambda rows: len(rows) >= 6)

    assert [row.value["source"]["snapshot"] for row in rows] == [
        "first", "true", "last_in_data_collection", "first_in_data_collection", "true", "last",
    ]  # fmt: skip
    assert [row.value["after"]["id"] for row in rows] == [1, 2, 3, 1, 2, 3]


def test_rows_follow_their_schema_through_ddl(
    start_reader: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """A new column is there from its ALTER on, renamed tables go on, dropped ones end, a truncate is an event."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)", database=database)
    pipeline = start_reader()
    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: len(rows) >= 1)

    mysql_server.execute(
        "INSERT INTO t VALUES (2, 2)",
        "ALTER TABLE t ADD COLUMN extra VARCHAR(10) DEFAULT 'x' AFTER id",
        "INSERT INTO t VALUES (3, 'y', 3)",
        "RENAME TABLE t TO u",
        "INSERT INTO u VALUES (4, 'z', 4)",
        "CREATE TABLE w AS SELECT id FROM u WHERE id > 3",
        "TRUNCATE TABLE u",
        "DROP TABLE u",
        "CREATE TABLE last_one (id INT PRIMARY KEY)",
        "INSERT INTO last_one VALUES (9)",
        database=database,
    )
    rows = pipeline.wait_for_rows(lambda rows: rows[-1].table.endswith("last_one"))

    seen = [(row.table.split(".")[1], row.op, row.value["after"]) for row in rows]
    assert seen == [
        ("t", "r", {"id": 1, "v": 1}),
        ("t", "c", {"id": 2, "v": 2}),
        ("t", "c", {"id": 3, "extra": "y", "v": 3}),
        ("u", "c", {"id": 4, "extra": "z", "v": 4}),
        ("w", "c", {"id": 4}),
        ("u", "t", None),
        ("last_one", "c", {"id": 9}),
    ]
    changes = [e.table_change for e in pipeline.entries() if e.WhichOneof("entry") == "table_change"]
    changes = [change for change in changes if change.schema_version or not change.is_snapshot]
    assert [(change.table, change.schema_version) for change in changes] == [
        ("t", 1), ("t", 2), ("t", 0), ("u", 1), ("w", 1), ("u", 0), ("last_one", 1),
    ]  # fmt: skip


def test_a_table_that_is_made_again_is_truncated_and_one_that_is_dropped_is_not(
    start_reader: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """The log names no row that went with it; a mirror would have rows of both."""
    mysql_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE TABLE gone (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO gone VALUES (1)",
        database=database,
    )
    pipeline = start_reader()
    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: len(rows) >= 2)

    mysql_server.execute(
        "DROP TABLE gone",
        "DROP TABLE t",
        "CREATE TABLE t (id INT PRIMARY KEY, note VARCHAR(9))",
        "INSERT INTO t VALUES (2, 'second')",
        "RENAME TABLE t TO aside",
        "CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)",
        "CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (3)",
        database=database,
    )
    rows = pipeline.wait_for_rows(lambda rows: rows[-1].op == "c" and rows[-1].value["after"] == {"id": 3})

    assert [(row.table.split(".")[1], row.op, row.value["after"]) for row in rows if row.op != "r"] == [
        ("t", "t", None),
        ("t", "c", {"id": 2, "note": "second"}),
        ("t", "t", None),
        ("t", "c", {"id": 3}),
    ]
    orders = [row.order for row in rows if row.op != "r"]
    assert orders == sorted(orders)


def test_rows_that_go_with_a_partition_are_said_aloud(
    start_reader: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """The log has the statement alone, so no event can name them: a warning and a count name every captured table."""
    partitions = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20), " \
        "PARTITION p2 VALUES LESS THAN (30), PARTITION p3 VALUES LESS THAN MAXVALUE)"  # fmt: skip
    mysql_server.execute(
        f"CREATE TABLE t (id INT PRIMARY KEY) {partitions}",
        "CREATE TABLE spare (id INT PRIMARY KEY)",
        "CREATE TABLE aside (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2",
        "INSERT INTO t VALUES (1), (11), (21), (31)",
        "INSERT INTO spare VALUES (22)",
        database=database,
    )
    pipeline = start_reader(exclude_tables=[rf"{database}\.aside"])
    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: len(rows) >= 5)

    mysql_server.execute(
        "ALTER TABLE t TRUNCATE PARTITION p0",
        "ALTER TABLE t DROP PARTITION p1",
        "ALTER TABLE t EXCHANGE PARTITION p2 WITH TABLE spare",
        "ALTER TABLE t REORGANIZE PARTITION p3 INTO (PARTITION p4 VALUES LESS THAN MAXVALUE)",
        "ALTER TABLE aside TRUNCATE PARTITION ALL",
        "INSERT INTO t VALUES (99)",
        database=database,
    )
    rows = pipeline.wait_for_rows(lambda rows: rows[-1].value["after"] == {"id": 99})

    assert mysql_server.execute("SELECT id FROM t ORDER BY id", database=database) == ((22,), (31,), (99,))
    assert [row.value["after"]["id"] for row in rows if row.op != "r"] == [99]
    lines = map(json.loads, pipeline.reader.log_text.splitlines())
    warned = [line for line in lines if line["event"] == "rows_changed_unseen"]
    assert [(line["table"], line["clause"]) for line in warned] == [
        (f"{database}.t", "TRUNCATE PARTITION"),
        (f"{database}.t", "DROP PARTITION"),
        (f"{database}.t", "EXCHANGE PARTITION"),
        (f"{database}.spare", "EXCHANGE PARTITION"),
    ]
    assert all("resync" in line["mend"] for line in warned)
    _, metrics_text = pipeline.reader.get("/metrics")
    assert re.search(r"^headwater_reader_unseen_row_changes_total\{.*\} 4\.0$", metrics_text, re.M)


def test_orders_grow_and_no_transaction_is_cut_by_a_checkpoint(
    start_reader: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """Every event's order is above the one before it, over a transaction of several tables and 10,000 rows."""
    mysql_server.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)", "CREATE TABLE b (id INT PRIMARY KEY, v INT)", database=database
    )
    pipeline = start_reader(transaction_metadata=True)
    pipeline.reader.start()
    pipeline.wait_for_log()

    with mysql_server.connect(database, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO b VALUES (1, 1)")
        cursor.execute("SET SESSION cte_max_recursion_depth = 20000")
        cursor.execute(
            "INSERT INTO a WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 10000) SELECT i, i FROM n"
        )
        cursor.execute("UPDATE a SET id = 20001 WHERE id = 1")
        cursor.execute("DELETE FROM b")
        connection.commit()
    rows = pipeline.wait_for_rows(lambda rows: len(rows) >= 10_004)

    assert len(rows) == 10_004
    orders = [row.order for row in rows]
    assert orders == sorted(set(orders))
    assert [row.value["transaction"]["total_order"] for row in rows] == list(range(1, 10_005))
    assert [(row.op, row.key) for row in rows[-3:]] == [("D", {"id": 1}), ("C", {"id": 20001}), ("d", {"id": 1})]
    ends = [
        e.transaction_boundary
        for e in pipeline.entries()
        if e.WhichOneof("entry") == "transaction_boundary" and e.transaction_boundary.table_event_counts
    ]
    assert [(count.table, count.events) for count in ends[-1].table_event_counts] == [("b", 2), ("a", 10_002)]


@pytest.mark.promise("killed reader")
@pytest.mark.parametrize(
    "failpoint",
    [
        "reader_after_produce_before_commit=kill@3",
        "reader_after_commit=kill@3",
        "reader_between_snapshot_chunks=kill@2",
        "reader_after_schema_recorded_before_publish=kill@3",
    ],
)
def test_a_reader_killed_anywhere_loses_and_repeats_nothing(
    failpoint: str, start_reader: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """Killed in the snapshot or the log, the reader goes on where its last visible event ended."""
    mysql_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE other (id INT PRIMARY KEY)", database=database
    )
    mysql_server.execute(
        "INSERT INTO t VALUES " + ",".join(f"({number}, 0)" for number in range(1, 51)), database=database
    )
    pipeline = start_reader(snapshot={"chunk_rows": 10})
    pipeline.reader.start(failpoints=failpoint, waits=False)
    for number in itertools.count(51):
        mysql_server.execute(
            f"INSERT INTO t (id, v) VALUES ({number}, 0)",
            f"UPDATE t SET v = v + 1 WHERE id = {number - 50}",
            database=database,
        )
        if number in (60, 80, 100):
            mysql_server.execute(
                f"ALTER TABLE t ADD COLUMN extra_{number} INT",
                f"ALTER TABLE other ADD COLUMN e_{number} INT",
                database=database,
            )
        if pipeline.reader.has_ended(within_s=0.1):
            break
        assert number < 6_000, f"the reader was never killed:\n{pipeline.reader.log_text[-2000:]}"

    pipeline.reader.start()
    mysql_server.execute("INSERT INTO t (id, v) VALUES (9999, 9)", database=database)
    true_rows = dict(mysql_server.execute("SELECT id, v FROM t", database=database))
    rows = pipeline.wait_for_rows(lambda rows: replayed(rows) == true_rows)

    assert_exactly_once(rows)


def test_a_reader_whose_publishing_fails_begins_again_from_its_checkpoint(
    start_reader: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """In the same process: committed events are not repeated, others are read again."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", database=database)
    mysql_server.execute(
        "INSERT INTO t VALUES " + ",".join(f"({number}, 0)" for number in range(1, 51)), database=database
    )
    pipeline = start_reader(snapshot={"chunk_rows": 10})
    pipeline.reader.start(failpoints="reader_after_commit=raise@1,reader_after_produce_before_commit=raise@3")
    for number in range(51, 61):
        mysql_server.execute(f"INSERT INTO t (id, v) VALUES ({number}, 0)", database=database)

    true_rows = dict(mysql_server.execute("SELECT id, v FROM t", database=database))
    rows = pipeline.wait_for_rows(lambda rows: replayed(rows) == true_rows)

    assert_exactly_once(rows)


def replayed(rows: list[PublishedRow]) -> dict[int, int]:
    """The table as one who applies the events in order has it; every event must fit the rows that are there."""
    table: dict[int, int] = {}
    for row in rows:
        after = row.value["after"]
        if after is None:
            table.pop(row.value["before"]["id"], None)
        else:
            table[after["id"]] = after["v"]
    return table


def assert_exactly_once(rows: list[PublishedRow]) -> None:
    """No change comes twice, orders never fall along a row's history, and no row is copied twice at one order."""
    changes = [row.order for row in rows if not row.is_snapshot]
    assert changes == sorted(set(changes))
    copied = [(row.table, tuple((row.key or {}).values())) for row in rows if row.is_snapshot]
    assert len(copied) == len(set(copied))
    newest: dict[Any, tuple[int, int]] = {}
    for row in rows:
        history = (row.table, tuple((row.key or {}).values()))
        # A copied row may repeat the values that the last transaction before its read view gave it.
        assert newest.get(history, (0, 0)) <= row.order[:2]
        newest[history] = row.order[:2]
