"""Schema-change events against Debezium's recordings."""

import json
from typing import Any

from libs.mysql.ddl import TableChangeKind, apply_database_ddl, apply_ddl, show_create_to_schema
from libs.mysql.schema_change_event import schema_change_key, schema_change_value
from libs.types.table import TableId, TableSchema
from tests.unit.events.golden import records


def test_events_are_those_that_debezium_recorded() -> None:
    """Every table of its log, from the same statements: equal keys and values, fields in the same order."""
    tables: dict[TableId, TableSchema] = {}
    charsets: dict[str, str] = {}
    compared = []
    for record in records("v1"):
        recorded = record["value"]["payload"]
        database, ddl = recorded["databaseName"], recorded["ddl"]
        charsets = dict(apply_database_ddl(charsets, database, ddl))
        changes = apply_ddl(tables, database, ddl, database_charsets=charsets)
        for change in changes:
            if change.previous_id is not None:
                del tables[change.previous_id]
            if change.schema is None:
                del tables[change.table_id]
            else:
                tables[change.table_id] = change.schema
        if not changes:
            # A snapshot's DROP TABLE IF EXISTS of tables that were not known before.
            assert all(change["type"] == "DROP" for change in recorded["tableChanges"])
            continue
        (change,) = changes
        kind = TableChangeKind.ALTER if change.kind is TableChangeKind.RENAME else change.kind
        value = schema_change_value(
            source_block=json.dumps(recorded["source"]).encode(),
            ts_ms=recorded["ts_ms"],
            database=database,
            ddl=ddl,
            table_id=change.table_id,
            schema=change.schema,
            kind=kind.name,
        )
        assert json.dumps(json.loads(value)) == json.dumps(recorded)
        assert json.loads(schema_change_key(database)) == record["key"]["payload"]
        compared.append(change.table_id.table)

    assert len(compared) == 16
    assert {"all_types", "defaults_t", "fresher", "ctas"} <= set(compared)


def column_of(definition: str, *, with_comments: bool = False) -> dict[str, Any]:
    table_id = TableId(database="d", table="t")
    schema = show_create_to_schema(table_id, f"CREATE TABLE t ({definition}) COMMENT 'about t'")
    value = schema_change_value(
        source_block=b"{}",
        ts_ms=0,
        database="d",
        ddl="",
        table_id=table_id,
        schema=schema,
        kind="CREATE",
        with_comments=with_comments,
    )
    table = json.loads(value)["tableChanges"][0]["table"]
    assert table["comment"] == ("about t" if with_comments else None)
    column: dict[str, Any] = table["columns"][0]
    return column


def test_comments_are_left_out_unless_asked_for() -> None:
    """Debezium's ``include.schema.comments`` is false by default."""
    assert column_of("a int comment 'x'")["comment"] is None
    assert column_of("a int comment 'x'", with_comments=True)["comment"] == "x"


def test_lengths_of_types() -> None:
    """Length and scale are the numbers after the type's name; a set's is the length of all its members in one value."""
    shown = {d: (column_of(f"a {d}")["length"], column_of(f"a {d}")["scale"]) for d in ("int", "float(7,3)", "time(3)")}

    assert shown == {"int": (None, None), "float(7,3)": (7, 3), "time(3)": (3, None)}
    assert column_of("a set('x','y','z')")["length"] == 5
    assert column_of("a int(5) zerofill")["typeName"] == "INT UNSIGNED ZEROFILL"


def test_a_statement_about_no_table_has_no_changes() -> None:
    """CREATE DATABASE, for one."""
    value = schema_change_value(
        source_block=b"{}", ts_ms=1, database="d", ddl="CREATE DATABASE d", table_id=None, schema=None, kind="CREATE"
    )

    assert json.loads(value)["tableChanges"] == []
