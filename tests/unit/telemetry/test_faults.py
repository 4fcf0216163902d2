"""The faults of a process: kept while they last, one truth for log, metric, health and status."""

import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from libs.config.connections import TelemetrySettings
from libs.telemetry import faults, metrics, outliving_faults
from libs.telemetry.endpoint import start_endpoint
from libs.telemetry.faults import (
    CATALOGUE,
    EVENTS_SET_ASIDE,
    ROWS_CHANGED_UNSEEN,
    SOURCE_UNREACHABLE,
    TABLE_PARKED,
    faults_document,
    keep_faults,
    lasting_faults,
    lift_fault,
    raise_again,
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
    """``docs/faults.md`` is the output of ``make docs-faults``."""
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
    """A standstill before a difference."""
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
    """Cut to the length that Kubernetes shows; without a file named nothing is written."""
    write_last_words("nobody asked")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "words"))
    write_last_words("é" * MAX_BYTES)

    assert read_last_words(tmp_path / "words") == "é" * (MAX_BYTES // 2)
    assert read_last_words(tmp_path / "words") == ""


@pytest.fixture
def next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets as a process does that ends: only the supervisor's file for the next one stays."""
    monkeypatch.setenv(outliving_faults.VARIABLE, str(tmp_path / "router.faults"))
    monkeypatch.setattr(faults, "_left", None)

    def forget() -> None:
        for place in list(faults._lasting):
            metrics.FAULTS.remove(*faults._labels(faults._lasting.pop(place)))
        monkeypatch.setattr(faults, "_left", None)

    return forget


def is_of_shop(scope: FaultScope) -> bool:
    return scope.source == "shop"


def test_a_fault_that_outlives_its_process_is_raised_again_by_its_next_owner(next_process: Callable[[], None]) -> None:
    """With its beginning; those of other sources wait for theirs, also over a further restart."""
    of_acme, of_crm = (FaultScope(source=name, tenant="acme", table="s.t") for name in ("shop", "crm"))
    first = raise_fault(EVENTS_SET_ASIDE, of_acme, happened="s.t: 1 event is a dead letter: too large")
    raise_fault(EVENTS_SET_ASIDE, of_crm, happened="s.t: 2 events are dead letters: too large")
    raise_fault(SOURCE_UNREACHABLE, SHOP, happened="refused")
    next_process()
    before = lasting_faults()
    [again] = raise_again(EVENTS_SET_ASIDE, is_of_shop)
    next_process()

    assert (before, again) == ([], first)
    both = raise_again(EVENTS_SET_ASIDE, lambda _: True)
    assert sorted(fault.scope.source for fault in both) == ["crm", "shop"]


def test_a_fault_that_was_lifted_does_not_come_back(next_process: Callable[[], None]) -> None:
    scope = FaultScope(source="shop", tenant="acme", table="s.t")
    raise_fault(EVENTS_SET_ASIDE, scope, happened="s.t: 1 event is a dead letter: too large")
    lift_fault(EVENTS_SET_ASIDE, scope)
    next_process()

    assert raise_again(EVENTS_SET_ASIDE, is_of_shop) == []


def test_a_fault_that_outlives_its_process_is_in_the_file_before_anybody_sees_it(
    next_process: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who has seen it may kill the process: the next one has it."""
    seen: list[tuple[list[str], list[str]]] = []

    def note(stored: Sequence[Fault]) -> None:
        seen.append(([fault.happened for fault in stored], [fault.happened for fault in lasting_faults()]))
        outliving_faults.store_faults(stored)

    monkeypatch.setattr(faults, "store_faults", note)
    scope = FaultScope(source="shop", tenant="acme", table="s.t")
    for happened in ("s.t: 1 event is a dead letter: x", "s.t: 2 events are dead letters: x"):
        raise_fault(EVENTS_SET_ASIDE, scope, happened=happened)

    assert seen == [
        (["s.t: 1 event is a dead letter: x"], []),
        (["s.t: 2 events are dead letters: x"], ["s.t: 1 event is a dead letter: x"]),
    ]


def test_a_file_of_another_release_is_passed_over(tmp_path: Path, next_process: Callable[[], None]) -> None:
    (tmp_path / "router.faults").write_text('[{"kind": "events_set_aside"}]')

    with capture_logs() as logged:
        found = raise_again(EVENTS_SET_ASIDE, is_of_shop)

    assert (found, [line["event"] for line in logged]) == ([], ["faults_not_read"])
