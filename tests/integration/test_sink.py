"""The sink against a real broker: a tenant's topics, through Spark's stream, into Iceberg tables that pyiceberg reads."""

import random
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client import REGISTRY

from libs.config.connections import KafkaSettings
from libs.mysql.logical import column
from libs.operations.dead_letters import chosen_keys, replay_requests, send_requests
from libs.sink_state.parked_keys import TenantParkedKeys, decode_parked_keys, parked_keys_path
from libs.sink_state.progress import SinkProgress, decode_positions
from libs.sink_state.stream_offsets import load_stream_offsets
from libs.types.order import EventOrder
from libs.types.table import Column, FormerName, TableSchema
from libs.types.tenant import (
    ChangeKind,
    ChangePolicies,
    ChangePolicy,
    ChangeRule,
    SinkMode,
    SinkSettings,
    SourceSelection,
    TenantSpec,
)
from libs.types.warehouse import warehouse_table
from spark.batch.apply import apply_batch
from spark.batch.newest_events import NewestEvents
from spark.batch.small_tables import ByQuery
from spark.jvm.java import java_class
from spark.kafka.consumer import duration, jvm_consumer
from spark.kafka.read_topics import read_records
from spark.pending.progress import load_progress
from spark.settings import SinkJobSettings
from spark.tenant import query as tenant_query
from spark.tenant import run as query_run
from spark.tenant.cpu_meter import CpuMeter
from spark.tenant.query import TenantQuery
from tests.sink_query import TIMEOUT_S, is_noted, run_until
from tests.sink_topics import SOURCE, Model, TenantTopics, gtid, table_id, without_own_columns
from tests.spark_session import Row, SharedSpark, session_settings, shared_spark

ID = column("id", "int", is_optional=False)
NOTE = column("note", "varchar(40)", charset="utf8mb4")


@pytest.fixture(scope="session")
def shared() -> SharedSpark:
    """A real Spark with a real Iceberg catalog."""
    return shared_spark()


@dataclass(slots=True)
class Tenant:
    """One tenant: its topics, its query, its tables."""

    shared: SharedSpark
    topics: TenantTopics
    settings: SinkJobSettings
    spec: TenantSpec
    query: TenantQuery

    @property
    def progress(self) -> SinkProgress:
        return load_progress(Path(self.settings.state_dir), self.spec.tenant)

    @property
    def parked_keys(self) -> TenantParkedKeys:
        return decode_parked_keys(parked_keys_path(Path(self.settings.state_dir), self.spec.tenant).read_bytes())

    def run_until(self, is_done: Callable[[SinkProgress], bool]) -> None:
        """Let the query work; stop it once its progress is as wanted. Fails on a timeout."""
        run_until(self.query, lambda: is_done(self.progress), why=lambda: self.progress)

    def run_until_rows(self, changes: int) -> None:
        self.run_until(lambda progress: progress.rows >= changes)

    def run_until_noted(self, changes: int) -> None:
        """Stop after a whole micro-batch. One that Spark has not noted is done again by the next life, by the tenant's
        document of then."""
        place = self.settings.state_dir, self.spec.tenant
        self.run_until(lambda progress: progress.rows >= changes and is_noted(*place, progress.batch_id))

    def restarted(self, **sink: Any) -> "Tenant":
        """As another start of the job would find it, or with other words in the tenant's document."""
        assert self.spec.sink is not None
        spec = msgspec.structs.replace(self.spec, sink=msgspec.structs.replace(self.spec.sink, **sink))
        query = TenantQuery(self.shared.session, self.settings, spec, self.shared.sink)
        return Tenant(self.shared, self.topics, self.settings, spec, query)

    def rows(self, table: str) -> list[Row]:
        return self.shared.rows(warehouse_table(self.spec.tenant, SOURCE, table_id(table)))


StartTenant = Callable[..., Tenant]


