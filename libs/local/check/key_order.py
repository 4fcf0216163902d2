"""Rows behind a key, as SQL of both ends: of columns whose order is the same at both.

The conditions are written out, column by column, since MySQL finds no range of an index in ``(a, b) > (1, 2)``.
"""

from collections.abc import Sequence

from libs.local.check.parts import KeySql


def is_behind(keys: Sequence[str], place: Sequence[str]) -> str:
    """True of the rows whose key, SQL column by column, comes after ``place``, literals of a key.

    >>> is_behind(["a", "b"], ["1", "2"])
    'a >= 1 AND (a > 1 OR (a = 1 AND (b > 2)))'
    """
    behind = ""
    for key, literal in zip(reversed(keys), reversed(place), strict=True):
        further = f" OR ({key} = {literal} AND {behind})" if behind else ""
        behind = f"({key} > {literal}{further})"
    return f"{keys[0]} >= {place[0]} AND {behind}"


def is_up_to(keys: Sequence[str], place: Sequence[str]) -> str:
    """True of all other rows, NULL aside.

    >>> is_up_to(["a", "b"], ["1", "2"])
    'a <= 1 AND (a < 1 OR (a = 1 AND (b <= 2)))'
    """
    up_to = ""
    for key, literal in zip(reversed(keys), reversed(place), strict=True):
        up_to = f"({key} < {literal} OR ({key} = {literal} AND {up_to}))" if up_to else f"({key} <= {literal})"
    return f"{keys[0]} <= {place[0]} AND {up_to}"


def is_between(keys: Sequence[KeySql], after: Sequence[int] | None, up_to: Sequence[int] | None) -> str:
    """True of a warehouse's rows behind ``after`` and not behind ``up_to`` (None: no bound).

    Each row is between one pair of neighbours, whatever it holds: a NULL, which the source's key cannot have, is behind
    nothing.
    """
    names = [key.expression for key in keys]

    def behind(place: Sequence[int]) -> str:
        literals = [key.number(number) for key, number in zip(keys, place, strict=True)]
        return f"COALESCE({is_behind(names, literals)}, FALSE)"

    bounds = [] if after is None else [behind(after)]
    bounds += [] if up_to is None else [f"NOT {behind(up_to)}"]
    return f"({' AND '.join(bounds) or '1 = 1'})"
