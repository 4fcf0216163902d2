"""The heap of a service process."""

import subprocess
import sys
from pathlib import Path

_COUNT_HEAPS = """
import ctypes, threading
from libs.rpc.heap import use_one_heap
if {shared}:
    use_one_heap()
libc = ctypes.CDLL(None)
def allocate():
    kept.append(libc.malloc(100_000))
    all_there.wait()
kept, all_there = [], threading.Barrier(4)
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


def heaps(*, shared: bool) -> int:
    """How many a process with several threads has."""
    source = _COUNT_HEAPS.format(shared=shared)
    told = subprocess.run(
        [sys.executable, "-c", source], check=True, capture_output=True, text=True, cwd=Path(__file__).parents[3]
    )
    return told.stdout.count("<heap nr=")


def test_threads_share_one_heap() -> None:
    """Of glibc, which gives each its own otherwise."""
    assert heaps(shared=True) == 1
    assert heaps(shared=False) > 1
