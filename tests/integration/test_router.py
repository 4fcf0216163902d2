"""The router over a real Kafka and the real schema_history and checkpoint_committer: the rows of each tenant, and their
form."""

import asyncio
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from libs.config.connections import GrpcClientSettings, KafkaSettings, WatchedService
from libs.events.dead_letter import decode_dead_letter
from libs.events.delivered_schema import decode_delivered_schema
from libs.events.names import changes_topic
from libs.kafka.clients import TopicSpec, ensure_topics
from libs.kafka.offset_note import note_of
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.rpc.faults_client import gather_faults
from libs.tenants.masks import decryption, format_restoring
from libs.types.fault import Fault
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from libs.types.tenant import PreservedFormat
from libs.types.value import LogicalKind
from tests.integration.router_rig import (
    ORDERS,
    ChangesSource,
    RouterProcess,
    column,
    created_ids,
    header,
    order_row,
    orders_schema,
    partitions_of,
    payloads,
    read_topic,
    read_until,
    record_schema,
    row_value,
)
from tests.integration.service_process import Services
from tests.waiting import wait_until


@dataclass(slots=True)
class Setting:
    """One test's source, tenants and router."""

    services: Services
    source: ChangesSource
    tenants_folder: Path
    router: RouterProcess
    suffix: str

    def tenant(self, stem: str) -> str:
        """A tenant's name of this test's own."""
        return f"{stem}-{self.suffix}"

    def write_tenant(self, stem: str, *, selection: dict[str, Any] | None = None, **document: Any) -> str:
        """A tenant's document; its name."""
        name = self.tenant(stem)
        content = {"tenant": name, "sources": [{"name": self.source.name, **(selection or {})}], **document}
        replacement = self.tenants_folder / f".{name}"
        replacement.write_text(yaml.safe_dump(content))
        replacement.replace(self.tenants_folder / f"{name}.yaml")
        return name

    def topic(self, tenant: str, table: str = "shop.orders") -> str:
        """A tenant's topic of a table."""
        return f"{tenant}.{self.source.name}.{table}"

    def read(self, topic: str, count: int) -> list[Any]:
        """The records of a topic once there are ``count``."""
        return read_until(self.services.bootstrap_servers, topic, lambda found: len(found) >= count)


def faults_of(router: RouterProcess) -> list[Fault]:
    """The page of a router; none while it does not answer."""
    return msgspec.json.decode(router.get("/faults")[1] or "[]", type=list[Fault])


@pytest.fixture
def setting(services: Services, tmp_path: Path, unique_name: Callable[[str], str]) -> Iterator[Setting]:
    """A source with ``shop.orders`` at version 1, and a router that is not started yet."""
    suffix = unique_name("t").removeprefix("t_")
    source = ChangesSource(services.bootstrap_servers, f"s{suffix}")
    folder = tmp_path / "tenants"
    folder.mkdir()
    settings = {
        "sources": [source.name],
        "group": f"router-{suffix}",
        "kafka": {"bootstrap_servers": services.bootstrap_servers},
        **services.addresses,
        "tenants_folder": str(folder),
        "progress_interval_s": 0.5,
    }
    router = RouterProcess(tmp_path / "router", settings)
    version = asyncio.run(record_schema(services.schema_history.client_settings, source.name, orders_schema()))
    assert version == 1
    yield Setting(services, source, folder, router, suffix)
    router.stop()


@pytest.mark.promise("once and in order")
def test_every_committed_event_arrives_once_and_in_order(setting: Setting) -> None:
    """Committed batches arrive whole and in order; aborted ones leave nothing."""
    tenant = setting.write_tenant("acme")
    setting.router.start()
    for first in range(0, 2000, 100):
        setting.source.creates(range(first, first + 100))
        setting.source.publish()
        setting.source.creates(range(90_000, 90_050))
        setting.source.publish(abort=True)

    messages = setting.read(setting.topic(tenant), 2000)

    assert created_ids(messages) == list(range(2000))
    orders = [header(message, "headwater.order") for message in messages]
    assert orders == sorted(orders)
    assert len(set(orders)) == 2000


@pytest.mark.promise("bytes untouched")
def test_event_of_a_transparent_tenant_is_the_readers_bytes_with_six_headers(setting: Setting) -> None:
    """Key and value are untouched; Debezium's context headers come first, then ours."""
    tenant = setting.write_tenant("acme")
    value = row_value("c", None, order_row(1))
    setting.source.run([("c", b'{"id":1}', value)])
    setting.source.publish()
    setting.router.start()

    (message,) = setting.read(setting.topic(tenant), 1)

    assert (message.key(), message.value()) == (b'{"id":1}', value)
    assert message.headers() == [
        ("__debezium.context.connectorLogicalName", setting.source.name.encode()),
        ("__debezium.context.taskId", b"0"),
        ("__debezium.context.connectorName", b"mysql"),
        ("__debezium.context.runId", b"run-1"),
        ("headwater.order", EventOrder(epoch=0, rank=1, tx_ordinal=1).sort_key().encode()),
        ("headwater.schema-version", b"1"),
    ]


