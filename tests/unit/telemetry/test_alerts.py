"""Every alert of the chart fires when it should: its rule over pages scraped from metrics that the product set."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import prometheus_client
import pytest
import yaml

from libs.check.metrics import record_tables
from libs.check.run import CheckReport
from libs.sink_state.progress import ParkedTable, SinkProgress, TableProgress
from libs.source.status import ReaderStatus
from libs.source.unseen_rows import report_unseen_rows
from libs.telemetry import metrics
from libs.telemetry.faults import EVENTS_SET_ASIDE, SOURCE_UNREACHABLE, TABLE_PARKED, TABLE_QUARANTINED, raise_fault
from libs.telemetry.sink_faults import sink_faults
from libs.types.fault import FaultScope
from libs.types.position import SourcePartition
from libs.types.table import TableId
from libs.types.unseen_rows import UnseenRows
from spark.pending.progress import observe_batch, report_faults
from tests.promql import Prometheus
from tests.unit.check.test_rounds import checked
from tests.unit.source.test_status import published

REPOSITORY: Final = Path(__file__).parents[3]
RULES: Final[Mapping[str, Mapping[str, Any]]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((REPOSITORY / "charts" / "headwater" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}
EVERY_S: Final = 15.0
SOURCE: Final = "alerts-shop"
TENANT: Final = "alerts-acme"


def reader() -> ReaderStatus:
    return ReaderStatus(SourcePartition(source=SOURCE, name="0"))


def connected() -> None:
    reader()
    metrics.READER_CONNECTED.labels(SOURCE, "0").set(1)


def rows_unseen() -> None:
    orders = TableId(database="shop", table="orders")
    report_unseen_rows(
        UnseenRows("DROP PARTITION p1", (orders,)),
        source=SOURCE,
        source_partition="0",
        is_captured=lambda _: True,
        at="binlog.000042:1199",
    )


def sunk(*, parked: ParkedTable | None = None) -> SinkProgress:
    topic = f"{TENANT}.shop.orders"
    table = TableProgress(
        topic=topic, source=SOURCE, table="shop.orders", warehouse_table=f"{TENANT}.orders", parked=parked
    )
    progress = SinkProgress(tenant=TENANT, tables={topic: table})
    observe_batch("iceberg", progress, ())
    report_faults(progress)
    return progress


def differing(rows: int) -> None:
    record_tables(CheckReport((checked(TENANT, TableId(database="shop", table="orders"), different=rows),), False))


@dataclass(frozen=True, slots=True)
class Case:
    """How an alert comes to fire."""

    fault: Callable[[], object]
    """Done once, between two scrapes."""
    well: Callable[[], object] = lambda: None
    """Done before the first scrape; the rule gives nothing then."""
    comes_again: bool = False
    """``fault`` is done before each scrape from then on."""


def count_failed_turns() -> None:
    metrics.CHECK_FAILED_TURNS.inc()


CASES: Final[Mapping[str, Case]] = {
    "HeadwaterFaultHalts": Case(lambda: raise_fault(SOURCE_UNREACHABLE, FaultScope(source=SOURCE), happened="refused")),
    "HeadwaterFaultDiffers": Case(lambda: raise_fault(TABLE_QUARANTINED, FaultScope(source=SOURCE), happened="DDL")),
    "HeadwaterHalted": Case(lambda: reader().halted("AccessDenied: 1045"), reader),
    "HeadwaterReaderLagging": Case(lambda: reader().published(published())),
    "HeadwaterReaderDisconnected": Case(reader, connected),
    # Set as in services.binlog_reader.table_reports, whose own tests see the number: a log with a server below it.
    "HeadwaterTablesQuarantined": Case(lambda: metrics.READER_QUARANTINED_TABLES.labels(SOURCE, "0").set(2)),
    "HeadwaterRowsChangedUnseen": Case(rows_unseen),
    # Set as in services.router.liveness, of lanes that have Kafka below them.
    "HeadwaterRouterLagging": Case(lambda: metrics.ROUTER_DELAY.labels(SOURCE, "0").set(61.0)),
    "HeadwaterDeadLetters": Case(
        lambda: raise_fault(
            EVENTS_SET_ASIDE, FaultScope(source=SOURCE, tenant=TENANT, table="shop.orders"), happened="1 event"
        )
    ),
    # Set as in services.tenant_operator.reconcile and operate: tests/unit/tenant_operator and tests/cluster see them.
    "HeadwaterTenantNotReady": Case(
        lambda: metrics.OPERATOR_TENANTS.labels("refused").set(1),
        lambda: metrics.OPERATOR_TENANTS.labels("refused").set(0),
    ),
    "HeadwaterNamespaceRefused": Case(
        lambda: metrics.OPERATOR_REFUSED_NAMESPACES.set(1), lambda: metrics.OPERATOR_REFUSED_NAMESPACES.set(0)
    ),
    "HeadwaterNoOperatorLeads": Case(lambda: metrics.OPERATOR_LEADS.set(0), lambda: metrics.OPERATOR_LEADS.set(1)),
    # Set as in spark.tenant.query, of a query with Spark below it.
    "HeadwaterSinkHalted": Case(lambda: metrics.SINK_HALTED.labels(TENANT, "iceberg").set(1)),
    "HeadwaterSinkTablesParked": Case(
        lambda: sunk(parked=ParkedTable(because="full", from_offsets={0: 3}, to_offsets={0: 9})), sunk
    ),
    # Set as in spark.pending.progress, of a batch that has rows.
    "HeadwaterSinkLagging": Case(lambda: metrics.SINK_LAG.labels(TENANT, "iceberg").set(301.0)),
    # Set as in spark.tenant.moves and kept_states, of jobs with Spark below them.
    "HeadwaterSinkWaits": Case(lambda: metrics.SINK_WAITS.labels(TENANT).set(1)),
    "HeadwaterTablesDiffer": Case(lambda: differing(3), lambda: differing(0)),
    # Counted as in libs.cli.check, once a turn.
    "HeadwaterCheckFails": Case(count_failed_turns, comes_again=True),
    # Set as in services.dts_decoder.topic_figures, of a subscription with Kafka below it.
    "HeadwaterRetentionShort": Case(
        lambda: metrics.DTS_HEADROOM.labels(SOURCE, "0").set(3_600.0),
        lambda: metrics.DTS_HEADROOM.labels(SOURCE, "0").set(86_400.0),
    ),
}


def page(rule: Mapping[str, Any]) -> str:
    """``/metrics``, of it what the rule asks for: to write and read all of it a thousand times takes a minute."""
    names = re.findall(r"headwater_\w+", rule["expr"])
    return prometheus_client.generate_latest(prometheus_client.REGISTRY.restricted_registry(names)).decode()


def test_every_alert_has_a_case() -> None:
    """A new rule is seen to fire before it is shipped."""
    assert CASES.keys() == RULES.keys()


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_while_its_fault_lasts_and_not_before(name: str) -> None:
    """After as long as the rule waits; scraped each 15 s."""
    rule, case, prometheus = RULES[name], CASES[name], Prometheus()
    case.well()
    for moment in range(4):
        prometheus.scrape(page(rule), moment * EVERY_S)
    before = prometheus.ask(rule["expr"], 3 * EVERY_S).keys()  # other tests of this process set gauges of their own
    now_s = 3 * EVERY_S
    case.fault()
    while not (firing := prometheus.fires(rule, now_s) - before) and now_s < 1_200:
        now_s += EVERY_S
        if case.comes_again:
            case.fault()
        prometheus.scrape(page(rule), now_s)

    ours = {value for labels in firing for value in dict(labels).values()}
    assert firing, f"{rule['expr']} gives {prometheus.ask(rule['expr'], now_s)}"
    if re.search(r"\$labels\.(source|tenant)", str(rule["annotations"])):
        assert {SOURCE, TENANT} & ours
    for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
        assert all(label in dict(labels) for labels in firing), label


def test_the_parked_table_of_the_alert_is_a_fault_too() -> None:
    """One reading of progress for metric and fault."""
    parked = sunk(parked=ParkedTable(because="full", from_offsets={0: 3}, to_offsets={0: 9}))

    assert list(sink_faults(parked)[TABLE_PARKED].values()) == ["full"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("max by (a) (m) > 1", {"x": 3.0}),
        ("sum by (a) (m)", {"x": 5.0, "y": 1.0}),
        ('sum by (a) (m{b=~"p|r"}) == 2', {"x": 2.0}),
        ("min by (a) (m) < 2 * 1", {"y": 1.0}),
        ("max by (a) (max_over_time(n[1m])) == 9", {"x": 9.0}),
        ("sum by (a) (increase(c_total[1m])) > 0", {"x": 6.0}),
        ("sum by (a) (gone)", {}),
        ("(sum(gone) or vector(0)) == 0", {"": 0.0}),
        ("sum by (a) (m) > 2 or sum by (a) (m) > 0", {"x": 5.0, "y": 1.0}),
    ],
)
def test_the_rules_are_evaluated_as_prometheus_does(expression: str, expected: Mapping[str, float]) -> None:
    """By a page a quarter of a minute; the counter began again in between, and one of its series is new."""
    prometheus = Prometheus()
    rest = 'm{a="x",b="p"} 2\nm{a="x",b="q"} 3\nm{a="y",b="p"} 1\n'
    prometheus.scrape(f'{rest}n{{a="x"}} 9\nc_total{{a="x"}} 4\ngone{{a="x"}} 1\n', 0.0)
    prometheus.scrape(f'{rest}c_total{{a="x"}} 1\n', 15.0)
    prometheus.scrape(f'{rest}c_total{{a="x"}} 6\nc_total{{a="y"}} 7\n', 30.0)

    found = prometheus.ask(expression, 30.0)

    assert {dict(labels).get("a", ""): value for labels, value in found.items()} == expected


def test_a_rule_that_is_not_understood_is_no_empty_one() -> None:
    """The evaluator would pass over a new function in silence."""
    for expression in ("rate(c_total[1m])", "m unless n", "m > n", "sum(m"):
        with pytest.raises((ValueError, IndexError)):
            Prometheus().ask(expression, 0.0)
