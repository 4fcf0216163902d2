"""Regular expressions of documents against names of tables and columns: whole names, each pattern compiled once.

``re`` itself keeps 512 patterns, fewer than a mesh has. A name may hold a line break, so ``.`` takes one too: a pattern that
hides ``shop\\..*`` hides every table. Names of columns match without case, as MySQL compares them (manual 11.2.3): a pattern
that hides ``ssn`` hides ``SSN``.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

_KEPT: Final = 50_000
"""Some kilobytes each. A document has 1,000 at most."""

Matches = Callable[[str], object]


@lru_cache(maxsize=_KEPT)
def table_pattern(pattern: str) -> Matches:
    """Tells by ``database.table``. Raises re.error.

    >>> bool(table_pattern(r"shop\\..*")("shop.orders")), bool(table_pattern("shop")("shop.orders"))
    (True, False)
    """
    return re.compile(pattern, re.DOTALL).fullmatch


@lru_cache(maxsize=_KEPT)
def column_pattern(pattern: str) -> Matches:
    """Tells by ``database.table.column``, without case. Raises re.error."""
    return re.compile(pattern, re.DOTALL | re.IGNORECASE).fullmatch


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
