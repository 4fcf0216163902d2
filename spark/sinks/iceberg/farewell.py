"""A tenant's tables in any catalog, to be dropped: those that are its own by their place, and no other's."""

from collections.abc import Iterable, Iterator
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.config.iceberg_catalog import CatalogSettings
from libs.types.table import TableId
from libs.types.warehouse import CONSISTENT_TABLE, SOURCE_PROPERTY, TABLE_PROPERTY, WarehouseTable, warehouse_table
from spark.jvm.java import java_array, java_class
from spark.sinks.iceberg.catalog import is_flat, place_in

_NOT_EMPTY = "NamespaceNotEmptyException"
_MISSING = "NoSuchNamespaceException"


def tenant_tables(spark: SparkSession, catalog: Any, settings: CatalogSettings, tenant: str) -> list[Any]:
    """Identifiers of Iceberg's. In a catalog of several levels all below the tenant's; in a flat one, whose names run
    into one another, the tables whose properties name the tenant."""
    if not is_flat(settings):
        return [table for namespace in _below(spark, catalog, tenant) for table in catalog.listTables(namespace)]
    own = place_in(settings, WarehouseTable(namespace=(tenant,), name=CONSISTENT_TABLE))
    begins = own.namespace[0].rpartition("_")[0] if "-" in tenant else own.namespace[0]
    return [
        table
        for namespace in catalog.listNamespaces()
        if str(namespace.level(0)).startswith(begins)
        for table in catalog.listTables(namespace)
        if _is_of(catalog, settings, tenant, table)
        or (str(namespace.level(0)), str(table.name())) == (own.namespace[0], own.name)
    ]


def drop_namespaces(
    spark: SparkSession, catalog: Any, settings: CatalogSettings, tenant: str, held_tables: Iterable[Any]
) -> None:
    """Those of the tenant, innermost first; one in which somebody else has put something stays."""
    found = held_tables if is_flat(settings) else reversed(list(_below(spark, catalog, tenant)))
    for namespace in found:
        try:
            catalog.dropNamespace(namespace)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() not in (_NOT_EMPTY, _MISSING):
                raise


def _below(spark: SparkSession, catalog: Any, tenant: str) -> Iterator[Any]:
    """The tenant's namespace and all within it, outer ones first."""
    waiting = [java_class(spark, "org.apache.iceberg.catalog.Namespace").of(java_array(spark, "String", [tenant]))]
    while waiting:
        namespace = waiting.pop()
        try:
            inner = list(catalog.listNamespaces(namespace))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != _MISSING:
                raise
            continue
        yield namespace
        waiting += inner


def _is_of(catalog: Any, settings: CatalogSettings, tenant: str, identifier: Any) -> bool:
    """By the sink's note from when it made the table."""
    properties = catalog.loadTable(identifier).properties()
    source, table = properties.get(SOURCE_PROPERTY), properties.get(TABLE_PROPERTY)
    if source is None or table is None:
        return False
    levels = table.split(".")  # either name may have dots itself
    names = (TableId(database=".".join(levels[:at]), table=".".join(levels[at:])) for at in range(1, len(levels)))
    places = (place_in(settings, warehouse_table(tenant, source, table_id)) for table_id in names)
    found = (str(identifier.namespace().level(0)), str(identifier.name()))
    return any((*place.namespace, place.name) == found for place in places)
