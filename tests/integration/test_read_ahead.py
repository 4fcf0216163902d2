"""One table of a tenant has a long backlog: its others do not wait for it, on a real Kafka and a real Iceberg."""

import msgspec
import pytest

from libs.types.tenant import SinkMode
from tests.integration.sink_tenant import StartTenant, Tenant, orders, row

BACKLOG = 2_000
LIMIT = 200


@pytest.mark.timeout(1_800)
def test_a_backlog_does_not_keep_other_tables_waiting(start_tenant: StartTenant) -> None:
    """Of 40 changes beside 2,000 of another table Spark deals a batch four. All 40 come with the first full one, and so
    do the next 30, which are written meanwhile; queries begin in between, and in the end the logs hold each event once.
    """
    copied, live = orders(name="copied"), orders(name="live")
    tenant = start_tenant("iceberg", copied, live, mode=SinkMode.APPEND)
    tenant.settings = msgspec.structs.replace(tenant.settings, max_offsets_per_trigger=LIMIT)
    for schema in (copied, live):
        tenant.write(schema, row(0, "first", 0), op="c")
    tenant.run_until_noted(2)
    tenant.write(copied, *(row(n, "copied", n) for n in range(1, BACKLOG)), op="r")

    for last in (41, 71):
        tenant.write(live, *(row(n, "live", n) for n in range(written(tenant, "live"), last)), op="c")
        tenant.run_until(lambda tenant, last=last: written(tenant, "live") == last)  # type: ignore[misc]
        assert written(tenant, "copied") < BACKLOG / 2

    tenant.run_until_done(BACKLOG + 71)
    assert [each["id"] for each in tenant.rows("copied")] == list(range(BACKLOG))
    assert [each["id"] for each in tenant.rows("live")] == list(range(71))


def written(tenant: Tenant, table: str) -> int:
    """Rows of one table that are in the warehouse."""
    return next((each.rows for each in tenant.progress.tables.values() if each.table == f"shop.{table}"), 0)
