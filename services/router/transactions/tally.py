"""The count of one writer's records by tenant: of the running transaction, and of dead letters since a table's last copy."""

import collections
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

from libs.telemetry import metrics
from libs.telemetry.faults import EVENTS_SET_ASIDE, lift_fault, raise_again, raise_fault
from libs.types.fault import Fault, FaultScope
from services.router.delivery.delivery import Delivery
from services.router.transactions.metering import Meter


class TransactionTally:
    """Added to with each delivery; reported before the commit, counted in the metrics after it, or forgotten with it.

    A fault is raised before the commit: the router may be killed right after it, and no later one reads the events again. After
    a kill between the two it counts its events twice. A fault ends after the commit of the copied rows that end it.
    """

    def __init__(self, source: str, rows: MutableMapping[str, int], meter: Meter, logger: Any) -> None:
        """``rows``: by tenant, the committed rows since the lane opened. ``meter``: of the writer's thread."""
        self._source = source
        self._rows = rows
        self._meter = meter
        self._log = logger
        self._tallies: collections.defaultdict[str, _Tally] = collections.defaultdict(_Tally)
        self._set_aside = {
            (fault.scope.tenant, fault.scope.table): _count_in(fault)
            for fault in raise_again(EVENTS_SET_ASIDE, lambda scope: scope.source == source)
        }
        """By tenant and table: the dead letters of its events since the router's first start, or since a copy of the table."""
        self._before: dict[tuple[str, str], int | None] = {}
        """Of the places that the transaction changed: the count before it."""

    def add(self, tenant: str, delivery: Delivery, size_bytes: int, cpu_ns: float) -> None:
        """One of the tenants that a delivery is for. ``cpu_ns``: this tenant's part of the work."""
        self._tallies[tenant].add(delivery, size_bytes, cpu_ns)
        if delivery.table and (delivery.reason or self._set_aside):
            self._note_set_aside(tenant, delivery)

    def _note_set_aside(self, tenant: str, delivery: Delivery) -> None:
        """A copy of the table brings earlier letters' rows again, or sets them aside again."""
        place = (tenant, delivery.table)
        self._before.setdefault(place, self._set_aside.get(place))
        if delivery.reason:
            tally = self._tallies[tenant]
            tally.set_aside[delivery.table] = delivery.reason
            self._set_aside[place] = self._set_aside.get(place, 0) + delivery.dead_letters
        else:
            self._set_aside.pop(place, None)

    def report(self) -> None:
        """Raise the faults of the transaction's dead letters: it is whole, and its commit comes next."""
        for tenant, tally in self._tallies.items():
            for table, reason in tally.set_aside.items():
                if count := self._set_aside.get((tenant, table)):
                    scope = FaultScope(source=self._source, tenant=tenant, table=table)
                    raise_fault(EVENTS_SET_ASIDE, scope, happened=_happened(table, count, reason))

    def count(self, others_ns: int = 0) -> float:
        """Count committed records in the metrics, and their CPU seconds, with ``others_ns`` of other threads."""
        cpu_s = self._meter.divide({tenant: tally.cpu_ns for tenant, tally in self._tallies.items()}, others_ns)
        for tenant, tally in self._tallies.items():
            self._rows[tenant] = self._rows.get(tenant, 0) + tally.rows
            metrics.ROUTER_EVENTS.labels(tenant).inc(tally.rows)
            metrics.ROUTER_BYTES.labels(tenant).inc(tally.size_bytes)
            metrics.ROUTER_FILTERED.labels(tenant).inc(tally.filtered)
            if tally.dead_letters:
                metrics.DEAD_LETTERS.labels(tenant).inc(tally.dead_letters)
                self._log.warning("event_dead_lettered", tenant_id=tenant, events=tally.dead_letters)
        for place, before in self._before.items():
            if before is not None and place not in self._set_aside:
                tenant, table = place
                lift_fault(EVENTS_SET_ASIDE, FaultScope(source=self._source, tenant=tenant, table=table))
        self._tallies.clear()
        self._before.clear()
        return cpu_s

    def forget(self) -> None:
        """The transaction was aborted: its events come again."""
        self._tallies.clear()
        for place, count in self._before.items():
            if count is None:
                self._set_aside.pop(place, None)
            else:
                self._set_aside[place] = count
        self._before.clear()


def _happened(table: str, count: int, reason: str) -> str:
    return f"{table}: {count} {'event is a dead letter' if count == 1 else 'events are dead letters'}: {reason}"


def _count_in(fault: Fault) -> int:
    """The number that ``_happened`` wrote; 0 where an earlier release wrote the text."""
    count = fault.happened.removeprefix(f"{fault.scope.table}: ").partition(" ")[0]
    return int(count) if count.isdecimal() else 0


@dataclass(slots=True)
class _Tally:
    """One transaction's records for one tenant."""

    rows: int = 0
    size_bytes: int = 0
    filtered: int = 0
    dead_letters: int = 0
    set_aside: dict[str, str] = field(default_factory=dict)
    """By table: why its last dead letter is one."""
    cpu_ns: float = 0.0
    """Its part of the work for it alone, or for a group of alike tenants."""

    def add(self, delivery: Delivery, size_bytes: int, cpu_ns: float) -> None:
        self.cpu_ns += cpu_ns
        self.rows += delivery.rows
        self.size_bytes += size_bytes
        self.filtered += delivery.filtered
        self.dead_letters += delivery.dead_letters
