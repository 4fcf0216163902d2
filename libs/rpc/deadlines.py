"""How long a call may take, and how many may be open: a caller that is slow, or sends nothing, holds nobody else up.

gRPC bounds the calls of a server, and sets none of them an end: without this, two thousand calls whose requests never come
have every other call refused.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, NoReturn

import grpc

from libs.telemetry.metrics import RPC_CUT

REQUEST_S: Final = 20.0
"""From a call's begin to its whole request."""
ANSWER_S: Final = 120.0
"""From the request to the answer of a unary call; our own clients wait for a tenth of it."""
TAKEN_S: Final = 300.0
"""For a message of a stream to be taken by the caller."""
MOST_WITHOUT_REQUEST: Final = 500
"""Beyond them the oldest call is cut off: a request of ours is there within milliseconds."""
MOST_STREAMS: Final = 1_500
"""Beyond them a stream is refused with RESOURCE_EXHAUSTED, so that unary calls always find a place."""


class Deadlines(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Ends calls that do not come to an end by themselves, with DEADLINE_EXCEEDED.

    The first of a server's interceptors. It answers every method as one that takes a stream: gRPC calls the handler of such a
    method before the request is there, and the bytes on the wire are the same.
    """

    def __init__(
        self,
        *,
        request_s: float = REQUEST_S,
        answer_s: float = ANSWER_S,
        taken_s: float = TAKEN_S,
        most_without_request: int = MOST_WITHOUT_REQUEST,
        most_streams: int = MOST_STREAMS,
    ) -> None:
        self._request_s = request_s
        self._answer_s = answer_s
        self._taken_s = taken_s
        self._most_without_request = most_without_request
        self._most_streams = most_streams
        self._without_request: dict[asyncio.Timeout, None] = {}
        self._streams = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The method's handler, with an end to each of its waits."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:  # reflection, in development alone
            return handler
        coders = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if (answer := handler.unary_unary) is not None:

            async def answer_in_time(requests: AsyncIterator[Any], context: Any) -> Any:
                request = await self._request(requests, context)
                limit = asyncio.timeout(self._answer_s)
                try:
                    async with limit:
                        return await answer(request, context)
                except TimeoutError:
                    if not limit.expired():  # the handler's own
                        raise
                return await _end(context, "no_answer", f"no answer within {self._answer_s:g} s")

            return grpc.stream_unary_rpc_method_handler(answer_in_time, **coders)
        stream = handler.unary_stream

        async def stream_in_time(requests: AsyncIterator[Any], context: Any) -> None:
            request = await self._request(requests, context)
            if self._streams >= self._most_streams:
                text = f"{self._most_streams} streams are open"
                await _end(context, "too_many_streams", text, grpc.StatusCode.RESOURCE_EXHAUSTED)
            self._streams += 1
            try:
                if await self._is_taken(stream(request, context), context):
                    return
                # Its status stands after answers that the caller does not take. It counts as open until the connection ends.
                await _end(context, "not_taken", f"not taken within {self._taken_s:g} s")
            finally:
                self._streams -= 1

        return grpc.stream_stream_rpc_method_handler(stream_in_time, **coders)

    async def _request(self, requests: AsyncIterator[Any], context: Any) -> Any:
        limit = asyncio.timeout(self._request_s)
        try:
            async with limit:
                if len(self._without_request) >= self._most_without_request:
                    oldest = next(iter(self._without_request))
                    del self._without_request[oldest]
                    oldest.reschedule(asyncio.get_running_loop().time())
                self._without_request[limit] = None
                return await anext(requests)
        except StopAsyncIteration:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
        except TimeoutError:
            await _end(context, "no_request", "the request did not come in time")
        finally:
            self._without_request.pop(limit, None)

    async def _is_taken(self, answers: AsyncIterator[Any], context: Any) -> bool:
        async with aclosing(answers) as ending:  # type: ignore[type-var]  # an async generator: it ends with the call
            async for each in ending:
                try:
                    async with asyncio.timeout(self._taken_s):
                        await context.write(each)
                except TimeoutError:
                    return False
        return True


async def _end(
    context: Any, reason: str, text: str, code: grpc.StatusCode = grpc.StatusCode.DEADLINE_EXCEEDED
) -> NoReturn:
    RPC_CUT.labels(reason).inc()
    await context.abort(code, text)
    raise AssertionError("abort raises")
