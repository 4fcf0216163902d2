"""Commands that read a mesh elsewhere: a real Kafka, and schemas that a real schema_history recorded in it."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner, Result
from deltalake import write_deltalake

from libs.cli.main import headwater
from libs.config.connections import GrpcClientSettings, KafkaSettings
from libs.errors import InvalidSettings
from libs.events.names import SIGNALS_TOPIC
from libs.events.schema_change import SchemaChangeKind
from libs.kafka.clients import ensure_topics
from libs.mesh.tenant_topics import open_consumer, read_to_end
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.servers.ports import LOOPBACK, free_port
from libs.source.signal_topic import signals_topic
from libs.source.signals import ExecuteSnapshot, parse_signal
from libs.types.order import EventOrder
from libs.types.position import SourcePosition
from libs.types.table import TableId, TableSchema
from libs.types.value import LogicalKind
from libs.types.warehouse import warehouse_table
from tests.integration.router_rig import ORDERS, column, orders_schema, record_schema
from tests.integration.service_process import Services


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A mesh that a command gets a file of, and a source of this test's own."""

    history: GrpcClientSettings
    file: Path
    source: str

    def explain(self, *arguments: str, given: object = None) -> Result:
        """``given``: the document, or the ConfigMap, that standard input has."""
        text = given if isinstance(given, str) else yaml.safe_dump(given)
        document = [] if given is None else ["--document", "-"]
        return CliRunner().invoke(
            headwater, ["tenant", "explain", *arguments, "--mesh", str(self.file), *document], input=text
        )

    def document(self, **selection: object) -> str:
        return yaml.safe_dump({"tenant": "acme", "sources": [{"name": self.source, **selection}]}, sort_keys=False)

    async def drops(self, table_id: TableId, rank: int) -> None:
        async with SchemaHistoryClient(self.history) as history:
            await history.record_schema_change(
                source=self.source,
                table_id=table_id,
                kind=SchemaChangeKind.DROP,
                order=EventOrder(epoch=0, rank=rank, tx_ordinal=0),
                position=SourcePosition(source_kind="mysql", token=b"1"),
                committed_at_us=1,
                ddl="DROP TABLE",
                table_schema=None,
            )


@pytest.fixture
def elsewhere(services: Services, tmp_path: Path, unique_name: Callable[[str], str]) -> Elsewhere:
    file = tmp_path / "mesh.yaml"
    file.write_text(yaml.safe_dump({"kafka": {"bootstrap_servers": services.bootstrap_servers}}))
    return Elsewhere(services.schema_history.client_settings, file, unique_name("s").replace("_", "-"))


