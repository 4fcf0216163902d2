"""When a router reports to Kubernetes that it is ready."""

from typing import Any

from services.router.lane.lanes import ChangesPartition, Lanes
from services.router.liveness import Liveness

NOT_USED: Any = None
"""Of a lane that is opened; here there is none."""


async def test_a_router_is_ready_when_others_have_all_partitions() -> None:
    """A rollout ends the old router, which has the source's one partition, only when the new one is ready."""
    lanes = Lanes({"changes": "shop"}, NOT_USED)
    liveness = Liveness(NOT_USED, ["changes"], lanes)

    before = liveness.ready()
    await lanes.open([], generation=1)
    assigned = liveness.ready()
    await lanes.close()  # as at a rebalance

    assert before == "Kafka has yet to name our partitions"
    assert assigned is None
    assert liveness.ready() == before


async def test_partitions_of_other_topics_open_no_lane() -> None:
    lanes = Lanes({"changes": "shop"}, NOT_USED)

    await lanes.open([ChangesPartition("others", 0)], generation=1)

    assert lanes.all() == ()
    assert lanes.is_assigned
