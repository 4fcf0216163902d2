"""Tenants of one job share a few turns: on a real Kafka, into Iceberg."""

import secrets
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from libs.config.connections import KafkaSettings
from libs.events.names import row_topic
from libs.telemetry.faults import BATCH_OVERDUE, lasting_faults
from libs.types.tenant import SinkSettings, SourceSelection, TenantSpec
from spark.batch.apply import apply_batch
from spark.batch.tenant_sink import TenantSink
from spark.kafka.read_topics import kafka_options, topic_pattern
from spark.kafka.topic_ends import TopicEnds
from spark.pending.progress import load_progress
from spark.settings import SinkJobSettings
from spark.tenant import run as query_run
from spark.tenant.query import TenantQuery
from spark.tenant.turns import Turns
from tests.integration.sink_tenant import orders, row
from tests.sink_query import TIMEOUT_S
from tests.sink_topics import SOURCE, TenantTopics
from tests.spark_session import SharedSpark, session_settings, shared_spark
from tests.waiting import wait_until


@pytest.fixture(name="shared", scope="module")
def _shared() -> SharedSpark:
    return shared_spark()


class Packed:
    """Tenants of one job, each with a table, in two turns. A batch is overdue after a second."""

    def __init__(self, shared: SharedSpark, bootstrap_servers: str, folder: Path, tenants: int) -> None:
        self.settings = SinkJobSettings(
            tenants_dir="unused",
            kafka=KafkaSettings(bootstrap_servers=bootstrap_servers),
            warehouses={},
            state_dir=str(folder / "state"),
            session=session_settings(folder),
        )
        self.turns = Turns(shared.session, self.settings.kafka, at_once=2, share_s=1.0)
        prefix = secrets.token_hex(3)
        self.names = [f"t{prefix}{number}" for number in range(tenants)]
        self.topics = {name: TenantTopics(bootstrap_servers, name) for name in self.names}
        self.schema = orders()
        self.queries: list[TenantQuery] = []
        for name, topics in self.topics.items():
            topics.create_table(self.schema)
            with topics.transaction() as first:
                first.schema(self.schema)
            sink = SinkSettings(trigger_s=0.2)
            spec = TenantSpec(tenant=name, sources=(SourceSelection(name=SOURCE),), sink=sink)
            self.queries.append(TenantQuery(shared.session, self.settings, spec, shared.sink, turns=self.turns))

    def write(self, names: Sequence[str], key: int) -> None:
        for name in names:
            with self.topics[name].transaction() as transaction:
                transaction.change(self.schema, op="c", before=None, after=row(key, "note", key))

    def rows(self, name: str) -> int:
        return load_progress(Path(self.settings.state_dir), name).rows

    def wait_for(self, names: Sequence[str], rows: int) -> None:
        def have() -> bool:
            for query in self.queries:
                query.supervise()
            return all(self.rows(name) >= rows for name in names)

        wait_until(have, because=f"the tables have {rows} rows each", seen=lambda: [self.rows(name) for name in names])

    def close(self) -> None:
        for query in self.queries:
            query.stop()
        self.turns.close()


@pytest.fixture(name="packed")
def _packed(shared: SharedSpark, bootstrap_servers: str, tmp_path: Path) -> Iterator[Packed]:
    packed = Packed(shared, bootstrap_servers, tmp_path, tenants=4)
    yield packed
    packed.close()


def told() -> dict[str, str]:
    return {fault.scope.tenant: fault.happened for fault in lasting_faults() if fault.id == BATCH_OVERDUE.id}


