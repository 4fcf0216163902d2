"""A doubted table built again from a copy in its topic and swapped in, on real warehouses."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.events.names import resyncs_topic, row_topic
from libs.mesh.sink_requests import send_to_sink
from libs.mesh.tenant_topics import end_offsets
from libs.sink_state.resync import ResyncAnswer, ResyncRequest, decode_resyncs, encode_resync_request, resyncs_path
from libs.types.tenant import Deletes, SinkMode
from libs.types.warehouse import DELETED_COLUMN, warehouse_table
from spark.transforms.versions import UNTOLD
from tests.integration.sink_tenant import StartTenant, Tenant, change, orders, row
from tests.sink_topics import SOURCE, table_id
from tests.spark_session import shared_spark

ORDERS = orders()


def ends(tenant: Tenant) -> dict[int, int]:
    """Of the topic of orders."""
    found = end_offsets(tenant.settings.kafka, [row_topic(tenant.spec.tenant, SOURCE, table_id("orders"))])
    return {partition: end for (_, partition), end in found.items()}


def ask(tenant: Tenant, from_offsets: dict[int, int], to_offsets: dict[int, int], *, request_id: str = "") -> str:
    """Send a request; its id."""
    topic = row_topic(tenant.spec.tenant, SOURCE, table_id("orders"))
    request = ResyncRequest(
        id=request_id or str(uuid.uuid4()), topic=topic, from_offsets=from_offsets, to_offsets=to_offsets
    )
    send_to_sink(tenant.settings.kafka, resyncs_topic(tenant.spec.tenant), {encode_resync_request(request): topic})
    return request.id


def answer(tenant: Tenant, request: str) -> ResyncAnswer | None:
    path = resyncs_path(Path(tenant.settings.state_dir), tenant.spec.tenant)
    return decode_resyncs(path.read_bytes()).answers.get(request) if path.exists() else None


def is_answered(request: str) -> Callable[[Tenant], bool]:
    def holds(tenant: Tenant) -> bool:
        found = answer(tenant, request)
        return found is not None and (found.is_done or bool(found.refused_because))

    return holds


def is_idle(tenant: Tenant) -> bool:
    """The batch that met the last request is in the progress file."""
    path = resyncs_path(Path(tenant.settings.state_dir), tenant.spec.tenant)
    met = [each.batch_id for each in decode_resyncs(path.read_bytes()).answers.values()]
    return tenant.progress.batch_id >= max(met)


def resynced(tenant: Tenant, from_offsets: dict[int, int], to_offsets: dict[int, int]) -> ResyncAnswer:
    request = ask(tenant, from_offsets, to_offsets)
    tenant.run_until(lambda each: is_answered(request)(each) and is_idle(each))
    found = answer(tenant, request)
    assert found is not None
    return found


def doubted(start_tenant: StartTenant, warehouse: str, **sink: Any) -> Tenant:
    """A table with a wrong row (2), one that the source does not have (3), and one deleted (4); 5 is missing."""
    tenant = start_tenant(warehouse, ORDERS, **sink)
    tenant.write(ORDERS, *(row(key, "doubted", 0) for key in (1, 2, 3, 4)))
    tenant.write(ORDERS, row(4, "doubted", 0), op="d")
    tenant.run_until_done(5)
    return tenant


def copy(tenant: Tenant) -> None:
    """The rows that the reader's copy writes, and those that are committed meanwhile."""
    tenant.write(ORDERS, row(1, "one", 1), row(2, "two", 2), op="r")
    tenant.write(ORDERS, row(2, "two and more", 22), row(6, "while it was copied", 6))
    tenant.write(ORDERS, row(5, "five", 5), op="r")


