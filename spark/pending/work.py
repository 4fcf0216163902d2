"""The pending work of a tenant's tables, besides new events, with its times: one owner of all that remembers it.

| the table has | remembered by |
|---|---|
| events that wait because the table is parked | its ``ParkedTable``, in the progress (``progress``) |
| a write of such events with an unknown result | its ``Try``, in the progress (``tries``) |
| keys whose events are dead letters | ``ParkedKeysFile`` |
| another try at a certain time | ``Retries``, of one life of the query |
| failures in a row beside tables that were written | ``TableFailures``, over the lives of the query |
| a request to build it again | ``ResyncAnswers`` |
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from spark.pending.parked_keys import ParkedKeysFile
from spark.pending.resync_answers import ResyncAnswers
from spark.pending.retries import Retries
from spark.pending.table_failures import TableFailures


@dataclass(frozen=True, slots=True)
class PendingWork:
    """Of one tenant's tables."""

    parked_keys: ParkedKeysFile
    resyncs: ResyncAnswers
    retries: Retries = field(default_factory=Retries)
    failures: TableFailures = field(default_factory=TableFailures)


def pending_work_in(
    state_dir: Path, tenant: str, *, keep: Callable[[], None] = lambda: None, failures: TableFailures | None = None
) -> PendingWork:
    """As the tenant's state has it. ``keep``: called after each durable change. ``failures``: as counted before; None: none."""
    return PendingWork(
        parked_keys=ParkedKeysFile(state_dir, tenant, keep=keep),
        resyncs=ResyncAnswers(state_dir, tenant, keep=keep),
        failures=TableFailures() if failures is None else failures,
    )
