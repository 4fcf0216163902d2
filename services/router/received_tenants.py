"""Tenants' documents as tenant_operator tells of them, kept in a folder of the router's own.

``TenantFolder`` follows that folder as it would one that somebody else fills: what is refused, and what stays in force, is
decided in one place. Where a set of documents is half written, nobody looks: one lock is for changing and for looking.
"""

import asyncio
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
        folder.mkdir(parents=True, exist_ok=True)

    async def begin(self, *, timeout_s: float) -> None:
        """Fill the folder: with what the operator tells or, where it does not answer in time, with what it told before.

        Without it, rows would pass that tenants should have had.

        Raises:
            ServiceUnavailable: the operator does not answer, and this router was never told of any tenant.
        """
        try:
            async with asyncio.timeout(timeout_s), TenantsClient(self._settings) as client:
                async for change in client.watch():
                    await asyncio.to_thread(self._take_in, change)
                    return
        except (TimeoutError, TransientError) as error:
            if not (self.folder / _COMPLETE).exists():
                raise ServiceUnavailable(
                    f"tenant_operator ({self._settings.address}) did not tell of the tenants in {timeout_s:.0f} s, and nothing "
                    "is known of them from before"
                ) from error
            log.warning("tenants_from_before", reason="tenant_operator does not answer", folder=str(self.folder))

    async def follow(self) -> None:
        """Take in every change until cancelled; while the operator is away, what it told last stays in force."""
        is_told = False
        async with TenantsClient(self._settings) as client:
            while True:
                try:
                    async for change in client.watch():
                        await asyncio.to_thread(self._take_in, change)
                        is_told = False
                except TransientError as error:
                    if not is_told:
                        log.warning("tenants_stream_broken", reason=str(error))
                        is_told = True
                await asyncio.sleep(_PAUSE_S)

    def _take_in(self, change: TenantsChange) -> None:
        with self.lock:
            for tenant, document in change.in_force.items():
                unfinished = self.folder / f".{tenant}.unfinished"
                unfinished.write_text(document, encoding="utf-8")
                unfinished.replace(self.folder / f"{tenant}.yaml")
            for path in self.folder.glob("*.yaml"):
                if path.stem in change.left or (change.is_first and path.stem not in change.in_force):
                    path.unlink()
            (self.folder / _COMPLETE).touch()
