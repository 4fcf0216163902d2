"""ClickHouse's own engine, served by the part of its HTTP interface that ``clickhouse-connect`` uses.

No server of ClickHouse's can be had from the package registries that the tests are set up from; ``chdb`` is its engine as
a library. So SQL, types, merges, parts and files are ClickHouse's; HTTP, users and the running of queries side by side are
not: one query runs at a time, and nobody is asked for a password but by ``--users FILE``, a JSON object from users to lists of
passwords, which is read at each request. ``python -m tests.clickhouse.server --data DIR --port N`` starts it, with chdb on
``PYTHONPATH``. A killed one leaves its folder as a killed server does.
"""

import argparse
import base64
import json
import re
import tempfile
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from chdb import session  # type: ignore[import-not-found, unused-ignore]

_INSERT: Final = re.compile(rb"\s*(INSERT\s+INTO\s+.*?)\s+FORMAT\s+(\w+)\s*", re.IGNORECASE | re.DOTALL)
_FORMAT: Final = re.compile(r"\bFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_NOT_LET_IN: Final = "516"
"""AUTHENTICATION_FAILED (ClickHouse's source, src/Common/ErrorCodes.cpp)."""
_CODE: Final = re.compile(r"Code: (\d+)")
_OF_HTTP: Final = frozenset(
    {
        "query",
        "database",
        "default_format",
        "session_id",
        "query_id",
        "client_protocol_version",
        "enable_http_compression",
        "compress",
        "wait_end_of_query",
        "send_progress_in_http_headers",
        "http_headers_progress_interval_ms",
        "cancel_http_readonly_queries_on_client_close",
    }
)
"""Parameters that are of HTTP, and no settings of a query."""


class Engine:
    """One data folder."""

    def __init__(self, folder: Path) -> None:
        self._session = session.Session(str(folder))
        self._lock = threading.Lock()

    def run(self, query: str, body: bytes, form: str, settings: dict[str, str]) -> bytes:
        """The answer in format ``form``. Raises RuntimeError with ClickHouse's text."""
        with self._lock, tempfile.NamedTemporaryFile(prefix="headwater-insert-") as rows:
            if (insert := _INSERT.match(query.encode())) is not None and body:
                rows.write(body)
                rows.flush()
                query = f"{insert[1].decode()} FROM INFILE '{rows.name}' FORMAT {insert[2].decode()}"
            for name, value in settings.items():
                self._session.query(f"SET {name} = '{value}'")
            try:
                answer = self._session.query(query, form)
            finally:
                for name in settings:
                    self._session.query(f"SET {name} = DEFAULT")
        return b"" if answer is None else bytes(answer.bytes())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Engine
    users_file: Path | None

    def do_GET(self) -> None:
        self._answer(200, b"Ok.\n", {})

    def do_POST(self) -> None:
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query, keep_blank_values=True))
        body = self._body()
        if not self._is_let_in():
            text = f"Code: {_NOT_LET_IN}. DB::Exception: Authentication failed: password is incorrect, or there is no such user"
            self._answer(403, text.encode(), {"X-ClickHouse-Exception-Code": _NOT_LET_IN})
            return
        query = asked.get("query", "")
        if not query:
            # An INSERT may carry its rows after it.
            insert = _INSERT.match(body)
            end = len(body) if insert is None else insert.end()
            query, body = body[:end].decode(), body[end:]
        settings = {name: value for name, value in asked.items() if name not in _OF_HTTP}
        form = _FORMAT.search(query)
        wanted = form[1] if form is not None else asked.get("default_format", "TabSeparated")
        try:
            answer = self.engine.run(query, body, wanted, settings)
        except Exception as error:
            text = str(error)
            code = _CODE.search(text)
            self._answer(500, text.encode(), {"X-ClickHouse-Exception-Code": code[1] if code else "1002"})
            return
        self._answer(200, answer, {"X-ClickHouse-Format": wanted})

    def _is_let_in(self) -> bool:
        if self.users_file is None:
            return True
        _, _, credentials = self.headers.get("Authorization", "").partition("Basic ")
        user, _, password = base64.b64decode(credentials).decode().partition(":")
        return password in json.loads(self.users_file.read_text(encoding="utf-8")).get(user, ())

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Length": str(len(content)),
            "X-ClickHouse-Timezone": "UTC",
            "X-ClickHouse-Summary": "{}",
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing: requests are no news."""


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--users", type=Path)
    asked = parser.parse_args()
    _Handler.users_file = asked.users
    _Handler.engine = Engine(asked.data)
    ThreadingHTTPServer(("127.0.0.1", asked.port), _Handler).serve_forever()


if __name__ == "__main__":
    main()
