"""Whatever answers as the schema registry: the router gets a named error in bounded time and memory."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from libs.config.connections import SchemaRegistrySettings
from libs.errors import ServiceUnavailable
from libs.types.tenant import EventFormat
from services.router import schema_registry
from services.router.encode import SchemaRefused, SchemaText
from services.router.schema_registry import SchemaRegistry

AVRO = SchemaText(EventFormat.AVRO, '"string"')
PROTOBUF = SchemaText(EventFormat.PROTOBUF, 'syntax = "proto3";\npackage s;\nmessage Value { string a = 1; }\n')
Answer = Callable[[BaseHTTPRequestHandler], None]


def body(content: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(content)

    return answer


def endless(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    while True:
        request.wfile.write(b" " * 65536)


@contextmanager
def registry(answer: Answer, folder: Path, timeout_s: float = 2.0) -> Iterator[SchemaRegistry]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                answer(self)
            except OSError:
                return

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    settings = SchemaRegistrySettings(url=f"http://127.0.0.1:{server.server_port}", timeout_s=timeout_s)
    try:
        yield SchemaRegistry(settings, folder / "ids.jsonl")
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("schema", [AVRO, PROTOBUF], ids=["avro", "protobuf"])
@pytest.mark.parametrize(
    "answer",
    [
        body(b"<html>"),
        body(b"{"),
        body(b"[]"),
        body(b"[1]"),
        body(b"null"),
        body(b'"text"'),
        body(b"{}"),
        body(b'{"id": "seven"}'),
        body(b'{"id": -1}'),
        body(b'{"id": 99999999999}'),
        body(b'{"id": true}'),
        body(b"[" * 100_000 + b"]" * 100_000),
        body(b"\xff\xfe", 500),
        body(b"[]", 409),
        body(b'{"error_code": [], "message": {}}', 422),
        body(json.dumps(list(range(20_000))).encode()),
        body(b"{}", Content_Encoding="gzip"),
        body(b"", 302, Location="http://127.0.0.1:1/"),
        endless,
    ],
)
def test_what_is_no_answer_of_a_registry_is_a_named_error(
    answer: Answer, schema: SchemaText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry, "_MOST_ANSWER_BYTES", 1 << 20)
    with registry(answer, tmp_path) as found, pytest.raises((ServiceUnavailable, SchemaRefused)):
        found.register("acme.s.shop.orders-value", schema)

    assert not (tmp_path / "ids.jsonl").exists()


def test_a_registry_that_drips_is_away(tmp_path: Path) -> None:
    is_over = threading.Event()

    def drips(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while not is_over.wait(0.02):
            request.wfile.write(b" ")
            request.wfile.flush()

    with registry(drips, tmp_path, timeout_s=2.0) as found, pytest.raises(ServiceUnavailable, match="does not end"):
        found.register("acme.s.shop.orders-value", AVRO)
    is_over.set()
