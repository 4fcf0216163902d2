"""The HTTP endpoint of every service: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for its supervisor,
``/faults`` for ``headwater status``.

A service reports its state by callbacks. ``/healthz`` answers 503 when a restart would help (no progress is
made); ``/readyz`` answers 503 while requests should go elsewhere (loading, or a dependency is away), and names on a
200 what is degraded but does not falsify or stop answers, the process' worst fault first. ``/faults`` is a JSON list of
``libs.types.fault.Fault``.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import prometheus_client
import structlog

from libs.config.connections import TelemetrySettings
from libs.telemetry.faults import lasting_faults
from libs.telemetry.tags import TaggedRegistry

log = structlog.get_logger()

HealthCheck = Callable[[], str | None]
"""None: fine; else the reason, in words for an operator. Runs in the endpoint's thread: it must not block."""

_REQUEST_TIMEOUT_S = 10.0
"""For each part of a request."""
_CONNECTION_S = 30.0
"""For a request and its answer: a client may send, or take, a byte at a time."""
MOST_CONNECTIONS = 64
"""Beyond them the oldest is closed, never the newest: that may be a supervisor's probe."""


class _Server(ThreadingHTTPServer):
    """A thread for each connection, a bound on both, and an end of each.

    Says nothing of clients that hang up: a probe with a short timeout does so as a matter of course.
    """

    daemon_threads = True
    # Of those that come at once Python's 5 are kept until they are accepted; the next one is silent for a second or more.
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= MOST_CONNECTIONS:
                self._hang_up(next(iter(self._open)))
            self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Ends connections whose time is over; called several times a second."""
        now_s = time.monotonic()
        with self._lock:
            for request in [each for each, since_s in self._open.items() if now_s - since_s > _CONNECTION_S]:
                self._hang_up(request)

    def _hang_up(self, request: socket.socket) -> None:
        """Wakes the connection's thread, which closes it."""
        del self._open[request]
        with suppress(OSError):  # the client was first
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, (ConnectionError, TimeoutError)):
            log.warning("http_answer_failed", error=type(error).__name__)


class Endpoint:
    """A running endpoint; ``close`` it at the end."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        # 0.1 s: how long ``close`` may take.
        self._thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="telemetry-http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is bound; of interest where the settings say 0."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop answering. Running answers may be cut off."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=1.0)


def fine() -> None:
    """The health check of a service that has nothing to say."""


def start_endpoint(
    settings: TelemetrySettings,
    *,
    alive: HealthCheck = fine,
    ready: HealthCheck = fine,
    degraded: HealthCheck = fine,
) -> Endpoint:
    """Answer ``/metrics``, ``/healthz`` (by ``alive``), ``/readyz`` (by ``ready``) and ``/faults`` from threads of its own.

    ``degraded`` gives the text of ``/readyz`` while it is ready, but something that makes it slower is away.

    Raises:
        OSError: the port is taken; choose another ``telemetry.http_port``, or 0 for any.
    """
    registry = prometheus_client.REGISTRY
    if settings.tags:
        registry = TaggedRegistry(registry, settings.tags)

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    accepted = self.headers.get("Accept") or ""
                    encode, content_type = prometheus_client.exposition.choose_encoder(accepted)
                    self._answer(200, content_type, encode(registry))
                case "/healthz":
                    self._answer_health(_reason(alive))
                case "/readyz":
                    self._answer_health(_reason(ready), otherwise=_reason(degraded) or _worst_fault())
                case "/faults":
                    self._answer(200, "application/json", msgspec.json.encode(lasting_faults()))
                case _:
                    self._answer(404, "text/plain; charset=utf-8", b"known: /metrics /healthz /readyz /faults\n")

        def _answer_health(self, reason: str | None, *, otherwise: str | None = None) -> None:
            text = reason or (f"degraded: {otherwise}" if otherwise else "ok")
            self._answer(503 if reason else 200, "text/plain; charset=utf-8", f"{text}\n".encode())

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: a probe a second would drown the log."""

    server = _Server((settings.http_host, settings.http_port), Handler)
    return Endpoint(server)


def _worst_fault() -> str | None:
    faults = lasting_faults()
    return f"{faults[0].id}: {faults[0].happened}" if faults else None


def _reason(check: HealthCheck) -> str | None:
    try:
        return check()
    except Exception as error:
        return f"the health check failed: {type(error).__name__}"
