"""Faults from the caller's side: those of every service of a mesh, and services that do not answer."""

import asyncio
import socket
from collections.abc import Iterable, Sequence
from typing import Final

import grpc

from libs.config.connections import GrpcClientSettings, WatchedService
from libs.errors import HeadwaterError, ServiceUnavailable
from libs.rpc.client import answer_of, channel_to, open_channel
from libs.rpc.faults import fault_from_proto
from libs.telemetry.faults import PROCESS_DOWN, SERVICE_DEGRADED, fault_of
from libs.types.fault import Fault, FaultScope, worst_first
from protos.headwater.faults.v1 import faults_pb2 as pb
from protos.headwater.faults.v1 import faults_pb2_grpc

_ASKED_AT_ONCE: Final = 32


async def gather_faults(services: Iterable[WatchedService]) -> list[Fault]:
    """The faults of all processes of ``services``, the worst first; each fault once.

    A process that does not answer is a fault itself, with ``since_us`` 0: nobody knows when it began.
    """
    turns = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def ask(service: WatchedService) -> list[Fault]:
        async with turns:
            return await _faults_of(service)

    found = [fault for faults in await asyncio.gather(*map(ask, services)) for fault in faults]
    return worst_first(list({(fault.id, fault.scope): fault for fault in found}.values()))


async def _faults_of(service: WatchedService) -> list[Fault]:
    if not service.has_several:
        return await _faults_at(service, service.grpc.address, open_channel(service.grpc))
    try:
        addresses = await _addresses(service.grpc.address)
    except OSError as error:
        return [_silent(service, f"its name is unknown ({error.strerror})")]
    return [
        fault
        for faults in await asyncio.gather(
            *(_faults_at(service, each, _channel_at(each, service.grpc)) for each in addresses)
        )
        for fault in faults
    ]


async def _faults_at(service: WatchedService, address: str, channel: grpc.aio.Channel) -> list[Fault]:
    async with channel:
        stub = faults_pb2_grpc.FaultsStub(channel)  # type: ignore[no-untyped-call]
        call = stub.ListFaults(pb.ListFaultsRequest(), timeout=service.grpc.timeout_s)
        try:
            answer: pb.ListFaultsResponse = await answer_of(call, service=service.name)
        except ServiceUnavailable as error:
            return [_silent(service, f"does not answer at {address} ({error})")]
        except HeadwaterError as error:
            return [fault_of(SERVICE_DEGRADED, _scope(service), happened=f"{address}: {error}", since_us=0)]
    return list(map(fault_from_proto, answer.faults))


def _silent(service: WatchedService, why: str) -> Fault:
    return fault_of(PROCESS_DOWN, _scope(service), happened=f"{service.name} {why}", since_us=0)


def _scope(service: WatchedService) -> FaultScope:
    return FaultScope(source=service.source, process=service.name)


async def _addresses(address: str) -> Sequence[str]:
    """Of each process that a name stands for. Raises OSError."""
    host, _, port = address.rpartition(":")
    found = await asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    hosts = {str(place[0]) for *_, place in found}
    return sorted(f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in hosts)


def _channel_at(address: str, settings: GrpcClientSettings) -> grpc.aio.Channel:
    """To one process; its certificate is that of the name."""
    host = settings.address.rpartition(":")[0]
    options = [("grpc.ssl_target_name_override", host)] if settings.tls_ca_file is not None else []
    return channel_to(address, settings, options=options, subject=settings.address)
