"""Strangers and slow callers at a server of ours: other callers are answered meanwhile."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from libs.config.connections import GrpcClientSettings, GrpcServerSettings
from libs.rpc import server as server_module
from libs.rpc.client import open_channel
from libs.rpc.deadlines import MOST_WITHOUT_REQUEST, Deadlines
from libs.rpc.server import CONCURRENT_CALLS, RpcServer, start_server
from protos.headwater.schema_history.v1 import schema_history_pb2 as pb
from protos.headwater.schema_history.v1 import schema_history_pb2_grpc
from tests.certificates import write_certificates
from tests.grpc_attacks import (
    broken_off_calls,
    calls_without_request,
    garbage,
    half_open_handshakes,
    headers_without_end,
    idle,
    is_closed,
)
from tests.waiting import PAUSE_S, until

SERVICE = "headwater.schema_history.v1.SchemaHistory"
PATH = f"/{SERVICE}/ListTables"


class Held(schema_history_pb2_grpc.SchemaHistoryServicer):
    """ListTables of the source "none" never answers; a watch sends changes of a megabyte without end."""

    def __init__(self) -> None:
        self.begun = self.ended = 0

    async def ListTables(self, request: pb.ListTablesRequest, context: Any) -> pb.ListTablesResponse:  # noqa: N802
        self.begun += 1
        try:
            if request.source == "none":
                await asyncio.Event().wait()
            return pb.ListTablesResponse()
        finally:
            self.ended += 1

    async def WatchSchemaChanges(  # noqa: N802
        self, request: pb.WatchSchemaChangesRequest, context: Any
    ) -> AsyncIterator[pb.SchemaChange]:
        self.begun += 1
        try:
            while True:
                yield pb.SchemaChange(ddl="x" * (1 << 20))
        finally:
            self.ended += 1


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


async def started(held: Held, settings: GrpcServerSettings | None = None) -> RpcServer:
    def register(server: grpc.aio.Server) -> None:
        schema_history_pb2_grpc.add_SchemaHistoryServicer_to_server(held, server)

    return await start_server(settings or GrpcServerSettings(), {SERVICE: register})


@pytest.fixture
async def server(held: Held) -> AsyncIterator[RpcServer]:
    running = await started(held)
    yield running
    await running.stop(0)


def bounded(monkeypatch: pytest.MonkeyPatch, **bounds: float) -> None:
    monkeypatch.setattr(server_module, "Deadlines", partial(Deadlines, **bounds))  # type: ignore[arg-type]


def to(server: RpcServer) -> Any:
    return partial(socket.create_connection, ("127.0.0.1", server.port), 20.0)


async def answers(server: RpcServer, files: dict[str, str] | None = None) -> bool:
    """A new caller is answered, perhaps after some tries."""
    settings = GrpcClientSettings(address=f"127.0.0.1:{server.port}", **({"tls_ca_file": files["ca"]} if files else {}))
    async with open_channel(settings) as channel:
        stub = schema_history_pb2_grpc.SchemaHistoryStub(channel)  # type: ignore[no-untyped-call]
        for _ in range(100):
            with suppress(grpc.aio.AioRpcError):
                await stub.ListTables(pb.ListTablesRequest(source="good"), timeout=60, wait_for_ready=True)
                return True
            await asyncio.sleep(PAUSE_S)
    return False


async def test_calls_whose_requests_never_come_take_no_place_from_others(
    server: RpcServer, held: Held, opened: ExitStack
) -> None:
    """More of them than the server runs calls at a time."""
    each = CONCURRENT_CALLS // 4
    attack = partial(calls_without_request, to(server), opened, PATH, connections=6, calls=each)
    await asyncio.to_thread(attack)

    assert await answers(server)
    assert held.begun == 1
    assert 6 * each > CONCURRENT_CALLS > MOST_WITHOUT_REQUEST


@pytest.mark.parametrize(
    ("call", "bounds", "says"),
    [
        ("request", {"request_s": 0.1}, "the request did not come in time"),
        ("answer", {"answer_s": 0.1}, "no answer within 0.1 s"),
    ],
)
async def test_a_call_that_does_not_end_is_ended(
    held: Held, monkeypatch: pytest.MonkeyPatch, call: str, bounds: dict[str, float], says: str
) -> None:
    """Its request does not come, or its answer; the caller gets an error that says so."""
    bounded(monkeypatch, **bounds)
    server = await started(held)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        if call == "request":
            stream = channel.stream_unary(PATH)()
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await stream
        else:
            stub = schema_history_pb2_grpc.SchemaHistoryStub(channel)  # type: ignore[no-untyped-call]
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await stub.ListTables(pb.ListTablesRequest(source="none"))
    await server.stop(0)

    assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert ended.value.details() == says
    assert held.begun == held.ended == (0 if call == "request" else 1)


async def test_a_stream_that_nobody_reads_is_ended(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller keeps the connection, and takes nothing."""
    bounded(monkeypatch, taken_s=0.5)
    server = await started(held)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = schema_history_pb2_grpc.SchemaHistoryStub(channel)  # type: ignore[no-untyped-call]
        stream = stub.WatchSchemaChanges(pb.WatchSchemaChangesRequest())
        await stream.read()
        await until(lambda: held.ended, because="the stream ends")

        assert await answers(server)
        stream.cancel()
    await server.stop(0)