@pytest.mark.promise("what a tenant gets")
def test_tenants_get_what_their_documents_say(setting: Setting) -> None:
    """Filter, mask, exclusion, schemas: each tenant has its own view of the same rows, and its own sinks' schema."""
    everything = setting.write_tenant("all", format={"schemas": True})
    europe = setting.write_tenant(
        "eu",
        selection={
            "row_filters": [{"tables": r"shop\.orders", "where": "region = 'EU'"}],
            "masks": [{"columns": r".*\.email", "hash": {"salt": "s"}}],
            "exclude_columns": [r"shop\.orders\.region"],
        },
    )
    nothing = setting.write_tenant("none", selection={"exclude_tables": [".*"]})
    setting.source.creates(range(10))
    setting.source.publish()
    setting.router.start()

    whole = setting.read(setting.topic(everything), 10)
    part = setting.read(setting.topic(europe), 5)

    assert [json.loads(message.value())["payload"]["after"] for message in whole] == [order_row(n) for n in range(10)]
    assert json.loads(whole[0].value())["schema"]["name"] == f"{setting.source.name}.shop.orders.Envelope"
    assert json.loads(whole[0].key())["payload"] == {"id": 0}
    assert [payload["after"] for payload in payloads(part)] == [
        {"id": n, "email": hashlib.sha256(f"s{n}@example.org".encode()).hexdigest()} for n in (1, 3, 5, 7, 9)
    ]
    assert read_topic(setting.services.bootstrap_servers, setting.topic(nothing)) == []
    (announced,) = setting.read(f"{europe}.headwater.table-schemas", 1)
    schema = decode_delivered_schema(announced.value())
    assert (schema.topic, schema.table_schema.version) == (setting.topic(europe), 1)
    assert [(item.name, item.logical_type.kind) for item in schema.table_schema.columns] == [
        ("id", LogicalKind.INT64),
        ("email", LogicalKind.STRING),
    ]


def test_new_column_is_announced_before_its_rows(setting: Setting) -> None:
    """A DDL alone writes the new schema; the rows after it name the new version."""
    tenant = setting.write_tenant("acme")
    setting.source.creates([1])
    setting.source.publish()
    setting.router.start()
    setting.read(setting.topic(tenant), 1)
    schema = orders_schema(column("note"))
    history = setting.services.schema_history.client_settings
    version = asyncio.run(record_schema(history, setting.source.name, schema, rank=5))
    order = EventOrder(epoch=0, rank=5, tx_ordinal=1)
    setting.source.rank = 5
    setting.source.batch.add_table_change(
        ORDERS,
        schema_version=version,
        order=order,
        committed_at_us=1,
        is_snapshot=False,
        key=b'{"k":1}',
        value=b'{"ddl":""}',
    )
    setting.source.publish()

    announced = setting.read(f"{tenant}.headwater.table-schemas", 2)
    (change,) = setting.read(f"{tenant}.{setting.source.name}", 1)
    setting.source.creates([2], version=version)
    setting.source.publish()
    rows = setting.read(setting.topic(tenant), 2)

    assert [decode_delivered_schema(item.value()).table_schema.version for item in announced] == [1, 2]
    assert [item.name for item in decode_delivered_schema(announced[1].value()).table_schema.columns][-1] == "note"
    assert (change.key(), change.value()) == (b'{"k":1}', b'{"ddl":""}')
    assert [header(row, "headwater.schema-version") for row in rows] == [b"1", b"2"]


