"""All output of commands: names and values of sources stand in it, which nobody here chose.

No other module of ``libs.cli`` prints (``tests/unit/cli/test_plain_text.py``); ``libs.cli.console`` has tables.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from libs.config.plain_text import one_line, printable

JSON_ASKED: Final = "libs.cli.json"
"""In a context's ``meta``: the command was given ``--json`` (``libs.cli.answer``); text for people goes to standard error."""


_ASIDE: Final[list[Callable[[], contextlib.AbstractContextManager[None]]]] = []


@contextlib.contextmanager
def stepping_aside(aside: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    """Within the block each printed line is printed within ``aside()``: a line of progress goes, and comes again below it."""
    _ASIDE.append(aside)
    try:
        yield
    finally:
        _ASIDE.remove(aside)


def _print(text: str | bytes, *, err: bool, nl: bool = True) -> None:
    with contextlib.ExitStack() as without_progress:
        for aside in _ASIDE:
            without_progress.enter_context(aside())
        click.echo(text, err=err, nl=nl)


class Coloured(str):
    """A line without anything that a terminal would obey but our own colours."""

    __slots__ = ()


def styled(text: str, **style: Any) -> Coloured:
    """As ``click.style``, of a part of a line."""
    return Coloured(click.style(one_line(text), **style))


def line_of(*parts: str) -> Coloured:
    """A line of parts, of which some may be coloured."""
    return Coloured("".join(part if isinstance(part, Coloured) else one_line(part) for part in parts))


def is_json() -> bool:
    """Whether the running command was given ``--json``, and prints text to standard error."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(JSON_ASKED))


def echo(text: str = "", *, err: bool = False) -> None:
    """Print one line, whatever names and values of sources it holds: none makes a line of its own, or is obeyed."""
    _print(line_of(text), err=err or is_json())


def secho(text: str, *, err: bool = False, **style: Any) -> None:
    """As ``echo``, in a colour."""
    _print(styled(text, **style), err=err or is_json())


def echo_lines(text: str | bytes, *, err: bool = False, nl: bool = True) -> None:
    """As ``echo``, for text that has lines of its own. Bytes are printed as they are: they are JSON, which escapes control
    characters itself, or output that a person asked for as it is."""
    is_text = not isinstance(text, bytes)
    shown = text if isinstance(text, bytes | Coloured) else printable(text)
    _print(shown, err=err or (is_text and is_json()), nl=nl)


def is_terminal() -> bool:
    """Whether standard output is one; else it is a file or another program, which gets bytes as they are."""
    return sys.stdout.isatty()
