"""The whole of the fanout's path after the reader: a router process and its Kafka, for the rows of many tenants.

No MySQL: a log of batches waits in the changes topic, each row another tenant's by ``tenant_code``; the router catches up.
"""

import asyncio
import functools
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.stack import Service, beginning, process_usage, start_service_in, wait_until
from libs.config.connections import GrpcClientSettings, KafkaSettings
from libs.events.names import changes_topic
from libs.kafka.clients import TopicSpec, ensure_topics
from libs.operations.status import routed_tenants
from libs.servers import kafka_broker, valkey_server
from libs.servers.ports import LOOPBACK, free_ports
from libs.servers.process import Running
from libs.types.table import TableSchema
from libs.types.tenant import TenantSpec
from tests.integration.router_rig import record_schema

_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class StackCost:
    """CPU microseconds a source row, and the clock."""

    router_us: float
    broker_us: float
    rows_per_s: float


@dataclass(frozen=True, slots=True)
class RateCost:
    """At an even rate: CPU microseconds a source row, and from a batch in the changes topic to its rows in tenants' topics. The
    broker's has the fetches of the consumer that looks at all of these topics."""

    router_us: float
    broker_us: float
    p50_ms: float
    p95_ms: float


def stack_cost(
    folder: Path, source: str, specs: list[TenantSpec], schema: TableSchema, batches: list[bytes]
) -> StackCost:
    """The first of ``batches`` makes the topics and is not measured; each is a transaction of the changes topic."""
    with _stack(folder, source, specs, schema) as (servers, router, kafka):
        return _measured(servers, source, batches, router, kafka)


def rate_cost(
    folder: Path,
    source: str,
    specs: list[TenantSpec],
    schema: TableSchema,
    batches: list[bytes],
    *,
    first: int,
    rows: int,
    per_s: float,
) -> RateCost:
    """So many ``batches`` of ``rows`` a second, each a transaction, once the ``first`` ones have made the topics. A consumer
    reads committed rows, whose keys are ``{"id":N}``: consecutive numbers, batch by batch."""
    with _stack(folder, source, specs, schema) as (servers, router, kafka):
        publish = _publisher(servers, source)
        for number, batch in enumerate(batches[:first], start=1):  # a few new topics a transaction
            publish([batch])
            wait_until(functools.partial(_has, router, number * rows), timeout_s=_TIMEOUT_S, what="the first rows")
        return _at_rate(servers, publish, batches[first:], rows, per_s, router, kafka)


@contextmanager
def _stack(
    folder: Path, source: str, specs: list[TenantSpec], schema: TableSchema
) -> Iterator[tuple[str, Service, Running]]:
    """Kafka's address, the router and Kafka."""
    with ExitStack() as exits:
        begin = beginning(folder, exits)
        kafka_port, controller_port, valkey_port = free_ports(3)
        folder.mkdir(parents=True, exist_ok=True)
        kafka = begin(kafka_broker.prepare(folder / "kafka", port=kafka_port, controller_port=controller_port))
        begin(valkey_server.prepare(folder / "valkey", port=valkey_port))
        servers = kafka_broker.bootstrap_servers(kafka_port)
        common = {"kafka": {"bootstrap_servers": servers}, "redis": {"url": valkey_server.url(valkey_port)}}
        history = start_service_in(folder, begin, "schema_history", common)
        committer = start_service_in(folder, begin, "checkpoint_committer", common)
        asyncio.run(record_schema(GrpcClientSettings(address=history.grpc_address), source, schema))
        (folder / "tenants").mkdir()
        for spec in specs:
            text = yaml.safe_dump(msgspec.to_builtins(spec))
            (folder / "tenants" / f"{spec.tenant}.yaml").write_text(text, encoding="utf-8")
        ensure_topics(KafkaSettings(bootstrap_servers=servers), [TopicSpec(name=changes_topic(source))])
        settings = {
            "sources": [source],
            "kafka": {"bootstrap_servers": servers},
            "schema_history": {"address": history.grpc_address},
            "checkpoint_committer": {"address": committer.grpc_address},
            "tenants_folder": str(folder / "tenants"),
            "state_folder": str(folder / "router"),
        }
        router = start_service_in(folder, begin, "router", settings)
        yield servers, router, kafka


