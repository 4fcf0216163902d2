"""The gRPC server: vtgate's service and vtctld's two, on one port, with vtgate's static authentication and TLS."""

import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc

from libs.errors import HeadwaterError
from libs.servers.ports import LOOPBACK
from libs.stand_ins.vtgate.execute import execute
from libs.stand_ins.vtgate.faults import Faults
from libs.stand_ins.vtgate.schemas import Schemas
from libs.stand_ins.vtgate.topology import Refused, Shard, Topology
from libs.stand_ins.vtgate.vstream import ServerOptions, VStream
from protos.vitess.logutil_pb2 import Event, Level
from protos.vitess.replicationdata_pb2 import Status
from protos.vitess.topodata_pb2 import Tablet as TabletRecord
from protos.vitess.topodata_pb2 import TabletAlias, TabletType
from protos.vitess.vtctldata_pb2 import (
    ExecuteVtctlCommandRequest,
    ExecuteVtctlCommandResponse,
    ShardReplicationPositionsRequest,
    ShardReplicationPositionsResponse,
)
from protos.vitess.vtctlservice_pb2_grpc import (
    VtctldServicer,
    VtctlServicer,
    add_VtctldServicer_to_server,
    add_VtctlServicer_to_server,
)
from protos.vitess.vtgate_pb2 import ExecuteRequest, ExecuteResponse, VStreamRequest, VStreamResponse
from protos.vitess.vtgateservice_pb2_grpc import VitessServicer, add_VitessServicer_to_server
from protos.vitess.vtrpc_pb2 import Code, RPCError

_MAX_STREAMS: Final = 64
_STOP_GRACE_S: Final = 1.0
_MAX_MESSAGE_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Security:
    """The users that may connect, and how."""

    users: Mapping[str, str] = field(default_factory=dict)
    """Password of each user (vtgate's --grpc_auth_static_password_file); empty: everybody may."""
    certificate_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None
    """With it, clients must show a certificate of this authority."""


class VtgateServer:
    """Serves from ``start`` to ``stop``; a restarted one is a new one on the same port."""

    def __init__(
        self,
        topology: Topology,
        *,
        options: ServerOptions | None = None,
        security: Security | None = None,
        host: str = LOOPBACK,
        port: int = 0,
    ) -> None:
        self.topology = topology
        self.faults = Faults()
        self.schemas = Schemas()
        self.writes = threading.RLock()
        """Held by each writer through vtgate, and by a reshard while it switches traffic."""
        self.requests: list[VStreamRequest] = []
        """Every VStream call so far, as it came."""
        self.headers: list[Mapping[str, str]] = []
        """The metadata of every call so far."""
        self._options = options or ServerOptions()
        self._security = security or Security()
        self._host = host
        self._wanted_port = port
        self._streams: set[VStream] = set()
        self._server: grpc.Server | None = None
        self.is_stopping = False
        self.port = 0

    def start(self) -> "VtgateServer":
        """Listen; ``port`` says where."""
        server = grpc.server(
            futures.ThreadPoolExecutor(max_workers=_MAX_STREAMS, thread_name_prefix="vtgate"),
            options=[
                ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
                ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
                ("grpc.so_reuseport", 0),
                # A client may ping as often as vtgate lets it (--grpc_server_keepalive_enforcement_policy_min_time).
                ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
                ("grpc.keepalive_permit_without_calls", 1),
            ],
        )
        add_VitessServicer_to_server(_Vitess(self), server)  # type: ignore[no-untyped-call]
        add_VtctlServicer_to_server(_Vtctl(self), server)  # type: ignore[no-untyped-call]
        add_VtctldServicer_to_server(_Vtctld(self), server)  # type: ignore[no-untyped-call]
        address = f"{self._host}:{self._wanted_port}"
        if self._security.certificate_file is None:
            self.port = server.add_insecure_port(address)
        else:
            self.port = server.add_secure_port(address, _tls(self._security))
        server.start()
        self._server = server
        return self

    def stop(self) -> None:
        """Break every stream off; returns when their threads have ended."""
        assert self._server is not None
        self.is_stopping = True
        streams = tuple(self._streams)
        for stream in streams:
            stream.close()
        self._server.stop(_STOP_GRACE_S).wait()
        for stream in streams:
            stream.join()

    @property
    def open_streams(self) -> int:
        """VStream calls that have not ended."""
        return len(self._streams)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self._host}:{self.port}"

    def opened(self, request: VStreamRequest) -> VStream:
        """A stream for one call. Raises Refused."""
        as_it_came = VStreamRequest()
        as_it_came.CopyFrom(request)  # the stream notes in its own where it stands
        self.requests.append(as_it_came)
        stream = VStream(request, self.topology, options=self._options, schemas=self.schemas, faults=self.faults)
        self._streams.add(stream)
        return stream

    def forget(self, stream: VStream) -> None:
        """The call has ended."""
        self._streams.discard(stream)

    def check_caller(self, context: grpc.ServicerContext) -> None:
        """Abort the call of somebody who is not among the users (Vitess's StaticAuthClientCreds)."""
        said = {name: str(value) for name, value in context.invocation_metadata()}
        self.headers.append(said)
        if not self._security.users:
            return
        user = said.get("username")
        if user is None or self._security.users.get(user) != said.get("password"):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "auth failure: caller provided invalid credentials")


