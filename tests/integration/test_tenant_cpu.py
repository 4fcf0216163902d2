"""The CPU time of each tenant in a Spark job that several share, by a real job's metrics."""

import random
import secrets
from functools import partial
from pathlib import Path

import msgspec
import pytest

from libs.servers.process import stop
from libs.types.tenant import SinkMode
from spark.sinks.iceberg.settings import Settings
from tests.integration.test_iceberg_catalogs import cpu_s_of
from tests.sink_job import LIFE_TIMEOUT_S, STOP_TIMEOUT_S, SinkJob, told_cpu_s, write_tenant
from tests.spark_session import read_rows


@pytest.mark.rest(because="test_iceberg_catalogs.py: a job with two tenants is asked for it too")
@pytest.mark.timeout(LIFE_TIMEOUT_S)
def test_the_tenant_with_many_more_rows_takes_more_of_the_job(tmp_path: Path, bootstrap_servers: str) -> None:
    """Both are served at once; together they take no more than the job's processes do."""
    chance = random.Random(8)
    where = {"warehouse_dir": str(tmp_path / "warehouse"), "catalog": {"kind": "sqlite", "file": f"{tmp_path}/c.db"}}
    read = partial(read_rows, msgspec.convert(where, Settings))
    job = SinkJob(tmp_path, bootstrap_servers, "iceberg", where, read)
    (tmp_path / "tenants").mkdir()
    small = write_tenant(job, f"s{secrets.token_hex(3)}", SinkMode.MIRROR, "orders")
    large = write_tenant(job, f"l{secrets.token_hex(3)}", SinkMode.MIRROR, "orders")
    small.write(chance, transactions=3)
    large.write(chance, transactions=60)  # ten batches, and one of the other's
    job.start()
    assert job.running is not None
    try:
        job.wait_until(lambda: all(job.progress(each).rows >= each.changes for each in (small, large)))
        job.wait_until(lambda: {small.name, large.name} <= told_cpu_s(job).keys())
        seconds, most = told_cpu_s(job), cpu_s_of(job.running.pid)
    finally:
        stop(job.running, STOP_TIMEOUT_S)

    assert seconds[large.name] > seconds[small.name] > 0
    assert sum(seconds.values()) < most
