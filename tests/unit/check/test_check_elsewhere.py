"""The file for ``--mesh`` as ``check`` reads it: sources, documents and warehouses, and the names that it lacks."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from libs.check.cluster_mesh import compared_cluster
from libs.check.compared import ComparedMesh, chosen_tenants
from libs.config.connections import KafkaSettings
from libs.config.iceberg_catalog import CatalogKind, CatalogSettings
from libs.errors import AccessDenied, InvalidSettings
from libs.events.checkpoint_codec import checkpoint_key, encode_checkpoint
from libs.mesh.cluster_warehouses import iceberg_catalog
from libs.mesh.documents import MysqlDocument
from libs.mesh.mesh_settings import IcebergPlace, mesh_settings
from libs.mesh.recorded_checkpoints import RecordedCheckpoints, readers_now
from libs.mesh.stored_tables import reached_offsets
from libs.types.checkpoint import Checkpoint, FencingToken
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from libs.types.table import TableId
from libs.types.warehouse import warehouse_table
from libs.warehouse_readers.table_progress import progress_table
from libs.warehouse_readers.warehouse import QueryFailed, TenantTable
from tests.unit.mesh.test_tenant_objects import kubectl
from tests.unit.router.test_received_tenants import Operator, operator

__all__ = ["operator"]  # the fixture

SHOP: Mapping[str, Any] = {"database": {"host": "db", "user": "checker"}}
ACME = "tenant: acme\nsources: [{name: shop}]\nsink: {warehouse: delta}\n"
DELTA: Mapping[str, Any] = {"delta": {"warehouse_dir": "/lake"}}


def compared(folder: Path, environ: Mapping[str, str] | None = None, **instead: object) -> ComparedMesh:
    """By a file with one source, and documents of two tenants: one in Delta, one in Iceberg."""
    tenants = folder / "tenants"
    tenants.mkdir(exist_ok=True)
    for tenant, warehouse in (("acme", "delta"), ("globex", "iceberg")):
        (tenants / f"{tenant}.yaml").write_text(
            f"tenant: {tenant}\nsources: [{{name: shop}}, {{name: web}}]\nsink: {{warehouse: {warehouse}}}\n"
        )
    told = {"kafka": {}, "sources": {"shop": SHOP}, "warehouses": DELTA, "tenants_dir": str(tenants), **instead}
    file = folder / "mesh.yaml"
    file.write_text(yaml.safe_dump(told))
    settings = mesh_settings(file, environ or {})
    return compared_cluster(settings, {}, (), RecordedCheckpoints(settings.kafka), {})


def test_what_is_not_named_is_not_compared_and_told(tmp_path: Path) -> None:
    mesh = compared(tmp_path)

    assert [spec.tenant for spec in chosen_tenants(mesh, ())] == ["acme"]
    assert mesh.notes == (
        "acme: its tables of source web are not compared: sources of the file for --mesh does not name it",
        "globex: not compared: warehouses of the file for --mesh names no iceberg",
    )
    with pytest.raises(InvalidSettings, match="globex: not compared: warehouses of the file"):
        chosen_tenants(mesh, ["globex"])
    with pytest.raises(InvalidSettings, match="did you mean 'acme'"):
        chosen_tenants(mesh, ["acmee"])


def test_a_password_of_the_environment_is_the_sources_whatever_its_case(tmp_path: Path) -> None:
    environ = {"HEADWATER_SOURCES__BIG-SHOP__DATABASE__PASSWORD": "secret"}

    mesh = compared(tmp_path, environ, sources={"Big-shop": SHOP})

    document = mesh.sources["Big-shop"]
    assert list(mesh.sources) == ["Big-shop"]
    assert isinstance(document, MysqlDocument)
    assert (document.database.host, document.database.password.reveal()) == ("db", "secret")


async def test_the_operator_tells_which_documents_are_in_force(operator: Operator, tmp_path: Path) -> None:
    """Over a real connection, by the service that it serves; turn after turn."""
    told = msgspec.to_builtins(await operator.start())
    operator.in_force = {"acme": ACME, "new": "tenant: new\nno: document\n"}

    first = await asyncio.to_thread(compared, tmp_path, tenants_dir=None, tenant_operator=told)
    operator.in_force = {"acme": ACME, "other": ACME.replace("acme", "other")}
    second = await asyncio.to_thread(compared, tmp_path, tenants_dir=None, tenant_operator=told)

    assert (list(first.tenants), list(second.tenants)) == (["acme"], ["acme", "other"])
    assert first.notes[0].startswith("new: left out: ")


def test_of_config_maps_those_in_force_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another one nobody but the operator knows which document is."""
    states = {"acme": "ready", "half": "degraded", "bad": "refused", "new": None}
    listed = [config_map(name, ACME.replace("acme", name), state) for name, state in states.items()]
    (tmp_path / "list.json").write_text(json.dumps({"items": listed}))
    kubectl(tmp_path, monkeypatch, f"cat {tmp_path}/list.json")

    mesh = compared(tmp_path, tenants_dir=None, kubernetes={})

    assert list(mesh.tenants) == ["acme", "half"]
    assert mesh.notes[:2] == (
        "ConfigMap team/bad is refused: its tenant is left out",
        "ConfigMap team/new is new to the operator: its tenant is left out",
    )
    kubectl(tmp_path, monkeypatch, "exit 1")
    with pytest.raises(AccessDenied, match="have the documents in a folder, and name it by tenants_dir"):
        compared(tmp_path, tenants_dir=None, kubernetes={})