def config_map(document: str, **annotations: str) -> dict[str, Any]:
    told = {f"headwater.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    metadata = {"name": "acme", "namespace": "team-acme", "annotations": told}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"tenant.yaml": document}}


def other_table(name: str) -> TableSchema:
    key = column("id", LogicalKind.INT64, "bigint", is_optional=False)
    return TableSchema(table_id=TableId(database="shop", table=name), columns=(key,), key=("id",))


async def test_a_tenants_rows_are_asked_for_from_elsewhere(elsewhere: Elsewhere, services: Services) -> None:
    """By the tables that schema_history recorded and the document's rules; a table that it does not see is refused."""
    await record_schema(elsewhere.history, elsewhere.source, orders_schema(), rank=3)
    await record_schema(elsewhere.history, elsewhere.source, other_table("notes"), rank=4)
    kafka = KafkaSettings(bootstrap_servers=services.bootstrap_servers)
    ensure_topics(kafka, [signals_topic(1)])
    document = elsewhere.document(include_tables=["shop\\.orders"])
    snapshot = ["tenant", "snapshot", "acme", "--mesh", str(elsewhere.file), "--document", "-"]

    asked = CliRunner().invoke(headwater, [*snapshot, "--json"], input=document)
    refused = CliRunner().invoke(headwater, [*snapshot, "notes"], input=document)

    (told,) = json.loads(asked.stdout)["asked"]
    assert (told["source"], told["tables"]) == (elsewhere.source, [str(ORDERS)])
    with closing(open_consumer(kafka)) as consumer:
        place = {(SIGNALS_TOPIC, 0): told["signal_offset"]}
        sent = next(each for each in read_to_end(consumer, place, timeout_s=60) if each.key() is not None)
    signal = parse_signal(sent.value() or b"")
    assert isinstance(signal, ExecuteSnapshot)
    assert (sent.key(), signal.for_tenants) == (elsewhere.source.encode(), ("acme",))
    assert isinstance(refused.exception, InvalidSettings)
    assert "tenant acme sees no such table" in str(refused.exception)


async def test_columns_are_those_in_force_and_rules_have_their_lines(elsewhere: Elsewhere) -> None:
    """By order, not by when they were recorded; a table that was dropped is none."""
    await record_schema(elsewhere.history, elsewhere.source, orders_schema(column("note")), rank=7)
    await record_schema(elsewhere.history, elsewhere.source, orders_schema(), rank=3)
    await record_schema(elsewhere.history, elsewhere.source, other_table("ordrs"), rank=1)
    await elsewhere.drops(TableId(database="shop", table="ordrs"), 2)
    document = elsewhere.document(
        row_filters=[{"tables": ".*orders", "where": "region = 'EU'"}], exclude_columns=[".*email"]
    )

    told = elsewhere.explain("acme", "orders", "--json", given=config_map(document, state="ready"))
    misspelt = elsewhere.explain("acme", "ordrs", given=document)

    assert told.exit_code == 0, told.exception
    (table,) = json.loads(told.stdout)["tables"]
    assert (table["table"], table["is_delivered"], table["refused"]) == (str(ORDERS), True, [])
    assert table["rows"] == [{"says": "only where region = 'EU'", "where": "tenant.yaml:6"}]
    assert {each["name"]: each["fate"] for each in table["columns"]} == {
        "id": "delivered",
        "region": "delivered",
        "email": "left out",
        "note": "delivered",
    }
    assert table["columns"][2]["because"] == {"says": "exclude_columns '.*email'", "where": "tenant.yaml:8"}
    assert "did you mean 'orders'" in str(misspelt.exception)


async def test_what_routers_refuse_and_how_the_config_map_stands_are_told(elsewhere: Elsewhere) -> None:
    """A refusal that the command finds itself, too, is not reported twice."""
    await record_schema(elsewhere.history, elsewhere.source, orders_schema())
    document = elsewhere.document(row_filters=[{"tables": ".*orders", "where": "id = 'one'"}])
    alone = elsewhere.explain("acme", "orders", "--json", given=document)
    assert alone.exit_code == 0, alone.exception
    (would,) = json.loads(alone.stdout)["tables"][0]["refused"]
    reason = would.removeprefix("its events would be set aside as dead letters: ")
    refused = {f"shop.orders of {elsewhere.source}": reason, f"shop.other of {elsewhere.source}": "no"}

    told = elsewhere.explain(
        "acme",
        "orders",
        given=config_map(document, state="degraded", refused_tables=json.dumps(refused)),
    )
    waits = elsewhere.explain("acme", "orders", given=config_map(document, state="waiting", message="for Kafka"))
    nobody = elsewhere.explain("acme", "orders", given=config_map(document))
    stands = elsewhere.explain("acme", "orders", given=config_map(document, state="degraded", sink_wait="no answer"))

    assert "cannot compare" in reason
    assert "  REFUSED  routers set its events aside as dead letters: row filter: id = 'one'" in told.output
    assert told.output.count("REFUSED") == 1
    assert f"note: routers set aside the events of other tables too: shop.other of {elsewhere.source}" in told.output
    assert "note: ConfigMap team-acme/acme is waiting: for Kafka" in waits.output
    assert (
        "its tables stand still in its Spark job, and go on by themselves once that is mended: no answer"
        in stands.output
    )
    assert "no tenant-operator has reported its state" in nobody.output
    assert (
        "note: whether the document is in force" in alone.stdout or "whether the document is in force" in alone.stdout
    )


def test_what_is_not_known_is_told_with_what_to_do(elsewhere: Elsewhere) -> None:
    """Where the table is named in full, the document's patterns are held against it all the same."""
    document = elsewhere.document(exclude_tables=[".*audit"])

    named = elsewhere.explain("acme", "shop.audit", given=document)
    no_table = elsewhere.explain("acme", "audit", given=document)
    elsewhere.file.write_text(elsewhere.file.read_text() + "schema_history_topic: nowhere\n")
    no_topic = elsewhere.explain("acme", "shop.orders", given=document)

    assert "shop.audit of source" in named.output
    assert "exclude_tables '.*audit'   (the document:5)" in named.output
    assert (
        f"source {elsewhere.source}: its tables are not known: topic headwater.schema-history has nothing"
        in named.output
    )
    assert "look whether its reader runs" in str(no_table.exception)
    assert "columns  not known" in no_topic.output
    assert "Kafka has no topic nowhere, which schema_history makes" in no_topic.output


def test_mistakes_are_named(elsewhere: Elsewhere) -> None:
    document = elsewhere.document()

    nowhere = elsewhere.explain("acme", "orders")
    other = elsewhere.explain("globex", "orders", given=document)
    bad = elsewhere.explain("acme", "orders", given=config_map(document + "sink: 3\n"))
    empty = elsewhere.explain("acme", "orders", given={**config_map(document), "data": {}})
    elsewhere.file.write_text(f"kafka: {{bootstrap_servers: '{LOOPBACK}:{free_port()}'}}\n")
    away = elsewhere.explain("acme", "orders", given=document)
    without_mesh = CliRunner().invoke(headwater, ["tenant", "explain", "acme", "orders", "--document", "-"])

    assert "does not say where tenant acme's document is" in str(nowhere.exception)
    assert "--document -" in str(nowhere.exception)
    assert "is the document of tenant 'acme', not of 'globex'" in str(other.exception)
    assert "ConfigMap team-acme/acme" in str(bad.exception)
    assert "tenant.yaml:4: sink" in str(bad.exception)
    assert "headwater-tenant-acme of the release's namespace" in str(bad.exception)
    assert "put the tenant's document there" in str(empty.exception)
    assert "does not answer" in str(away.exception)
    assert "whether address, protocol and user" in str(away.exception)
    assert (without_mesh.exit_code, "--document needs --mesh" in without_mesh.output) == (2, True)


async def test_documents_statements_and_queries_are_those_of_a_mesh_elsewhere(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    """By the documents in force, the recorded tables and the warehouse that the file names; no home is there."""
    await record_schema(elsewhere.history, elsewhere.source, orders_schema(), rank=3)
    tenants, lake = tmp_path / "tenants", tmp_path / "lake"
    tenants.mkdir()
    before = elsewhere.document(exclude_columns=[".*email"]) + "sink: {warehouse: delta, mode: mirror}\n"
    (tenants / "acme.yaml").write_text(before)
    place = warehouse_table("acme", elsewhere.source, ORDERS)
    write_deltalake(
        str(lake.joinpath(*place.identifier)), pa.table({"id": pa.array([1, 2], pa.int32()), "region": ["EU", "US"]})
    )
    source = {"database": {"user": "u", "password": "p"}, "include_tables": [".*"]}
    more = {
        "tenants_dir": str(tenants),
        "sources": {elsewhere.source: source},
        "warehouses": {"delta": {"warehouse_dir": str(lake)}},
    }
    elsewhere.file.write_text(elsewhere.file.read_text() + yaml.safe_dump(more))

    def told(*arguments: str, given: str = "") -> Result:
        return CliRunner().invoke(headwater, [*arguments, "--mesh", str(elsewhere.file), "--json"], input=given)

    document = told("tenant", "plan", "-", given=before.replace("email", "region"))
    new = told("tenant", "plan", "-", given=before.replace("acme", "globex"))
    ddl = told("schema", "plan", elsewhere.source, "ALTER TABLE shop.orders ADD COLUMN size INT")
    other = told("schema", "plan", f"{elsewhere.source}x", "DROP TABLE shop.orders")
    counted = told("query", "acme", "SELECT count(*) AS n, min(region) AS first FROM orders")
    listed = told("query", "acme")
    nobody = told("query", "globex")

    planned = json.loads(document.stdout)
    assert [(each["change"], each["differences"]) for each in planned["tables"]] == [
        ("changed", ["region: delivered → left out", "email: left out → delivered"])
    ]
    assert planned["uncovered"] == [f"{elsewhere.source}: shop.orders.email"]
    assert "is not seen from here" in planned["notes"][-1]
    assert json.loads(new.stdout)["is_new"] is True
    plan = json.loads(ddl.stdout)
    assert plan["schemas_from"] == "schema_history"
    assert [(each["tenant"], each["events"]) for each in plan["plans"]] == [("acme", ["column_added size (int)"])]
    assert "is none of the sources of" in str(other.exception)
    assert json.loads(counted.stdout) == {"n": 2, "first": "EU"}
    assert json.loads(listed.stdout) == {
        "table": "shop.orders",
        "source": elsewhere.source,
        "columns": "id, region",
        "rows": 2,
    }
    assert "has no document in force; known: acme" in str(nobody.exception)
