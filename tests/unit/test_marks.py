"""Which tests are in the gate, and that all are in `make test-all`."""

import itertools
import re
import tomllib
from pathlib import Path

from tests.marks import pairs

ROOT = Path(__file__).parents[2]


def test_the_gate_has_each_pair_and_test_all_the_product() -> None:
    axes = {"a": {"x": 1, "y": 2, "z": 3}, "b": {"p": 1, "q": 2}, "c": {"s": 1, "t": 2}, "d": {"u": 1, "v": 2}}

    made = pairs(**axes)

    assert [each.values for each in made] == list(itertools.product(*(axis.values() for axis in axes.values())))
    in_gate = [each.values for each in made if not each.marks]
    assert len(in_gate) <= 8
    for (one, of_one), (other, of_other) in itertools.combinations(enumerate(axes.values()), 2):
        wanted = set(itertools.product(of_one.values(), of_other.values()))
        assert {(values[one], values[other]) for values in in_gate} == wanted


def test_nothing_is_left_out_of_test_all() -> None:
    makefile = (ROOT / "Makefile").read_text()
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]

    [recipe] = re.findall(r"^test-all:.*\n\t(.*)\n", makefile, re.MULTILINE)
    assert recipe.startswith("@$(call BESIDE,")
    assert recipe.endswith(",)"), "it chooses no tests"
    assert "-m" not in options["addopts"]
    assert options["testpaths"] == ["tests"]