def config_map(name: str, document: str, state: str | None) -> dict[str, Any]:
    told = {} if state is None else {"headwater.dev/state": state}
    metadata = {"name": name, "namespace": "team", "annotations": told}
    return {"kind": "ConfigMap", "metadata": metadata, "data": {"tenant.yaml": document}}


@pytest.mark.parametrize(
    ("instead", "told"),
    [
        ({"sources": {}}, "sources: is missing"),
        ({"sources": {"shop": {"database": {"hst": "db"}}}}, "sources.shop.database.hst: unknown name"),
        ({"tenants_dir": None}, "give tenants_dir, kubernetes or tenant_operator"),
        (
            {
                "warehouses": {
                    "iceberg": {"warehouse_dir": "w", "catalog": {"kind": "hive", "uri": "thrift://127.0.0.1:9"}}
                }
            },
            "hive is read by Spark alone",
        ),
    ],
)
def test_what_the_file_lacks_is_told(tmp_path: Path, instead: Mapping[str, Any], told: str) -> None:
    with pytest.raises(InvalidSettings, match=told):
        compared(tmp_path, **instead)


def test_a_catalog_in_postgresql_is_reached_as_spark_reaches_it(tmp_path: Path) -> None:
    settings = {"kind": "jdbc", "uri": "jdbc:postgresql://db:5433/lake?sslmode=require", "user": "u"}
    file = tmp_path / "mesh.yaml"
    file.write_text(
        yaml.safe_dump({"kafka": {}, "warehouses": {"iceberg": {"warehouse_dir": "s3://lake", "catalog": settings}}})
    )
    environ = {"HEADWATER_WAREHOUSES__ICEBERG__CATALOG__PASSWORD": "p@ss"}
    place = mesh_settings(file, environ).warehouses.iceberg
    assert isinstance(place, IcebergPlace)

    properties = iceberg_catalog(place).properties

    assert properties["uri"] == "postgresql+psycopg://u:p%40ss@db:5433/lake?sslmode=require"
    assert properties["warehouse"] == "s3://lake"


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("jdbc:postgresql://db/lake?currentSchema=lists&ApplicationName=x", "options=-csearch_path%3Dlists"),
        ("jdbc:postgresql://db/lake?ssl=true&reWriteBatchedInserts=true", "db/lake?sslmode=verify-full"),
        ("jdbc:postgresql://db/lake?ssl=false", "db/lake"),
    ],
)
def test_parameters_of_jdbc_are_said_in_the_words_of_the_driver_here(uri: str, told: str) -> None:
    place = IcebergPlace(warehouse_dir="lake", catalog=CatalogSettings(kind=CatalogKind.JDBC, uri=uri))

    assert told in iceberg_catalog(place).properties["uri"]
    assert "reWriteBatchedInserts" not in iceberg_catalog(place).properties["uri"]


