"""Events for a catalogue of data, over a real connection; and that sending them never stands in anybody's way."""

import datetime
import http.server
import json
import queue
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from libs.config.connections import KafkaSettings, LineageSettings
from libs.config.load import Secret
from libs.errors import InvalidSettings
from libs.sink_state.progress import TableTimings
from libs.types.tenant import ColumnMask, ColumnRename, SinkSettings, SourceSelection, TenantSpec
from libs.types.warehouse import WarehouseTable
from libs.warehouse.schema_changes import StoredColumn
from spark.pending.progress import TableCommit, TableOutcome
from spark.settings import SessionSettings, SinkJobSettings
from spark.tenant.lineage import Lineage, TenantLineage, dataset_of
from spark.transforms.warehouse_columns import TableColumn

TIMEOUT_S = 120.0
ACME = TenantSpec(
    tenant="acme",
    sources=(
        SourceSelection(
            name="shop",
            masks=(ColumnMask(columns=r".*\.(email|cust)", constant="x"),),
            rename_columns=(ColumnRename(columns=r"shop\.orders\.cust", to="customer_id"),),
        ),
    ),
    sink=SinkSettings(warehouse="iceberg"),
)


class Catalogue:
    """Takes events by HTTP as Marquez does."""

    def __init__(self) -> None:
        taken: queue.Queue[tuple[str, str | None, dict[str, Any]]] = queue.Queue()
        self.taken = taken
        self.status = status = [201]

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                taken.put((self.path, self.headers.get("Authorization"), json.loads(body)))
                self.send_response(status[0])
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def next(self) -> dict[str, Any]:
        return self.taken.get(timeout=TIMEOUT_S)[2]


@pytest.fixture
def catalogue() -> Iterator[Catalogue]:
    found = Catalogue()
    yield found
    found.server.shutdown()
    found.server.server_close()


def job(lineage: LineageSettings) -> SinkJobSettings:
    return SinkJobSettings(
        tenants_dir="unused",
        kafka=KafkaSettings(bootstrap_servers="10.0.0.5:9092,10.0.0.6:9092"),
        warehouses={"iceberg": {"warehouse_dir": "/data/warehouse"}},
        state_dir="unused",
        session=SessionSettings(jars_dir="unused"),
        openlineage=lineage,
    )


def outcome(table: str = "shop.orders", *, columns: dict[str, TableColumn] | None = None) -> TableOutcome:
    return TableOutcome(
        topic=f"acme.shop.{table}",
        source="shop",
        table=table,
        warehouse_table=f"acme.shop.{table}",
        rows=7,
        newest_order="1",
        newest_committed_at_us=1,
        live_changes={},
        commit=TableCommit(1, TableTimings(), columns=columns or {}),
    )


def dropped(reason: str) -> float:
    return REGISTRY.get_sample_value("headwater_sink_lineage_dropped_total", {"reason": reason}) or 0.0


def check_form(event: dict[str, Any]) -> None:
    """The demands of OpenLineage's specification ("Object model", version 2) on every run event and facet."""
    assert uuid.UUID(event["run"]["runId"])
    assert datetime.datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert event["producer"].startswith("https://")
    assert event["schemaURL"].endswith("OpenLineage.json#/$defs/RunEvent")
    assert event["eventType"] in ("START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER")
    assert event["job"]["namespace"]
    assert event["job"]["name"]
    datasets = [*event["inputs"], *event["outputs"]]
    assert all(each["namespace"] and each["name"] for each in datasets)
    facets = [event["run"]["facets"], event["job"]["facets"]]
    facets += [each[kind] for each in datasets for kind in ("facets", "outputFacets", "inputFacets") if kind in each]
    for facet in (each for group in facets for each in group.values()):
        assert facet["_producer"].startswith("https://")
        assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/")


def test_a_run_is_told_from_its_start_to_its_end(catalogue: Catalogue) -> None:
    """Topics in, tables out with rows, columns and their masks and renames on the way; one run, in order."""
    settings = LineageSettings(url=catalogue.url, namespace="prod", api_key=Secret("sesame"))
    lineage = Lineage(settings)
    run = TenantLineage(lineage, job(settings), ACME)
    columns = {
        "id": TableColumn("bigint"),
        "email": TableColumn("string"),
        "customer_id": TableColumn("int"),
        "note__v_int": TableColumn("int", stored=StoredColumn("int", variant_of="note")),
    }

    run.started()
    run.applied([outcome(columns=columns), outcome("shop.items")])
    run.failed("it broke; mend that")
    path, authorization, start = catalogue.taken.get(timeout=TIMEOUT_S)
    batch, failure = catalogue.next(), catalogue.next()
    lineage.close()

    assert (path, authorization) == ("/api/v1/lineage", "Bearer sesame")
    for event in (start, batch, failure):
        check_form(event)
        assert event["job"]["namespace"] == "prod"
        assert event["job"]["name"] == "sink.acme"
        assert event["run"]["runId"] == start["run"]["runId"]
    assert [event["eventType"] for event in (start, batch, failure)] == ["START", "RUNNING", "FAIL"]
    assert failure["run"]["facets"]["errorMessage"]["message"] == "it broke; mend that"
    assert [(each["namespace"], each["name"]) for each in batch["inputs"]] == [
        ("kafka://10.0.0.5:9092", "acme.shop.shop.orders"),
        ("kafka://10.0.0.5:9092", "acme.shop.shop.items"),
    ]
    orders, items = batch["outputs"]
    assert (orders["namespace"], orders["name"]) == ("file", "/data/warehouse/acme/shop/shop/orders")
    assert orders["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert [(each["name"], each["type"]) for each in orders["facets"]["schema"]["fields"]] == [
        (name, column.sql_type) for name, column in columns.items()
    ]
    origins = {name: each["inputFields"][0] for name, each in orders["facets"]["columnLineage"]["fields"].items()}
    assert {name: each["field"] for name, each in origins.items()} == {
        "id": "id",
        "email": "email",
        "customer_id": "customer_id",
        "note__v_int": "note",
    }
    done = {name: each["transformations"][0] for name, each in origins.items()}
    assert done["id"] == {"type": "DIRECT", "subtype": "IDENTITY", "description": "", "masking": False}
    assert done["email"]["description"] == "masked"
    assert done["email"]["masking"] is True
    assert done["customer_id"]["description"] == "renamed from cust, masked"
    assert "schema" not in items["facets"]  # the table held the batch already: nobody asked for its columns


