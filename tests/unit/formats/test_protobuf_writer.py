"""JSON payloads as Protobuf: protobuf's own library reads the JSON's values by the registered schema."""

import base64
import json
from functools import lru_cache
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from libs.errors import InvalidEvent
from libs.formats.binary_writers import ProtobufWriter
from libs.formats.connect_schema import MYSQL_FORM, TRANSACTION_VALUE, ConnectSchema, schema_change_value_schema
from libs.formats.protobuf_schema import numbered, protobuf_schema
from libs.types.value import UNAVAILABLE_VALUE
from tests.protobuf_messages import message_class
from tests.unit.events.golden import records
from tests.unit.formats.test_avro_writer import as_avro, every_kind, plain, struct_of, values_of


@lru_cache(maxsize=500)
def class_of(schema_text: str) -> type[Message]:
    """One for each schema: protoc takes its time."""
    return message_class(schema_text)


def parsed(text: str, written: bytes) -> Message:
    """All of it is known to the schema."""
    message = class_of(text).FromString(written)
    known = type(message).FromString(written)
    known.DiscardUnknownFields()
    assert known.ByteSize() == message.ByteSize()
    return message


def values(schema: ConnectSchema, message: Message) -> Any:
    """A message's values as ``as_avro`` has those of the JSON; a column that is not there is None."""
    fields = {field["field"]: field for field in schema["fields"]}
    descriptors = message.DESCRIPTOR.fields_by_name
    assert fields.keys() == set(descriptors)
    read = {}
    for name, field in fields.items():
        value = getattr(message, name)
        if field["type"] == "array":
            items = field["items"]
            read[name] = [values(items, each) if items["type"] == "struct" else each for each in value]
        elif descriptors[name].has_presence and not message.HasField(name):
            read[name] = None
        elif field["type"] == "struct":
            read[name] = values(field, value)
        elif "Decimal" in field.get("name", ""):
            parameters = field["parameters"]
            assert value.scale == int(parameters["scale"])
            assert value.precision == int(parameters.get("connect.decimal.precision", 0))
            read[name] = value.value
        else:
            read[name] = value
    return read


def expected(schema: ConnectSchema, document: Any) -> Any:
    """A JSON document as its reader gets it: an array of none and an empty one are the same to it."""
    return without_null_arrays(schema, as_avro(schema, document))


def without_null_arrays(schema: ConnectSchema, value: Any) -> Any:
    """Null arrays are empty."""
    match schema["type"]:
        case "array":
            return [without_null_arrays(schema["items"], each) for each in value or []]
        case "struct" if value is not None:
            return {each["field"]: without_null_arrays(each, value[each["field"]]) for each in schema["fields"]}
        case _:
            return value


def check(schema: ConnectSchema, document: Any, *, separators: tuple[str, str] = (",", ":")) -> None:
    """Written and read again, it has the values of the JSON."""
    payload = json.dumps(document, separators=separators).encode()
    as_protobuf = protobuf_schema(schema)
    written = ProtobufWriter(schema, as_protobuf, b"!").write(payload)
    assert written[:1] == b"!"
    assert values(schema, parsed(str(as_protobuf), written[1:])) == expected(schema, document)


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


def test_an_end_of_a_transaction_has_the_same_values() -> None:
    """Its counts are structs in an array."""
    counts = [{"data_collection": f"shop.t{nth}", "event_count": nth} for nth in range(300)]

    check(TRANSACTION_VALUE, {"status": "END", "id": "x", "event_count": 3, "data_collections": counts, "ts_ms": 5})


@given(st.data(), st.sampled_from(every_kind()), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_a_value_of_any_type_is_the_same_in_json_and_protobuf(
    data: st.DataObject, field: ConnectSchema, separators: tuple[str, str]
) -> None:
    """Property: of any type, with any value, spaces or none."""
    schema = struct_of(field)

    check(schema, data.draw(values_of(schema)), separators=separators)


@given(st.permutations(["a", "b", "c"]), st.sets(st.sampled_from(["a", "c"])))
def test_members_may_come_in_any_order_and_null_ones_not_at_all(order: list[str], missing: set[str]) -> None:
    """A projection may have moved them."""
    schema = struct_of(plain("a", "int32", optional=True), plain("b", "string"), plain("c", "int64", optional=True))
    document = {name: value for name in order if name not in missing for value in ({"a": 0, "b": "x", "c": -2}[name],)}

    check(schema, document)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 16_383, 16_384, 2_100_000])
def test_a_message_of_any_size_has_its_size_in_front(size: int) -> None:
    """The size is known only after the message is written: one byte more for each seven bits."""
    inner = {**struct_of(plain("a", "string")), "field": "inner", "name": "a.Inner"}

    check(struct_of(inner, plain("b", "int32")), {"inner": {"a": "x" * size}, "b": 1})


