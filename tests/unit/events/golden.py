"""The events that Debezium recorded, and the table schemas that it recorded them under."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from libs.mysql.logical import column
from libs.types.table import Column, TableId, TableSchema

RECORDINGS = Path(__file__).parents[2] / "golden" / "debezium-mysql" / "v1"


def records(topic: str) -> list[dict[str, Any]]:
    """Every record of a topic, in order, as JsonConverter wrote it."""
    lines = (RECORDINGS / f"{topic}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def table_schemas(table: str) -> Iterator[TableSchema]:
    """Each version of ``smp.<table>``, from Debezium's schema-change events."""
    version = 0
    for record in records("v1"):
        for change in record["value"]["payload"]["tableChanges"]:
            if change["id"] == f'"smp"."{table}"' and change["table"]:
                version += 1
                yield _schema(table, change["table"], version)


def _schema(table: str, recorded: dict[str, Any], version: int) -> TableSchema:
    return TableSchema(
        table_id=TableId(database="smp", table=table),
        columns=tuple(_column(item) for item in recorded["columns"]),
        key=tuple(recorded["primaryKeyColumnNames"] or ()),
        version=version,
    )


def _column(recorded: dict[str, Any]) -> Column:
    default = recorded["defaultValueExpression"]
    if default is not None and recorded["typeName"] == "BIT":
        default = f"b'{default}'"
    return column(
        recorded["name"],
        _source_type(recorded),
        charset=recorded["charsetName"],
        is_optional=recorded["optional"],
        default_expression=default,
    )


def _source_type(recorded: dict[str, Any]) -> str:
    name, suffix = recorded["typeName"].lower(), ""
    if name.endswith(" unsigned"):
        name, suffix = name.removesuffix(" unsigned"), " unsigned"
    if name in ("enum", "set"):
        return f"{name}({','.join(recorded['enumValues'])})"
    sizes = [str(size) for size in (recorded["length"], recorded["scale"]) if size is not None]
    return f"{name}({','.join(sizes)}){suffix}" if sizes else f"{name}{suffix}"