@pytest.fixture
def start_tenant(shared: SharedSpark, bootstrap_servers: str, tmp_path: Path) -> Iterator[StartTenant]:
    """Makes tenants whose state lies in one folder."""
    tenants: list[Tenant] = []

    def start(name: str, *, max_offsets_per_trigger: int = 400, **sink: Any) -> Tenant:
        spec = TenantSpec(
            tenant=name, sources=(SourceSelection(name=SOURCE),), sink=SinkSettings(trigger_s=0.5, **sink)
        )
        settings = SinkJobSettings(
            tenants_dir="unused",
            kafka=KafkaSettings(bootstrap_servers=bootstrap_servers),
            warehouses={},
            state_dir=str(tmp_path / "state"),
            session=session_settings(tmp_path),
            max_offsets_per_trigger=max_offsets_per_trigger,
        )
        query = TenantQuery(shared.session, settings, spec, shared.sink)
        tenants.append(Tenant(shared, TenantTopics(bootstrap_servers, name), settings, spec, query))
        return tenants[-1]

    yield start
    for tenant in tenants:
        tenant.query.stop()


def schema_of(name: str, *columns: Column, version: int = 1, key: tuple[str, ...] = ("id",)) -> TableSchema:
    return TableSchema(table_id=table_id(name), columns=columns or (ID, NOTE), key=key, version=version)


def test_a_mirror_equals_its_source_through_aborts_restarts_and_new_tables(start_tenant: StartTenant) -> None:
    """Random changes to two tables over several Kafka partitions, in committed and aborted transactions, with and without
    Connect schemas: rows equal a plain model, also after a restart, with a table that came meanwhile. A tenant with
    a name that begins alike gets nothing of it.
    """
    name = f"m{secrets.token_hex(3)}"
    tenant, namesake = start_tenant(name), start_tenant(f"{name}-b")
    chance = random.Random(23)
    orders, items = Model(schema_of("orders")), Model(schema_of("odd.name"))
    for model, partitions in ((orders, 3), (items, 1)):
        tenant.topics.create_table(model.schema, kafka_partitions=partitions)
    namesake.topics.create_table(orders.schema)
    with tenant.topics.transaction() as first:
        first.schema(orders.schema)
        first.schema(items.schema)
    write_at_random(tenant, [orders, items], chance, transactions=12)

    tenant.run_until_rows(len(orders.orders) + len(items.orders))
    assert without_own_columns(tenant.rows("orders")) == orders.sorted_rows()
    assert without_own_columns(tenant.rows("odd.name")) == items.sorted_rows()

    late = Model(schema_of("late"))
    tenant.topics.create_table(late.schema)
    with tenant.topics.transaction() as second:
        second.schema(late.schema)
        orders.truncate(second)
    models = [orders, items, late]
    write_at_random(tenant, models, chance, transactions=6)
    restarted = tenant.restarted()
    restarted.run_until_rows(sum(len(model.orders) for model in models))

    for model in models:
        table = model.schema.table_id.table
        assert without_own_columns(restarted.rows(table)) == model.sorted_rows(), table
    assert restarted.progress.rows == sum(len(model.orders) for model in models)
    assert restarted.progress.latency_p99_s is not None
    assert namesake.progress.batch_id == -1


