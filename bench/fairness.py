"""Fairness: twenty tenants of one source, a noisy one and a poisoned one among them, and the delay of the others.

A source publishes, all on one changes topic: each tick some rows for each of the quiet tenants, and as many for the noisy one
as it may have. That is the baseline. Then the noisy one's rows are many times its limit, and Kafka refuses the records of the
poisoned one. Then the poisoned one is poisoned in twenty other ways, one after another (``bench.poisons``), each beside a
while without. Measured is, for each quiet tenant's rows, the time from the source's commit to Kafka until a ``read_committed``
consumer has them. No MySQL: the reader is the same with any noisy tenant.
"""

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import yaml
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench.latency import Spread
from bench.poisons import POISONS, Poison, document_of, odd_tables
from bench.stack import Service, beginning, start_service_in, wait_until
from libs.config.connections import GrpcClientSettings
from libs.events.names import row_topic
from libs.operations.status import routed_tenants
from libs.servers import kafka_broker, valkey_server
from libs.servers.ports import LOOPBACK, free_ports
from libs.types.table import TableId
from tests.integration.router_rig import ChangesSource, order_row, orders_schema, record_schema, row_value

QUIET_TENANTS: Final = 18
NOISY_LIMIT_PER_S: Final = 200
NOISY_TIMES: Final = 20
"""So many times its limit the noisy tenant's rows are."""
ROWS_A_TICK: Final = 5
"""Of each quiet tenant."""
TICK_S: Final = 0.05
BOUND_RATIO: Final = 1.10
_SOURCE: Final = "bench"
_DATABASE: Final = "shop"
_QUIET: Final = tuple(f"quiet{number:02d}" for number in range(QUIET_TENANTS))
_NOISY: Final = "noisy"
_POISONED: Final = "poisoned"
_WARM_UP_S: Final = 5.0
_TIMEOUT_S: Final = 120.0
_NO_ROOM: Final = "150"
_ROOM: Final = "1048588"
"""Kafka's default."""
_WHILES_A_RUN: Final = 15
_SETTLES_S: Final = 2.0
"""After a poison is taken away: the router looks at documents once a second."""


@dataclass(frozen=True, slots=True)
class FairnessRun:
    """One phase."""

    latency: Spread
    """Of the quiet tenants' rows."""
    rows: int
    router_cpu: float
    """CPU seconds a second."""
    noisy_rows_per_s: float
    """As they were published."""


@dataclass(frozen=True, slots=True)
class PoisonFigures:
    """All whiles with a kind of poison, and all those without."""

    without: Spread
    """Of the quiet tenants' rows."""
    beside: Spread
    kinds: int
    worst: str
    """The kind with the highest p99."""
    worst_p99_ms: float

    @property
    def ratio(self) -> float:
        """The factor by which the quiet tenants' p99 grew."""
        return self.beside.p99_ms / self.without.p99_ms


@dataclass(frozen=True, slots=True)
class FairnessFigures:
    """Both phases, and how the two stood at the end."""

    baseline: FairnessRun
    hurt: FairnessRun
    noisy_delivered_per_s: float
    """In the second phase."""
    standing: dict[str, str]
    """Of the noisy and the poisoned tenant at its end."""
    poison: PoisonFigures

    @property
    def ratio(self) -> float:
        """The factor by which the quiet tenants' p99 grew."""
        return self.hurt.latency.p99_ms / self.baseline.latency.p99_ms


def measure_fairness(folder: Path, run_s: float) -> FairnessFigures:
    """Start all, run both phases for ``run_s`` seconds each, stop everything."""
    with ExitStack() as exits:
        bootstrap_servers, router = _start(folder, exits)
        return _measured(bootstrap_servers, router, folder / "tenants", run_s)


def _measured(bootstrap_servers: str, router: Service, tenants: Path, run_s: float) -> FairnessFigures:
    """A function of its own, so that its clients are gone before Kafka is."""
    with _arrivals(bootstrap_servers) as arrivals:
        traffic = _Traffic(ChangesSource(bootstrap_servers, _SOURCE), arrivals)
        traffic.tick(NOISY_LIMIT_PER_S * TICK_S)  # the first makes the topics
        wait_until(lambda: len(arrivals) >= QUIET_TENANTS, timeout_s=_TIMEOUT_S, what="the first rows")
        traffic.run(_WARM_UP_S, NOISY_LIMIT_PER_S * 0.8)
        baseline = _phase(traffic, router, run_s, NOISY_LIMIT_PER_S * 0.8)
        _set_room(bootstrap_servers, _NO_ROOM)
        traffic.run(_WARM_UP_S, NOISY_LIMIT_PER_S * NOISY_TIMES)
        before, began_s = _delivered(router), time.monotonic()
        hurt = _phase(traffic, router, run_s, NOISY_LIMIT_PER_S * NOISY_TIMES)
        delivered_per_s = (_delivered(router) - before) / (time.monotonic() - began_s)
        standing = {
            each.tenant: each.standing or "with the others"
            for each in routed_tenants(_metrics(router))
            if each.tenant in (_NOISY, _POISONED)
        }
        _set_room(bootstrap_servers, _ROOM)
        poison = _poisoned_whiles(bootstrap_servers, traffic, tenants, run_s / _WHILES_A_RUN)
    return FairnessFigures(baseline, hurt, delivered_per_s, standing, poison)


