"""The ends of this job's resyncs, for ``headwater resync --mesh``, which sees no file of the job's.

the files of ``spark.pending.resync_answers`` ▶ due ▶ topic headwater.sink-handovers ▶ libs.mesh.recorded_sink_reports
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from libs.sink_state.resync import TenantResyncs, decode_resyncs, resyncs_path
from libs.types.sink_place import Places, resyncs_key
from spark.jobs.reported_records import Reporter, own_tenants

_MOST_ANSWERS: Final = 20
_LONGEST_TEXT: Final = 2_000
"""A record stays far below a broker's limit of 1 MB."""


def due(
    sent: Mapping[str, TenantResyncs | None], places: Places, answers: Mapping[str, TenantResyncs]
) -> dict[str, TenantResyncs | None]:
    """The records to write now, by ``resyncs_key``. ``answers``: by tenant, of those that have some."""
    ours = own_tenants(places, resyncs_key)
    found: dict[str, TenantResyncs | None] = {
        key: bounded
        for key, name in ours.items()
        if name in answers and (bounded := _bounded(answers[name])) != sent.get(key)
    }
    return found | {key: None for key, known in sent.items() if known is not None and key not in ours}


def _bounded(answers: TenantResyncs) -> TenantResyncs:
    newest = sorted(answers.answers.items(), key=lambda item: item[1].at_us)[-_MOST_ANSWERS:]
    return TenantResyncs(
        tenant=answers.tenant,
        answers={
            name: msgspec.structs.replace(each, refused_because=each.refused_because[:_LONGEST_TEXT])
            for name, each in newest
        },
    )


class ReportedResyncs:
    """Says them; the job's loop calls ``look``, and waits for nothing."""

    def __init__(self, send: Callable[[Mapping[str, TenantResyncs | None]], None], state_dir: Path) -> None:
        """``send``: durable when it returns; raises TransientError where it may not be."""
        self._reporter: Reporter[TenantResyncs, TenantResyncs | None] = Reporter(
            send, lambda record, _: record, "sink_resyncs_not_sent"
        )
        self._state_dir = state_dir
        self._read: dict[str, tuple[int, TenantResyncs]] = {}
        """By tenant: when its file was replaced, and its content."""

    def look(self, places: Places) -> None:
        """As ``due``."""
        if not self._reporter.is_busy(time.monotonic()):
            answers = {}
            for name in places.tenants:
                with contextlib.suppress(OSError, msgspec.DecodeError):
                    answers[name] = self._answers(name)
            self._reporter.start(due(self._reporter.sent, places, answers))

    def _answers(self, tenant: str) -> TenantResyncs:
        """Raises OSError: it has none; msgspec.DecodeError: the file is of another release."""
        path = resyncs_path(self._state_dir, tenant)
        at_ns = path.stat().st_mtime_ns
        known = self._read.get(tenant)
        if known is None or known[0] != at_ns:
            known = self._read[tenant] = at_ns, decode_resyncs(path.read_bytes())
        return known[1]
