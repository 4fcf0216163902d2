"""Tenants that become stragglers alone: over their limits, or where Kafka will not take their records. Kafka and router are
real."""

import asyncio
import time
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType
from prometheus_client.parser import text_string_to_metric_families

from libs.config.connections import KafkaSettings
from libs.events.names import changes_topic
from libs.kafka.clients import TopicSpec, ensure_topics
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from tests.integration.router_rig import created_ids, header, read_topic
from tests.integration.test_router import Setting, setting
from tests.waiting import WITHIN_S, wait_until

__all__ = ["setting"]  # the fixture

ROWS_A_BATCH = 50
HARDLY_ANY = {"events_per_s": 1}
"""A batch a minute: on any machine, the tenant is a straggler until its document says otherwise."""
TOO_SMALL_BYTES = 150
"""``max.message.bytes`` of a topic that takes no row event."""


def publish(rig: Setting, first: int, batches: int) -> range:
    """Commit so many batches of created orders; their ids."""
    last = first + batches * ROWS_A_BATCH
    for number in range(first, last, ROWS_A_BATCH):
        rig.source.creates(range(number, number + ROWS_A_BATCH))
        rig.source.publish()
    return range(first, last)


def ids(rig: Setting, tenant: str) -> list[int]:
    """The ids that a tenant's topic holds now."""
    return created_ids(read_topic(rig.services.bootstrap_servers, rig.topic(tenant)))


def make_too_small(rig: Setting, tenant: str) -> None:
    """The tenant's topic is there, and takes none of its records."""
    config = {"max.message.bytes": str(TOO_SMALL_BYTES)}
    kafka = KafkaSettings(bootstrap_servers=rig.services.bootstrap_servers)
    ensure_topics(kafka, [TopicSpec(name=rig.topic(tenant), config=config)])


def make_large_enough(rig: Setting, tenant: str) -> None:
    """As a person does who reads ``headwater status``."""
    admin = AdminClient({"bootstrap.servers": rig.services.bootstrap_servers})
    entry = ConfigEntry("max.message.bytes", "1048588", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, rig.topic(tenant), incremental_configs=[entry])
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(120)


def delete_all(rig: Setting, topic: str) -> None:
    """As retention does."""
    admin, place = AdminClient({"bootstrap.servers": rig.services.bootstrap_servers}), TopicPartition(topic, 0)
    place.offset = admin.list_offsets({place: OffsetSpec.latest()})[place].result(60).offset
    admin.delete_records([place])[place].result(60)


def samples(rig: Setting, name: str) -> dict[str, float]:
    """A metric of the router by tenant."""
    families = text_string_to_metric_families(rig.router.get("/metrics")[1])
    return {
        sample.labels["tenant"]: sample.value for family in families for sample in family.samples if sample.name == name
    }


def has_come_back(rig: Setting, tenant: str) -> bool:
    """The lane carries the tenant again."""
    return f'"tenant_id": "{tenant}"' in "".join(
        line for line in rig.router.log_text.splitlines() if '"tenant_caught_up"' in line
    )


def test_a_tenant_over_its_limit_falls_behind_alone_and_gets_everything(setting: Setting) -> None:
    """The other one has all events while it has but a part; in the end it has all, once and in order, and comes back."""
    quiet = setting.write_tenant("quiet")
    noisy = setting.write_tenant("noisy", limits=HARDLY_ANY)
    setting.router.start()
    expected = publish(setting, 0, 40)

    setting.read(setting.topic(quiet), len(expected))
    of_noisy = ids(setting, noisy)

    assert ids(setting, quiet) == list(expected)
    assert of_noisy == list(expected)[: len(of_noisy)]
    assert 0 < len(of_noisy) < len(expected) / 2
    assert '"tenant_behind"' in setting.router.log_text
    setting.write_tenant("noisy", limits={"events_per_s": 1_000_000})
    messages = setting.read(setting.topic(noisy), len(expected))
    assert created_ids(messages) == list(expected)
    orders = [header(message, "headwater.order") for message in messages]
    assert orders == sorted(orders)
    more = publish(setting, 2000, 1)
    setting.read(setting.topic(noisy), len(expected) + len(more))
    wait_until(
        lambda: bool(publish(setting, 10_000, 1)) and has_come_back(setting, noisy),
        pause_s=1.0,
        because="the tenant comes back with a batch",
        seen=lambda: setting.router.log_text[-3000:],
    )
    assert setting.router.get("/readyz") == (200, "ok\n")


