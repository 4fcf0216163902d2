"""The progress of a command that takes long: one line that changes, on a terminal only."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from libs.cli.console import PlainConsole


@contextlib.contextmanager
def told_on_the_way() -> Iterator[Callable[[str], None]]:
    """Shows each text that it is given in place of the one before; goes with the block's end."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with PlainConsole(stderr=True).status("looking …") as line:
        yield line.update