def test_each_commit_names_the_sources_position_of_its_newest_change(start_tenant: StartTenant) -> None:
    """Of each table, whichever Kafka partition has the change, with and without a schema around it, aborted transactions
    between; a row that is deleted last counts too. Events that Kafka does not have any more stop nothing.
    """
    tenant = start_tenant(f"p{secrets.token_hex(3)}", max_offsets_per_trigger=60)
    orders, items = Model(schema_of("orders")), Model(schema_of("items"))
    topic = tenant.topics.create_table(orders.schema, kafka_partitions=3)
    items_topic = tenant.topics.create_table(items.schema)
    with tenant.topics.transaction() as first:
        first.schema(orders.schema)
        first.schema(items.schema)
    write_at_random(tenant, [orders, items], random.Random(3), transactions=10)

    tenant.run_until_rows(len(orders.orders) + len(items.orders))

    for model in (orders, items):
        with tenant.shared.loaded(warehouse_table(tenant.spec.tenant, SOURCE, model.schema.table_id)) as table:
            summaries = [item.summary.additional_properties for item in table.snapshots() if item.summary]
        said = [each for each in summaries if "headwater.batch" in each]  # maintenance says nothing
        for each in said:
            order = EventOrder.from_sort_key(each["headwater.order"])
            [position] = decode_positions(each["headwater.positions"])
            assert (position.source_partition, position.order) == ("", each["headwater.order"])
            assert position.position == {
                "gtid": gtid(order.rank),
                "file": "binlog.000001",
                "pos": order.tx_ordinal,
            }
        assert said[-1]["headwater.order"] == max(model.orders)
        assert len(said) > 1
    newest_events = NewestEvents(tenant.settings.kafka)
    try:
        session, gone = tenant.shared.session, (topic, 0, 10**6)
        ends = load_stream_offsets(Path(tenant.settings.state_dir), tenant.spec.tenant, tenant.progress.batch_id)
        places = [
            (
                each,
                *read_records(session, tenant.settings.kafka, each, {}, ends[each])
                .select("partition", "offset")
                .first(),
            )
            for each in (topic, items_topic)
        ]
        assert newest_events.place(session, gone) is None
        newest_events.read(session, [places[0], gone])
        assert newest_events.place(session, places[0]) is not None
        newest_events.read(session, places)
        assert newest_events._known.keys() == set(places)
        assert all(newest_events.place(session, each) is not None for each in places)
    finally:
        newest_events.close()


def test_writes_of_a_table_are_counted_by_way(start_tenant: StartTenant) -> None:
    """Few rows of one schema: all of it is merged without a query, the first batch too."""
    tenant = start_tenant(f"w{secrets.token_hex(3)}", max_offsets_per_trigger=60)
    orders = Model(schema_of("orders"))
    tenant.topics.create_table(orders.schema)
    with tenant.topics.transaction() as first:
        first.schema(orders.schema)
    write_at_random(tenant, [orders], random.Random(3), transactions=8)

    tenant.run_until_rows(len(orders.orders))

    labels = {"tenant": tenant.spec.tenant, "warehouse": "iceberg"}
    written = {
        way: REGISTRY.get_sample_value("headwater_sink_table_writes_total", labels | {"way": way})
        for way in ("at_hand", *ByQuery)
    }
    at_hand = written.pop("at_hand")
    assert at_hand is not None
    assert at_hand > 1
    assert set(written.values()) == {None}


def test_append_holds_every_change_once_in_order(start_tenant: StartTenant) -> None:
    """Inserts, updates, deletes and a truncation, a row each; none twice, though the query restarted."""
    tenant = start_tenant(f"a{secrets.token_hex(3)}", mode=SinkMode.APPEND, max_offsets_per_trigger=50)
    keyless = Model(schema_of("visits", key=()))
    tenant.topics.create_table(keyless.schema)
    with tenant.topics.transaction() as first:
        first.schema(keyless.schema)
        keyless.truncate(first)
    write_at_random(tenant, [keyless], random.Random(5), transactions=8)

    tenant.run_until(lambda progress: progress.rows > 0)
    restarted = tenant.restarted()
    restarted.run_until_rows(len(keyless.orders))

    stored = sorted(restarted.rows("visits"), key=lambda row: str(row["_headwater_order"]))
    assert [row["_headwater_order"] for row in stored] == sorted(keyless.orders)
    assert {str(row["_headwater_op"]) for row in stored} == {"t", "c", "u", "d"}
    assert all(row["_headwater_committed_at"] is not None for row in stored)


