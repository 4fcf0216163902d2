"""Routers killed, frozen and multiplied: every tenant still gets every committed event once, in order."""

import asyncio
import itertools
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from libs.events.names import changes_topic
from libs.rpc.lifecycle import EXIT_RESTART
from tests.conftest import StartKafka, ValkeyServer
from tests.integration.router_rig import (
    ChangesSource,
    RouterProcess,
    created_ids,
    orders_schema,
    partitions_of,
    read_topic,
    read_until,
    record_schema,
)
from tests.integration.service_process import Services, started_services
from tests.kafka_reading import TopicRecords, is_without_open_transaction
from tests.waiting import wait_until

ROWS_A_BATCH = 20
ROUNDS_A_LIFE = 50
LIVES = (
    "router_after_produce_before_offsets=kill@2",
    "router_after_produce_before_offsets=kill@1",
    "router_after_offsets_before_commit=kill@2",
    "router_after_commit=kill@2",
    "router_after_commit=kill@1",
)
"""Where a router dies, and the next one: in its second transaction, or in the first."""


@dataclass(slots=True)
class Rig:
    """A source of some Kafka partitions, two tenants, and as many routers as a test starts."""

    services: Services
    source: ChangesSource
    kafka_partitions: int
    settings: dict[str, object]
    folder: Path
    whole: str
    half: str
    routers: list[RouterProcess]
    published: int = 0

    def router(self) -> RouterProcess:
        """One more router of the group, not started yet."""
        router = RouterProcess(self.folder / f"router-{len(self.routers)}", self.settings)
        self.routers.append(router)
        return router

    def publish(self, batches: int, *, pause_s: float = 0.0) -> None:
        """Commit so many batches, spread over the Kafka partitions, with an aborted one after every third."""
        for _ in range(batches):
            number = self.published // ROWS_A_BATCH
            self.source.creates(range(self.published, self.published + ROWS_A_BATCH))
            self.source.publish(kafka_partition=number % self.kafka_partitions)
            self.published += ROWS_A_BATCH
            if number % 3 == 0:
                self.source.creates(range(10**9, 10**9 + 5))
                self.source.publish(abort=True, kafka_partition=number % self.kafka_partitions)
            time.sleep(pause_s)

    def live_until_killed(self, router: RouterProcess, armed: str) -> None:
        """Commit batches until a router dies where it is armed to; one that ends before is started again."""
        ended = EXIT_RESTART
        while ended == EXIT_RESTART:
            router.start(failpoints=armed, waits=False)
            for number in itertools.count():
                if not router.is_running:
                    break
                if number < ROUNDS_A_LIFE:
                    self.publish(3, pause_s=0.05)
                else:  # it waits for the transaction of the one before to time out, or for a tenant that catches up
                    self.publish(1, pause_s=0.5)
            ended = router.wait_for_exit()
        assert ended == -signal.SIGKILL, f"{armed}:\n{router.log_text[-3000:]}"

    def topic(self, tenant: str) -> str:
        """A tenant's topic."""
        return f"{tenant}.{self.source.name}.shop.orders"

    def delivered(self, tenant: str, count: int) -> list[int]:
        """The ids that a tenant got, once there are ``count``."""
        found = read_until(self.services.bootstrap_servers, self.topic(tenant), lambda messages: len(messages) >= count)
        return created_ids(found)

    def assert_exactly_once(self) -> None:
        """Both tenants have every committed row once; the rows of each source partition in their order."""
        whole = self.delivered(self.whole, self.published)
        half = self.delivered(self.half, self.published // 2)
        for number in range(self.kafka_partitions):
            expected = [n for n in range(self.published) if n // ROWS_A_BATCH % self.kafka_partitions == number]

            assert [n for n in whole if n // ROWS_A_BATCH % self.kafka_partitions == number] == expected
            assert [n for n in half if n // ROWS_A_BATCH % self.kafka_partitions == number] == expected[1::2]

    def stop(self) -> None:
        """End the routers, frozen ones too."""
        for router in self.routers:
            if router.is_running:
                assert router.running is not None
                router.running.popen.send_signal(signal.SIGCONT)
                router.stop()


MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(services: Services, tmp_path: Path, unique_name: Callable[[str], str]) -> Iterator[MakeRig]:
    """Makes the test's rig, on the shared servers unless ``on`` names others; its routers end with the test."""
    rigs: list[Rig] = []

    def make(kafka_partitions: int = 1, on: Services = services) -> Rig:
        rigs.append(rig_on(on, unique_name("t").removeprefix("t_"), kafka_partitions, tmp_path))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.stop()


def rig_on(services: Services, suffix: str, kafka_partitions: int, folder: Path) -> Rig:
    """A source and its tenants: one gets all rows, the other the odd ones."""
    source = ChangesSource(services.bootstrap_servers, f"s{suffix}", kafka_partitions=kafka_partitions)
    tenants = folder / "tenants"
    tenants.mkdir()
    odd = {"tables": ".*", "where": "id / 2 <> 0 AND region = 'EU'"}
    selections = {
        f"whole-{suffix}": {"name": source.name},
        f"half-{suffix}": {"name": source.name, "row_filters": [odd]},
    }
    for name, selection in selections.items():
        (tenants / f"{name}.yaml").write_text(yaml.safe_dump({"tenant": name, "sources": [selection]}))
    settings: dict[str, object] = {
        "sources": [source.name],
        "group": f"router-{suffix}",
        "kafka": {"bootstrap_servers": services.bootstrap_servers},
        **services.addresses,
        "tenants_folder": str(tenants),
    }
    asyncio.run(record_schema(services.schema_history.client_settings, source.name, orders_schema()))
    whole, half = selections
    return Rig(services, source, kafka_partitions, settings, folder, whole, half, [])


@pytest.mark.promise("router's transaction")
def test_killed_at_each_crash_point_nothing_is_lost_or_repeated(make_rig: MakeRig) -> None:
    """A router killed in a gap is followed by one that goes on exactly after the last visible event, and is killed in turn."""
    rig = make_rig()
    router = rig.router()
    for armed in LIVES:
        rig.live_until_killed(router, armed)
    router.start(waits=False)
    rig.publish(5)

    rig.assert_exactly_once()


@pytest.mark.rest(because="the gate kills a router in each gap of a transaction, and tests/simulation at random")
def test_killed_at_random_nothing_is_lost_or_repeated(make_rig: MakeRig) -> None:
    """Five kills at any moment, under traffic."""
    rig = make_rig()
    router = rig.router()
    moments = random.Random(20_240_229)
    traffic = threading.Thread(target=rig.publish, args=(300,), kwargs={"pause_s": 0.1})
    traffic.start()
    for _ in range(5):
        router.start()
        time.sleep(moments.uniform(0.0, 2.0))
        router.kill()
    router.start(waits=False)
    traffic.join()

    rig.assert_exactly_once()


def test_partition_of_a_killed_router_goes_to_the_other(make_rig: MakeRig) -> None:
    """Two routers share two source partitions; when one is killed the other takes both."""
    rig = make_rig(kafka_partitions=2)
    first, second = rig.router(), rig.router()
    traffic = threading.Thread(target=rig.publish, args=(250,), kwargs={"pause_s": 0.1})
    first.start()
    traffic.start()
    second.start()
    wait_until(
        lambda: partitions_of(second) == 1,
        because="each router has one partition",
        seen=lambda: second.log_text[-3000:],
    )

    first.kill()
    wait_until(
        lambda: partitions_of(second) == 2,
        because="the other router takes both partitions",
        seen=lambda: second.log_text[-3000:],
    )
    first.start()
    traffic.join()

    rig.assert_exactly_once()


def test_frozen_router_that_wakes_inside_a_transaction_is_fenced(make_rig: MakeRig) -> None:
    """A zombie holds an open transaction over the other's take-over: nothing of it ever shows, and it goes on as a member.

    Kafka may take the partition away before the zombie's lane asks for anything: then the lane is closed amid its failure.
    """
    rig = make_rig()
    frozen = {"stuck_transaction_s": 300.0, "transaction_timeout_s": 600.0}  # longer than it is, on a machine at work
    rig.settings["lane"] = frozen
    zombie, successor = rig.router(), rig.router()
    zombie.start(failpoints="router_after_acknowledged_before_commit=freeze@2")
    rig.publish(1)
    assert rig.delivered(rig.whole, ROWS_A_BATCH) == list(range(ROWS_A_BATCH))
    rig.publish(1)
    written = TopicRecords(rig.services.bootstrap_servers, rig.topic(rig.whole), isolation="read_uncommitted")
    wait_until(
        lambda: len(written.read()) == 2 * ROWS_A_BATCH,
        because="the zombie froze itself in its second transaction, after Kafka acknowledged the rows",
        seen=lambda: zombie.log_text[-3000:],
    )
    written.close()
    successor.start()
    rig.publish(3)
    assert len(rig.delivered(rig.whole, rig.published)) == rig.published

    assert zombie.running is not None
    zombie.running.popen.send_signal(signal.SIGCONT)
    wait_until(
        lambda: any(ended in zombie.log_text for ended in ('"lane_fenced"', '"lane_closed_amid_a_failure"')),
        because="the zombie's transaction is refused",
        seen=lambda: zombie.log_text[-3000:],
    )
    rig.publish(10, pause_s=0.5)

    rig.assert_exactly_once()
    assert zombie.is_running


def test_power_cut_of_the_broker_loses_and_repeats_nothing(
    start_kafka: StartKafka, valkey_server: ValkeyServer, tmp_path: Path, make_rig: MakeRig
) -> None:
    """Kafka killed under traffic: the router goes on, by itself or started again by its supervisor."""
    broker = start_kafka()
    with started_services(broker.bootstrap_servers, valkey_server.url, tmp_path / "services") as own:
        rig = make_rig(on=own)
        router = rig.router()
        router.settings = {**rig.settings, "lane": {"stuck_transaction_s": 20.0}}
        router.start()
        rig.publish(20)
        wait_until(
            lambda: is_without_open_transaction(broker.bootstrap_servers, changes_topic(rig.source.name)),
            because="Kafka has the source's markers: killed between a commit and them, it forgets them (KAFKA-20734)",
        )
        broker.kill()
        time.sleep(2.0)
        broker.restart()
        own.supervise()
        rig.publish(20)

        def goes_on() -> bool:
            if not router.is_running:
                router.start(waits=False)
            return len(read_topic(broker.bootstrap_servers, rig.topic(rig.whole))) >= rig.published

        wait_until(
            goes_on,
            within_s=150.0,
            pause_s=1.0,
            because="the router goes on after the broker's power cut",
            seen=lambda: router.log_text[-3000:],
        )
        rig.assert_exactly_once()
        rig.stop()
