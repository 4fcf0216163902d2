"""tenant_operator from the caller's side: routers get the documents in force, and report their refusals."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass

import grpc

from libs.config.connections import GrpcClientSettings
from libs.rpc.client import OwnsChannel, answer_of, error_of, open_channel
from libs.types.refusal import Refusal, RefusedKind
from libs.types.table import TableId
from protos.headwater.tenants.v1 import tenants_pb2 as pb
from protos.headwater.tenants.v1 import tenants_pb2_grpc

_SERVICE = "tenant_operator"


@dataclass(frozen=True, slots=True)
class TenantsChange:
    """The changes since the former one."""

    in_force: Mapping[str, str]
    """Documents (YAML) that are new or changed, by tenant."""
    left: tuple[str, ...]
    is_first: bool
    """``in_force`` is all there is."""


class TenantsClient(OwnsChannel):
    """A connection to the operators; used from one event loop."""

    def __init__(self, settings: GrpcClientSettings) -> None:
        self._timeout_s = settings.timeout_s
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

    async def report_refusals(
        self, router: str, sources: Iterable[str], found: Iterable[Refusal], over: Iterable[Refusal]
    ) -> list[Refusal]:
        """Have new findings, and those that are over, be durable; the refusals of ``sources`` that stand, of any finder, and
        those of documents by ``router``.

        Raises:
            ServiceUnavailable: not all was taken; report all of it again.
            AccessDenied, PipelineHalted: no retry helps; an operator of an earlier release takes none.
        """
        request = pb.TellRefusalsRequest(
            sources=sources,
            found=[refusal_to_proto(each) for each in found],
            over=[refusal_to_proto(each) for each in over],
            router=router,
        )
        call = self._stub.TellRefusals(request, timeout=self._timeout_s, wait_for_ready=True)
        answer: pb.TellRefusalsResponse = await answer_of(call, service=_SERVICE)
        return [refusal_from_proto(each) for each in answer.standing]


def refusal_to_proto(refusal: Refusal) -> pb.Refusal:
    """The wire form of ``refusal``."""
    return pb.Refusal(
        tenant=refusal.tenant,
        source=refusal.source,
        database=refusal.table_id.database,
        table=refusal.table_id.table,
        schema_version=refusal.schema_version,
        reason=refusal.reason,
        found_at_us=refusal.found_at_us,
        is_of_document=refusal.is_of_document,
        is_of_registry=refusal.is_of_registry,
        what=f"REFUSED_{refusal.what.name}",
        router=refusal.router,
        is_of_topic=refusal.is_of_topic,
        is_of_claim=refusal.is_of_claim,
        kafka_partition=refusal.kafka_partition,
    )


def refusal_from_proto(message: pb.Refusal) -> Refusal:
    """The content of ``message``."""
    return Refusal(
        tenant=message.tenant,
        source=message.source,
        table_id=TableId(database=message.database, table=message.table),
        schema_version=message.schema_version,
        reason=message.reason,
        found_at_us=message.found_at_us,
        is_of_document=message.is_of_document,
        is_of_registry=message.is_of_registry,
        what=RefusedKind[pb.RefusedKind.Name(message.what).removeprefix("REFUSED_")],
        router=message.router,
        is_of_topic=message.is_of_topic,
        is_of_claim=message.is_of_claim,
        kafka_partition=message.kafka_partition,
    )