def test_small_batches_come_further_apart(start_tenant: StartTenant) -> None:
    """A trickle is written in fewer and fewer commits, and all of it arrives."""
    tenant = start_tenant(f"p{secrets.token_hex(3)}", trigger_max_s=4)
    orders = Model(schema_of("orders"))
    tenant.topics.create_table(orders.schema)
    with tenant.topics.transaction() as first:
        first.schema(orders.schema)
    chance = random.Random(2)

    def has_grown(progress: SinkProgress) -> bool:
        # No more than the sink takes: on a machine at work the rest would be a backlog, of which batches are full.
        if len(orders.orders) - progress.rows < 100:
            write_at_random(tenant, [orders], chance, transactions=1)
        labels = {"tenant": tenant.spec.tenant, "warehouse": "iceberg"}
        return REGISTRY.get_sample_value("headwater_sink_interval_seconds", labels) == 4

    tenant.run_until(has_grown)
    restarted = tenant.restarted()
    restarted.run_until_rows(len(orders.orders))

    assert without_own_columns(restarted.rows("orders")) == orders.sorted_rows()


def test_a_limit_of_rows_holds_a_tenant_back_and_not_its_stop(start_tenant: StartTenant) -> None:
    """At two rows in a thousand seconds the second waits; a stop does not, and the row that was held back arrives without a
    limit."""
    tenant = start_tenant(f"l{secrets.token_hex(3)}", mode=SinkMode.APPEND, max_rows_per_s=0.002)
    orders = Model(schema_of("orders"))
    tenant.topics.create_table(orders.schema)
    with tenant.topics.transaction() as first:
        first.schema(orders.schema)
    write_at_random(tenant, [orders], random.Random(3), transactions=2)

    tenant.run_until(lambda progress: progress.rows > 0)  # and stops it
    rows_held_back = len(orders.orders) - tenant.progress.rows
    restarted = tenant.restarted(max_rows_per_s=None)
    restarted.run_until_rows(len(orders.orders))

    assert rows_held_back > 0
    stored = [row["_headwater_order"] for row in restarted.rows("orders")]
    assert sorted(map(str, stored)) == sorted(orders.orders)


def test_a_batch_that_outlasts_its_querys_stop_is_waited_for(
    start_tenant: StartTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stop gives up waiting, which is no fault of the job; the tenant's next query begins after it."""
    monkeypatch.setattr(tenant_query, "_stop_timeout_s", lambda _: 0.2)
    tenant = start_tenant(f"w{secrets.token_hex(3)}", mode=SinkMode.APPEND)
    orders = Model(schema_of("orders"))
    tenant.topics.create_table(orders.schema)
    with tenant.topics.transaction() as first:
        first.schema(orders.schema)
    write_at_random(tenant, [orders], random.Random(4), transactions=2)
    has_begun, may_end = threading.Event(), threading.Event()

    def apply_slowly(*batch: Any) -> int:
        has_begun.set()
        assert may_end.wait(TIMEOUT_S)
        return apply_batch(*batch)

    monkeypatch.setattr(query_run, "apply_batch", apply_slowly)
    run_until(tenant.query, has_begun.is_set, why=lambda: tenant.progress)  # and stops it
    following = TenantQuery(
        tenant.shared.session, tenant.settings, tenant.spec, tenant.shared.sink, behind=tenant.query
    )
    following.supervise()

    assert not tenant.query.is_at_rest
    assert not following.is_running
    may_end.set()
    run_until(following, lambda: tenant.progress.rows >= len(orders.orders), why=lambda: tenant.progress)
    assert tenant.query.is_at_rest
    stored = [row["_headwater_order"] for row in tenant.rows("orders")]
    assert sorted(map(str, stored)) == sorted(orders.orders)


def test_the_threads_of_a_batch_are_metered_and_the_jvms_are_their_own(start_tenant: StartTenant) -> None:
    """Python's thread of a batch is answered by one thread of the JVM, and each table's thread by another one."""
    tenant = start_tenant(f"c{secrets.token_hex(3)}", mode=SinkMode.APPEND)
    models = [Model(schema_of(name)) for name in ("orders", "items")]
    for model in models:
        tenant.topics.create_table(model.schema)
    with tenant.topics.transaction() as first:
        for model in models:
            first.schema(model.schema)
    write_at_random(tenant, models, random.Random(5), transactions=4)
    spark, entered = tenant.shared.session, set[tuple[str, str]]()

    class Watched(CpuMeter):
        def driving(self, tenant: str) -> AbstractContextManager[None]:
            in_java: Any = java_class(spark, "java.lang.Thread").currentThread()
            entered.add((threading.current_thread().name, str(in_java.getName())))
            return super().driving(tenant)

    query = TenantQuery(spark, tenant.settings, tenant.spec, tenant.shared.sink, cpu=Watched(spark))
    changes = sum(len(model.orders) for model in models)
    run_until(query, lambda: tenant.progress.rows >= changes, why=lambda: tenant.progress)

    of_tables = {in_java for here, in_java in entered if here.startswith("sink-table")}
    [of_batch] = {in_java for here, in_java in entered if here.startswith("sink-turn")}
    assert of_tables
    assert of_batch not in of_tables
    told = REGISTRY.get_sample_value("headwater_sink_tenant_cpu_seconds_total", {"tenant": tenant.spec.tenant})
    assert told is not None
    assert told > 0


def test_a_consumer_of_the_sink_makes_no_topic(shared: SharedSpark, bootstrap_servers: str) -> None:
    """Spark keeps its consumers for a while: an erased tenant's topic must not come back because one asks for it."""
    topic = f"gone-{secrets.token_hex(3)}"
    consumer = jvm_consumer(shared.session, KafkaSettings(bootstrap_servers=bootstrap_servers), {})
    try:
        for _ in range(2):
            assert not consumer.partitionsFor(topic, duration(shared.session, 10_000))
    finally:
        consumer.close()

    assert topic not in AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=120).topics