def _measured(servers: str, source: str, batches: list[bytes], router: Service, kafka: Running) -> StackCost:
    """A function of its own, so that its producer is gone before Kafka is."""
    publish = _publisher(servers, source)
    rows = len(batches[1:]) * _rows(router, lambda: publish(batches[:1]), 0)
    router_s, broker_s, began_s = router.usage().cpu_s, process_usage(kafka).cpu_s, time.monotonic()
    before = _delivered(router)
    publish(batches[1:])
    wait_until(lambda: _delivered(router) >= before + rows, timeout_s=_TIMEOUT_S, what="the rows")
    took_s = time.monotonic() - began_s
    return StackCost(
        (router.usage().cpu_s - router_s) * 1e6 / rows,
        (process_usage(kafka).cpu_s - broker_s) * 1e6 / rows,
        rows / took_s,
    )


def _at_rate(
    servers: str,
    publish: Callable[[list[bytes]], None],
    batches: list[bytes],
    rows_a_batch: int,
    per_s: float,
    router: Service,
    kafka: Running,
) -> RateCost:
    watch = _Watch(servers)
    router_s, broker_s = router.usage().cpu_s, process_usage(kafka).cpu_s
    published_s: list[float] = []
    begun_s = time.monotonic()
    for number, batch in enumerate(batches):
        time.sleep(max(0.0, begun_s + number / per_s - time.monotonic()))
        publish([batch])
        published_s.append(time.monotonic())
    rows = rows_a_batch * len(published_s)
    wait_until(lambda: len(watch.seen_s) >= rows, timeout_s=_TIMEOUT_S, what="the rows in tenants' topics")
    router_us = (router.usage().cpu_s - router_s) * 1e6 / rows
    broker_us = (process_usage(kafka).cpu_s - broker_s) * 1e6 / rows
    watch.close()
    seen_s = sorted(watch.seen_s.items())[-rows:]
    late_ms = sorted((at_s - published_s[place // rows_a_batch]) * 1e3 for place, (_, at_s) in enumerate(seen_s))
    return RateCost(router_us, broker_us, late_ms[rows // 2], late_ms[rows * 95 // 100])


class _Watch:
    """When each row was first seen in a tenant's topic, by its id."""

    def __init__(self, servers: str) -> None:
        """Of rows to come."""
        self.seen_s: dict[int, float] = {}
        self._is_over = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "bench-fanout-watch",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        topics = [name for name in self._consumer.list_topics(timeout=_TIMEOUT_S).topics if _is_of_rows(name)]
        ends = {name: self._consumer.get_watermark_offsets(TopicPartition(name, 0), _TIMEOUT_S)[1] for name in topics}
        self._consumer.assign([TopicPartition(name, 0, end) for name, end in ends.items()])
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._is_over:
            for message in self._consumer.consume(500, 0.02):
                if message.error() is None and (key := message.key()) is not None:
                    self.seen_s.setdefault(json.loads(key)["id"], time.monotonic())

    def close(self) -> None:
        self._is_over = True
        self._thread.join()
        self._consumer.close()


def _is_of_rows(topic: str) -> bool:
    """A tenant's, named after its source, database and table."""
    return topic.count(".") >= 2 and not topic.startswith("_") and "headwater" not in topic.split(".")


def _rows(router: Service, publish: Callable[[], None], before: int) -> int:
    """How many rows a first batch has, once it is delivered."""
    publish()
    last = before

    def is_still() -> bool:
        nonlocal last
        now, earlier = _delivered(router), last
        last = now
        time.sleep(0.5)
        return now > before and now == earlier

    wait_until(is_still, timeout_s=_TIMEOUT_S, what="the first rows")
    return last - before


def _publisher(servers: str, source: str) -> Callable[[list[bytes]], None]:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "bench-fanout", "compression.type": "lz4"})
    producer.init_transactions(_TIMEOUT_S)

    def publish(batches: list[bytes]) -> None:
        for payload in batches:
            producer.begin_transaction()
            producer.produce(changes_topic(source), payload, source.encode(), 0)
            producer.commit_transaction(_TIMEOUT_S)

    return publish


def _has(router: Service, rows: int) -> bool:
    return _delivered(router) >= rows


def _delivered(router: Service) -> int:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{router.http_port}/metrics", timeout=10) as answer:
        return sum(each.events for each in routed_tenants(answer.read().decode()))
