"""How far a mesh elsewhere has got, on a real Kafka: readers by their checkpoints, sinks by their tables' commits."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer

from libs.check.cluster_hops import ClusterHops
from libs.config.connections import KafkaSettings
from libs.config.load import Secret
from libs.events.checkpoint_codec import checkpoint_key, encode_checkpoint
from libs.events.names import CHECKPOINTS_TOPIC, SINK_HANDOVERS_TOPIC, row_topic
from libs.kafka.clients import TopicSpec, client_config, ensure_topics
from libs.kafka.sink_handovers import sink_handovers_topic
from libs.mesh.documents import DatabaseDocument, MysqlDocument
from libs.mesh.recorded_checkpoints import RecordedCheckpoints
from libs.mesh.recorded_sink_reports import RecordedSinkReports
from libs.mesh.tenant_topics import open_consumer
from libs.telemetry.faults import TABLE_PARKED, fault_of
from libs.types.checkpoint import Checkpoint, FencingToken
from libs.types.fault import FaultScope
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from libs.types.sink_place import SinkFaults, encode_faults, faults_key
from libs.types.table import TableId
from libs.types.tenant import SinkSettings, SourceSelection, TenantSpec
from libs.warehouse_readers.table_progress import progress_table
from tests.conftest import MysqlServer


def written(kafka: KafkaSettings, topic: str, *records: tuple[bytes, bytes | None]) -> None:
    producer = Producer(client_config(kafka))
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(60) == 0


def checkpoint(source: str, token: bytes) -> Checkpoint:
    return Checkpoint(
        partition=SourcePartition(source=source, name="0"),
        position=SourcePosition(source_kind="mysql", token=token),
        order=EventOrder(epoch=0, rank=1, tx_ordinal=0),
        fencing_token=FencingToken(1),
        committed_at_us=0,
        published_at_us=0,
    )


def test_the_newest_checkpoint_is_seen_without_reading_all_again(
    bootstrap_servers: str, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, source = KafkaSettings(bootstrap_servers=bootstrap_servers), unique_name("shop")
    ensure_topics(kafka, [TopicSpec(name=CHECKPOINTS_TOPIC)])
    recorded = RecordedCheckpoints(kafka)
    assert recorded.by_source([source]) == {source: None}

    first, second = checkpoint(source, b"1"), checkpoint(source, b"2")
    key = checkpoint_key(first.partition)
    written(kafka, CHECKPOINTS_TOPIC, (key, encode_checkpoint(first)), (b"lease/" + key, b"\x01"))
    assert recorded.by_source([source]) == {source: [first]}

    taken = []
    take = recorded._take
    monkeypatch.setattr(recorded, "_take", lambda key, value: (taken.append(key), take(key, value)))
    written(kafka, CHECKPOINTS_TOPIC, (key, encode_checkpoint(second)))
    assert recorded.by_source([source]) == {source: [second]}
    assert taken.count(key) == 1


class Told:
    """A warehouse whose table's newest commit says ``offsets``."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.offsets = '{"0": 0}'
        self.asked = 0

    def load(self, _place: object) -> None:
        return None

    def progress(self, _tables: object) -> Any:
        self.asked += 1
        return progress_table([{"source": "shop", "table": self.table, "offsets": self.offsets}])


def test_a_sink_is_behind_until_its_tables_commits_say_otherwise(
    bootstrap_servers: str, mysql_server: MysqlServer, unique_name: Callable[[str], str]
) -> None:
    """A tombstone is taken in by nobody; later events are not waited for; tables that nobody compares are not asked for."""
    kafka, database = KafkaSettings(bootstrap_servers=bootstrap_servers), unique_name("hops")
    tenant = unique_name("acme").replace("_", "-")
    mysql_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.notes (id INT PRIMARY KEY)",
    )
    topics = {name: row_topic(tenant, "shop", TableId(database=database, table=name)) for name in ("orders", "notes")}
    ensure_topics(kafka, [TopicSpec(name=topic) for topic in topics.values()])
    for topic in topics.values():
        written(kafka, topic, (b"1", b"row"), (b"2", b"row"), (b"2", None))
    where = DatabaseDocument(host=mysql_server.host, port=mysql_server.port, user="root", password=Secret(""))
    warehouse = Told(f"{database}.orders")
    hops = ClusterHops(
        kafka,
        {"shop": MysqlDocument(database=where, include_tables=(rf"{database}\..*",))},
        lambda _: warehouse,
        lambda table: table.table == "orders",
        RecordedCheckpoints(kafka),
    )
    spec = TenantSpec(
        tenant=tenant, sources=(SourceSelection(name="shop"), SourceSelection(name="web")), sink=SinkSettings()
    )

    with closing(open_consumer(kafka)) as consumer:
        look = hops.sink_hop(consumer, spec)
        assert str(look()) == f"table {tenant}.shop.{database}.orders is behind by at most 3 event(s)"
        warehouse.offsets = '{"0": 1}'
        assert str(look()).endswith("at most 2 event(s)")
        written(kafka, topics["orders"], (b"3", b"row"))
        warehouse.offsets = '{"0": 2}'
        assert look() is None
        asked = warehouse.asked
        assert look() is None

    assert warehouse.asked == asked


def test_a_table_that_its_job_reports_as_parked_is_named_and_not_waited_for(
    bootstrap_servers: str, mysql_server: MysqlServer, unique_name: Callable[[str], str]
) -> None:
    """Until the job reports that it is over; a report of another tenant's job does not count."""
    kafka, database = KafkaSettings(bootstrap_servers=bootstrap_servers), unique_name("parked")
    tenant = unique_name("acme").replace("_", "-")
    mysql_server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)")
    topic = row_topic(tenant, "shop", TableId(database=database, table="orders"))
    ensure_topics(kafka, [TopicSpec(name=topic), sink_handovers_topic(1)])
    written(kafka, topic, (b"1", b"row"))
    where = DatabaseDocument(host=mysql_server.host, port=mysql_server.port, user="root", password=Secret(""))
    warehouse, sink_faults = Told(f"{database}.orders"), RecordedSinkReports(kafka)
    hops = ClusterHops(
        kafka,
        {"shop": MysqlDocument(database=where, include_tables=(rf"{database}\..*",))},
        lambda _: warehouse,
        lambda _: True,
        RecordedCheckpoints(kafka),
        lambda of: RecordedSinkReports(kafka).parked_tables(of),
    )
    spec = TenantSpec(tenant=tenant, sources=(SourceSelection(name="shop"),), sink=SinkSettings())
    key = faults_key(tenant, "u", "packed-0").encode()
    scope = FaultScope(source="shop", tenant=tenant, table=f"{database}.orders")
    report = SinkFaults(faults=(fault_of(TABLE_PARKED, scope, happened="65 digits do not fit", since_us=1),))
    written(kafka, SINK_HANDOVERS_TOPIC, (faults_key(f"{tenant}x", "u", "packed-0").encode(), encode_faults(report)))

    with closing(open_consumer(kafka)) as consumer:
        assert "behind by at most 1 event" in str(hops.sink_hop(consumer, spec)())
        written(kafka, SINK_HANDOVERS_TOPIC, (key, encode_faults(report)))
        assert hops.sink_hop(consumer, spec)() is None
        assert sink_faults.parked_tables(tenant) == {("shop", f"{database}.orders"): "65 digits do not fit"}
        written(kafka, SINK_HANDOVERS_TOPIC, (key, None))
        assert "behind by at most 1 event" in str(hops.sink_hop(consumer, spec)())
