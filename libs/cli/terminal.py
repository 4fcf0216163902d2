"""Output of commands to a terminal, with names and values of sources, which nobody here chose."""

import sys
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from libs.config.plain_text import printable


class PlainConsole(Console):
    """Rich's console, without control characters from the text that it shows: the terminal obeys rich's own colours alone."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of ``renderable``."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def echo(text: str | bytes = "", **options: Any) -> None:
    """As ``click.echo``, for text that holds a source's names and values. Bytes are printed as they are: they are JSON, which
    escapes control characters itself, or output that a person asked for as it is."""
    click.echo(printable(text) if isinstance(text, str) else text, **options)


def is_terminal() -> bool:
    """Whether standard output is one; else it is a file or another program, which gets bytes as they are."""
    return sys.stdout.isatty()
