"""Permitted callers of those that the authority knows, by the names in certificates (``GrpcServerSettings.client_names``)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

import grpc
import structlog

log = structlog.get_logger()

_NAMES: Final = "x509_subject_alternative_name"
"""gRPC documentation, "Authentication", the properties of a peer's certificate: DNS names, addresses and URIs."""
_OURS: Final = "/headwater."
"""Health checking and reflection show no data: every caller with a certificate may use them."""


class KnownCallers(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Refuses calls of peers without one of some names, with PERMISSION_DENIED."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The method's handler, after the check of its caller."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(_OURS):
            return handler
        coders = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if (answer := handler.unary_unary) is not None:

            async def answer_known(request: Any, context: Any) -> Any:
                await self._require_known(context)
                return await answer(request, context)

            return grpc.unary_unary_rpc_method_handler(answer_known, **coders)
        stream = handler.unary_stream
        assert stream is not None, "no method of ours takes a stream"

        async def stream_to_known(request: Any, context: Any) -> AsyncIterator[Any]:
            await self._require_known(context)
            async with aclosing(stream(request, context)) as answers:  # it ends with the call, not when it is collected
                async for each in answers:
                    yield each

        return grpc.unary_stream_rpc_method_handler(stream_to_known, **coders)

    async def _require_known(self, context: Any) -> None:
        names = [name.decode(errors="replace") for name in context.auth_context().get(_NAMES, ())]
        if self._names.isdisjoint(names):
            log.warning("caller_refused", peer=context.peer(), names=names)
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"the caller's certificate is of {', '.join(names) or 'no name'}, and none of these is let in: give it one "
                "that is, or add the name to the server's grpc.client_names",
            )
