"""A table of many keys: the copy of one that is there already, then updates of a share of its rows, into a mirror and into a
history, beside a plain MERGE.

The copy waits in the topic before the job starts. The updates of a share are one Kafka transaction each, so that the job sees
them at once; they are timed from the transaction's commit to the last one in the warehouse. Each job has a Kafka of its own
with the same rows in it.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import Producer

from bench import plain_merge
from bench.sink import (
    SCHEMA,
    TENANT,
    TOPIC,
    check_peer,
    envelope,
    job_usage,
    make_topic,
    mirror_rows,
    peer_job,
    produce,
    random_row,
    running_kafka,
    sink_job,
    topic_end,
)
from bench.stack import wait_until
from bench.workload import TABLE
from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER
from libs.servers.process import ProcessSpec, Running, is_alive, last_log_lines, start, stop
from libs.types.order import EventOrder
from libs.types.tenant import SinkMode
from spark.pending.progress import load_progress

_TIMEOUT_S: Final = 3_600.0
_STOP_TIMEOUT_S: Final = 20.0
_TRANSACTION_TIMEOUT_S: Final = 900.0  # as long as a broker allows by default


@dataclass(frozen=True, slots=True)
class UpdateRun:
    """Updates of a share of a table's rows, each of another row."""

    share: float
    changes: int
    wall_s: float
    """From when they could be read to the last commit."""
    cpu_s: float
    """Of driver and JVM, over the same time."""


@dataclass(frozen=True, slots=True)
class TableRun:
    """The cost of one job for a copy and the updates after it."""

    first_rows_s: float
    """From the job's start until rows of the copy were in the warehouse."""
    copy_s: float
    """From the job's start to the last row of the copy."""
    copy_cpu_s: float
    updates: Sequence[UpdateRun]
    peak_rss_mb: float


@dataclass(frozen=True, slots=True)
class LargeTableFigures:
    """The same rows by either job."""

    keys: int
    ours: TableRun
    history: TableRun | None
    """The same rows into a history, each update a version. None: left out."""
    peer: TableRun | None
    """A plain MERGE, whose table was found equal to ours. None: left out."""


@dataclass(frozen=True, slots=True)
class _Written:
    changes: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class _Job:
    spec: ProcessSpec
    committed_at: Callable[[_Written | None], float | None]
    """When all of that was in the warehouse (seconds since 1970; None: it is not yet); of None: the first rows."""


def measure_large_table(
    folder: Path, *, keys: int, shares: Sequence[float], with_history: bool = True, with_peer: bool = True
) -> LargeTableFigures:
    """Copy ``keys`` rows, then update each share of them.

    Raises:
        RuntimeError: a table does not hold the rows that it should, or a job ended by itself.
    """
    ours, theirs = folder / "mirror", folder / "peer"
    run = _run_ours(ours, folder / "ours", SinkMode.MIRROR, keys, shares)
    history = (
        _run_ours(folder / "history", folder / "versions", SinkMode.HISTORY, keys, shares) if with_history else None
    )
    peer = None
    if with_peer:
        peer = _run(folder / "theirs", lambda servers: _plain(theirs, servers), keys, shares)
        check_peer(theirs, ours)
    return LargeTableFigures(keys, run, history, peer)


def _run_ours(folder: Path, servers_folder: Path, mode: SinkMode, keys: int, shares: Sequence[float]) -> TableRun:
    run = _run(servers_folder, lambda servers: _ours(folder, servers, mode), keys, shares)
    rows = keys + (sum(each.changes for each in run.updates) if mode is SinkMode.HISTORY else 0)
    if (found := mirror_rows(folder, "id").num_rows) != rows:
        raise RuntimeError(f"{keys} rows and their updates gave {found} rows in mode {mode.value}")
    return run


def _ours(folder: Path, bootstrap_servers: str, mode: SinkMode) -> _Job:
    def committed_at(written: _Written | None) -> float | None:
        progress = load_progress(folder / "state", TENANT)
        is_there = progress.batch_id >= 0 and progress.rows >= (written.changes if written else 1)
        return progress.written_at_us / 1e6 if is_there else None

    return _Job(sink_job(folder, bootstrap_servers, mode), committed_at)


