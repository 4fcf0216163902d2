"""Any server as the schema registry: the router gets a named error in bounded time and memory."""

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
from services.router.routes import schema_registry
from services.router.routes.encode import SchemaRefused, SchemaText
from services.router.routes.schema_registry import SchemaRegistry

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


def test_a_registry_that_does_not_take_the_password_is_away_and_what_it_gave_before_is_used(tmp_path: Path) -> None:
    """While it is exchanged. As a refusal, each tenant's rows would be set aside."""
    granted = body(b'{"id": 7}', Content_Type="application/json")
    denied = body(b'{"error_code": 401, "message": "Unauthorized"}', 401, Content_Type="application/json")
    with registry(granted, tmp_path) as before:
        before.register("acme.s.shop.orders-value", AVRO)
    notes = (tmp_path / "ids.jsonl").read_text()

    with registry(denied, tmp_path) as found:
        (tmp_path / "ids.jsonl").write_text(notes.replace(before._url, found._url))
        known = SchemaRegistry(SchemaRegistrySettings(url=found._url), tmp_path / "ids.jsonl")
        assert known.register("acme.s.shop.orders-value", AVRO).schema_id == 7
        with pytest.raises(ServiceUnavailable, match="does not know the router's user or password"):
            known.register("acme.s.shop.items-value", AVRO)


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


HOSTILE = {
    "deep": "message Value {" + "message A {" * 600 + "}" * 600 + "}",
    "deeper than Python": "message A {" * 100_000,
    "comments that do not end": "/*x" * 100_000,
    "texts that do not end": "'\"\\" * 100_000,
    "a text of escapes": '"' + "\\" * 999_999,
    "many fields": "message Value {" + "".join(f"int32 f{n} = {n};" for n in range(1, 200_000)) + "}",
    "many options": "message Value { string a = 1 [" + "a=b," * 500_000 + "]; }",
    "many reserved numbers": "message Value {"
    + "".join(f"reserved {n}00000 to {n}99999;" for n in range(1, 200))
    + " string a = 1; }",
    "the last number": "message Value { string b = 536870911; }",
    "a number of many digits": "message Value { string b = " + "9" * 5_000 + "; }",
    "no message": 'syntax = "proto3";',
    "another language": "[" * 50_000,
}


def versions(text: str, count: int = 1) -> Answer:
    """A registry whose subject has so many versions of that text, and takes none."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        if path.endswith("/versions") and request.command == "GET":
            content: object = list(range(1, count + 1))
        elif request.command == "GET":
            number = int(path.rpartition("/")[2])
            content = {"subject": "x", "version": number, "id": number, "schema": text, "schemaType": "PROTOBUF"}
        else:
            body(b'{"error_code": 42201, "message": "no"}', 422)(request)
            return
        body(json.dumps(content).encode(), Content_Type="application/json")(request)

    return answer


@pytest.mark.timeout(60)
@pytest.mark.parametrize("hostile", list(HOSTILE))
def test_a_version_that_somebody_else_registered_is_one_subjects_refusal(hostile: str, tmp_path: Path) -> None:
    """As a registry that is away it would have all tenants' rows wait."""
    answer = versions(HOSTILE[hostile])
    with (
        registry(answer, tmp_path) as found,
        pytest.raises(SchemaRefused, match=r"subject acme\.s\.shop\.orders-value"),
    ):
        found.register("acme.s.shop.orders-value", PROTOBUF)


def test_the_versions_of_a_subject_have_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_MOST_VERSIONS_BYTES", 10_000)
    text = "message Value { string a = 1; } // " + "x" * 3_000

    with registry(versions(text, 5_000), tmp_path) as found, pytest.raises(SchemaRefused, match="larger, or slower"):
        found.register("acme.s.shop.orders-value", PROTOBUF)


def test_the_versions_of_a_subject_are_read_in_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other subjects wait meanwhile."""
    monkeypatch.setattr(schema_registry, "_MOST_READING_S", 0.0)
    text = "message Value { string b = 1; }"

    with registry(versions(text, 5_000), tmp_path) as found, pytest.raises(SchemaRefused, match="larger, or slower"):
        found.register("acme.s.shop.orders-value", PROTOBUF)


RECURSIVE = '{"type":"record","name":"A","fields":[{"name":"a","type":["null","A"]}]}'
DEEP = '{"type":"array","items":' * 5_000 + '"int"' + "}" * 5_000


@pytest.mark.parametrize("schema", [RECURSIVE, DEEP, "[" * 50_000, '"' + "x" * 1_000_000 + '"'])
def test_an_avro_schema_in_an_answer_is_not_looked_at(schema: str, tmp_path: Path) -> None:
    """The router writes by its own, under the id that it is given: no other schema is parsed."""
    content = json.dumps({"id": 7, "schema": schema, "version": 1, "subject": "x"}).encode()

    with registry(body(content, Content_Type="application/json"), tmp_path) as found:
        registered = found.register("acme.s.shop.orders-value", AVRO)

    assert (registered.schema_id, registered.text) == (7, AVRO.text)
