"""The sink: changes that wait in one topic of a tenant, through Spark into an Iceberg mirror; the same as a log and a history.

A batch's begin is taken from its own timings in the progress file, so that the start of the JVM is not measured. Its
compiler's warming up is, and takes most of the first half's time; a job runs for days, so the second half is given apart.
"""

import base64
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
import pyarrow as pa
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog.sql import SqlCatalog

from bench import plain_merge
from bench.stack import REPOSITORY, Usage, wait_until
from bench.workload import DATABASE, TABLE
from libs.events.delivered_schema import DeliveredSchema, delivered_schema_key, encode_delivered_schema
from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER, row_topic, table_schemas_topic
from libs.mysql.logical import column
from libs.servers import kafka_broker
from libs.servers.ports import LOOPBACK, free_ports
from libs.servers.process import ProcessSpec, is_alive, last_log_lines, start, stop, wait_ready
from libs.setup.cache import cache_dir
from libs.setup.jars import jars_dir
from libs.setup.java import find_java
from libs.setup.spark_toolchain import find_toolchain
from libs.sink_state.progress import SinkProgress
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from libs.types.tenant import SinkMode
from libs.types.warehouse import CATALOG, warehouse_table
from spark.pending.progress import load_progress
from spark.settings import SinkJobSettings

SOURCE: Final = "bench"
TENANT: Final = "acme"
TABLE_ID: Final = TableId(database=DATABASE, table=TABLE)
TOPIC: Final = row_topic(TENANT, SOURCE, TABLE_ID)
_CHANGES_PER_TRANSACTION: Final = 100
_SHARE_OF_DELETES: Final = 0.1
_READY_TIMEOUT_S: Final = 90.0
_TRIGGER_S: Final = 0.5
_RUN_TIMEOUT_S: Final = 600.0
_STOP_TIMEOUT_S: Final = 20.0

# As bench/workload.py creates it at the source.
SCHEMA: Final = TableSchema(
    table_id=TABLE_ID,
    columns=(
        column("id", "bigint", is_optional=False),
        column("customer_id", "int", is_optional=False),
        column("status", "varchar(20)", is_optional=False, charset="utf8mb4"),
        column("amount", "decimal(12,2)", is_optional=False),
        column("quantity", "int", is_optional=False),
        column("price", "double", is_optional=False),
        column("created_at", "datetime(3)", is_optional=False),
        column("updated_at", "timestamp(6)", is_optional=False),
        column("note", "varchar(255)", charset="utf8mb4"),
        column("payload", "varchar(255)", is_optional=False, charset="utf8mb4"),
    ),
    key=("id",),
    version=1,
)


@dataclass(frozen=True, slots=True)
class SinkRun:
    """The cost of bringing a topic's changes into a table of one mode."""

    changes: int
    wall_s: float
    """From the first micro-batch's begin to the last commit."""
    cpu_s: float
    """Of driver and JVM, over the same time."""
    peak_rss_mb: float
    """Of both together, the start included."""
    sustained_per_s: float
    """Changes written a second in the second half."""

    @property
    def changes_per_s(self) -> float:
        """Changes written a second, the JVM's warming up included."""
        return self.changes / self.wall_s


@dataclass(frozen=True, slots=True)
class SinkFigures:
    """The same topic in each mode."""

    keys: int
    mirror: SinkRun
    append: SinkRun
    history: SinkRun
    peer: "PeerFigures | None"
    """A plain MERGE into a mirror. None: left out."""


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """The cost of a plain MERGE of the same changes; its table was found equal to ours."""

    wall_s: float
    sustained_per_s: float
    cpu_s: float
    peak_rss_mb: float


@dataclass(frozen=True, slots=True)
class _Commit:
    """The part of the topic that a job has committed."""

    begun_at_s: float
    """When the first micro-batch began (seconds since 1970)."""
    written_at_s: float
    share: float
    """1: all of it."""


@dataclass(frozen=True, slots=True)
class _Run:
    wall_s: float
    sustained_share_per_s: float
    """In the second half, as a share of the whole a second."""
    usage: Usage
    """CPU seconds over that time; the peak over the job's whole life."""


def measure_sink(folder: Path, *, changes: int = 1_500_000, keys: int = 200_000, with_peer: bool = True) -> SinkFigures:
    """Fill a topic, run the job over it as a mirror, then the peer, then the job as a log and as a history; stop everything.
    Takes ten minutes.

    Raises:
        RuntimeError: a table does not hold the rows that it should, or a job ended by itself.
    """
    with running_kafka(folder) as bootstrap_servers:
        topic = _write_topic(bootstrap_servers, changes, keys)

        def run(mode: SinkMode, rows_after: int) -> SinkRun:
            return _run_job(folder / mode.value, bootstrap_servers, mode, changes, rows_after=rows_after)

        mirror = run(SinkMode.MIRROR, topic.alive)
        peer = (
            _run_peer(folder / "peer", bootstrap_servers, changes, mirror_folder=folder / SinkMode.MIRROR.value)
            if with_peer
            else None
        )
        append = run(SinkMode.APPEND, changes)
        history = run(SinkMode.HISTORY, topic.versions)
    return SinkFigures(keys=keys, mirror=mirror, append=append, history=history, peer=peer)


