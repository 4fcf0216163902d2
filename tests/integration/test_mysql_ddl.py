"""DDL against a real MySQL: the schema that is followed is the one that the server shows."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pymysql
import pytest
from pymysql.connections import Connection

from libs.mysql.ddl import apply_ddl, show_create_to_schema
from libs.mysql.gtid import GtidSet
from libs.types.table import TableId, TableSchema
from tests.conftest import MysqlServer
from tests.marks import gate

DATABASE = "ddl_followed"
NAMES = ("a", "B", "c d", "key", "é", "f", "g")
DEFAULTS = {
    "tinyint": ("1", "'-5'", "true"),
    "bool": ("true", "0"),
    "int(5) zerofill": ("7", "'12'"),
    "int": ("0", "-9", "' 12'", "1.5", "0x10", "null"),
    "bigint unsigned": ("18446744073709551615",),
    "decimal(8,3)": ("1.2", "'3'", "1e1"),
    "numeric(5) unsigned": ("2.7",),
    "float": ("1e3", "0.1", "16777217"),
    "double precision": ("123456789.125", "1e20", "1.5e-7"),
    "float(7,3)": ("1.1",),
    "bit(7)": ("b'101'", "1", "true"),
    "char(5)": ("'a'", "0x41", "_utf8mb4'b'", "5"),
    "varchar(30)": ("'it''s'", "'a\\\\b'", "-7", "n'q'", "'(x)'"),
    "varchar(8) character set latin1": ("'b'",),
    "char(4) collate latin1_bin": (),
    "varchar(6) charset binary": ("'b'",),
    "national varchar(7)": ("'z'",),
    "binary(3)": ("'a'", "x'00ff'"),
    "varbinary(9)": ("'abc'", "x'00ff'", "b'1000001'"),
    "date": ("'2020-1-2'", "'20200102'", "20200102"),
    "time": ("'8:00'", "80000", "'-12:30:00'", "'120:00:00'"),
    "datetime": ("now()", "current_timestamp", "'2020-1-2'", "20200102030405"),
    "datetime(6)": ("now(6)", "'2020-01-02 3:04:05.5'"),
    "timestamp": ("'2020-01-02 03:04:05'", "current_timestamp on update now()"),
    "year": ("99", "1999", "'5'"),
    "enum('a','b,c','d''e')": ("'b,c'",),
    "set('x','y') character set utf8mb4": ("'y,x'",),
    "json": ("(json_array())",),
}
TYPES = (
    *DEFAULTS, "tinyint(1)", "smallint unsigned", "mediumint", "int(11)", "dec", "fixed(6,2)", "float(30)", "real", "bit",
    "char", "varchar(20000)", "nchar(4)", "char(3) ascii", "varchar(5) binary", "tinytext", "text", "text(80)",
    "text(20000)", "mediumtext", "longtext", "long varchar", "tinyblob", "blob", "blob(90000)", "long varbinary",
    "time(3)", "timestamp(2)", "year(4)", "point", "geometrycollection", "vector(4)", "int1", "middleint", "char byte",
)  # fmt: skip


class Statements:
    """Random statements about one table, many of which the server refuses."""

    def __init__(self, seed: int, table: str) -> None:
        self._random = random.Random(seed)
        self._table = table

    def create(self) -> str:
        columns = self._random.sample(NAMES, self._random.randrange(1, 6))
        items = [f"{quoted(name)} {self._definition()}" for name in columns]
        items += [self._key(columns) for _ in range(self._random.randrange(4))]
        options = self._one(
            "", "charset latin1", "collate utf8mb4_bin comment='it''s'", "charset binary", "engine=innodb"
        )
        return f"create table {self._table} ({', '.join(items)}) {options}"

    def alter(self, columns: list[str]) -> str:
        actions = [self._action(columns) for _ in range(self._one(1, 1, 2, 3))]
        return f"alter table {self._table} {', '.join(actions)}"

    def _one(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _definition(self) -> str:
        column_type = self._one(*TYPES)
        if self._random.random() < 0.1:
            return f"{column_type} generated always as (1) {self._one('virtual', 'stored', 'virtual not null', '')}"
        attributes = [
            self._one("", "", "not null", "null"),
            self._one("", "", "comment 'it''s'", "unique", "invisible"),
        ]
        if self._random.random() < 0.5 and DEFAULTS.get(column_type):
            attributes.append(f"default {self._one(*DEFAULTS[column_type])}")
        self._random.shuffle(attributes)
        return f"{column_type} {' '.join(attributes)}"

    def _key(self, columns: list[str]) -> str:
        chosen = self._random.sample(columns, min(len(columns), self._one(1, 1, 2)))
        parts = ", ".join(quoted(name) + self._one("", "", "", "(2)", " desc") for name in chosen)
        kind = self._one(
            "primary key",
            "unique",
            "unique key",
            "unique index u1",
            "unique u2",
            "index",
            "key k1",
            "constraint c1 unique",
        )
        return f"{kind} ({parts})"

    def _action(self, columns: list[str]) -> str:
        old, new = quoted(self._one(*columns)), quoted(self._one(*NAMES))
        place = self._one("", "", "", "first", f"after {quoted(self._one(*NAMES))}")
        action: str = self._one(
            lambda: f"add {new} {self._definition()} {place}",
            lambda: f"add column ({new} {self._definition()}, {self._key(list(NAMES))})",
            lambda: f"drop column {old}",
            lambda: f"modify {old} {self._definition()} {place}",
            lambda: f"change {old} {new} {self._definition()} {place}",
            lambda: f"rename column {old} to {new}",
            lambda: f"add {self._key(columns)}",
            lambda: "drop primary key",
            lambda: f"drop index {self._one('u1', 'u2', 'k1', 'c1', old)}",
            lambda: f"rename index {self._one('u1', old)} to renamed",
            lambda: f"alter {old} set default {self._one('1', 'null', '(1)', '(1 + 1)')}",
            lambda: f"alter column {old} drop default",
            lambda: f"default charset {self._one('latin1', 'utf8mb4')}",
            lambda: f"order by {old}",
            lambda: "comment='x'",
        )()
        return action

    def convert(self) -> str:
        charset = self._one("utf8mb4", "latin1", "utf8mb3", "binary")
        return f"alter table {self._table} convert to character set {charset}"


def quoted(name: str) -> str:
    return f"`{name}`"


@pytest.fixture(scope="module")
def connection(mysql_server: MysqlServer) -> Iterator["Connection[Any]"]:
    """A session without strict mode, so that the server rewrites types instead of refusing them."""
    mysql_server.execute(f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
    with mysql_server.connect(DATABASE, charset="utf8mb4") as connection:
        run(connection, "SET SESSION sql_mode = ''")
        yield connection
    mysql_server.execute(f"DROP DATABASE {DATABASE}")


def run(connection: "Connection[Any]", statement: str) -> tuple[tuple[Any, ...], ...]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return tuple(cursor.fetchall())


def is_accepted(connection: "Connection[Any]", statement: str) -> bool:
    try:
        run(connection, statement)
    except pymysql.MySQLError:
        return False
    return True


def shown(connection: "Connection[Any]", table_id: TableId) -> TableSchema:
    ((_, definition),) = run(connection, f"SHOW CREATE TABLE `{table_id.table}`")
    return show_create_to_schema(table_id, definition)


def as_read_anew(schema: TableSchema) -> TableSchema:
    """A definition has no former names of the table and its columns, nor the moments when they came."""
    columns = tuple(
        msgspec.structs.replace(column, former_names=(), earlier_names=(), born=None, is_late=False)
        for column in schema.columns
    )
    return msgspec.structs.replace(schema, columns=columns, former_ids=())


@pytest.mark.parametrize("seed", gate(range(6), range(24), because="the gate has six of the seeds"))
def test_following_random_statements_gives_what_the_server_shows(connection: "Connection[Any]", seed: int) -> None:
    """Types, charsets, defaults, order of columns, keys and index names: after each statement the schemas are equal."""
    table_id = TableId(database=DATABASE, table=f"t{seed}")
    statements = Statements(seed, table_id.table)
    tables: dict[TableId, TableSchema] = {}
    followed: list[str] = []
    for _ in range(60):
        if table_id not in tables:
            statement = statements.create()
        elif len(followed) % 5 == 4:
            statement = statements.convert()
        else:
            statement = statements.alter([column.name for column in tables[table_id].columns])
        if not is_accepted(connection, statement):
            continue
        followed.append(statement)
        (change,) = apply_ddl(tables, DATABASE, statement, database_charsets={DATABASE: "utf8mb4"})
        assert change.schema is not None
        tables[table_id] = change.schema
        assert as_read_anew(tables[table_id]) == shown(connection, table_id), ";\n".join(followed)

    assert followed
    run(connection, f"DROP TABLE IF EXISTS `{table_id.table}`")


def test_statements_are_followed_as_the_log_has_them(connection: "Connection[Any]") -> None:
    """The server rewrites some (CREATE TABLE … SELECT, DROP, a copied table); the logged statements lead to the definitions
    that it shows."""
    ((begins_in, begins_at, *_),) = run(connection, "SHOW BINARY LOG STATUS")
    for statement in (
        "CREATE TABLE people (id int AUTO_INCREMENT PRIMARY KEY, name varchar(20) CHARACTER SET latin1 UNIQUE)",
        "CREATE TABLE copied AS SELECT id, UPPER(name) AS shout, 1.50 AS price, NOW(3) AS at FROM people",
        "CREATE TABLE alike LIKE people",
        "CREATE TABLE gone (a int)",
        "CREATE TEMPORARY TABLE people_tmp LIKE people",
        "ALTER TABLE people ADD COLUMN born date FIRST, ADD INDEX (born)",
        "CREATE UNIQUE INDEX by_price ON copied (price, at)",
        "RENAME TABLE people TO swap, alike TO people, swap TO alike",
        "DROP TABLE IF EXISTS gone, never_there",
        "ALTER TABLE alike PARTITION BY KEY (id) PARTITIONS 2",
        "CREATE VIEW looked_at AS SELECT 1",
        "DROP VIEW looked_at",
    ):
        if "PARTITION" in statement:  # a partitioned table takes no unique key without its partition's columns
            run(connection, "ALTER TABLE alike DROP INDEX name")
        run(connection, statement)

    tables: dict[TableId, TableSchema] = {}
    for statement in logged_statements(connection, begins_in, begins_at):
        for change in apply_ddl(tables, DATABASE, statement, database_charsets={DATABASE: "utf8mb4"}):
            tables.pop(change.previous_id or change.table_id, None)
            if change.schema is not None:
                tables[change.table_id] = change.schema

    assert {table_id.table for table_id in tables} == {"people", "alike", "copied"}
    for table_id, schema in tables.items():
        assert as_read_anew(schema) == shown(connection, table_id)


def logged_statements(connection: "Connection[Any]", file: str, position: int) -> list[str]:
    rows = run(connection, f"SHOW BINLOG EVENTS IN '{file}' FROM {position}")
    statements = [str(row[5]) for row in rows if row[2] == "Query"]
    return [statement.split("; ", 1)[1] if statement.startswith("use ") else statement for statement in statements]


def test_a_gtid_set_is_encoded_as_the_server_encodes_it(mysql_server: MysqlServer) -> None:
    """With a tag too: the bytes are those of the Previous_gtids event that opens a new log file."""
    with mysql_server.connect() as connection:
        run(connection, "SET SESSION gtid_next = 'AUTOMATIC:headwater_test'")
        run(connection, "CREATE DATABASE IF NOT EXISTS tagged")
        run(connection, "SET SESSION gtid_next = 'AUTOMATIC'")
        run(connection, "FLUSH BINARY LOGS")
        ((file, _, _, _, executed),) = run(connection, "SHOW BINARY LOG STATUS")
        ((folder,),) = run(connection, "SELECT @@datadir")

    recorded = previous_gtids((Path(folder) / file).read_bytes())

    assert ":headwater_test:" in executed
    assert GtidSet.parse(executed).encode_binary() == recorded


def previous_gtids(log: bytes) -> bytes:
    """The body of a log file's Previous_gtids event (type 35), without its checksum."""
    place = 4
    while log[place + 4] != 35:
        place += int.from_bytes(log[place + 9 : place + 13], "little")
    length = int.from_bytes(log[place + 9 : place + 13], "little")
    return log[place + 19 : place + length - 4]
