"""Structured logs: one JSON object a line on standard output, for our own events and for the libraries'.

``configure_logging`` is called once, first thing in each service's ``__main__``. Modules then take
``log = structlog.get_logger()`` and write events as noun and past verb with facts as keys; never a row's values.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog
from structlog.typing import Processor

from libs.config.connections import TelemetrySettings
from libs.errors import InvalidSettings

_CHATTY_LIBRARIES = ("asyncio", "grpc", "kafka", "aiokafka", "py4j", "urllib3")
"""Loggers whose INFO lines are of no use to an operator; they start at WARNING unless log_level is DEBUG."""


def configure_logging(service: str, settings: TelemetrySettings) -> None:
    """Send structlog's and the standard library's records to standard output, each carrying ``service``.

    A later call replaces an earlier one.

    Raises:
        InvalidSettings: ``log_level`` or ``log_format`` is none of the known ones.
    """
    level = _checked_level(settings)
    ours: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        _bind_service(service),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
    ]
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*ours, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_render(settings.log_format)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for library in _CHATTY_LIBRARIES:
        logging.getLogger(library).setLevel(level if level <= logging.DEBUG else max(level, logging.WARNING))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *ours,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        # Not cached: a module's logger, taken at import, must see a later configure_logging.
        cache_logger_on_first_use=False,
    )


def _checked_level(settings: TelemetrySettings) -> int:
    mistakes = []
    level = logging.getLevelNamesMapping().get(settings.log_level.upper())
    if level is None:
        mistakes.append(f"telemetry.log_level: {settings.log_level!r} is none of DEBUG, INFO, WARNING, ERROR")
    if settings.log_format not in ("json", "console"):
        mistakes.append(f"telemetry.log_format: {settings.log_format!r} is none of json, console")
    if level is None or mistakes:
        raise InvalidSettings("telemetry", mistakes)
    return level


def _bind_service(service: str) -> Processor:
    def add_service(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("service", service)
        return event

    return add_service


def _render(log_format: str) -> list[Processor]:
    if log_format == "console":
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty(), exception_formatter=plain)]
    # Without show_locals=False a traceback would carry local variables, and with them rows and secrets.
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(tracebacks), structlog.processors.JSONRenderer(default=str)]
