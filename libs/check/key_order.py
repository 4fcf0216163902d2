"""Rows after a key, as SQL of both ends: of columns whose order is the same at both.

The conditions are written out, column by column, because MySQL finds no range of an index in ``(a, b) > (1, 2)``.
"""

from collections.abc import Sequence

from libs.check.parts import KeySql
from libs.check.places import Place


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


def is_between(keys: Sequence[KeySql], after: Place | None, up_to: Place | None, plain: Sequence[str] = ()) -> str:
    """True of a warehouse's rows after ``after`` and not after ``up_to`` (None: no bound).

    ``plain``: conditions that are all true of the rows that have a place; with no ``up_to`` the others are meant too. Each row
    is between one pair of neighbours, also one with a NULL: that, which the source's key cannot have, is after nothing, and
    no place where it is one of a text.
    """
    names = [key.expression for key in keys]
    has_place = [f"COALESCE({each}, FALSE)" for each in plain]

    def behind(place: Place) -> str:
        literals = [key.literal(element) for key, element in zip(keys, place, strict=True)]
        return f"COALESCE({is_behind(names, literals)}, FALSE)"

    bounds = [] if after is None else [behind(after)]
    if up_to is None:
        return f"({' OR '.join([*bounds, *(f'NOT {each}' for each in has_place)])})" if bounds else "(1 = 1)"
    return f"({' AND '.join([*bounds, f'NOT {behind(up_to)}', *has_place])})"