def test_events_are_lines_of_a_file(tmp_path: Path) -> None:
    settings = LineageSettings(file=str(tmp_path / "lineage.jsonl"))
    lineage = Lineage(settings)
    run = TenantLineage(lineage, job(settings), ACME)

    run.started()
    run.stopped()
    lineage.close()

    told = [json.loads(line) for line in (tmp_path / "lineage.jsonl").read_text().splitlines()]
    assert [event["eventType"] for event in told] == ["START", "COMPLETE"]
    for event in told:
        check_form(event)


def test_who_does_not_take_events_costs_events_alone(catalogue: Catalogue) -> None:
    """Refused and unreachable: counted, not raised; the next one is sent."""
    settings = LineageSettings(url=catalogue.url, timeout_s=30.0)
    lineage = Lineage(settings)
    run = TenantLineage(lineage, job(settings), ACME)
    before = dropped("refused")
    catalogue.status[0] = 401

    run.started()
    catalogue.next()
    deadline_s = time.monotonic() + TIMEOUT_S
    while dropped("refused") == before and time.monotonic() < deadline_s:
        time.sleep(0.01)
    catalogue.status[0] = 201
    run.stopped()

    assert catalogue.next()["eventType"] == "COMPLETE"
    assert dropped("refused") == before + 1
    lineage.close()


def test_a_catalogue_that_hangs_keeps_nobody_waiting() -> None:
    """The queue is bounded: an event that does not fit is dropped and counted, and no call blocks."""
    is_hanging, goes_on = threading.Event(), threading.Event()

    def hang(_: object) -> None:
        is_hanging.set()
        goes_on.wait(TIMEOUT_S)

    settings = LineageSettings(url="http://127.0.0.1:1", queued_events=3)
    lineage = Lineage(settings, send=hang)
    run = TenantLineage(lineage, job(settings), ACME)
    before = dropped("queue_full")
    run.started()
    assert is_hanging.wait(TIMEOUT_S)

    for _ in range(10):
        run.applied([outcome()])

    assert dropped("queue_full") == before + 7
    goes_on.set()
    lineage.close()


def test_a_fault_in_an_event_is_no_fault_of_the_batch() -> None:
    settings = LineageSettings(url="http://127.0.0.1:1")
    lineage = Lineage(settings, send=lambda _: None)
    run = TenantLineage(lineage, job(settings), ACME)
    before = dropped("refused")

    run.applied([outcome(columns={"id": None})])  # type: ignore[dict-item]

    assert dropped("refused") == before + 1
    lineage.close()


@pytest.mark.parametrize(
    ("warehouse", "settings", "expected"),
    [
        ("delta", {"warehouse_dir": "/data/delta"}, ("file", "/data/delta/acme/shop/shop/orders")),
        ("iceberg", {"warehouse_dir": "s3://bucket"}, ("s3://bucket", "acme/shop/shop/orders")),
        (
            "iceberg",
            {"warehouse_dir": "lake", "catalog": {"kind": "rest", "uri": "https://catalog"}},
            ("https://catalog", "acme.shop.shop.orders"),
        ),
        (
            "postgresql",
            {"database": "dwh", "host": "db", "schema": "{tenant}_x"},
            ("postgres://db:5432", "dwh.acme_x.orders"),
        ),
        ("postgresql", {"database": "dwh"}, ("postgres://127.0.0.1:5432", "dwh.acme_shop_shop.orders")),
        ("clickhouse", {"host": "ch"}, ("clickhouse://ch:8123", "acme_shop_shop.orders")),
    ],
)
def test_a_table_is_named_as_openlineage_names_it(
    warehouse: str, settings: dict[str, Any], expected: tuple[str, str]
) -> None:
    place = WarehouseTable(namespace=("acme", "shop", "shop"), name="orders")

    assert dataset_of(warehouse, settings, place) == expected


def test_every_mistake_of_the_settings_is_named() -> None:
    with pytest.raises(InvalidSettings) as refused:
        LineageSettings(file="x", url="ftp://x", timeout_s=0, queued_events=0)

    assert [each.partition(":")[0] for each in refused.value.mistakes] == ["url", "url", "timeout_s", "queued_events"]
