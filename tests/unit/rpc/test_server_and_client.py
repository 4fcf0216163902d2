"""A server and a client of ours on loopback: health, reflection, TLS, and the errors that status codes become."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from libs.config.connections import GrpcClientSettings, GrpcServerSettings
from libs.errors import (
    AccessDenied,
    DefinitionTooLarge,
    Fenced,
    HeadwaterError,
    InvalidSettings,
    PipelineHalted,
    SchemaUnknown,
    ServiceUnavailable,
)
from libs.events.schema_change import SchemaChangeKind
from libs.mysql.ddl import show_create_to_schema
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.rpc.server import RpcServer, start_server
from libs.types.order import EventOrder
from libs.types.position import SourcePosition
from libs.types.table import TableId
from protos.headwater.schema_history.v1 import schema_history_pb2 as pb
from protos.headwater.schema_history.v1 import schema_history_pb2_grpc
from tests.certificates import write_certificates

SERVICE = "headwater.schema_history.v1.SchemaHistory"


class Refusing(schema_history_pb2_grpc.SchemaHistoryServicer):
    """Answers ListTables with the status that the source's name says; "none" is a good answer."""

    async def ListTables(self, request: pb.ListTablesRequest, context: Any) -> pb.ListTablesResponse:  # noqa: N802
        if request.source != "none":
            await context.abort(grpc.StatusCode[request.source], "as asked")
        return pb.ListTablesResponse()

    async def WatchSchemaChanges(  # noqa: N802
        self, request: pb.WatchSchemaChangesRequest, context: Any
    ) -> AsyncIterator[pb.SchemaChange]:
        """None, and an end."""
        for nothing in ():
            yield nothing


async def start(settings: GrpcServerSettings) -> RpcServer:
    def register(server: grpc.aio.Server) -> None:
        schema_history_pb2_grpc.add_SchemaHistoryServicer_to_server(Refusing(), server)

    return await start_server(settings, {SERVICE: register})


@pytest.fixture
async def server() -> AsyncIterator[RpcServer]:
    started = await start(GrpcServerSettings())
    yield started
    await started.stop(0)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("UNAVAILABLE", ServiceUnavailable),
        ("RESOURCE_EXHAUSTED", ServiceUnavailable),
        ("INTERNAL", ServiceUnavailable),
        ("FAILED_PRECONDITION", Fenced),
        ("NOT_FOUND", SchemaUnknown),
        ("PERMISSION_DENIED", AccessDenied),
        ("INVALID_ARGUMENT", PipelineHalted),
    ],
)
async def test_a_status_becomes_the_error_that_says_what_to_do(
    server: RpcServer, status: str, expected: type[HeadwaterError]
) -> None:
    """The message names the service and carries its words."""
    async with SchemaHistoryClient(GrpcClientSettings(address=f"127.0.0.1:{server.port}")) as client:
        with pytest.raises(expected, match="schema_history: as asked"):
            await client.list_tables(status)


async def test_a_service_that_is_not_there_is_unavailable_after_the_timeout() -> None:
    """A call waits for a service that restarts, but not for ever."""
    async with SchemaHistoryClient(GrpcClientSettings(address="127.0.0.1:1", timeout_s=0.3)) as client:
        with pytest.raises(ServiceUnavailable):
            await client.list_tables("none")


async def test_health_is_not_serving_until_it_is_set_and_for_each_service(server: RpcServer) -> None:
    """A supervisor may ask for the whole server or for one service."""

    async def ask(name: str) -> str:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name))
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    before = [await ask(""), await ask(SERVICE)]
    await server.set_serving(True)

    assert before == ["NOT_SERVING", "NOT_SERVING"]
    assert [await ask(""), await ask(SERVICE)] == ["SERVING", "SERVING"]


async def test_a_port_that_is_taken_is_refused(server: RpcServer) -> None:
    """Two servers never share one port and its calls."""
    with pytest.raises(InvalidSettings, match="cannot be bound"):
        await start(GrpcServerSettings(port=server.port))


