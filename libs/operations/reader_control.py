"""Pause and resume of a source's readers, by their own gRPC; of the embedded stack and of a mesh elsewhere alike."""

import asyncio
from collections.abc import Sequence
from typing import Final

from libs.config.connections import WatchedService
from libs.errors import InvalidSettings
from libs.mesh.mesh import Mesh, require_source
from libs.mesh.own_services import caller
from libs.mesh.processes import is_reader_of
from libs.mesh.state import running_state
from libs.rpc.client import answer_of, open_channel
from libs.tenants.place import nearest
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb
from protos.headwater.reader_control.v1 import reader_control_pb2_grpc

_TIMEOUT_S: Final = 10.0


def readers_of(mesh: Mesh, source: str) -> list[WatchedService]:
    """The readers of a source: one, or those that share it.

    Raises:
        InvalidSettings: there is no such source, or no reader of it is known; the message has the nearest name.
    """
    if mesh.home is None:
        found = [each for each in mesh.services if each.source == source]
        if not found:
            known = sorted({each.source for each in mesh.services} - {""})
            raise InvalidSettings(
                f"source {source}", [f"no service of the file for --mesh reads it; {nearest(source, known)}"]
            )
        return found
    require_source(mesh, source)
    found = [
        WatchedService(
            name=service.name,
            source=source,
            grpc=caller(mesh.home, service.grpc_port, timeout_s=_TIMEOUT_S),
        )
        for service in running_state(mesh.home).services
        if is_reader_of(service.name, source) and service.grpc_port is not None
    ]
    if not found:
        raise InvalidSettings(
            f"source {source}", ["no reader of it runs: its document was added after `up`; `headwater down`, then `up`"]
        )
    return found


def pause(readers: Sequence[WatchedService]) -> None:
    """Have readers hand over no further rows. It lasts until ``resume``, or until the process ends.

    Raises:
        ServiceUnavailable: one does not answer; those before it are paused.
    """
    asyncio.run(_call_all(readers, is_pause=True))


def resume(readers: Sequence[WatchedService]) -> None:
    """Have readers continue where they paused. Raises as ``pause``."""
    asyncio.run(_call_all(readers, is_pause=False))


async def _call_all(readers: Sequence[WatchedService], *, is_pause: bool) -> None:
    for reader in readers:
        async with open_channel(reader.grpc) as channel:
            stub = reader_control_pb2_grpc.ReaderControlStub(channel)  # type: ignore[no-untyped-call]
            if is_pause:
                await answer_of(stub.Pause(pb.PauseRequest(), timeout=reader.grpc.timeout_s), service=reader.name)
            else:
                await answer_of(stub.Resume(pb.ResumeRequest(), timeout=reader.grpc.timeout_s), service=reader.name)
