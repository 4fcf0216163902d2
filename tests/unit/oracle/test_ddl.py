"""Oracle's DDL against the outputs of Debezium's own parser (``tests/golden/cases/a_oracle_ddl.json`` says how)."""

import json
from pathlib import Path
from typing import Any

import pytest

from libs.oracle.column_type import OracleType
from libs.oracle.ddl import Contradiction, DdlEffect, OracleTable, apply_statement
from libs.oracle.ddl_syntax import parse_statements
from libs.oracle.sql_lexer import UnreadableSql
from libs.types.table import TableId

CASES = json.loads(Path("tests/golden/cases/a_oracle_ddl.json").read_text(encoding="utf-8"))["cases"]
T1 = TableId(database="S", table="T1")

OURS = {
    "create-more-types": "test_every_type_has_oracles_own_name",
    "create-as-select": "test_a_table_that_no_list_of_columns_defines_is_read_at_the_server",
    "create-other-schema": "test_the_schema_that_a_statement_names_is_the_tables",
    "pk-drop-add": "test_columns_are_not_null_as_long_as_their_primary_key_lasts",
}
"""Cases whose outcome at the reference is wrong, and the test here that shows the right one. The reference leaves four types
unknown, has no columns after CREATE TABLE AS SELECT, ignores the schema of a name, and
keeps NOT NULL after DROP PRIMARY KEY."""
NO_LENGTH = -1


def applied(case: dict[str, Any]) -> dict[TableId, OracleTable]:
    tables: dict[TableId, OracleTable] = {}
    for text in case["statements"]:
        for statement in parse_statements(text, case["schema"]):
            tables = dict(apply_statement(statement, tables).tables)
    return tables


def run(*statements: str) -> DdlEffect:
    effect = DdlEffect({})
    for text in statements:
        for statement in parse_statements(text, "S"):
            effect = apply_statement(statement, effect.tables)
    return effect


def described(table: OracleTable) -> list[tuple[object, ...]]:
    return [
        (column.name, column.type.name, column.type.size, column.type.scale, column.is_optional, column.default)
        for column in table.logged
    ]


def expected_columns(table: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (
            column["name"],
            column["type"],
            None if column["length"] == NO_LENGTH else column["length"],
            column["scale"],
            column["optional"],
            column["default"],
        )
        for column in table["columns"]
    ]


@pytest.mark.parametrize("case", [case for case in CASES if case["id"] not in OURS], ids=lambda case: str(case["id"]))
def test_a_statement_is_read_as_debezium_reads_it(case: dict[str, Any]) -> None:
    found = {
        f"{name.database}.{name.table}": (described(table), list(table.key)) for name, table in applied(case).items()
    }

    assert found == {name: (expected_columns(table), table["pk"]) for name, table in case["expect"]["tables"].items()}


def test_every_type_has_oracles_own_name() -> None:
    statement = next(case for case in CASES if case["id"] == "create-more-types")["statements"][0]

    types = {column.name: column.type for column in run(statement).tables[TableId(database="S", table="MORE_T")].logged}

    assert types["K"] == OracleType("LONG")
    assert types["M"] == OracleType("UROWID", 100)
    assert types["T"] == OracleType("BFILE")
    assert types["Z"] == OracleType("NUMBER", 7, 1)
    assert types["P"] == OracleType("INTERVAL DAY TO SECOND", 3, 2)
    assert types["Y"] == OracleType("NUMBER", 5, -2)


def test_the_schema_that_a_statement_names_is_the_tables() -> None:
    assert list(run("create table other.t9 (id number primary key)").tables) == [TableId(database="OTHER", table="T9")]


def test_columns_are_not_null_as_long_as_their_primary_key_lasts() -> None:
    created = run("create table t1 (id number(9) primary key, org number(9) not null, nm varchar2(50))")
    dropped = run(
        "create table t1 (id number(9) primary key, org number(9) not null, nm varchar2(50))",
        "alter table t1 drop primary key",
    )

    assert [column.is_optional for column in created.tables[T1].logged] == [False, False, True]
    assert [column.is_optional for column in dropped.tables[T1].logged] == [True, False, True]