def test_history_holds_every_version_and_its_current_ones_are_the_source(start_tenant: StartTenant) -> None:
    """Versions follow each other without a gap, through batches, a truncation and a restart; the current ones are a mirror."""
    tenant = start_tenant(f"h{secrets.token_hex(3)}", mode=SinkMode.HISTORY, max_offsets_per_trigger=60)
    orders = Model(schema_of("orders"))
    tenant.topics.create_table(orders.schema)
    with tenant.topics.transaction() as first:
        first.schema(orders.schema)
    chance = random.Random(11)
    write_at_random(tenant, [orders], chance, transactions=6)
    tenant.run_until(lambda progress: progress.rows > 0)
    with tenant.topics.transaction() as second:
        orders.truncate(second)
    write_at_random(tenant, [orders], chance, transactions=3)

    restarted = tenant.restarted()
    restarted.run_until_rows(len(orders.orders))

    versions = restarted.rows("orders")
    current = [{"id": row["id"], "note": row["note"]} for row in versions if row["is_current"]]
    assert sorted(current, key=lambda row: str(row["id"])) == sorted(
        orders.sorted_rows(), key=lambda row: str(row["id"])
    )
    opened = {(row["id"], row["_headwater_opened_by"]) for row in versions}
    assert len(opened) == len(versions)
    assert all((row["_headwater_closed_by"] is None) == row["is_current"] for row in versions)
    assert all(
        str(row["_headwater_opened_by"]) < str(row["_headwater_closed_by"]) for row in versions if not row["is_current"]
    )


def test_a_column_is_added_and_a_type_changes_in_the_middle_of_a_batch(start_tenant: StartTenant) -> None:
    """Rows of both versions in one batch: a new column is there before its rows, and older ones have its DEFAULT. A table
    whose type changes is made for the newest version; earlier values have a column of their own beside, and nothing is
    lost."""
    tenant = start_tenant(f"c{secrets.token_hex(3)}")
    added, changed = schema_of("added"), schema_of("changed")
    with_size = schema_of("added", ID, NOTE, column("size", "int", default_expression="7"), version=2)
    with_number = schema_of("changed", ID, column("note", "int"), version=2)
    for schema in (added, changed):
        tenant.topics.create_table(schema)
    with tenant.topics.transaction() as before:
        before.schema(added)
        for key in (1, 2):
            before.change(added, op="c", after={"id": key, "note": "old"})
    with tenant.topics.transaction() as after:
        after.schema(with_size)
        after.change(with_size, op="u", before=None, after={"id": 2, "note": "new", "size": 9})
        after.change(with_size, op="c", after={"id": 3, "note": "new", "size": None})
    with tenant.topics.transaction() as both:
        both.schema(changed)
        both.change(changed, op="c", after={"id": 1, "note": "text"})
        both.schema(with_number)
        both.change(with_number, op="c", after={"id": 2, "note": 2})

    tenant.run_until_rows(6)

    assert without_own_columns(tenant.rows("added")) == [
        {"id": 1, "note": "old", "size": 7},
        {"id": 2, "note": "new", "size": 9},
        {"id": 3, "note": "new", "size": None},
    ]
    assert without_own_columns(tenant.rows("changed")) == [
        {"id": 1, "note": None, "note__v_string": "text"},
        {"id": 2, "note": 2, "note__v_string": None},
    ]