@pytest.mark.promise("resync")
@pytest.mark.timeout(1_800)
def test_a_doubted_table_is_swapped_for_what_the_source_has(start_tenant: StartTenant, warehouse: str) -> None:
    """Rows that are wrong, missing or too many are right afterwards; rows that are committed before, with and after the
    request are there; a request that comes twice acts once."""
    tenant = doubted(start_tenant, warehouse)
    before = ends(tenant)
    copy(tenant)
    tenant.run_until_done(10)
    behind = ends(tenant)
    merged = tenant.rows()
    tenant.write(ORDERS, row(7, "with the request", 7))
    tenant.write(ORDERS, row(1, "one", 1), op="d")

    done = resynced(tenant, before, behind)
    anew = tenant.rows()
    tenant.write(ORDERS, row(3, "inserted later", 3))
    repeated = ask(tenant, before, behind, request_id=_only_request(tenant))
    tenant.run_until_done(13)

    assert [each["id"] for each in merged] == [1, 2, 3, 5, 6]
    assert done.is_done
    assert done.events == 7
    right = [
        row(2, "two and more", 22),
        row(5, "five", 5),
        row(6, "while it was copied", 6),
        row(7, "with the request", 7),
    ]
    assert anew == right
    assert tenant.rows() == sorted([row(3, "inserted later", 3), *right], key=lambda each: int(each["id"]))
    assert answer(tenant, repeated) == done


def _only_request(tenant: Tenant) -> str:
    path = resyncs_path(Path(tenant.settings.state_dir), tenant.spec.tenant)
    (request,) = decode_resyncs(path.read_bytes()).answers
    return request


@pytest.mark.rest(because="contract/test_sinks.py: a_table_that_is_built_anew_keeps_its_soft_deleted_rows")
@pytest.mark.timeout(1_800)
def test_rows_that_were_deleted_softly_are_kept(start_tenant: StartTenant, warehouse: str) -> None:
    """As they were marked; a row that the source does not have either is reported as gone."""
    tenant = doubted(start_tenant, warehouse, deletes=Deletes.SOFT)
    before = ends(tenant)
    copy(tenant)
    tenant.run_until_done(10)

    done = resynced(tenant, before, ends(tenant))

    assert done.is_done
    stored = tenant.read_rows(warehouse_table(tenant.spec.tenant, SOURCE, table_id("orders")))
    marks = sorted((each["id"], each["note"], each[DELETED_COLUMN]) for each in stored)
    assert marks == [
        (1, "one", False),
        (2, "two and more", False),
        (3, "doubted", True),
        (4, "doubted", True),
        (5, "five", False),
        (6, "while it was copied", False),
    ]


@pytest.mark.timeout(1_800)
def test_a_table_that_is_empty_at_the_source_is_empty_afterwards(start_tenant: StartTenant, warehouse: str) -> None:
    """The copy has no row, and no event has the table's columns."""
    tenant = doubted(start_tenant, warehouse)
    behind = ends(tenant)

    done = resynced(tenant, behind, behind)
    tenant.write(ORDERS, row(8, "later", 8))
    tenant.run_until_done(6)

    assert done.is_done
    assert tenant.rows() == [row(8, "later", 8)]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("warehouse", ["iceberg"])
def test_what_cannot_be_built_leaves_the_table_as_it_is(start_tenant: StartTenant, warehouse: str) -> None:
    """A value that does not fit, keys that are parked, a copy that the sink did not reach: each is said by name, and the
    batch's own events are applied all the same."""
    tenant = doubted(start_tenant, warehouse)
    before = ends(tenant)
    tenant.write(ORDERS, row(1, "one", 1), row(2, "two", "no number"), op="r")
    tenant.write(ORDERS, row(2, "two", 2))
    tenant.run_until_done(8)
    tenant.write(ORDERS, row(7, "with the request", 7))
    unfit = ask(tenant, before, {0: 10**6})
    tenant.run_until(is_answered(unfit))
    said = answer(tenant, unfit)
    assert said is not None
    assert "has not read topic" in said.refused_because
    tenant.run_until_done(9)
    assert row(7, "with the request", 7) in tenant.rows()

    tenant.write(ORDERS, row(8, "bad", "no number"), row(9, "with the second request", 9))
    unfit_row = resynced(tenant, before, ends(tenant))
    tenant.run_until_done(11)
    assert "does not fit the table" in unfit_row.refused_because
    assert row(9, "with the second request", 9) in tenant.rows()
    assert row(3, "doubted", 0) in tenant.rows()

    parked = resynced(tenant, before, ends(tenant))
    assert "1 key(s) of the table are parked" in parked.refused_because
    assert row(3, "doubted", 0) in tenant.rows()


