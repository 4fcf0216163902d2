"""Avro schemas made of Connect schemas, as AvroConverter makes them."""

import json
from typing import Any

import fastavro
import pytest

from libs.formats.avro_schema import avro_full_name, avro_schema, avro_schema_text
from libs.formats.connect_schema import (
    MYSQL_FORM,
    TRANSACTION_KEY,
    TRANSACTION_VALUE,
    EnvelopeForm,
    connect_field,
    key_schema,
    schema_change_key_schema,
    schema_change_value_schema,
    value_schema,
)
from libs.mysql.logical import column
from libs.types.table import TableId, TableSchema
from libs.types.tenant import NameAdjustment
from tests.unit.events.golden import table_schemas

TABLES = ("defaults_t", "comp_pk", "no_pk", "uniq_only", "odd-name tbl", "fresh", "fresher", "ctas", "all_types")


def field(source_type: str, **more: Any) -> Any:
    """The Avro type of a column."""
    return avro_schema(connect_field(column("c", source_type, **more)))


def test_an_optional_field_is_a_union_with_null_first() -> None:
    """So that null can be its default."""
    assert field("int") == ["null", "int"]
    assert field("int", is_optional=False) == "int"


def test_a_default_puts_its_type_first() -> None:
    """A default is of the union's first type."""
    built = field("int", default_expression="7")

    assert built == [{"type": "int", "connect.default": 7}, "null"]


def test_what_avro_has_no_word_for_stands_in_members_in_the_converters_order() -> None:
    """Text for text the schema that AvroConverter registers for a DECIMAL with a default."""
    built = field("decimal(5,2)", is_optional=False, default_expression="1.50")

    assert json.dumps(built, separators=(",", ":")) == (
        '{"type":"bytes","scale":2,"precision":5,"connect.version":1,'
        '"connect.parameters":{"scale":"2","connect.decimal.precision":"5"},"connect.default":"\\u0000\\u0096",'
        '"connect.name":"org.apache.kafka.connect.data.Decimal","logicalType":"decimal"}'
    )


def test_int16_tells_that_it_is_one() -> None:
    """Avro's smallest integer has 32 bits."""
    assert field("smallint", is_optional=False) == {"type": "int", "connect.type": "int16"}


def test_the_row_is_defined_once() -> None:
    """``after`` refers to the record that ``before`` defines, by its short name, as both are in the envelope's namespace."""
    before, after = avro_schema(value_schema("v1", next(table_schemas("comp_pk"))))["fields"][:2]

    assert (before["type"][0], before["type"][1]["name"]) == ("null", "Value")
    assert after == {"name": "after", "type": ["null", "Value"], "default": None}


@pytest.mark.parametrize("table", TABLES)
def test_schemas_of_every_table_are_avros(table: str) -> None:
    """An Avro library takes the schemas of each version's keys and values, defaults included."""
    for schema in table_schemas(table):
        fastavro.parse_schema(avro_schema(value_schema("eu-1", schema, MYSQL_FORM, NameAdjustment.AVRO)))
        if schema.key:
            fastavro.parse_schema(avro_schema(key_schema("eu-1", schema, NameAdjustment.AVRO) or {}))


@pytest.mark.parametrize(
    "schema",
    [
        TRANSACTION_KEY,
        TRANSACTION_VALUE,
        schema_change_key_schema(MYSQL_FORM),
        schema_change_value_schema(MYSQL_FORM),
        schema_change_value_schema(EnvelopeForm(connector="vitess")),
        value_schema(
            "s", next(table_schemas("no_pk")), EnvelopeForm(connector="vitess", has_ordered_transactions=True)
        ),
    ],
    ids=lambda schema: schema["name"],
)
def test_schemas_that_every_table_shares_are_avros(schema: dict[str, Any]) -> None:
    """Those of a tenant's other topics, and of ordered transactions, too."""
    fastavro.parse_schema(avro_schema(schema))


def test_each_part_of_a_name_is_one_that_avro_takes() -> None:
    """Debezium's own rule lets a digit stand after a dot; the Connect name follows, so that it leads back here."""
    table = TableSchema(table_id=TableId(database="2024", table="7up"), columns=(column("id", "int"),), version=1)

    built = avro_schema(value_schema("s", table, MYSQL_FORM, NameAdjustment.AVRO))

    fastavro.parse_schema(built)
    assert (built["namespace"], built["connect.name"]) == ("s._2024._7up", "s._2024._7up.Envelope")
    assert avro_full_name("a..b") == "a._.b"


def test_the_same_schema_is_the_same_text() -> None:
    """So the registry has one id for it, for every asker, at every time."""
    first, again = (avro_schema_text(value_schema("v1", next(table_schemas("all_types")))) for _ in range(2))

    assert first == again