async def test_a_server_in_the_clear_warns_unless_it_is_on_loopback() -> None:
    """A person who asks for it is warned once, at the start."""
    with capture_logs() as told:
        for host in ("127.0.0.1", "0.0.0.0"):
            await (await start(GrpcServerSettings(host=host))).stop(0)

    assert [each["host"] for each in told if each["event"] == "grpc_without_tls"] == ["0.0.0.0"]


async def test_mutual_tls_admits_only_clients_of_the_same_authority(tmp_path: Path) -> None:
    """With a client CA the server refuses a client without a certificate."""
    files = write_certificates(tmp_path)
    server = await start(
        GrpcServerSettings(
            tls_certificate_file=files["certificate"], tls_key_file=files["key"], tls_client_ca_file=files["ca"]
        )
    )
    address = f"127.0.0.1:{server.port}"
    known = GrpcClientSettings(
        address=address,
        tls_ca_file=files["ca"],
        tls_certificate_file=files["certificate"],
        tls_key_file=files["key"],
    )
    unknown = GrpcClientSettings(address=address, tls_ca_file=files["ca"], timeout_s=1.0)

    async with SchemaHistoryClient(known) as client:
        answer = await client.list_tables("none")
    async with SchemaHistoryClient(unknown) as client:
        with pytest.raises(ServiceUnavailable):
            await client.list_tables("none")
    await server.stop(0)

    assert answer == []


async def test_of_the_authoritys_clients_those_with_a_name_are_let_in(tmp_path: Path) -> None:
    """Calls and streams of others are refused for good, and say which name they came with."""
    files = write_certificates(tmp_path)  # of 127.0.0.1
    pair = {"tls_certificate_file": files["certificate"], "tls_key_file": files["key"]}

    async def watch(client: SchemaHistoryClient) -> None:
        assert [change async for change in client.watch("src")] == []

    async def calls(*client_names: str) -> list[HeadwaterError | None]:
        server = await start(GrpcServerSettings(**pair, tls_client_ca_file=files["ca"], client_names=client_names))
        settings = GrpcClientSettings(address=f"127.0.0.1:{server.port}", tls_ca_file=files["ca"], **pair)
        told: list[HeadwaterError | None] = []
        async with SchemaHistoryClient(settings) as client:
            for call in (client.list_tables("none"), watch(client)):
                try:
                    await call
                    told.append(None)
                except HeadwaterError as error:
                    told.append(error)
        await server.stop(0)
        return told

    refused = await calls("headwater-router.mesh.svc", "headwater-reader-shop.mesh.svc")
    let_in = await calls("headwater-router.mesh.svc", "127.0.0.1")

    assert [type(error) for error in refused] == [AccessDenied, AccessDenied]
    assert all("certificate is of 127.0.0.1, and none" in str(error) for error in refused)
    assert let_in == [None, None]
    with pytest.raises(InvalidSettings, match=r"grpc\.client_names: needs tls_client_ca_file"):
        await start(GrpcServerSettings(**pair, client_names=("headwater-router",)))


@pytest.fixture
def always_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libs.rpc.renewing_channel.LOOK_S", 0.0)


async def start_with(files: dict[str, str]) -> tuple[RpcServer, GrpcClientSettings]:
    """A server with mutual TLS, and how a client of the same files comes to it."""
    pair = {"tls_certificate_file": files["certificate"], "tls_key_file": files["key"]}
    server = await start(GrpcServerSettings(**pair, tls_client_ca_file=files["ca"]))
    address = f"127.0.0.1:{server.port}"
    return server, GrpcClientSettings(address=address, tls_ca_file=files["ca"], timeout_s=20.0, **pair)


