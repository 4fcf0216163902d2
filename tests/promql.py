"""The part of PromQL that the chart's alerts use, evaluated over pages that were scraped.

As Prometheus' documentation says: "Querying basics" (lookback of five minutes, staleness), "Operators", "Functions".
``increase`` leaves out the extrapolation to the window's ends, which changes no sign. A counter that was born between two
scrapes has no increase, as in Prometheus.
"""

import itertools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

LOOKBACK_S: Final = 300.0
_TOKEN: Final = re.compile(
    r'\s*("(?:[^"\\]|\\.)*"|\d+(?:\.\d+)?[smhd]|\d+(?:\.\d+)?|[A-Za-z_][\w:]*|==|!=|>=|<=|=~|!~|[-+*/<>=(){},\[\]])'
)
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
_AGGREGATES: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {"sum": sum, "max": max, "min": min}


@dataclass(slots=True)
class Prometheus:
    """The pages of one target, by when they were scraped."""

    scrapes: list[tuple[float, Mapping[str, Vector]]] = field(default_factory=list)

    def scrape(self, page: str, at_s: float) -> None:
        """Take in a page of ``/metrics``; later than the ones before."""
        found: dict[str, Vector] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
        self.scrapes.append((at_s, found))

    def ask(self, expression: str, at_s: float) -> Vector:
        """The vector that ``expression`` gives at a moment. Raises ValueError: it is none of the known part."""
        found = _Parser(expression, self, at_s).whole()
        if not isinstance(found, dict):
            raise ValueError(f"{expression} gives a number")
        return found

    def fires(self, rule: Mapping[str, Any], at_s: float, every_s: float = 15.0) -> set[Labels]:
        """For which labels an alert fires at a moment: those of which its expression gave something all the time ``for`` it."""
        for_s = _seconds(rule.get("for", "0s"))
        moments = [at_s - past * every_s for past in range(int(for_s / every_s) + 1)]
        return set.intersection(*(set(self.ask(rule["expr"], moment)) for moment in moments))

    def now(self, name: str, at_s: float) -> Vector:
        """The newest scrape's; a series that it lacks is stale."""
        past = [(scraped_s, page) for scraped_s, page in self.scrapes if scraped_s <= at_s]
        if not past or at_s - past[-1][0] > LOOKBACK_S:
            return {}
        return past[-1][1].get(name, {})

    def over(self, name: str, at_s: float, range_s: float) -> Mapping[Labels, list[float]]:
        """Every value within the window, in order."""
        found: dict[Labels, list[float]] = {}
        for scraped_s, page in self.scrapes:
            if at_s - range_s < scraped_s <= at_s:
                for labels, value in page.get(name, {}).items():
                    found.setdefault(labels, []).append(value)
        return found


def _seconds(duration: str) -> float:
    return float(duration[:-1]) * _UNITS[duration[-1]]


@dataclass(frozen=True, slots=True)
class _Window:
    """A range vector."""

    values: Mapping[Labels, list[float]]


class _Parser:
    """Reads and evaluates at once."""

    def __init__(self, text: str, data: Prometheus, at_s: float) -> None:
        self.data, self.at_s, self.text = data, at_s, text
        self.tokens = [match.group(1) for match in _TOKEN.finditer(text)]
        if "".join(self.tokens) != re.sub(r"\s+", "", text):
            raise ValueError(f"not understood: {text}")

    def whole(self) -> Any:
        found = self._either()
        if self.tokens:
            raise ValueError(f"not understood from {' '.join(self.tokens)} on: {self.text}")
        return found

    def _take(self, *wanted: str) -> str | None:
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in wanted else None

    def _must(self, wanted: str) -> None:
        if self._take(wanted) is None:
            raise ValueError(f"{wanted} is missing: {self.text}")

    def _either(self) -> Any:
        left = self._compared()
        while self._take("or"):
            right = self._compared()
            left = {**right, **left}
        return left

    def _compared(self) -> Any:
        left = self._product()
        if (sign := self._take(*_COMPARISONS)) is None:
            return left
        right = self._product()
        if not isinstance(left, dict) or isinstance(right, dict):
            raise ValueError(f"a vector is compared with a number alone: {self.text}")
        return {labels: value for labels, value in left.items() if _COMPARISONS[sign](value, right)}

    def _product(self) -> Any:
        left = self._atom()
        while self._take("*"):
            right = self._atom()
            if isinstance(left, dict) or isinstance(right, dict):
                raise ValueError(f"numbers alone are multiplied: {self.text}")
            left *= right
        return left

    def _atom(self) -> Any:
        if self._take("("):
            found = self._either()
            self._must(")")
            return found
        word = self.tokens.pop(0)
        if word[0].isdigit():
            return float(word)
        if word in _AGGREGATES:
            return self._aggregate(_AGGREGATES[word])
        if self.tokens and self.tokens[0] == "(":
            return self._call(word)
        return self._selected(word)

    def _aggregate(self, reduce: Callable[[Sequence[float]], float]) -> Vector:
        by: set[str] = set()
        if self._take("by"):
            self._must("(")
            while (word := self.tokens.pop(0)) != ")":
                by |= {word} - {","}
        self._must("(")
        groups: dict[Labels, list[float]] = {}
        for labels, value in self._either().items():
            groups.setdefault(frozenset(each for each in labels if each[0] in by), []).append(value)
        self._must(")")
        return {labels: reduce(values) for labels, values in groups.items()}

    def _call(self, name: str) -> Any:
        self._must("(")
        given = self._either()
        self._must(")")
        match name, given:
            case "vector", float():
                return {frozenset(): given}
            case "max_over_time", _Window():
                return {labels: max(values) for labels, values in given.values.items()}
            case "increase", _Window():
                return {labels: _increase(values) for labels, values in given.values.items() if len(values) > 1}
        raise ValueError(f"{name} is not known: {self.text}")

    def _selected(self, name: str) -> Any:
        wanted: list[Callable[[Mapping[str, str]], bool]] = []
        if self._take("{"):
            while not self._take("}"):
                label, sign, value = self.tokens.pop(0), self.tokens.pop(0), self.tokens.pop(0).strip('"')
                wanted.append(_matcher(label, sign, value))
                self._take(",")

        def fits(labels: Labels) -> bool:
            return all(is_wanted(dict(labels)) for is_wanted in wanted)

        if self._take("["):
            range_s = _seconds(self.tokens.pop(0))
            self._must("]")
            values = self.data.over(name, self.at_s, range_s)
            return _Window({labels: each for labels, each in values.items() if fits(labels)})
        return {labels: value for labels, value in self.data.now(name, self.at_s).items() if fits(labels)}


def _matcher(label: str, sign: str, value: str) -> Callable[[Mapping[str, str]], bool]:
    match sign:
        case "=":
            return lambda labels: labels.get(label, "") == value
        case "!=":
            return lambda labels: labels.get(label, "") != value
        case "=~":
            return lambda labels: re.fullmatch(value, labels.get(label, "")) is not None
    raise ValueError(f"{sign} is not known")


def _increase(values: Sequence[float]) -> float:
    """A value below the one before is a restart, from 0."""
    return sum(after - before if after >= before else after for before, after in itertools.pairwise(values))
