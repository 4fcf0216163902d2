"""The hops' reports about a tenant: checkpoint_committer's memory, and its view in Redis. Nothing of it is in Kafka."""

import asyncio
from typing import Final

import redis

from libs.config.connections import GrpcClientSettings
from libs.errors import ServiceUnavailable
from libs.mesh.home import Home
from libs.mesh.own_services import caller
from libs.mesh.processes import CHECKPOINT_COMMITTER, VALKEY
from libs.mesh.state import read_ports
from libs.operations.erase.held import Held
from libs.redis.connection import UNUSABLE
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.servers.ports import LOOPBACK

_TIMEOUT_S: Final = 10.0


def held_progress(home: Home, tenant: str) -> list[Held]:
    """Raises ServiceUnavailable where checkpoint_committer or Valkey does not answer."""
    reports = asyncio.run(_reports(home, tenant))
    held = [Held(kind="progress", name=name) for name in reports]
    return [*held, *(Held(kind="Redis field", name=name) for name in _redis_fields(home, tenant))]


def forget_progress(home: Home, tenant: str) -> None:
    """Redis follows within a second or two. Raises ServiceUnavailable where checkpoint_committer does not answer."""

    async def forget() -> None:
        async with CheckpointCommitterClient(_committer(home)) as client:
            await client.forget_progress(tenant)

    asyncio.run(forget())


async def _reports(home: Home, tenant: str) -> list[str]:
    async with CheckpointCommitterClient(_committer(home)) as client:
        reports = await client.progress(tenant)
    return [f"{report.hop}, {report.partition} {report.table}".strip() for report in reports]


def _committer(home: Home) -> GrpcClientSettings:
    return caller(home, read_ports(home)[f"{CHECKPOINT_COMMITTER}-grpc"], timeout_s=_TIMEOUT_S)


def _redis_fields(home: Home, tenant: str) -> list[str]:
    """Of every hash that has fields of tenants, of any maker; and keys that are the tenant's."""
    found: list[str] = []
    with redis.Redis(host=LOOPBACK, port=read_ports(home)[VALKEY], socket_timeout=_TIMEOUT_S) as client:
        try:
            for key in client.scan_iter():
                if key == tenant.encode() or key.startswith(f"{tenant}.".encode()):
                    found.append(key.decode(errors="replace"))
                if client.type(key) == b"hash":
                    fields = (field for field, _ in client.hscan_iter(key, match=f"{tenant}\0*"))
                    found += (field.decode(errors="replace").replace("\0", " ") for field in fields)
        except UNUSABLE as error:
            raise ServiceUnavailable(f"Valkey does not answer ({type(error).__name__}): is the stack up?") from error
    return found
