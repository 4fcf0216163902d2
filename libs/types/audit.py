"""Audit records: the caller and the change of a call to a service."""

from collections.abc import Mapping
from typing import Any

import msgspec


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One call that changed something, or that was to and was refused."""

    at_us: int
    """Microseconds since 1970, by the clock of the process that was called."""
    service: str
    """Of the contract: ``headwater.checkpoints.v1.CheckpointCommitter``."""
    method: str
    peer: str
    """Address and port from which the call came, as gRPC writes it."""
    names: tuple[str, ...] = ()
    """In the caller's certificate; empty: it had none."""
    request: Mapping[str, Any] = {}
    """Its fields, long ones cut."""
    before: Mapping[str, Any] = {}
    after: Mapping[str, Any] = {}
    """The change, as far as the service reports it."""
    code: str = "OK"
    """gRPC's status."""