def test_a_topic_that_takes_no_records_holds_back_its_tenant_alone(setting: Setting) -> None:
    """Kafka refuses one tenant's records: all others get theirs, it is said who is stuck and why, and mended it gets all of its
    own, once and in order; the order of its producers goes on too."""
    good, bad = setting.write_tenant("good"), setting.write_tenant("bad")
    make_too_small(setting, bad)
    setting.router.start()
    expected = publish(setting, 0, 10)

    setting.read(setting.topic(good), len(expected))

    assert ids(setting, good) == list(expected)
    assert ids(setting, bad) == []
    wait_until(
        lambda: setting.router.get("/readyz")[1].startswith(f"degraded: {bad} lags alone: Kafka refuses"),
        because="Kafka's refusal is reported",
        seen=lambda: setting.router.get("/readyz"),
    )
    more = publish(setting, 500, 4)
    setting.read(setting.topic(good), len(expected) + len(more))
    assert setting.router.is_running
    make_large_enough(setting, bad)
    setting.read(setting.topic(bad), len(expected) + len(more))
    assert ids(setting, bad) == [*expected, *more]
    last = publish(setting, 700, 1)
    setting.read(setting.topic(bad), len(expected) + len(more) + len(last))
    assert ids(setting, bad) == [*expected, *more, *last]
    assert created_ids(setting.read(setting.topic(good), len(ids(setting, bad)))) == [*expected, *more, *last]
    wait_until(
        lambda: bool(publish(setting, 10_000, 1)) and has_come_back(setting, bad),
        pause_s=1.0,
        because="the tenant comes back with a batch",
        seen=lambda: setting.router.log_text[-3000:],
    )
    assert not setting.router.get("/readyz")[1].startswith("degraded")


def test_a_router_that_starts_again_knows_who_is_behind(setting: Setting) -> None:
    """Stopped while a tenant is a straggler: the next one goes on at the tenant's own cursor."""
    quiet = setting.write_tenant("quiet")
    noisy = setting.write_tenant("noisy", limits=HARDLY_ANY)
    setting.router.start()
    expected = list(publish(setting, 0, 30))
    setting.read(setting.topic(quiet), len(expected))
    setting.router.stop()
    before = len(ids(setting, noisy))
    assert 0 < before < len(expected)

    setting.router.start()

    expected += publish(setting, len(expected), 1)
    setting.read(setting.topic(quiet), len(expected))
    assert len(ids(setting, noisy)) < len(expected)
    setting.write_tenant("noisy")
    setting.read(setting.topic(noisy), len(expected))
    assert ids(setting, noisy) == expected
    assert ids(setting, quiet) == expected


def test_what_retention_took_is_told_and_a_tenant_that_is_put_back_goes_on_with_what_comes(setting: Setting) -> None:
    """As docs/failure_modes.md has the remedy; no row comes while its document is away."""
    good, bad = setting.write_tenant("good"), setting.write_tenant("bad")
    make_too_small(setting, bad)
    setting.router.start()
    lost = publish(setting, 0, 2)
    setting.read(setting.topic(good), len(lost))
    wait_until(
        lambda: f"{bad} lags alone" in setting.router.get("/readyz")[1],
        because="the tenant lags alone",
        seen=lambda: setting.router.get("/readyz"),
    )
    setting.router.stop()
    delete_all(setting, changes_topic(setting.source.name))
    make_large_enough(setting, bad)
    setting.router.start()
    wait_until(
        lambda: f"{bad} lags alone: the records from offset" in setting.router.get("/readyz")[1],
        because="the gap is reported",
        seen=lambda: setting.router.get("/readyz"),
    )

    document = setting.tenants_folder / f"{bad}.yaml"
    away = document.rename(setting.tenants_folder / f".{bad}.away")
    wait_until(
        lambda: '"event": "tenant_let_go"' in setting.router.log_text,
        because="the tenant is let go",
        seen=lambda: setting.router.log_text[-3000:],
    )
    away.rename(document)
    wait_until(
        lambda: bad in samples(setting, "headwater_router_served"),
        because="the tenant is served again",
        seen=lambda: setting.router.log_text[-3000:],
    )
    expected = publish(setting, lost.stop, 1)

    assert created_ids(setting.read(setting.topic(bad), len(expected))) == list(expected)
    assert created_ids(setting.read(setting.topic(good), len(lost) + len(expected))) == [*lost, *expected]


