"""tenant_operator from the caller's side: routers are told of the documents in force."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

import grpc

from libs.config.connections import GrpcClientSettings
from libs.rpc.client import OwnsChannel, error_of, open_channel
from protos.headwater.tenants.v1 import tenants_pb2 as pb
from protos.headwater.tenants.v1 import tenants_pb2_grpc

_SERVICE = "tenant_operator"


@dataclass(frozen=True, slots=True)
class TenantsChange:
    """What changed since the one before."""

    in_force: Mapping[str, str]
    """Documents (YAML) that are new or changed, by tenant."""
    left: tuple[str, ...]
    is_first: bool
    """``in_force`` is all there is."""


class TenantsClient(OwnsChannel):
    """A connection to the operators; used from one event loop."""

    def __init__(self, settings: GrpcClientSettings) -> None:
        self._channel = open_channel(settings)
        self._stub = tenants_pb2_grpc.TenantsStub(self._channel)  # type: ignore[no-untyped-call]

    async def watch(self) -> AsyncGenerator[TenantsChange, None]:
        """All documents in force, then every change from now on, without an end.

        Raises:
            ServiceUnavailable: the stream broke; call again: it begins with all of them.
            AccessDenied, PipelineHalted: no retry helps.
        """
        documents: dict[str, str] = {}
        left: list[str] = []
        is_first = True
        try:
            stream = self._stub.WatchTenants(pb.WatchTenantsRequest(), wait_for_ready=True)
            async for part in stream:
                documents |= {each.tenant: each.document for each in part.in_force}
                left += part.left
                if part.is_whole:
                    yield TenantsChange(documents, tuple(left), is_first)
                    documents, left, is_first = {}, [], False
        except grpc.aio.AioRpcError as error:
            raise error_of(error, service=_SERVICE) from error
