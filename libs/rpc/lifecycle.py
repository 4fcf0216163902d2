"""The life of a service's process: settings, logs, SIGTERM, and an exit code for its supervisor.

Every ``__main__`` calls ``run_service`` and does nothing else.
"""

import argparse
import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

import structlog

from libs.config.connections import TelemetrySettings
from libs.config.load import load_settings
from libs.errors import Fenced, HeadwaterError, InvalidSettings, PipelineHalted
from libs.rpc.heap import use_one_heap
from libs.telemetry.last_words import write_last_words
from libs.telemetry.log import configure_logging

EXIT_CLEAN: Final = 0
EXIT_RESTART: Final = 1
"""The world failed, or we did: start again with back-off."""
EXIT_INVALID_SETTINGS: Final = 2
EXIT_HALTED: Final = 3
"""A human is needed: starting again at once does not help."""
EXIT_FENCED: Final = 4

# A supervisor kills after 10 s (Kubernetes: terminationGracePeriodSeconds); a thread that still waits for a broker
# must not make us find out.
DRAIN_TIMEOUT_S: Final = 9.0

_CONTAINERS_BETWEEN_COLLECTIONS: Final = 50_000
"""Events are bytes in lists and tuples: containers by the thousand, and no cycles. Looking for cycles after every 700 of them,
Python's default, took 6% of a router's CPU."""

log = structlog.get_logger()


class ServiceSettings(Protocol):
    """The common settings of all services."""

    @property
    def telemetry(self) -> TelemetrySettings: ...


_Settings = TypeVar("_Settings", bound=ServiceSettings)

Serve = Callable[[_Settings, asyncio.Event], Awaitable[None]]
"""Works until the event is set (SIGTERM or SIGINT), then drains and returns."""


def run_service(name: str, settings_type: type[_Settings], serve: Serve[_Settings], argv: Sequence[str]) -> int:
    """Run ``serve`` with the settings of ``--settings FILE`` and the environment; returns the exit code.

    The process ends at most ``DRAIN_TIMEOUT_S`` after it was asked to stop, also where calls still wait.
    """
    parser = argparse.ArgumentParser(prog=f"python -m services.{name}")
    parser.add_argument("--settings", type=Path, help="YAML file; HEADWATER_<NAME> in the environment wins over it")
    arguments = parser.parse_args(argv)
    try:
        settings = load_settings(settings_type, path=arguments.settings, environ=os.environ, subject=name)  # type: ignore[type-var]
        configure_logging(name, settings.telemetry)
    except InvalidSettings as error:
        sys.stderr.write(f"{error}\n")
        write_last_words(str(error))
        return EXIT_INVALID_SETTINGS
    use_one_heap()
    gc.freeze()  # imported modules stay: no collection looks at them again
    gc.set_threshold(_CONTAINERS_BETWEEN_COLLECTIONS)
    try:
        asyncio.run(_serve_until_signal(settings, serve))
    except Exception as error:
        return _exit_code(error)
    log.info("service_stopped")
    return EXIT_CLEAN


async def _serve_until_signal(settings: _Settings, serve: Serve[_Settings]) -> None:
    stop = asyncio.Event()

    def ask_to_stop() -> None:
        _limit_draining()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask_to_stop)
    exit_code = EXIT_RESTART
    try:
        await serve(settings, stop)
    except Exception as error:
        exit_code = _code_of(first_cause(error))
        raise
    finally:
        _limit_draining(exit_code)


def _limit_draining(exit_code: int = EXIT_RESTART) -> None:
    timer = threading.Timer(DRAIN_TIMEOUT_S, os._exit, args=(exit_code,))
    timer.daemon = True
    timer.start()


def _exit_code(error: BaseException) -> int:
    cause = first_cause(error)
    code = _code_of(cause)
    write_last_words(f"{type(cause).__name__}: {cause}")
    # Our own errors say all there is to say; a traceback is for those that nobody foresaw.
    unforeseen = None if isinstance(cause, HeadwaterError) else error
    log.error("service_failed", error=type(cause).__name__, reason=str(cause), exit_code=code, exc_info=unforeseen)
    return code


def _code_of(cause: BaseException) -> int:
    match cause:
        case Fenced():
            return EXIT_FENCED
        case InvalidSettings():
            return EXIT_INVALID_SETTINGS
        case PipelineHalted():
            return EXIT_HALTED
        case _:
            return EXIT_RESTART


def first_cause(error: BaseException) -> BaseException:
    """The first single error inside (nested) exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
