"""Logs: one JSON object a line, from any library, and nothing in it that must not be."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from libs.config.connections import TelemetrySettings
from libs.errors import InvalidSettings
from libs.telemetry.log import configure_logging


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Other tests get pytest's own handlers back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_events_and_library_records_are_json_with_the_service(capsys: pytest.CaptureFixture[str]) -> None:
    """Our events keep their keys; the standard library's records become events, too."""
    configure_logging("router", TelemetrySettings())

    structlog.get_logger().info("batch_routed", rows=3)
    logging.getLogger("some.library").warning("odd %s", "thing")

    ours, theirs = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (ours["event"], ours["rows"], ours["service"], ours["level"]) == ("batch_routed", 3, "router", "info")
    assert (theirs["event"], theirs["service"], theirs["logger"]) == ("odd thing", "router", "some.library")


def test_a_traceback_carries_no_local_variables(capsys: pytest.CaptureFixture[str]) -> None:
    """A row or a secret that a failing function holds does not reach the log."""
    configure_logging("router", TelemetrySettings())

    def fail(row: str) -> None:
        raise ValueError(f"a value of {len(row)} characters")

    try:
        fail("alice@example.com")
    except ValueError:
        structlog.get_logger().exception("event_failed")

    line = capsys.readouterr().out
    assert "a value of 17 characters" in line
    assert "alice" not in line


def test_events_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    """``log_level`` holds for our events as for the libraries'."""
    configure_logging("router", TelemetrySettings(log_level="warning", log_format="console"))

    structlog.get_logger().info("batch_routed")
    logging.getLogger("some.library").info("chatter")
    structlog.get_logger().warning("lane_closed")

    written = capsys.readouterr().out
    assert "lane_closed" in written
    assert "batch_routed" not in written
    assert "chatter" not in written


def test_every_wrong_log_setting_is_named() -> None:
    """Level and format at once."""
    with pytest.raises(InvalidSettings) as caught:
        configure_logging("router", TelemetrySettings(log_level="LOUD", log_format="xml"))

    assert len(caught.value.mistakes) == 2
