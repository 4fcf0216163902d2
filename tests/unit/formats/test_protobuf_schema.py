"""Protobuf schemas: protoc takes them, they can be read back, and a field's number is for ever."""

from itertools import pairwise
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from libs.formats.connect_schema import MYSQL_FORM, ConnectSchema, schema_change_value_schema, value_schema
from libs.formats.protobuf_schema import (
    Field,
    ProtobufSchema,
    find_version,
    numbered,
    protobuf_schema,
    read_protobuf_schema,
)
from tests.protobuf_messages import file_descriptor
from tests.unit.events.golden import table_schemas
from tests.unit.formats.test_avro_writer import every_kind, plain, struct_of

PRICE = '[(confluent.field_meta) = {params: [{key: "precision", value: "10"}, {key: "scale", value: "2"}]}]'
ENVELOPE = f"""syntax = "proto3";

package s.shop.orders;

import "confluent/meta.proto";
import "confluent/type/decimal.proto";

message Envelope {{
  Value before = 1;
  Value after = 2;
  optional string op = 3;

  message Value {{
    int32 small = 1 [(confluent.field_meta) = {{params: [{{key: "connect.type", value: "int16"}}]}}];
    .confluent.type.Decimal price = 2 {PRICE};
    repeated float vector = 3;
  }}
}}
"""


def envelope(*columns: ConnectSchema) -> ConnectSchema:
    """A row's, as short as can be."""
    row = {**struct_of(*columns), "name": "s.shop.orders.Value", "optional": True}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, plain("op", "string", optional=True)]
    return {"type": "struct", "fields": fields, "optional": False, "name": "s.shop.orders.Envelope"}


def decimal(name: str, scale: int = 2) -> ConnectSchema:
    """A DECIMAL column."""
    parameters = {"scale": str(scale), "connect.decimal.precision": "10"}
    schema = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}
    return {**plain(name, "bytes", optional=True), **schema}


def row(schema: ProtobufSchema) -> dict[str, int]:
    """The numbers of a row's columns."""
    return {field.name: field.number for field in schema.message.message("Value").fields}


def versions(*tables: list[ConnectSchema]) -> list[ProtobufSchema]:
    """Each numbered after those before it."""
    made: list[ProtobufSchema] = []
    for columns in tables:
        made.append(numbered(protobuf_schema(envelope(*columns)), made))
    return made


def test_the_text_is_as_confluents_converter_has_it() -> None:
    """One nested message for both images; imports and ``field_meta``; a vector is repeated."""
    vector = plain("vector", "array", optional=True, items={"type": "float", "optional": False})

    assert str(protobuf_schema(envelope(plain("small", "int16"), decimal("price"), vector))) == ENVELOPE
    assert len(file_descriptor(ENVELOPE).message_type) == 1


@pytest.mark.parametrize("table", ["defaults_t", "comp_pk", "no_pk", "uniq_only", "all_types"])
def test_protoc_takes_every_recorded_table(table: str) -> None:
    """And the schema that is read back is the written one."""
    for version in table_schemas(table):
        check_text(protobuf_schema(value_schema("s", version)))


def check_text(schema: ProtobufSchema) -> None:
    """It goes through protoc and back."""
    assert file_descriptor(str(schema)).syntax == "proto3"
    assert read_protobuf_schema(str(schema)) == schema


def test_protoc_takes_every_type() -> None:
    """All in one table."""
    check_text(protobuf_schema(envelope(*every_kind())))


def test_protoc_takes_statements() -> None:
    """Messages three deep."""
    check_text(protobuf_schema(schema_change_value_schema(MYSQL_FORM)))


@pytest.mark.parametrize(
    "names",
    [
        ["user_id", "userId"],
        ["a_b", "a__b", "aB"],
        ["Point", "p"],
        ["confluent", "google", "Value", "Envelope"],
        [
            "message",
            "optional",
            "repeated",
            "reserved",
            "oneof",
            "string",
            "int32",
            "option",
            "package",
            "syntax",
            "map",
        ],
        ["_a", "_", "__", "a_"],
    ],
)
def test_columns_may_be_called_anything(names: list[str]) -> None:
    """Names that JSON would mix up, or that the language has for itself."""
    point = {**struct_of(plain("x", "double")), "name": "io.debezium.data.geometry.Point", "field": "place"}

    check_text(protobuf_schema(envelope(*(decimal(name) for name in names), point)))


