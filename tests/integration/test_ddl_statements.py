"""A long list of DDL, as people and tools write it, against a real MySQL: the followed definitions are those that the server
shows.

Each group of statements (``ddl_statements.sql``) begins with an empty database. After every statement all tables are compared:
those that are followed are those that are there, and each is equal to the text that ``SHOW CREATE TABLE`` gives. The
statements are taken from the server's log, with the session's sql_mode, as the reader gets them.
"""

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from pymysql.connections import Connection

from libs.mysql.ddl import apply_database_ddl, apply_ddl, show_create_to_schema
from libs.mysql.ddl_syntax import StatementContext
from libs.mysql.sql_lexer import SqlMode
from libs.types.table import TableId, TableSchema
from tests.conftest import MysqlServer
from tests.integration.test_mysql_ddl import as_read_anew, logged_statements, run

DATABASE, OTHER = "ddl_listed", "ddl_listed_2"


def _groups() -> dict[str, list[str]]:
    text = Path(__file__).with_name("ddl_statements.sql").read_text(encoding="utf-8")
    _, *groups = re.split(r"(?m)^-- group ", text)
    named = (group.split("\n", 1) for group in groups)
    return {name: [each for each in re.split(r"(?m)^;\n", body) if each] for name, body in named}


GROUPS = _groups()


@pytest.fixture(scope="module")
def connection(mysql_server: MysqlServer) -> Iterator["Connection[Any]"]:
    with mysql_server.connect("mysql", charset="utf8mb4") as connection:
        yield connection
    mysql_server.execute(f"DROP DATABASE IF EXISTS {DATABASE}", f"DROP DATABASE IF EXISTS {OTHER}")


@pytest.fixture(scope="module")
def looking(mysql_server: MysqlServer) -> Iterator["Connection[Any]"]:
    """A session of its own for SHOW CREATE TABLE, which depends on sql_mode too."""
    with mysql_server.connect("mysql", charset="utf8mb4") as connection:
        yield connection


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_followed_is_what_the_server_shows(
    connection: "Connection[Any]", looking: "Connection[Any]", group: str
) -> None:
    """After every statement of the list."""
    for database in (DATABASE, OTHER):
        run(connection, f"DROP DATABASE IF EXISTS {database}")
        run(connection, f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    run(connection, f"USE {DATABASE}")
    run(connection, "SET SESSION sql_mode = ''")
    tables: dict[TableId, TableSchema] = {}
    charsets: dict[str, str] = {DATABASE: "utf8mb4", OTHER: "utf8mb4"}
    wrong = []
    for statement in GROUPS[group]:
        ((begins_in, begins_at, *_),) = run(connection, "SHOW BINARY LOG STATUS")
        run(connection, statement)
        ((mode,),) = run(connection, "SELECT @@SESSION.sql_mode")
        context = StatementContext(
            sql_mode=SqlMode(
                ansi_quotes="ANSI_QUOTES" in mode,
                backslash_escapes="NO_BACKSLASH_ESCAPES" not in mode,
                real_as_float="REAL_AS_FLOAT" in mode,
            )
        )
        for logged in logged_statements(connection, begins_in, begins_at):
            try:
                charsets = dict(apply_database_ddl(charsets, DATABASE, logged, context=context))
                changes = apply_ddl(tables, DATABASE, logged, database_charsets=charsets, context=context)
            except Exception as error:
                wrong.append(f"{logged}\n    {error!r}")
                continue
            for change in changes:
                tables.pop(change.previous_id or change.table_id, None)
                if change.schema is not None:
                    tables[change.table_id] = change.schema
        there = tables_of(looking, charsets)
        for table_id in sorted(there.keys() | tables.keys()):
            if difference := first_difference(tables.get(table_id), there.get(table_id)):
                wrong.append(f"{statement}\n    {table_id}: {difference}")
        tables = there

    assert not wrong, "\n".join(wrong)


def tables_of(connection: "Connection[Any]", charsets: dict[str, str]) -> dict[TableId, TableSchema]:
    found = {}
    for database in charsets:
        for name, kind in run(connection, f"SHOW FULL TABLES FROM {database}"):
            if kind == "BASE TABLE":
                table_id = TableId(database=database, table=name)
                quoted = name.replace("`", "``")
                ((_, definition),) = run(connection, f"SHOW CREATE TABLE {database}.`{quoted}`")
                found[table_id] = show_create_to_schema(table_id, definition, charsets[database])
    return found


def first_difference(ours: TableSchema | None, theirs: TableSchema | None) -> str:
    """Empty: none. Indexes that are not unique decide nothing, and foreign keys make some that no statement names."""
    if ours is None or theirs is None:
        return "" if ours is theirs else f"ours {ours}, theirs {theirs}"
    for mine, other in zip_longest(as_read_anew(ours).columns, theirs.columns):
        if mine != other:
            return f"ours {mine}\n    theirs {other}"
    sides = [
        (each.key, each.charset, each.comment, [index for index in each.indexes if index.is_unique])
        for each in (ours, theirs)
    ]
    return "" if sides[0] == sides[1] else f"ours {sides[0]}\n    theirs {sides[1]}"
