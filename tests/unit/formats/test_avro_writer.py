"""JSON payloads as Avro: an Avro library reads the JSON's values."""

import base64
import io
import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.errors import InvalidEvent
from libs.formats.avro_schema import avro_schema
from libs.formats.binary_writers import AvroWriter
from libs.formats.connect_schema import (
    MYSQL_FORM,
    ConnectSchema,
    connect_field,
    schema_change_value_schema,
)
from libs.types.table import Column
from libs.types.value import UNAVAILABLE_VALUE, LogicalKind, LogicalType
from tests.unit.events.golden import records


def struct_of(*fields: ConnectSchema) -> ConnectSchema:
    """A record of these fields."""
    return {"type": "struct", "fields": list(fields), "optional": False, "name": "a.R"}


def plain(name: str, connect_type: str, *, optional: bool = False, **more: Any) -> ConnectSchema:
    """A field."""
    return {"type": connect_type, "optional": optional, "field": name, **more}


def read(schema: ConnectSchema, written: bytes) -> Any:
    """fastavro's reading of all of it. Logical types are left off: their bytes are compared."""
    stream = io.BytesIO(written)
    value = fastavro.schemaless_reader(stream, without_logical_types(avro_schema(schema)), None)
    assert stream.read() == b""
    return value


def without_logical_types(schema: Any) -> Any:
    """An Avro schema whose bytes are bytes."""
    if isinstance(schema, dict):
        return {name: without_logical_types(value) for name, value in schema.items() if name != "logicalType"}
    return [without_logical_types(each) for each in schema] if isinstance(schema, list) else schema


def as_avro(schema: ConnectSchema, value: Any) -> Any:
    """The values of a JSON document as an Avro library gives them, written down once more by a plain walk."""
    if value is None:
        return None
    match schema["type"]:
        case "struct":
            return {each["field"]: as_avro(each, value.get(each["field"])) for each in schema["fields"]}
        case "array":
            return [as_avro(schema["items"], each) for each in value]
        case "bytes":
            return value.encode() if value == UNAVAILABLE_VALUE else base64.b64decode(value)
        case "float":
            return struct.unpack("<f", struct.pack("<f", value))[0]
        case _:
            return value


def check(schema: ConnectSchema, document: Any, *, separators: tuple[str, str] = (",", ":")) -> None:
    """Written and read again, it has the values of the JSON."""
    payload = json.dumps(document, separators=separators).encode()
    assert read(schema, AvroWriter(schema).write(payload)) == as_avro(schema, document)


@pytest.mark.parametrize("table", ["defaults_t", "comp_pk", "no_pk", "uniq_only", "all_types"])
def test_recorded_events_have_the_same_values(table: str) -> None:
    """Debezium's recordings, events and keys, each under the schema that was recorded with it."""
    checked = 0
    for record in records(f"v1.smp.{table}"):
        for side in (record["key"], record["value"]):
            if side is not None:
                check(side["schema"], side["payload"])
                checked += 1

    assert checked


def test_recorded_schema_changes_have_the_same_values() -> None:
    """Arrays of structs of arrays."""
    for record in records("v1"):
        check(schema_change_value_schema(MYSQL_FORM), record["value"]["payload"])


_NUMBERS = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "string": st.text(st.characters(exclude_categories=["Cs"])),
    "bytes": st.binary().map(lambda value: base64.b64encode(value).decode()),
}


def values_of(schema: ConnectSchema) -> st.SearchStrategy[Any]:
    """JSON values of a Connect schema."""
    match schema["type"]:
        case "struct":
            values: st.SearchStrategy[Any] = st.fixed_dictionaries(
                {each["field"]: values_of(each) for each in schema["fields"]}
            )
        case "array":
            values = st.lists(values_of(schema["items"]), max_size=3)
        case connect_type:
            values = _NUMBERS[connect_type]
    return st.none() | values if schema.get("optional", False) else values


def every_kind() -> Sequence[ConnectSchema]:
    """A field of each logical type, one that may be null and one that may not."""
    return [
        connect_field(
            Column(
                name=f"{kind.value}_{optional}",
                source_type="int",
                logical_type=LogicalType(kind=kind, precision=20, scale=2, allowed=("a",)),
                is_optional=optional,
            )
        )
        for kind in LogicalKind
        for optional in (True, False)
    ]


