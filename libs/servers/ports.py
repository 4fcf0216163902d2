"""Free TCP ports on loopback, for servers whose port is set when they are configured.

Asked for by the embedded stack and by the test fixtures. Ports come from below the range out of which the
kernel serves outgoing connections: a port of that range that is free now can be taken by any client's
connection while a killed server restarts, and the server then fails with "address in use". For the same
reason a port that was given belongs to its asker until its process ends, among all callers here.
"""

import fcntl
import functools
import os
import random
import socket
import tempfile
from pathlib import Path

LOOPBACK = "127.0.0.1"
LOWEST_PORT = 15_000
FALLBACK_EPHEMERAL_START = 32_768  # Linux's default, where /proc does not say
TRIES = 200

_OURS: set[int] = set()
"""A process's own locks do not stand in its way."""


def free_port() -> int:
    """One free port; see ``free_ports``."""
    return free_ports(1)[0]


def free_ports(count: int) -> tuple[int, ...]:
    """``count`` different ports that nothing on loopback listens on at this moment.

    They are this process's until it ends: nobody else who asks here, in this process or another of the same
    user, is given one of them, also while no server holds it. Other programs may still take one before its
    server binds it, which the server's readiness probe finds out.

    Raises:
        OSError: no free port was found.
    """
    chosen: list[int] = []
    for _ in range(TRIES):
        if len(chosen) == count:
            break
        port = random.randint(LOWEST_PORT, _ephemeral_start() - 1)  # noqa: S311 - no secret
        if _is_reserved(port) and is_free(port):
            chosen.append(port)
    if len(chosen) < count:
        raise OSError(f"no {count} free ports between {LOWEST_PORT} and {_ephemeral_start()} on {LOOPBACK}")
    return tuple(chosen)


def is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` of loopback now."""
    with socket.socket() as probe:
        # As servers do: a port in TIME_WAIT after a kill counts as free, a listening one does not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _is_reserved(port: int) -> bool:
    """Whether ``port`` is ours from now on: it was nobody's."""
    if port in _OURS:
        return False
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _OURS.add(port)
    return True


@functools.cache
def _reservations() -> int:
    """A file of which each process locks the bytes of its ports; the kernel lets them go with the process.

    Kept open: a process that closes any descriptor of a file loses its locks on it (fcntl(2), "Record locking").
    """
    path = Path(tempfile.gettempdir()) / f"headwater-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _ephemeral_start() -> int:
    try:
        start = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return FALLBACK_EPHEMERAL_START
    return start if start > LOWEST_PORT + 1_000 else 65_535
