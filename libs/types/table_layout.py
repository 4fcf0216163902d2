"""How a warehouse lays a table's rows out in files: by which parts, and in which order.

Terms and transforms are Iceberg's (specification, "Partition Transforms"), as its SQL extensions write them.
"""

import re
from dataclasses import dataclass
from typing import Final

import msgspec

TRANSFORMS: Final = ("identity", "year", "month", "day", "hour", "bucket", "truncate")
_WITH_NUMBER: Final = ("bucket", "truncate")
_TERM: Final = re.compile(
    r"\s*(?:(?P<transform>[A-Za-z]+)\s*\(\s*(?:(?P<number>\d+)\s*,)?\s*(?P<inner>[^()\s,`]+|`(?:[^`]|``)+`)\s*\)"
    r"|(?P<column>[^()\s,`]+|`(?:[^`]|``)+`))\s*"
)
_MOST: Final = 1_000_000
"""Iceberg keeps 32 bits; a bucket is a file of each batch."""
_DIGITS: Final = 10
_ORDERED: Final = re.compile(r"(?P<term>.*?)(?:\s+(?P<direction>asc|desc))?\s*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Term:
    """A column, or a transform of it."""

    column: str
    transform: str = "identity"
    number: int | None = None
    """Of ``bucket`` how many, of ``truncate`` how long."""


@dataclass(frozen=True, slots=True)
class OrderedTerm:
    """A term that rows are sorted by."""

    term: Term
    is_descending: bool = False


class TableLayout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The layout of some of a tenant's tables."""

    tables: str = ".*"
    """Regular expression of ``database.table``; the first layout that matches counts."""
    partition_by: tuple[str, ...] = ()
    """``status``, ``day(created_at)``, ``bucket(16, id)``, ``truncate(4, code)``, ``year(…)``, ``month(…)``, ``hour(…)``."""
    sort_by: tuple[str, ...] = ()
    """The same, with ``desc`` behind if wanted: rows within each file that a batch writes, and within rewritten files."""


def parse_term(text: str) -> Term:
    """One item of ``partition_by``. A column of another name than letters, digits and _ stands in backticks.

    >>> parse_term("bucket(16, `odd, name`)")
    Term(column='odd, name', transform='bucket', number=16)

    Raises:
        ValueError: says what is wrong with it.
    """
    match = _TERM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no column and no transform of one, such as day(created_at) or bucket(16, id)")
    if match["column"]:
        return Term(_unquoted(match["column"]))
    transform, number = match["transform"].lower().removesuffix("s"), match["number"]
    if transform not in TRANSFORMS:
        raise ValueError(f"{text!r}: there is no {match['transform']}; known: {', '.join(TRANSFORMS)}")
    if (number is not None) is not (transform in _WITH_NUMBER):
        form = f"{transform}(16, column)" if transform in _WITH_NUMBER else f"{transform}(column)"
        raise ValueError(f"{text!r}: is written {form}")
    if number is not None and not (len(number) < _DIGITS and 1 <= int(number) <= _MOST):
        raise ValueError(f"{text!r}: the number must be at least 1, and at most {_MOST:,}")
    return Term(_unquoted(match["inner"]), transform, None if number is None else int(number))


def parse_ordered_term(text: str) -> OrderedTerm:
    """One item of ``sort_by``.

    >>> parse_ordered_term("day(created_at) desc")
    OrderedTerm(term=Term(column='created_at', transform='day', number=None), is_descending=True)

    Raises:
        ValueError: says what is wrong with it.
    """
    match = _ORDERED.fullmatch(text)
    assert match is not None  # it matches every text
    return OrderedTerm(parse_term(match["term"]), (match["direction"] or "").lower() == "desc")


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
