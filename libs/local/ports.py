"""Free TCP ports on loopback, for servers that are told their port when they are configured.

Asked for by the embedded stack and by the test fixtures. Ports come from below the range out of which the
kernel serves outgoing connections: a port of that range that is free now can be taken by any client's
connection while a killed server restarts, and the server then fails with "address in use".
"""

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
LOWEST_PORT = 15_000
FALLBACK_EPHEMERAL_START = 32_768  # Linux's default, where /proc does not say
TRIES = 200


def free_port() -> int:
    """One free port; see ``free_ports``."""
    return free_ports(1)[0]


def free_ports(count: int) -> tuple[int, ...]:
    """``count`` different ports that nothing on loopback listens on at this moment.

    Nothing is reserved: another process may take one before its server binds it, which the server's
    readiness probe finds out.

    Raises:
        OSError: no free port was found.
    """
    chosen: list[int] = []
    for _ in range(TRIES):
        if len(chosen) == count:
            break
        port = random.randint(LOWEST_PORT, _ephemeral_start() - 1)  # noqa: S311 - no secret
        if port not in chosen and is_free(port):
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


def _ephemeral_start() -> int:
    try:
        start = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return FALLBACK_EPHEMERAL_START
    return start if start > LOWEST_PORT + 1_000 else 65_535