@dataclass(frozen=True, slots=True)
class _Topic:
    alive: int
    """Rows that are there at the end."""
    versions: int
    """Rows that ever were: every change but deletes."""


@contextmanager
def running_kafka(folder: Path) -> Iterator[str]:
    port, controller_port = free_ports(2)
    spec = kafka_broker.prepare(folder / "kafka", port=port, controller_port=controller_port)
    running = start(spec, folder / "logs", dies_with_parent=True)
    try:
        wait_ready(running, _READY_TIMEOUT_S)
        yield kafka_broker.bootstrap_servers(port)
    finally:
        stop(running, _STOP_TIMEOUT_S)


def _write_topic(bootstrap_servers: str, changes: int, keys: int, *, seed: int = 7) -> _Topic:
    """Inserts, updates and deletes of random keys, as the router writes them."""
    make_topic(bootstrap_servers)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": "lz4",
            "linger.ms": 50,
            # The peer trusts the offsets; a batch that is sent again must not come after later ones.
            "enable.idempotence": True,
        }
    )
    chance = random.Random(seed)
    version = (SCHEMA_VERSION_HEADER, str(SCHEMA.version).encode())
    rows: dict[int, dict[str, Any]] = {}
    versions = 0
    for number in range(changes):
        row_id = chance.randrange(keys)
        before = rows.pop(row_id, None)
        after = None if before is not None and chance.random() < _SHARE_OF_DELETES else random_row(row_id, chance)
        if after is not None:
            rows[row_id] = after
            versions += 1
        rank, ordinal = divmod(number, _CHANGES_PER_TRANSACTION)
        order = EventOrder(epoch=0, rank=rank + 1, tx_ordinal=ordinal + 1).sort_key()
        key = b'{"id":%d}' % row_id
        headers: list[tuple[str, str | bytes]] = [(ORDER_HEADER, order.encode()), version]
        values = [msgspec.json.encode(envelope(TABLE, before, after)), *([None] if after is None else [])]
        for value in values:
            produce(producer, TOPIC, value, key, headers)
    if unsent := producer.flush(_READY_TIMEOUT_S):
        raise RuntimeError(f"{unsent} records were not written to Kafka")
    return _Topic(len(rows), versions)


def produce(
    producer: Producer, topic: str, value: bytes | None, key: bytes, headers: list[tuple[str, str | bytes]]
) -> None:
    """Hand it to ``producer``, once that has room."""
    while True:
        try:
            producer.produce(topic, value, key, headers=headers)
            return
        except BufferError:
            producer.poll(0.1)


