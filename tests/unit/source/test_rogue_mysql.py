"""Any server under a MySQL server's address: the client gets a named error in bounded time and memory, and gives nothing
away.
"""

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from libs.config.load import Secret
from libs.errors import AccessDenied, HeadwaterError, PipelineHalted, SourceUnavailable
from libs.source.mysql import client
from libs.source.mysql.client import connect, query, select_raw
from libs.source.mysql.settings import DatabaseSettings, TlsMode

PASSWORD = "s3cret-of-the-reader"
OK = b"\x00\x00\x00\x02\x00\x00\x00"
LOCAL_INFILE = b"\xfb/etc/passwd"
CLIENT_FLAGS = 0x00000001 | 0x00000200 | 0x00002000 | 0x00008000 | 0x00080000  # 4.1, transactions, secure, plug-ins


@dataclass
class Rogue:
    """A server of one connection after another, each played by a script."""

    port: int = 0
    heard: list[bytes] = field(default_factory=list)


class Peer:
    """One connection, as a script sees it."""

    def __init__(self, peer: socket.socket, heard: list[bytes]) -> None:
        self.raw, self._heard = peer, heard

    def send(self, payload: bytes, number: int, length: int | None = None) -> None:
        size = len(payload) if length is None else length
        self.raw.sendall(struct.pack("<I", size)[:3] + bytes([number]) + payload)

    def hear(self) -> bytes:
        head = self._exactly(4)
        payload = self._exactly(int.from_bytes(head[:3], "little"))
        self._heard.append(payload)
        return payload

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.raw.recv(size - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def greet(self, plugin: bytes = b"mysql_native_password", flags: int = CLIENT_FLAGS) -> None:
        low, high = flags & 0xFFFF, flags >> 16
        salt = b"12345678", b"123456789012\0"
        head = b"\x0a8.0.36\0" + struct.pack("<I", 7) + salt[0] + b"\0" + struct.pack("<H", low)
        self.send(head + struct.pack("<BHHB", 255, 2, high, 21) + bytes(10) + salt[1] + plugin + b"\0", 0)

    def log_in(self) -> None:
        self.greet()
        self.hear()
        self.send(OK, 2)

    def serve(self, answer: bytes) -> None:
        """Statements of the log-in are answered as they should be; every SELECT by ``answer``, as it is on the wire."""
        self.log_in()
        while True:
            if b"SELECT" in self.hear()[:8]:
                self.raw.sendall(answer)
            else:
                self.send(OK, 1)


@contextmanager
def rogue(script: Callable[[Peer], None]) -> Iterator[Rogue]:
    listener = socket.create_server(("127.0.0.1", 0))
    found = Rogue(listener.getsockname()[1])

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                try:
                    script(Peer(peer, found.heard))
                except (OSError, IndexError):
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        listener.close()


def settings(server: Rogue, tls_mode: TlsMode | None = TlsMode.DISABLED) -> DatabaseSettings:
    return DatabaseSettings(
        host="127.0.0.1",
        port=server.port,
        user="reader",
        password=Secret(PASSWORD),
        connect_timeout_s=1,
        tls_mode=tls_mode,
    )


def packets(*payloads: bytes, number: int = 1) -> bytes:
    return b"".join(
        struct.pack("<I", len(each))[:3] + bytes([(number + nth) % 256]) + each for nth, each in enumerate(payloads)
    )


@pytest.mark.parametrize("tls_mode", [TlsMode.DISABLED, TlsMode.PREFERRED])
@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog", b"mysql_old_password", b"client_ed25519"])
def test_a_password_is_not_given_to_whoever_asks_in_another_way(plugin: bytes, tls_mode: TlsMode) -> None:
    def asks(peer: Peer) -> None:
        peer.greet()
        peer.hear()
        peer.send(b"\xfe" + plugin + b"\0" + b"Password: ", 2)
        peer.hear()

    with rogue(asks) as server, pytest.raises(AccessDenied, match="plug-in"):
        connect(settings(server, tls_mode))

    assert not any(PASSWORD.encode() in each for each in server.heard)


def test_a_greeting_that_names_the_plug_in_in_clear_gets_nothing_either() -> None:
    def asks(peer: Peer) -> None:
        peer.greet(b"mysql_clear_password")
        peer.hear()
        peer.send(b"\x01more", 2)
        peer.hear()

    with rogue(asks) as server, pytest.raises(HeadwaterError):
        connect(settings(server))

    assert not any(PASSWORD.encode() in each for each in server.heard)


@pytest.mark.parametrize("during", ["log-in", "query", "select_raw"])
def test_no_file_is_sent(during: str) -> None:
    def asks(peer: Peer) -> None:
        if during == "log-in":
            peer.log_in()
            peer.hear()
            peer.send(LOCAL_INFILE, 1)
            peer.hear()
        else:
            peer.serve(packets(LOCAL_INFILE))

    with rogue(asks) as server, pytest.raises(HeadwaterError) as raised:
        connection = connect(settings(server))
        query(connection, "SELECT 1") if during == "query" else list(select_raw(connection, "SELECT 1", 5))

    assert isinstance(raised.value, PipelineHalted) or during == "log-in"
    assert not any(b"root:" in each for each in server.heard)


def test_a_handshake_that_drips_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_LEAST_HANDSHAKE_S", 1.0)
    is_over = threading.Event()

    def drips(peer: Peer) -> None:
        peer.raw.sendall(b"\xff\xff\x00\x00")
        while not is_over.wait(0.02):
            peer.raw.sendall(b"x")

    with rogue(drips) as server, pytest.raises(SourceUnavailable, match="did not end within"):
        connect(settings(server))
    is_over.set()


def test_a_handshake_has_a_size() -> None:
    def sends(peer: Peer) -> None:
        while True:
            peer.send(bytes(0xFFFFFF), 0)

    with rogue(sends) as server, pytest.raises(SourceUnavailable, match="more than any answer"):
        connect(settings(server))


@pytest.mark.parametrize("reads", ["query", "select_raw"])
def test_an_answer_without_end_has_one(reads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_MOST_ANSWER_BYTES", 1 << 20)
    monkeypatch.setattr(client, "_MOST_JOINED_BYTES", 40 << 20)

    def sends(peer: Peer) -> None:
        peer.log_in()
        while b"SELECT" not in peer.hear()[:8]:
            peer.send(OK, 1)
        for nth in range(10_000):
            peer.send(bytes(0xFFFFFF), (nth + 1) % 256)

    with rogue(sends) as server, pytest.raises(SourceUnavailable):
        connection = connect(settings(server))
        query(connection, "SELECT 1") if reads == "query" else list(select_raw(connection, "SELECT 1", 5))


COLUMN = b"\x03def\x00\x00\x00\x01a\x00\x0c\x3f\x00\x00\x00\x00\x00\x08\x00\x00\x00\x00\x00"
ANSWERS = [
    b"",
    b"\xff",
    b"\xff\x15",
    b"\xfd",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x00",
    b"\x01",
    b"\x05",
    b"\x01trailing",
    b"\xfc\x01",
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_is_no_answer_is_a_named_error(answer: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.serve(packets(answer, b"\xfe\x00", b"", b"\xff"))
        peer.raw.shutdown(socket.SHUT_RDWR)

    for reads in ("query", "select_raw"):
        with rogue(script) as server:
            connection = connect(settings(server))
            connection._read_timeout = 1.0  # type: ignore[attr-defined]
            try:
                query(connection, "SELECT 1") if reads == "query" else list(select_raw(connection, "SELECT 1", 1))
            except HeadwaterError:
                continue


def test_random_bytes_of_any_length_are_a_named_error() -> None:
    rng = random.Random(4711)

    def script(peer: Peer) -> None:
        form = rng.randrange(3)
        noise = rng.randbytes(rng.choice((0, 1, 3, 30, 90)))
        if form == 0:
            peer.send(b"\x0a" + noise, 0)
        elif form == 1:
            peer.greet(rng.choice((b"mysql_native_password", b"sha256_password", b"caching_sha2_password", noise[:20])))
            peer.hear()
            peer.send(noise, 2)
        else:
            peer.raw.sendall(noise)

    with rogue(script) as server:
        for _ in range(200):
            with pytest.raises(HeadwaterError):
                connect(settings(server))

    assert not any(PASSWORD.encode() in each for each in server.heard)
