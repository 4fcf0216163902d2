"""The one way in which tests wait: for a fact, asked again and again, until it holds or a limit is reached.

The limit is far above the need of a busy machine, and below a test's own time limit, which would not name the line. No test is
judged by how long it waited.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

WITHIN_S: Final = 240.0
PAUSE_S: Final = 0.05

Fact = TypeVar("Fact")


def wait_until(
    fact: Callable[[], Fact],
    *,
    because: str,
    seen: Callable[[], object] | None = None,
    within_s: float = WITHIN_S,
    pause_s: float = PAUSE_S,
) -> Fact:
    """The fact once it is true. ``because`` names the fact that is awaited; ``seen`` gives the state that a person should see
    if it does not come.

    Raises:
        AssertionError: it was not so within the time; the text has ``because`` and the state that was seen last.
    """
    deadline_s = time.monotonic() + within_s
    while not (found := fact()):
        if time.monotonic() >= deadline_s:
            raise AssertionError(_not_so(because, within_s, found if seen is None else seen()))
        time.sleep(pause_s)
    return found


async def until(
    fact: Callable[[], Fact],
    *,
    because: str,
    seen: Callable[[], object] | None = None,
    within_s: float = WITHIN_S,
    pause_s: float = PAUSE_S,
) -> Fact:
    """The same in an event loop, which goes on meanwhile."""
    deadline_s = time.monotonic() + within_s
    while not (found := fact()):
        if time.monotonic() >= deadline_s:
            raise AssertionError(_not_so(because, within_s, found if seen is None else seen()))
        await asyncio.sleep(pause_s)
    return found


def _not_so(because: str, within_s: float, seen: object) -> str:
    return f"not within {within_s:.0f} s: {because}; seen last: {seen}"
