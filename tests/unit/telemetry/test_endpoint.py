"""The telemetry endpoint: metrics, and health by callbacks."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from libs.config.connections import TelemetrySettings
from libs.telemetry.endpoint import Endpoint, start_endpoint


class Health:
    """What the callbacks answer."""

    alive: str | None = None
    ready: str | None = None
    degraded: str | None = None


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def endpoint(health: Health) -> Iterator[Endpoint]:
    started = start_endpoint(
        TelemetrySettings(),
        alive=lambda: health.alive,
        ready=lambda: health.ready,
        degraded=lambda: health.degraded,
    )
    yield started
    started.close()


def get(endpoint: Endpoint, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_are_served_for_prometheus(endpoint: Endpoint) -> None:
    """Our metrics are on the page, with their help."""
    status, page = get(endpoint, "/metrics")

    assert status == 200
    assert "# HELP headwater_redis_available 1 while the Redis view is reachable" in page


def test_each_health_page_follows_its_own_callback(endpoint: Endpoint, health: Health) -> None:
    """None is 200; a reason is 503 with the reason; degraded is 200 and says so."""
    assert get(endpoint, "/healthz") == (200, "ok\n")
    assert get(endpoint, "/readyz") == (200, "ok\n")

    health.ready = "the log is being read"
    health.degraded = "Redis is away"

    assert get(endpoint, "/healthz") == (200, "ok\n")
    assert get(endpoint, "/readyz") == (503, "the log is being read\n")
    health.ready = None
    assert get(endpoint, "/readyz") == (200, "degraded: Redis is away\n")
    health.alive = "no progress for 60 s"
    assert get(endpoint, "/healthz") == (503, "no progress for 60 s\n")


def test_a_health_check_that_raises_is_a_bad_answer(endpoint: Endpoint, health: Health) -> None:
    """The page names the error's kind and not its text."""
    del Health.ready

    status, text = get(endpoint, "/readyz")

    Health.ready = None
    assert (status, text) == (503, "the health check failed: AttributeError\n")


def test_an_unknown_page_is_not_found(endpoint: Endpoint) -> None:
    """The answer lists the pages that there are."""
    status, text = get(endpoint, "/")

    assert status == 404
    assert "/metrics" in text
