"""The whole of the fanout's path behind the reader: a router process and its Kafka, for the rows of many tenants.

No MySQL: a log of batches waits in the changes topic, each row another tenant's by ``tenant_code``; the router catches up.
"""

import asyncio
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import yaml
from confluent_kafka import Producer

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


def stack_cost(
    folder: Path, source: str, specs: list[TenantSpec], schema: TableSchema, batches: list[bytes]
) -> StackCost:
    """The first of ``batches`` makes the topics and is not measured; each is a transaction of the changes topic."""
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
        return _measured(servers, source, batches, router, kafka)


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


def _delivered(router: Service) -> int:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{router.http_port}/metrics", timeout=10) as answer:
        return sum(each.events for each in routed_tenants(answer.read().decode()))
