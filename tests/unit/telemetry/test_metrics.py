"""The catalogue of metrics, and the page that is written from it."""

import re
from pathlib import Path

import prometheus_client
import pytest

from libs.telemetry import metrics
from libs.telemetry.metrics import CATALOGUE, MetricDoc

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
UNITS = (
    "_total",
    "_seconds",
    "_bytes",
    "_rows",
    "_batches",
    "_keys",
    "_lanes",
    "_tables",
    "_rows_estimated",
    "_parts",
    "_answers",
    "_per_second",
    "_transactions",
    "_scn",
)
COUNTS = {
    "headwater_sink_waiting_tenants",
    "headwater_tenants",
    "headwater_router_tenant_weight",
    "headwater_operator_refused_namespaces",
    "headwater_operator_tenants",
    "headwater_operator_watchers",
    "headwater_reader_shards",
    "headwater_reader_ended_shards",
    "headwater_reader_shard_epoch",
    "headwater_sink_executors",
    "headwater_sink_executor_cores",
    "headwater_sink_executor_tasks",
    "headwater_sink_executor_failed_tasks",
}
"""Their names say the things that they count."""


def test_the_page_is_fresh() -> None:
    """``docs/metrics.md`` is the output of ``make docs-metrics``."""
    assert metrics.metrics_document() == DOCS.read_text(encoding="utf-8"), "run `make docs-metrics`"


@pytest.mark.parametrize("doc", CATALOGUE, ids=lambda doc: doc.name)
def test_every_metric_names_its_unit_and_says_what_to_do(doc: MetricDoc) -> None:
    """Counters end in ``_total``, the rest in a unit or are 1 or 0; both texts are sentences; labels hold no rows."""
    assert doc.name.startswith("headwater_")
    assert doc.name.endswith(UNITS) or doc.name in COUNTS or doc.meaning.startswith("1 while")
    assert (doc.kind == "counter") == doc.name.endswith("_total")
    assert doc.meaning.endswith(".")
    assert doc.remedy.endswith(".")
    assert not {"key", "value", "transaction_id", "gtid"} & set(doc.labels)


def test_every_metric_of_the_module_is_in_the_catalogue() -> None:
    """Nothing is registered beside it: every metric that Prometheus scrapes under our prefix has a line on the page."""
    families = {family.name for family in prometheus_client.REGISTRY.collect() if family.name.startswith("headwater_")}

    assert families == {re.sub(r"_total$", "", doc.name) for doc in CATALOGUE}
