"""A fuzzer's program that hangs is named, with the place where it stands."""

import subprocess
import sys

from tests.fuzz.watch import EXIT_CODE

HANGS = """
import asyncio, sys
from tests.fuzz.watch import watched

async def waits_for_nobody():
    await asyncio.to_thread(blocks)

def blocks():
    import time
    time.sleep(600)

with watched("the program of seed 7", 0.2, lambda: print("servers ended", flush=True)):
    asyncio.run(waits_for_nobody())
"""


def test_a_program_that_does_not_end_says_where_it_stands_and_ends_its_servers() -> None:
    """Its tasks and its threads are named."""
    ended = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == EXIT_CODE
    assert "servers ended" in ended.stdout
    assert "the program of seed 7 has not ended" in ended.stderr
    assert "waits_for_nobody" in ended.stderr  # the task
    assert "in blocks" in ended.stderr  # the thread
