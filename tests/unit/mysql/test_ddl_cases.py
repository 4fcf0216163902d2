"""DDL against the outputs of Debezium's own parser (``tests/golden/cases/b_mysql_ddl.json``; its ``source`` says how)."""

import json
from pathlib import Path
from typing import Any

import pytest

from libs.formats.connect_schema import connect_field
from libs.mysql.column_type import parse_column_type
from libs.mysql.ddl import DdlNotUnderstood, TableChange, TableChangeKind, apply_database_ddl, apply_ddl
from libs.mysql.ddl_syntax import StatementContext
from libs.mysql.logical import canonical_charset, canonical_default
from libs.mysql.schema_change_event import schema_change_value
from libs.types.table import Column, TableId, TableSchema

CASES = json.loads((Path(__file__).parents[2] / "golden" / "cases" / "b_mysql_ddl.json").read_text())["cases"]

# Where this project does something else than the reference, and why.
DEVIATIONS = {
    "type-bool": "the server says tinyint(1), an int16, also in Debezium's snapshot; the spelling must not matter",
    "type-boolean": "as type-bool",
    "default-bool-1": "as type-bool",
    "type-real": "the server stores a double",
    "type-real-5-2": "the server stores a double",
    "type-float4": "the server stores a float",
    "default-varchar-text": "the reference keeps the doubled quote of the text; the default has one",
    "default-varchar-backslash": "the reference keeps the escape of the text; the default has one backslash",
    "create-as-select": "columns are not in the statement: halts, where the reference makes a table without columns",
    "create-cols-as-select": "not all columns are in the statement: halts, where the reference loses some",
    "charset-alter-default-only": "reference_quirk: the table's charset does change",
    "alter-add-existing-column": "the server logs no such statement: the schema held is wrong, which must not pass",
    "alter-drop-unknown-column": "as alter-add-existing-column",
    "drop-temporary": "drops a temporary table, not the table of that name",
    "create-view-excluded": "a view has no rows in the log",
    "create-view-included": "a view has no rows in the log",
}


def parametrised() -> list[Any]:
    assert {case["id"] for case in CASES} >= DEVIATIONS.keys()
    return [pytest.param(case, id=case["id"], marks=_mark(case["id"])) for case in CASES]


def _mark(case_id: str) -> tuple[Any, ...]:
    reason = DEVIATIONS.get(case_id)
    return (pytest.mark.xfail(reason=reason, strict=True),) if reason else ()


class Follower:
    """A reader's way with statements: apply each, keep the result."""

    def __init__(self) -> None:
        self.tables: dict[TableId, TableSchema] = {}
        self.charsets: dict[str, str] = {}
        self.database = "db"
        self.context = StatementContext()

    def apply(self, statement: str) -> tuple[TableChange, ...]:
        if statement.startswith("use "):
            self.database = statement.removeprefix("use ").rstrip(";")
        if statement.startswith("set character_set_server="):
            self.context = StatementContext(server_charset=canonical_charset(statement.split("=")[1].rstrip(";")))
        self.charsets = dict(apply_database_ddl(self.charsets, self.database, statement, context=self.context))
        changes = apply_ddl(
            self.tables, self.database, statement, database_charsets=self.charsets, context=self.context
        )
        for change in changes:
            if change.previous_id is not None:
                self.tables.pop(change.previous_id, None)
            if change.schema is None:
                self.tables.pop(change.table_id, None)
            else:
                self.tables[change.table_id] = change.schema
        return changes


@pytest.mark.parametrize("case", parametrised())
def test_statements_leave_the_tables_that_the_reference_has(case: dict[str, Any]) -> None:
    """Columns with type, charset, nullability, default, key and events are the reference's."""
    follower = Follower()

    for statement, step in zip(case["statements"], case["expect"]["steps"], strict=True):
        if "error" in step:
            with pytest.raises(DdlNotUnderstood):
                follower.apply(statement)
            continue
        changes = follower.apply(statement)
        if "index" not in statement.split("(")[0].split()[:3]:  # the reference has no event for CREATE and DROP INDEX
            assert [_event(change) for change in changes] == _table_events(step)

    expected = case["expect"].get("tables", {})
    assert {_name(table_id) for table_id in follower.tables} == expected.keys()
    for table_id, schema in follower.tables.items():
        _assert_same_table(schema, expected[_name(table_id)])


def _name(table_id: TableId) -> str:
    return table_id.table if table_id.database == "db" else str(table_id)


def _event(change: TableChange) -> tuple[str, str]:
    kind = "ALTER" if change.kind is TableChangeKind.RENAME else change.kind.name
    return f"{kind}_TABLE", _name(change.table_id)


def _table_events(step: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event["type"], event["table"]) for event in step["events"] if event["type"].endswith("_TABLE")]


def _assert_same_table(schema: TableSchema, expected: dict[str, Any]) -> None:
    assert list(schema.key) == expected["pk"]
    assert [column.name for column in schema.columns] == [column["name"] for column in expected["columns"]]
    if "default_charset" in expected:
        assert schema.charset == expected["default_charset"]
    written = _as_written(schema)
    for position, (column, wanted) in enumerate(zip(schema.columns, expected["columns"], strict=True), start=1):
        assert position == wanted["position"]
        assert column.source_type == str(parse_column_type(_source_type(wanted)))
        assert column.is_optional == wanted["optional"]
        assert (column.comment or None) == wanted.get("comment")
        if "charset" in wanted:
            assert column.charset == canonical_charset(wanted["charset"])
        recorded = written[position - 1]
        assert recorded["generated"] == recorded["autoIncremented"] == wanted.get("auto_increment", False)
        assert recorded["defaultValueExpression"] == _default(wanted)
        assert _connect(column) == {key: value for key, value in wanted["connect"].items() if key != "default"}


def _as_written(schema: TableSchema) -> list[dict[str, Any]]:
    value = schema_change_value(
        source_block=b"{}", ts_ms=0, database="db", ddl="", table_id=schema.table_id, schema=schema, kind="CREATE"
    )
    columns: list[dict[str, Any]] = json.loads(value)["tableChanges"][0]["table"]["columns"]
    return columns


def _source_type(wanted: dict[str, Any]) -> str:
    """The type as a statement would have it, from the reference's name, length and scale."""
    name, *attributes = wanted["type"].replace("DOUBLE PRECISION", "DOUBLE").split(" UNSIGNED", 1)
    suffix = " UNSIGNED" + attributes[0] if attributes else ""
    if "enum_values_raw" in wanted:
        return f"{name}({','.join(wanted['enum_values_raw'])})"
    sizes = [str(size) for size in (wanted["length"], wanted["scale"]) if size not in (None, -1)]
    return f"{name}({','.join(sizes)}){suffix}" if sizes else name + suffix


def _default(wanted: dict[str, Any]) -> str | None:
    """The reference's default, in the form that SHOW CREATE TABLE gives it."""
    text = wanted["default"]
    if text in (None, "1970-01-01 00:00:00"):  # which stands for CURRENT_TIMESTAMP
        return str(text) if text else None
    return canonical_default(parse_column_type(_source_type(wanted)), str(text))


def _connect(column: Column) -> dict[str, Any]:
    field = connect_field(column)
    kinds = {"float": "float32", "double": "float64"}  # JsonConverter's names for Connect's types
    shown = {"type": kinds.get(field["type"], field["type"])}
    return shown | {key: field[key] for key in ("name", "parameters") if key in field}
