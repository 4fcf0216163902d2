"""A reader as a process: metrics, health and ReaderControl around its loop. Shared by every reader's ``__main__``."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeVar

import structlog

from libs.config.connections import GrpcServerSettings, KafkaSettings, TelemetrySettings
from libs.errors import InvalidEvent, PipelineHalted
from libs.rpc.server import start_server
from libs.source.control import ReaderControl
from libs.source.signal_topic import send_signal
from libs.source.status import ReaderState, ReaderStatus
from libs.telemetry.endpoint import start_endpoint
from libs.types.position import SourcePartition
from protos.headwater.reader_control.v1 import reader_control_pb2
from protos.headwater.reader_control.v1.reader_control_pb2_grpc import add_ReaderControlServicer_to_server

log = structlog.get_logger()

_SILENT_S: Final = 120.0
"""A reader that starts up for so long without an answer from the source or Kafka is not well."""
_CONTROL_NAME: Final = reader_control_pb2.DESCRIPTOR.services_by_name["ReaderControl"].full_name


class ReaderSettings(Protocol):
    """What every reader's settings hold."""

    @property
    def source(self) -> str: ...

    @property
    def kafka(self) -> KafkaSettings: ...

    @property
    def grpc(self) -> GrpcServerSettings: ...

    @property
    def telemetry(self) -> TelemetrySettings: ...


_Settings = TypeVar("_Settings", bound=ReaderSettings)

Follow = Callable[[_Settings, ReaderStatus], Awaitable[None]]
"""Reads and publishes until cancelled."""


async def serve_reader(
    settings: _Settings, stop: asyncio.Event, *, source_partition: str, follow: Follow[_Settings]
) -> None:
    """Run ``follow`` until ``stop`` is set; fits ``libs.rpc.lifecycle.run_service``.

    Raises:
        PipelineHalted: a human is needed; also for a row that cannot be read, since the log cannot go on behind it.
        TransientError, Fenced: as ``libs.source.follow.follow``.
    """
    structlog.contextvars.bind_contextvars(source=settings.source, source_partition=source_partition)
    status = ReaderStatus(SourcePartition(source=settings.source, name=source_partition))
    health = _health(status)
    endpoint = start_endpoint(settings.telemetry, alive=health, ready=health, degraded=lambda: status.warning)
    control = ReaderControl(status, partial(send_signal, settings.kafka, settings.source))
    server = await start_server(
        settings.grpc,
        {_CONTROL_NAME: lambda target: add_ReaderControlServicer_to_server(control, target)},  # type: ignore[no-untyped-call]
    )
    await server.set_serving(True)
    work = asyncio.ensure_future(follow(settings, status))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    except InvalidEvent as error:
        raise PipelineHalted(str(error)) from error
    finally:
        for task in (work, stopped):
            task.cancel()
        await asyncio.gather(work, stopped, return_exceptions=True)
        await server.stop(0.5)
        endpoint.close()


def _health(status: ReaderStatus) -> Callable[[], str | None]:
    """A reader that cannot get going says so; one that follows the log is well even when the source is silent."""
    since_s = time.monotonic()

    def check() -> str | None:
        nonlocal since_s
        if status.state is not ReaderState.STARTING:
            since_s = time.monotonic()
        elif time.monotonic() - since_s > _SILENT_S:
            return "the source or Kafka has not answered for two minutes; see the log"
        return None

    return check
