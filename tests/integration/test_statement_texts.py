"""Statements as anybody may write them, in a real MySQL's log: each is seen, and read as the server read it.

The oracle is the server. After every statement a row is inserted into each table, and its event must have the row as the server
has it. At the end the history must have the tables that SHOW CREATE TABLE shows.
"""

import random
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from pymysql.connections import Connection

from libs.mysql.ddl import show_create_to_schema
from libs.types.table import TableId
from services.binlog_reader.position import decode_position
from tests.conftest import MysqlServer
from tests.integration.log_reading import LogReading
from tests.integration.test_mysql_ddl import as_read_anew, run

GAPS = (
    " ",
    " ",
    "\n",
    "\t",
    " \v\f\r",
    "/**/",
    "/* ALTER TABLE x */",
    " -- it's\n",
    "--\n",
    "--\x01\n",
    "#'\n",
    "/*!*/",
    "/*! */",
)
GAPS_OF_OTHERS = (
    "/*M! ADD x INT */",
    "/*M!100100 ADD x INT*/",
    "/*+ hint */",
    "/*/ * /*/",
    '/*! /* " */ */',
    "/*!99999 x /* ' */ */",
)
MODES = ("", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "ANSI", "NO_BACKSLASH_ESCAPES,ANSI_QUOTES")
TABLES = (
    "t",
    "20151214",
    "1e",
    "0x1t",
    "$t",
    "żółw",
    "a b",
    "ta`ble",
    'q"t',
    "1a",
    "0b",
    "_t",
    "nb\u00a0sp",
    "table",
    "x",
)
COLUMNS = ("a", "B", "1e5x", "0x1t", "$c", "é", "c d", "select", "add", "n", "2nd", "_utf", "e\u3000e")
KINDS = ("add", "add", "add", "drop", "rename", "swap", "change", "default", "moved", "truncate", "create")
FOUND = (
    "--\nALTER TABLE {t} RENAME COLUMN a TO b, RENAME COLUMN b TO a",
    "/*!*/ ALTER TABLE {t} RENAME COLUMN a TO b, RENAME COLUMN b TO a",
    "/*! */ALTER TABLE {t} RENAME COLUMN a TO b, RENAME COLUMN b TO a",
    "/*! /* x */ ALTER */TABLE {t} RENAME COLUMN a TO b, RENAME COLUMN b TO a",
    "ALTER TABLE {d}.20151214 RENAME COLUMN a TO b, RENAME COLUMN b TO a",
    "ALTER TABLE {d}.1e5x RENAME COLUMN a TO b, RENAME COLUMN b TO a",
    "ALTER TABLE {d}.table RENAME COLUMN a TO b, RENAME COLUMN b TO a",
    "ALTER TABLE {d} . t RENAME COLUMN a TO b, RENAME COLUMN b TO a",
    "ALTER TABLE {t} ADD c VARCHAR(/*!506019*/)",
    "ALTER TABLE {t} ADD d FLOAT(9,1) DEFAULT 1.5COMMENT 'x' -- START TRANSACTION",
    "ALTER TABLE {t} ADD e DOUBLE DEFAULT 1e1NOT NULL",
    "ALTER TABLE {t} ADD f INT /*!99999 , ADD g INT /* x */ */, ADD g INT",
    "ALTER TABLE {t} ADD `x\u00a0` INT, ADD y\u00a0 INT",
    "ALTER TABLE {t} ADD h INT\0",
    "CREATE TABLE {d}.9a (a INT PRIMARY KEY, b INT)",
    "--\nCREATE TABLE {d}.0x9z (a INT PRIMARY KEY, b INT)",
    "--\nRENAME TABLE {d}.9a TO {d}.8a",
    "CREATE PROCEDURE {d}.p() START TRANSACTION",
    "CREATE TABLE {d}.made AS SELECT 1 AS a, 2 AS b",
    "# start transaction\nCREATE TABLE {d}.after_that (a INT PRIMARY KEY, b INT) -- start transaction",
)


