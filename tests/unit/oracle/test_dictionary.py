"""Tables out of the data dictionary's rows, and the same tables out of the history."""

from datetime import datetime
from typing import Any

import msgspec
import pytest

from libs.events.schema_change import SchemaChangeKind
from libs.oracle.column_type import parse_column_type
from libs.oracle.ddl import OracleColumn, OracleTable
from libs.oracle.ddl_changes import change_of
from libs.oracle.ddl_syntax import Constraint, parse_statements
from libs.oracle.ddl_text import create_statement
from libs.oracle.dictionary import DictionaryTable, facts_of, objects_of, tables_of
from libs.oracle.schema_change_event import schema_change_value
from libs.oracle.table_schema import oracle_table, row_key, table_schema
from libs.types.table import TableId, TableSchema

AT = datetime(2024, 5, 1, 12)
LATER = datetime(2024, 5, 2)
ORDERS = TableId(database="SHOP", table="ORDERS")
OBJECTS = [
    ("SHOP", "ORDERS", None, 73_196, AT, AT),
    ("SHOP", "ORDERS", "P2", 73_199, AT, LATER),
    ("SHOP", "ORDERS", "P1", 73_198, AT, AT),
    ("SHOP", "BIN$x==$0", None, 70_000, AT, AT),
    ("SHOP", "GONE", None, 70_001, AT, AT),
]
TABLES = [("SHOP", "ORDERS", "N", None, "NO", 12), ("SHOP", "LINES_OVER", "N", "IOT_OVERFLOW", "NO", None)]


def column(name: str, number: int, data_type: str = "NUMBER", **facts: Any) -> tuple[Any, ...]:
    """A row of DBA_TAB_COLS."""
    row = {
        "column_id": number, "type_owner": None, "length": 22, "characters": 0, "precision": None, "scale": None,
        "nullable": "Y", "is_virtual": "NO", "is_hidden": "NO", "is_users": "YES", "default": None,
    } | facts  # fmt: skip
    ends = (row["nullable"], row["is_virtual"], row["is_hidden"], row["is_users"], row["default"])
    sizes = (row["length"], row["characters"], row["precision"], row["scale"])
    return ("SHOP", "ORDERS", name, number, row["column_id"], data_type, row["type_owner"], *sizes, *ends)


COLUMNS = [
    column("ID", 1, precision=10, scale=0, nullable="N"),
    column("SYS_C00002_24050112:00:00$", 2, "VARCHAR2", column_id=None, is_hidden="YES"),
    column("NOTE", 3, "VARCHAR2", length=400, characters=100, default="'it''s' "),
    column("TOTAL", 4, is_virtual="YES", default='"A"+1'),
    column("SECRET", 5, "DATE", column_id=None, is_hidden="YES", length=7),
    column("SYS_NC00006$", 6, "RAW", column_id=None, is_hidden="YES", is_users="NO"),
    column("SEEN", 7, "TIMESTAMP(3) WITH TIME ZONE", length=13, scale=3, default="SYSTIMESTAMP", nullable="N"),
]
KEYS = [
    ("SHOP", "ORDERS", "PK", "P", "ID"),
    ("SHOP", "ORDERS", "U1", "U", "NOTE"),
    ("SHOP", "ORDERS", "U1", "U", "SEEN"),
]


def found(columns: list[tuple[Any, ...]] = COLUMNS, keys: list[tuple[Any, ...]] = KEYS) -> DictionaryTable:
    [table] = tables_of(objects_of(OBJECTS), facts_of(TABLES), columns, keys, is_wanted=lambda _: True)
    return table


def schema(table: OracleTable) -> TableSchema:
    return table_schema(table, (73_196,), charset="AL32UTF8", national_charset="AL16UTF16")


def test_a_table_has_its_own_number_and_those_of_its_partitions() -> None:
    assert found().objects.object_ids == (73_196, 73_198, 73_199)
    assert found().objects.last_ddl_at == LATER
    assert TableId(database="SHOP", table="BIN$x==$0") not in objects_of(OBJECTS)


