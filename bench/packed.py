"""Many tenants in one sink job, each with one small table: the start, the idle job, and rows that come evenly to all of them.

A Kafka and a job by themselves: rows are written to the tenants' topics as the router writes them, so that the figures are the
job's alone. A figure for a table that is wrong is none: each is counted at the end.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.sink import (
    SCHEMA,
    SOURCE,
    TABLE_ID,
    envelope,
    job_settings,
    job_usage,
    produce,
    random_row,
    running_kafka,
    table_rows,
)
from bench.stack import REPOSITORY, wait_until
from bench.workload import TABLE
from libs.events.delivered_schema import DeliveredSchema, delivered_schema_key, encode_delivered_schema
from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER, row_topic, table_schemas_topic
from libs.mesh.processes import SINK_JAVA_OPTIONS
from libs.servers.ports import LOOPBACK, free_ports
from libs.servers.process import ProcessSpec, Running, is_alive, last_log_lines, start, stop
from libs.sink_state.progress import LatencyHistogram
from libs.stack.supervisor import answers_ok
from libs.types.order import EventOrder
from libs.types.warehouse import CATALOG, warehouse_table
from spark.pending.progress import load_progress

ROWS_PER_S_OF_EACH: Final = 2.0
TENANTS: Final = (50, 200)
IDLE_S: Final = 20.0
LOAD_S: Final = 60.0
TRIGGER_S: Final = 5.0
_STEP_S: Final = 0.25
_TOPICS_AT_ONCE: Final = 200
_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class PackedFigures:
    """Of one job."""

    tenants: int
    start_s: float
    """From the start of the process until it says that all tenants are served."""
    idle_cpu_s: float
    """CPU seconds a second of the job, nothing being written."""
    rows: int
    load_s: float
    """For how long rows were written."""
    behind_s: float
    """From the last row that was written until all were in their tables."""
    p50_s: float
    p95_s: float
    """From the write of a row to Kafka until it is in its table."""
    cpu_s: float
    """Of the job from the first row to the last."""
    peak_rss_mb: float


def measure_packed(folder: Path, tenants: int, *, load_s: float = LOAD_S, say: Callable[[str], None]) -> PackedFigures:
    """Start, idle, load.

    Raises:
        RuntimeError: the job ended by itself, or a table is wrong.
    """
    names = [f"t{number:04d}" for number in range(tenants)]
    [http_port] = free_ports(1)
    with running_kafka(folder) as bootstrap_servers:
        _make_topics(bootstrap_servers, names)
        begun_s = time.monotonic()
        running = start(_job(folder, bootstrap_servers, names, http_port), folder / "logs", dies_with_parent=True)
        try:
            _wait(running, lambda: answers_ok(f"http://{LOOPBACK}:{http_port}/readyz"), "a job that serves all tenants")
            start_s = time.monotonic() - begun_s
            say(f"{tenants} tenants are served after {start_s:.1f} s")
            time.sleep(_STEP_S * 8)  # the rest of the start's work
            before = job_usage(running.pid)
            time.sleep(IDLE_S)
            idle = job_usage(running.pid)
            say(f"idle: {(idle.cpu_s - before.cpu_s) / IDLE_S:.3f} CPU s a second")
            written = _write(bootstrap_servers, names, load_s)
            ended_s = time.monotonic()
            state = folder / "state"
            _wait(
                running,
                lambda: all(load_progress(state, name).rows >= count for name, count in written.items()),
                "all rows in their tables",
            )
            behind_s, after = time.monotonic() - ended_s, job_usage(running.pid)
        finally:
            stop(running, 20.0)
    wrong = [name for name, count in written.items() if _stored(folder, name) != count]
    if wrong:
        raise RuntimeError(f"the tables of {', '.join(wrong)} are not whole")
    counts: Counter[int] = Counter()
    for name in names:
        counts.update(load_progress(folder / "state", name).latency.counts)
    latency = LatencyHistogram(counts=counts)
    return PackedFigures(
        tenants=tenants,
        start_s=start_s,
        idle_cpu_s=(idle.cpu_s - before.cpu_s) / IDLE_S,
        rows=sum(written.values()),
        load_s=load_s,
        behind_s=behind_s,
        p50_s=latency.quantile_s(0.5) or 0.0,
        p95_s=latency.quantile_s(0.95) or 0.0,
        cpu_s=after.cpu_s - idle.cpu_s,
        peak_rss_mb=after.peak_rss_mb,
    )


def _job(folder: Path, bootstrap_servers: str, names: Sequence[str], http_port: int) -> ProcessSpec:
    (folder / "tenants").mkdir(parents=True)
    for name in names:
        document = {"tenant": name, "sources": [{"name": SOURCE}], "sink": {"mode": "mirror", "trigger_s": TRIGGER_S}}
        (folder / "tenants" / f"{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    settings: dict[str, Any] = job_settings(folder, bootstrap_servers)
    settings["session"]["java_options"] = SINK_JAVA_OPTIONS  # as the embedded stack has it
    settings["telemetry"] = {"http_port": http_port}
    file = folder / "sink_job.yaml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return ProcessSpec(
        name="sink_job",
        command=(sys.executable, "-m", "spark.jobs.sink_job", "--settings", str(file)),
        environ={"PYTHONPATH": str(REPOSITORY)},
        working_dir=folder / "work",
        ready=None,
    )


def _make_topics(bootstrap_servers: str, names: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [each for name in names for each in (table_schemas_topic(name), _topic(name))]
    for first in range(0, len(topics), _TOPICS_AT_ONCE):
        some = [NewTopic(topic, 1, 1) for topic in topics[first : first + _TOPICS_AT_ONCE]]
        for created in admin.create_topics(some).values():
            created.result(_TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for name in names:
        topic = _topic(name)
        delivered = DeliveredSchema(topic=topic, source=SOURCE, table_schema=SCHEMA)
        schema_key = delivered_schema_key(topic, SCHEMA.version)
        produce(producer, table_schemas_topic(name), encode_delivered_schema(delivered), schema_key, [])
    if producer.flush(_TIMEOUT_S):
        raise RuntimeError("the tables' schemas were not written to Kafka")


def _topic(name: str) -> str:
    return row_topic(name, SOURCE, TABLE_ID)


def _write(bootstrap_servers: str, names: Sequence[str], load_s: float) -> dict[str, int]:
    """Inserts, the tenants in turn, at an even rate; how many each has."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    version = (SCHEMA_VERSION_HEADER, str(SCHEMA.version).encode())
    chance, begun_s, number = random.Random(7), time.monotonic(), 0
    rate = ROWS_PER_S_OF_EACH * len(names)
    while (passed_s := time.monotonic() - begun_s) < load_s:
        while number < passed_s * rate:
            name, row_id = names[number % len(names)], number // len(names)
            order = EventOrder(epoch=0, rank=number + 1, tx_ordinal=1).sort_key()
            value = msgspec.json.encode(envelope(TABLE, None, random_row(row_id, chance)))
            headers: list[tuple[str, str | bytes]] = [(ORDER_HEADER, order.encode()), version]
            produce(producer, _topic(name), value, b'{"id":%d}' % row_id, headers)
            number += 1
        producer.poll(0)
        time.sleep(_STEP_S)
    if producer.flush(_TIMEOUT_S):
        raise RuntimeError("rows were not written to Kafka")
    return {name: number // len(names) + (place < number % len(names)) for place, name in enumerate(names)}


def _stored(folder: Path, name: str) -> int:
    place = warehouse_table(name, SOURCE, TABLE_ID)
    return int(table_rows(folder, CATALOG, place.identifier, "id").num_rows)


def _wait(running: Running, holds: Callable[[], bool], what: str) -> None:
    def is_done() -> bool:
        if not is_alive(running):
            raise RuntimeError(f"the job ended by itself\n{last_log_lines(running)}")
        time.sleep(_STEP_S)
        return holds()

    wait_until(is_done, timeout_s=_TIMEOUT_S, what=what)
