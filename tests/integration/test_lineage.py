"""The lineage events of a real query: its start, its batches, its end, and its failure."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient

from libs.config.connections import LineageSettings
from libs.types.warehouse import warehouse_table
from spark.tenant.lineage import Lineage
from spark.tenant.query import TenantQuery
from tests.conftest import KafkaBroker
from tests.integration.sink_tenant import Tenant, orders, row, start_tenants
from tests.sink_query import run_until
from tests.sink_topics import SOURCE, table_id
from tests.spark_session import shared_spark

TIMEOUT_S = 400.0


@pytest.fixture
def start_tenant(
    kafka_broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Tenant]]:
    yield from start_tenants(kafka_broker.bootstrap_servers, tmp_path, request)


@pytest.mark.timeout(1_800)
def test_a_query_tells_of_its_batches_and_of_its_failure(
    start_tenant: Callable[..., Tenant], kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """The rows that the table took in, its columns with their types; then a topic that is gone halts the tenant."""
    shared, schema = shared_spark(), orders()
    tenant = start_tenant("iceberg", schema)
    file = tmp_path / "lineage.jsonl"
    settings = msgspec.structs.replace(
        tenant.settings,
        openlineage=LineageSettings(file=str(file)),
        warehouses={"iceberg": {"warehouse_dir": shared.iceberg.warehouse_dir}},
    )
    assert settings.openlineage is not None
    tenant.write(schema, row(1, "one", 1), row(2, "two", 2), op="c")
    lineage = Lineage(settings.openlineage)

    query = TenantQuery(shared.session, settings, tenant.spec, shared.sink, lineage)
    run_until(query, lambda: tenant.progress.rows >= 2, why=lambda: tenant.progress)
    again = TenantQuery(shared.session, settings, tenant.spec, shared.sink, lineage)
    topic = f"{tenant.spec.tenant}.{SOURCE}.shop.orders"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(60)
    deadline_s = time.monotonic() + TIMEOUT_S
    while not again.is_halted and time.monotonic() < deadline_s:
        again.supervise()
        time.sleep(0.2)
    lineage.close()

    told: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines()]
    runs = list(dict.fromkeys(event["run"]["runId"] for event in told))
    first, second = ([event for event in told if event["run"]["runId"] == run] for run in runs)
    assert [event["eventType"] for event in first] == ["START", "RUNNING", "COMPLETE"]
    assert (second[0]["eventType"], second[-1]["eventType"]) == ("START", "FAIL")
    assert second[-1]["run"]["facets"]["errorMessage"]["message"]
    place = warehouse_table(tenant.spec.tenant, SOURCE, table_id("orders"))
    [read], [written] = first[1]["inputs"], first[1]["outputs"]
    assert read["name"] == topic
    assert written["name"] == f"{shared.iceberg.warehouse_dir}/{'/'.join(place.identifier)}"
    assert Path(written["name"]).is_dir()
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert {each["name"]: each["type"] for each in written["facets"]["schema"]["fields"]} == {
        "id": "int",
        "note": "string",
        "n": "int",
    }