@pytest.mark.parametrize(
    "statement",
    [
        "create table t1 as select * from t0",
        "create table t1 (a, b) as select a, b from t0",
        "create table t1 of some_type",
        "create table t1 (id number, place sdo_geometry)",
        "alter table t1 drop unused columns",
        "alter table t1 drop (id",
        "alter table t1 frobnicate",
        "flashback table t1 to before drop",
    ],
)
def test_a_table_that_no_list_of_columns_defines_is_read_at_the_server(statement: str) -> None:
    effect = run("create table t1 (id number)", statement)

    assert [each.table for each in effect.read_again] == [T1]
    assert [column.name for column in effect.tables[T1].logged] == ["ID"]


def test_an_unused_column_keeps_its_number_and_drop_takes_it_out() -> None:
    table = "create table t1 (id number primary key, nm varchar2(20), amt number(12,2))"
    unused = run(table, "alter table t1 set unused (nm)").tables[T1]
    dropped = run(table, "alter table t1 set unused (nm)", "alter table t1 drop column amt").tables[T1]

    assert [column.name for column in unused.columns] == ["ID", "NM", "AMT"]
    assert [column.name for column in unused.logged] == ["ID", "AMT"]
    assert [column.name for column in dropped.columns] == ["ID"]


def test_names_may_be_taken_over() -> None:
    table = run(
        "create table t1 (id number primary key, nm varchar2(20), amt number(12,2))",
        "alter table t1 rename column nm to amt2",
        "alter table t1 rename column amt to nm",
        "alter table t1 add (constraint u unique (nm), extra date default sysdate not null)",
    ).tables[T1]

    assert [(column.name, column.type.name) for column in table.logged] == [
        ("ID", "NUMBER"),
        ("AMT2", "VARCHAR2"),
        ("NM", "NUMBER"),
        ("EXTRA", "DATE"),
    ]
    assert [constraint.columns for constraint in table.constraints] == [("ID",), ("NM",)]


def test_a_table_without_a_primary_key_has_its_first_unique_key_without_nulls() -> None:
    table = run("create table t1 (a number unique, b number not null, c number not null, unique (b, c))").tables[T1]

    assert table.key == ("B", "C")


@pytest.mark.parametrize(
    ("statement", "clause"),
    [
        ("alter table t1 drop partition p1", "DROP PARTITION"),
        ("alter table t1 exchange partition p1 with table t2", "EXCHANGE PARTITION"),
        ("alter table t1 truncate subpartition s1", "TRUNCATE SUBPARTITION"),
    ],
)
def test_rows_that_change_without_the_log_are_named(statement: str, clause: str) -> None:
    assert run("create table t1 (id number)", statement).unseen == ((T1, clause),)


def test_a_statement_that_does_not_fit_the_table_contradicts_it() -> None:
    with pytest.raises(Contradiction, match=r"S.T1: there is no column NOPE"):
        run("create table t1 (id number)", "alter table t1 drop column nope")


@pytest.mark.parametrize(
    "statement",
    [
        "alter table t1 move tablespace users",
        "alter table t1 add supplemental log data (all) columns",
        "alter table t1 enable row movement",
        "alter table t1 add partition p3 values less than (30)",
        "create index ix on t1 (id)",
        "comment on table t1 is 'x'",
        "grant select on t1 to bob",
    ],
)
def test_a_statement_that_changes_no_row_and_no_column_changes_nothing(statement: str) -> None:
    before = run("create table t1 (id number)")

    assert run("create table t1 (id number)", statement) == DdlEffect(before.tables)


def test_quoting_is_oracles_own() -> None:
    table = run(
        """create table "t1" ("Id" number, c varchar2(9) default q'[it's]' not null, d date /* x */) -- end"""
    ).tables

    assert list(table) == [TableId(database="S", table="t1")]
    assert [(column.name, column.default) for column in table[TableId(database="S", table="t1")].logged] == [
        ("Id", None),
        ("C", "q'[it's]'"),
        ("D", None),
    ]


@pytest.mark.parametrize("text", ["drop table 'x'", "drop table t1 /* no end", 'drop table "t1', "comment is 'x"])
def test_a_text_that_is_no_sql_is_refused(text: str) -> None:
    with pytest.raises(UnreadableSql, match="at character"):
        parse_statements(text, "S")
