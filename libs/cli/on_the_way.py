"""The progress of a command that takes long: one line that changes, on a terminal only; and what goes on after a Ctrl-C."""

import contextlib
import sys
from collections.abc import Callable, Iterator

import click

from libs.cli.console import PlainConsole
from libs.cli.terminal import stepping_aside


class Interrupted(click.Abort):
    """Ctrl-C ended the command, and not all of what it began."""

    def __init__(self, goes_on: str) -> None:
        super().__init__()
        self.goes_on = goes_on


@contextlib.contextmanager
def interruptible(goes_on: str) -> Iterator[None]:
    """A block that somebody else goes on with after a Ctrl-C; ``goes_on`` says so, with the command that shows or ends it.

    Raises:
        Interrupted: instead of KeyboardInterrupt.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(goes_on) from error


@contextlib.contextmanager
def shown_on_the_way() -> Iterator[Callable[[str], None]]:
    """Shows each text that it is given in place of the one before; goes with the block's end, and while a line is printed."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    line = PlainConsole(stderr=True).status("looking …")

    @contextlib.contextmanager
    def aside() -> Iterator[None]:
        line.stop()
        try:
            yield
        finally:
            line.start()

    with line, stepping_aside(aside):
        yield line.update
