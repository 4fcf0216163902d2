"""Channels to Headwater's own services, and what their status codes mean to a caller."""

from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

import grpc

from libs.config.connections import GrpcClientSettings
from libs.errors import (
    AccessDenied,
    Fenced,
    HeadwaterError,
    InvalidSettings,
    PipelineHalted,
    SchemaUnknown,
    ServiceUnavailable,
)
from libs.rpc.server import MESSAGE_LIMIT_BYTES

_Answer = TypeVar("_Answer")

_OPTIONS = [
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
    """A channel to ``settings.address``; it connects by itself, and again after a loss. Needs a running event loop.

    Raises:
        InvalidSettings: a TLS file cannot be read.
    """
    if settings.tls_ca_file is None and settings.tls_certificate_file is None:
        return grpc.aio.insecure_channel(settings.address, options=_OPTIONS)
    mistakes: list[str] = []
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read("tls_ca_file", settings.tls_ca_file, mistakes),
        private_key=_read("tls_key_file", settings.tls_key_file, mistakes),
        certificate_chain=_read("tls_certificate_file", settings.tls_certificate_file, mistakes),
    )
    if mistakes:
        raise InvalidSettings(settings.address, mistakes)
    return grpc.aio.secure_channel(settings.address, credentials, options=_OPTIONS)


async def answer_of(call: Awaitable[_Answer], *, service: str) -> _Answer:
    """The answer of ``call``, with its status codes turned into our errors.

    Raises:
        ServiceUnavailable: no answer in time, or a fault of the service; try again.
        Fenced: another owner holds what was asked for.
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


def _read(name: str, path: str | None, mistakes: list[str]) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        mistakes.append(f"{name}: {path} cannot be read ({error.strerror})")
        return None
