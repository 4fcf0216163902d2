"""Nessie as the catalog, tables in an object store: Iceberg's own REST client with the sink's settings, and pyiceberg."""

from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from libs.config.iceberg_catalog import CatalogKind, CatalogSettings
from libs.servers.ports import free_port, free_ports
from libs.types.warehouse import CATALOG
from spark.sinks.iceberg.catalog import catalog_config
from tests.cluster import programs
from tests.conftest import started
from tests.integration.test_iceberg_glue import PREFIX, java_with_aws
from tests.nessie_catalog import WAREHOUSE, prepare_nessie, uri_at
from tests.object_store import REGION, ObjectStore

SCHEMA = (
    '{"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": false, "type": "long"},'
    ' {"id": 2, "name": "note", "required": false, "type": "string"}]}'
)


@pytest.mark.rest(because="245 MB are fetched for it; the gate has the REST catalog, in test_iceberg_catalogs.py")
def test_nessie_takes_tables_and_commits_of_icebergs_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes a table three levels deep and commits to it; rows that another program appended stand in its next look."""
    program = programs.build_object_store()
    assert program is not None, "the object store cannot be built: see above; `make cluster-programs` tries again"
    store = ObjectStore(program, tmp_path / "store", free_port())
    for name, value in store.environ.items():
        monkeypatch.setenv(name, value)
    port, management_port = free_ports(2)
    given = CatalogSettings(kind=CatalogKind.REST, uri=uri_at(port), properties={"client.region": REGION})
    config = catalog_config(given, WAREHOUSE)
    properties = {name.removeprefix(PREFIX): value for name, value in config.items() if name.startswith(PREFIX)}
    place = ("acme", "shop", "shop", "orders")

    with ExitStack() as servers:
        started(store.spec(), tmp_path / "store-logs", servers)
        store.make_bucket("lake")
        nessie = prepare_nessie(
            tmp_path / "catalog", store, location="s3://lake/warehouse", port=port, management_port=management_port
        )
        started(nessie, tmp_path / "catalog-logs", servers)
        jvm = servers.enter_context(java_with_aws())
        catalog = jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(CATALOG, properties, None)
        identifier = jvm.org.apache.iceberg.catalog.TableIdentifier.parse
        for levels in range(1, len(place)):
            catalog.createNamespace(identifier(".".join(place[: levels + 1])).namespace())
        table = catalog.createTable(identifier(".".join(place)), jvm.org.apache.iceberg.SchemaParser.fromJson(SCHEMA))
        table.updateProperties().set("headwater.batch", "1").commit()
        written = table.io().newOutputFile(f"{table.location()}/data/mine").create()
        written.write(bytearray(b"mine"))
        written.close()
        by_key = {"s3.access-key-id": store.key, "s3.secret-access-key": store.secret, **store.properties}
        other = RestCatalog(CATALOG, uri=uri_at(port), warehouse=WAREHOUSE, **by_key).load_table(place)
        other.append(pa.table({"id": [1, 2], "note": ["a", None]}))
        table.refresh()

        assert table.location().startswith("s3://lake/warehouse/")
        assert store.file_of(f"{table.location()}/data/mine").read_bytes() == b"mine"
        assert other.properties["headwater.batch"] == "1"
        assert table.currentSnapshot().summary()["total-records"] == "2"
