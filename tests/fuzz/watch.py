"""A program that does not end: the process says where it stands, and ends itself and its servers.

Each program is bounded by its statements, each of which is bounded by a time-out; so one that lasts longer than all of them
has met a wait without one. Left alone, a campaign would stand there until its hours are over, and say nothing.
"""

import asyncio
import faulthandler
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LIMIT_S: Final = 900.0
"""Of one program."""
EXIT_CODE: Final = 3


@contextmanager
def watched(program: str, limit_s: float, end_servers: Callable[[], None]) -> Iterator[None]:
    """After ``limit_s`` within, print every thread's and every task's stack, end the servers, and exit with ``EXIT_CODE``."""

    def say_where() -> None:
        sys.stderr.write(f"{program} has not ended after {limit_s:.0f} s; it stands here:\n")
        for task in [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]:
            task.print_stack(file=sys.stderr)
        sys.stderr.flush()
        faulthandler.dump_traceback(all_threads=True)
        try:
            end_servers()
        finally:
            os._exit(EXIT_CODE)

    timer = threading.Timer(limit_s, say_where)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
