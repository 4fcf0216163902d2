"""Columns' types in their sources' words, against those that Debezium recorded."""

import pytest

from libs.mysql.ddl import apply_database_ddl, apply_ddl
from libs.mysql.logical import column
from libs.mysql.source_types import source_type
from libs.types.table import TableId, TableSchema
from tests.unit.events.golden import records

SOURCE = "__debezium.source.column."


def test_types_are_those_that_debezium_recorded() -> None:
    """Name, length and scale of every column in its log, from the same statements."""
    charsets: dict[str, str] = {}
    names = set()
    for record in records("v1"):
        recorded = record["value"]["payload"]
        charsets = dict(apply_database_ddl(charsets, recorded["databaseName"], recorded["ddl"]))
        if not recorded["ddl"].upper().startswith("CREATE TABLE") or " SELECT " in recorded["ddl"].upper():
            continue
        tables: dict[TableId, TableSchema] = {}
        (change,) = apply_ddl(tables, recorded["databaseName"], recorded["ddl"], database_charsets=charsets)
        assert change.schema is not None
        of_debezium = recorded["tableChanges"][0]["table"]["columns"]
        for ours, theirs in zip(change.schema.columns, of_debezium, strict=True):
            sizes = {name: str(theirs[name]) for name in ("length", "scale") if theirs[name] is not None}
            assert source_type(ours, "mysql").parameters(ours.name) == {
                f"{SOURCE}{name}": text
                for name, text in {"type": theirs["typeName"], **sizes, "name": theirs["name"]}.items()
            }
            names.add(theirs["typeName"])

    assert {"BIGINT UNSIGNED", "DECIMAL", "VARCHAR", "ENUM", "SET", "BIT", "TIMESTAMP", "JSON"} <= names


@pytest.mark.parametrize(
    ("written", "name", "length"),
    [
        ("tinyint(1)", "INT8", None),
        ("smallint unsigned", "UINT16", None),
        ("mediumint", "INT24", None),
        ("int(5) zerofill", "UINT32", None),
        ("bigint", "INT64", None),
        ("float", "FLOAT32", None),
        ("double unsigned", "FLOAT64", None),
        ("decimal(12,2)", "DECIMAL", None),
        ("time", "TIME", "0"),
        ("datetime(6)", "DATETIME", "6"),
        ("timestamp(3)", "TIMESTAMP", "3"),
        ("date", "DATE", None),
        ("year", "YEAR", None),
        ("varchar(40)", "VARCHAR", None),
        ("longtext", "TEXT", None),
        ("mediumblob", "BLOB", None),
        ("varbinary(9)", "VARBINARY", None),
        ("enum('a','b')", "ENUM", None),
        ("set('a','b')", "SET", None),
        ("bit(9)", "BIT", None),
        ("json", "JSON", None),
        ("polygon", "GEOMETRY", None),
    ],
)
def test_types_of_vitess(written: str, name: str, length: str | None) -> None:
    """vtgate's names; of lengths that connector knows only the digits of a second's fraction."""
    sizes = {} if length is None else {f"{SOURCE}length": length}

    assert source_type(column("c", written), "vitess").parameters("c") == {
        f"{SOURCE}type": name,
        **sizes,
        f"{SOURCE}name": "c",
    }