def test_a_package_may_be_called_anything() -> None:
    """As databases and tables are."""
    schema = struct_of(decimal("a"))

    for name in ("confluent.type.Value", "message.2024.Key", "a..b.Value", "Key"):
        check_text(protobuf_schema({**schema, "name": name}))


def test_a_column_keeps_its_number_wherever_it_stands() -> None:
    """Added in the middle, moved: the new one gets the next number."""
    first, second, third = versions(
        [plain("a", "int32"), plain("c", "int32")],
        [plain("a", "int32"), plain("b", "string"), plain("c", "int32")],
        [plain("c", "int32"), plain("d", "int32"), plain("b", "string"), plain("a", "int32")],
    )

    assert row(first) == {"a": 1, "c": 2}
    assert row(second) == {"a": 1, "b": 3, "c": 2}
    assert row(third) == {"c": 2, "d": 4, "b": 3, "a": 1}


def test_a_dropped_columns_number_is_reserved() -> None:
    """And its name; a renamed one is another column."""
    _, dropped, renamed = versions(
        [plain("a", "int32"), plain("b", "int32")], [plain("a", "int32")], [plain("a", "int32"), plain("c", "int32")]
    )

    assert '    reserved 2;\n    reserved "b";\n' in str(dropped)
    assert row(renamed) == {"a": 1, "c": 3}
    assert "    reserved 2;\n" in str(renamed)


def test_a_column_that_comes_back_is_what_it_was() -> None:
    """The same name and type have the same number; another type has another, and goes on having it."""
    *_, back, other, last = versions(
        [plain("a", "int32"), plain("b", "string")],
        [plain("a", "int32")],
        [plain("a", "int32"), plain("b", "string")],
        [plain("a", "int32"), plain("b", "double")],
        [plain("a", "int32"), plain("b", "double"), plain("c", "int32")],
    )

    assert row(back) == {"a": 1, "b": 2}
    assert row(other) == {"a": 1, "b": 3}
    assert "    reserved 2;\n" in str(other)
    assert row(last) == {"a": 1, "b": 3, "c": 4}


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (plain("a", "int16"), plain("a", "int32"), True),
        (plain("a", "int32"), plain("a", "int64", optional=True), True),
        (plain("a", "int64"), plain("a", "int32"), False),
        (plain("a", "int32"), plain("a", "string"), False),
        (plain("a", "string"), plain("a", "bytes"), False),
        (decimal("a", 2), decimal("a", 4), True),
        (decimal("a"), plain("a", "double"), False),
        (plain("a", "float"), plain("a", "array", items={"type": "float"}), False),
    ],
)
def test_a_number_stays_where_the_bytes_are_the_same(
    before: ConnectSchema, after: ConnectSchema, *, same: bool
) -> None:
    """An older reader never takes one type's bytes for another's."""
    old, new = versions([before], [after])

    assert (row(new)["a"] == row(old)["a"]) is same


TYPES = {
    "int16": FieldDescriptorProto.TYPE_INT32,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
}
TABLES = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(sorted(TYPES)), min_size=1), min_size=2, max_size=8
)


@given(TABLES)
def test_no_number_is_ever_anothers(tables: list[dict[str, str]]) -> None:
    """Property: through all changes of a table, a number is one column's, of types whose bytes are the same; a second reader of
    the registry's versions numbers the same way; and unused numbers are reserved."""
    made = versions(*([plain(name, kind) for name, kind in table.items()] for table in tables))
    owners: dict[int, set[tuple[str, bool]]] = {}
    for schema in made:
        for field in schema.message.message("Value").fields:
            owners.setdefault(field.number, set()).add((field.name, field.type == "string"))

    assert all(len(owner) == 1 for owner in owners.values())
    for schema in made:
        numbers = list(row(schema).values())
        assert len(set(numbers)) == len(numbers)
        assert not set(numbers) & schema.message.message("Value").reserved_numbers
        assert read_protobuf_schema(str(schema)) == schema
    last = made[-1].message.message("Value")
    assert {*row(made[-1]).values(), *last.reserved_numbers} == owners.keys()
    for nth, (older, newer) in enumerate(pairwise(made), 1):
        assert row(numbered(protobuf_schema(envelope(*columns_of(tables[nth]))), made)) == row(newer)
        assert older.message.reserved_numbers == newer.message.reserved_numbers == frozenset()