def test_policies_are_by_table_and_others_go_on(start_tenant: StartTenant) -> None:
    """One table waits at its change, one is left as it is, one is not made at all; with another policy all goes on, and the
    waiting rows are there."""
    strict = ChangeRule(tables=r"shop\.strict", changes=(ChangeKind.COLUMN_RENAMED,), policy=ChangePolicy.EXCEPTION)
    fixed = ChangeRule(tables=r"shop\.(fixed|unwanted)", policy=ChangePolicy.IGNORE)
    made = ChangeRule(tables=r"shop\.fixed", changes=(ChangeKind.TABLE_CREATED,), policy=ChangePolicy.EVOLVE)
    tenant = start_tenant(f"o{secrets.token_hex(3)}", schema_changes=ChangePolicies(rules=(made, strict, fixed)))
    names = ("strict", "fixed", "unwanted", "free")
    renamed = msgspec.structs.replace(
        column("text", "varchar(40)", charset="utf8mb4"), former_names=(FormerName(name="note", last_version=1),)
    )
    for name in names:
        tenant.topics.create_table(schema_of(name))
    with tenant.topics.transaction() as before:
        for name in names:
            before.schema(schema_of(name))
            before.change(schema_of(name), op="c", after={"id": 1, "note": "one"})
    tenant.run_until(lambda progress: len(progress.tables) == len(names))
    with tenant.topics.transaction() as after:
        for name in names:
            second = schema_of(name, ID, renamed, version=2)
            after.schema(second)
            after.change(second, op="c", after={"id": 2, "text": "two"})
    again = tenant.restarted()
    again.run_until_noted(5)  # of the four first ones one is left out, and of the others two

    tables = {table.table.removeprefix("shop."): table for table in again.progress.tables.values()}
    assert tables["strict"].parked is not None
    assert "column_renamed text (was note)" in tables["strict"].parked.because
    assert tables["fixed"].ignored == ("column text is not delivered",)
    assert "ignore for table_created" in tables["unwanted"].ignored[0]
    assert without_own_columns(again.rows("strict")) == [{"id": 1, "note": "one"}]
    assert without_own_columns(again.rows("fixed")) == [{"id": 1, "note": "one"}, {"id": 2, "note": None}]
    assert without_own_columns(again.rows("free")) == [{"id": 1, "text": "one"}, {"id": 2, "text": "two"}]

    with tenant.topics.transaction() as later:
        for name in names:
            later.change(schema_of(name, ID, renamed, version=2), op="c", after={"id": 3, "text": "three"})
    allowed = again.restarted(schema_changes=ChangePolicies())
    allowed.run_until(
        lambda progress: (
            all(3 in {row["id"] for row in allowed.rows(name)} for name in names if name != "unwanted")
            and any(table.rows and table.table == "shop.unwanted" for table in progress.tables.values())
        )
    )

    tables = {table.table.removeprefix("shop."): table for table in allowed.progress.tables.values()}
    assert all((table.parked, table.ignored) == (None, ()) for table in tables.values())
    assert [row["text"] for row in without_own_columns(allowed.rows("strict"))] == ["one", "two", "three"]
    assert without_own_columns(allowed.rows("fixed"))[2] == {"id": 3, "note": None, "text": "three"}
    assert without_own_columns(allowed.rows("unwanted")) == [{"id": 3, "text": "three"}]


