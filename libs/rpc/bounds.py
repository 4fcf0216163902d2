"""How large a request may be, and a name in it: anybody can send anything to a port."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import grpc
from google.protobuf.message import Message

LONGEST_NAME: Final = 255
"""Characters. A database or table of MySQL has 64, a host 255."""
LONGEST_REASON: Final = 4_000
LARGEST_BYTES: Final = 64 << 10
LARGE_BYTES: Final = 16 << 20
MESSAGE_LIMIT_BYTES: Final = 64 << 20
"""Largest answer: a table of thousands of columns, far above gRPC's own 4 MiB."""
_LARGE: Final = frozenset({"RecordSchemaChange", "ReportProgress", "TellRefusals", "SendSignal"})
"""Methods whose requests carry definitions, or many reports at once."""
_NAMES: Final = frozenset({"source", "source_partition", "tenant", "database", "table", "owner", "router"})
_OURS: Final = "/headwater."


def mistake_of(method: str, request: Message) -> str | None:
    """The part of a request that is too large; None: none is."""
    most = LARGE_BYTES if method in _LARGE else LARGEST_BYTES
    if (size := request.ByteSize()) > most:
        return f"the request has {size} bytes; {method} takes {most} at most"
    for field, value in request.ListFields():
        longest = LONGEST_NAME if field.name in _NAMES else LONGEST_REASON if field.name == "reason" else None
        if longest is not None and isinstance(value, str) and len(value) > longest:
            return f"{field.name}: has {len(value)} characters; {longest} are allowed"
    return None


class BoundedRequests(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Refuses a request that is too large with INVALID_ARGUMENT, before its handler sees it."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The method's handler, after the bounds."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(_OURS):
            return handler
        method = handler_call_details.method.rpartition("/")[2]
        coders = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if (answer := handler.unary_unary) is not None:

            async def answer_bounded(request: Any, context: Any) -> Any:
                await _refuse(method, request, context)
                return await answer(request, context)

            return grpc.unary_unary_rpc_method_handler(answer_bounded, **coders)
        stream = handler.unary_stream
        assert stream is not None, "no method of ours takes a stream"

        async def stream_bounded(request: Any, context: Any) -> AsyncIterator[Any]:
            await _refuse(method, request, context)
            async with aclosing(stream(request, context)) as answers:  # it ends with the call, not when it is collected
                async for each in answers:
                    yield each

        return grpc.unary_stream_rpc_method_handler(stream_bounded, **coders)


async def _refuse(method: str, request: Message, context: Any) -> None:
    if (mistake := mistake_of(method, request)) is not None:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, mistake)
