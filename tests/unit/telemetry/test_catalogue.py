"""Each fault of the catalogue: raised by the code that owns it in some test, and the same in status, metric and log."""

import ast
import io
import re
from pathlib import Path
from typing import Final

import prometheus_client
import pytest
from structlog.testing import capture_logs

from libs.cli.console import PlainConsole
from libs.cli.status import print_faults
from libs.telemetry.faults import CATALOGUE, FaultKind, lift_fault, raise_fault
from libs.types.fault import FaultScope

REPOSITORY: Final = Path(__file__).parents[3]
MISSTEPS: Final = "tests/unit/cli/test_missteps.py::test_a_misstep_is_the_first_line_and_its_remedy_mends_it"
ROUTER: Final = "tests/integration/test_router.py::test_faults_of_a_router_are_the_same_in_page_call_metric_and_log"
RAISED_IN: Final = {
    "source_unreachable": MISSTEPS,
    "reader_halted": MISSTEPS,
    "rows_changed_unseen": (
        "tests/integration/test_log_following.py"
        "::test_what_rows_become_without_the_log_is_told_until_they_are_read_again"
    ),
    "changes_lost": (
        "tests/integration/test_missteps.py::test_a_changes_topic_that_was_made_again_is_told_until_the_source_is_reset"
    ),
    "cascades_not_logged": (
        "tests/integration/test_log_following.py"
        "::test_tables_that_foreign_keys_change_without_the_log_are_told_while_they_are_there"
    ),
    "table_quarantined": (
        "tests/integration/test_log_following.py::test_a_definition_that_the_history_cannot_hold_stops_its_table_alone"
    ),
    "rows_set_aside": (
        "tests/integration/test_mysql_values.py::test_a_byte_that_its_charset_does_not_map_stops_one_row_and_is_told"
    ),
    "copy_refused": "tests/integration/test_incremental_beside_log.py::test_a_copy_that_is_short_is_refused_by_name",
    "transaction_open_long": (
        "tests/unit/logminer_reader/test_log_reports.py::test_a_transaction_that_stays_open_is_a_fault_until_it_ends"
    ),
    "sink_halted": MISSTEPS,
    "batch_fails": "tests/unit/spark/test_containment.py::test_a_batch_that_fails_again_is_a_fault_until_it_is_done",
    "table_parked": MISSTEPS,
    "keys_parked": MISSTEPS,
    "stray_records": (
        "tests/integration/test_lost_events.py::test_a_record_of_somebody_else_in_a_row_topic_is_passed_over_and_told"
    ),
    "code_cache_fills": "tests/unit/spark/test_code_cache.py::test_a_cache_that_is_nearly_full_is_told_until_it_is_not",
    "batch_overdue": "tests/integration/test_turns.py::test_tenants_that_hang_or_fail_hold_no_turn_of_the_others",
    "tenant_refused": MISSTEPS,
    "table_refused": (
        "tests/integration/test_router.py::test_event_that_cannot_be_projected_is_set_aside_and_others_go_on"
    ),
    "column_refused": ROUTER,
    "events_set_aside": "tests/integration/test_router.py::test_event_larger_than_a_record_is_set_aside",
    "topic_refused": ROUTER,
    "tenant_waits": ROUTER,
    "changes_record_set_aside": ROUTER,
    "changes_topic_replaced": (
        "tests/integration/test_router.py::test_an_offset_of_a_changes_topic_that_was_made_again_parks_its_source"
    ),
    "document_changed": MISSTEPS,
    "kafka_unreachable": MISSTEPS,
    "process_down": MISSTEPS,
    "service_degraded": MISSTEPS,
}
"""By fault the test in which the code that owns it raises it. Faults of readers and routers are raised on real servers; the
sinks' come from the progress file that a job leaves, which tests/integration/test_parked_tables.py has real jobs write."""


def test_every_fault_of_the_catalogue_is_raised_in_a_test() -> None:
    """The test is there, and names the fault."""
    assert RAISED_IN.keys() == {kind.id for kind in CATALOGUE}
    wrong = []
    for fault, place in RAISED_IN.items():
        path, _, name = place.partition("::")
        text = (REPOSITORY / path).read_text(encoding="utf-8")
        names = {
            node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        if name not in names or not re.search(rf"\b({fault}|{fault.upper()})\b", text):
            wrong.append((fault, place))
    assert wrong == []


@pytest.mark.parametrize("kind", CATALOGUE, ids=lambda kind: kind.id)
def test_a_fault_is_the_same_in_status_metric_and_log(kind: FaultKind) -> None:
    """With place, cause, remedy and command; and gone from the metric when it ends."""
    scope = FaultScope(source="shop", tenant="acme", table="shop.orders")
    with capture_logs() as logged:
        fault = raise_fault(kind, scope, happened="at binlog.000042:1199")
    page = io.StringIO()
    print_faults([fault], PlainConsole(file=page, width=200))
    place = 'source="shop",table="shop.orders",tenant="acme"'
    sample = f'headwater_faults{{id="{kind.id}",severity="{kind.severity.value}",{place}}}'
    lasting = prometheus_client.generate_latest().decode()
    lift_fault(kind, scope)
    over = prometheus_client.generate_latest().decode()

    first, remedy = page.getvalue().splitlines()
    assert first.startswith(f"{kind.severity.value} source shop, tenant acme, table shop.orders: {kind.id} since ")
    assert first.endswith(": at binlog.000042:1199")
    assert kind.remedy in remedy
    assert not kind.command or f"`{fault.command}`" in remedy
    assert "{" not in fault.command
    assert f"{sample} 1.0" in lasting
    assert sample not in over
    [line] = logged
    assert (line["event"], line["fault"], line["place"]) == ("fault_raised", kind.id, str(scope))
    assert (line["reason"], line["mend"]) == ("at binlog.000042:1199", kind.remedy)