def _plain(folder: Path, bootstrap_servers: str) -> _Job:
    def committed_at(written: _Written | None) -> float | None:
        progress = plain_merge.load_progress(folder)
        is_there = progress is not None and progress.to_offset >= (written.end_offset if written else 1)
        return progress.written_at_s if progress is not None and is_there else None

    return _Job(peer_job(folder, bootstrap_servers), committed_at)


def _run(folder: Path, job_on: Callable[[str], _Job], keys: int, shares: Sequence[float]) -> TableRun:
    with running_kafka(folder) as bootstrap_servers:
        make_topic(bootstrap_servers)
        rows = _Rows(bootstrap_servers)
        copy = rows.copy(keys)
        job = job_on(bootstrap_servers)
        started_s = time.time()
        running = start(job.spec, folder / "logs", dies_with_parent=True)
        peaks: list[float] = []
        try:
            first_s = _wait(running, job, None, peaks) - started_s
            copied_s = _wait(running, job, copy, peaks) - started_s
            copy_cpu_s = job_usage(running.pid).cpu_s
            updates = []
            for share in shares:
                before = job_usage(running.pid)
                written = rows.update(round(share * keys), of=keys)
                readable_s = time.time()
                wall_s = _wait(running, job, written, peaks) - readable_s
                cpu_s = job_usage(running.pid).cpu_s - before.cpu_s
                updates.append(UpdateRun(share, round(share * keys), wall_s, cpu_s))
            return TableRun(first_s, copied_s, copy_cpu_s, updates, max(peaks))
        finally:
            stop(running, _STOP_TIMEOUT_S)


def _wait(running: Running, job: _Job, written: _Written | None, peaks: list[float]) -> float:
    """When it was committed; ``peaks`` gets the job's memory on the way."""
    found: float | None = None

    def is_done() -> bool:
        nonlocal found
        if not is_alive(running):
            raise RuntimeError(f"{job.spec.name} ended by itself\n{last_log_lines(running)}")
        peaks.append(job_usage(running.pid).peak_rss_mb)
        found = job.committed_at(written)
        return found is not None

    wait_until(is_done, timeout_s=_TIMEOUT_S, what="the last commit")
    assert found is not None
    return found


class _Rows:
    """The table's rows as events in its topic; the same ones each time."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "compression.type": "lz4",
                "linger.ms": 50,
                "transactional.id": "bench",
                "transaction.timeout.ms": round(_TRANSACTION_TIMEOUT_S * 1000),
                "log_level": 2,
            }
        )
        self._producer.init_transactions()
        self._chance = random.Random(7)
        self._versions: Counter[int] = Counter()
        self._changes = 0
        self._transactions = 0

    def copy(self, keys: int) -> _Written:
        """Every row once, in the order of its keys, as a reader copies it."""
        events = ((row_id, envelope(TABLE, None, self._row(row_id), is_snapshot=True)) for row_id in range(keys))
        return self._write(events, is_snapshot=True)

    def update(self, changes: int, *, of: int) -> _Written:
        """Each of another row."""
        return self._write(self._changed(row_id) for row_id in self._chance.sample(range(of), changes))

    def _changed(self, row_id: int) -> tuple[int, dict[str, Any]]:
        before = self._row(row_id)
        self._versions[row_id] += 1
        return row_id, envelope(TABLE, before, self._row(row_id))

    def _row(self, row_id: int) -> dict[str, Any]:
        return random_row(row_id, random.Random(row_id << 8 | self._versions[row_id]))

    def _write(self, events: Iterable[tuple[int, dict[str, Any]]], *, is_snapshot: bool = False) -> _Written:
        """All of them can be read when this returns."""
        version = (SCHEMA_VERSION_HEADER, str(SCHEMA.version).encode())
        self._transactions += 1
        self._producer.begin_transaction()
        for number, (row_id, event) in enumerate(events):
            ordinal = 0 if is_snapshot else number + 1
            order = EventOrder(epoch=0, rank=self._transactions, tx_ordinal=ordinal).sort_key()
            headers: list[tuple[str, str | bytes]] = [(ORDER_HEADER, order.encode()), version]
            value, key = msgspec.json.encode(event), b'{"id":%d}' % row_id
            produce(self._producer, TOPIC, value, key, headers)
            self._producer.poll(0)
            self._changes += 1
        self._producer.commit_transaction(_TRANSACTION_TIMEOUT_S)
        return _Written(self._changes, topic_end(self._bootstrap_servers))
