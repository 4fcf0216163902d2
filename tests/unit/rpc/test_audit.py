"""Each call that changes something leaves a record; a request is bounded; reflection answers where it is asked for."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog.testing
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from libs.cli.audit import audit_line
from libs.config.connections import GrpcServerSettings
from libs.rpc.server import start_server
from libs.source.control import ReaderControl
from libs.source.signals import InvalidSignal
from libs.source.status import ReaderStatus
from libs.types.audit import AuditRecord
from libs.types.position import SourcePartition
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb
from protos.headwater.reader_control.v1 import reader_control_pb2_grpc
from tests.certificates import write_certificates
from tests.waiting import until

SERVICE = "headwater.reader_control.v1.ReaderControl"


def refuse(signal: str) -> int:
    if signal == "no signal":
        raise InvalidSignal("no signal")
    return 7


Open = Callable[..., Any]


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Starts a reader's server; gives a stub of it and its records."""
    closing: list[Any] = []

    async def start(
        credentials: grpc.ChannelCredentials | None = None, **settings: Any
    ) -> tuple[Any, Any, list[AuditRecord]]:
        control = ReaderControl(ReaderStatus(SourcePartition(source="shop", name="0")), refuse)
        records: list[AuditRecord] = []

        def register(server: grpc.aio.Server) -> None:
            reader_control_pb2_grpc.add_ReaderControlServicer_to_server(control, server)  # type: ignore[no-untyped-call]

        server = await start_server(GrpcServerSettings(**settings), {SERVICE: register}, records.append)
        address = f"127.0.0.1:{server.port}"
        channel = (
            grpc.aio.insecure_channel(address) if credentials is None else grpc.aio.secure_channel(address, credentials)
        )
        closing.extend((channel.close, lambda: server.stop(0)))
        return reader_control_pb2_grpc.ReaderControlStub(channel), channel, records  # type: ignore[no-untyped-call]

    yield start
    for close in closing:
        await close()


async def test_a_call_that_changes_something_is_recorded_with_who_and_what(opened: Open) -> None:
    stub, _, records = await opened()

    with structlog.testing.capture_logs() as logs:
        await stub.GetStatus(pb.GetStatusRequest())
        await stub.Pause(pb.PauseRequest())
        await stub.Resume(pb.ResumeRequest())
        await stub.SendSignal(pb.SendSignalRequest(signal="x" * 9_000))
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.SendSignal(pb.SendSignalRequest(signal="no signal"))
        await until(lambda: len(records) >= 4, because="a refused call is recorded after its answer")

    told = [(each.method, each.code, dict(each.before), dict(each.after)) for each in records]
    assert told == [
        ("Pause", "OK", {"state": "starting"}, {"state": "paused"}),
        ("Resume", "OK", {"state": "paused"}, {"state": "starting"}),
        ("SendSignal", "OK", {}, {}),
        ("SendSignal", "INVALID_ARGUMENT", {}, {}),
    ]
    assert all(each.peer.startswith(("ipv4:127.0.0.1:", "ipv4:127")) and each.service == SERVICE for each in records)
    assert len(str(records[2].request["signal"])) < 600
    assert [each["method"] for each in logs if each["event"] == "audit"] == [f"{SERVICE}/{each[0]}" for each in told]
    assert "Pause  OK  by ipv4:127.0.0.1:" in audit_line(records[0])
    assert "\n" not in audit_line(records[2])


def _credentials(files: dict[str, str]) -> grpc.ChannelCredentials:
    ca, key, certificate = (Path(files[name]).read_bytes() for name in ("ca", "key", "certificate"))
    return grpc.ssl_channel_credentials(ca, key, certificate)


async def test_who_has_a_certificate_is_named_by_it(opened: Open, tmp_path: Path) -> None:
    files = write_certificates(tmp_path)
    stub, _, records = await opened(
        _credentials(files),
        tls_certificate_file=files["certificate"],
        tls_key_file=files["key"],
        tls_client_ca_file=files["ca"],
    )

    await stub.Pause(pb.PauseRequest())

    assert "127.0.0.1" in records[0].names or "peer" in records[0].names


@pytest.mark.parametrize(
    "request_",
    [pb.SendSignalRequest(signal="x" * (17 << 20)), pb.PauseRequest()],
    ids=["large signal", "unknown fields"],
)
async def test_a_request_has_a_size(opened: Open, request_: Any) -> None:
    stub, _, records = await opened()
    if isinstance(request_, pb.PauseRequest):
        request_.MergeFromString(b"\xfa\x01" + b"\xa0\x8d\x06" + b"x" * 100_000)  # a field that nobody knows

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await (stub.Pause if isinstance(request_, pb.PauseRequest) else stub.SendSignal)(request_)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await until(lambda: records, because="a refused call is recorded after its answer")
    assert [each.code for each in records] == ["INVALID_ARGUMENT"]


@pytest.mark.parametrize("is_asked_for", [False, True])
async def test_reflection_answers_where_it_is_asked_for(opened: Open, is_asked_for: bool) -> None:
    _, channel, _ = await opened(has_reflection=is_asked_for)
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([ask]))  # type: ignore[no-untyped-call]

    if is_asked_for:
        assert SERVICE in {each.name for each in (await call.read()).list_services_response.service}
        return
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