def test_adjusted_names_are_the_tenants_everywhere(setting: Setting) -> None:
    """In key, row, schema and the table schema for its sinks; another tenant of the table keeps the source's names."""
    avro = setting.write_tenant("avro", format={"schemas": True, "schema_names": "avro", "field_names": "avro"})
    plain = setting.write_tenant("plain")
    table = TableId(database="shop", table="price-list")
    columns = (column("item-no", LogicalKind.INT64, "bigint", is_optional=False), column("unit price"))
    schema = TableSchema(table_id=table, columns=columns, key=("item-no",))
    asyncio.run(record_schema(setting.services.schema_history.client_settings, setting.source.name, schema))
    row = {"item-no": 1, "unit price": "2"}
    setting.source.run([("c", b'{"item-no":1}', row_value("c", None, row))], table=table)
    setting.source.publish()
    setting.router.start()

    (seen,) = setting.read(setting.topic(avro, "shop.price-list"), 1)
    (other,) = setting.read(setting.topic(plain, "shop.price-list"), 1)
    (announced,) = setting.read(f"{avro}.headwater.table-schemas", 1)

    key, value = json.loads(seen.key()), json.loads(seen.value())
    assert key["payload"] == {"item_no": 1}
    assert value["payload"]["after"] == {"item_no": 1, "unit_price": "2"}
    assert [field["field"] for field in value["schema"]["fields"][1]["fields"]] == ["item_no", "unit_price"]
    assert value["schema"]["name"] == f"{setting.source.name}.shop.price_list.Envelope"
    told = decode_delivered_schema(announced.value()).table_schema
    assert ([item.name for item in told.columns], told.key) == (["item_no", "unit_price"], ("item_no",))
    assert [payload["after"] for payload in payloads([other])] == [row]


def test_change_of_tenants_applies_without_a_restart(setting: Setting) -> None:
    """A new tenant gets the rows from now on, a changed filter holds from the next batch, a broken document nothing."""
    first = setting.write_tenant("first")
    setting.router.start()
    setting.source.creates([1, 2])
    setting.source.publish()
    setting.read(setting.topic(first), 2)

    second = setting.write_tenant("second")
    setting.write_tenant("first", selection={"row_filters": [{"tables": ".*", "where": "id > 3"}]})
    wait_until(
        lambda: second in setting.router.log_text,
        because="the second tenant is in the router's log",
        seen=lambda: setting.router.log_text[-3000:],
    )
    setting.source.creates([3, 4])
    setting.source.publish()
    after_change = created_ids(setting.read(setting.topic(second), 2))
    setting.write_tenant("first", selection={"row_filters": [{"tables": ".*", "where": "id >"}]})
    wait_until(
        lambda: "tenant_refused" in setting.router.log_text,
        because="the document is refused",
        seen=lambda: setting.router.log_text[-3000:],
    )
    setting.source.creates([5])
    setting.source.publish()

    assert after_change == [3, 4]
    assert created_ids(setting.read(setting.topic(first), 4)) == [1, 2, 4, 5]
    assert "row_filters[0].where: is not SQL" in setting.router.log_text


def test_event_that_cannot_be_projected_is_set_aside_and_others_go_on(setting: Setting) -> None:
    """A filter that does not fit the table sets that tenant's events aside, withheld, with their place; nobody else's. The
    router reports it as a fault, over gRPC as by HTTP."""
    good = setting.write_tenant("good")
    bad = setting.write_tenant("bad", selection={"row_filters": [{"tables": ".*", "where": "regoin = 'EU'"}]})
    setting.source.creates([1, 2])
    setting.source.publish()
    setting.router.start()

    letters = [decode_dead_letter(message.value()) for message in setting.read(f"{bad}.dead-letter", 2)]

    assert created_ids(setting.read(setting.topic(good), 2)) == [1, 2]
    assert read_topic(setting.services.bootstrap_servers, setting.topic(bad)) == []
    assert [letter.order.tx_ordinal for letter in letters] == [1, 2]
    assert "did you mean 'region'?" in letters[0].reason
    assert (letters[0].is_withheld, letters[0].event_value, letters[0].changes_offset) == (True, None, 0)
    address = GrpcClientSettings(address=f"localhost:{setting.router.grpc_port}")
    [fault] = asyncio.run(gather_faults([WatchedService(name="router", grpc=address)]))
    assert (fault.id, fault.scope.tenant, fault.scope.process) == ("table_refused", bad, "")
    assert "did you mean 'region'?" in fault.happened
    assert msgspec.json.decode(setting.router.get("/faults")[1], type=list[Fault]) == [fault]
    assert setting.router.is_running


def test_event_larger_than_a_record_is_set_aside(setting: Setting) -> None:
    """A row that no record can hold does not stop the lane, and is reported as a fault; it comes once it is small enough."""
    tenant = setting.write_tenant("acme")
    huge, small = order_row(1, email="x" * 950_000), order_row(1, email="x")
    created, made_small = row_value("c", None, huge), row_value("u", huge, small)
    setting.source.run([("c", b'{"id":1}', created), ("c", b'{"id":2}', row_value("c", None, order_row(2)))])
    setting.source.publish()
    setting.source.run([("u", b'{"id":1}', made_small)])
    setting.source.publish()
    setting.router.start()

    (letter,) = [decode_dead_letter(message.value()) for message in setting.read(f"{tenant}.dead-letter", 1)]

    assert "larger than 900000 bytes" in letter.reason
    second, update = (msgspec.json.decode(message.value()) for message in setting.read(setting.topic(tenant), 2))
    assert second["after"]["id"] == 2
    assert (update["op"], update["before"], update["after"]["email"]) == ("u", None, "x")
    (fault,) = wait_until(lambda: faults_of(setting.router), because="the fault is reported")
    assert (fault.id, fault.scope.tenant) == ("events_set_aside", tenant)
    assert "1 event is a dead letter: the event is larger than 900000 bytes" in fault.happened