def make_topic(bootstrap_servers: str) -> None:
    """Of the bench's one table, empty, its schema known to the sink."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(TOPIC, 1, 1), NewTopic(table_schemas_topic(TENANT), 1, 1)]
    for created in admin.create_topics(topics).values():
        created.result(_READY_TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    delivered = DeliveredSchema(topic=TOPIC, source=SOURCE, table_schema=SCHEMA)
    schema_key = delivered_schema_key(TOPIC, SCHEMA.version)
    producer.produce(table_schemas_topic(TENANT), encode_delivered_schema(delivered), schema_key)
    if producer.flush(_READY_TIMEOUT_S):
        raise RuntimeError("the table's schema was not written to Kafka")


def random_row(row_id: int, chance: random.Random) -> dict[str, Any]:
    """A row of ``SCHEMA``."""
    return {
        "id": row_id,
        "customer_id": chance.randrange(50_000),
        "status": chance.choice(("new", "paid", "sent", "returned")),
        "amount": base64.b64encode(chance.randrange(10**8).to_bytes(5, "big")).decode(),
        "quantity": chance.randrange(100),
        "price": chance.random() * 100,
        "created_at": 1_795_224_576_114,
        "updated_at": "2026-11-21T05:29:36.114628Z",
        "note": None if chance.random() < 0.3 else f"note {chance.randrange(10**9)}",
        "payload": f"{chance.getrandbits(400):x}",
    }


def envelope(
    table: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, *, is_snapshot: bool = False
) -> dict[str, Any]:
    """An event's value, as the router writes it."""
    now_us = time.time_ns() // 1_000
    times = {"ts_ms": now_us // 1_000, "ts_us": now_us, "ts_ns": now_us * 1_000}
    source: dict[str, Any] = {
        "version": "3.6.0",
        "connector": "mysql",
        "name": SOURCE,
        "snapshot": "true" if is_snapshot else "false",
        "db": DATABASE,
    }
    source |= {"sequence": None, "table": table, "server_id": 1, "gtid": None, "file": "binlog.000001", "pos": 4}
    op = "r" if is_snapshot else "d" if after is None else "c" if before is None else "u"
    event = {"before": before, "after": after, "source": {**source, **times}, "transaction": None, "op": op}
    return {**event, **times}


def _run_job(folder: Path, bootstrap_servers: str, mode: SinkMode, changes: int, *, rows_after: int) -> SinkRun:
    """The job in ``folder`` until all ``changes`` are committed."""
    spec = sink_job(folder, bootstrap_servers, mode)
    begun_at_s = 0.0

    def last_commit() -> _Commit | None:
        nonlocal begun_at_s
        progress = load_progress(folder / "state", TENANT)
        if progress.batch_id < 0:
            return None
        written_at_s = progress.written_at_us / 1e6
        begun_at_s = begun_at_s or written_at_s - progress.last_batch.total_s
        return _Commit(begun_at_s, written_at_s, share=progress.rows / changes)

    run = _measured(spec, folder, last_commit)
    _check(folder, load_progress(folder / "state", TENANT), changes, rows_after)
    return SinkRun(
        changes=changes,
        wall_s=run.wall_s,
        cpu_s=run.usage.cpu_s,
        peak_rss_mb=run.usage.peak_rss_mb,
        sustained_per_s=run.sustained_share_per_s * changes,
    )


def sink_job(folder: Path, bootstrap_servers: str, mode: SinkMode) -> ProcessSpec:
    """The job with its files in ``folder``, for the bench's tenant."""
    (folder / "tenants").mkdir(parents=True)
    document = {"tenant": TENANT, "sources": [{"name": SOURCE}], "sink": {"mode": mode.value, "trigger_s": _TRIGGER_S}}
    (folder / "tenants" / f"{TENANT}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    settings = folder / "sink_job.yaml"
    settings.write_text(yaml.safe_dump(job_settings(folder, bootstrap_servers)), encoding="utf-8")
    return ProcessSpec(
        name=f"sink_job-{mode.value}",
        command=(sys.executable, "-m", "spark.jobs.sink_job", "--settings", str(settings)),
        environ={"PYTHONPATH": str(REPOSITORY)},
        working_dir=folder / "work",
        ready=None,
    )


def _run_peer(folder: Path, bootstrap_servers: str, changes: int, *, mirror_folder: Path) -> PeerFigures:
    """A plain MERGE of the whole topic; its table must equal the mirror in ``mirror_folder``."""
    end = topic_end(bootstrap_servers)

    def last_commit() -> _Commit | None:
        progress = plain_merge.load_progress(folder)
        if progress is None:
            return None
        return _Commit(progress.begun_at_s, progress.written_at_s, share=progress.to_offset / end)

    run = _measured(peer_job(folder, bootstrap_servers), folder, last_commit)
    check_peer(folder, mirror_folder)
    return PeerFigures(
        wall_s=run.wall_s,
        sustained_per_s=run.sustained_share_per_s * changes,
        cpu_s=run.usage.cpu_s,
        peak_rss_mb=run.usage.peak_rss_mb,
    )


def topic_end(bootstrap_servers: str) -> int:
    """The offset after the topic's last record."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "bench"})
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), _READY_TIMEOUT_S)
    consumer.close()
    return end


def peer_job(folder: Path, bootstrap_servers: str) -> ProcessSpec:
    """The plain MERGE with its files in ``folder``, and the settings that ours has."""
    folder.mkdir(parents=True)
    cache = cache_dir()
    ours = msgspec.convert(job_settings(folder, bootstrap_servers), SinkJobSettings)
    session = ours.session
    settings = plain_merge.Settings(
        bootstrap_servers=bootstrap_servers,
        topic=TOPIC,
        folder=str(folder),
        jars_dir=str(jars_dir("spark", cache)),
        java_options=session.java_options,
        driver_memory=session.driver_memory,
        master=session.master,
        shuffle_partitions=session.shuffle_partitions,
        max_offsets_per_trigger=ours.max_offsets_per_trigger,
        trigger_s=_TRIGGER_S,
    )
    path = folder / "settings.json"
    path.write_bytes(msgspec.json.encode(settings))
    return ProcessSpec(
        name="plain_merge",
        command=(sys.executable, "-m", "bench.plain_merge", str(path)),
        environ={"PYTHONPATH": str(REPOSITORY), **find_java(cache).environ, "SPARK_LOCAL_IP": LOOPBACK},
        working_dir=folder / "work",
        ready=None,
    )


def check_peer(folder: Path, mirror_folder: Path) -> None:
    """Raises RuntimeError: its table in ``folder`` is not equal to ours."""
    theirs = table_rows(folder, plain_merge.CATALOG, (plain_merge.NAMESPACE, plain_merge.TABLE))
    if not theirs.equals(mirror_rows(mirror_folder)):
        raise RuntimeError("the plain MERGE's table is not equal to the mirror")


def _measured(spec: ProcessSpec, folder: Path, last_commit: Callable[[], _Commit | None]) -> _Run:
    """Run until all of the topic is committed."""
    running = start(spec, folder / "logs", dies_with_parent=True)
    samples: list[tuple[float, Usage]] = []
    commits: list[_Commit] = []

    def is_done() -> bool:
        if not is_alive(running):
            raise RuntimeError(f"{spec.name} ended by itself\n{last_log_lines(running)}")
        samples.append((time.time(), job_usage(running.pid)))
        if commit := last_commit():
            commits.append(commit)
        return commit is not None and commit.share >= 1

    try:
        wait_until(is_done, timeout_s=_RUN_TIMEOUT_S, what="the last commit")
    finally:
        stop(running, _STOP_TIMEOUT_S)
    first, last = commits[0], commits[-1]
    halfway = next(commit for commit in commits if commit.share >= 0.5)
    before = [usage for at_s, usage in samples if at_s <= first.begun_at_s][-1]
    return _Run(
        wall_s=last.written_at_s - first.begun_at_s,
        # Of a topic that fits into one batch there is no second half.
        sustained_share_per_s=(1 - halfway.share) / max(last.written_at_s - halfway.written_at_s, 1e-9),
        usage=Usage(
            cpu_s=samples[-1][1].cpu_s - before.cpu_s, peak_rss_mb=max(usage.peak_rss_mb for _, usage in samples)
        ),
    )


def job_settings(folder: Path, bootstrap_servers: str) -> dict[str, Any]:
    """Of a job with its files in ``folder``."""
    catalog = {"kind": "sqlite", "file": str(folder / "catalog.db")}
    iceberg = {"warehouse_dir": str(folder / "warehouse"), "catalog": catalog}
    return {
        "tenants_dir": str(folder / "tenants"),
        "kafka": {"bootstrap_servers": bootstrap_servers},
        "warehouses": {"iceberg": iceberg},
        "state_dir": str(folder / "state"),
        "session": {
            "master": "local[2]",
            **find_toolchain().session,
            "config": {"spark.local.dir": str(folder / "local")},
        },
    }


def job_usage(pid: int) -> Usage:
    """CPU seconds so far and the resident size at this moment, of the driver and its JVM together."""
    driver = psutil.Process(pid)
    cpu_s, rss_bytes = sum(driver.cpu_times()[:2]), [0]
    for process in driver.children(recursive=True):
        try:
            cpu_s += sum(process.cpu_times()[:2])
            rss_bytes.append(process.memory_info().rss)
        except psutil.NoSuchProcess:  # a helper of the JVM's start
            continue
    # The JVM is the largest. A fork of it, until it is another program, would count its memory a second time.
    return Usage(cpu_s=cpu_s, peak_rss_mb=(driver.memory_info().rss + max(rss_bytes)) / 2**20)


def _check(folder: Path, progress: SinkProgress, changes: int, rows_after: int) -> None:
    """A figure for a table that is wrong is none."""
    rows = mirror_rows(folder, "id").num_rows
    if (progress.rows, rows) != (changes, rows_after):
        raise RuntimeError(f"{progress.rows} of {changes} changes gave {rows} rows instead of {rows_after}")


def mirror_rows(folder: Path, *columns: str) -> pa.Table:
    """The rows that the job in ``folder`` wrote; see ``table_rows``."""
    return table_rows(folder, CATALOG, warehouse_table(TENANT, SOURCE, TABLE_ID).identifier, *columns)


def table_rows(folder: Path, catalog_name: str, identifier: tuple[str, ...], *columns: str) -> pa.Table:
    """A table's rows, by id; all of the source's columns by default."""
    catalog = SqlCatalog(
        catalog_name, uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=(folder / "warehouse").as_uri()
    )
    chosen = columns or tuple(column.name for column in SCHEMA.columns)
    try:
        rows = catalog.load_table(identifier).scan(selected_fields=chosen).to_arrow()
    finally:
        catalog.close()
    # Without the schemas' facts beside the values: field numbers, and which column may be NULL.
    return pa.Table.from_arrays([rows[name].combine_chunks() for name in chosen], names=list(chosen)).sort_by("id")