async def test_streams_leave_place_for_other_calls(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded(monkeypatch, most_streams=2)
    server = await started(held)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = schema_history_pb2_grpc.SchemaHistoryStub(channel)  # type: ignore[no-untyped-call]
        streams = [stub.WatchSchemaChanges(pb.WatchSchemaChangesRequest()) for _ in range(2)]
        for stream in streams:
            await stream.read()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.WatchSchemaChanges(pb.WatchSchemaChangesRequest()).read()

        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await answers(server)
        for stream in streams:
            stream.cancel()
        await until(lambda: held.ended == 3, because="both streams ended with their calls")
    await server.stop(0)


async def test_connections_that_say_nothing_are_closed_and_their_number_has_a_bound(
    held: Held, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opened: ExitStack
) -> None:
    """Half-open TLS handshakes too. A caller that is there goes on; one that comes is answered once they are closed."""
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 20)
    monkeypatch.setattr(server_module, "_HANDSHAKE_MS", 1_000)
    files = write_certificates(tmp_path)
    server = await started(
        held, GrpcServerSettings(tls_certificate_file=files["certificate"], tls_key_file=files["key"])
    )
    client = GrpcClientSettings(address=f"127.0.0.1:{server.port}", tls_ca_file=files["ca"])
    async with open_channel(client) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        await health.Check(health_pb2.HealthCheckRequest(), timeout=60)
        held_open = await asyncio.to_thread(half_open_handshakes, to(server), opened, times=20)
        held_open += await asyncio.to_thread(idle, to(server), opened, times=20)
        await health.Check(health_pb2.HealthCheckRequest(), timeout=60)
        await until(lambda: all(map(is_closed, held_open)), because="every silent connection is closed")

    assert await answers(server, files)
    await server.stop(0)


async def test_frames_that_are_wrong_huge_or_without_end_harm_the_sender_alone(
    server: RpcServer, held: Held, opened: ExitStack
) -> None:
    """Garbage, lies about lengths, metadata without end, calls that are reset at once."""
    for attack in (
        partial(garbage, to(server), opened),
        partial(headers_without_end, to(server), opened, PATH, megabytes=8),
        partial(broken_off_calls, to(server), opened, PATH, calls=5_000),
    ):
        await asyncio.to_thread(attack)

        assert await answers(server)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = schema_history_pb2_grpc.SchemaHistoryStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.ListTables(pb.ListTablesRequest(), metadata=(("x", "v" * 100_000),))

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert held.begun == 3