async def test_progress_tells_how_far_the_one_behind_got(setting: Setting) -> None:
    """Others' progress is not its own: a wait for it is for it alone."""
    quiet = setting.write_tenant("quiet")
    noisy = setting.write_tenant("noisy", limits=HARDLY_ANY)
    await asyncio.to_thread(setting.router.start)
    expected = await asyncio.to_thread(publish, setting, 0, 30)
    await asyncio.to_thread(setting.read, setting.topic(quiet), len(expected))

    settings = setting.services.checkpoint_committer.client_settings
    async with CheckpointCommitterClient(settings) as committer:

        async def reported() -> dict[str, Any]:
            found = [each for each in await committer.progress() if each.partition.source == setting.source.name]
            return {each.tenant: each for each in found}

        async with asyncio.timeout(WITHIN_S):
            progress = await reported()
            while quiet not in progress or progress[quiet].rows < len(expected):
                await asyncio.sleep(0.2)
                progress = await reported()
        assert progress[noisy].order < progress[quiet].order
        setting.write_tenant("noisy")
        async with asyncio.timeout(WITHIN_S):
            while progress[noisy].rows < len(expected):
                await asyncio.sleep(0.5)
                progress = await reported()
        assert progress[noisy].order == progress[quiet].order


def test_twenty_tenants_a_noisy_and_a_poisoned_one_among_them(setting: Setting) -> None:
    """While one is held back and one is stuck, each of the 18 others has every event; nothing is lost to anybody."""
    quiet = [setting.write_tenant(f"q{number:02d}") for number in range(18)]
    noisy = setting.write_tenant("noisy", limits={"bytes_per_s": 100})
    bad = setting.write_tenant("bad")
    make_too_small(setting, bad)
    setting.router.start()
    expected = list(publish(setting, 0, 30))

    got = {tenant: created_ids(setting.read(setting.topic(tenant), len(expected))) for tenant in quiet}
    of_noisy = len(ids(setting, noisy))

    assert of_noisy < len(expected)
    assert ids(setting, bad) == []
    assert got == dict.fromkeys(quiet, expected)
    make_large_enough(setting, bad)
    setting.write_tenant("noisy")
    for tenant in (bad, noisy):
        assert created_ids(setting.read(setting.topic(tenant), len(expected))) == expected


def test_each_tenants_share_is_counted(setting: Setting) -> None:
    """A tenant that gets all rows costs more than one that gets a few, and the costs of all are the process' CPU time, but for
    its work without any batch."""
    whole = setting.write_tenant("whole", format={"schemas": True})
    part = setting.write_tenant("part", selection={"include_tables": [r"shop\.nothing"]})
    few = setting.write_tenant("few", selection={"row_filters": [{"tables": ".*", "where": "id < 100"}]})
    setting.router.start()
    publish(setting, 0, 2)
    setting.read(setting.topic(whole), 100)
    setting.read(setting.topic(few), 100)
    cpu, size = "headwater_router_tenant_cpu_seconds_total", "headwater_router_bytes_total"
    began_s, before, begins_s = process_cpu_s(setting), samples(setting, cpu), time.monotonic()

    for number in range(1, 60):
        for run in range(5):
            first = 100 + (5 * number + run) * 500
            setting.source.creates(range(first, first + 500))
        setting.source.publish()
    setting.read(setting.topic(whole), 100 + 59 * 2500)

    used_s, after = process_cpu_s(setting) - began_s, samples(setting, cpu)
    took_s = time.monotonic() - begins_s
    idle_s = idle_share(setting, min(took_s, 5.0)) * took_s
    spent = {tenant: after[tenant] - before[tenant] for tenant in (whole, few)}
    assert part not in after
    assert samples(setting, size)[whole] > 100 * samples(setting, size)[few]
    assert spent[whole] > spent[few]  # a batch of which a tenant gets nothing costs it nothing
    # On a busy machine the batches take longer, and the router does more beside them.
    assert 0.6 * (used_s - idle_s) <= sum(spent.values()) <= 1.1 * used_s


def idle_share(rig: Setting, for_s: float) -> float:
    """CPU of a router without batches, by time."""
    before_s, begins_s = process_cpu_s(rig), time.monotonic()
    time.sleep(for_s)
    return (process_cpu_s(rig) - before_s) / (time.monotonic() - begins_s)


def process_cpu_s(rig: Setting) -> float:
    """The CPU seconds of the router after its start."""
    families = text_string_to_metric_families(rig.router.get("/metrics")[1])
    return sum(
        sample.value for family in families for sample in family.samples if sample.name == "process_cpu_seconds_total"
    )