def test_a_number_that_a_column_was_kept_too_narrow_for_parks_its_key(start_tenant: StartTenant) -> None:
    """Nothing is cut short, and other rows go on; with another policy a replay brings it."""
    ignore = ChangePolicies(rules=(ChangeRule(changes=(ChangeKind.COLUMN_WIDENED,), policy=ChangePolicy.IGNORE),))
    tenant = start_tenant(f"w{secrets.token_hex(3)}", schema_changes=ignore)
    first, second = (
        schema_of("orders", ID, column("n", kind), version=version) for version, kind in enumerate(("int", "bigint"), 1)
    )
    tenant.topics.create_table(first)
    with tenant.topics.transaction() as before:
        before.schema(first)
        before.change(first, op="c", after={"id": 1, "n": 1})
    tenant.run_until_rows(1)
    with tenant.topics.transaction() as fits:
        fits.schema(second)
        fits.change(second, op="c", after={"id": 2, "n": 2})
    fitting = tenant.restarted()
    fitting.run_until_rows(2)
    with tenant.topics.transaction() as too_large:
        too_large.change(second, op="c", after={"id": 3, "n": 2**40})
    parked = tenant.restarted()
    parked.run_until(lambda progress: any(table.parked_keys for table in progress.tables.values()))

    keys = parked.parked_keys
    [key] = keys.tables[next(iter(keys.tables))].keys.values()
    assert key.event_key == '{"id": 3}'
    assert "let column_widened be evolve or lenient" in key.reason
    assert without_own_columns(parked.rows("orders")) == [{"id": 1, "n": 1}, {"id": 2, "n": 2}]
    with tenant.topics.transaction() as later:
        later.change(second, op="c", after={"id": 4, "n": 4})
    requests = replay_requests(chosen_keys(keys, sorted(keys.tables), []), leave_out_refused=False)
    send_requests(tenant.settings.kafka, tenant.spec.tenant, requests)
    allowed = tenant.restarted(schema_changes=ChangePolicies())
    # Not by counts: the job may have been stopped before Spark noted the batch, and one that is repeated is not counted.
    allowed.run_until(lambda _: len(allowed.rows("orders")) == 4)
    assert [row["n"] for row in without_own_columns(allowed.rows("orders"))] == [1, 2, 2**40, 4]


def test_a_table_that_cannot_be_kept_waits_while_others_go_on(start_tenant: StartTenant) -> None:
    """A table without a key is parked with the remedy in its progress; once it has one, nothing of it is missing."""
    tenant = start_tenant(f"p{secrets.token_hex(3)}")
    keyless, orders = schema_of("visits", key=()), schema_of("orders")
    for schema in (keyless, orders):
        tenant.topics.create_table(schema)
    with tenant.topics.transaction() as first:
        first.schema(keyless)
        first.schema(orders)
        first.change(keyless, op="c", after={"id": 1, "note": "waits"})
        first.change(orders, op="c", after={"id": 1, "note": "goes on"})
    tenant.run_until(lambda progress: len(progress.tables) == 2)
    visits = next(table for table in tenant.progress.tables.values() if table.table == "shop.visits")
    assert visits.parked is not None
    assert "add one at the source" in visits.parked.because
    assert without_own_columns(tenant.rows("orders")) == [{"id": 1, "note": "goes on"}]

    keyed = schema_of("visits", version=2)
    with tenant.topics.transaction() as second:
        second.change(keyless, op="c", after={"id": 2, "note": "waits"})
        second.schema(keyed)
        second.change(keyed, op="u", before={"id": 1, "note": "waits"}, after={"id": 1, "note": "keyed"})
    restarted = tenant.restarted()
    restarted.run_until_rows(4)

    assert without_own_columns(restarted.rows("visits")) == [{"id": 1, "note": "keyed"}, {"id": 2, "note": "waits"}]
    assert all(table.parked is None for table in restarted.progress.tables.values())


