"""Tenants' documents from tenant_operator, kept in a folder of the router's own.

``TenantFolder`` follows that folder as it would one that somebody else fills: refusals, and documents that stay in force, are
decided in one place. Where a set of documents is half written, nobody looks: one lock is for changing and for looking.
"""

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Final

import structlog

from libs.config.connections import GrpcClientSettings
from libs.errors import ServiceUnavailable, TransientError
from libs.rpc.tenants_client import TenantsChange, TenantsClient

_PAUSE_S: Final = 1.0
_COMPLETE: Final = ".complete"
"""A file beside the documents: they were all there once. Its dot keeps it from being taken for a document."""

log = structlog.get_logger()


class ReceivedTenants:
    """The folder, and the stream that fills it: ``begin``, then ``follow``."""

    def __init__(self, settings: GrpcClientSettings, folder: Path) -> None:
        self._settings = settings
        self.folder = folder
        self.lock = threading.Lock()
        """Held while the folder changes; hold it to read all of it as of one moment."""
        self._streams = 0
        """How many were begun. Changes of older ones are passed over: one that they left out would never come again."""
        self.is_current = False
        """The folder has an operator's present documents: the stream stands, and is complete."""
        self._is_break_logged = False
        self._reading: asyncio.Task[None] | None = None
        self._restarted: asyncio.Future[None] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    async def begin(self, *, timeout_s: float) -> None:
        """Fill the folder with the operator's documents; if it does not answer in time, with its former ones.

        Without it, rows would pass that tenants should have had.

        Raises:
            ServiceUnavailable: the operator does not answer, and this router never had a document.
        """
        try:
            async with asyncio.timeout(timeout_s), TenantsClient(self._settings) as client:
                async for change in client.watch():
                    await asyncio.to_thread(self._take_in, change, self._streams)
                    return
        except (TimeoutError, TransientError) as error:
            if not (self.folder / _COMPLETE).exists():
                raise ServiceUnavailable(
                    f"tenant_operator ({self._settings.address}) did not name the tenants in {timeout_s:.0f} s, and nothing "
                    "is known of them from before"
                ) from error
            log.warning("tenants_from_before", reason="tenant_operator does not answer", folder=str(self.folder))

    async def follow(self) -> None:
        """Take in every change until cancelled; while the operator is away, its last documents stay in force."""
        async with TenantsClient(self._settings) as client:
            while True:
                self._reading = asyncio.create_task(self._read(client))
                try:
                    await self._reading
                except asyncio.CancelledError:
                    if not self._reading.cancelled() or _is_cancelled():
                        raise
                    continue  # ask_again ended it
                except TransientError as error:
                    if not self._is_break_logged:
                        log.warning("tenants_stream_broken", reason=str(error))
                        self._is_break_logged = True
                await asyncio.sleep(_PAUSE_S)

    async def ask_again(self, *, timeout_s: float) -> None:
        """Request all documents in force from an operator that answers now, and take them in.

        A stream that is broken, or whose operator is cut off from Kubernetes, does not show it for a while.

        Raises:
            TimeoutError: no operator answered in time.
        """
        if self._restarted is None:
            self._restarted = asyncio.get_running_loop().create_future()
            if self._reading is not None:
                self._reading.cancel()
        async with asyncio.timeout(timeout_s):
            await asyncio.shield(self._restarted)

    async def _read(self, client: TenantsClient) -> None:
        self._streams += 1
        number, answers = self._streams, self._restarted
        try:
            async with contextlib.aclosing(client.watch()) as changes:
                async for change in changes:
                    await asyncio.to_thread(self._take_in, change, number)
                    self._is_break_logged, self.is_current = False, True
                    if answers is not None and not answers.done():
                        self._restarted = None
                        answers.set_result(None)
        finally:
            self.is_current = False

    def _take_in(self, change: TenantsChange, stream: int) -> None:
        with self.lock:
            if stream != self._streams:
                return
            for tenant, document in change.in_force.items():
                unfinished = self.folder / f".{tenant}.unfinished"
                unfinished.write_text(document, encoding="utf-8")
                unfinished.replace(self.folder / f"{tenant}.yaml")
            for path in self.folder.glob("*.yaml"):
                if path.stem in change.left or (change.is_first and path.stem not in change.in_force):
                    path.unlink()
            (self.folder / _COMPLETE).touch()


def _is_cancelled() -> bool:
    """Whether the task that runs now is to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
