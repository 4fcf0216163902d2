"""A gRPC server as every service of Headwater runs it: faults, health checking, reflection, TLS by settings, a drained stop."""

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from libs.config.connections import GrpcServerSettings
from libs.errors import InvalidSettings
from libs.rpc import faults
from libs.rpc.audit import Audited, TakeRecord
from libs.rpc.bounds import LARGE_BYTES, MESSAGE_LIMIT_BYTES, BoundedRequests
from libs.rpc.callers import KnownCallers
from libs.rpc.deadlines import Deadlines
from libs.rpc.tls import server_credentials
from libs.telemetry.metrics import RPC_SECONDS
from protos.headwater.faults.v1.faults_pb2_grpc import add_FaultsServicer_to_server

Register = Callable[[grpc.aio.Server], None]
"""Adds one servicer to a server, as the generated ``add_…_to_server`` does."""

CONCURRENT_CALLS = 2_000
"""Beyond them a call is refused with RESOURCE_EXHAUSTED; streams count as long as they stand."""

# Clients ping every 20 s (libs.rpc.client); a server closes the connection of one that pings oftener than this.
_SHORTEST_PING_INTERVAL_MS = 10_000
_STOP_MARGIN_S = 5.0
_LOOPBACKS = ("127.0.0.1", "::1", "localhost")

MOST_CONNECTIONS = 1_000
"""Beyond them a new connection is closed at once. The process keeps half of its files for Kafka and Redis in any case."""
_HANDSHAKE_MS = 10_000
"""For TLS and HTTP/2 together; gRPC's own default is two minutes."""
_IDLE_MS = 300_000
"""A connection without a call is closed after so long; a client of ours connects again by itself."""
_PING_AFTER_MS = 60_000
_PONG_MS = 20_000
_AGE_MS = 12 * 3_600_000
"""A connection is given up after so long: answers that a caller does not take are held until then."""
_AGE_GRACE_MS = 60_000
_STREAMS_OF_A_CONNECTION = 1_000
_METADATA_BYTES = 16 << 10
_TOO_LARGE_BYTES = 4 << 20
"""A request that is little too large is refused by name (``libs.rpc.bounds``), and not by gRPC."""

log = structlog.get_logger()

_OPTIONS = [
    ("grpc.max_receive_message_length", LARGE_BYTES + _TOO_LARGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _SHORTEST_PING_INTERVAL_MS),
    # A channel that stands idle pings all the same; it must not be thrown out for it ("too_many_pings").
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    # Two processes on one port would share its calls between them: the second must fail instead.
    ("grpc.so_reuseport", 0),
    # A stranger, or a slow caller, holds no connection for long and no call for ever (libs.rpc.deadlines).
    ("grpc.max_connection_idle_ms", _IDLE_MS),
    ("grpc.max_connection_age_ms", _AGE_MS),
    ("grpc.max_connection_age_grace_ms", _AGE_GRACE_MS),
    ("grpc.keepalive_time_ms", _PING_AFTER_MS),
    ("grpc.keepalive_timeout_ms", _PONG_MS),
    ("grpc.max_concurrent_streams", _STREAMS_OF_A_CONNECTION),
    ("grpc.max_metadata_size", _METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
]


class RpcServer:
    """A server that answers; ``stop`` it at the end."""

    def __init__(self, server: grpc.aio.Server, health_checks: Any, names: tuple[str, ...], port: int) -> None:
        self._server = server
        self._health_checks = health_checks
        self._names = names
        self.port = port

    async def set_serving(self, is_serving: bool) -> None:
        """Set the health check's answer, for each service and for the server as a whole."""
        serving = health_pb2.HealthCheckResponse.ServingStatus
        status = serving.SERVING if is_serving else serving.NOT_SERVING
        for name in ("", *self._names):
            await self._health_checks.set(name, status)

    async def stop(self, grace_s: float) -> None:
        """Take no new call, let the running ones end within ``grace_s`` seconds, then cut them off."""
        await self._health_checks.enter_graceful_shutdown()
        with suppress(TimeoutError):  # a server that does not come to its end must not hold the process
            async with asyncio.timeout(grace_s + _STOP_MARGIN_S):
                await self._server.stop(grace_s)


async def start_server(
    settings: GrpcServerSettings, services: Mapping[str, Register], audit: TakeRecord | None = None
) -> RpcServer:
    """Start to answer; health is NOT_SERVING until ``set_serving(True)``.

    ``services`` maps full names (``headwater.schema_history.v1.SchemaHistory``) to their registration; ``Faults`` is there
    beside them. ``audit``: gets the record of each call that changes something, beside the log.

    Raises:
        InvalidSettings: a TLS file is missing, of no use or half of a pair, or the port is taken.
    """
    known = [KnownCallers(settings.client_names)] if settings.client_names else []
    interceptors = [Deadlines(), _Measured(), Audited(audit), *known, BoundedRequests()]
    options = [
        *_OPTIONS,
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        ("grpc.max_allowed_incoming_connections", _most_connections()),
    ]
    server = grpc.aio.server(options=options, interceptors=interceptors, maximum_concurrent_rpcs=CONCURRENT_CALLS)
    for register in services.values():
        register(server)
    add_FaultsServicer_to_server(faults.FaultsService(), server)  # type: ignore[no-untyped-call]
    health_checks = health.aio.HealthServicer()  # type: ignore[attr-defined]  # the stubs are older
    health_pb2_grpc.add_HealthServicer_to_server(health_checks, server)
    names = (*services, faults.SERVICE_NAME, health.SERVICE_NAME)
    if settings.has_reflection:
        reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)
    address = f"{settings.host}:{settings.port}"
    credentials = server_credentials(settings)
    if credentials is None and settings.host not in _LOOPBACKS:
        log.warning(
            "grpc_without_tls", host=settings.host, remedy="set grpc.tls_certificate_file, _key_file, _client_ca_file"
        )
    try:
        port = _bind(server, address, credentials)
    except RuntimeError as error:
        mistake = f"grpc.port: {address} cannot be bound; choose another, or 0 for any"
        raise InvalidSettings("grpc", [mistake]) from error
    await server.start()
    started = RpcServer(server, health_checks, names, port)
    await started.set_serving(False)
    return started


def _most_connections() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else max(min(MOST_CONNECTIONS, files // 2), 1)


def _bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    if credentials is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, credentials)


class _Measured(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Times unary calls into ``headwater_rpc_seconds``; streams have no meaningful duration."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        method = handler_call_details.method.rpartition("/")[2]
        answer = handler.unary_unary

        async def answer_measured(request: Any, context: Any) -> Any:
            started_s = time.perf_counter()
            try:
                return await answer(request, context)
            finally:
                code = context.code() or grpc.StatusCode.OK
                RPC_SECONDS.labels(method, getattr(code, "name", str(code))).observe(time.perf_counter() - started_s)

        return grpc.unary_unary_rpc_method_handler(
            answer_measured,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