def test_a_fault_outlives_its_router_until_the_table_is_copied(setting: Setting) -> None:
    """The next process has it from the file that its supervisor names, and ends it by the copy's rows."""
    tenant = setting.write_tenant("acme")
    setting.source.run([("c", b'{"id":1}', row_value("c", None, order_row(1, email="x" * 950_000)))])
    setting.source.publish()
    setting.router.start()
    before = wait_until(lambda: faults_of(setting.router), because="the fault is reported")
    setting.router.kill()
    setting.router.start()
    after = wait_until(lambda: faults_of(setting.router), because="the fault is reported again")
    text = setting.router.log_text
    setting.source.run([("r", b'{"id":1}', row_value("r", None, order_row(1)))], snapshot=True)
    setting.source.publish()

    assert [each.id for each in before] == ["events_set_aside"]
    assert after == before
    assert text.count('"event": "fault_raised"') == 2
    assert len(setting.read(setting.topic(tenant), 1)) == 1
    wait_until(
        lambda: faults_of(setting.router) == [],
        because="the copy ends it",
        seen=lambda: setting.router.log_text[-2000:],
    )


def test_faults_of_a_router_are_the_same_in_page_call_metric_and_log(setting: Setting) -> None:
    """Each is raised on a real Kafka: by topics, records and columns that are refused, and by a foreign record."""
    kafka = KafkaSettings(bootstrap_servers=setting.services.bootstrap_servers)
    late = setting.write_tenant("late", selection={"unknown_columns": "refuse"})
    many = setting.write_tenant("many", topics={"replication_factor": 3, "transactions": True})
    small = setting.write_tenant("small")
    ensure_topics(kafka, [TopicSpec(name=setting.topic(small), config={"max.message.bytes": "100"})])
    history = setting.services.schema_history.client_settings
    with_late = asyncio.run(record_schema(history, setting.source.name, orders_schema(column("late", is_late=True))))
    setting.source.batch.add_begin("gtid:1", time.time_ns() // 1000)
    setting.source.run([("c", b'{"id":1}', row_value("c", None, {**order_row(1), "late": "x"}))], version=with_late)
    setting.source.batch.add_end("gtid:1", time.time_ns() // 1000, ((ORDERS, 1),))
    setting.source.publish()
    producer = Producer({"bootstrap.servers": setting.services.bootstrap_servers})
    producer.produce(changes_topic(setting.source.name), b"no ChangeBatch", setting.source.name, 0)
    assert producer.flush(60) == 0
    setting.router.start()
    expected = {
        ("changes_record_set_aside", ""),
        ("column_refused", late),
        ("table_refused", many),
        ("tenant_waits", small),
        ("topic_refused", many),
    }

    def found() -> list[Fault]:
        return faults_of(setting.router)

    wait_until(
        lambda: {(each.id, each.scope.tenant) for each in found()} >= expected,
        because="all are reported",
        seen=lambda: (found(), setting.router.log_text[-5000:]),
    )
    faults, page, logged = found(), setting.router.get("/metrics")[1], setting.router.log_text
    address = GrpcClientSettings(address=f"localhost:{setting.router.grpc_port}")
    answered = asyncio.run(gather_faults([WatchedService(name="router", grpc=address)]))
    assert {(each.id, each.scope) for each in answered} == {(each.id, each.scope) for each in faults}
    raised = [msgspec.json.decode(line) for line in logged.splitlines() if '"event": "fault_raised"' in line]
    for each in faults:
        labels = f'id="{each.id}",severity="{each.severity.value}",source="{each.scope.source}"'
        assert f'headwater_faults{{{labels},table="{each.scope.table}",tenant="{each.scope.tenant}"}} 1.0' in page
        assert (each.id, str(each.scope)) in [(line["fault"], line["place"]) for line in raised]
        assert each.remedy


def test_an_offset_of_a_changes_topic_that_was_made_again_parks_its_source(setting: Setting) -> None:
    """The batches before it would be passed over without a word. Set again, the offset counts."""
    tenant = setting.write_tenant("acme")
    topic, servers = changes_topic(setting.source.name), setting.services.bootstrap_servers
    group = f"router-{setting.suffix}"
    for number in (1, 2):
        setting.source.creates([number])
        setting.source.publish()
    setting.router.start()
    assert created_ids(setting.read(setting.topic(tenant), 2)) == [1, 2]
    setting.router.stop()
    admin = AdminClient({"bootstrap.servers": servers})
    (before,) = (
        admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60).topic_partitions
    )

    def set_offset(note: str) -> None:
        offset = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, before.offset, note)])
        admin.alter_consumer_group_offsets([offset])[group].result(60)

    def faults() -> list[Fault]:
        return msgspec.json.decode(setting.router.get("/faults")[1], type=list[Fault])

    set_offset("topic=another;")
    setting.source.creates([3])
    setting.source.publish()
    setting.router.start(waits=False)
    (fault,) = wait_until(lambda: setting.router.get("/faults")[0] == 200 and faults(), because="the fault is reported")
    parked = read_topic(servers, setting.topic(tenant))
    setting.router.stop()
    set_offset("")
    setting.router.start()

    assert re.search(r"(^|;)topic=[\w+/-]{22};", note_of(before))
    assert (fault.id, fault.scope.source) == ("changes_topic_replaced", setting.source.name)
    assert "is of another; batches" in fault.happened
    assert f"--group {group} --topic {topic} --reset-offsets" in fault.remedy
    assert created_ids(parked) == [1, 2]
    assert created_ids(setting.read(setting.topic(tenant), 3)) == [1, 2, 3]
    assert faults() == []


