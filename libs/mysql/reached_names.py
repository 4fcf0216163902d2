"""Which tables a statement may change beside those that it names: by views, triggers, stored functions and foreign keys."""

from collections.abc import Iterable
from dataclasses import dataclass

from libs.mysql.sql_lexer import names_in


@dataclass(frozen=True, slots=True)
class Definition:
    """Something of the server through which a statement that names ``name`` comes to that which ``text`` names."""

    name: str
    database: str
    text: str


def reached_names(names: frozenset[str], definitions: Iterable[Definition]) -> frozenset[str]:
    """``names`` and every name that is reached from them, over any number of steps, in lower case: a superset, never less.

    >>> steps = [Definition("v", "d", "select a from t"), Definition("t", "d", "insert into audit values (1)")]
    >>> sorted(reached_names(frozenset({"v"}), steps) & {"t", "audit", "v"})
    ['audit', 't', 'v']
    """
    left = list(definitions)
    reached = set(names)
    while met := [each for each in left if each.name.lower() in reached]:
        left = [each for each in left if each not in met]
        for each in met:
            reached |= {each.database.lower(), *names_in(each.text)}
    return frozenset(reached)