def _poisoned_whiles(
    bootstrap_servers: str, traffic: "_Traffic", tenants: Path, while_s: float, kinds: Sequence[Poison] = POISONS
) -> PoisonFigures:
    """For each kind a while without it, and one with it from the moment of its document on."""
    document = tenants / f"{_POISONED}.yaml"
    within = NOISY_LIMIT_PER_S * 0.8

    def lay(poison: Poison | None) -> None:
        traffic.poison = poison
        _replace(document, document_of(_POISONED, _SOURCE, _DATABASE, poison))
        _set_room(bootstrap_servers, _NO_ROOM if poison is not None and poison.has_no_room else _ROOM)

    without: list[float] = []
    beside: dict[str, list[float]] = {}
    for kind in kinds:
        lay(None)
        traffic.run(_SETTLES_S, within)
        without += traffic.took_ms(traffic.run(while_s, within))
        lay(kind)
        beside[kind.name] = traffic.took_ms(traffic.run(while_s, within))
    p99_ms = {name: spread_of(took).p99_ms for name, took in beside.items()}
    worst = max(p99_ms, key=p99_ms.__getitem__)
    pooled = [each for took in beside.values() for each in took]
    return PoisonFigures(spread_of(without), spread_of(pooled), len(kinds), worst, p99_ms[worst])


def spread_of(took_ms: Sequence[float]) -> Spread:
    """The middle, and the value that one of a hundred exceeds.

    >>> spread_of([3.0, 1.0, 2.0])
    Spread(p50_ms=2.0, p99_ms=3.0)
    """
    ordered = sorted(took_ms)
    return Spread(ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)])


def _replace(file: Path, text: str) -> None:
    """In one step, as Kubernetes and the commands do."""
    written = file.with_suffix(".new")
    written.write_text(text, encoding="utf-8")
    written.rename(file)


def _start(folder: Path, exits: ExitStack) -> tuple[str, Service]:
    begin = beginning(folder, exits)
    kafka_port, controller_port, valkey_port = free_ports(3)
    folder.mkdir(parents=True, exist_ok=True)
    begin(kafka_broker.prepare(folder / "kafka", port=kafka_port, controller_port=controller_port))
    begin(valkey_server.prepare(folder / "valkey", port=valkey_port))
    bootstrap_servers = kafka_broker.bootstrap_servers(kafka_port)
    common = {"kafka": {"bootstrap_servers": bootstrap_servers}, "redis": {"url": valkey_server.url(valkey_port)}}
    history = start_service_in(folder, begin, "schema_history", common)
    committer = start_service_in(folder, begin, "checkpoint_committer", common)
    _record_schemas(history)
    tenants = folder / "tenants"
    tenants.mkdir()
    for tenant in (*_QUIET, _NOISY, _POISONED):
        limits = {"limits": {"events_per_s": NOISY_LIMIT_PER_S}} if tenant == _NOISY else {}
        selection = {"name": _SOURCE, "include_tables": [rf"{_DATABASE}\.{tenant}"]}
        document = {"tenant": tenant, "sources": [selection], "sink": None, **limits}
        (tenants / f"{tenant}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    settings = {
        "sources": [_SOURCE],
        "kafka": {"bootstrap_servers": bootstrap_servers},
        "schema_history": {"address": history.grpc_address},
        "checkpoint_committer": {"address": committer.grpc_address},
        "tenants_folder": str(tenants),
        "state_folder": str(folder / "router"),
    }
    return bootstrap_servers, start_service_in(folder, begin, "router", settings)


def _record_schemas(history: Service) -> None:
    settings = GrpcClientSettings(address=history.grpc_address)
    for tenant in (*_QUIET, _NOISY, _POISONED):
        tables = [_table(tenant), *(odd_tables(tenant, _DATABASE) if tenant == _POISONED else ())]
        for table in tables:
            schema = msgspec.structs.replace(orders_schema(), table_id=table)
            asyncio.run(record_schema(settings, _SOURCE, schema))


def _table(tenant: str) -> TableId:
    return TableId(database=_DATABASE, table=tenant)


