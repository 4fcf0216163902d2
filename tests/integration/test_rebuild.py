"""A table of a past moment, built from a log that the sink wrote, against the rows that were noted at that moment."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.types.rebuild import AS_OF_PROPERTY, REBUILT_FROM_PROPERTY, Moment, RebuildSettings, Rebuilt
from libs.types.tenant import Images, SinkMode
from libs.types.warehouse import warehouse_table
from spark.jobs.rebuild import rebuild
from spark.sinks.port import TableRefused
from tests.conftest import KafkaBroker
from tests.integration.sink_tenant import StartTenant, Tenant, orders, row, start_tenants
from tests.sink_topics import SOURCE, Model, table_id, without_own_columns
from tests.spark_session import shared_spark

KEYS = 30
SECOND_US = 1_000_000

pytestmark = pytest.mark.integration


@pytest.fixture
def start_tenant(
    kafka_broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Tenant]]:
    yield from start_tenants(kafka_broker.bootstrap_servers, tmp_path, request)


def build(tenant: Tenant, into: str, as_of: Moment, **more: Any) -> tuple[Rebuilt, list[dict[str, Any]]]:
    """The outcome, and the rows that pyiceberg finds."""
    place = warehouse_table(tenant.spec.tenant, SOURCE, table_id("orders"))
    settings = RebuildSettings(
        warehouse="iceberg",
        warehouses={},
        session={},
        namespace=place.namespace,
        table=place.name,
        into=into,
        as_of=as_of,
        **more,
    )
    built = rebuild(shared_spark().session, tenant.sink, settings)
    return built, without_own_columns(tenant.read_rows(msgspec.structs.replace(place, name=into)))


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("images", [Images.AFTER, Images.BEFORE_AND_AFTER])
def test_the_rows_are_those_that_were_noted_at_the_moment(start_tenant: StartTenant, images: Images) -> None:
    """Inserts, updates, deletes, changes of key and a truncation, at random; several moments, by order and by time."""
    schema = orders()
    tenant = start_tenant("iceberg", schema, mode=SinkMode.APPEND, images=images)
    chance, model = random.Random(7), Model(schema)
    noted: dict[int, tuple[str, list[dict[str, Any]]]] = {}
    for number in range(1, 31):
        with tenant.topics.transaction() as transaction:
            transaction.committed_at_us = number * SECOND_US
            if number == 17:
                model.truncate(transaction)
            for _ in range(6):
                model.change_at_random(transaction, chance, keys=KEYS)
        noted[number] = (model.orders[-1], [{**each, "n": None} for each in model.sorted_rows()])
    tenant.run_until_done(len(model.orders))

    for number in (5, 16, 17, 25, 30):
        order, rows = noted[number]
        by_order, found = build(tenant, f"order_{number}", Moment(order=order))
        assert found == rows
        assert by_order.rows == len(rows)
        by_time, found = build(tenant, f"time_{number}", Moment(at_us=number * SECOND_US))
        assert found == rows
        assert msgspec.structs.replace(by_time, table="", took_s=0.0) == msgspec.structs.replace(
            by_order, table="", took_s=0.0
        )
    now = {each["id"]: each for each in noted[30][1]}
    then, (early, _) = noted[25][1], build(tenant, "again", Moment(order=noted[25][0]))
    assert early.same + early.changed_since + early.gone_since == len(then)
    assert early.gone_since <= sum(each["id"] not in now for each in then)
    assert early.come_since >= len(now.keys() - {each["id"] for each in then})
    at_the_end, _ = build(tenant, "end", Moment(order=noted[30][0]))
    assert (at_the_end.same, at_the_end.changed_since + at_the_end.gone_since + at_the_end.come_since) == (len(now), 0)

    with pytest.raises(TableRefused, match="there is such a table already"):
        build(tenant, "end", Moment(order=noted[30][0]))
    with pytest.raises(TableRefused, match="there is such a table already"):
        build(tenant, "orders", Moment(order=noted[30][0]))
    with pytest.raises(TableRefused, match="begins at 1970-01-01T00:00:01"):
        build(tenant, "early", Moment(at_us=1))
    place = warehouse_table(tenant.spec.tenant, SOURCE, table_id("end"))
    with shared_spark().loaded(place) as loaded:
        assert loaded.properties[REBUILT_FROM_PROPERTY] == f"{tenant.spec.tenant}.shop.shop.orders"
        assert loaded.properties[AS_OF_PROPERTY] == f"order {noted[30][0]}"
        assert len(loaded.history()) == 1


@pytest.mark.timeout(1_800)
def test_what_the_log_does_not_tell_is_counted_or_taken_from_before(start_tenant: StartTenant) -> None:
    """Rows that a later copy brought, rows that were there before the log began, values that an update left out."""
    schema = orders()
    tenant = start_tenant("iceberg", schema, mode=SinkMode.APPEND)

    def write(*changes: tuple[str, dict[str, Any]]) -> str:
        order = ""
        with tenant.topics.transaction() as transaction:
            for op, values in changes:
                is_delete = op == "d"
                order = transaction.change(
                    schema, op=op, before=values if is_delete else None, after=None if is_delete else values
                )
        return order

    write(("c", row(1, "whole", 1)), ("c", row(2, "two", 2)))
    moment = write(("u", {"id": 1, "note": None, "n": 5}), ("u", row(2, "two", None)))
    write(("u", row(3, "was there", 3)), ("d", row(4, "too", 4)), ("r", row(5, "copied", 5)), ("c", row(6, "new", 6)))
    tenant.run_until_done(8)

    plain, rows = build(tenant, "plain", Moment(order=moment))
    assert rows == [{"id": 1, "note": None, "n": 5}, row(2, "two", None)]
    assert (plain.unknown_existed, plain.unknown_may_have_existed) == (2, 1)
    _, rows = build(tenant, "filled", Moment(order=moment), unavailable=("note",))
    assert rows == [row(1, "whole", 5), row(2, "two", None)]
    with pytest.raises(TableRefused, match="has no column nowhere"):
        build(tenant, "wrong", Moment(order=moment), key=("nowhere",))


@pytest.mark.timeout(1_800)
def test_only_a_log_is_rebuilt_from(start_tenant: StartTenant) -> None:
    tenant = start_tenant("iceberg", orders())
    tenant.write(orders(), row(1, "a", 1), op="c")
    tenant.run_until_done(1)

    with pytest.raises(TableRefused, match="is no log"):
        build(tenant, "then", Moment(order="9"))