def test_columns_keep_the_numbers_that_the_log_counts() -> None:
    kept = schema(found().table)
    assert [(each.number, each.name, each.source_type) for each in kept.columns] == [
        (1, "ID", "NUMBER(10,0)"),
        (3, "NOTE", "VARCHAR2(100)"),
        (5, "SECRET", "DATE"),
        (7, "SEEN", "TIMESTAMP(3) WITH TIME ZONE"),
    ]
    assert [each.name for each in kept.columns if each.is_invisible] == ["SECRET"]
    assert [each.is_optional for each in kept.columns] == [False, True, True, False]
    assert kept.column("NOTE").default_expression == "it's"
    assert kept.column("SEEN").is_default_computed
    assert (kept.key, kept.object_ids) == (("ID",), (73_196,))


@pytest.mark.parametrize("keys", [KEYS, KEYS[1:], []], ids=["primary", "unique with a NULL", "none"])
def test_the_history_gives_the_same_table_back(keys: list[tuple[Any, ...]]) -> None:
    kept = schema(found(keys=keys).table)
    assert schema(oracle_table(kept)) == kept
    assert schema(oracle_table(msgspec.json.decode(msgspec.json.encode(kept), type=TableSchema))) == kept
    assert row_key(kept) == (("ID",) if keys == KEYS else ())


def test_a_unique_key_without_nulls_stands_for_a_primary_key() -> None:
    columns = [column("ID", 1, nullable="N"), column("NOTE", 2)]
    table = found(columns, [("SHOP", "ORDERS", "U", "U", "ID")]).table
    assert (table.key, schema(table).key) == (("ID",), ("ID",))


def test_a_table_with_a_type_that_logminer_does_not_read_is_refused_by_name() -> None:
    refused = found([*COLUMNS, column("PLACE", 8, "SDO_GEOMETRY", type_owner="MDSYS")])
    assert refused.refusal == "column PLACE has the type MDSYS.SDO_GEOMETRY, which LogMiner does not read"


def test_temporary_tables_are_refused_and_parts_of_tables_left_out() -> None:
    temporary = tables_of(
        objects_of(OBJECTS), facts_of([("SHOP", "ORDERS", "Y", None, "NO", 0)]), COLUMNS, KEYS, is_wanted=lambda _: True
    )
    assert "temporary" in temporary[0].refusal
    part = [("SHOP", "ORDERS", "N", "IOT_OVERFLOW", "NO", 0)]
    assert not tables_of(objects_of(OBJECTS), facts_of(part), COLUMNS, KEYS, is_wanted=lambda _: True)


def test_statements_after_a_restart_count_columns_as_the_server_does() -> None:
    table = oracle_table(schema(found().table))
    [statement] = parse_statements("ALTER TABLE orders ADD (x NUMBER(3), y RAW(16) NOT NULL)", "SHOP")
    [name] = change_of(statement, {ORDERS: table}, lambda _: True).names
    assert name.table is not None
    assert [(each.number, each.name) for each in schema(name.table).columns][-2:] == [(8, "X"), (9, "Y")]


def changed(sql: str, *, captured: bool = True, known: bool = True) -> object:
    [statement] = parse_statements(sql, "SHOP")
    tables = {ORDERS: found().table} if known else {}
    return change_of(statement, tables, lambda table_id: captured and table_id.table in ("ORDERS", "NEWER"))


def kinds(sql: str) -> list[tuple[str, SchemaChangeKind]]:
    change = changed(sql)
    return [(each.table_id.table, each.kind) for each in change.names]  # type: ignore[attr-defined]


def test_each_name_has_its_own_change() -> None:
    alter, drop = SchemaChangeKind.ALTER, SchemaChangeKind.DROP
    assert kinds("ALTER TABLE orders RENAME COLUMN note TO text") == [("ORDERS", alter)]
    assert kinds("ALTER TABLE orders RENAME TO newer") == [("ORDERS", drop), ("NEWER", alter)]
    assert kinds("RENAME orders TO elsewhere") == [("ORDERS", drop)]
    assert kinds("DROP TABLE orders PURGE") == [("ORDERS", drop)]
    assert kinds("ALTER TABLE orders MOVE ONLINE") == []
    assert kinds("CREATE TABLE newer (id NUMBER)") == [("NEWER", SchemaChangeKind.CREATE)]
    assert kinds("CREATE GLOBAL TEMPORARY TABLE newer (id NUMBER)") == []


