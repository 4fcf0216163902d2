"""Random row filters, each as a tenant writes it and as MySQL is asked for it.

A condition stands with ``{name}`` for a column. The tenant's form has the column's name there. MySQL's form says in addition
that text is compared by code points, as row filters compare it.
"""

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from libs.mysql.identifiers import quote_identifier

NUMBER: Final = "number"
TEXT: Final = "text"
BYTES: Final = "bytes"
MOMENT: Final = "moment"
CLOCK: Final = "clock"
OTHER: Final = "other"

_NUMBERS: Final = ("0", "1", "-1", "7", "127", "255", "1.5", "-123.46", "0.1", "1e3", "1.5e-7", "TRUE", "FALSE", ".5", "2.",
                   "2147483647", "18446744073709551615", "-9223372036854775808", "9007199254740993", "2024", "1901", "NULL",
                   "16777217", "999999999999999.9", "100.00", "b'101'", "99999.995", "3.4028235e38")  # fmt: skip
_TEXTS: Final = ("''", "'a'", "'A'", "'A '", "'it''s'", "'żółw'", "'é'", "'日本'", "'😀'", "'12'", "'a,b'", "'x\\\\y'",
                 "\"a\"", "\"it's\"", "'x\\'y'", "'\\%'", "'\\n'", "'null'", "'b,c'", "'x,y'", "'x'", "'ź'",
                 "NULL", "'\\a'")  # fmt: skip
_BYTES: Final = ("''", "'a'", "x'00FF'", "0xDEADBEEF", "X'61'", "x'61000000'", "'é'", "NULL", "0x6", "x'8007'")
_MOMENTS: Final = (
    "'2024-02-29'", "DATE '2024-02-29'", "'9999-12-31'", "'1000-01-01'", "'2020-01-02'", "'2001-09-09 01:46:40'",
    "TIMESTAMP '2001-09-09 01:46:40'", "'2024-02-29 23:59:59.999999'", "'1969-12-31 23:59:59.5'", "'2024-2-29'", "NULL",
    "TIMESTAMP '2024-02-29 23:59:59.999999'", "'2020-01-02T03:04:05'", "'2024-02-29 00:00:00'", "'2024-02-29 23:59'",
    "'1970-01-01 00:00:01'", "TIMESTAMP '2020-01-02 00:00:00'",
)  # fmt: skip
_CLOCKS: Final = ("'01:02:03'", "TIME '01:02:03'", "'-838:59:59'", "'838:59:59'", "TIME '12:34:56.789012'", "'0:0:0.000001'",
                  "'08:00:00'", "TIME '-00:00:00.5'", "'8:00'", "NULL", "'12:34:57'")  # fmt: skip
_RARE: Final[Mapping[str, Sequence[str]]] = {
    NUMBER: ("0x1F", "99", "+1", "'1'", "x'31'", "1e400"),
    TEXT: ("'a' 'b'", "N'a'", "_utf8mb4'a'", "_latin1 x'e9'", "5", "x'61'"),
    BYTES: ("b'1000001'", "5"),
    MOMENT: ("20240229", "'2023-02-30'", "'20240229'", "'2024-02-29 25:00:00'", "TIME '01:02:03'", "CURRENT_DATE"),
    CLOCK: ("80000", "'1 01:00:00'", "DATE '2024-02-29'"),
    OTHER: ("1",),
}
"""Literals that a filter may refuse."""
LITERALS: Final[Mapping[str, Sequence[str]]] = {
    NUMBER: _NUMBERS,
    TEXT: _TEXTS,
    BYTES: _BYTES,
    MOMENT: _MOMENTS,
    CLOCK: _CLOCKS,
    OTHER: ("NULL",),
}
_PATTERNS: Final = ("'%'", "'a%'", "'%b%'", "'_'", "'A_'", "'%\\\\%'", "'x\\\\\\\\y'", "'a\\\\_%'", "''", "'%é%'", "'__'",
                    "'%a%b%'", "'1%'", "'%\\%'", "\"a%\"", "'_%_'")  # fmt: skip
_COMPARISONS: Final = ("=", "=", "<>", "!=", "<", "<=", ">", ">=", "<=>")
_PLACE: Final = re.compile(r"\{([^}]*)\}")


@dataclass(frozen=True, slots=True)
class Typed:
    """A column of a random table, and the sort of its values."""

    name: str
    type_sql: str
    sort: str
    is_optional: bool


def tenants_form(condition: str) -> str:
    """As the document has it."""
    return _PLACE.sub(lambda match: quote_identifier(match[1]), condition)


def mysqls_form(condition: str, texts: Collection[str]) -> str:
    """As the server is asked; ``texts`` are the columns of text."""

    def column(match: re.Match[str]) -> str:
        name = quote_identifier(match[1])
        return f"(CONVERT({name} USING utf8mb4) COLLATE utf8mb4_0900_bin)" if match[1] in texts else name

    return _PLACE.sub(column, condition)


