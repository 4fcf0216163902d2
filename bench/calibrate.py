"""How fast this machine is at this moment: the CPU time of one fixed loop.

Speed wanders by a factor of two and more within minutes, also in CPU seconds (shared cores, frequency). Figures taken
at different times are compared through this one.
"""

import time
from typing import Final

_ADDITIONS: Final = 100_000
_RUNS: Final = 15


def loop_cpu_ms() -> float:
    """CPU milliseconds of 100,000 additions in pure Python, in this thread: the least of several runs. Takes under 0.2 s."""
    return min(_one_run_cpu_ms() for _ in range(_RUNS))


def _one_run_cpu_ms() -> float:
    total = 0
    begun_ns = time.thread_time_ns()
    for number in range(_ADDITIONS):
        total += number
    return (time.thread_time_ns() - begun_ns) / 1e6
