"""Rows that pass from one Kafka partition of a changes topic to another, as those of a shard between two readers: each tenant
gets them in order, whichever of them lags in whichever partition, and whichever process is killed."""

import contextlib
import random
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from libs.events.names import changes_topic
from libs.kafka.tail import fetch_end_offsets
from tests.faults.test_router_kills import ROWS_A_BATCH, MakeRig, Rig, make_rig
from tests.faults.test_router_straggler_kills import limit
from tests.integration.router_rig import created_ids, read_topic
from tests.waiting import wait_until

__all__ = ["make_rig"]  # the fixture

HARDLY_ANY = 1.0
"""Events a second: a batch takes a tenant out for as long as a test's step."""


def publish(rig: Rig, kafka_partition: int, batches: int, *, awaiting: int | None = None, pause_s: float = 0.0) -> None:
    """Commit so many batches to one partition; the first awaits all that another one holds by now."""
    topic = changes_topic(rig.source.name)
    if awaiting is not None:
        admin = AdminClient({"bootstrap.servers": rig.services.bootstrap_servers})
        rig.source.batch.await_others(fetch_end_offsets(admin, topic, [awaiting]))
    for _ in range(batches):
        rig.source.creates(range(rig.published, rig.published + ROWS_A_BATCH))
        rig.source.publish(kafka_partition=kafka_partition)
        rig.published += ROWS_A_BATCH
        time.sleep(pause_s)


@contextlib.contextmanager
def withheld(rig: Rig, kafka_partition: int) -> Iterator[None]:
    """A batch in a transaction that is open until the block ends, and committed then."""
    producer = Producer(
        {"bootstrap.servers": rig.services.bootstrap_servers, "transactional.id": f"other-{rig.source.name}"}
    )
    producer.init_transactions(120)
    rig.source.creates(range(rig.published, rig.published + ROWS_A_BATCH))
    rig.published += ROWS_A_BATCH
    payload, _ = rig.source.batch.take(time.time_ns() // 1000)
    producer.begin_transaction()
    producer.produce(changes_topic(rig.source.name), payload, partition=kafka_partition)
    producer.flush(120)
    yield
    producer.commit_transaction(120)


def got(rig: Rig, tenant: str) -> list[int]:
    """The ids that a tenant's topic holds now."""
    return created_ids(read_topic(rig.services.bootstrap_servers, rig.topic(tenant)))


def assert_in_order(rig: Rig) -> None:
    """Both tenants have every row once, in the order of the log."""
    assert rig.delivered(rig.whole, rig.published) == list(range(rig.published))
    assert rig.delivered(rig.half, rig.published // 2) == list(range(1, rig.published, 2))


def test_what_another_partition_holds_comes_first(make_rig: MakeRig) -> None:
    """The other partition's rows are not committed yet when the lane meets rows that await them. Rows before these are not
    held back, and a lane that awaits another partition is not taken for one that has stalled."""
    rig = make_rig(kafka_partitions=2)
    rig.settings["stall_timeout_s"] = 3.0
    router = rig.router()
    router.start()
    publish(rig, 1, 2)
    with withheld(rig, kafka_partition=0):
        publish(rig, 1, 3, awaiting=0)
        wait_until(
            lambda: '"lane_awaits_partitions"' in router.log_text,
            because="the lane awaits the other partition",
            seen=lambda: router.log_text[-3000:],
        )
        before = 2 * ROWS_A_BATCH
        assert rig.delivered(rig.whole, before) == list(range(before))
        time.sleep(6.0)
        assert router.get("/healthz")[0] == 200
        assert got(rig, rig.whole) == list(range(before))
    assert router.is_running
    publish(rig, 1, 1)

    assert_in_order(rig)


def test_partitions_that_await_each_other_go_on(make_rig: MakeRig) -> None:
    """Rows go to and fro, all of it before a router begins; an end of which only markers are left is passed too."""
    rig = make_rig(kafka_partitions=3)
    publish(rig, 0, 2)
    rig.source.creates(range(10**9, 10**9 + 5))
    rig.source.publish(abort=True, kafka_partition=0)
    for nth in range(12):
        publish(rig, (nth + 1) % 3, 3, awaiting=nth % 3)
    rig.router().start()

    assert_in_order(rig)


def test_a_tenant_that_is_behind_in_one_partition_awaits_it_in_the_other(make_rig: MakeRig) -> None:
    """The other tenant goes on; this one becomes a straggler there too, and nobody is asked to see to it."""
    rig = make_rig(kafka_partitions=2)
    limit(rig, HARDLY_ANY)
    router = rig.router()
    router.start()
    publish(rig, 0, 10, pause_s=0.05)
    publish(rig, 1, 10, awaiting=0)

    assert rig.delivered(rig.whole, rig.published) == list(range(rig.published))
    wait_until(
        lambda: '"awaits what comes first from another partition"' in router.log_text,
        because="the tenant awaits the other partition",
        seen=lambda: router.log_text[-3000:],
    )
    assert router.get("/readyz") == (200, "ok\n")
    assert got(rig, rig.half) == list(range(1, rig.published, 2))[: len(got(rig, rig.half))]
    limit(rig, None)
    assert_in_order(rig)


@pytest.mark.rest(because="the gate kills a router in each gap of a transaction, and tests/simulation at random")
def test_killed_at_random_while_rows_pass_to_and_fro(make_rig: MakeRig) -> None:
    """Two partitions, two routers, a tenant with a limit near its rate, kills at any moment."""
    rig = make_rig(kafka_partitions=2)
    limit(rig, 60.0)
    first, second = rig.router(), rig.router()
    moments, lives = random.Random(20_261_126), random.Random(20_261_127)

    def pass_rows() -> None:
        for nth in range(25):
            publish(rig, (nth + 1) % 2, moments.randint(1, 12), awaiting=nth % 2, pause_s=0.15)

    traffic = threading.Thread(target=pass_rows)
    traffic.start()
    second.start(waits=False)
    for _ in range(4):
        first.start(waits=False)
        time.sleep(lives.uniform(3.0, 8.0))
        first.kill()
    first.start(waits=False)
    traffic.join()
    limit(rig, None)
    publish(rig, 0, 4, awaiting=1)

    assert_in_order(rig)
    log = first.log_text + second.log_text
    assert '"tenant_behind"' in log
    assert '"lane_awaits_partitions"' in log
