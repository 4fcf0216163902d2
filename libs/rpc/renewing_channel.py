"""A channel with TLS whose next call comes with the certificates that its files hold by then.

gRPC reads a client's certificates once, when a channel is made. A call or stream that runs stays on the connection that it
began on: TLS judges certificates at its handshake only.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self

import grpc
import structlog

from libs.errors import InvalidSettings
from libs.rpc.tls import files_stamp

LOOK_S: Final = 10.0
"""How often the files are looked at, in seconds: Kubernetes itself takes a minute until a pod has a Secret's new content."""
_GRACE_S: Final = 86_400.0
"""After so long a stream on the old certificates is cut off, in seconds; its reader asks again, as after any loss."""

log = structlog.get_logger()


class RenewingChannel(grpc.aio.Channel):
    """``open_now`` makes the channel from ``files`` as they are; it is called again when one of them was replaced."""

    def __init__(
        self, open_now: Callable[[], grpc.aio.Channel], files: Sequence[str], *, look_s: float = LOOK_S
    ) -> None:
        self._open_now = open_now
        self._files = files
        self._stamp = self._reported = files_stamp(files)
        self._looked_s = time.monotonic()
        self._channel = open_now()
        self._retired: set[asyncio.Task[None]] = set()

    @property
    def current(self) -> grpc.aio.Channel:
        """The channel for the next call."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            stamp = files_stamp(self._files)
            if stamp != self._stamp:
                self._renew(stamp)
        return self._channel

    def _renew(self, stamp: tuple[tuple[int, int], ...]) -> None:
        try:
            renewed = self._open_now()
        except InvalidSettings as error:  # perhaps half of them were written: the next look tries again
            if self._reported != stamp:
                log.warning("certificates_not_renewed", reason=str(error))
            self._reported = stamp
            return
        retiring = asyncio.get_running_loop().create_task(self._channel.close(_GRACE_S))
        self._retired.add(retiring)
        retiring.add_done_callback(self._retired.discard)
        self._channel, self._stamp = renewed, stamp
        log.info("certificates_renewed", files=list(self._files))

    async def close(self, grace: float | None = None) -> None:
        """As gRPC's own; also of calls that run on certificates from before."""
        for retiring in self._retired:
            retiring.cancel()
        await asyncio.gather(*self._retired, return_exceptions=True)
        await self._channel.close(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self.current.channel_ready()

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        return _Method(self, lambda channel: channel.unary_unary(*arguments, **options))

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        return _Method(self, lambda channel: channel.unary_stream(*arguments, **options))

    def stream_unary(self, *arguments: Any, **options: Any) -> Any:
        return _Method(self, lambda channel: channel.stream_unary(*arguments, **options))

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        return _Method(self, lambda channel: channel.stream_stream(*arguments, **options))


class _Method:
    """A method of a stub, called on the channel that is current."""

    def __init__(self, renewing: RenewingChannel, make: Callable[[grpc.aio.Channel], Callable[..., Any]]) -> None:
        self._renewing = renewing
        self._make = make
        self._channel = renewing.current
        self._callable = make(self._channel)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        channel = self._renewing.current
        if channel is not self._channel:
            self._channel, self._callable = channel, self._make(channel)
        return self._callable(*arguments, **options)
