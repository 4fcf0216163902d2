"""Iceberg tables in a home, written by pyiceberg: files as the sink would have left, for tests of their readers."""

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from libs.mesh.home import Home
from libs.types.table import TableId
from libs.types.warehouse import CATALOG, warehouse_table
from libs.warehouse_readers.warehouse import SOURCE_PROPERTY, TABLE_PROPERTY


def write_table(home: Home, tenant: str, source: str, table: str, rows: pa.Table, *, is_new: bool = True) -> None:
    """Make the tenant's table of ``database.table`` (or take it, emptied) and append ``rows``."""
    home.warehouse_dir.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{home.catalog_file}", warehouse=home.warehouse_dir.as_uri())
    database, _, name = table.partition(".")
    place = warehouse_table(tenant, source, TableId(database=database, table=name))
    catalog.create_namespace_if_not_exists(place.namespace)
    if is_new:
        catalog.create_table(place.identifier, rows.schema, properties={SOURCE_PROPERTY: source, TABLE_PROPERTY: table})
    catalog.load_table(place.identifier).overwrite(rows)
    catalog.close()
