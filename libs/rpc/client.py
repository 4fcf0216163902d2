"""Channels to Headwater's own services, and their status codes as our errors."""

from collections.abc import Awaitable, Sequence
from types import TracebackType
from typing import Self, TypeVar

import grpc

from libs.config.connections import GrpcClientSettings
from libs.errors import (
    AccessDenied,
    Fenced,
    HeadwaterError,
    PipelineHalted,
    SchemaUnknown,
    ServiceUnavailable,
)
from libs.rpc.bounds import MESSAGE_LIMIT_BYTES
from libs.rpc.renewing_channel import RenewingChannel
from libs.rpc.tls import TlsFiles, client_credentials

_Answer = TypeVar("_Answer")

_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
    # A peer that vanished without a FIN (a node's power cut) is found out in 20 s + 10 s, not in the kernel's 15 min.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # gRPC's own reconnect back-off grows to 2 min; a service of ours is back within seconds of a restart.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


def open_channel(settings: GrpcClientSettings) -> grpc.aio.Channel:
    """A channel to one of Headwater's own services. As ``channel_to``."""
    return channel_to(settings.address, settings, options=_OPTIONS, subject=settings.address)


def channel_to(
    address: str, files: TlsFiles, *, options: Sequence[tuple[str, int | str]], subject: str
) -> grpc.aio.Channel:
    """A channel to ``address``; it connects by itself, and again after a loss. Needs a running event loop.

    A later call comes with the certificates that the files hold by then.

    Raises:
        InvalidSettings: of ``subject``; a TLS file cannot be read, or is no such file.
    """
    paths = [path for path in (files.tls_ca_file, files.tls_certificate_file, files.tls_key_file) if path is not None]

    def open_now() -> grpc.aio.Channel:
        credentials = client_credentials(files, subject=subject)
        if credentials is None:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, credentials, options=options)

    return RenewingChannel(open_now, paths) if paths else open_now()


class OwnsChannel:
    """A client whose channel ends with it: ``close`` it, or make it by ``async with``."""

    _channel: grpc.aio.Channel

    async def close(self) -> None:
        """Close the channel; running calls and streams are cut off."""
        await self._channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


async def answer_of(call: Awaitable[_Answer], *, service: str) -> _Answer:
    """The answer of ``call``, with its status codes turned into our errors.

    Raises:
        ServiceUnavailable: no answer in time, or a fault of the service; try again.
        Fenced: another owner holds the thing asked for.
        SchemaUnknown, AccessDenied, PipelineHalted: no retry helps.
    """
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise error_of(error, service=service) from error


def error_of(error: grpc.aio.AioRpcError, *, service: str) -> HeadwaterError:
    """Our error for a gRPC status (grpc.io, "Status codes and their use in gRPC")."""
    text = f"{service}: {error.details() or error.code().name}"
    match error.code():
        case grpc.StatusCode.NOT_FOUND:
            return SchemaUnknown(text)
        case grpc.StatusCode.FAILED_PRECONDITION:
            return Fenced(text)
        case grpc.StatusCode.PERMISSION_DENIED | grpc.StatusCode.UNAUTHENTICATED:
            return AccessDenied(text)
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.UNIMPLEMENTED | grpc.StatusCode.OUT_OF_RANGE:
            return PipelineHalted(f"{text}; the two sides may be of different releases")
        case _:
            return ServiceUnavailable(text)
