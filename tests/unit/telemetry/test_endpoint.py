"""The telemetry endpoint: metrics, and health by callbacks."""

import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from libs.config.connections import METRIC_LABELS, TelemetrySettings
from libs.config.load import convert_document, load_settings
from libs.telemetry import metrics
from libs.telemetry.endpoint import MOST_CONNECTIONS, Endpoint, start_endpoint
from tests.grpc_attacks import is_closed
from tests.waiting import wait_until


class Health:
    """The callbacks' answers."""

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


def test_tags_are_on_every_sample() -> None:
    """On ours with and without labels, on a histogram's buckets and on Python's own; the process' registry stays as it is."""
    metrics.READER_ROWS.labels("tagged", "0").inc()
    metrics.READ_BARRIER_SECONDS.observe(0.2)
    tagged = start_endpoint(TelemetrySettings(tags={"team": "shop", "region": 'e"u'}))
    plain = start_endpoint(TelemetrySettings())
    try:
        with_tags, without = get(tagged, "/metrics")[1], get(plain, "/metrics")[1]
    finally:
        tagged.close()
        plain.close()

    samples = [sample for family in text_string_to_metric_families(with_tags) for sample in family.samples]
    assert [sample for sample in samples if (sample.labels["team"], sample.labels["region"]) != ("shop", 'e"u')] == []
    names = {sample.name for sample in samples}
    assert {"headwater_read_barrier_seconds_bucket", "headwater_tenants", "python_info"} <= names
    (rows,) = [
        item for item in samples if item.name == "headwater_reader_rows_total" and item.labels["source"] == "tagged"
    ]
    assert rows.labels["source_partition"] == "0"
    assert "team=" not in without


def test_every_wrong_tag_is_named_with_its_place() -> None:
    """Names that are none, Prometheus' own, ours, and values that say nothing, all at once."""
    mistakes: list[str] = []
    tags = {"my-team": "x", "1st": "x", "__name__": "x", "tenant": "x", "le": "x", "region": "", "team": "shop"}

    settings = convert_document(TelemetrySettings, {"tags": tags}, place="telemetry", mistakes=mistakes)

    assert settings is None
    assert [mistake.split(": ")[0] for mistake in mistakes] == [
        f"telemetry.tags.{name}" for name in ("my-team", "1st", "__name__", "tenant", "le", "region")
    ]
    assert "already" in mistakes[3]


def test_tags_come_from_the_environment_too() -> None:
    """As every setting does."""

    class Settings(msgspec.Struct, frozen=True, kw_only=True):
        telemetry: TelemetrySettings = TelemetrySettings()

    environ = {"HEADWATER_TELEMETRY__TAGS__TEAM": "shop"}

    assert load_settings(Settings, path=None, environ=environ, subject="s").telemetry.tags == {"team": "shop"}


def test_no_tag_can_take_a_metrics_label() -> None:
    """The settings know every label of the catalogue, and none that is gone."""
    of_the_client = {"le", "implementation", "version", "major", "minor", "patchlevel", "generation"}

    assert {label for doc in metrics.CATALOGUE for label in doc.labels} | of_the_client == METRIC_LABELS


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


def test_probes_that_hang_up_write_no_stack_trace(capfd: pytest.CaptureFixture[str]) -> None:
    """They reset the connection as their timeout ends, while the answer is read or written."""
    endpoint = start_endpoint(TelemetrySettings(http_host="127.0.0.1", http_port=0))
    for request in (b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n") * 10:
        with socket.create_connection(("127.0.0.1", endpoint.port)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            probe.sendall(request)
    wait_until(
        lambda: not any("process_request_thread" in each.name for each in threading.enumerate()),
        because="every answer ended",
        seen=threading.enumerate,
    )
    endpoint.close()

    assert "Traceback" not in capfd.readouterr().err


def test_slow_clients_are_closed_and_never_a_probe(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than there are places: the oldest go. Each goes when its time is over, though it still sends."""
    slow = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(3 * MOST_CONNECTIONS)]
    for each in slow:
        with suppress(OSError):  # the first ones are closed
            each.sendall(b"GET /healthz HTTP/1.1\r\nx: ")

    assert get(endpoint, "/healthz") == (200, "ok\n")
    wait_until(lambda: sum(map(is_closed, slow)) > 2 * MOST_CONNECTIONS, because="the oldest are closed")
    assert not is_closed(slow[-1])

    monkeypatch.setattr("libs.telemetry.endpoint._CONNECTION_S", 0.0)
    wait_until(lambda: all(map(is_closed, slow)), because="the time of all is over")
    for each in slow:
        each.close()
