"""The faults of a process: kept while they last, one truth for log, metric, health and status."""

import urllib.request
from pathlib import Path

import msgspec
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from libs.config.connections import TelemetrySettings
from libs.telemetry.endpoint import start_endpoint
from libs.telemetry.faults import (
    CATALOGUE,
    ROWS_CHANGED_UNSEEN,
    SOURCE_UNREACHABLE,
    TABLE_PARKED,
    faults_document,
    keep_faults,
    lasting_faults,
    lift_fault,
    raise_fault,
)
from libs.telemetry.last_words import MAX_BYTES, VARIABLE, read_last_words, write_last_words
from libs.types.fault import Fault, FaultScope

DOCS = Path(__file__).parents[3] / "docs" / "faults.md"
SHOP = FaultScope(source="shop")
ORDERS = FaultScope(source="shop", table="shop.orders")


def sample(id: str, severity: str, table: str = "") -> float | None:
    labels = {"id": id, "severity": severity, "source": "shop", "tenant": "", "table": table}
    return REGISTRY.get_sample_value("headwater_faults", labels)


def test_the_page_is_fresh() -> None:
    """``docs/faults.md`` is what ``make docs-faults`` writes."""
    assert faults_document() == DOCS.read_text(encoding="utf-8"), "run `make docs-faults`"


def test_every_kind_says_cause_remedy_and_example() -> None:
    """A person reads these at three in the morning."""
    assert len({kind.id for kind in CATALOGUE}) == len(CATALOGUE)
    assert [kind.id for kind in CATALOGUE if not (kind.cause and kind.remedy and kind.example and kind.docs)] == []


def test_a_fault_lasts_from_its_raising_to_its_lifting() -> None:
    """The log has each change once; the metric has a sample as long as the fault lasts."""
    with capture_logs() as logged:
        first = raise_fault(SOURCE_UNREACHABLE, SHOP, happened="127.0.0.1:1: connection refused")
        again = raise_fault(SOURCE_UNREACHABLE, SHOP, happened="127.0.0.1:1: connection refused")
        during = sample("source_unreachable", "halted")
        was_lifted = [lift_fault(SOURCE_UNREACHABLE, SHOP), lift_fault(SOURCE_UNREACHABLE, SHOP)]

    assert first.since_us == again.since_us
    assert [line["event"] for line in logged] == ["fault_raised", "fault_lifted"]
    assert logged[0]["reason"] == "127.0.0.1:1: connection refused"
    assert was_lifted == [True, False]
    assert (during, sample("source_unreachable", "halted"), lasting_faults()) == (1, None, [])


def test_the_worst_fault_comes_first() -> None:
    """What stands still before what differs."""
    raise_fault(ROWS_CHANGED_UNSEEN, ORDERS, happened="DROP PARTITION p1")
    raise_fault(SOURCE_UNREACHABLE, SHOP, happened="refused")

    assert [fault.id for fault in lasting_faults()] == ["source_unreachable", "rows_changed_unseen"]
    assert lasting_faults()[1].command == "headwater resync TENANT shop.orders"


def test_an_owner_that_knows_all_its_faults_replaces_them() -> None:
    """Those that are gone are lifted; other owners' stay."""
    acme, globex = (FaultScope(tenant=name, table="shop.t") for name in ("acme", "globex"))
    raise_fault(TABLE_PARKED, globex, happened="full")
    keep_faults({TABLE_PARKED: {acme: "no such column"}}, lambda scope: scope.tenant == "acme")
    with_both = {fault.scope.tenant for fault in lasting_faults()}
    keep_faults({TABLE_PARKED: {}}, lambda scope: scope.tenant == "acme")

    assert with_both == {"acme", "globex"}
    assert [fault.scope.tenant for fault in lasting_faults()] == ["globex"]


def test_the_endpoint_serves_them() -> None:
    """``/faults`` has all, ``/readyz`` the worst."""
    raised = raise_fault(SOURCE_UNREACHABLE, SHOP, happened="refused")
    endpoint = start_endpoint(TelemetrySettings())
    try:
        pages = [
            urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/{page}", timeout=10).read()
            for page in ("faults", "readyz")
        ]
    finally:
        endpoint.close()

    assert msgspec.json.decode(pages[0], type=list[Fault]) == [raised]
    assert pages[1] == b"degraded: source_unreachable: refused\n"


def test_last_words_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut to what Kubernetes shows; without a file named nothing is written."""
    write_last_words("nobody asked")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "words"))
    write_last_words("é" * MAX_BYTES)

    assert read_last_words(tmp_path / "words") == "é" * (MAX_BYTES // 2)
    assert read_last_words(tmp_path / "words") == ""
