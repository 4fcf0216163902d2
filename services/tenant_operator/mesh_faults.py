"""Faults of the mesh, as its services report them over gRPC, kept in memory; and which of them concern a tenant.

A reader that needs a person ends and is started again every minute, and says nothing in between. So a fault is known once it
has lasted, and is over once nobody has reported it for a while: a team does not read each minute that it ended.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from libs.config.connections import WatchedService
from libs.errors import HeadwaterError
from libs.rpc.faults_client import gather_faults
from libs.telemetry.faults import CATALOGUE
from libs.tenants.view import is_selected
from libs.types.fault import Fault, FaultScope, worst_first
from libs.types.table import TableId
from libs.types.tenant import TenantSpec

LASTING_US: Final = 20_000_000
"""As long as routers and Spark jobs wait before they report."""
SILENT_US: Final = 90_000_000
"""Longer than a halted reader takes to end, to be started and to halt again."""
LOOK_S: Final = 10.0
_UNKNOWN_CAUSE: Final = "a fault of a later release"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Known:
    """A fault, and when it was said first and last, in microseconds since 1970."""

    fault: Fault
    first_us: int
    last_us: int


KnownFaults = Mapping[tuple[str, FaultScope], Known]


def with_said(known: KnownFaults, said: Iterable[Fault], now_us: int) -> KnownFaults:
    """The faults that are known after services said these. One keeps the moment at which it began."""
    kept = {place: each for place, each in known.items() if now_us - each.last_us < SILENT_US}
    for fault in said:
        place = (fault.id, fault.scope)
        before = kept.get(place)
        since_us = (fault.since_us or now_us) if before is None else before.fault.since_us
        first_us = now_us if before is None else before.first_us
        kept[place] = Known(msgspec.structs.replace(fault, since_us=since_us), first_us, now_us)
    return kept


def lasting(known: KnownFaults) -> tuple[Fault, ...]:
    """Those that have lasted, the worst first."""
    return tuple(worst_first([each.fault for each in known.values() if each.last_us - each.first_us >= LASTING_US]))


def faults_of_tenant(spec: TenantSpec, faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Those that concern a tenant, in their order, in words that are for its team.

    A fault of the tenant alone comes as it was said. Of a source that the tenant reads, or of a table of it that it gets, the
    team hears the kind of fault and no more: the words may name servers, users, statements and other tables and columns.
    Faults of another tenant, or of no source, it does not hear.
    """
    found = []
    for fault in faults:
        if fault.scope.tenant:
            if fault.scope.tenant == spec.tenant:
                found.append(msgspec.structs.replace(fault, scope=_without_process(fault.scope)))
        elif _reads(spec, fault.scope):
            found.append(_in_general(fault))
    return tuple(found)


def _reads(spec: TenantSpec, scope: FaultScope) -> bool:
    database, _, table = scope.table.partition(".")
    return any(
        selection.name == scope.source
        and (not scope.table or is_selected(selection, TableId(database=database, table=table)))
        for selection in spec.sources
    )


def _in_general(fault: Fault) -> Fault:
    kind = next((kind for kind in CATALOGUE if kind.id == fault.id), None)
    return msgspec.structs.replace(
        fault,
        scope=_without_process(fault.scope),
        happened=_UNKNOWN_CAUSE if kind is None else kind.cause,
        remedy="the operators of the mesh see to it" if kind is None else f"operators of the mesh: {kind.remedy}",
        command="",
    )


def _without_process(scope: FaultScope) -> FaultScope:
    return msgspec.structs.replace(scope, process="")


class MeshFaults:
    """Asks the services while ``run`` runs; ``on_change`` is called when other faults last."""

    def __init__(
        self, services: Sequence[WatchedService], *, on_change: Callable[[], None], look_s: float = LOOK_S
    ) -> None:
        self._services = services
        self._look_s = look_s
        self._on_change = on_change
        self._known: KnownFaults = {}
        self.lasting: tuple[Fault, ...] | None = None
        """The worst first; None: the services were not asked for long enough, so an absence means nothing."""

    async def run(self) -> None:
        """Ask until cancelled. A service that does not answer is a fault itself."""
        began_us = _now_us()
        while True:
            try:
                said = await gather_faults(self._services)
            except HeadwaterError as error:  # a certificate that is written just now
                log.warning("mesh_faults_not_gathered", reason=str(error), retry_in_s=self._look_s)
            else:
                self._known = with_said(self._known, said, _now_us())
                found = lasting(self._known)
                if _now_us() - began_us >= LASTING_US and found != self.lasting:
                    self.lasting = found
                    self._on_change()
            await asyncio.sleep(self._look_s)


def _now_us() -> int:
    return time.time_ns() // 1_000
