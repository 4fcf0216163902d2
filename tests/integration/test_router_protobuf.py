"""Protobuf for a tenant, over a real Kafka and a real schema registry; read by Confluent's own deserializer."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka.schema_registry import ConfigCompatibilityLevel, SchemaRegistryClient, ServerConfig
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from google.protobuf.message import Message

from libs.events.dead_letter import decode_dead_letter
from libs.formats.connect_schema import key_schema, value_schema
from libs.formats.protobuf_schema import read_protobuf_schema
from libs.types.table import Column
from libs.types.value import LogicalKind
from tests.conftest import RegistryServer
from tests.integration.router_rig import column, orders_schema, read_topic, record_schema
from tests.integration.test_router import Setting, setting  # noqa: F401 - a fixture
from tests.integration.test_router_avro import creates, fits
from tests.protobuf_messages import message_class
from tests.unit.events.golden import records, table_schemas
from tests.unit.formats.test_protobuf_writer import expected, values
from tests.waiting import wait_until

PROTOBUF = {"format": {"kind": "protobuf"}, "sink": None}


@pytest.fixture
def rig(setting: Setting, schema_registry: RegistryServer) -> Setting:  # noqa: F811
    """A router that knows the registry."""
    setting.router.settings = {**setting.router.settings, "schema_registry": {"url": schema_registry.url}}
    return setting


@pytest.fixture
def client(schema_registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    """A consumer's client of the registry, which has seen nothing yet."""
    with SchemaRegistryClient({"url": schema_registry.url}) as opened:
        yield opened


def schema_text(client: SchemaRegistryClient, written: bytes) -> str:
    """The registered schema that an event names."""
    return str(client.get_schema(int.from_bytes(written[1:5], "big")).schema_str)


def read(client: SchemaRegistryClient, written: bytes, text: str | None = None) -> Message:
    """An event by its own schema, or by that which a consumer was built with."""
    made = message_class(text or schema_text(client, written))
    # Without the client: it would ask for a serialized descriptor, which Apicurio does not give.
    deserialize = ProtobufDeserializer(made, {"use.deprecated.format": False})
    message = deserialize(written, None)  # type: ignore[arg-type]
    assert isinstance(message, Message)
    return message


def column_numbers(client: SchemaRegistryClient, written: bytes) -> dict[str, int]:
    """The numbers of a row's columns."""
    row = read_protobuf_schema(schema_text(client, written)).message.message("Value")
    return {field.name: field.number for field in row.fields}


def read_ids(client: SchemaRegistryClient, messages: Sequence[Any]) -> list[int]:
    """The ids of the created rows, as a consumer reads them."""
    return [read(client, message.value()).after.id for message in messages]  # type: ignore[attr-defined]


def record(rig: Setting, *columns: Column, rank: int) -> int:
    """``shop.orders`` has these columns from now on, beside the first ones; the version."""
    history = rig.services.schema_history.client_settings
    return asyncio.run(record_schema(history, rig.source.name, orders_schema(*columns), rank=rank))


def publish(rig: Setting, numbers: Sequence[int], version: int = 1, **more: object) -> None:
    """Created orders of a table version."""
    rig.source.run(creates(numbers, **more), version=version)
    rig.source.publish()


def test_a_consumer_reads_the_values_of_the_json_form(rig: Setting, client: SchemaRegistryClient) -> None:
    """Every type that Debezium recorded: keys, rows, tombstones, headers; the other tenant has JSON as ever."""
    schema = next(table_schemas("all_types"))
    plain, protobuf = rig.write_tenant("plain", sink=None), rig.write_tenant("protobuf", **PROTOBUF)
    asyncio.run(record_schema(rig.services.schema_history.client_settings, rig.source.name, schema))
    recorded = [each for each in records("v1.smp.all_types") if each["value"] is not None]
    recorded = [each for each in recorded if fits(schema, each["value"]["payload"])]
    rows = [
        (each["value"]["payload"]["op"], *(json.dumps(each[side]["payload"]).encode() for side in ("key", "value")))
        for each in recorded
    ]
    rig.source.run(rows, table=schema.table_id)
    rig.source.publish()
    rig.router.start()
    events = len(rows) + sum(op == "d" for op, _, _ in rows)

    as_json = rig.read(rig.topic(plain, "smp.all_types"), events)
    as_protobuf = rig.read(rig.topic(protobuf, "smp.all_types"), events)

    of_key, of_value = key_schema("s", schema), value_schema("s", schema)
    assert of_key is not None
    assert len(rows) > 5
    assert len(as_protobuf) == len(as_json) == events > len(rows)
    for ours, theirs in zip(as_protobuf, as_json, strict=True):
        assert values(of_key, read(client, ours.key())) == expected(of_key, json.loads(theirs.key()))
        if theirs.value() is None:
            assert ours.value() is None
        else:
            assert values(of_value, read(client, ours.value())) == expected(of_value, json.loads(theirs.value()))
        assert ours.headers() == theirs.headers()


