"""A reader as a process: metrics, health and ReaderControl around its loop. Shared by every reader's ``__main__``."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import structlog

from libs.config.connections import GrpcServerSettings, KafkaSettings, TelemetrySettings
from libs.errors import InvalidEvent, PipelineHalted
from libs.kafka.audit_topic import AuditTopic
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
_IDLE: Final = (ReaderState.STARTING, ReaderState.CONNECTING, ReaderState.DISCONNECTED)
_CONTROL_NAME: Final = reader_control_pb2.DESCRIPTOR.services_by_name["ReaderControl"].full_name


class ReaderSettings(Protocol):
    """The common settings of all readers."""

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
        PipelineHalted: a human is needed; also for a row that cannot be read, because the log cannot go on after it.
        TransientError, Fenced: as ``libs.source.follow.follow``.
    """
    structlog.contextvars.bind_contextvars(source=settings.source, source_partition=source_partition)
    status = ReaderStatus(SourcePartition(source=settings.source, name=source_partition))
    alive = _alive(status)
    endpoint = start_endpoint(
        settings.telemetry, alive=alive, ready=lambda: _not_reading(status) or alive(), degraded=lambda: status.warning
    )
    control = ReaderControl(status, partial(send_signal, settings.kafka, settings.source))
    server = await start_server(
        settings.grpc,
        {_CONTROL_NAME: lambda target: add_ReaderControlServicer_to_server(control, target)},  # type: ignore[no-untyped-call]
        AuditTopic(settings.kafka),
    )
    await server.set_serving(True)
    work = asyncio.ensure_future(follow(settings, status))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await _ended(work, status, stopped, settings.telemetry.halted_s)
    finally:
        for task in (work, stopped):
            task.cancel()
        await asyncio.gather(work, stopped, return_exceptions=True)
        await server.stop(0.5)
        endpoint.close()


async def _ended(
    work: "asyncio.Future[None]", status: ReaderStatus, stopped: "asyncio.Future[Any]", halted_s: float
) -> None:
    """The end of ``work``, with its error. A halted reader stays ``halted_s`` first, so that it can be asked why.

    Raises:
        PipelineHalted, TransientError, Fenced: as ``serve_reader``.
    """
    try:
        work.result()
    except (PipelineHalted, InvalidEvent) as error:
        reason = f"{type(error).__name__}: {error}"
        log.error("reader_halted", reason=reason, tries_again_in_s=halted_s)
        status.halted(reason)
        await asyncio.wait([stopped], timeout=halted_s)
        if isinstance(error, PipelineHalted):
            raise
        raise PipelineHalted(str(error)) from error


def _not_reading(status: ReaderStatus) -> str | None:
    """Why nothing is read just now, where that is known."""
    if status.state is ReaderState.HALTED:
        return f"halted: {status.halted_because}"
    return f"disconnected: {status.interruption.error}" if status.interruption is not None else None


def _alive(status: ReaderStatus) -> Callable[[], str | None]:
    """A reader that cannot get going says so; one that follows the log is well even when the source is silent."""
    since_s = time.monotonic()

    def check() -> str | None:
        nonlocal since_s
        if status.state not in _IDLE:
            since_s = time.monotonic()
        elif time.monotonic() - since_s > _SILENT_S:
            return "the source or Kafka has not answered for two minutes; see the log"
        return None

    return check