@given(st.data(), st.sampled_from(every_kind()), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_a_value_of_any_type_is_the_same_in_json_and_avro(
    data: st.DataObject, field: ConnectSchema, separators: tuple[str, str]
) -> None:
    """Property: of any type, with any value, spaces or none."""
    schema = struct_of(field)

    check(schema, data.draw(values_of(schema)), separators=separators)


@given(st.permutations(["a", "b", "c"]), st.sets(st.sampled_from(["a", "c"])))
def test_members_may_come_in_any_order_and_null_ones_not_at_all(order: list[str], missing: set[str]) -> None:
    """A projection may have moved them; they are written in the schema's order."""
    schema = struct_of(
        plain("a", "int32", optional=True), plain("b", "string"), plain("c", "int32", optional=True, default=7)
    )
    document = {name: value for name in order if name not in missing for value in ({"a": 1, "b": "x", "c": 2}[name],)}

    check(schema, document)


def test_null_beside_a_default_stays_null() -> None:
    """As in JSON; AvroConverter would write the default."""
    schema = struct_of(plain("a", "int32", optional=True, default=7))

    assert read(schema, AvroWriter(schema).write(b'{"a":null}')) == {"a": None}


def test_the_prefix_stands_in_front() -> None:
    """As the wire form wants it."""
    assert AvroWriter(plain("a", "string"), b"\0\0\0\0\x07").write(b'"ab"') == b"\0\0\0\0\x07\x04ab"


def test_bytes_that_the_log_does_not_hold_are_the_placeholder() -> None:
    """Debezium's text for that, as its bytes; in a text it stands as it is."""
    schema = struct_of(plain("a", "bytes"), plain("b", "string"))
    document = {"a": UNAVAILABLE_VALUE, "b": UNAVAILABLE_VALUE}

    check(schema, document)


@pytest.mark.parametrize(
    ("connect_type", "payload", "reason"),
    [
        ("int32", b'{"a":2147483648}', "32-bit"),
        ("int64", b'{"a":9223372036854775808}', "64-bit"),
        ("int64", b'{"a":-9223372036854775809}', "64-bit"),
        ("int64", b'{"a":99999999999999999999}', "64-bit"),
        ("int32", b'{"a":1.5}', "an integer"),
        ("int32", b'{"a":"1"}', "an integer"),
        ("int32", b'{"a":"__debezium_unavailable_value"}', "the log does not hold 'a'"),
        ("float", b'{"a":1e39}', "a float holds"),
        ("double", b'{"a":1e999}', "a double holds"),
        ("double", b'{"a":--1}', "a number"),
        ("bytes", b'{"a":"a-b_"}', "base64"),
        ("bytes", b'{"a":"abc"}', "base64"),
        ("boolean", b'{"a":1}', "a boolean"),
        ("string", b'{"a":null}', "is null"),
        ("string", b'{"a":"\\ud800"}', "half a character"),
        ("string", b'{"a":"x', "does not end"),
        ("string", b'{"a":"x"}}', "follows"),
        ("string", b'{"a":"x","b":1}', "a member that its schema does not have"),
        ("string", b"{}", "lacks 'a'"),
        ("string", b"", "an object"),
        ("string", b"[]", "an object"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(connect_type: str, payload: bytes, reason: str) -> None:
    """Nothing is cut, rounded or left out in silence; the message names the field, and no value."""
    with pytest.raises(InvalidEvent, match=reason):
        AvroWriter(struct_of(plain("a", connect_type))).write(payload)


@given(st.binary(max_size=60) | st.text('{}[]":,a1\\u. ', max_size=40).map(str.encode))
def test_no_bytes_are_read_beyond_their_end(payload: bytes) -> None:
    """Any bytes give a value, or InvalidEvent."""
    schema = struct_of(
        plain("a", "array", items={"type": "string", "optional": True}), plain("b", "double", optional=True)
    )
    for wrapped in (payload, b'{"a":' + payload, b'{"a":[],"b":' + payload):
        try:
            AvroWriter(schema).write(wrapped)
        except InvalidEvent:
            continue


def test_a_writer_goes_on_after_a_refusal() -> None:
    """A half-written value is gone."""
    writer = AvroWriter(struct_of(plain("a", "int32")), b"!")
    with pytest.raises(InvalidEvent):
        writer.write(b'{"a":"x"}')

    assert writer.write(b'{"a":1}') == b"!\x02"


def test_numbers_that_json_has_no_digits_for_are_written() -> None:
    """Connect's JsonConverter has them as texts; any other text is refused."""
    schema = struct_of(plain("d", "double"), plain("f", "float"))
    writer = AvroWriter(schema, b"")

    found = [read(schema, writer.write(b'{"d":"%b","f":"%b"}' % (name, name))) for name in (b"Infinity", b"-Infinity")]

    assert found == [{"d": float("inf"), "f": float("inf")}, {"d": float("-inf"), "f": float("-inf")}]
    assert math.isnan(read(schema, writer.write(b'{"d":"NaN","f":1.5}'))["d"])
    with pytest.raises(InvalidEvent):
        writer.write(b'{"d":"1.5","f":1.5}')


def test_number_of_its_own_scale_is_a_record() -> None:
    """``VariableScaleDecimal``, and the smallest integer."""
    number = Column(name="n", source_type="NUMBER", logical_type=LogicalType(kind=LogicalKind.VARIABLE_SCALE_DECIMAL))
    tiny = Column(name="t", source_type="NUMBER(2,0)", logical_type=LogicalType(kind=LogicalKind.INT8))
    schema = struct_of(connect_field(number), connect_field(tiny))

    written = AvroWriter(schema, b"").write(b'{"n":{"scale":3,"value":"AeJA"},"t":-99}')

    assert read(schema, written) == {"n": {"scale": 3, "value": b"\x01\xe2\x40"}, "t": -99}
    assert avro_schema(connect_field(tiny)) == ["null", {"type": "int", "connect.type": "int8"}]