def test_a_column_keeps_its_number_through_all_versions(rig: Setting, client: SchemaRegistryClient) -> None:
    """Added, dropped, renamed, and a router that restarts and knows nothing but the registry; a consumer that was built with
    the first schema reads every row."""
    topic = rig.topic(rig.write_tenant("protobuf", **PROTOBUF))
    note, memo = (column(name, LogicalKind.STRING, "varchar(50)") for name in ("note", "memo"))
    publish(rig, [1])
    rig.router.start()
    first = rig.read(topic, 1)[0].value()
    with_note = record(rig, note, rank=9)
    publish(rig, [2], with_note, note="new")
    second = rig.read(topic, 2)[1].value()
    without = record(rig, rank=19)
    publish(rig, [3], without)
    third = rig.read(topic, 3)[2].value()
    rig.router.stop()
    for notes in rig.router.folder.rglob("schema-ids.jsonl"):
        notes.unlink()
    rig.router.start()
    renamed = record(rig, memo, rank=29)
    publish(rig, [4], renamed, memo="newer")
    publish(rig, [5], with_note, note="late")

    messages = rig.read(topic, 5)

    base = column_numbers(client, first)
    fresh = max(base.values()) + 1
    assert column_numbers(client, second) == {**base, "note": fresh}
    assert third[:6] == first[:6]
    assert column_numbers(client, messages[3].value()) == {**base, "memo": fresh + 1}
    assert f"reserved {fresh};" in schema_text(client, messages[3].value())
    assert messages[4].value()[:6] == second[:6]
    assert client.get_versions(f"{topic}-value") == [1, 2, 3]
    assert len({message.key()[:6] for message in messages}) == 1
    assert read_ids(client, messages) == [1, 2, 3, 4, 5]
    old = schema_text(client, first)
    assert [read(client, each.value(), old).after.id for each in messages] == [1, 2, 3, 4, 5]  # type: ignore[attr-defined]
    assert read(client, messages[4].value()).after.note == "late"  # type: ignore[attr-defined]


def test_a_refused_schema_hurts_its_tenant_alone(rig: Setting, client: SchemaRegistryClient) -> None:
    """Apicurio will not have a column of another type under BACKWARD: those rows are set aside, all others arrive; once the
    subject is relaxed, the rows that come are delivered, their column under a number of its own."""
    good, bad = rig.write_tenant("good", sink=None), rig.write_tenant("bad", **PROTOBUF)
    topic = rig.topic(bad)
    version = record(rig, column("note", LogicalKind.STRING, "varchar(50)"), rank=9)
    publish(rig, [1], version, note="x")
    rig.router.start()
    assert read_ids(client, rig.read(topic, 1)) == [1]
    client.set_config(f"{topic}-value", ServerConfig(compatibility=ConfigCompatibilityLevel.BACKWARD))
    version = record(rig, column("note", LogicalKind.FLOAT64, "double"), rank=19)
    publish(rig, [2], version, note=2.5)

    (letter,) = [decode_dead_letter(message.value()) for message in rig.read(f"{bad}.dead-letter", 1)]

    assert (letter.topic, letter.is_withheld) == (topic, True)
    assert "incompatible with the older ones" in letter.reason
    assert len(rig.read(rig.topic(good), 2)) == 2
    assert len(read_topic(rig.services.bootstrap_servers, topic)) == 1
    wait_until(
        lambda: rig.router.get("/readyz")[1].startswith("degraded: subject "),
        because="the refused subject is reported",
        seen=lambda: rig.router.get("/readyz"),
    )

    client.set_config(f"{topic}-value", ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
    rig.write_tenant("bad", **PROTOBUF, topics={"transactions": True})  # else it is asked again within a minute
    wait_until(
        lambda: rig.router.log_text.count('"event": "tenants_loaded"') == 2,
        because="the new document is in force",
        seen=lambda: rig.router.log_text[-3000:],
    )
    publish(rig, [3], version, note=3.5)

    first, last = rig.read(topic, 2)
    assert column_numbers(client, last.value())["note"] == column_numbers(client, first.value())["note"] + 1
    assert read(client, last.value()).after.note == 3.5  # type: ignore[attr-defined]


@pytest.mark.rest(
    because="test_router_avro.py: a registry that is away; unit/router/test_protobuf.py: test_numbers_are_known_while…"
)
def test_known_numbers_go_on_while_the_registry_is_away(
    rig: Setting, schema_registry: RegistryServer, client: SchemaRegistryClient
) -> None:
    """Also through a restart; the rows have the ids and numbers that they had."""
    topic = rig.topic(rig.write_tenant("protobuf", **PROTOBUF))
    publish(rig, [1])
    rig.router.start()
    rig.read(topic, 1)
    schema_registry.kill()
    try:
        rig.router.stop()
        rig.router.start()
        publish(rig, [2])
        first, second = rig.read(topic, 2)
    finally:
        schema_registry.restart()

    assert first.value()[:6] == second.value()[:6]
    assert read_ids(client, [first, second]) == [1, 2]