def test_tenants_that_hang_or_fail_hold_no_turn_of_the_others(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches hang in both turns, and one tenant's fail: the other's rows come, and faults name those that hang."""
    *hanging, failing, other = packed.names
    others, has_begun, may_end = [other], threading.Semaphore(0), threading.Event()

    def apply(context: TenantSink, *batch: Any) -> int:
        if context.tenant.tenant in hanging:
            has_begun.release()
            assert may_end.wait(TIMEOUT_S)
        if context.tenant.tenant == failing:
            raise RuntimeError("poison")
        return apply_batch(context, *batch)

    monkeypatch.setattr(query_run, "apply_batch", apply)
    try:
        packed.write(hanging, 1)
        packed.wait_for([], 0)
        assert all(has_begun.acquire(timeout=TIMEOUT_S) for _ in hanging)
        packed.write([failing, *others], 1)
        packed.wait_for(others, 1)
        packed.write(others, 2)
        packed.wait_for(others, 2)
        assert [packed.rows(name) for name in (*hanging, failing)] == [0, 0, 0]
        wait_until(lambda: told().keys() == set(hanging), because="faults name both", seen=told)
        assert set(told().values()) == {"its batch in warehouse iceberg has run for more than 6 s"}
    finally:
        may_end.set()
    packed.wait_for(hanging, 1)
    wait_until(lambda: not told(), because="the batches have ended", seen=told)


def test_tenants_without_anything_new_run_no_batch(packed: Packed, shared: SharedSpark) -> None:
    """Not one job of Spark's, while another tenant's rows are written."""
    busy, *idle = packed.names
    packed.write(packed.names, 1)
    packed.wait_for(packed.names, 1)
    wait_until(lambda: all(map(packed.turns.is_idle, idle)), because="nothing more is new")
    before = {name: load_progress(Path(packed.settings.state_dir), name).batch_id for name in idle}

    for key in range(2, 5):
        packed.write([busy], key)
        packed.wait_for([busy], key)

    assert {name: load_progress(Path(packed.settings.state_dir), name).batch_id for name in idle} == before
    assert all(query.is_running for query in packed.queries)


def test_spark_itself_goes_on_from_our_log_and_we_from_sparks(packed: Packed, shared: SharedSpark) -> None:
    """So earlier releases do, in which Spark dealt the batches: a batch that one has noted as done the other does not have."""
    name, state_dir = packed.names[0], Path(packed.settings.state_dir)
    packed.write([name], 1)
    packed.wait_for([name], 1)
    query = packed.queries[0]
    wait_until(lambda: packed.turns.is_idle(name), because="nothing more is new")
    query.stop()
    ours = load_progress(state_dir, name).batch_id
    packed.write([name], 2)

    read: list[tuple[int, int]] = []
    spark_query = (
        shared.session.readStream.format("kafka")
        .options(**kafka_options(packed.settings.kafka))
        .option("subscribePattern", topic_pattern(query.tenant))
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.option("checkpointLocation", str(state_dir / "checkpoints" / name))
        .trigger(availableNow=True)
        .foreachBatch(lambda batch, number: read.append((number, batch.count())))
        .start()
    )
    spark_query.awaitTermination(TIMEOUT_S)

    assert read == [(ours + 1, 1)]
    assert str(spark_query.id) in load_progress(state_dir, name).query_id
    spec = query.tenant
    packed.queries[0] = TenantQuery(shared.session, packed.settings, spec, shared.sink, turns=packed.turns)
    packed.write([name], 3)
    packed.wait_for([name], 2)  # the second was Spark's
    assert load_progress(state_dir, name).batch_id == ours + 2


def test_a_look_tells_what_has_changed(shared: SharedSpark, bootstrap_servers: str) -> None:
    """New topics and Kafka partitions, ends of committed transactions alone, and topics that are gone; of no other tenant."""
    mine, other = (TenantTopics(bootstrap_servers, f"l{secrets.token_hex(3)}") for _ in range(2))
    schema = orders()
    for topics in (mine, other):
        topics.create_table(schema)
    topic = row_topic(mine.tenant, SOURCE, schema.table_id)
    ends = TopicEnds(shared.session, KafkaSettings(bootstrap_servers=bootstrap_servers))
    try:
        wait_until(lambda: mine.tenant in ends.look([mine.tenant]), because="a look shows it")
        assert ends.of(mine.tenant)[topic] == {0: 0}
        assert ends.of(other.tenant) == {}
        assert ends.look([mine.tenant]) == set()

        with mine.transaction() as transaction:
            transaction.change(schema, op="c", before=None, after=row(1, "one", 1))
        wait_until(lambda: mine.tenant in ends.look([mine.tenant]), because="a look shows it")
        assert ends.of(mine.tenant)[topic] == {0: 2}  # and its mark
        assert ends.begins([(topic, 0)]) == {(topic, 0): 0}

        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(TIMEOUT_S)
        wait_until(lambda: bool(ends.look([mine.tenant])), because="a look shows it")
        assert ends.of(mine.tenant)[topic] == {0: 2, 1: 0}
        place = TopicPartition(topic, 0, 1)
        admin.delete_records([place])[place].result(TIMEOUT_S)
        assert ends.begins([(topic, 1), (topic, 0)]) == {(topic, 1): 0, (topic, 0): 1}

        mine.delete(topic)
        wait_until(
            lambda: bool(ends.look([mine.tenant])) and topic not in ends.of(mine.tenant), because="a look shows it"
        )
    finally:
        ends.close()
