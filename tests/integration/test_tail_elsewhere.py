"""``headwater tail --mesh``: the events of a tenant whose document no command sees, on a real Kafka."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer

from libs.config.connections import KafkaSettings
from libs.events.delivered_schema import DeliveredSchema, encode_delivered_schema
from libs.events.names import dead_letter_topic, table_schemas_topic
from libs.kafka.clients import TopicSpec, client_config, ensure_topics
from libs.types.table import TableId
from tests.headwater_command import run_here
from tests.integration.router_rig import orders_schema


@pytest.mark.parametrize("layout", ["per_table", "per_tenant"])
def test_events_are_shown_without_the_tenants_document(
    bootstrap_servers: str, unique_name: Callable[[str], str], tmp_path: Path, layout: str
) -> None:
    """Of the named table alone, also where a topic holds several: of such a topic the router announces no schema."""
    kafka, tenant = KafkaSettings(bootstrap_servers=bootstrap_servers), unique_name("acme").replace("_", "-")
    tables = [TableId(database="shop", table=name) for name in ("orders", "notes")]
    topics = {table: f"{tenant}.rows" if layout == "per_tenant" else f"{tenant}.shop.{table}" for table in tables}
    names = {*topics.values(), dead_letter_topic(tenant), table_schemas_topic(tenant)}
    ensure_topics(kafka, [TopicSpec(name=name) for name in sorted(names)])
    producer = Producer(client_config(kafka))
    for number, table in enumerate(tables):
        if layout == "per_table":
            schema = msgspec.structs.replace(orders_schema(), table_id=table)
            announced = DeliveredSchema(topic=topics[table], source="shop", table_schema=schema)
            producer.produce(table_schemas_topic(tenant), encode_delivered_schema(announced))
        event = {
            "before": None,
            "after": {"id": number},
            "source": {"name": "shop", "db": "shop", "table": table.table, "ts_ms": 1_764_300_000_000},
            "op": "c",
        }
        producer.produce(topics[table], json.dumps(event), json.dumps({"id": number}))
    assert producer.flush(60) == 0
    file = tmp_path / "mesh.yaml"
    file.write_text(f"kafka: {{bootstrap_servers: '{bootstrap_servers}'}}\n")
    mesh = ("--mesh", str(file))

    shown = run_here("tail", tenant, "notes", "--from-beginning", "-n", "1", *mesh)
    record = run_here("tail", tenant, "shop.orders", "--from-beginning", "-n", "1", "--json", *mesh)
    unknown = run_here("tail", f"{tenant}-x", "orders", *mesh)

    assert "INSERT  id=1" in shown.output, shown.output
    assert json.loads(record.stdout)["value"]["after"] == {"id": 0}
    assert (unknown.exit_code, f"did you mean '{tenant}'" in unknown.stderr) == (2, True)