@pytest.mark.parametrize(
    ("uri", "mistake"),
    [
        ("jdbc:postgresql://db/lake?sslfactory=x", "parameter sslfactory is not known here"),
        ("jdbc:postgresql://a:5432,b:5432/lake", "of one server, to be read here"),
        ("jdbc:postgresql://a,b/lake", "of one server, to be read here"),
        ("jdbc:postgresql:///lake", "of one server, to be read here"),
    ],
)
def test_an_address_that_only_jdbc_takes_is_refused_by_name(uri: str, mistake: str) -> None:
    place = IcebergPlace(warehouse_dir="lake", catalog=CatalogSettings(kind=CatalogKind.JDBC, uri=uri))

    with pytest.raises(InvalidSettings, match=mistake):
        iceberg_catalog(place)


def checkpoint(name: str) -> Checkpoint:
    return Checkpoint(
        partition=SourcePartition(source="shop", name=name),
        position=SourcePosition(source_kind="mysql", token=b"{}"),
        order=EventOrder(epoch=0, rank=1, tx_ordinal=0),
        fencing_token=FencingToken(1),
        committed_at_us=0,
        published_at_us=0,
    )


@pytest.mark.parametrize(
    ("names", "now"),
    [
        ([], None),
        (["0"], ["0"]),
        (["0", "task0_2_0"], None),
        (["0", "task0_2_0", "task1_2_0"], ["task0_2_0", "task1_2_0"]),
        (["task0_2_0", "task1_2_0", "task0_1_1"], ["task0_1_1"]),
    ],
)
def test_of_a_keyspaces_readers_the_newest_generation_counts(names: list[str], now: list[str] | None) -> None:
    """And of that all have to have begun."""
    found = readers_now([checkpoint(name) for name in names])

    assert (None if found is None else [each.partition.name for each in found]) == now


def test_leases_and_resets_are_no_checkpoints_and_what_is_forgotten_is_none() -> None:
    recorded = RecordedCheckpoints(KafkaSettings())
    written = checkpoint("0")
    key, value = checkpoint_key(written.partition), encode_checkpoint(written)

    recorded._take(b"lease/" + key, value)
    recorded._take(key, b"\xff")
    assert recorded._newest == {}
    recorded._take(key, value)
    assert recorded._newest == {key: written}
    recorded._take(key, None)

    assert recorded._newest == {}


class Told:
    """A warehouse whose commits say ``rows``."""

    def __init__(self, *rows: Mapping[str, Any]) -> None:
        self.rows = rows

    def load(self, _place: object) -> None:
        return None

    def progress(self, _tables: object) -> Any:
        if not self.rows:
            raise QueryFailed("not there yet")
        return progress_table(self.rows)


def test_how_far_a_table_got_is_what_its_own_commits_say() -> None:
    """PostgreSQL answers with the commits of all tables of a tenant."""
    table_id = TableId(database="shop", table="orders")
    table = TenantTable("acme", "shop", table_id, warehouse_table("acme", "shop", table_id))
    own = {"source": "shop", "table": "shop.orders"}

    told = Told(
        {**own, "offsets": '{"0": 7, "1": 3}'},
        {**own, "offsets": '{"0": 5}'},
        {**own, "offsets": None},
        {**own, "source": "web", "offsets": '{"0": 99}'},
    )

    assert reached_offsets(told, table) == {0: 7, 1: 3}
    assert reached_offsets(Told(), table) == {}