@pytest.mark.usefixtures("always_looks")
async def test_renewed_certificates_are_taken_over_without_a_restart(tmp_path: Path) -> None:
    """Those of another authority at that; a client that still has the old ones is refused."""
    files = write_certificates(tmp_path / "mesh")
    old = {name: str(shutil.copy(path, tmp_path / f"old-{name}.pem")) for name, path in files.items()}
    server, settings = await start_with(files)
    of_old = {"tls_ca_file": old["ca"], "tls_certificate_file": old["certificate"], "tls_key_file": old["key"]}

    async with SchemaHistoryClient(settings) as client:
        before = await client.list_tables("none")
        write_certificates(tmp_path / "mesh")
        behind = await client.list_tables("none")
    async with SchemaHistoryClient(GrpcClientSettings(address=settings.address, timeout_s=1.0, **of_old)) as client:
        with pytest.raises(ServiceUnavailable):
            await client.list_tables("none")
    await server.stop(0)

    assert before == behind == []


@pytest.mark.usefixtures("always_looks")
@pytest.mark.usefixtures("always_looks")
async def test_expired_certificates_are_renewed_under_clients_that_wait(tmp_path: Path) -> None:
    """The server's and the client's; neither object is made a second time."""
    server, settings = await start_with(write_certificates(tmp_path, is_expired=True))

    async with SchemaHistoryClient(msgspec.structs.replace(settings, timeout_s=3.0)) as client:
        with pytest.raises(ServiceUnavailable):
            await client.list_tables("none")
        write_certificates(tmp_path)
        behind = await client.list_tables("none")
    await server.stop(0)

    assert behind == []


@pytest.mark.usefixtures("always_looks")
async def test_files_that_do_not_fit_together_leave_the_old_ones_in_force(tmp_path: Path) -> None:
    """An authority may write one after the other."""
    files = write_certificates(tmp_path / "mesh")
    other = write_certificates(tmp_path / "other")
    server, settings = await start_with(files)

    async with SchemaHistoryClient(settings) as client:
        shutil.copy(other["key"], files["key"])
        amid = await client.list_tables("none")
        shutil.move(files["certificate"], tmp_path / "away.pem")
        without = await client.list_tables("none")
        for name in ("certificate", "ca"):
            shutil.copy(other[name], files[name])
        behind = await client.list_tables("none")
    async with SchemaHistoryClient(settings) as client:
        anew = await client.list_tables("none")
    await server.stop(0)

    assert amid == without == behind == anew == []


async def test_every_wrong_tls_setting_is_named(tmp_path: Path) -> None:
    """Files that are missing, at once; and half a pair."""
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(InvalidSettings) as both:
        await start(GrpcServerSettings(tls_certificate_file=missing, tls_key_file=missing))
    present = tmp_path / "present.pem"
    present.write_text("")
    with pytest.raises(InvalidSettings, match="give both, or none"):
        await start(GrpcServerSettings(tls_key_file=str(present)))

    assert len(both.value.mistakes) == 2


async def test_a_definition_that_is_too_large_is_refused_by_name() -> None:
    """Before it is sent: the service would have answered that the two sides are of different releases."""
    table_id = TableId(database="shop", table="orders")
    columns = ", ".join(f"c{nth} INT COMMENT '{'x' * 1_000}'" for nth in range(1_000))
    statement = f"CREATE TABLE orders ({columns})"
    client = SchemaHistoryClient(GrpcClientSettings(address="127.0.0.1:1", timeout_s=0.1))
    try:
        with pytest.raises(DefinitionTooLarge, match=r"^shop\.orders: its definition takes .* exclude_tables"):
            await client.record_schema_change(
                source="shop",
                table_id=table_id,
                kind=SchemaChangeKind.CREATE,
                order=EventOrder(epoch=0, rank=1, tx_ordinal=0),
                position=SourcePosition(source_kind="mysql", token=b"{}"),
                committed_at_us=0,
                ddl=statement,
                table_schema=show_create_to_schema(table_id, statement),
            )
    finally:
        await client.close()
