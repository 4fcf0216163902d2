"""Avro for a tenant, over a real Kafka and a real schema registry; read by Confluent's own deserializer."""

import asyncio
import base64
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import ConfigCompatibilityLevel, SchemaRegistryClient, ServerConfig
from confluent_kafka.schema_registry.avro import AvroDeserializer

from libs.events.dead_letter import decode_dead_letter
from libs.formats.connect_schema import ConnectSchema, key_schema, value_schema
from libs.types.table import TableSchema
from libs.types.value import LogicalKind
from tests.conftest import RegistryServer
from tests.integration.router_rig import (
    column,
    decoded,
    header,
    order_row,
    orders_schema,
    read_topic,
    record_schema,
)
from tests.integration.test_router import Setting, setting  # noqa: F401 - a fixture
from tests.unit.events.golden import records, table_schemas
from tests.waiting import wait_until

AVRO = {"format": {"kind": "avro"}, "sink": None}


@pytest.fixture
def avro_setting(setting: Setting, schema_registry: RegistryServer) -> Setting:  # noqa: F811
    """A router that knows the registry."""
    setting.router.settings = {**setting.router.settings, "schema_registry": {"url": schema_registry.url}}
    return setting


@pytest.fixture
def client(schema_registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    """A consumer's client of the registry, which has seen nothing yet."""
    with SchemaRegistryClient({"url": schema_registry.url}) as opened:
        yield opened


def whole_event(op: str, before: object, after: object) -> bytes:
    """Debezium's payload with all that its schema asks for."""
    source = records("v1.smp.no_pk")[0]["value"]["payload"]["source"]
    event = {"before": before, "after": after, "source": source, "transaction": None, "op": op}
    return json.dumps(event | {"ts_ms": 2, "ts_us": 2_000, "ts_ns": 2_000_000}).encode()


def creates(numbers: Sequence[int], **more: object) -> list[tuple[str, bytes, bytes]]:
    """Rows of a run of created orders."""
    return [("c", b'{"id":%d}' % number, whole_event("c", None, {**order_row(number), **more})) for number in numbers]


def as_read(schema: ConnectSchema, value: Any) -> Any:
    """A JSON value as Confluent's deserializer gives the same in Avro: bytes for base64, a Decimal for a decimal."""
    if value is None:
        return None
    match schema["type"]:
        case "struct":
            return {field["field"]: as_read(field, value.get(field["field"])) for field in schema["fields"]}
        case "array":
            return [pytest.approx(item, rel=1e-6) for item in value]
        case "bytes" if "Decimal" in schema.get("name", ""):
            unscaled = int.from_bytes(base64.b64decode(value), "big", signed=True)
            scale = int(schema["parameters"]["scale"])
            return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
        case "bytes":
            return decoded(value)
        case "float":
            return pytest.approx(value, rel=1e-6)
        case _:
            return value


def read_ids(client: SchemaRegistryClient, messages: Sequence[Any]) -> list[int]:
    """The ids of the created rows, as a consumer reads them."""
    read = AvroDeserializer(client)
    values = [read(message.value(), None) for message in messages]  # type: ignore[arg-type]
    return [value["after"]["id"] for value in values if value is not None]  # type: ignore[index]


def new_version(setting: Setting, *, rank: int, **column_options: Any) -> int:  # noqa: F811
    """``shop.orders`` gets a column; the version."""
    schema = orders_schema(column("note", LogicalKind.STRING, "varchar(50)", **column_options))
    history = setting.services.schema_history.client_settings
    return asyncio.run(record_schema(history, setting.source.name, schema, rank=rank))


def test_a_consumer_reads_the_values_of_the_json_form(avro_setting: Setting, client: SchemaRegistryClient) -> None:
    """Every type that Debezium recorded: keys, rows, tombstones, headers; the other tenant has JSON as ever."""
    rig, schema = avro_setting, next(table_schemas("all_types"))
    plain, avro = rig.write_tenant("plain", sink=None), rig.write_tenant("avro", **AVRO)
    asyncio.run(record_schema(rig.services.schema_history.client_settings, rig.source.name, schema))
    recorded = [record for record in records("v1.smp.all_types") if record["value"] is not None]
    recorded = [record for record in recorded if fits(schema, record["value"]["payload"])]
    rows = [
        (each["value"]["payload"]["op"], *(json.dumps(each[side]["payload"]).encode() for side in ("key", "value")))
        for each in recorded
    ]
    rig.source.run(rows, table=schema.table_id)
    rig.source.publish()
    rig.router.start()
    deletes = sum(op == "d" for op, _, _ in rows)

    as_json = rig.read(rig.topic(plain, "smp.all_types"), len(rows) + deletes)
    as_avro = rig.read(rig.topic(avro, "smp.all_types"), len(rows) + deletes)

    read, of_key, of_value = AvroDeserializer(client), key_schema("s", schema), value_schema("s", schema)
    assert of_key is not None
    assert len(rows) > 5
    assert deletes
    assert len(as_avro) == len(as_json) == len(rows) + deletes
    for ours, theirs in zip(as_avro, as_json, strict=True):
        assert read(ours.key(), None) == as_read(of_key, json.loads(theirs.key()))  # type: ignore[arg-type]
        if theirs.value() is None:
            assert ours.value() is None
        else:
            assert read(ours.value(), None) == as_read(of_value, json.loads(theirs.value()))  # type: ignore[arg-type]
        assert ours.headers() == theirs.headers()
    assert header(as_avro[0], "headwater.schema-version") == b"1"


def fits(schema: TableSchema, payload: dict[str, Any]) -> bool:
    """The event is of the first version."""
    image = payload["after"] or payload["before"]
    return {each.name for each in schema.columns} == set(image or ())


def test_a_version_is_registered_once_whoever_restarts(avro_setting: Setting, client: SchemaRegistryClient) -> None:
    """A new column is a new version of the subject; the key's schema stays; a restarted router adds nothing."""
    rig = avro_setting
    tenant = rig.write_tenant("avro", **AVRO)
    topic = rig.topic(tenant)
    rig.source.run(creates([1]))
    rig.source.publish()
    rig.router.start()
    assert read_ids(client, rig.read(topic, 1)) == [1]
    version = new_version(rig, rank=9)
    rig.source.run(creates([2], note="new"), version=version)
    rig.source.publish()
    assert read_ids(client, rig.read(topic, 2)) == [1, 2]
    rig.router.stop()
    rig.router.start()
    rig.source.run(creates([3], note=None), version=version)
    rig.source.publish()

    messages = rig.read(topic, 3)

    assert read_ids(client, messages) == [1, 2, 3]
    ids = [message.value()[:5] for message in messages]
    assert ids[0] != ids[1] == ids[2]
    assert len({message.key()[:5] for message in messages}) == 1
    assert (client.get_versions(f"{topic}-value"), client.get_versions(f"{topic}-key")) == ([1, 2], [1])


def test_a_refused_schema_hurts_its_tenant_alone(avro_setting: Setting, client: SchemaRegistryClient) -> None:
    """A NOT NULL column without a default is not backward compatible: those rows are set aside, all others arrive, everybody
    can see why; once the subject is relaxed, the rows that come are delivered."""
    rig = avro_setting
    good, bad = rig.write_tenant("good", sink=None), rig.write_tenant("bad", **AVRO)
    topic = rig.topic(bad)
    rig.source.run(creates([1]))
    rig.source.publish()
    rig.router.start()
    assert read_ids(client, rig.read(topic, 1)) == [1]
    client.set_config(f"{topic}-value", ServerConfig(compatibility=ConfigCompatibilityLevel.BACKWARD))
    version = new_version(rig, rank=9, is_optional=False)
    rig.source.run(creates([2], note="x"), version=version)
    rig.source.publish()

    (letter,) = [decode_dead_letter(message.value()) for message in rig.read(f"{bad}.dead-letter", 1)]

    assert (letter.topic, letter.is_withheld) == (topic, True)
    assert "incompatible with the older ones" in letter.reason
    assert "relax the subject's compatibility" in letter.reason
    assert len(rig.read(rig.topic(good), 2)) == 2
    assert len(read_topic(rig.services.bootstrap_servers, topic)) == 1
    wait_until(
        lambda: rig.router.get("/readyz")[1].startswith("degraded: subject "),
        because="the refused subject is reported",
        seen=lambda: rig.router.get("/readyz"),
    )
    assert rig.router.log_text.count('"event": "tenant_schema_refused"') == 1
    assert f'headwater_tenant_schemas_refused_total{{tenant="{bad}"}} 1.0' in rig.router.get("/metrics")[1]

    client.set_config(f"{topic}-value", ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
    rig.write_tenant("bad", **AVRO, topics={"transactions": True})  # else it is asked again within a minute
    wait_until(
        lambda: rig.router.log_text.count('"event": "tenants_loaded"') == 2,
        because="the new document is in force",
        seen=lambda: rig.router.log_text[-3000:],
    )
    rig.source.run(creates([3], note="y"), version=version)
    rig.source.publish()

    assert read_ids(client, rig.read(topic, 2)) == [1, 3]


def test_while_the_registry_is_away_known_schemas_go_on_and_new_ones_wait(
    avro_setting: Setting, schema_registry: RegistryServer, client: SchemaRegistryClient
) -> None:
    """Nothing is lost or set aside, each row comes once, and nobody else waits."""
    rig = avro_setting
    tenant, other = rig.write_tenant("avro", **AVRO), rig.write_tenant("other", sink=None)
    topic = rig.topic(tenant)
    rig.source.run(creates([1]))
    rig.source.publish()
    rig.router.start()
    assert read_ids(client, rig.read(topic, 1)) == [1]
    schema_registry.kill()
    try:
        rig.source.run(creates([2]))
        rig.source.publish()
        assert len(rig.read(topic, 2)) == 2
        rig.router.stop()
        rig.router.start()  # it has notes of the registered schemas
        rig.source.run(creates([3]))
        rig.source.publish()
        assert len(rig.read(topic, 3)) == 3
        version = new_version(rig, rank=9)
        rig.source.run(creates([4], note="new"), version=version)
        rig.source.publish()
        assert len(rig.read(rig.topic(other), 4)) == 4
        wait_until(
            lambda: '"event": "tenant_stuck"' in rig.router.log_text,
            because="the tenant is stuck",
            seen=lambda: rig.router.log_text[-3000:],
        )
        wait_until(
            lambda: f"{tenant} lags alone: the schema registry" in rig.router.get("/readyz")[1],
            because="the registry is named",
            seen=lambda: rig.router.get("/readyz"),
        )
        rig.source.run(creates([5], note="newer"), version=version)
        rig.source.publish()
        assert len(rig.read(rig.topic(other), 5)) == 5
        assert len(read_topic(rig.services.bootstrap_servers, topic)) == 3
        wait_until(
            lambda: '"event": "tenant_records_refused"' in rig.router.log_text,
            because="a team would get a report",
            seen=lambda: rig.router.log_text[-3000:],
        )
        assert rig.router.is_running
    finally:
        schema_registry.restart()

    assert read_ids(client, rig.read(topic, 5)) == [1, 2, 3, 4, 5]
    wait_until(
        lambda: '"event": "tenant_records_accepted"' in rig.router.log_text,
        because="the records are accepted again",
        seen=lambda: rig.router.log_text[-3000:],
    )
    assert len(read_topic(rig.services.bootstrap_servers, rig.topic(other))) == 5
    assert read_topic(rig.services.bootstrap_servers, f"{tenant}.dead-letter") == []