BLANK, LINE = (TableId(database="shop", table=table) for table in ("a b", "a_b"))


def record_orders_as(setting: Setting, source: str, *tables: TableId) -> None:
    for table_id in tables:
        schema = msgspec.structs.replace(orders_schema(), table_id=table_id)
        asyncio.run(record_schema(setting.services.schema_history.client_settings, source, schema))


def test_a_topic_stays_with_the_table_that_has_it_over_a_restart(setting: Setting) -> None:
    """Whichever of two tables that meet in it the new router hears of first."""
    tenant = setting.write_tenant("two")
    topic = setting.topic(tenant, "shop.a_b")
    record_orders_as(setting, setting.source.name, LINE)
    setting.source.creates([1], table=LINE)
    setting.source.publish()
    setting.router.start()
    assert created_ids(setting.read(topic, 1)) == [1]
    setting.router.stop()

    record_orders_as(setting, setting.source.name, BLANK)
    setting.source.creates([2], table=BLANK)
    setting.source.creates([3], table=LINE)
    setting.source.publish()
    setting.router.start()

    assert created_ids(setting.read(topic, 2)) == [1, 3]
    (letter,) = [decode_dead_letter(message.value()) for message in setting.read(f"{tenant}.dead-letter", 1)]
    assert "rows of shop.a_b go there, as it had the topic first, or comes first by name" in letter.reason


def test_two_routers_give_a_topic_to_the_same_table(setting: Setting, tmp_path: Path) -> None:
    """Each meets another one of two tables that nobody wrote there before."""
    source = ChangesSource(setting.services.bootstrap_servers, f"{setting.source.name}b", kafka_partitions=2)
    record_orders_as(setting, source.name, LINE, BLANK)
    tenant = setting.tenant("two")
    document = {"tenant": tenant, "sources": [{"name": source.name}]}
    (setting.tenants_folder / f"{tenant}.yaml").write_text(yaml.safe_dump(document))
    settings = {**setting.router.settings, "sources": [source.name]}
    routers = [RouterProcess(tmp_path / name, settings) for name in ("first", "second")]
    try:
        for router in routers:
            router.start()
        wait_until(
            lambda: all(partitions_of(router) == 1 for router in routers), because="each router has one partition"
        )
        for number, table_id in enumerate((LINE, BLANK)):
            source.creates([number], table=table_id)
            source.publish(kafka_partition=number)

        letters = setting.read(f"{tenant}.dead-letter", 1)
        delivered = setting.read(f"{tenant}.{source.name}.shop.a_b", 1)
    finally:
        for router in routers:
            router.stop()

    assert created_ids(delivered) == [1]
    assert [decode_dead_letter(message.value()).topic for message in letters] == [f"{tenant}.{source.name}.shop.a_b"]
    assert len(read_topic(setting.services.bootstrap_servers, f"{tenant}.{source.name}.shop.a_b")) == 1


