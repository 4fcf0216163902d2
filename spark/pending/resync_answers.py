"""The results of a tenant's requests to build tables again, kept through restarts."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from libs.durable_file import replace_durably
from libs.sink_state.resync import ResyncAnswer, TenantResyncs, decode_resyncs, encode_resyncs, resyncs_path

_KEPT: Final = 200

log = structlog.get_logger()


class ResyncAnswers:
    """One tenant's file; for any thread."""

    def __init__(self, state_dir: Path, tenant: str, *, keep: Callable[[], None] = lambda: None) -> None:
        """``keep``: called after each change; its exceptions reach the caller."""
        self._keep = keep
        self._path = resyncs_path(state_dir, tenant)
        self._tenant = tenant
        self._lock = threading.Lock()
        self._known: TenantResyncs | None = None

    def of(self, request_id: str) -> ResyncAnswer | None:
        """None: not asked yet, or long ago."""
        with self._lock:
            return self._read().answers.get(request_id)

    def store(self, request_id: str, answer: ResyncAnswer) -> None:
        """Replace the file whole, durably, and have it kept: a repeated batch must not do a refused resync."""
        with self._lock:
            answers = {**self._read().answers, request_id: answer}
            newest = sorted(answers, key=lambda each: answers[each].at_us)[-_KEPT:]
            self._known = TenantResyncs(tenant=self._tenant, answers={each: answers[each] for each in newest})
            replace_durably(self._path, encode_resyncs(self._known))
        self._keep()

    def _read(self) -> TenantResyncs:
        if self._known is None:
            try:
                self._known = decode_resyncs(self._path.read_bytes())
            except FileNotFoundError:
                self._known = TenantResyncs(tenant=self._tenant)
            except msgspec.DecodeError:
                # Nothing is lost with it: an old request that comes again finds its copy in the topic, or is refused.
                log.warning("resync_answers_unreadable", file=str(self._path))
                self._known = TenantResyncs(tenant=self._tenant)
        return self._known