def columns_of(table: dict[str, str]) -> list[ConnectSchema]:
    """As ``versions`` takes them."""
    return [plain(name, kind) for name, kind in table.items()]


def test_a_known_version_is_found_whatever_its_numbers() -> None:
    """The newest of those with the same fields: rows of an older table version need no new version."""
    first, second, third = made = versions(
        [plain("a", "int32")], [plain("a", "int32"), plain("b", "int32")], [plain("b", "int32")]
    )
    fields = [plain("b", "int32"), plain("a", "int32")]

    assert find_version(protobuf_schema(envelope(*fields)), made) == 1
    assert find_version(protobuf_schema(envelope(plain("a", "int32"))), [first, second, third, first]) == 3
    assert find_version(protobuf_schema(envelope(plain("b", "int64"))), made) is None


FOREIGN = """// Another converter's.
syntax = 'proto3';
package s.shop.orders;
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
option java_package = "x";

message Envelope {
  option (confluent.message_meta) = { doc: "a; b" };
  s.shop.orders.Envelope.Value after = 4; /* not
  ours */
  reserved 7, 9 to 11; reserved "old";
  oneof _op { string op = 0x10 [json_name = "op"]; }
  map<string, int32> counts = 17;
  enum Kind { NONE = 0; }
  message Value {
    confluent.type.Decimal price = 5 [(confluent.field_meta) = {
      params: [
        { value: "2", key: "scale" },
        { value: "10", key: "precision" }
      ]
    }];
  }
}
message Other { int32 a = 1; }
"""


def test_another_converters_schema_is_gone_on_from() -> None:
    """Its numbers are ours from then on: a tenant that leaves Debezium's ProtobufConverter keeps its consumers."""
    foreign = read_protobuf_schema(FOREIGN)
    assert file_descriptor(FOREIGN)
    assert foreign.message.message("Value").fields == (
        Field("price", "confluent.type.Decimal", 5, meta=(("precision", "10"), ("scale", "2"))),
    )

    schema = numbered(protobuf_schema(envelope(decimal("price"), plain("b", "int32"))), [foreign])

    assert {field.name: field.number for field in schema.message.fields} == {"before": 18, "after": 4, "op": 16}
    assert schema.message.reserved_numbers == {7, 9, 10, 11, 17}
    assert schema.message.reserved_names == {"old", "counts"}
    assert row(schema) == {"price": 5, "b": 6}
    check_text(schema)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'syntax = "proto3";',
        "message A {",
        "message A { int32 a = 1",
        "message A { int32 a = x; }",
        "message A { reserved 2 to max; }",
        "message A { reserved 2 to 200000000; }",
        "message A { reserved x; }",
        '{"type": "string"}',
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    """With ValueError and nothing else."""
    with pytest.raises(ValueError, match=r"."):
        read_protobuf_schema(text)


@given(st.text('message A{}=;1[]"reserved,to ', max_size=60))
def test_no_text_makes_the_reader_fail_otherwise(text: str) -> None:
    """Property: a schema, or ValueError."""
    try:
        read_protobuf_schema(text)
    except ValueError:
        return


def test_numbers_that_protobuf_keeps_are_passed_over() -> None:
    """19000 to 19999."""
    old = ProtobufSchema("", protobuf_schema(struct_of(plain("a", "int32"))).message)
    text = str(old).replace("= 1;", "= 18999;")

    schema = numbered(protobuf_schema(struct_of(*columns())), [read_protobuf_schema(text)])

    assert [field.number for field in schema.message.fields] == [18_999, 20_000, 20_001]
    check_text(schema)


def columns() -> list[Any]:
    """Three."""
    return [plain(name, "int32") for name in "abc"]


def test_there_is_an_end_of_numbers() -> None:
    """It is said, not wrapped around."""
    old = read_protobuf_schema("message R { int32 x = 536870911; }")

    with pytest.raises(ValueError, match="no field numbers left"):
        numbered(protobuf_schema(struct_of(*columns())), [old])
