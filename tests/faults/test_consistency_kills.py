"""The sink job killed around the moment when tables move together: no sum is ever wrong, and nothing is lost or twice."""

import random
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from libs.local.process import stop
from libs.types.tenant import SinkMode
from libs.types.warehouse import warehouse_table
from spark.sinks.iceberg.settings import Settings
from tests.bank import TABLES, TOTAL, Auditor, Bank
from tests.sink_job import LIFE_TIMEOUT_S, STOP_TIMEOUT_S, SinkJob, write_tenant
from tests.sink_topics import SOURCE, table_id, without_own_columns
from tests.spark_session import loaded, read_rows

FAILPOINTS = (
    "sink_after_merge_before_next_table",
    "sink_after_cut_before_tables",
    "sink_after_telling_before_showing",
    "sink_between_shown_tables",
    "sink_after_showing_before_maintenance",
    "sink_after_batch_before_spark_commit",
)


@pytest.fixture
def job(bootstrap_servers: str, tmp_path: Path) -> Iterator[SinkJob]:
    (tmp_path / "tenants").mkdir()
    where = {
        "warehouse_dir": str(tmp_path / "warehouse"),
        "catalog": {"kind": "sqlite", "file": str(tmp_path / "catalog.db")},
    }
    settings = msgspec.convert(where, Settings)
    job = SinkJob(tmp_path, bootstrap_servers, "iceberg", where, partial(read_rows, settings))
    yield job
    if job.running is not None:
        stop(job.running, STOP_TIMEOUT_S)


@pytest.mark.timeout(8 * LIFE_TIMEOUT_S)
def test_killed_at_every_failpoint_no_sum_is_wrong(job: SinkJob) -> None:
    """Money moves between two tables, in transactions that batches cut apart. An auditor sums them through all lives, as the
    snapshots that belong together have them; in the end the tables equal a plain model.
    """
    chance, name = random.Random(11), f"b{secrets.token_hex(3)}"
    document = {"consistency": "transaction", "max_batch_rows": 9}
    tenant = write_tenant(job, name, SinkMode.MIRROR, topics={"transactions": True}, **document)
    bank = Bank(tenant.topics)
    job.start(failpoints=f"{FAILPOINTS[0]}=kill@1")
    job.wait_until_killed()

    settings = msgspec.convert(job.warehouse_settings, Settings)
    with Auditor(name, partial(loaded, settings)) as auditor:
        for failpoint in FAILPOINTS[1:]:
            bank.move(chance, transactions=1)
            job.start(failpoints=f"{failpoint}=kill@1")
            job.wait_until_killed()
        job.start()
        job.wait_until(lambda: job.progress(tenant).rows >= bank.events)

    assert set(auditor.sums) == {TOTAL}
    assert len(auditor.batches) > 1
    for table in TABLES:
        place = warehouse_table(name, SOURCE, table_id(table))
        assert without_own_columns(job.read_rows(place)) == bank.rows(table)
    assert job.progress(tenant).rows == bank.events