def test_two_routers_share_sources_of_one_partition_each(setting: Setting, tmp_path: Path) -> None:
    """By Faust's own assignor all of them lay with one, and the other had nothing to do."""
    other = ChangesSource(setting.services.bootstrap_servers, f"{setting.source.name}b")
    asyncio.run(record_schema(setting.services.schema_history.client_settings, other.name, orders_schema()))
    sources = (setting.source, other)
    tenant = setting.tenant("shared")
    document = {"tenant": tenant, "sources": [{"name": source.name} for source in sources]}
    (setting.tenants_folder / f"{tenant}.yaml").write_text(yaml.safe_dump(document))
    settings = {**setting.router.settings, "sources": [source.name for source in sources]}
    first, second = (RouterProcess(tmp_path / name, settings) for name in ("first", "second"))
    try:
        first.start()
        wait_until(
            lambda: partitions_of(first) == 2,
            because="the first router has both partitions",
            seen=lambda: first.log_text[-3000:],
        )
        second.start()
        wait_until(
            lambda: partitions_of(first) == partitions_of(second) == 1,
            because="the routers share the partitions",
            seen=lambda: second.log_text[-3000:],
        )
        for source in sources:
            source.creates(range(100))
            source.publish()

        for source in sources:
            assert created_ids(setting.read(f"{tenant}.{source.name}.shop.orders", 100)) == list(range(100))
        second.stop()
        wait_until(
            lambda: partitions_of(first) == 2,
            because="the first router has both partitions again",
            seen=lambda: first.log_text[-3000:],
        )
    finally:
        first.stop()
        second.stop()


def test_topic_that_kafka_refuses_hurts_its_tenant_alone(setting: Setting) -> None:
    """Three replicas on one broker: those rows are set aside, all others arrive, and everybody can see why."""
    good = setting.write_tenant("good")
    bad = setting.write_tenant("bad", topics={"replication_factor": 3, "transactions": True})
    setting.source.creates([1, 2])
    setting.source.publish()
    setting.router.start()

    letters = [decode_dead_letter(message.value()) for message in setting.read(f"{bad}.dead-letter", 2)]

    assert created_ids(setting.read(setting.topic(good), 2)) == [1, 2]
    assert [(letter.topic, letter.is_withheld, letter.changes_offset) for letter in letters] == [
        (setting.topic(bad), True, 0)
    ] * 2
    assert "fewer brokers than replication_factor" in letters[0].reason
    assert read_topic(setting.services.bootstrap_servers, setting.topic(bad)) == []
    wait_until(
        lambda: "fewer brokers than replication_factor" in setting.router.get("/readyz")[1],
        because="Kafka's refusal is reported",
        seen=lambda: setting.router.get("/readyz"),
    )
    assert setting.router.get("/readyz")[1].startswith("degraded: topic ")
    assert setting.router.log_text.count('"event": "tenant_topic_refused"') == 2  # of its rows, of their schemas
    assert f'headwater_tenant_topics_refused_total{{tenant="{bad}"}} 2.0' in setting.router.get("/metrics")[1]

    setting.write_tenant("bad")
    wait_until(
        lambda: setting.router.log_text.count('"event": "tenants_loaded"') == 2,
        because="the new document is in force",
        seen=lambda: setting.router.log_text[-3000:],
    )
    setting.source.creates([3])
    setting.source.publish()

    assert created_ids(setting.read(setting.topic(bad), 1)) == [3]
    assert created_ids(setting.read(setting.topic(good), 3)) == [1, 2, 3]
    wait_until(
        lambda: setting.router.get("/readyz") == (200, "ok\n"),
        because="nothing is refused any more",
        seen=lambda: setting.router.get("/readyz"),
    )
    assert len(read_topic(setting.services.bootstrap_servers, f"{bad}.dead-letter")) == 2


def test_a_refused_topic_is_named_until_kafka_has_it_and_no_row_is_needed_for_the_end(setting: Setting) -> None:
    """A person makes it as the broker can; no operator knows of tenants here."""
    tenant = setting.write_tenant("acme", topics={"replication_factor": 3})
    setting.source.creates([1])
    setting.source.publish()
    setting.router.start()
    wait_until(
        lambda: setting.router.get("/readyz")[1].startswith(f"degraded: topic {setting.topic(tenant)}"),
        because="the refused topic is reported",
        seen=lambda: setting.router.get("/readyz"),
    )

    kafka = KafkaSettings(bootstrap_servers=setting.services.bootstrap_servers)
    ensure_topics(
        kafka, [TopicSpec(name=name) for name in (setting.topic(tenant), f"{tenant}.headwater.table-schemas")]
    )

    wait_until(
        lambda: setting.router.get("/readyz") == (200, "ok\n"),
        because="the topic is refused no more",
        seen=lambda: setting.router.get("/readyz"),
    )
    setting.source.creates([2])
    setting.source.publish()
    assert created_ids(setting.read(setting.topic(tenant), 1)) == [2]
    assert len(read_topic(setting.services.bootstrap_servers, f"{tenant}.dead-letter")) == 1