def test_null_zero_and_empty_are_three_things() -> None:
    """NULL is a field that is not there; zero is written."""
    schema = struct_of(*(plain(name, kind, optional=True) for name, kind in (("a", "int32"), ("b", "string"))))
    text = str(protobuf_schema(schema))
    writer = ProtobufWriter(schema, protobuf_schema(schema))

    nulls, zeros = (parsed(text, writer.write(each)) for each in (b'{"a":null,"b":null}', b'{"a":0,"b":""}'))

    assert [nulls.HasField(name) for name in "ab"] == [False, False]
    assert [zeros.HasField(name) for name in "ab"] == [True, True]


def test_it_is_the_registered_numbers_that_are_written() -> None:
    """Not the places in the newest table."""
    old = protobuf_schema(struct_of(plain("gone", "int32"), plain("a", "int32")))
    schema = struct_of(plain("new", "int32"), plain("a", "int32"))

    written = ProtobufWriter(schema, numbered(protobuf_schema(schema), [old])).write(b'{"new":1,"a":2}')

    assert written == bytes((3 << 3, 1, 2 << 3, 2))


def test_bytes_that_the_log_does_not_hold_are_the_placeholder() -> None:
    """Debezium's text for that, as its bytes; in a text it stands as it is."""
    schema = struct_of(plain("a", "bytes"), plain("b", "string"))

    check(schema, {"a": UNAVAILABLE_VALUE, "b": UNAVAILABLE_VALUE})


@pytest.mark.parametrize(
    ("connect_type", "payload", "reason"),
    [
        ("int32", b'{"a":2147483648}', "32-bit"),
        ("int32", b'{"a":"__debezium_unavailable_value"}', "Protobuf has no word"),
        ("bytes", b'{"a":"abc"}', "base64"),
        ("string", b'{"a":null}', "is null"),
        ("string", b'{"a":"x","b":1}', "a member that its schema does not have"),
        ("string", b"{}", "lacks 'a'"),
        ("string", b"[]", "an object"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(connect_type: str, payload: bytes, reason: str) -> None:
    """As in Avro, whose walk it shares."""
    schema = struct_of(plain("a", connect_type))
    with pytest.raises(InvalidEvent, match=reason):
        ProtobufWriter(schema, protobuf_schema(schema)).write(payload)


def test_a_null_in_an_array_is_refused() -> None:
    """A repeated field has no place for it."""
    schema = struct_of(plain("a", "array", items={"type": "string", "optional": True}))
    with pytest.raises(InvalidEvent, match="'a' is null"):
        ProtobufWriter(schema, protobuf_schema(schema)).write(b'{"a":["x",null]}')


@given(st.binary(max_size=60) | st.text('{}[]":,a1\\u. ', max_size=40).map(str.encode))
def test_no_bytes_are_read_beyond_their_end(payload: bytes) -> None:
    """Any bytes give a value, or InvalidEvent."""
    inner = {**struct_of(plain("a", "bytes", optional=True)), "name": "a.Inner", "optional": True}
    schema = struct_of(plain("a", "array", items=inner), {**inner, "field": "b"})
    writer = ProtobufWriter(schema, protobuf_schema(schema))
    for wrapped in (payload, b'{"a":' + payload, b'{"a":[{"a":' + payload, b'{"a":[],"b":' + payload):
        try:
            writer.write(wrapped)
        except InvalidEvent:
            continue


def test_a_writer_goes_on_after_a_refusal() -> None:
    """A half-written value is gone."""
    schema = struct_of(plain("a", "int32"))
    writer = ProtobufWriter(schema, protobuf_schema(schema), b"!")
    with pytest.raises(InvalidEvent):
        writer.write(b'{"a":"x"}')

    assert writer.write(b'{"a":1}') == b"!\x08\x01"


def test_a_decimal_is_confluents_message() -> None:
    """Unscaled bytes, precision and scale, so that a reader needs no schema of Connect's."""
    field = {"type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal", "field": "a"}
    schema = struct_of({**field, "parameters": {"scale": "2", "connect.decimal.precision": "10"}})
    payload = json.dumps({"a": base64.b64encode((-12345).to_bytes(2, "big", signed=True)).decode()}).encode()

    message = parsed(str(protobuf_schema(schema)), ProtobufWriter(schema, protobuf_schema(schema)).write(payload))

    decimal = message.a  # type: ignore[attr-defined]
    assert int.from_bytes(decimal.value, "big", signed=True) == -12345
    assert (decimal.precision, decimal.scale) == (10, 2)