class Texts:
    """Random texts of random statements about one database's tables."""

    def __init__(self, seed: int, database: str) -> None:
        self._random = random.Random(seed)
        self._database = database
        self.mode = ""

    def statement(self, tables: dict[str, list[str]]) -> list[str]:
        """Its tokens; a name is one that ``name`` wrote."""
        one = self._random.choice
        table = one(sorted(tables))
        columns = tables[table]
        free = [name for name in COLUMNS if name not in columns]
        new, old, other = self.name(one(free)), self.name(one(columns)), self.name(one(columns))
        place = one(([], [], ["FIRST"], ["AFTER", other]))
        head = ["ALTER", "TABLE", *self.table(table)]
        kind = (
            "drop"
            if len(columns) > 6
            else one((*["add"] * 3, "drop", "rename", "swap", "change", "default", "moved", "truncate", "create"))
        )
        if kind == "moved" or (kind == "create" and len(tables) > 5):
            name = one([name for name in TABLES if name not in tables])
            return one(
                (
                    ["RENAME", "TABLE", *self.table(table), "TO", *self.table(name)],
                    [*head, "RENAME", "AS", *self.table(name)],
                )
            )
        if kind == "create":
            name = one([name for name in TABLES if name not in tables])
            return ["CREATE", "TABLE", *self.table(name), "(", "a", "INT", ",", new, "VARCHAR", "(", "9", ")", ")"]
        if kind == "truncate":
            return ["TRUNCATE", *one(([], ["TABLE"])), *self.table(table)]
        if kind == "default":
            return [*head, "ALTER", old, "SET", "DEFAULT", one(("1.5", ".5", "1e1", "0x31", "'7'", "-3", "+4"))]
        if kind == "drop" and len(columns) > 1:
            return [*head, "DROP", *one(([], ["COLUMN"])), old]
        if kind == "rename":
            return [*head, "RENAME", "COLUMN", old, "TO", new]
        if kind == "swap" and old != other:
            return [*head, "RENAME", "COLUMN", old, "TO", other, ",", "RENAME", "COLUMN", other, "TO", old]
        if kind == "change":
            return [*head, "CHANGE", old, new, "VARCHAR", "(", "20", ")", "COMMENT", self.text(), *place]
        return [*head, "ADD", new, one(("INT", "DOUBLE")), "COMMENT", self.text(), *place]

    def table(self, name: str) -> list[str]:
        whole = f"{self._database}.{name}"
        if name.isascii() and name.replace("_", "").replace("$", "").isalnum() and self._random.random() < 0.6:
            return [whole]
        return [*self._random.choice(([], [self.name(self._database), "."])), self.name(name)]

    def name(self, name: str) -> str:
        is_bare = (
            all(c.isalnum() or c in "_$\u00a0\u3000" for c in name) and not name.isdigit() and name not in _RESERVED
        )
        is_bare = is_bare and name not in ("1e5x",)  # bare it is two tokens, but for right after a point
        forms = [f"`{name.replace('`', '``')}`"]
        forms += [name] * is_bare
        if "ANSI" in self.mode:
            doubled = name.replace('"', '""')
            forms.append(f'"{doubled}"')
        return self._random.choice(forms)

    def text(self) -> str:
        quotes = ["'"] if "ANSI" in self.mode else ["'", '"']
        ends = ("\\", "a\\") if "NO_BACKSLASH" in self.mode else ("\\'", '\\"', "\\\\", "\\0")
        quote = self._random.choice(quotes)
        return quote + self._random.choice(("", "x", quote * 2, "/*", "--\n", *ends)) + quote

    def written(self, tokens: list[str]) -> str:
        """The tokens with gaps, some within ``/*! … */``."""
        parts: list[str] = [self._gap() if self._random.random() < 0.4 else ""]
        closes = 0
        for nth, token in enumerate(tokens):
            if closes == 0 and self._random.random() < 0.08:
                parts.append(self._random.choice(("/*!", "/*! ", "/*!50100 ", "/*!080000 ")))
                closes = nth + self._random.randrange(1, 4)
            parts.append(token)
            if closes and nth >= closes:
                parts.append("*/")
                closes = 0
            parts.append(self._gap() if not closes else self._random.choice((" ", "\n", " /* it's */ ")))
        return "".join([*parts, "*/" if closes else "", self._random.choice(("", ";", " -- start transaction"))])

    def _gap(self) -> str:
        gaps = GAPS if self._random.random() < 0.9 else GAPS_OF_OTHERS
        return "".join(self._random.choice(gaps) for _ in range(self._random.choice((1, 1, 1, 2))))


_RESERVED = ("select", "add", "table")


@pytest.fixture
def connection(mysql_server: MysqlServer, database: str) -> Iterator["Connection[Any]"]:
    with mysql_server.connect(database, charset="utf8mb4") as connection:
        yield connection


@pytest.fixture
def reading(mysql_server: MysqlServer, database: str) -> LogReading:
    return LogReading(mysql_server, settings={"include_tables": (rf"{database}\..*",)})


def tables_of(connection: "Connection[Any]", database: str) -> dict[str, list[str]]:
    rows = run(
        connection,
        "SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS "
        f"WHERE TABLE_SCHEMA = '{database}' ORDER BY TABLE_NAME, ORDINAL_POSITION",
    )
    tables: dict[str, list[str]] = {}
    for table, column in rows:
        tables.setdefault(table, []).append(column)
    return tables


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def insert_into_each(connection: "Connection[Any]", database: str, nth: int) -> dict[str, dict[str, Any]]:
    """A row into every table, each value another one; the rows by their table."""
    rows: dict[str, dict[str, Any]] = {}
    for table, columns in tables_of(connection, database).items():
        values = {column: 1000 * nth + place for place, column in enumerate(columns)}
        names = ", ".join(map(quoted, values))
        run(
            connection,
            f"INSERT INTO {quoted(database)}.{quoted(table)} ({names}) VALUES ({', '.join(map(str, values.values()))})",
        )
        rows[table] = values
    return rows