@pytest.mark.rest(because="the gate shows it of a mirror")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("warehouse", ["iceberg"])
def test_a_history_is_swapped_for_what_the_source_has(start_tenant: StartTenant, warehouse: str) -> None:
    """Its current rows are the source's, and their earlier versions are there still; later versions go on after them."""
    tenant = doubted(start_tenant, warehouse, mode=SinkMode.HISTORY)
    before = ends(tenant)
    copy(tenant)
    tenant.run_until_done(10)
    behind = ends(tenant)
    tenant.write(ORDERS, row(7, "with the request", 7))
    tenant.write(ORDERS, row(1, "one", 1), op="d")

    done = resynced(tenant, before, behind)
    tenant.write(ORDERS, row(3, "inserted later", 3))
    tenant.run_until_done(13)

    assert (done.is_done, done.events) == (True, 7)
    stored = tenant.read_rows(warehouse_table(tenant.spec.tenant, SOURCE, table_id("orders")))
    notes = sorted((each["id"], each["_headwater_opened_by"], each["note"], each["is_current"]) for each in stored)
    assert [(key, note, is_current) for key, _, note, is_current in notes] == [
        (1, "doubted", False),
        (1, "one", False),
        (2, "doubted", False),
        (2, "two", False),
        (2, "two and more", True),
        (3, "doubted", False),
        (3, "inserted later", True),
        (4, "doubted", False),
        (5, "five", True),
        (6, "while it was copied", True),
        (7, "with the request", True),
    ]
    [untold] = [each for each in stored if str(each["_headwater_closed_by"]).endswith(UNTOLD)]
    assert (untold["id"], untold["note"]) == (3, "doubted")


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("warehouse", ["iceberg"])
def test_a_log_has_again_what_its_topic_tells(start_tenant: StartTenant, warehouse: str) -> None:
    """As far back as Kafka has it; no copy is needed. Entries that Kafka has no more stay."""
    tenant = start_tenant(warehouse, ORDERS, mode=SinkMode.APPEND)
    for key in (1, 2, 3):
        tenant.write(ORDERS, row(key, f"at {key}", key))
    tenant.run_until_noted(3)
    place = warehouse_table(tenant.spec.tenant, SOURCE, table_id("orders"))
    spark = shared_spark().session
    spark.sql(f"INSERT INTO {place.quoted()} SELECT * FROM {place.quoted()} WHERE id < 3")
    spark.sql(f"DELETE FROM {place.quoted()} WHERE id = 3")
    tenant.topics.forget_before(row_topic(tenant.spec.tenant, SOURCE, table_id("orders")), 2)
    tenant.write(ORDERS, row(4, "with the request", 4))

    done = resynced(tenant, {}, {0: 4})

    assert done.is_done
    assert [each["id"] for each in tenant.rows()] == [1, 1, 2, 3, 4]


@pytest.mark.rest(because="the gate shows it of a mirror")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("warehouse", ["iceberg"])
def test_rows_of_a_snapshot_that_kafka_has_in_part_stay_in_a_log(start_tenant: StartTenant, warehouse: str) -> None:
    """They share an order, and nothing else may distinguish one from another: where some are gone, others are no proof. None
    of those that are on their way is lost for it."""
    keyless = msgspec.structs.replace(ORDERS, key=())
    tenant = start_tenant(warehouse, keyless, mode=SinkMode.APPEND)
    same, topic = row(1, "same", 1), row_topic(tenant.spec.tenant, SOURCE, table_id("orders"))
    with tenant.topics.transaction() as transaction:
        for _ in range(3):
            change(transaction, keyless, "r", same)
        transaction.split()
        tenant.run_until_noted(3)
        tenant.topics.forget_before(topic, 1)
        change(transaction, keyless, "r", same)

    refused = resynced(tenant, {}, {0: 3})
    arrived = tenant.rows()
    tenant.write(keyless, row(2, "later", 2))
    done = resynced(tenant, {}, {0: 5})

    assert "on their way" in refused.refused_because
    assert arrived == [same] * 4
    assert done.is_done
    assert tenant.rows() == [*arrived, row(2, "later", 2)]
