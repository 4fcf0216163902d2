"""Rows that are gone from a mirror stay gone, also when older events still come: on a real Kafka and real warehouses."""

from collections.abc import Sequence
from typing import Any

import pytest

from libs.events.names import row_topic
from libs.types.table import TableSchema
from libs.types.tenant import Deletes, SinkMode
from tests.integration.sink_tenant import StartTenant, Tenant, orders, row
from tests.sink_topics import SOURCE


def write_at(
    tenant: Tenant, schema: TableSchema, rank: int, op: str, *rows: dict[str, Any], is_wrapped: bool = False
) -> None:
    """A transaction of that rank, whenever it comes."""
    with tenant.topics.transaction() as transaction:
        transaction.rank = rank
        for each in rows:
            before, after = (each, None) if op == "d" else (None, each)
            transaction.change(schema, op=op, before=before, after=after, is_wrapped=is_wrapped)
        if op == "t":
            transaction.change(schema, op=op)


def notes(tenant: Tenant) -> Sequence[tuple[int, str]]:
    return [(each["id"], each["note"]) for each in tenant.rows()]


@pytest.mark.timeout(1_800)
def test_a_late_event_brings_no_deleted_row_back(start_tenant: StartTenant, warehouse: str) -> None:
    """Not in the batch after the delete, and not later; an event newer than the delete does, as does a row never deleted."""
    schema = orders()
    tenant = start_tenant(warehouse, schema)
    write_at(tenant, schema, 10, "c", row(1, "one", 1), row(2, "two", 2), row(3, "three", 3))
    tenant.run_until_done(3)
    write_at(tenant, schema, 20, "d", row(1, "one", 1), row(2, "two", 2))
    tenant.run_until_done(5)
    write_at(tenant, schema, 30, "u", row(3, "drei", 3))
    tenant.run_until_done(6)

    write_at(tenant, schema, 15, "u", row(1, "late", 1), row(3, "late", 3), row(4, "late, and new", 4))
    write_at(tenant, schema, 25, "c", row(2, "again", 2))
    write_at(tenant, schema, 15, "u", row(2, "late, as text with a schema", 2), is_wrapped=True)
    tenant.run_until_done(11)
    assert notes(tenant) == [(2, "again"), (3, "drei"), (4, "late, and new")]

    write_at(tenant, schema, 26, "d", row(2, "again", 2))
    tenant.run_until_done(12)
    write_at(tenant, schema, 25, "c", row(2, "again, late", 2), row(1, "newer than its delete", 1))
    tenant.run_until_done(14)
    assert notes(tenant) == [(1, "newer than its delete"), (3, "drei"), (4, "late, and new")]


@pytest.mark.timeout(1_800)
def test_a_late_event_brings_no_truncated_row_back(start_tenant: StartTenant, warehouse: str) -> None:
    schema = orders()
    tenant = start_tenant(warehouse, schema)
    write_at(tenant, schema, 10, "c", row(1, "one", 1), row(2, "two", 2))
    tenant.run_until_done(2)
    write_at(tenant, schema, 20, "t")
    write_at(tenant, schema, 30, "c", row(3, "three", 3))
    tenant.run_until_done(4)
    write_at(tenant, schema, 15, "u", row(1, "late", 1), row(4, "late", 4))
    write_at(tenant, schema, 35, "c", row(5, "five", 5))
    tenant.run_until_done(7)

    assert notes(tenant) == [(3, "three"), (5, "five")]


@pytest.mark.timeout(1_800)
def test_what_kafka_has_no_more_is_forgotten(start_tenant: StartTenant) -> None:
    """A delete that retention has taken is not known any more: the batch goes on, and the late event counts."""
    schema = orders()
    tenant = start_tenant("iceberg", schema)
    write_at(tenant, schema, 10, "c", row(1, "one", 1), row(2, "two", 2))
    write_at(tenant, schema, 20, "d", row(1, "one", 1))
    tenant.run_until_noted(3)
    [progress] = tenant.progress.tables.values()
    [known] = progress.deleted
    topic = row_topic(tenant.spec.tenant, SOURCE, schema.table_id)
    [end] = known.to_offsets.values()
    tenant.topics.forget_before(topic, end)

    write_at(tenant, schema, 15, "u", row(1, "late", 1), row(2, "zwei", 2))
    tenant.run_until_done(5)

    assert notes(tenant) == [(1, "late"), (2, "zwei")]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("sink", [{"mode": SinkMode.APPEND}, {"deletes": Deletes.SOFT}])
def test_tables_that_keep_what_is_gone_remember_nothing_beside(start_tenant: StartTenant, sink: dict[str, Any]) -> None:
    schema = orders()
    tenant = start_tenant("iceberg", schema, **sink)
    write_at(tenant, schema, 10, "c", row(1, "one", 1))
    write_at(tenant, schema, 20, "d", row(1, "one", 1))
    tenant.run_until_done(2)

    [progress] = tenant.progress.tables.values()
    assert (progress.deleted, progress.truncated_order) == ((), "")
