"""A service's process and its exit code, by which its supervisor knows how it ended."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import structlog

from libs.config.connections import TelemetrySettings
from libs.errors import Fenced, PositionPurged, ServiceUnavailable
from libs.rpc import lifecycle
from libs.rpc.lifecycle import run_service


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The least that a service has."""

    telemetry: TelemetrySettings = TelemetrySettings()
    greeting: str = "hello"


@pytest.fixture(autouse=True)
def restored_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without the timer that ends the process, and with pytest's logging back afterwards."""
    monkeypatch.setattr(lifecycle, "_limit_draining", lambda exit_code=1: None)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServiceUnavailable("away"), 1),
        (RuntimeError("a bug"), 1),
        (PositionPurged("re-snapshot"), 3),
        (Fenced("another owner"), 4),
        (ExceptionGroup("tasks", [ExceptionGroup("inner", [Fenced("another owner")])]), 4),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_the_exit_code_follows_the_error(error: Exception, code: int) -> None:
    """Also out of a task group."""

    async def fail(_settings: Settings, _stop: asyncio.Event) -> None:
        raise error

    assert run_service("demo", Settings, fail, []) == code


def test_sigterm_sets_the_event_and_a_clean_end_is_code_0() -> None:
    """The service decides itself how it drains."""
    drained = []

    async def serve(_settings: Settings, stop: asyncio.Event) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        drained.append(True)

    assert run_service("demo", Settings, serve, []) == 0
    assert drained == [True]


def test_settings_come_from_the_file_and_a_mistake_in_them_is_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mistakes stand on stderr, where the person who started it looks."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("greeting: welcome\n")
    bad.write_text("greetin: welcome\n")
    seen = []

    async def serve(settings: Settings, _stop: asyncio.Event) -> None:
        seen.append(settings.greeting)

    assert run_service("demo", Settings, serve, ["--settings", str(good)]) == 0
    assert run_service("demo", Settings, serve, ["--settings", str(bad)]) == 2
    assert seen == ["welcome"]
    assert "did you mean 'greeting'?" in capsys.readouterr().err


def test_a_thread_that_never_returns_does_not_change_the_exit_code() -> None:
    """Python joins its threads at the end: the process is ended all the same, by the error's code."""
    program = """
import asyncio, sys, threading, time
from libs.errors import Fenced
from libs.rpc import lifecycle
from tests.unit.rpc.test_lifecycle import Settings

async def serve(settings, stop):
    threading.Thread(target=time.sleep, args=(600,)).start()
    raise Fenced("another owner")

lifecycle.DRAIN_TIMEOUT_S = 0.2
sys.exit(lifecycle.run_service("demo", Settings, serve, []))
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=120, capture_output=True)

    assert ended.returncode == 4, ended.stderr
