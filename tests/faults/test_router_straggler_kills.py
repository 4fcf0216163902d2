"""Routers killed while tenants fall behind, catch up and come back: everybody still gets every event once, in order."""

import random
import threading
import time

import pytest
import yaml

from tests.faults.test_router_kills import MakeRig, Rig, make_rig
from tests.integration.router_rig import eventually
from tests.integration.test_router import services

__all__ = ["make_rig", "services"]  # the fixtures

STRAGGLER_FAILPOINTS = {
    "router_after_leaving_before_commit": (1, 1),
    "router_after_leaving_committed": (1,),
    "router_straggler_after_produce_before_offset": (1, 2),
    "router_straggler_after_offset_before_commit": (1, 2),
    "router_straggler_after_commit": (1, 2),
}
"""At which pass a router dies, and the next one; a tenant that is behind leaves no second time."""
SLOW = 40.0
"""Events a second; the source makes some hundred."""


def limit(rig: Rig, events_per_s: float | None) -> None:
    """What the tenant with the filter may take from now on."""
    selection = {
        "name": rig.source.name,
        "row_filters": [{"tables": ".*", "where": "id / 2 <> 0 AND region = 'EU'"}],
    }
    document = {"tenant": rig.half, "sources": [selection], "limits": {"events_per_s": events_per_s}}
    folder = rig.folder / "tenants"
    replacement = folder / f".{rig.half}"
    replacement.write_text(yaml.safe_dump(document))
    replacement.replace(folder / f"{rig.half}.yaml")


@pytest.mark.parametrize("failpoint", STRAGGLER_FAILPOINTS)
def test_killed_while_a_tenant_is_behind_nothing_is_lost_or_repeated(make_rig: MakeRig, failpoint: str) -> None:
    """In the gap, and there again; then the tenant catches up, and the other one never noticed."""
    rig = make_rig()
    limit(rig, SLOW)
    router = rig.router()
    for dies_at in STRAGGLER_FAILPOINTS[failpoint]:
        router.start(failpoints=f"{failpoint}=kill@{dies_at}", waits=False)
        while router.is_running:
            rig.publish(3, pause_s=0.05)
    limit(rig, None)
    router.start(waits=False)
    rig.publish(5)

    rig.assert_exactly_once()


def test_killed_when_a_tenant_comes_back_nothing_is_lost_or_repeated(make_rig: MakeRig) -> None:
    """The transaction that takes it in again is not committed; the next router finds it behind, where it was."""
    rig = make_rig()
    limit(rig, 0.5)
    router = rig.router()
    router.start(failpoints="router_after_leaving_before_commit=kill@2")
    rig.publish(20, pause_s=0.05)
    assert eventually(lambda: '"tenant_behind"' in router.log_text)
    limit(rig, None)
    while router.is_running:
        rig.publish(1, pause_s=0.2)
    assert '"tenant_caught_up"' not in router.log_text

    router.start(waits=False)
    rig.publish(5)

    rig.assert_exactly_once()


def test_killed_at_random_while_tenants_come_and_go(make_rig: MakeRig) -> None:
    """Two partitions, two routers, a limit near the tenant's rate, kills at any moment."""
    rig = make_rig(kafka_partitions=2)
    limit(rig, 60.0)
    first, second = rig.router(), rig.router()
    moments = random.Random(20_261_122)
    traffic = threading.Thread(target=rig.publish, args=(200,), kwargs={"pause_s": 0.15})
    traffic.start()
    second.start(waits=False)
    for _ in range(4):
        first.start(waits=False)
        time.sleep(moments.uniform(3.0, 8.0))
        first.kill()
    first.start(waits=False)
    traffic.join()
    limit(rig, None)
    rig.publish(4)

    rig.assert_exactly_once()
    log = first.log_text + second.log_text
    assert '"tenant_behind"' in log
