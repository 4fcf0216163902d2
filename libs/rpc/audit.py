"""An audit record for each call that changes something: a log event, and a copy for other takers.

A method of ``ALWAYS`` is recorded whenever it is called, also where it is refused. The others are called all the time by parts
of Headwater: a handler of theirs says by ``note_change`` that something is otherwise now.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import Message

from libs.types.audit import AuditRecord

TakeRecord = Callable[[AuditRecord], None]
"""Returns at once; raises nothing."""

ALWAYS: Final = frozenset(
    {"ResetCheckpoint", "ForgetProgress", "ReleaseSourcePartition", "Pause", "Resume", "SendSignal"}
)
_LONGEST_VALUE: Final = 500
_MOST_NAMES: Final = 10
_CERTIFICATE_NAMES: Final = ("x509_subject_alternative_name", "x509_common_name")
"""gRPC documentation, "Authentication", the properties of a peer's certificate."""

log = structlog.get_logger()

_Change = tuple[Mapping[str, Any], Mapping[str, Any]]
_changes: ContextVar[list[_Change] | None] = ContextVar("audit_changes", default=None)


def note_change(*, before: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None) -> None:
    """Note the change that the present call made; without effect outside a call."""
    if (found := _changes.get()) is not None:
        found.append((before or {}, after or {}))


def to_log(record: AuditRecord) -> None:
    """The log event ``audit``."""
    log.info(
        "audit",
        method=f"{record.service}/{record.method}",
        peer=record.peer,
        names=list(record.names),
        request=dict(record.request),
        before=dict(record.before),
        after=dict(record.after),
        code=record.code,
    )


class Audited(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Writes the records of a server's calls."""

    def __init__(self, take: TakeRecord | None = None) -> None:
        """``take``: gets each record beside the log."""
        self._take = take

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The method's handler, and its record after it."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        service, _, method = handler_call_details.method.strip("/").partition("/")
        answer = handler.unary_unary

        async def answer_audited(request: Any, context: Any) -> Any:
            changes: list[_Change] = []
            token = _changes.set(changes)
            failed = True
            try:
                given = await answer(request, context)
                failed = False
                return given
            finally:
                _changes.reset(token)
                if changes or method in ALWAYS:
                    self._write(service, method, request, context, changes, failed=failed)

        return grpc.unary_unary_rpc_method_handler(
            answer_audited,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _write(
        self, service: str, method: str, request: Message, context: Any, changes: list[_Change], *, failed: bool
    ) -> None:
        code = context.code()
        before: dict[str, Any] = {}
        after: dict[str, Any] = {}
        for each_before, each_after in changes:
            before |= each_before
            after |= each_after
        record = AuditRecord(
            at_us=time.time_ns() // 1000,
            service=service,
            method=method,
            peer=context.peer(),
            names=_names(context),
            request=_fields(request),
            before=before,
            after=after,
            code=getattr(code, "name", str(code)) if code else ("UNKNOWN" if failed else "OK"),
        )
        to_log(record)
        if self._take is not None:
            self._take(record)


def _names(context: Any) -> tuple[str, ...]:
    found = context.auth_context() or {}
    names = (name.decode(errors="replace") for key in _CERTIFICATE_NAMES for name in found.get(key, ()))
    return tuple(dict.fromkeys(names))[:_MOST_NAMES]


def _fields(request: Message) -> dict[str, Any]:
    """The fields that were set, each value as a text of a bounded length."""
    return {field.name: _cut(value) for field, value in request.ListFields()}


def _cut(value: Any) -> Any:
    if isinstance(value, int | float):
        return value
    text = (
        value if isinstance(value, str) else value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    )
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}… ({len(text)} characters)"
