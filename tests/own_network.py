"""A network of its own for a server that can only listen on all interfaces: it is reached through loopback alone.

``python -m tests.own_network PORT COMMAND...`` becomes COMMAND, in a new network namespace that has nothing but its loopback.
A child process listens on PORT of our loopback, and passes each connection on to the server's PORT. Linux lets root make a
namespace, and others where they may have user namespaces.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import functools
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from libs.servers.ports import LOOPBACK, free_port

REPOSITORY = Path(__file__).parents[1]
ENVIRON = {"PYTHONPATH": str(REPOSITORY)}
"""The environment that ``in_own_network``'s command needs."""
PROBE_TIMEOUT_S = 60.0
CHUNK_BYTES = 65_536
_CLONE_NEWUSER, _CLONE_NEWNET = 0x1000_0000, 0x4000_0000  # unshare(2)
_PR_SET_PDEATHSIG = 1  # prctl(2)
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1  # netdevice(7)
_IFREQ = struct.Struct("16sH22x")
_LIBC = ctypes.CDLL(None, use_errno=True)


def in_own_network(port: int, command: Sequence[str]) -> tuple[str, ...]:
    """The command, with ``ENVIRON``, of a server that listens on ``port`` of its own network, at any address."""
    return (sys.executable, "-m", "tests.own_network", str(port), *command)


@functools.cache
def why_not() -> str | None:
    """This machine's reason against a network of one's own; None: it lets us have one."""
    command = in_own_network(free_port(), ["true"])
    environ = {**os.environ, **ENVIRON}
    tried = subprocess.run(command, env=environ, stderr=subprocess.PIPE, text=True, timeout=PROBE_TIMEOUT_S)
    return None if tried.returncode == 0 else (tried.stderr.splitlines() or ["it ended"])[-1]


def addresses_listened_on(pid: int) -> set[str]:
    """Where the process and its children listen in our network, on any port."""
    process = psutil.Process(pid)
    found: set[str] = set()
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # a child that ended meanwhile
            found |= {each.laddr.ip for each in one.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
    return found


def main(port: int, command: Sequence[str]) -> None:
    with socket.create_server((LOOPBACK, port)) as outside:  # a socket stays in the network that it was made in
        _enter_own_network()
        server = os.getpid()
        if os.fork() == 0:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == server:  # it did not end before the kernel was asked
                asyncio.run(_relay(outside, port))
        else:
            os.execvp(command[0], command)


def _enter_own_network() -> None:
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _checked(_LIBC.unshare(_CLONE_NEWNET))
    else:
        _checked(_LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNET))
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        _, flags = _IFREQ.unpack(fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _IFREQ.pack(b"lo", 0)))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _IFREQ.pack(b"lo", flags | _IFF_UP))


def _checked(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")


async def _relay(outside: socket.socket, port: int) -> None:
    async def serve(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            server, to_server = await asyncio.open_connection(LOOPBACK, port)
        except OSError:  # it does not listen yet
            to_client.close()
            return
        await asyncio.gather(_pass(client, to_server), _pass(server, to_client))
        to_server.close()
        to_client.close()

    async with await asyncio.start_server(serve, sock=outside) as accepting:
        await accepting.serve_forever()


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Until the source ends; then the target's input ends too."""
    try:
        while chunk := await source.read(CHUNK_BYTES):
            target.write(chunk)
            await target.drain()
        target.write_eof()
    except OSError:  # one of both went away: so does the other
        target.transport.abort()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
