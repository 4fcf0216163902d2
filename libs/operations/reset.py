"""A source that is copied again from its beginning, because its log cannot be followed from the checkpoint."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Final

from libs.config.connections import GrpcClientSettings
from libs.errors import Fenced, InvalidSettings
from libs.mesh.documents import read_documents
from libs.mesh.home import Home
from libs.mesh.mesh import Mesh
from libs.mesh.own_services import caller
from libs.mesh.processes import CHECKPOINT_COMMITTER, is_reader_of
from libs.mesh.state import running_state
from libs.operations.status import COMMITTER_COMPONENT
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.source import snapshot_mode
from libs.source.vitess import settings as vitess
from libs.types.checkpoint import Checkpoint

_TIMEOUT_S: Final = 10.0
_STOP_TIMEOUT_S: Final = 60.0
_TRY_S: Final = 0.1
"""A reader that ends is started again after half a second, and takes another to ask for its lease."""
_COPY_NOTHING: Final = snapshot_mode.COPIES_NOTHING | vitess.COPIES_NOTHING


def copies_rows(mesh: Mesh, source: str) -> bool | None:
    """Whether a reader that begins again copies rows, by ``snapshot.mode``; None: a mesh elsewhere does not say."""
    if mesh.home is None:
        return None
    document = read_documents(mesh.home).sources.get(source)
    return None if document is None else document.snapshot.mode not in _COPY_NOTHING


def checkpoints_of(mesh: Mesh, source: str) -> list[Checkpoint]:
    """The checkpoints of a source's readers, of every kind; none: it was never read.

    Raises:
        InvalidSettings: the file for --mesh does not name checkpoint_committer.
        ServiceUnavailable: checkpoint_committer does not answer.
    """

    async def ask() -> list[Checkpoint]:
        async with CheckpointCommitterClient(_committer(mesh)) as client:
            return [each for each in await client.list_checkpoints() if each.partition.source == source]

    return asyncio.run(ask())


def reset(mesh: Mesh, source: str, checkpoint: Checkpoint, *, reason: str, on_progress: Callable[[str], None]) -> None:
    """Have the next reader of the checkpoint's source partition copy all rows, in a new epoch. Blocks.

    The reader of an embedded stack is stopped for it, and its supervisor starts it again.

    Raises:
        Fenced: a reader holds the source partition, and is not ours to stop, or did not stop.
        ServiceUnavailable: checkpoint_committer does not answer.
    """

    async def ask() -> None:
        async with CheckpointCommitterClient(_committer(mesh)) as client:
            await client.reset(checkpoint.partition, position=None, reason=reason, starts_over=True)

    deadline_s = time.monotonic() + _STOP_TIMEOUT_S
    stopped: set[int] = set()
    while True:
        try:
            asyncio.run(ask())
        except Fenced:
            if mesh.home is None or time.monotonic() > deadline_s:
                raise
            on_progress(f"stopping the reader of {source}")
            for pid in set(_pids(mesh.home, source)) - stopped:
                stopped.add(pid)
                os.kill(pid, signal.SIGTERM)
            time.sleep(_TRY_S)
        else:
            return


def _pids(home: Home, source: str) -> list[int]:
    services = running_state(home).services
    return [each.pid for each in services if is_reader_of(each.name, source) and each.pid is not None]


def _committer(mesh: Mesh) -> GrpcClientSettings:
    if mesh.home is not None:
        port = next(each.grpc_port for each in running_state(mesh.home).services if each.name == CHECKPOINT_COMMITTER)
        assert port is not None, "it answers gRPC"
        return caller(mesh.home, port, timeout_s=_TIMEOUT_S)
    found = next((each.grpc for each in mesh.services if each.name == COMMITTER_COMPONENT), None)
    if found is None:
        raise InvalidSettings(
            "the file for --mesh",
            [f"services: name {COMMITTER_COMPONENT} with its gRPC address, as in docs/cli.md, status"],
        )
    return found
