"""The C library's heap of a service's process, set for buffers of a megabyte that go from thread to thread."""

import ctypes
from typing import Final

# glibc's ``mallopt(3)``.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_KEPT_BYTES: Final = 32 << 20
"""So much free memory at the heap's end stays the process's: as much as is in flight between two of its threads."""
_MAPPED_BYTES: Final = 8 << 20
"""What is larger, a single huge row, goes back to the system as soon as it is freed."""


def use_one_heap() -> None:
    """Have all threads allocate from one heap that keeps memory for later use, where the C library is glibc.

    With a heap a thread, glibc's default, buffers that one thread fills and another frees lie in several heaps, and each is
    given back to the system and asked for again, page by page: a fifth of a reader's CPU, and 15 MB of a router's peak. The
    threads wait for one another at Python's lock anyway.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