class Conditions:
    """Draws conditions over some columns."""

    def __init__(self, chosen: random.Random, columns: Sequence[Typed]) -> None:
        self._random = chosen
        self._columns = columns

    def _one(self, *choices: str) -> str:
        return self._random.choice(choices)

    def draw(self, depth: int = 2) -> str:
        """One condition."""
        roll = self._random.random()
        if depth == 0 or roll < 0.4:
            return self._plain()
        left, right = self.draw(depth - 1), self.draw(depth - 1)
        if roll < 0.7:
            return f"{left} {self._one('AND', 'OR', 'and', '&&', 'OR', '||')} {right}"
        if roll < 0.8:
            return f"({left} {self._one('AND', 'OR')} {right})"
        if roll < 0.88:
            return self._one(f"NOT {left}", f"NOT ({left})", f"! ({left})", f"NOT NOT {left}", f"!{left}")
        if roll < 0.94:
            return f"({left}) {self._one('IS TRUE', 'IS NOT TRUE', 'IS FALSE', 'IS NULL', 'IS NOT NULL', 'IS UNKNOWN')}"
        if roll < 0.98:
            return f"({left}) {self._one(*_COMPARISONS)} ({right})"
        if roll < 0.985:
            return f"{left} XOR {right}"
        return f"{left} {self._one('/* c */', '/*! OR 1 */', '-- c' + chr(10), '# c' + chr(10), '/*!99999 OR 1 */')} "

    def _plain(self) -> str:
        column = self._random.choice(self._columns)
        sort, name = column.sort, f"{{{column.name}}}"
        if sort == OTHER or self._random.random() < 0.08:
            return f"{name} {self._one('IS NULL', 'IS NOT NULL', '<=> NULL')}"
        operand, value = self._operand(column), self._value(column)
        makers: tuple[Callable[[], str], ...] = (
            lambda: f"{operand} {self._one(*_COMPARISONS)} {value}",
            lambda: f"{operand} {self._one(*_COMPARISONS)} {value}",
            lambda: f"{name} = {self._literal(sort)}",
            lambda: f"{value} {self._one(*_COMPARISONS)} {operand}",
            lambda: f"{operand} {self._one('BETWEEN', 'NOT BETWEEN')} {self._literal(sort)} AND {value}",
            lambda: f"{operand} {self._one('IN', 'IN', 'NOT IN')} ({self._literals(sort)})",
            lambda: f"{name} = {self._literal(sort)} OR {name} = {self._literal(sort)}",
            lambda: (
                f"{name} {self._one('>', '>=')} {self._literal(sort)} AND {name} {self._one('<', '<=')} {self._literal(sort)}"
            ),
            lambda: self._odd(name, column),
        )
        return self._random.choice(makers)()

    def _odd(self, name: str, column: Typed) -> str:
        if column.sort == TEXT:
            negation = self._one("", "", "NOT ")
            escape = self._one("", "", "", " ESCAPE '|'")
            return f"{name} {negation}LIKE {self._one(*_PATTERNS)}{escape}"
        if column.sort == NUMBER:
            return self._one(name, f"NOT {name}", f"{name} IS TRUE", f"-{name} < 1", f"{name} = 5--3", f"{name} = 2 - 1 - 1",
                             f"{name} < 3 < 2", f"{name} = 1 = 1", f"{name} = 3 IS NULL", f"NOT {name} = 1", f"! {name} = 0",
                             f"- - {name} > 0", f"{name} IN (1, 2) = 1", f"{name} BETWEEN 1 AND 3 AND 1")  # fmt: skip
        return f"{name} IS NOT NULL"

    def _operand(self, column: Typed) -> str:
        name = f"{{{column.name}}}"
        if column.sort != NUMBER or self._random.random() < 0.6:
            return name
        other = self._value(column)
        return self._one(f"{name} + {other}", f"{name} - {other}", f"{name} * {other}", f"{name} / {other}", f"-{name}",
                         f"({name} + 1) * {other}", f"{name} - 1 - {other}",
                         f"{other} / {name}", f"{name} / 3 * 3")  # fmt: skip

    def _value(self, column: Typed) -> str:
        alike = [each.name for each in self._columns if each.sort == column.sort]
        return f"{{{self._random.choice(alike)}}}" if self._random.random() < 0.2 else self._literal(column.sort)

    def _literals(self, sort: str) -> str:
        return ", ".join(self._literal(sort) for _ in range(self._random.choice((1, 2, 4))))

    def _literal(self, sort: str) -> str:
        if self._random.random() < 0.01:
            return self._one(*_RARE[sort])
        return self._one(*LITERALS[sort])
