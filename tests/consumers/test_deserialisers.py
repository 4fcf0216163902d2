"""Confluent's and Apicurio's deserialisers on a tenant's Avro topic, over a real schema registry."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pytest
from confluent_kafka import Message
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.conftest import RegistryServer
from tests.consumers import every_type
from tests.consumers.conftest import Publish
from tests.consumers.java import java
from tests.consumers.published import payload_of
from tests.consumers.semantics import Field, fields_of, read

pytestmark = pytest.mark.rest(because="integration/test_router_avro.py reads by Confluent's deserialiser")
FORMATS: Final = {
    "whole": {"sink": None, "format": {"schemas": True}},
    "avro": {"sink": None, "format": {"kind": "avro"}},
}
MODES: Final = {
    "default": {"unsigned_bigint": "precise"},
    "connect": {"time_precision": "connect"},
}
Image = dict[str, Any] | None
Event = tuple[Image, Image]
"""Before and after."""


@pytest.mark.parametrize("mode", MODES)
def test_deserialisers_read_the_sources_rows(publish: Publish, schema_registry: RegistryServer, mode: str) -> None:
    """Each event in JSON, by Confluent's client and by Apicurio's is the same, and together they are the source's rows."""
    source = publish(MODES[mode], FORMATS, schema_registry=schema_registry.url)
    events = [json.loads(record.value()) for record in source.records("whole") if record.value() is not None]
    fields = fields_of(events[-1])
    records = source.records("avro")
    expected = every_type.in_modes(source.stored(), MODES[mode])

    from_json = [_event(fields, payload_of(record)) for record in source.records("whole")]
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        from_confluent = [_event(fields, each) for each in _by_confluent(client, source.topic("avro"), records)]
    from_apicurio = [_event(fields, each) for each in _by_apicurio(schema_registry.url, source.topic("avro"), records)]

    assert every_type.differences(_rows(from_json, expected), expected) == []
    assert from_confluent == from_json
    assert from_apicurio == from_json


def _event(fields: Mapping[str, Field], payload: Mapping[str, Any] | None) -> Event | None:
    if payload is None:
        return None
    before, after = (_image(fields, payload[image]) for image in ("before", "after"))
    return before, after


def _image(fields: Mapping[str, Field], image: Mapping[str, Any] | None) -> Image:
    if image is None:
        return None
    return every_type.plain({name: read(fields[name], value) for name, value in image.items()})


def _rows(events: Iterable[Event | None], expected: Mapping[int, every_type.Row]) -> dict[int, every_type.Row]:
    """The rows after all events; of one that is older than the last column its fill, which no event has."""
    rows: dict[int, every_type.Row] = {}
    for event in events:
        match event:
            case (None, after) | (dict(), dict() as after):
                assert after is not None
                rows[after["id"]] = after
            case (dict() as before, None):
                del rows[before["id"]]
    return {key: {"extra": expected[key]["extra"], **row} for key, row in rows.items()}


def _by_confluent(client: SchemaRegistryClient, topic: str, records: Iterable[Message]) -> list[Any]:
    deserialize = AvroDeserializer(client)
    context = SerializationContext(topic, MessageField.VALUE)
    return [deserialize(record.value(), context) for record in records]


def _by_apicurio(url: str, topic: str, records: Iterable[Message]) -> list[Any]:
    """By Apicurio's own interface, and its Avro deserialiser as a consumer of Kafka configures it."""
    settings = {
        "apicurio.registry.url": url.replace("/apis/ccompat/v7", "/apis/registry/v3"),
        "apicurio.registry.use-id": "contentId",
    }
    with java("apicurio-serde", "--add-opens=java.base/java.nio=ALL-UNNAMED") as jvm:
        deserializer = jvm.io.apicurio.registry.serde.avro.AvroKafkaDeserializer()
        deserializer.configure(settings, False)
        read_record: Callable[[Any], Any] = deserializer.deserialize
        found = [
            None if record.value() is None else _of_avro(read_record(topic, bytearray(record.value())))
            for record in records
        ]
        deserializer.close()
    return found


def _of_avro(value: Any) -> Any:
    """A value of Avro's Java in Python's."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    kind = value.getClass().getName()
    if kind.endswith("GenericData$Record"):
        return {
            field.name(): _of_avro(value.get(field.name()))
            for field in value.getSchema().getFields()
            if field.name() in ("before", "after") or value.getSchema().getName() == "Value"
        }
    return bytes(value.array()) if "ByteBuffer" in kind else value.toString()