@pytest.mark.timeout(1_800)
def test_a_table_that_fails_again_and_again_waits_while_others_go_on(start_tenant: StartTenant) -> None:
    """Its files are gone from the warehouse: nothing else of the tenant stops for that, and nothing of it is missing once they
    are back, though no further event of it comes."""
    tenant = start_tenant(f"f{secrets.token_hex(3)}")
    items, orders = schema_of("items"), schema_of("orders")
    for schema in (items, orders):
        tenant.topics.create_table(schema)
    with tenant.topics.transaction() as first:
        for schema in (items, orders):
            first.schema(schema)
            first.change(schema, op="c", after={"id": 1, "note": "one"})
    tenant.run_until_noted(2)
    levels = warehouse_table(tenant.spec.tenant, SOURCE, table_id("orders")).identifier
    data = Path(tenant.shared.iceberg.warehouse_dir, *levels, "data")
    away = data.rename(data.with_name("away"))
    with tenant.topics.transaction() as second:
        for schema in (items, orders):
            second.change(schema, op="u", after={"id": 1, "note": "uno"})
    failing = tenant.restarted()
    failing.run_until(lambda progress: any(table.parked for table in progress.tables.values()))

    progress = {table.table: table for table in failing.progress.tables.values()}
    assert progress["shop.items"].parked is None
    assert progress["shop.orders"].parked is not None
    assert "failed again and again" in progress["shop.orders"].parked.because
    assert without_own_columns(failing.rows("items")) == [{"id": 1, "note": "uno"}]

    for file in data.glob("*") if data.exists() else ():
        file.rename(away / file.name)
    if data.exists():
        data.rmdir()
    away.rename(data)
    with tenant.topics.transaction() as third:
        third.change(items, op="c", after={"id": 2, "note": "two"})
    mended = tenant.restarted()
    mended.run_until(lambda progress: progress.rows >= 5)

    assert without_own_columns(mended.rows("orders")) == [{"id": 1, "note": "uno"}]
    assert all(table.parked is None for table in mended.progress.tables.values())


def test_an_event_that_fits_no_schema_parks_its_key_only(start_tenant: StartTenant) -> None:
    """A number out of range must not become NULL, nor stop the table; here it is the key's own."""
    tenant = start_tenant(f"e{secrets.token_hex(3)}")
    broken, orders = schema_of("broken"), schema_of("orders")
    for schema in (broken, orders):
        tenant.topics.create_table(schema)
    with tenant.topics.transaction() as first:
        first.schema(broken)
        first.schema(orders)
        first.change(broken, op="c", after={"id": 2**40, "note": "secret"})
        first.change(broken, op="c", after={"id": 2, "note": "goes on"})
        first.change(orders, op="c", after={"id": 1, "note": "goes on"})

    tenant.run_until(lambda progress: len(progress.tables) == 2)

    assert without_own_columns(tenant.rows("orders")) == [{"id": 1, "note": "goes on"}]
    assert without_own_columns(tenant.rows("broken")) == [{"id": 2, "note": "goes on"}]
    [key] = tenant.parked_keys.tables[f"{tenant.spec.tenant}.shop.shop.broken"].keys.values()
    assert key.event_key == f'{{"id": {2**40}}}'
    assert "column id (int)" in key.reason
    assert "secret" not in key.reason


def write_at_random(tenant: Tenant, models: list[Model], chance: random.Random, *, transactions: int) -> None:
    """Transactions of up to 40 changes; now and then one that is aborted, which must not be seen."""
    for _ in range(transactions):
        with tenant.topics.transaction() as transaction:
            for _ in range(chance.randrange(1, 40)):
                chance.choice(models).change_at_random(transaction, chance, keys=60)
        if chance.random() < 0.3:
            with tenant.topics.transaction(is_aborted=True) as unseen:
                unseen.change(models[0].schema, op="c", after={"id": 10**6, "note": "must not be seen"})
