"""Faults: a wrong state while it lasts, as every view shows it."""

from enum import Enum

import msgspec


class Severity(Enum):
    """How much a fault takes away; the order of ``RANKED`` is the order in which faults are shown."""

    HALTED = "halted"
    """Work stands still until a person acts."""
    DIFFERS = "differs"
    """A tenant's rows differ from the source, or may; other work goes on."""
    DEGRADED = "degraded"
    """Work goes on by itself, later or slower."""


RANKED = (Severity.HALTED, Severity.DIFFERS, Severity.DEGRADED)
"""The worst first."""


class FaultScope(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fault is; an empty field: all of them, or none is concerned."""

    source: str = ""
    tenant: str = ""
    table: str = ""
    """``database.table``, as the source spells it."""
    process: str = ""

    def __str__(self) -> str:
        named = (("source", self.source), ("tenant", self.tenant), ("table", self.table), ("process", self.process))
        return ", ".join(f"{name} {value}" for name, value in named if value)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong. ``id`` and ``scope`` name it: a process has at most one fault of each pair."""

    id: str
    """Of the catalogue in ``libs.telemetry.faults``: ``source_unreachable``."""
    severity: Severity
    since_us: int
    """Microseconds since 1970, by the clock of the process that found it."""
    scope: FaultScope
    happened: str
    """The cause with its place: server, file, position, table, column; never a row's values or a secret."""
    remedy: str
    """The remedy for a person."""
    command: str = ""
    """The command, if one command mends it."""
    docs: str = ""
    """The page and heading that says more: ``docs/failure_modes.md#a-source-is-away``."""


def worst_first(faults: "list[Fault]") -> "list[Fault]":
    """By severity, then the oldest first."""
    return sorted(faults, key=lambda each: (RANKED.index(each.severity), each.since_us, each.id, str(each.scope)))
