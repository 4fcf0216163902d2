"""Mining without end: window after window, with the pauses between them. Blocks; a generator that one thread at a time runs."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from libs.errors import HeadwaterError
from libs.source.oracle.settings import MiningSettings
from services.logminer_reader.log_steps import LogSteps, Step
from services.logminer_reader.mined_rows import CapturedTables, MinedDdl
from services.logminer_reader.windows import Window, Windows

_MOST_PAUSE_S: Final = 10.0
_FIRST_RETRY_S: Final = 1.0
_LAST_RETRY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Mined:
    """Steps to act on before the next ones are asked for."""

    steps: list[Step]
    ends_window: bool = False
    """All that was committed up to the window's end is among the steps up to here."""
    pause_s: float = 0.0
    """To be waited before the next ones are asked for."""


class _Retry:
    """Pauses of windows that break off without progress."""

    def __init__(self, settings: MiningSettings) -> None:
        self._least_s = settings.min_pause_s
        self._next_s = _FIRST_RETRY_S
        self._mined_scn = -1

    def pause_s(self, mined_scn: int) -> float:
        """After a window broke off at this SCN."""
        if mined_scn != self._mined_scn:
            self._mined_scn, self._next_s = mined_scn, _FIRST_RETRY_S
            return self._least_s
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, _LAST_RETRY_S)
        return pause_s


def mine(
    windows: Windows, steps: LogSteps, captured: Callable[[], CapturedTables], settings: MiningSettings
) -> Iterator[Mined]:
    """Everything after ``steps.mined_scn``, for good.

    ``captured``: the tables. Where a statement among the steps changes them, the rest of its window is mined again.

    Raises:
        MissingRedo, SourceUnavailable, AccessDenied, PipelineHalted, DiskFull: as ``Windows`` and ``LogSteps``.
    """
    retry = _Retry(settings)
    while True:
        began_s = time.monotonic()
        window = windows.next(steps.mined_scn)
        if window is None:
            yield Mined(
                [], pause_s=max(settings.min_pause_s, retry.pause_s(steps.mined_scn) if windows.awaits_log else 0.0)
            )
            continue
        try:
            yield from _window(windows, window, steps, captured)
        except HeadwaterError as error:
            steps.drop_held()
            windows.recover(error)
            yield Mined([], pause_s=retry.pause_s(steps.mined_scn))
            continue
        if window.is_all:
            took_s = time.monotonic() - began_s
            yield Mined([], pause_s=min(max(settings.min_pause_s, 2 * took_s), _MOST_PAUSE_S))


def _window(
    windows: Windows, window: Window, steps: LogSteps, captured: Callable[[], CapturedTables]
) -> Iterator[Mined]:
    mined = captured()
    steps.begin_window()
    for rows in windows.rows(window, mined):
        nth = 0
        while nth < len(rows):
            found, nth = steps.take(rows, nth)
            if found:
                yield Mined(found)
            if found and isinstance(found[-1], MinedDdl) and captured() != mined:
                steps.drop_held()
                return
    yield Mined(steps.end_window(window.end), ends_window=True)
