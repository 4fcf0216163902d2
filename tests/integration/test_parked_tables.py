"""A parked table is taken up again though nothing new comes, and no batch is larger than it may be: a real PostgreSQL."""

import msgspec
import pytest

from libs.local.retry import ask_for_retry, choose_parked
from libs.types.tenant import SinkMode
from libs.types.warehouse import ParkedTable, warehouse_table
from spark.jobs import batch, retries
from tests.conftest import PostgresqlServer
from tests.integration.sink_tenant import StartTenant, Tenant, orders, row
from tests.sink_topics import SOURCE, table_id

pytestmark = pytest.mark.integration

LIMIT = 100
WAITING = 450


@pytest.mark.timeout(1_800)
def test_a_quiet_tenants_parked_table_is_read_piece_by_piece(
    start_tenant: StartTenant, postgresql_server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's CHECK refuses the rows; it is dropped, and not one event comes any more. Asked, the sink tries the table
    though it is due in an hour. The log has each row once, from batches of the limit, over a batch that comes again when all of
    it is done but Spark does not know, and over a restart in their midst with another limit, when the table has a piece that
    nothing else tells of.
    """
    schema = orders()
    tenant = start_tenant("postgresql", schema, mode=SinkMode.APPEND)
    tenant.settings = msgspec.structs.replace(tenant.settings, max_offsets_per_trigger=LIMIT)
    monkeypatch.setattr(retries, "FIRST_WAIT_S", 3_600.0)
    tenant.write(schema, row(0, "first", 0), op="c")
    tenant.run_until_noted(1)
    [*namespace, name] = str(warehouse_table(tenant.spec.tenant, SOURCE, table_id("orders"))).split(".")
    place = f'"{"_".join(namespace)}".{name}'
    postgresql_server.execute(f"ALTER TABLE {place} ADD CONSTRAINT low CHECK (n < 1) NOT VALID")
    tenant.write(schema, *(row(n, "waits", n) for n in range(1, WAITING + 1)), op="c")
    refused: list[ParkedTable] = []
    repeated: list[str] = []

    def is_asked_and_begun(tenant: Tenant) -> bool:
        found = parked(tenant)
        # It was tried with the second batch of the five that it takes until so many wait.
        if not refused and found is not None and found.waiting_offsets >= WAITING:
            refused.append(found)
            postgresql_server.execute(f"ALTER TABLE {place} DROP CONSTRAINT low")
            tables = choose_parked(tenant.progress, tenant.spec.tenant, ()).parked
            ask_for_retry(tenant.settings.kafka, tenant.spec.tenant, [each.topic for each in tables])
        return tenant.progress.rows >= 2 * LIMIT

    def fail_once(point: str) -> None:
        found = parked(tenant)
        if point == "sink_after_batch_before_spark_commit" and found and found.is_catching_up and not repeated:
            repeated.append(point)
            raise RuntimeError(point)

    monkeypatch.setattr(batch, "failpoint", fail_once)
    tenant.run_until(is_asked_and_begun)
    assert "breaks a CHECK" in refused[0].because
    assert not refused[0].is_catching_up
    assert repeated
    begun = parked(tenant)
    assert begun is not None
    assert begun.is_catching_up
    assert 0 < begun.waiting_offsets < WAITING
    written: list[str] = []

    def fail_when_written(point: str) -> None:
        if point == "sink_after_merge_before_next_table":
            written.append(point)
            raise RuntimeError(point)

    monkeypatch.setattr(batch, "failpoint", fail_when_written)
    tenant.run_until(lambda _: bool(written))
    assert parked(tenant) == begun
    monkeypatch.setattr(batch, "failpoint", lambda _: None)
    tenant.settings = msgspec.structs.replace(tenant.settings, max_offsets_per_trigger=3 * LIMIT)
    tenant.run_until_noted(WAITING + 1)

    assert [each["id"] for each in tenant.rows()] == list(range(WAITING + 1))
    assert parked(tenant) is None


def parked(tenant: Tenant) -> ParkedTable | None:
    [table] = tenant.progress.tables.values()
    return table.parked


def waiting(tenant: Tenant) -> int:
    found = parked(tenant)
    return 0 if found is None else found.waiting_offsets
