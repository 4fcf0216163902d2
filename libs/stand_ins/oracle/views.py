"""Views, written down shortly: a heading of names, each with the letter of its type."""

from collections.abc import Iterable, Sequence
from typing import Final

from libs.stand_ins.oracle.answers import Column, OracleType, Value
from libs.stand_ins.oracle.sql import Table

_TYPES: Final = {
    "n": Column("", OracleType.NUMBER, 22, 0, 0),
    "t": Column("", size=4_000),
    "d": Column("", OracleType.DATE, 7),
    "z": Column("", OracleType.TIMESTAMP_TZ, 13, scale=6),
    "r": Column("", OracleType.RAW, 16),
    "l": Column("", OracleType.LONG, 0),
}


def made(heading: str, rows: Iterable[Sequence[Value]]) -> Table:
    """``heading``: ``GROUP#:n STATUS:t``; n numbers, t texts, d dates, z moments with a zone, r bytes, l LONG."""
    columns = []
    for each in heading.split():
        name, letter = each.rsplit(":", 1)
        kind = _TYPES[letter]
        columns.append(Column(name, kind.type, kind.size, kind.precision, kind.scale))
    return Table(columns, [tuple(row) for row in rows])


def with_first(table: Table, name: str, letter: str, value: Value) -> Table:
    """The same with one more column, before the others."""
    return Table(
        [*made(f"{name}:{letter}", []).columns, *table.columns], [(value, *row) for row in table.rows], table.row_ids
    )
