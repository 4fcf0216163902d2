"""Connect schemas against Debezium's recordings."""

import json
from typing import Any

import pytest

from libs.formats.connect_schema import (
    HEADER_TEXT,
    MYSQL_FORM,
    TRANSACTION_KEY,
    TRANSACTION_VALUE,
    connect_default,
    key_schema,
    payload_prefix,
    schema_change_key_schema,
    schema_change_value_schema,
    value_schema,
)
from libs.mysql.logical import column
from tests.unit.events.golden import records, table_schemas

TABLES = ("defaults_t", "comp_pk", "no_pk", "uniq_only", "odd-name tbl", "fresh", "fresher", "ctas", "all_types")


def recorded_schemas(table: str, side: str) -> list[Any]:
    """The distinct schemas of a topic's keys or values, in order of appearance."""
    found: list[Any] = []
    for record in records(f"v1.smp.{table.replace(' ', '_')}"):
        schema = record[side]["schema"] if record[side] is not None else None
        if (schema is not None or side == "key") and schema not in found:
            found.append(schema)
    return found


@pytest.mark.parametrize("table", TABLES)
def test_value_schema_is_the_recorded_one(table: str) -> None:
    """Every schema that Debezium wrote for a table's values is, text for text, one that we build for its versions."""
    built = [json.dumps(value_schema("v1", schema)) for schema in table_schemas(table)]
    recorded = recorded_schemas(table, "value")

    assert recorded
    assert [json.dumps(schema) in built for schema in recorded] == [True] * len(recorded)


@pytest.mark.parametrize("table", TABLES)
def test_key_schema_is_the_recorded_one(table: str) -> None:
    """Every schema that Debezium wrote for a table's keys is one that we build; none where it wrote a null key."""
    built = [key_schema("v1", schema) for schema in table_schemas(table)]

    recorded = recorded_schemas(table, "key")

    assert recorded
    assert [json.dumps(schema) in map(json.dumps, built) for schema in recorded] == [True] * len(recorded)


def test_schema_change_and_transaction_schemas_are_the_recorded_ones() -> None:
    """The fixed schemas of the topics ``<prefix>`` and ``<prefix>.transaction`` are Debezium's."""
    change, boundary = records("v1")[0], records("v1.transaction")[0]
    header = change["headers"][0][1]

    assert json.dumps(change["key"]["schema"]) == json.dumps(schema_change_key_schema(MYSQL_FORM))
    assert json.dumps(change["value"]["schema"]) == json.dumps(schema_change_value_schema(MYSQL_FORM))
    assert json.dumps(boundary["key"]["schema"]) == json.dumps(TRANSACTION_KEY)
    assert json.dumps(boundary["value"]["schema"]) == json.dumps(TRANSACTION_VALUE)
    assert header["schema"] == HEADER_TEXT


def test_payload_spliced_behind_its_prefix_is_one_document() -> None:
    """Prefix, payload and a brace are JsonConverter's document."""
    schema = next(table_schemas("no_pk"))
    document = payload_prefix(value_schema("v1", schema)) + b'{"op":"c"}' + b"}"

    assert json.loads(document) == {"schema": value_schema("v1", schema), "payload": {"op": "c"}}


@pytest.mark.parametrize(
    ("source_type", "default", "is_optional", "expected"),
    [
        ("bigint unsigned", "7", True, 7),
        ("bigint unsigned", "18446744073709551615", False, 9223372036854775807),
        ("decimal(10,4)", "2.5", True, "Yag="),
        ("bit(1)", "b'1'", True, True),
        ("bit(12)", "b'100000001'", True, "AQE="),
        ("date", "0000-00-00", False, 0),
        ("date", "0000-00-00", True, None),
        ("date", "1969-12-31", True, -1),
        ("time", "120:30:00", True, 433800000000),
        ("time(3)", "-01:00:00.5", True, -3600500000),
        ("datetime", "0000-00-00 00:00:00", False, 0),
        ("datetime", "now()", True, 0),
        ("datetime(6)", "2020-01-02 03:04:05.000001", True, 1577934245000001),
        ("timestamp", "2020-01-02 03:04:05", True, "2020-01-02T03:04:05Z"),
        ("timestamp", "current_timestamp", False, "1970-01-01T00:00:00Z"),
        ("timestamp", "current_timestamp", True, None),
        ("timestamp(3)", "current_timestamp(3)", False, "1970-01-01T00:00:00.000Z"),
        ("year", "2023", True, 2023),
        ("enum('a','b')", "b", False, "b"),
        ("set('a','b')", "a,b", True, "a,b"),
        ("double", "1.5", True, 1.5),
        ("varbinary(3)", "abc", True, "YWJj"),
        ("int unsigned", "12", True, 12),
        ("int", "not a number", True, None),
    ],
)
def test_default_in_its_json_form(source_type: str, default: str, is_optional: bool, expected: object) -> None:
    """A DEFAULT becomes the constant that Debezium puts into the schema; none where no constant stands for it."""
    built = column("c", source_type, is_optional=is_optional, default_expression=default)

    assert connect_default(built) == expected