def test_unknown_schema_halts_with_exit_code_3(setting: Setting) -> None:
    """A version that schema_history does not know is a human's matter: nothing is skipped."""
    tenant = setting.write_tenant("acme")
    setting.source.creates([1], version=99)
    setting.source.publish()
    setting.router.start(waits=False)

    assert setting.router.wait_for_exit() == 3
    assert read_topic(setting.services.bootstrap_servers, setting.topic(tenant)) == []


async def test_progress_is_reported_for_each_tenant(setting: Setting) -> None:
    """checkpoint_committer learns how far each tenant got and how many rows it received."""
    tenant = setting.write_tenant("acme")
    other = setting.write_tenant("other", selection={"row_filters": [{"tables": ".*", "where": "id = 2"}]})
    setting.source.creates([1, 2, 3])
    setting.source.publish()
    await asyncio.to_thread(setting.router.start)
    rows: dict[str, int] = {}

    async with CheckpointCommitterClient(setting.services.checkpoint_committer.client_settings) as committer:
        for _ in range(1_200):
            reports = [
                report for report in await committer.progress() if report.partition.source == setting.source.name
            ]
            rows = {report.tenant: report.rows for report in reports if report.hop == "router"}
            if rows == {tenant: 3, other: 1}:
                break
            await asyncio.sleep(0.2)

    assert rows == {tenant: 3, other: 1}
    assert {report.order.tx_ordinal for report in reports} == {3}


def test_router_stops_cleanly_and_resumes_behind_its_offset(setting: Setting) -> None:
    """SIGTERM ends it with 0 well within its time; the next one repeats nothing."""
    tenant = setting.write_tenant("acme")
    setting.router.start()
    setting.source.creates([1, 2])
    setting.source.publish()
    setting.read(setting.topic(tenant), 2)

    assert setting.router.stop() == 0

    setting.source.creates([3])
    setting.source.publish()
    setting.router.start()

    assert created_ids(setting.read(setting.topic(tenant), 3)) == [1, 2, 3]
    assert setting.router.get("/healthz") == (200, "ok\n")
    wait_until(
        lambda: f'headwater_router_events_total{{tenant="{tenant}"}} 1.0' in setting.router.get("/metrics")[1],
        because="the one event since the start is counted, a moment after it is visible",
    )


def test_markers_and_aborted_batches_at_the_end_are_no_stall(setting: Setting) -> None:
    """An idle router is alive, also with offsets after its position."""
    tenant = setting.write_tenant("acme")
    setting.router.settings = {**setting.router.settings, "stall_timeout_s": 4.0}
    setting.router.start()
    setting.source.creates([1])
    setting.source.publish()
    setting.read(setting.topic(tenant), 1)
    setting.source.creates([2])
    setting.source.publish(abort=True)

    seen = {setting.router.get("/healthz") for _ in range(12) if not time.sleep(0.5)}

    assert seen == {(200, "ok\n")}


def test_lane_that_stands_still_with_batches_behind_it_is_a_stall(setting: Setting) -> None:
    """The process answers, its threads live, nothing moves: /healthz says so, and at last the process ends by itself."""
    setting.write_tenant("acme")
    setting.router.settings = {**setting.router.settings, "stall_timeout_s": 3.0}
    setting.source.creates([1])
    setting.source.publish()
    setting.router.start(failpoints="router_after_produce_before_offsets=sleep:100@1")

    wait_until(
        lambda: setting.router.get("/healthz")[0] == 503,
        because="the stall is reported",
        seen=lambda: setting.router.get("/healthz"),
    )
    assert setting.router.wait_for_exit() == 1
    assert "the router is stalled" in setting.router.log_text


def test_transaction_that_does_not_end_ends_the_process(setting: Setting) -> None:
    """The watchdog works where no exception can: a thread inside a call that never returns."""
    setting.write_tenant("acme")
    lane = {"stuck_transaction_s": 3.0, "transaction_timeout_s": 20.0}
    setting.router.settings = {**setting.router.settings, "lane": lane}
    setting.source.creates([1])
    setting.source.publish()
    setting.router.start(failpoints="router_after_offsets_before_commit=sleep:100@1")

    assert setting.router.wait_for_exit() == 1
    assert "transaction_stuck" in setting.router.log_text