@pytest.mark.parametrize(
    ("sql", "known"),
    [
        ("ALTER TABLE orders DROP COLUMN nowhere", True),
        ("ALTER TABLE orders DROP COLUMN total", True),
        ("ALTER TABLE orders ADD note NUMBER", True),
        ("ALTER TABLE orders ADD x NUMBER", False),
        ("RENAME elsewhere TO orders", True),
        ("CREATE TABLE newer AS SELECT * FROM orders", True),
    ],
)
def test_a_definition_that_the_statement_does_not_tell_is_read_again(sql: str, known: bool) -> None:
    table = oracle_table(schema(found().table))
    [statement] = parse_statements(sql, "SHOP")
    change = change_of(statement, {ORDERS: table} if known else {}, lambda each: each.table in ("ORDERS", "NEWER"))
    assert len(change.read_again) == 1
    assert not change.names


def test_a_key_that_is_dropped_by_the_servers_own_name_has_the_definition_read_again() -> None:
    """A DDL ``PRIMARY KEY`` without a name gets one that the log does not say."""
    table = OracleTable(
        ORDERS, (OracleColumn("ID", parse_column_type("NUMBER")),), (Constraint(None, ("ID",), is_primary=True),)
    )
    [statement] = parse_statements("ALTER TABLE orders DROP CONSTRAINT SYS_C007", "SHOP")
    assert change_of(statement, {ORDERS: table}, lambda _: True).read_again


def test_rows_that_go_with_a_partition_and_with_a_truncation_are_told() -> None:
    assert changed("ALTER TABLE orders DROP PARTITION p1").unseen[0].clause == "DROP PARTITION"  # type: ignore[attr-defined]
    assert changed("TRUNCATE TABLE orders").truncated == (ORDERS,)  # type: ignore[attr-defined]
    nothing = changed("TRUNCATE TABLE orders", captured=False, known=False)
    assert nothing == change_of(parse_statements("DROP TABLE x", "Y")[0], {}, lambda _: False)


def test_the_definition_as_a_statement_gives_the_table_back() -> None:
    statement = create_statement(found().table)
    assert statement == (
        'CREATE TABLE "SHOP"."ORDERS" ("ID" NUMBER(10,0) NOT NULL, "NOTE" VARCHAR2(100) DEFAULT \'it\'\'s\', '
        '"SECRET" DATE INVISIBLE, "SEEN" TIMESTAMP(3) WITH TIME ZONE DEFAULT SYSTIMESTAMP NOT NULL, '
        'CONSTRAINT "PK" PRIMARY KEY ("ID"), CONSTRAINT "U1" UNIQUE ("NOTE", "SEEN"))'
    )
    [parsed] = parse_statements(statement, "X")
    [name] = change_of(parsed, {}, lambda _: True).names
    assert name.table is not None
    renumbered = [msgspec.structs.replace(each, number=0) for each in schema(found().table).columns]
    assert [msgspec.structs.replace(each, number=0) for each in schema(name.table).columns] == renumbered


def test_a_schema_change_names_database_owner_and_table() -> None:
    value = schema_change_value(
        database="PDB1",
        table_id=ORDERS,
        schema=schema(found().table),
        kind="CREATE",
        ddl="CREATE …",
        source_block=b"{}",
        ts_ms=7,
    )
    told = msgspec.json.decode(value)
    assert (told["databaseName"], told["schemaName"]) == ("PDB1", "SHOP")
    [change] = told["tableChanges"]
    assert (change["type"], change["id"]) == ("CREATE", '"PDB1"."SHOP"."ORDERS"')
    assert change["table"]["primaryKeyColumnNames"] == ["ID"]
    types = [(each["typeName"], each["jdbcType"], each["length"], each["scale"]) for each in change["table"]["columns"]]
    assert types == [
        ("NUMBER", 2, 10, 0),
        ("VARCHAR2", 12, 100, None),
        ("DATE", 93, None, None),
        ("TIMESTAMP(3) WITH TIME ZONE", -101, 3, None),
    ]
