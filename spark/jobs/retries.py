"""When a parked table is tried again: each time reads all of its events since it was parked."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

FIRST_WAIT_S: Final = 60.0
LONGEST_WAIT_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class _Try:
    version: int
    at_s: float
    wait_s: float


@dataclass(slots=True)
class Retries:
    """Of one tenant's tables since its query started, by topic."""

    clock: Callable[[], float] = time.monotonic
    _tries: dict[str, _Try] = field(default_factory=dict)

    def is_due(self, topic: str, version: int) -> bool:
        """Whether to try now, which is noted: at once after a start, and for a schema ``version`` newer than the one tried
        last, which may be the remedy; else after 1, 2, 4 … 60 minutes, for remedies outside of the source."""
        last, now_s = self._tries.get(topic), self.clock()
        is_new = last is None or version > last.version
        if last is not None and not is_new and now_s < last.at_s + last.wait_s:
            return False
        wait_s = FIRST_WAIT_S if last is None or is_new else min(2 * last.wait_s, LONGEST_WAIT_S)
        self._tries[topic] = _Try(version if last is None else max(version, last.version), now_s, wait_s)
        return True