def test_keys_make_a_tenants_masks_its_own(setting: Setting, tmp_path: Path) -> None:
    """Two tenants with the same words in their documents, each masked by its own key; names as they call them."""
    keys = tmp_path / "keys"
    masks = [
        {"columns": r".*\.email", "format_preserving": {"kind": "email", "key_from": {"file": "pii"}}},
        {"columns": r".*\.region", "encrypt": {"key_from": {"file": "pii"}}},
    ]
    rename = [{"columns": r"shop\.orders\.email", "to": "mail"}]
    tenants = [setting.write_tenant(stem, selection={"masks": masks, "rename_columns": rename}) for stem in ("a", "b")]
    for number, name in enumerate(tenants):
        (keys / name).mkdir(parents=True)
        (keys / name / "pii").write_bytes(b"%032d\n" % number)
    setting.router.settings = {**setting.router.settings, "keys_folder": str(keys)}
    setting.source.creates(range(4))
    setting.source.publish()
    setting.router.start()

    first, second = (
        [payload["after"] for payload in payloads(setting.read(setting.topic(name), 4))] for name in tenants
    )

    decrypt, restore = decryption(b"%032d" % 0), format_restoring(b"%032d" % 0, PreservedFormat.EMAIL)
    assert [{**row, "mail": restore(row["mail"]), "region": decrypt(row["region"]).decode()} for row in first] == [
        {"id": number, "region": order_row(number)["region"], "mail": order_row(number)["email"]} for number in range(4)
    ]
    assert all(mine["mail"] != theirs["mail"] for mine, theirs in zip(first, second, strict=True))
    assert {row["region"] for row in first}.isdisjoint(row["region"] for row in second)


def test_a_key_that_goes_sets_aside_and_shows_nothing(setting: Setting, tmp_path: Path) -> None:
    """The document stays in force; events that cannot be masked become dead letters without their values. A key that comes back
    counts at once, and another tenant notices nothing."""
    keys = tmp_path / "keys"
    masks = [{"columns": r".*\.email", "hmac": {"key_from": {"file": "pii"}}}]
    keyed, other = setting.write_tenant("keyed", selection={"masks": masks}), setting.write_tenant("other")
    (keys / keyed).mkdir(parents=True)
    key = keys / keyed / "pii"
    key.write_bytes(b"k" * 32)
    setting.router.settings = {**setting.router.settings, "keys_folder": str(keys)}
    setting.router.start()
    setting.source.creates([1])
    setting.source.publish()
    setting.read(setting.topic(keyed), 1)
    key.unlink()
    wait_until(
        lambda: f'headwater_tenant_refused{{tenant="{keyed}"}} 1.0' in setting.router.get("/metrics")[1],
        because="the tenant without its key is refused",
        seen=lambda: setting.router.log_text[-3000:],
    )

    setting.source.creates([2])
    setting.source.publish()
    (letter,) = setting.read(f"{keyed}.dead-letter", 1)
    key.write_bytes(b"K" * 32)
    wait_until(
        lambda: f'headwater_tenant_refused{{tenant="{keyed}"}}' not in setting.router.get("/metrics")[1],
        because="the tenant has its key again",
        seen=lambda: setting.router.log_text[-3000:],
    )
    setting.source.creates([3])
    setting.source.publish()
    masked = [payload["after"]["email"] for payload in payloads(setting.read(setting.topic(keyed), 2))]

    assert "key file" in decode_dead_letter(letter.value()).reason
    assert b"2@example.org" not in letter.value()
    assert masked == [
        hmac.new(b"k" * 32, b"1@example.org", "sha256").hexdigest(),
        hmac.new(b"K" * 32, b"3@example.org", "sha256").hexdigest(),
    ]
    assert created_ids(setting.read(setting.topic(other), 3)) == [1, 2, 3]


def test_topics_by_template_and_one_for_all_tables(setting: Setting) -> None:
    """Rows of two tables: in topics of the tenant's own naming, and in one, without tombstones; bytes as the reader's."""
    named = setting.write_tenant("named", topics={"name": "{tenant}.v2.{table}_in_{database}"}, sink=None)
    shared = setting.write_tenant("shared", topics={"layout": "per_tenant"}, format={"tombstones": False}, sink=None)
    other = TableId(database="shop", table="visits")
    schema = TableSchema(table_id=other, columns=orders_schema().columns, key=("id",))
    asyncio.run(record_schema(setting.services.schema_history.client_settings, setting.source.name, schema))
    created, deleted = row_value("c", None, order_row(7)), row_value("d", order_row(1), None)
    setting.source.creates([1])
    setting.source.run([("d", b'{"id":1}', deleted)])
    setting.source.run([("c", b'{"id":7}', created)], table=other)
    setting.source.publish()
    setting.router.start()

    together = setting.read(f"{shared}.rows", 3)
    orders = setting.read(f"{named}.v2.orders_in_shop", 3)
    visits = setting.read(f"{named}.v2.visits_in_shop", 1)

    assert [message.value() for message in together][1:] == [deleted, created]
    assert [message.value() for message in orders][1:] == [deleted, None]
    assert [message.value() for message in visits] == [created]
    assert read_topic(setting.services.bootstrap_servers, f"{shared}.headwater.table-schemas") == []
