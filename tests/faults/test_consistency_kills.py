"""The sink job killed around the moment when tables move together: no sum is ever wrong, and nothing is lost or twice.

Its lives end in the shared session (``tests.session_job``); ``test_commit_kills`` kills a process within such commits.
"""

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from libs.types.tenant import SinkMode
from libs.types.warehouse import warehouse_table
from tests.bank import TABLES, TOTAL, Audit, Auditor, Bank, audit_of_query, audit_of_snapshots
from tests.conftest import PostgresqlServer
from tests.session_job import SessionJob, session_job
from tests.sink_job import LIFE_TIMEOUT_S, write_tenant
from tests.sink_topics import SOURCE, table_id, without_own_columns
from tests.spark_session import shared_spark

pytestmark = [
    pytest.mark.spark,
    pytest.mark.rest(because="the gate kills the sink at each point, and shows consistency without a kill"),
]

FAILPOINTS = {
    "iceberg": (
        "sink_after_merge_before_next_table",
        "sink_after_cut_before_tables",
        "sink_after_listing_before_showing",
        "sink_between_shown_tables",
        "sink_after_showing_before_maintenance",
        "sink_after_batch_before_spark_commit",
    ),
    # With one table written in the transaction, with all of them, and after its commit.
    "postgresql": (
        "sink_after_merge_before_next_table",
        "sink_before_commit",
        "sink_after_showing_before_maintenance",
    ),
}


@dataclass(slots=True)
class Warehouse:
    """A job on it, whose lives are the shared session's and an audit that sums both of a tenant's tables there."""

    job: SessionJob
    audit: Callable[[str], Audit | None]


@pytest.fixture(params=["iceberg", "postgresql"])
def warehouse(bootstrap_servers: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Warehouse]:
    with ExitStack() as ends:
        job = ends.enter_context(session_job(request.param, tmp_path, bootstrap_servers, request))
        if request.param == "iceberg":
            yield Warehouse(job, lambda tenant: audit_of_snapshots(tenant, shared_spark().loaded))
        else:
            server: PostgresqlServer = request.getfixturevalue("postgresql_server")
            connection = ends.enter_context(server.connect())
            yield Warehouse(job, partial(audit_of_query, connection))


@pytest.mark.timeout(8 * LIFE_TIMEOUT_S)
def test_killed_at_every_failpoint_no_sum_is_wrong(warehouse: Warehouse) -> None:
    """Money moves between two tables, in transactions that batches cut apart. An auditor sums them through all lives, as the
    snapshots that belong together have them, or in one query; in the end the tables equal a plain model.
    """
    job = warehouse.job
    first, *others = FAILPOINTS[job.warehouse]
    chance, name = random.Random(11), f"b{secrets.token_hex(3)}"
    document = {"consistency": "transaction", "max_batch_rows": 9}
    tenant = write_tenant(job, name, SinkMode.MIRROR, topics={"transactions": True}, **document)
    bank = Bank(tenant.topics)
    job.start(failpoints=f"{first}=end@1")
    job.wait_until_killed()

    with Auditor(partial(warehouse.audit, name)) as auditor:
        for failpoint in others:
            bank.move(chance, transactions=1)
            job.start(failpoints=f"{failpoint}=end@1")
            job.wait_until_killed()
        job.start()
        job.wait_until(lambda: job.progress(tenant).rows >= bank.events)

    assert set(auditor.sums) == {TOTAL}
    assert len(auditor.batches) > 1
    for table in TABLES:
        place = warehouse_table(name, SOURCE, table_id(table))
        assert without_own_columns(job.read_rows(place)) == bank.rows(table)
    assert job.progress(tenant).rows == bank.events
