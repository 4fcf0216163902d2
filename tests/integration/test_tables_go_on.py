"""A table goes on only where the sink left it. That its topic was deleted, the table dropped or set back, or the checkpoint
removed, is reported by name, and a resync makes the table whole. On real warehouses."""

import shutil
from pathlib import Path

import pytest

from libs.config.connections import KafkaSettings
from libs.events.names import resyncs_topic, row_topic
from libs.mesh.sink_requests import send_to_sink
from libs.mesh.tenant_topics import end_offsets
from libs.sink_state.resync import ResyncRequest, decode_resyncs, encode_resync_request, resyncs_path
from libs.types.tenant import SinkMode
from libs.types.warehouse import WarehouseTable, warehouse_table
from tests import clickhouse
from tests.conftest import PostgresqlServer
from tests.integration.sink_tenant import StartTenant, Tenant, orders, row
from tests.sink_query import is_noted
from tests.sink_topics import SOURCE, table_id
from tests.spark_session import shared_spark

NAMES = ("kept", "anew", "gone", "back")
TABLES = {name: orders(name=name) for name in NAMES}


@pytest.mark.timeout(1_800)
def test_a_table_that_is_not_as_the_sink_left_it_is_told(
    start_tenant: StartTenant, warehouse: str, request: pytest.FixtureRequest
) -> None:
    """One table's topic is made again, with more records than it had; one is dropped; one is set back to an earlier state.
    Each is parked by name, the fourth goes on. A resync of each brings the events of its topic. Then the checkpoint is
    removed: no log has an event twice.
    """
    tenant = start_tenant(warehouse, *TABLES.values(), mode=SinkMode.APPEND)
    for number in (1, 2):
        for schema in TABLES.values():
            tenant.write(schema, row(number, "before", number), op="c")
        tenant.run_until_noted(number * len(NAMES))
    make_topic_again(tenant, "anew")
    for number in (11, 12, 13):
        tenant.write(TABLES["anew"], row(number, "anew", number), op="c")
    drop(tenant, warehouse, "gone", request)
    set_back(tenant, warehouse, "back", request)
    for name in ("kept", "gone", "back"):
        tenant.write(TABLES[name], row(3, "after", 3), op="c")

    tenant.run_until(lambda tenant: is_settled(tenant) and tenant.progress.rows == 9)

    assert ids(tenant, "kept") == [1, 2, 3]
    assert ids(tenant, "anew") == [1, 2]
    assert {name for name in NAMES if because(tenant, name)} == {"anew", "gone", "back"}
    for name in ("anew", "gone", "back"):
        assert f"headwater resync {tenant.spec.tenant} shop.{name}" in because(tenant, name)
    assert row_topic(tenant.spec.tenant, SOURCE, table_id("anew")) in because(tenant, "anew")
    assert "made again" in because(tenant, "anew")
    assert "gone" in because(tenant, "gone")

    resync(tenant, "anew", "gone", "back")

    assert not any(because(tenant, name) for name in NAMES)
    assert ids(tenant, "anew") == [1, 2, 11, 12, 13]
    assert ids(tenant, "gone") == ids(tenant, "back") == [1, 2, 3]

    shutil.rmtree(Path(tenant.settings.state_dir) / "checkpoints" / tenant.spec.tenant)
    for name in NAMES:
        tenant.write(TABLES[name], row(20, "later", 20), op="c")
    tenant.run_until(lambda tenant: all(because(tenant, name) for name in NAMES) and is_settled(tenant))

    assert ids(tenant, "kept") == [1, 2, 3]
    assert "checkpoint" in because(tenant, "kept")
    assert f"headwater resync {tenant.spec.tenant} shop.kept" in because(tenant, "kept")

    resync(tenant, *NAMES)

    assert ids(tenant, "kept") == ids(tenant, "gone") == ids(tenant, "back") == [1, 2, 3, 20]
    assert ids(tenant, "anew") == [1, 2, 11, 12, 13, 20]


def because(tenant: Tenant, name: str) -> str:
    """Why the table is parked; empty: it is not."""
    found = [each.parked for each in tenant.progress.tables.values() if each.table == f"shop.{name}"]
    return found[0].because if found and found[0] is not None else ""


def is_settled(tenant: Tenant) -> bool:
    return is_noted(tenant.settings.state_dir, tenant.spec.tenant, tenant.progress.batch_id)


def ids(tenant: Tenant, name: str) -> list[int]:
    return sorted(each["id"] for each in tenant.rows(name))


