"""Events that Kafka has deleted before a tenant's query read them, on a real Kafka and a real Iceberg."""

import msgspec
import pytest
from confluent_kafka import Producer

from libs.events.names import row_topic, table_schemas_topic, wakes_topic
from libs.operations.retry import ask_for_retry
from libs.telemetry.faults import lasting_faults
from libs.types.order import EventOrder
from tests.integration.sink_tenant import StartTenant, orders, row
from tests.sink_topics import SOURCE


@pytest.mark.timeout(1_800)
def test_lost_events_halt_the_tenant_until_somebody_accepts_it(start_tenant: StartTenant) -> None:
    """At once, with the partition and the remedy; then everything that Kafka has comes, and nothing twice."""
    schema = orders()
    tenant = start_tenant("iceberg", schema)
    tenant.write(schema, row(1, "one", 1), op="c")
    tenant.run_until_noted(1)
    tenant.write(schema, row(2, "lost", 2), op="c")
    tenant.write(schema, row(3, "three", 3), op="c")
    topic = row_topic(tenant.spec.tenant, SOURCE, schema.table_id)
    tenant.topics.forget_before(topic, 4)  # two transactions of an event each, and their ends

    with pytest.raises(AssertionError):
        tenant.run_until_done(3)
    assert tenant.progress.halted_because is not None
    for said in (f"{topic}-0", f"accepts_losses_of: [{tenant.spec.tenant}]", f"headwater check {tenant.spec.tenant}"):
        assert said in tenant.progress.halted_because
    assert [each["id"] for each in tenant.rows()] == [1]

    tenant.settings = msgspec.structs.replace(tenant.settings, accepts_losses_of=(tenant.spec.tenant,))
    tenant.run_until_done(2)
    assert [(each["id"], each["note"]) for each in tenant.rows()] == [(1, "one"), (3, "three")]
    assert tenant.progress.halted_because is None


@pytest.mark.timeout(1_800)
def test_a_record_of_somebody_else_in_a_row_topic_is_passed_over_and_told(start_tenant: StartTenant) -> None:
    """It stops neither its table nor the tenant, with any content, and at any place in a batch."""
    schema = orders()
    tenant = start_tenant("iceberg", schema)
    topic = row_topic(tenant.spec.tenant, SOURCE, schema.table_id)
    producer = Producer({"bootstrap.servers": tenant.settings.kafka.bootstrap_servers})
    tenant.write(schema, row(1, "one", 1), op="c")
    tenant.run_until_noted(1)
    producer.produce(topic, value=b"what a person typed", partition=0)
    producer.produce(topic, key=b'{"id":1}', value=b'{"before":null}', partition=0, headers=[("headwater.order", b"x")])
    of_the_router = [("headwater.order", b"x"), ("headwater.schema-version", b"1")]
    producer.produce(topic, key=b'{"id":2}', value=b'{"before":null}', partition=0, headers=of_the_router)
    assert producer.flush(60) == 0
    tenant.write(schema, row(2, "two", 2), op="c")

    tenant.run_until(lambda tenant: len(tenant.rows()) == 2)

    assert [(each["id"], each["note"]) for each in tenant.rows()] == [(1, "one"), (2, "two")]
    assert tenant.progress.halted_because is None
    (fault,) = [fault for fault in lasting_faults() if fault.id == "stray_records"]
    assert (fault.scope.tenant, fault.scope.table) == (tenant.spec.tenant, str(schema.table_id))
    assert f"{topic}/0: " in fault.happened


@pytest.mark.timeout(1_800)
def test_a_record_of_an_unknown_version_parks_its_table_alone(start_tenant: StartTenant) -> None:
    """Somebody wrote it, or the topic of schemas was shortened: nobody but a person can tell. A record that is no schema, in
    that topic, is nobody's matter."""
    schema, others = orders(), orders(name="others")
    tenant = start_tenant("iceberg", schema, others)
    topic = row_topic(tenant.spec.tenant, SOURCE, schema.table_id)
    producer = Producer({"bootstrap.servers": tenant.settings.kafka.bootstrap_servers})
    tenant.write(schema, row(1, "one", 1), op="c")
    tenant.run_until_noted(1)
    headers: list[tuple[str, str | bytes]] = [
        ("headwater.order", EventOrder(epoch=1, rank=10**6, tx_ordinal=1).sort_key().encode()),
        ("headwater.schema-version", b"99"),
    ]
    producer.produce(topic, key=b'{"id":2}', value=b'{"before":null,"op":"c"}', partition=0, headers=headers)
    producer.produce(table_schemas_topic(tenant.spec.tenant), key=b"x", value=b"what a person typed", partition=0)
    assert producer.flush(60) == 0
    tenant.write(schema, row(2, "two", 2), op="c")
    tenant.write(others, row(1, "one", 1), op="c")

    tenant.run_until(lambda tenant: topic in tenant.progress.parked_topics and bool(tenant.rows("others")))

    assert tenant.progress.halted_because is None
    parked = tenant.progress.tables[topic].parked
    assert parked is not None
    for said in (f"no schema of {topic} at version 99", "headwater resync"):
        assert said in parked.because
    assert [each["id"] for each in tenant.rows()] == [1]
    faults = [fault.happened for fault in lasting_faults() if fault.id == "stray_records"]
    assert any("is no schema" in each for each in faults)


@pytest.mark.timeout(1_800)
def test_a_topic_that_was_deleted_halts_the_tenant_by_its_name(start_tenant: StartTenant) -> None:
    """The query ends before it has a batch. So it is for a sink that goes back to a Headwater that does not know the topic."""
    schema = orders()
    tenant = start_tenant("iceberg", schema)
    topic = wakes_topic(tenant.spec.tenant)
    ask_for_retry(tenant.settings.kafka, tenant.spec.tenant, ())
    tenant.write(schema, row(1, "one", 1), op="c")
    tenant.run_until_noted(1)
    tenant.topics.delete(topic)
    tenant.write(schema, row(2, "two", 2), op="c")

    tenant.run_until(lambda tenant: tenant.progress.halted_because is not None)
    assert tenant.progress.halted_because is not None
    for said in (f"{topic}-0", f"accepts_losses_of: [{tenant.spec.tenant}]"):
        assert said in tenant.progress.halted_because

    tenant.settings = msgspec.structs.replace(tenant.settings, accepts_losses_of=(tenant.spec.tenant,))
    tenant.run_until_done(2)
    assert [each["id"] for each in tenant.rows()] == [1, 2]
