"""Tables on a terminal, with names and values of sources, which nobody here chose."""

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from libs.config.plain_text import printable

OPTIONAL: Final = (
    "position",
    "newest commit",
    "chunk",
    "epoch",
    "share",
    "pid",
    "restarts",
    "dedupe",
    "prepare",
    "commit",
    "maintain",
    "show",
    "read",
    "merge",
    "delete files",
    "maintained",
    "size",
    "cpu",
    "memory",
)
"""Columns that are left out where a table is wider than the terminal, in this order."""
_FOLDED: Final = 24
"""The width that a column which may fold should have."""
_LEAST: Final = 10
"""The least that it gets where all optional columns are left out. Neither a number in it nor a word of its header is broken."""
_NUMBER: Final = re.compile(r"[~(]*\d[\d,.]*\d")
_UNBROKEN: Final = 1_000
"""A width in which no line of a table is broken."""
_GAP: Final = 2
"""After each column: the padding of ``plain_table``."""


def plain_table(*columns: str, right: Iterable[str] = (), folded: Iterable[str] = ("",)) -> Table:
    """A table without lines. ``right``: columns of numbers. ``folded``: columns of text, which may take several lines."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    numbers, texts = set(right), set(folded)
    for name in columns:
        table.add_column(
            name,
            justify="right" if name in numbers else "left",
            no_wrap=name not in texts,
            overflow="fold",
        )
    return table


class PlainConsole(Console):
    """Rich's console, without control characters from the text that it shows: the terminal obeys rich's own colours alone."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of ``renderable``."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def print_table(console: Console, table: Table, *, is_wide: bool = False) -> None:
    """Print a table without cutting a value: where it is wider than the console, columns of ``OPTIONAL`` are left out. Where
    that is not enough, headers take several lines, and columns of text fold further.

    ``is_wide``: all columns are printed, and the terminal breaks lines that are too long.
    """
    width = _width(table)
    if not is_wide:
        for name in OPTIONAL:
            if width <= console.width:
                break
            table = _without(table, name)
            width = _width(table)
        if width > console.width:
            _fold_headers(table)
            width = _width(table, least=_LEAST)
            _fold_texts(table, console.width - width + _GAP)  # nothing stands after the last column
    before, console.width = console.width, max(width, console.width)
    console.print(table, crop=False)
    console.width = before


def print_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print plain texts as a table; off a terminal each row is one line."""
    table = plain_table(*header, folded=header)
    for row in rows:
        table.add_row(*map(escape, row))
    PlainConsole(width=None if sys.stdout.isatty() else _UNBROKEN, highlight=False).print(table)


def _without(table: Table, name: str) -> Table:
    kept = [column for column in table.columns if column.header != name]
    found = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for column in kept:
        found.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap, overflow=column.overflow)
    for cells in zip(*(column.cells for column in kept), strict=True):
        found.add_row(*cells)
    return found


def _fold_headers(table: Table) -> None:
    """Break a header of several words that is wider than every value under it."""
    for column in table.columns:
        if cell_len(str(column.header)) > max(map(cell_len, _plain(column)), default=0):
            column.header = str(column.header).replace(" ", "\n")


def _fold_texts(table: Table, room: int) -> None:
    """Share out ``room`` beyond the least widths among the columns that fold. Rich itself would take it from numbers too."""
    wanted = {
        at: _widest(column) - _least(column, _LEAST) for at, column in enumerate(table.columns) if not column.no_wrap
    }
    for left, at in enumerate(sorted(wanted, key=wanted.__getitem__), start=-len(wanted)):
        more = max(0, min(wanted[at], room // -left))
        table.columns[at].width = _least(table.columns[at], _LEAST) + more
        room -= more


def _plain(column: Column) -> list[str]:
    return [Text.from_markup(str(cell)).plain for cell in column.cells]


def _least(column: Column, least: int) -> int:
    whole = [number for cell in _plain(column) for number in _NUMBER.findall(cell)]
    whole += str(column.header).split()
    return max([min(least, _widest(column)), *map(cell_len, whole)])


def _widest(column: Column) -> int:
    return max(cell_len(line) for cell in (str(column.header), *_plain(column)) for line in cell.split("\n"))


def _width(table: Table, *, least: int = _FOLDED) -> int:
    """The least that shows every value: columns that may fold need the width of a few words."""
    return sum(
        (_widest(column) if column.no_wrap else min(_widest(column), _least(column, least))) + _GAP
        for column in table.columns
    )
