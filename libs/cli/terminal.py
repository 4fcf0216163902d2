"""What commands write to a terminal: names and values of sources, which nobody here chose, among it."""

import sys
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from libs.config.plain_text import printable


class PlainConsole(Console):
    """Rich's, which writes no control character of what it shows: its own colours alone are the terminal's to obey."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of ``renderable``."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def echo(text: str | bytes = "", **options: Any) -> None:
    """As ``click.echo``, of text that a source's names and values stand in. Bytes are JSON, which escapes them itself, or what
    a person asked for as it is."""
    click.echo(printable(text) if isinstance(text, str) else text, **options)


def is_terminal() -> bool:
    """Whether standard output is one; else it is a file or another program, which gets bytes as they are."""
    return sys.stdout.isatty()
