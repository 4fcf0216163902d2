"""Every kind of DEFAULT on a real MySQL: the model has the text that the server shows, and the value that it gives the rows
that are there."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pymysql
import pytest
from pymysql.connections import Connection

from libs.mysql.ddl import apply_ddl, show_create_to_schema
from libs.mysql.ddl_syntax import DdlNotUnderstood
from libs.mysql.values import compact_json
from libs.source.mysql.snapshot import create_statement
from libs.types.table import Column, TableId, TableSchema
from tests.conftest import MysqlServer
from tests.integration.test_mysql_ddl import run

DEFINITIONS = Path(__file__).with_name("default_definitions.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def connection(mysql_server: MysqlServer, database: str) -> Iterator["Connection[Any]"]:
    with mysql_server.connect(database, charset="utf8mb4") as connection:
        run(connection, "SET SESSION time_zone = '+00:00', sql_mode = ''")
        yield connection


def added(definitions: Sequence[str]) -> str:
    return "ALTER TABLE t " + ", ".join(f"ADD c{nth} {each}" for nth, each in enumerate(definitions))


def accepted_parts(connection: "Connection[Any]", definitions: Sequence[str]) -> Iterator[Sequence[str]]:
    """``definitions`` in parts that the server took in one statement, for a table of one row; refused ones are left out."""
    run(connection, "DROP TABLE IF EXISTS t")
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY)")
    run(connection, "INSERT INTO t VALUES (1)")
    try:
        run(connection, added(definitions))
    except pymysql.MySQLError:
        if len(definitions) > 1:
            middle = len(definitions) // 2
            yield from accepted_parts(connection, definitions[:middle])
            yield from accepted_parts(connection, definitions[middle:])
    else:
        yield definitions


def shown_value(column: Column, value: Any) -> Any:
    """A value of SELECT in the form of ``default_expression``."""
    kind = column.source_type.partition("(")[0]
    if kind == "bit":
        return f"b'{int.from_bytes(value, 'big'):b}'"
    if kind in ("binary", "varbinary", "blob"):
        return "0x" + value.hex().upper()
    if kind in ("float", "double"):
        return float(value)
    return json.loads(value) if kind == "json" else value.decode()


def is_read(bare: TableSchema, definition: str) -> bool:
    """The statement has the default; the server is asked for that of others."""
    try:
        return bool(apply_ddl({bare.table_id: bare}, bare.table_id.database, added([definition])))
    except DdlNotUnderstood:
        return False


def test_a_default_is_what_the_server_makes_of_it(connection: "Connection[Any]", database: str) -> None:
    """Of 800 definitions each, in all their forms: literals of every type, expressions, members, implicit defaults."""
    table_id = TableId(database=database, table="t")
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY)")
    ((_, definition),) = run(connection, "SHOW CREATE TABLE t")
    bare = show_create_to_schema(table_id, definition)
    wrong, seen = [], 0
    read = [each for each in DEFINITIONS if is_read(bare, each)]
    assert len(read) > 0.9 * len(DEFINITIONS)
    parts = [read[first : first + 24] for first in range(0, len(read), 24)]
    for definitions in (accepted for part in parts for accepted in accepted_parts(connection, part)):
        seen += len(definitions)
        (change,) = apply_ddl({table_id: bare}, database, added(definitions))
        ((_, text),) = run(connection, "SHOW CREATE TABLE t")
        shown = show_create_to_schema(table_id, text)
        assert change.schema is not None
        names = ", ".join(f"CAST(c{nth} AS BINARY)" for nth in range(len(definitions)))
        (values,) = run(connection, f"SELECT {names} FROM t")
        for written, model, server, value in zip(
            definitions, change.schema.columns[1:], shown.columns[1:], values, strict=True
        ):
            # SHOW CREATE says of no column how it came.
            if msgspec.structs.replace(model, born=None, is_late=False) != server:
                wrong.append(f"{written}: {model} is {server}")
            default = model.default_expression
            if (
                default is None
                or default.startswith("CURRENT_TIMESTAMP")
                or model.charset in ("ucs2", "utf16", "utf32")
            ):
                continue
            expected: Any = json.loads(default) if model.source_type == "json" else default
            expected = float(default) if model.source_type.startswith(("float", "double")) else expected
            if model.charset == "latin1":
                value = None if value is None else value.decode("latin1").encode()
            if value is None or shown_value(model, value) != expected:
                wrong.append(f"{written}: {default} where the row has {value!r}")

    assert not wrong, "\n".join(wrong)
    assert seen > 600


def test_a_shown_definition_has_the_characters_that_the_server_keeps(
    connection: "Connection[Any]", database: str
) -> None:
    """SHOW CREATE is composed in utf8mb3: literals with an introducer come as question marks, members are stored so."""
    defaults = {
        "a": ("VARCHAR(9)", "('😀é')"),
        "b": ("TEXT", "(_utf8mb4'?😀')"),
        "c": ("VARCHAR(9)", "(_latin1 x'E9')"),
        "d": ("VARCHAR(9) CHARACTER SET sjis", "(_sjis x'955C')"),
        "e": ("VARCHAR(9)", "(_ucs2 x'00E90041')"),
        "f": ("VARBINARY(9)", "(_binary x'F09F98')"),
        "g": ("JSON", '(\'{"a": "😀"}\')'),
        "h": ("ENUM('b','?','x😀y')", "'x😀y'"),
        "i": ("SET('😀','é','?') CHARACTER SET utf16", "'😀,?'"),
        "j": ("ENUM('😁') CHARACTER SET gb18030", "'😁'"),
        "k": ("VARCHAR(9) CHARACTER SET utf32", "'😁'"),
        "`l?`": ("ENUM('it''s 😀','\\\\?')", "'it''s 😀'"),
    }
    items = ", ".join(f"{name} {kind} DEFAULT {default}" for name, (kind, default) in defaults.items())
    run(connection, "DROP TABLE IF EXISTS t")
    run(connection, f"CREATE TABLE t (id INT PRIMARY KEY, {items})")
    run(connection, "INSERT INTO t (id) VALUES (1)")
    table_id = TableId(database=database, table="t")

    schema = show_create_to_schema(table_id, *create_statement(connection, table_id))

    (values,) = run(
        connection,
        "SELECT " + ", ".join(f"CONVERT({name} USING utf8mb4)" for name in defaults if name != "f") + " FROM t",
    )
    shown = [column.default_expression for column in schema.columns[1:] if column.name != "f"]
    assert shown == [compact_json(value.encode()) if value.startswith("{") else value for value in values]
    assert schema.columns[6].default_expression == "0xF09F98"
    assert schema.columns[12].source_type == r"enum('it''s 😀','\\?')"
