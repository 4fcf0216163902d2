"""Shows how set-up's steps get on: live lines on a terminal, a plain line now and then elsewhere.

Standard library only: rich is one of the packages that set-up installs.
"""

import shutil
import sys
import threading
import time
from typing import TextIO

from libs.setup.step import Progress

REDRAW_S = 0.2
PLAIN_LINE_S = 10.0  # often enough to see life in a CI log, seldom enough to read it
BAR_WIDTH = 24
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Display:
    """Context in which the steps given to ``begin`` are shown until ``end``."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._is_live = stream.isatty()
        self._started_s = time.monotonic()
        self._steps: dict[str, tuple[Progress, float]] = {}
        self._drawn_lines = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> "Display":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def begin(self, name: str) -> Progress:
        """Show a step from now on."""
        progress = Progress()
        with self._lock:
            self._steps[name] = (progress, time.monotonic())
            if not self._is_live:
                self._write(f"{name}: begun")
        return progress

    def end(self, name: str, result: str) -> None:
        """Show how a step ended, for good."""
        with self._lock:
            _, began_s = self._steps.pop(name)
            self._erase()
            self._write(f"{name}: {result} ({time.monotonic() - began_s:.1f} s)")
            self._draw()

    def say(self, text: str) -> None:
        """A line for good."""
        with self._lock:
            self._erase()
            self._write(text)
            self._draw()

    def _tick(self) -> None:
        while not self._over.wait(REDRAW_S if self._is_live else PLAIN_LINE_S):
            with self._lock:
                if self._is_live:
                    self._erase()
                    self._draw()
                else:
                    for name, (progress, _) in self._steps.items():
                        self._write(f"{name}: {_described(progress)}")
        with self._lock:
            self._erase()

    def _write(self, text: str) -> None:
        self._stream.write(f"[{time.monotonic() - self._started_s:5.1f} s] {text}\n")
        self._stream.flush()

    def _erase(self) -> None:
        if self._drawn_lines:
            self._stream.write(f"\x1b[{self._drawn_lines}F\x1b[J")
            self._drawn_lines = 0

    def _draw(self) -> None:
        if not self._is_live:
            return
        spin = SPINNER[int(time.monotonic() / REDRAW_S) % len(SPINNER)]
        width = shutil.get_terminal_size().columns - 1
        for name, (progress, began_s) in self._steps.items():
            line = f"{spin} {name}: {_described(progress)} ({time.monotonic() - began_s:.0f} s)"
            self._stream.write(f"{line[:width]}\n")
            self._drawn_lines += 1
        self._stream.flush()


def _described(progress: Progress) -> str:
    measure = progress.done_bytes
    if measure is None:
        return progress.doing
    done = measure()
    if progress.total_bytes is None:
        return f"{progress.doing}, {done / 1e6:.0f} MB"
    share = min(1.0, done / max(1, progress.total_bytes))
    bar = "█" * int(share * BAR_WIDTH)
    return f"{progress.doing} {bar:░<{BAR_WIDTH}} {done / 1e6:.0f} of {progress.total_bytes / 1e6:.0f} MB"
