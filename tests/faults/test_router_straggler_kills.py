"""Routers killed while tenants become stragglers, catch up and come back: everybody still gets every event once, in order."""

import random
import threading
import time

import pytest
import yaml

from tests.faults.test_router_kills import MakeRig, Rig, make_rig
from tests.waiting import wait_until

__all__ = ["make_rig"]  # the fixture

LIVES = (
    "router_after_leaving_before_commit=kill@1",
    "router_after_leaving_before_commit=kill@1",  # it is still in the lane: nothing was committed
    "router_after_leaving_committed=kill@1",
    "router_straggler_after_produce_before_offset=kill@1",
    "router_straggler_after_produce_before_offset=kill@2",
    "router_straggler_after_offset_before_commit=kill@2",
    "router_straggler_after_offset_before_commit=kill@1",
    "router_straggler_after_commit=kill@1",
    "router_straggler_after_commit=kill@2",
)
"""Where a router dies, and the next one, while a tenant becomes a straggler and then is one."""
SLOW = 40.0
"""Events a second; the source makes some hundred."""


def limit(rig: Rig, events_per_s: float | None) -> None:
    """Limit the tenant with the filter to so many events a second from now on; None: no limit."""
    selection = {
        "name": rig.source.name,
        "row_filters": [{"tables": ".*", "where": "id / 2 <> 0 AND region = 'EU'"}],
    }
    document = {"tenant": rig.half, "sources": [selection], "limits": {"events_per_s": events_per_s}}
    folder = rig.folder / "tenants"
    replacement = folder / f".{rig.half}"
    replacement.write_text(yaml.safe_dump(document))
    replacement.replace(folder / f"{rig.half}.yaml")


def test_killed_while_a_tenant_falls_behind_and_comes_back_nothing_is_lost_or_repeated(make_rig: MakeRig) -> None:
    """In each gap; the last one is killed in the transaction that takes the tenant in again, which is not committed: the next
    router finds it a straggler, where it was. The other tenant never noticed."""
    rig = make_rig()
    # Kafka answers no offset while a transaction that has it is open, also where its owner was killed.
    rig.settings["lane"] = {"stuck_transaction_s": 15.0, "transaction_timeout_s": 20.0}
    limit(rig, SLOW)
    router = rig.router()
    for armed in LIVES:
        rig.live_until_killed(router, armed)
    limit(rig, None)
    rig.live_until_killed(router, "router_after_leaving_before_commit=kill@1")
    assert '"tenant_caught_up"' not in router.log_text

    router.start(waits=False)

    def comes_back() -> bool:
        rig.publish(1)  # a tenant comes back with a batch
        return '"tenant_caught_up"' in router.log_text

    wait_until(comes_back, because="the tenant comes back with a batch", seen=lambda: router.log_text[-3000:])
    rig.assert_exactly_once()


@pytest.mark.rest(because="the gate kills a router in each gap of a transaction, and tests/simulation at random")
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
