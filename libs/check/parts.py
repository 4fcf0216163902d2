"""A table cut into parts by its key: ranges of a whole number, or the first digits of a hash where it is something else.

A part has a name at both ends, so that each counts and sums its rows by it (``checksums``). Parts can be cut again, until few
rows are in each.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from libs.check.canonical_text import End, text_hash

Part = int | str


@dataclass(frozen=True, slots=True)
class KeySql:
    """The key's part that one end compares: a column, numbers exact; or the text that is hashed."""

    expression: str
    end: End

    def literal(self, value: int | str) -> str:
        """A constant to compare with it, exact; a text is of characters that need no escape."""
        if isinstance(value, str):
            return f"'{value}'"
        # ClickHouse reads one of more than 64 bits as a double.
        return f"toInt128('{value}')" if self.end is End.CLICKHOUSE else str(value)


def number_key(held: str, end: End) -> KeySql:
    """A column of whole numbers, by its name in SQL."""
    # Beside a DECIMAL DuckDB would compare as doubles; ClickHouse would count beyond an INT's range.
    number = {End.DUCKDB: f"CAST({held} AS HUGEINT)", End.CLICKHOUSE: f"toInt128({held})"}.get(end, held)
    return KeySql(number, end)


class Cut(Protocol):
    """One way to cut."""

    def name(self, key: KeySql) -> str:
        """SQL of the part's name that a row belongs to."""
        ...

    def condition(self, key: KeySql, parts: Collection[Part]) -> str:
        """SQL that is true of the rows of ``parts``."""
        ...

    def spans(self, parts: Collection[Part]) -> tuple[tuple[int, int], ...] | None:
        """From and to of the numbers in ``parts``; None: they have no bounds."""
        ...

    def is_divisible(self, part: Part) -> bool:
        """A finer cut may have several of it."""
        ...

    def finer(self, times: int) -> "Cut | None":
        """Each part cut into about so many, and not more; None: it cannot be."""
        ...

    def parse(self, printed: object) -> Part:
        """A part's name, as a database answers it."""
        ...


@dataclass(frozen=True, slots=True)
class Ranges:
    """``count`` ranges of ``width`` numbers from ``low`` on; lower numbers are in part -1, higher ones in ``count``."""

    low: int
    width: int
    """A power of two, so that finer parts end where coarser ones do."""
    count: int

    @property
    def high(self) -> int:
        """The last number that lies in a range."""
        return self.low + self.width * self.count - 1

    def name(self, key: KeySql) -> str:
        number, low, high = key.expression, key.literal(self.low), key.literal(self.high)
        place = {
            End.MYSQL: f"(CAST({number} AS DECIMAL(20,0)) - ({self.low})) DIV {self.width}",
            End.CLICKHOUSE: f"intDiv({number} - {low}, {self.width})",
            End.DUCKDB: f"({number} - ({self.low})) // {self.width}",
            End.POSTGRESQL: f"div(CAST({number} AS NUMERIC) - ({self.low}), {self.width})",
        }[key.end]
        before, behind = f"{number} IS NULL OR {number} < {low}", f"{number} > {high}"
        return f"CASE WHEN {before} THEN -1 WHEN {behind} THEN {self.count} ELSE {place} END"

    def condition(self, key: KeySql, parts: Collection[Part]) -> str:
        number = key.expression
        edges = [f"{number} IS NULL OR {number} < {key.literal(self.low)}"] if -1 in parts else []
        edges += [f"{number} > {key.literal(self.high)}"] if self.count in parts else []
        spans = [tuple(map(key.literal, span)) for span in self._inner_spans(parts)]
        inner = [f"{number} BETWEEN {low} AND {high}" for low, high in spans]
        return f"({' OR '.join([*edges, *inner]) or '1 = 0'})"

    def spans(self, parts: Collection[Part]) -> tuple[tuple[int, int], ...] | None:
        return None if -1 in parts or self.count in parts else self._inner_spans(parts)

    def is_divisible(self, part: Part) -> bool:
        return self.width > 1 and part not in (-1, self.count)

    def finer(self, times: int) -> "Ranges | None":
        width = max(1, self.width // _power_of_two(times))
        return Ranges(self.low, width, self.width * self.count // width) if width < self.width else None

    def parse(self, printed: object) -> Part:
        return int(str(printed))

    def _inner_spans(self, parts: Collection[Part]) -> tuple[tuple[int, int], ...]:
        """Neighbours joined."""
        joined: list[tuple[int, int]] = []
        for part in sorted(part for part in parts if isinstance(part, int) and 0 <= part < self.count):
            low, high = self.low + part * self.width, self.low + (part + 1) * self.width - 1
            if joined and joined[-1][1] == low - 1:
                low = joined.pop()[0]
            joined.append((low, high))
        return tuple(joined)


def ranges(low: int, high: int, count: int) -> Ranges:
    """``low`` to ``high`` in about ``count`` ranges, and not more."""
    least = -(-(high - low + 1) // count)
    width = 1 << (least - 1).bit_length()
    return Ranges(low, width, -(-(high - low + 1) // width))


def _power_of_two(number: int) -> int:
    """The greatest that is not above ``number``."""
    return 1 << (number.bit_length() - 1)


@dataclass(frozen=True, slots=True)
class HashDigits:
    """By the first ``digits`` of the hexadecimal hash of the key's text."""

    digits: int

    def name(self, key: KeySql) -> str:
        return f"LEFT({text_hash(key.expression, key.end)}, {self.digits})"

    def condition(self, key: KeySql, parts: Collection[Part]) -> str:
        listed = ", ".join(f"'{part}'" for part in sorted(map(str, parts)))
        return f"({self.name(key)} IN ({listed}))" if listed else "(1 = 0)"

    def spans(self, _: Collection[Part]) -> tuple[tuple[int, int], ...] | None:
        return None

    def is_divisible(self, _: Part) -> bool:
        return True

    def finer(self, times: int) -> "HashDigits | None":
        further = (times.bit_length() - 1) // 4
        return HashDigits(self.digits + further) if further else None

    def parse(self, printed: object) -> Part:
        return str(printed)


def hash_digits(count: int) -> HashDigits:
    """About ``count`` parts, and not more but for the sixteen of one digit."""
    return HashDigits(max(1, (count.bit_length() - 1) // 4))


@dataclass(slots=True)
class Chosen:
    """Parts of several cuts: those whose rows are to be read."""

    parts: list[tuple[Cut, frozenset[Part]]] = field(default_factory=list)

    def add(self, cut: Cut, parts: Collection[Part]) -> None:
        """Choose ``parts`` too."""
        if parts:
            self.parts.append((cut, frozenset(parts)))

    def condition(self, key: KeySql) -> str:
        """SQL that is true of all that was chosen."""
        return f"({' OR '.join(cut.condition(key, parts) for cut, parts in self.parts) or '1 = 0'})"

    def spans(self) -> Sequence[tuple[int, int]]:
        """Of numbers, the same; empty: it does not say."""
        found = [cut.spans(parts) for cut, parts in self.parts]
        return [] if None in found else [span for spans in found if spans is not None for span in spans]