class _Vitess(VitessServicer):
    def __init__(self, server: VtgateServer) -> None:
        self._server = server

    def Execute(self, request: ExecuteRequest, context: grpc.ServicerContext) -> ExecuteResponse:  # noqa: N802
        self._server.check_caller(context)
        answer = ExecuteResponse(session=request.session)
        try:
            with self._server.writes:
                answer.result.CopyFrom(execute(self._server.topology, request.session.target_string, request.query.sql))
        except Refused as error:
            answer.error.CopyFrom(RPCError(message=str(error), code=error.code))
        except HeadwaterError as error:
            answer.error.CopyFrom(RPCError(message=str(error), code=Code.UNAVAILABLE))
        return answer

    def VStream(  # noqa: N802
        self, request: VStreamRequest, context: grpc.ServicerContext
    ) -> Iterator[VStreamResponse]:
        self._server.check_caller(context)
        try:
            stream = self._server.opened(request)
        except Refused as error:
            context.abort(grpc.StatusCode[error.code], str(error))
        context.add_callback(stream.close)
        try:
            yield from stream.responses()
            if self._server.is_stopping:
                context.abort(grpc.StatusCode.UNAVAILABLE, "vtgate is shutting down")
        except Refused as error:
            context.abort(grpc.StatusCode[error.code], str(error))
        finally:
            self._server.forget(stream)


class _Vtctl(VtctlServicer):
    """Commands as text; the one that clients use for positions."""

    def __init__(self, server: VtgateServer) -> None:
        self._server = server

    def ExecuteVtctlCommand(  # noqa: N802
        self, request: ExecuteVtctlCommandRequest, context: grpc.ServicerContext
    ) -> Iterator[ExecuteVtctlCommandResponse]:
        self._server.check_caller(context)
        command, *arguments = request.args or ("",)
        if command != "ShardReplicationPositions" or len(arguments) != 1:
            context.abort(grpc.StatusCode.UNKNOWN, f"unknown command: {' '.join(request.args)}")
        keyspace, _, name = arguments[0].replace(":", "/").partition("/")
        for line in _position_lines(_shard(self._server, keyspace, name, context)):
            yield ExecuteVtctlCommandResponse(event=Event(level=Level.CONSOLE, value=line))


class _Vtctld(VtctldServicer):
    def __init__(self, server: VtgateServer) -> None:
        self._server = server

    def ShardReplicationPositions(  # noqa: N802
        self, request: ShardReplicationPositionsRequest, context: grpc.ServicerContext
    ) -> ShardReplicationPositionsResponse:
        self._server.check_caller(context)
        shard = _shard(self._server, request.keyspace, request.shard, context)
        answer = ShardReplicationPositionsResponse()
        for tablet in shard.tablets:
            answer.replication_statuses[tablet.alias].CopyFrom(Status(position=tablet.position()))
            answer.tablet_map[tablet.alias].CopyFrom(
                TabletRecord(
                    alias=TabletAlias(cell=tablet.cell, uid=tablet.uid),
                    hostname=tablet.host,
                    keyspace=shard.keyspace,
                    shard=shard.name,
                    type=tablet.tablet_type,
                )
            )
        return answer


def _shard(server: VtgateServer, keyspace: str, name: str, context: grpc.ServicerContext) -> Shard:
    try:
        return server.topology.shard(keyspace, name)
    except Refused as error:
        context.abort(grpc.StatusCode[error.code], str(error))


def _position_lines(shard: Shard) -> Iterator[str]:
    """Primary first, then replicas and read-only ones; the position is the ninth word."""
    for tablet in sorted(shard.tablets, key=lambda tablet: tablet.tablet_type):
        kind = TabletType.Name(tablet.tablet_type).lower()
        place = f"{tablet.host}:{tablet.port}"
        yield (f"{tablet.alias} {shard.keyspace} {shard.name} {kind} {place} {place} [] <null> {tablet.position()} 0")


def _tls(security: Security) -> grpc.ServerCredentials:
    assert security.certificate_file is not None and security.key_file is not None
    pair = (security.key_file.read_bytes(), security.certificate_file.read_bytes())
    authority = security.client_ca_file.read_bytes() if security.client_ca_file else None
    return grpc.ssl_server_credentials([pair], root_certificates=authority, require_client_auth=authority is not None)
