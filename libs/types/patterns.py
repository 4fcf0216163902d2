"""Regular expressions of documents against names of tables and columns: whole names, each pattern compiled once.

``re`` itself keeps 512 patterns, fewer than a mesh has. A name may hold a line break, so ``.`` takes one too: a pattern that
hides ``shop\\..*`` hides every table. Names of columns match without case, as MySQL compares them (manual 11.2.3): a pattern
that hides ``ssn`` hides ``SSN``.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import takewhile
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parse  # type: ignore[attr-defined]
from typing import Final

_KEPT: Final = 50_000
"""Some kilobytes each. A document has 1,000 at most."""

Matches = Callable[[str], object]


@lru_cache(maxsize=_KEPT)
def table_pattern(pattern: str) -> Matches:
    """Matches ``database.table``. Raises re.error.

    >>> bool(table_pattern(r"shop\\..*")("shop.orders")), bool(table_pattern("shop")("shop.orders"))
    (True, False)
    """
    return re.compile(pattern, re.DOTALL).fullmatch


@lru_cache(maxsize=_KEPT)
def column_pattern(pattern: str) -> Matches:
    """Matches ``database.table.column``, without case. Raises re.error."""
    return re.compile(pattern, re.DOTALL | re.IGNORECASE).fullmatch


@lru_cache(maxsize=_KEPT)
def literal_prefix(pattern: str) -> str:
    """The common prefix of all names that a table's pattern matches; empty where that is not plain to see.

    >>> literal_prefix(r"shop\\.orders_.*"), literal_prefix("(shop|stock).*")
    ('shop.orders_', '')
    """
    try:
        parsed = sre_parse.parse(pattern, re.DOTALL)
    except (re.error, RecursionError, OverflowError):
        return ""
    if parsed.state.flags & re.IGNORECASE:
        return ""
    return "".join(chr(argument) for _, argument in takewhile(lambda item: item[0] is sre.LITERAL, parsed))


def matches_table(pattern: str, name: str) -> bool:
    """Whether a pattern is for ``database.table``."""
    return table_pattern(pattern)(name) is not None


def matches_column(pattern: str, name: str) -> bool:
    """Whether a pattern is for ``database.table.column``."""
    return column_pattern(pattern)(name) is not None


def any_table(patterns: Iterable[str], name: str) -> bool:
    """Whether one of them is for ``database.table``."""
    return any(table_pattern(pattern)(name) is not None for pattern in patterns)


def any_column(patterns: Iterable[str], name: str) -> bool:
    """Whether one of them is for ``database.table.column``."""
    return any(column_pattern(pattern)(name) is not None for pattern in patterns)