async def followed(
    reading: LogReading, connection: "Connection[Any]", database: str, rows: list[tuple[str, dict[str, Any]]]
) -> None:
    """The log gives ``rows`` as the server had them, and the tables as it shows them."""
    ((gtids,),) = run(connection, "SELECT @@GLOBAL.gtid_executed")
    run(connection, f"CREATE TABLE {quoted(database)}.the_end (a INT)")
    run(connection, f"INSERT INTO {quoted(database)}.the_end VALUES (1)")

    events = await reading.read(lambda events: any(event.table.endswith(".the_end") for event in events))
    inserted = [event for event in events if event.op == "c" and not event.table.endswith(".the_end")]

    assert len(inserted) == len(rows)
    for event, (statement, row) in zip(inserted, rows, strict=True):
        shown = {name: int(float(value)) for name, value in event.after.items() if value is not None}
        assert shown == row, statement
    known = {schema.table_id.table: schema for schema in await reading.history.list_tables("src")}
    assert set(known) == set(tables_of(connection, database))
    for table, schema in known.items():
        ((_, definition),) = run(connection, f"SHOW CREATE TABLE {quoted(database)}.{quoted(table)}")
        expected = show_create_to_schema(TableId(database=database, table=table), definition)
        assert as_read_anew(schema).columns == expected.columns, table
    assert reading.checkpoint is not None
    position = decode_position(reading.checkpoint.position)
    ((has_all,),) = run(connection, f"SELECT GTID_SUBSET('{gtids}', '{position.gtid_set}')")
    assert has_all == 1, "the position has a hole"
    assert position.quarantined == {}


@pytest.mark.parametrize("seed", range(2))
async def test_statements_are_read_as_the_server_reads_them(
    reading: LogReading, connection: "Connection[Any]", database: str, seed: int
) -> None:
    """Comments, spaces, versions, quotes and SQL modes around statements of every kind."""
    texts = Texts(seed, database)
    run(connection, "CREATE TABLE t (a INT, B VARCHAR(9))")
    await reading.begin()
    rows: list[tuple[str, dict[str, Any]]] = []
    accepted = 0
    for nth in range(1, 61):
        texts.mode = texts._random.choice(MODES)
        run(connection, f"SET SESSION sql_mode = '{texts.mode}'")
        statement = texts.written(texts.statement(tables_of(connection, database)))
        try:
            run(connection, statement)
        except pymysql.MySQLError:
            continue
        accepted += 1
        run(connection, "SET SESSION sql_mode = ''")
        rows += [(statement, row) for row in insert_into_each(connection, database, nth).values()]
    assert accepted > 35

    await followed(reading, connection, database, rows)


async def test_texts_that_were_passed_over_once_are_seen(
    reading: LogReading, connection: "Connection[Any]", database: str
) -> None:
    """A bare comment line first, empty version comments, names that begin with a digit, and START TRANSACTION in a text."""
    for table in ("t", "`20151214`", "`1e5x`", "`table`"):
        run(connection, f"CREATE TABLE {table} (a INT, b INT)")
    await reading.begin()
    rows: list[tuple[str, dict[str, Any]]] = []
    run(connection, "SET SESSION sql_mode = ''")
    for nth, written in enumerate(FOUND, start=1):
        statement = written.format(t="t", d=database)
        run(connection, statement)
        rows += [(statement, row) for row in insert_into_each(connection, database, nth).values()]
        if written.startswith("CREATE TABLE {d}.made"):
            rows.insert(len(rows) - len(tables_of(connection, database)), (statement, {"a": 1, "b": 2}))

    await followed(reading, connection, database, rows)


