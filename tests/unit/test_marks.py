"""Which of a product's parameters are in the gate."""

import itertools

from tests.marks import pairs


def test_the_gate_has_each_pair_and_test_all_the_product() -> None:
    axes = {"a": {"x": 1, "y": 2, "z": 3}, "b": {"p": 1, "q": 2}, "c": {"s": 1, "t": 2}, "d": {"u": 1, "v": 2}}

    made = pairs(**axes)

    assert [each.values for each in made] == list(itertools.product(*(axis.values() for axis in axes.values())))
    in_gate = [each.values for each in made if not each.marks]
    assert len(in_gate) <= 8
    for (one, of_one), (other, of_other) in itertools.combinations(enumerate(axes.values()), 2):
        wanted = set(itertools.product(of_one.values(), of_other.values()))
        assert {(values[one], values[other]) for values in in_gate} == wanted