def place(tenant: Tenant, name: str) -> WarehouseTable:
    return warehouse_table(tenant.spec.tenant, SOURCE, table_id(name))


def make_topic_again(tenant: Tenant, name: str) -> None:
    topic = row_topic(tenant.spec.tenant, SOURCE, table_id(name))
    tenant.topics.delete(topic)
    tenant.topics.create_table(TABLES[name])


def resync(tenant: Tenant, *names: str) -> None:
    """As ``headwater resync`` of a log asks."""
    requests = [ask(tenant.settings.kafka, tenant.spec.tenant, name) for name in names]
    path = resyncs_path(Path(tenant.settings.state_dir), tenant.spec.tenant)

    def are_done(tenant: Tenant) -> bool:
        found = decode_resyncs(path.read_bytes()).answers if path.exists() else {}
        assert not [each for each in requests if each in found and found[each].refused_because], found
        return all(each in found and found[each].is_done for each in requests) and is_settled(tenant)

    tenant.run_until(are_done)


def ask(kafka: KafkaSettings, tenant: str, name: str) -> str:
    topic = row_topic(tenant, SOURCE, table_id(name))
    ends = {partition: end for (_, partition), end in end_offsets(kafka, [topic]).items()}
    request = ResyncRequest(id=f"{name}-{sum(ends.values())}", topic=topic, from_offsets={}, to_offsets=ends)
    send_to_sink(kafka, resyncs_topic(tenant), {encode_resync_request(request): topic})
    return request.id


def drop(tenant: Tenant, kind: str, name: str, request: pytest.FixtureRequest) -> None:
    table = place(tenant, name)
    match kind:
        case "iceberg":
            shared_spark().session.sql(f"DROP TABLE {table.quoted()}")
        case "delta":
            shutil.rmtree(Path(shared_spark().delta.warehouse_dir, *table.identifier))
        case "postgresql":
            execute(request, f"DROP TABLE {in_postgresql(table)}")
        case _:
            command(request, f"DROP TABLE {clickhouse.place_of(table)} SYNC")


def set_back(tenant: Tenant, kind: str, name: str, request: pytest.FixtureRequest) -> None:
    """To its state after its first batch."""
    table, spark = place(tenant, name), shared_spark().session
    match kind:
        case "iceberg":
            [oldest, *_] = spark.sql(
                f"SELECT snapshot_id FROM {table.quoted()}.snapshots ORDER BY committed_at"
            ).collect()
            spark.sql(f"CALL headwater.system.rollback_to_snapshot('{table}', {oldest.snapshot_id})")
        case "delta":
            folder = Path(shared_spark().delta.warehouse_dir, *table.identifier)
            spark.sql(f"RESTORE TABLE delta.`{folder}` TO VERSION AS OF 1")
        case "postgresql":  # dumped after its first batch, dropped, and put back
            there = in_postgresql(table)
            execute(request, f"CREATE TABLE public.{tenant.spec.tenant} AS TABLE {there}")
            execute(request, f"CREATE TABLE public.{tenant.spec.tenant}_as_it_was (LIKE {there} INCLUDING ALL)")
            execute(
                request,
                f"INSERT INTO public.{tenant.spec.tenant}_as_it_was SELECT * FROM public.{tenant.spec.tenant} WHERE id = 1",
            )
            execute(request, f"DROP TABLE {there}")
            execute(request, f"ALTER TABLE public.{tenant.spec.tenant}_as_it_was RENAME TO {table.name}")
            execute(request, f"ALTER TABLE public.{table.name} SET SCHEMA {in_postgresql(table).split('.')[0]}")
        case _:  # the whole server from a backup: rows, and the note of the first batch
            command(
                request, f"ALTER TABLE {clickhouse.place_of(table)} DELETE WHERE id = 2 SETTINGS mutations_sync = 2"
            )
            command(
                request,
                "INSERT INTO headwater.batches SELECT * REPLACE (batch_id - 1 AS batch_id) FROM headwater.batches FINAL "
                f"WHERE name = '{table}'",
            )


def in_postgresql(table: WarehouseTable) -> str:
    return f'"{"_".join(table.namespace)}".{table.name}'


def execute(request: pytest.FixtureRequest, statement: str) -> None:
    server: PostgresqlServer = request.getfixturevalue("postgresql_server")
    server.execute(statement)


def command(request: pytest.FixtureRequest, statement: str) -> None:
    server: clickhouse.ClickhouseServer = request.getfixturevalue("clickhouse_server")
    server.execute(statement)
