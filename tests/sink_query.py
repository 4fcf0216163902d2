"""A tenant's streaming query, which a test lets work for a while."""

import time
from collections.abc import Callable
from pathlib import Path

from spark.tenant.query import TenantQuery

TIMEOUT_S = 500.0  # a cold Spark on two busy cores takes half a minute for its first batch
POLL_S = 0.2


def is_noted(state_dir: str, tenant: str, batch_id: int) -> bool:
    """Whether Spark's own checkpoint has the batch as done; else the next query begins with it once more."""
    return (Path(state_dir) / "checkpoints" / tenant / "commits" / str(batch_id)).is_file()


def run_until(query: TenantQuery, holds: Callable[[], bool], *, why: Callable[[], object]) -> None:
    """Let ``query`` work until ``holds``, and stop it. Fails, with the value of ``why``, on a timeout and when it halts."""
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        while not holds():
            assert time.monotonic() < deadline_s, why()
            assert not query.is_halted, why()
            query.supervise()
            time.sleep(POLL_S)
    finally:
        query.stop()