class _Traffic:
    """Publishes rows, and notes when each tick's rows were committed."""

    def __init__(self, source: ChangesSource, arrivals: dict[tuple[str, int], int]) -> None:
        self._source = source
        self._arrivals = arrivals
        self._number = 0
        self.committed_ns: dict[int, int] = {}
        """By the number of a tick."""
        self.noisy_rows = 0
        self.poison: Poison | None = None

    def tick(self, noisy_rows: float) -> None:
        """One batch with rows of all, and one with the noisy tenant's."""
        self._number += 1
        for tenant in (*_QUIET, _POISONED):
            self._run(tenant, ROWS_A_TICK)
        if self.poison is not None:
            self._run_poison(self.poison)
        self._source.publish()
        self.committed_ns[self._number] = time.monotonic_ns()
        if noisy_rows >= 1:
            self._run(_NOISY, int(noisy_rows))
            self._source.publish()
            self.noisy_rows += int(noisy_rows)

    def _run(self, tenant: str, rows: int) -> None:
        row = row_value("c", None, order_row(self._number))
        self._source.run([("c", b'{"id":%d}' % self._number, row)] * rows, table=_table(tenant))

    def _run_poison(self, poison: Poison) -> None:
        value = poison.value or row_value("c", None, order_row(self._number))
        for table in odd_tables(_POISONED, _DATABASE) if poison.table else [_table(_POISONED)]:
            self._source.run([("c", b'{"id":%d}' % self._number, value)], table=table)

    def run(self, run_s: float, noisy_rows_per_s: float) -> range:
        """Tick for so long, whether or not rows are delivered; the numbers of the ticks, once all quiet tenants have
        theirs."""
        first, began_s = self._number + 1, time.monotonic()
        while time.monotonic() < began_s + run_s:
            self.tick(noisy_rows_per_s * TICK_S)
            due_s = began_s + (self._number - first + 1) * TICK_S
            time.sleep(max(0.0, due_s - time.monotonic()))
        ticks = range(first, self._number + 1)
        wait_until(
            lambda: all((tenant, ticks[-1]) in self._arrivals for tenant in _QUIET),
            timeout_s=_TIMEOUT_S,
            what="the last rows",
        )
        return ticks

    def took_ms(self, ticks: range) -> list[float]:
        """From commit to arrival, of each quiet tenant and tick."""
        return [
            (self._arrivals[tenant, number] - self.committed_ns[number]) / 1e6 for tenant in _QUIET for number in ticks
        ]


def _phase(traffic: _Traffic, router: Service, run_s: float, noisy_rows_per_s: float) -> FairnessRun:
    cpu_s, began_s, noisy = router.usage().cpu_s, time.monotonic(), traffic.noisy_rows
    ticks = traffic.run(run_s, noisy_rows_per_s)
    took_s = time.monotonic() - began_s
    return FairnessRun(
        latency=spread_of(traffic.took_ms(ticks)),
        rows=len(ticks) * QUIET_TENANTS * ROWS_A_TICK,
        router_cpu=(router.usage().cpu_s - cpu_s) / took_s,
        noisy_rows_per_s=(traffic.noisy_rows - noisy) / took_s,
    )


@contextmanager
def _arrivals(bootstrap_servers: str) -> Iterator[dict[tuple[str, int], int]]:
    """When the last row of each tick reached each quiet tenant: filled by a thread while the context is open."""
    arrivals: dict[tuple[str, int], int] = {}
    ended = threading.Event()
    topics = {row_topic(tenant, _SOURCE, _table(tenant)): tenant for tenant in _QUIET}

    def follow() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "bench-fairness",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 1_000,
                "fetch.wait.max.ms": 5,
            }
        )
        consumer.subscribe(["^quiet[0-9]+\\." + _SOURCE + "\\." + _DATABASE + "\\..*"])
        while not ended.is_set():
            for message in consumer.consume(500, 0.05):
                topic, key = message.topic(), message.key()
                if message.error() is None and topic in topics and key is not None:
                    arrivals[topics[topic], json.loads(key)["id"]] = time.monotonic_ns()
        consumer.close()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield arrivals
    finally:
        ended.set()
        thread.join()


def _set_room(bootstrap_servers: str, max_message_bytes: str) -> None:
    """How much the poisoned tenant's topic takes at once."""
    entry = ConfigEntry("max.message.bytes", max_message_bytes, incremental_operation=AlterConfigOpType.SET)
    topic = row_topic(_POISONED, _SOURCE, _table(_POISONED))
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(30)


def _metrics(router: Service) -> str:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{router.http_port}/metrics", timeout=10) as answer:
        page: str = answer.read().decode()
    return page


def _delivered(router: Service) -> int:
    """Rows that the noisy tenant has."""
    return next((each.events for each in routed_tenants(_metrics(router)) if each.tenant == _NOISY), 0)
