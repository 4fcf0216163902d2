"""The gRPC service: the documents in force, for routers; and the routers' refusals, from them. Served by every
operator, leader or not.

A watcher holds the documents it was sent, and is woken when the records change; so a slow one gets fewer and larger changes,
and nothing piles up.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final

import grpc

from libs.errors import HeadwaterError
from libs.rpc.audit import note_change
from libs.rpc.tenants_client import refusal_from_proto, refusal_to_proto
from libs.telemetry.metrics import OPERATOR_WATCHERS
from protos.headwater.tenants.v1 import tenants_pb2 as pb
from protos.headwater.tenants.v1 import tenants_pb2_grpc
from services.tenant_operator.refusals import RefusalKeeper

SERVICE_NAME: Final = "headwater.tenants.v1.Tenants"
_PART_BYTES: Final = 8 << 20
"""Of one message, well below the largest: a thousand documents may have 256 MB."""


class TenantsService(tenants_pb2_grpc.TenantsServicer):
    """See the proto for its guarantees."""

    def __init__(
        self, in_force: Callable[[], Mapping[str, str]], is_listed: asyncio.Event, refusals: RefusalKeeper
    ) -> None:
        self._in_force = in_force
        self._is_listed = is_listed
        self._refusals = refusals
        self._changed: set[asyncio.Event] = set()

    def wake(self) -> None:
        """The records changed."""
        for event in self._changed:
            event.set()

    async def WatchTenants(
        self, request: pb.WatchTenantsRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> AsyncIterator[pb.TenantsChange]:
        await self._is_listed.wait()
        changed = asyncio.Event()
        self._changed.add(changed)
        OPERATOR_WATCHERS.inc()
        sent: Mapping[str, str] | None = None
        try:
            while True:
                changed.clear()
                now = dict(self._in_force())
                for part in parts(sent, now):
                    yield part
                sent = now
                await changed.wait()
        finally:
            self._changed.discard(changed)
            OPERATOR_WATCHERS.dec()

    async def TellRefusals(
        self, request: pb.TellRefusalsRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> pb.TellRefusalsResponse:
        await self._is_listed.wait()
        found, over = (map(refusal_from_proto, refusals) for refusals in (request.found, request.over))
        try:
            standing = await self._refusals.take(request.router, request.sources, found, over)
        except HeadwaterError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        if request.found or request.over:
            note_change(after={"found": len(request.found), "over": len(request.over)})
        return pb.TellRefusalsResponse(standing=map(refusal_to_proto, standing))


def parts(
    sent: Mapping[str, str] | None, now: Mapping[str, str], *, part_bytes: int = _PART_BYTES
) -> Iterator[pb.TenantsChange]:
    """The messages from ``sent`` (None: nothing yet) to ``now``; none where they are equal."""
    before = sent if sent is not None else {}
    left = sorted(before.keys() - now.keys())
    new = [name for name in sorted(now) if before.get(name) != now[name]]
    if sent is not None and not left and not new:
        return
    part, held_bytes = pb.TenantsChange(left=left), 0
    for name in new:
        size = len(now[name].encode())
        if held_bytes and held_bytes + size > part_bytes:
            yield part
            part, held_bytes = pb.TenantsChange(), 0
        part.in_force.append(pb.TenantDocument(tenant=name, document=now[name]))
        held_bytes += size
    part.is_whole = True
    yield part