SESSIONS: dict[str, tuple[str, ...]] = {
    "sql_generate_invisible_primary_key = ON": (
        "CREATE TABLE {d}.g (a INT)",
        "ALTER TABLE {d}.g ADD b INT FIRST",
        "ALTER TABLE {d}.g MODIFY a INT FIRST, ADD c INT FIRST",
        "CREATE TABLE {d}.g2 AS SELECT 1 AS a",
        "ALTER TABLE {d}.g2 ALTER my_row_id SET VISIBLE, ADD b INT",
        "ALTER TABLE {d}.g2 ADD c INT FIRST",
    ),
    "sql_generate_invisible_primary_key = OFF": ("ALTER TABLE {d}.g ADD d INT FIRST",),
    "explicit_defaults_for_timestamp = OFF, sql_mode = ''": (
        "CREATE TABLE {d}.ts (a TIMESTAMP, b TIMESTAMP, c TIMESTAMP NULL)",
        "CREATE TABLE {d}.ts2 (a INT, b TIMESTAMP NULL)",
        "ALTER TABLE {d}.ts2 ADD c TIMESTAMP, ADD e TIMESTAMP(3)",
    ),
    "sql_mode = ''": (
        "CREATE TABLE {d}.wide (a VARBINARY(70000))",
        "CREATE TABLE {d}.wider (a VARBINARY(16777216) NOT NULL)",
        "CREATE TABLE {d}.seen (a INT)",
        "CREATE VIEW {d}.v AS SELECT a FROM {d}.seen",
        "CREATE TABLE IF NOT EXISTS {d}.v (b INT)",
        "CREATE TABLE IF NOT EXISTS {d}.v LIKE {d}.seen",
        "CREATE TABLE IF NOT EXISTS {d}.flat (a INT) ENGINE = MyISAM",
        "ALTER TABLE {d}.seen RENAME AS {d}.once, RENAME AS {d}.twice",
        "CREATE TABLE {d}.counted (a SERIAL NULL)",
        "CREATE TABLE {d}.hex (a ENUM(x'E9', 0x42), c SET('z', b'1000001')) CHARACTER SET latin1",
        "ALTER TABLE {d}.hex ADD b CHAR(3) CHARACTER SET latin1 DEFAULT x'E9'",
        "CREATE TABLE {d}.hex2 (a ENUM(x'0041', 'é') CHARACTER SET ucs2, b CHAR(3) DEFAULT _latin1 x'E9')",
        "CREATE TABLE {d}.hex3 (a CHAR(4) DEFAULT _latin1'é', b CHAR(9) CHARACTER SET ucs2 DEFAULT x'42')",
    ),
    "collation_server = 'latin1_swedish_ci'": (
        "CREATE DATABASE {d}_2",
        "CREATE TABLE {d}_2.t (a CHAR(2), b ENUM('é'))",
    ),
    "collation_server = 'ucs2_bin'": ("CREATE SCHEMA {d}_3", "CREATE TABLE {d}_3.t (a TEXT(9))"),
    "character_set_client = latin1": (
        "CREATE TABLE {d}.`né` (`é` INT, e ENUM('é') DEFAULT 'é')",
        "ALTER TABLE {d}.`né` ADD `éé` VARBINARY(9) DEFAULT 'é'",
        "CREATE TABLE {d}.`dropped_é` (a INT)",
        "DROP TABLE {d}.`dropped_é`",
    ),
    "character_set_client = cp1251": ("CREATE TABLE {d}.`ключ` (`é` INT COMMENT 'é')",),
}  # the bytes are UTF-8 in every session: a client may say something else of them


async def test_settings_of_the_session_are_those_of_the_log(mysql_server: MysqlServer, database: str) -> None:
    """A session's settings change the meaning of a statement; the log has it beside the text."""
    reading = LogReading(mysql_server, settings={"include_tables": (rf"{database}.*\..*",)})
    with mysql_server.connect("mysql", charset="utf8mb4") as look:
        run(look, f"CREATE TABLE {database}.t (a INT)")
        await reading.begin()
        for setting, statements in SESSIONS.items():
            with mysql_server.connect(database, charset="utf8mb4") as connection:
                run(connection, f"SET SESSION {setting}")
                for statement in statements:
                    run(connection, statement.format(d=database))
        run(look, f"INSERT INTO {database}.t VALUES (1)")
        for each in ("", "_2"):
            run(look, f"CREATE TABLE IF NOT EXISTS {database}{each}.ended (a CHAR(1))")
            run(look, f"INSERT INTO {database}{each}.ended VALUES ('é')")

        events = await reading.read(lambda events: events[-1:] != [] and events[-1].table == f"{database}_2.ended")

        assert events[-1].after == {"a": "é"}
        known = {schema.table_id: schema for schema in await reading.history.list_tables("src")}
        shown = run(
            look,
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES "
            f"WHERE TABLE_SCHEMA LIKE '{database}%' AND TABLE_TYPE = 'BASE TABLE'",
        )
        assert set(known) == {TableId(database=schema, table=table) for schema, table in shown}
        for table_id, schema in known.items():
            ((_, definition),) = run(look, f"SHOW CREATE TABLE {quoted(table_id.database)}.{quoted(table_id.table)}")
            expected = show_create_to_schema(table_id, definition)
            assert as_read_anew(schema).columns == expected.columns, table_id
        for each in ("_2", "_3"):
            run(look, f"DROP DATABASE {database}{each}")
