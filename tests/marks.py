"""How a test is left to ``make test-all``, and how it says that it starts Spark or a server; see ``tests.tiers``."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import pytest
from hypothesis import settings

EXAMPLES: Final = 100
"""Of a property that asks for no number of its own, in ``make test-all``."""
GATES_EXAMPLES: Final = 50


class Marked(Protocol):
    """A test, as pytest has it."""

    def get_closest_marker(self, name: str) -> pytest.Mark | None: ...


running: Final[list[Marked]] = []
"""The test that runs."""


def rest(*values: Any, because: str) -> list[Any]:
    """Parameters whose tests are left to ``make test-all``; a tuple is several parameters."""
    mark = pytest.mark.rest(because=because)
    return [pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=mark) for value in values]


def gate(in_gate: Iterable[Any], values: Iterable[Any], *, because: str) -> list[Any]:
    """All ``values`` as parameters; those that are not ``in_gate`` are left to ``make test-all``."""
    chosen = list(in_gate)
    return [value if value in chosen else rest(value, because=because)[0] for value in values]


def examples(count: int) -> int:
    """How many a property tries that is cheap and needs many: all in ``make test-all``, a quarter in the gate."""
    is_gate = settings().max_examples < EXAMPLES
    return count // 4 if is_gate else count


def need(*marks: str) -> None:
    """Fail the test that runs, unless it carries one of ``marks``. Outside of pytest everything may be started."""
    if running and not any(running[-1].get_closest_marker(mark) for mark in marks):
        pytest.fail(
            f"this test starts what `{marks[0]}` stands for: add `pytestmark = pytest.mark.{marks[0]}` to its file"
        )


def pairs(**axes: Mapping[str, Any]) -> list[Any]:
    """The product of ``axes`` as parameters, in their order; each axis is its values by label.

    The gate has every pair of values of two axes once at least; the other products are left to ``make test-all``.
    """
    labels = list(itertools.product(*axes.values()))
    missing = {pair for each in labels for pair in _pairs_of(each)}
    in_gate = set()
    while missing:
        best = max(labels, key=lambda each: len(missing & _pairs_of(each)))
        in_gate.add(best)
        missing -= _pairs_of(best)
    mark = pytest.mark.rest(because="the gate has each pair of these values")
    return [
        pytest.param(
            *(axis[label] for axis, label in zip(axes.values(), each, strict=True)),
            id="-".join(each),
            marks=() if each in in_gate else mark,
        )
        for each in labels
    ]


def _pairs_of(labels: Sequence[str]) -> set[tuple[tuple[int, str], tuple[int, str]]]:
    return set(itertools.combinations(enumerate(labels), 2))
