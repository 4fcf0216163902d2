"""Source partitions are shared evenly among routers, of any topics; Faust's group has it so."""

import faust
import pytest

from services.router.app import SinglePartitions
from services.router.assignment import deal


class _Cluster:
    """The part of Kafka's metadata that an assignor asks for."""

    def __init__(self, partitions: dict[str, int]) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._partitions[topic])) if topic in self._partitions else None


@pytest.mark.parametrize(
    ("routers", "partitions", "expected"),
    [
        (2, {"a": 1, "b": 1}, {"r0": {"a": [0]}, "r1": {"b": [0]}}),
        (2, {"a": 1, "b": 1, "c": 1}, {"r0": {"a": [0], "c": [0]}, "r1": {"b": [0]}}),
        (2, {"a": 1, "b": 3}, {"r0": {"a": [0], "b": [1]}, "r1": {"b": [0, 2]}}),
        (3, {"a": 2}, {"r0": {"a": [0]}, "r1": {"a": [1]}, "r2": {}}),
        (1, {"a": 2, "b": 1}, {"r0": {"a": [0, 1], "b": [0]}}),
    ],
)
def test_each_router_has_as_many_partitions_as_another(
    routers: int, partitions: dict[str, int], expected: dict[str, dict[str, list[int]]]
) -> None:
    subscriptions = {f"r{number}": partitions.keys() for number in reversed(range(routers))}
    assert deal(subscriptions, {topic: range(count) for topic, count in partitions.items()}) == expected


def test_a_router_gets_nothing_of_a_source_that_it_does_not_know() -> None:
    assert deal({"old": {"a"}, "new": {"a", "b"}}, {"a": [0, 1], "b": [0], "c": [0]}) == {
        "old": {"a": [1]},
        "new": {"a": [0], "b": [0]},
    }


def test_fausts_group_deals_so_and_each_member_takes_what_it_is_given() -> None:
    assignor = SinglePartitions(faust.App("router", broker="aiokafka://127.0.0.1:1", store="memory://"))
    counts = {"headwater.changes.billing": 1, "headwater.changes.shop": 1, "headwater.changes.web": 2}
    members = {name: assignor.metadata({*counts, "headwater.changes.later"}) for name in ("m1", "m2")}

    given = assignor.assign(_Cluster(counts), members)

    assert {member: each.assignment for member, each in given.items()} == {
        "m1": [("headwater.changes.billing", [0]), ("headwater.changes.web", [0])],
        "m2": [("headwater.changes.shop", [0]), ("headwater.changes.web", [1])],
    }
    for each in given.values():
        assignor.on_assignment(each)
        assert {tuple(tp) for tp in assignor.assigned_actives()} == {
            (topic, partition) for topic, partitions in each.assignment for partition in partitions
        }
