"""The routers' findings: tables that they refuse to a tenant, its document, and records that cannot be written. Kept in the
tenant's record; the leader reports them to the team (``report``).

Every operator takes it, leader or not, because a router speaks to any of them: a record is written on top of the version
that was read, so nothing of two routers, or of the leader, is lost.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import structlog

from libs.errors import ServiceUnavailable
from libs.tenants.config_map import RECORD_LABEL, record_name, record_refusals
from libs.types.refusal import Refusal, RefusedKind
from libs.types.table import TableId
from services.tenant_operator.kubernetes_client import Conflict, KubernetesClient, side_by_side
from services.tenant_operator.mirror import Mirror
from services.tenant_operator.objects import refusals_patch, tenant_record

_MOST: Final = 100
"""Of one tenant and kind; an object of Kubernetes has 1 MiB. Further ones are reported when routers meet the tables again."""
_SILENT_AFTER_US: Final = 300_000_000
"""A router reports a document that it refuses once a minute: one that is silent for so long is gone."""
_ATTEMPTS: Final = 5

log = structlog.get_logger()


def with_news(
    standing: Sequence[Refusal], found: Iterable[Refusal], over: Iterable[Refusal], *, most: int = _MOST
) -> tuple[Refusal, ...]:
    """A tenant's refusals with a router's report, in one order. A repeated report changes nothing."""
    ended = {(*_place(each), each.found_at_us) for each in over}
    kept = {_place(each): each for each in standing if (*_place(each), each.found_at_us) not in ended}
    for each in found:
        known = kept.get(_place(each))
        alike = sum(other.what is each.what for other in kept.values())
        if alike < most if known is None else each.found_at_us > known.found_at_us:
            kept[_place(each)] = each
    return tuple(kept[place] for place in sorted(kept))


def without_silent(refusals: tuple[Refusal, ...], now_us: int) -> tuple[Refusal, ...]:
    """Standing refusals, without those of documents whose router has been silent for long."""
    return tuple(
        each
        for each in refusals
        if each.what is not RefusedKind.DOCUMENT or now_us - each.found_at_us <= _SILENT_AFTER_US
    )


def _place(refusal: Refusal) -> tuple[str, str, TableId, str, int]:
    """The subject of a refusal of one tenant; each has one at a time."""
    return refusal.source, refusal.what.value, refusal.table_id, refusal.router, refusal.kafka_partition


class RefusalKeeper:
    """Takes refusals of routers into the tenants' records."""

    def __init__(self, kubernetes: KubernetesClient, own_namespace: str, records: Mirror) -> None:
        self._kubernetes = kubernetes
        self._folder = f"/api/v1/namespaces/{own_namespace}/configmaps"
        self._records = records

    async def take(
        self, router: str, sources: Collection[str], found: Iterable[Refusal], over: Iterable[Refusal]
    ) -> list[Refusal]:
        """Make a router's report durable; returns all standing refusals of ``sources``, and those of documents by ``router``.

        Raises:
            HeadwaterError: not all is durable; the router is to report again.
        """
        by_tenant: defaultdict[str, tuple[list[Refusal], list[Refusal]]] = defaultdict(lambda: ([], []))
        for each in found:
            by_tenant[each.tenant][0].append(each)
        for each in over:
            by_tenant[each.tenant][1].append(each)
        taken = dict(
            zip(by_tenant, await side_by_side(self._take(name, *by_tenant[name]) for name in by_tenant), strict=True)
        )
        standing = {
            found["metadata"]["labels"][RECORD_LABEL]: record_refusals(found) for found in self._records.objects
        }
        return [
            each
            for refusals in (standing | taken).values()
            for each in refusals
            if (each.router == router if each.what is RefusedKind.DOCUMENT else each.source in sources)
        ]

    async def _take(self, tenant: str, found: Sequence[Refusal], over: Sequence[Refusal]) -> tuple[Refusal, ...]:
        path = f"{self._folder}/{record_name(tenant)}"
        for _ in range(_ATTEMPTS):
            record = await self._kubernetes.get(path)
            if record is None or not tenant_record(record).text:
                return ()  # it goes, or is gone
            standing = record_refusals(record)
            wanted = with_news(standing, found, over)
            if wanted == standing:
                return standing
            try:
                await self._kubernetes.merge(path, refusals_patch(wanted, record["metadata"]["resourceVersion"]))
            except Conflict:
                continue
            log.info("refusals_recorded", tenant_id=tenant, refusals=len(wanted))
            return wanted
        raise ServiceUnavailable(f"ConfigMap {path} changed at each of {_ATTEMPTS} attempts to write it; try again")
