"""Catalogs: the Spark settings of each kind, and the places that their tables have.

Names of settings: Iceberg documentation, "Spark configuration", Catalogs; "Configuration", Catalog properties.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from libs.config.iceberg_catalog import CatalogKind, CatalogSettings
from libs.types.warehouse import CATALOG, WarehouseTable
from spark.sinks.iceberg.object_stores import object_store_of

_FLAT: Final = (CatalogKind.HIVE, CatalogKind.GLUE)
"""Their databases lie side by side, none in another."""
_FLAT_LEVEL: Final = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
_BETWEEN_LEVELS: Final = "__"
_MAX_FLAT_CHARACTERS: Final = 128


def catalog_config(settings: CatalogSettings, warehouse: str) -> Mapping[str, str]:
    """Spark's settings; ``warehouse`` is the URI under which the tables lie, or a REST catalog's name for it."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    own = {
        **_storage(settings, warehouse),
        # A table that one session wrote must not look old to another.
        "cache-enabled": "false",
        "warehouse": warehouse,
        **_reached_by(settings),
        **settings.properties,
    }
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", **{f"{prefix}.{name}": own[name] for name in own}}


def is_flat(settings: CatalogSettings) -> bool:
    """Whether its databases lie side by side, none in another."""
    return settings.kind in _FLAT


def place_in(settings: CatalogSettings, table: WarehouseTable) -> WarehouseTable:
    """Where the table lies in such a catalog. Those of ``hive`` and ``glue`` know one level, and names in lower case.

    >>> place_in(CatalogSettings(kind=CatalogKind.GLUE), WarehouseTable(namespace=("acme", "shop", "shop"), name="orders"))
    WarehouseTable(namespace=('acme__shop__shop',), name='orders')
    """
    if not is_flat(settings):
        return table
    return WarehouseTable(namespace=(_flat_name(table.namespace),), name=_flat_name((table.name,)))


def _flat_name(levels: Sequence[str]) -> str:
    """One name of lower-case letters, digits and ``_`` for several; different ones stay apart."""
    joined = _BETWEEN_LEVELS.join(levels)
    if all(_FLAT_LEVEL.fullmatch(level) for level in levels) and len(joined) <= _MAX_FLAT_CHARACTERS:
        return joined
    digest = hashlib.sha256("\0".join(levels).encode()).hexdigest()[:8]
    return f"{re.sub('[^a-z0-9_]', '_', joined.lower())[: _MAX_FLAT_CHARACTERS - 9]}_{digest}"


def _storage(settings: CatalogSettings, warehouse: str) -> dict[str, str]:
    store = object_store_of(warehouse)
    if store is None or settings.kind in (CatalogKind.REST, CatalogKind.GLUE):  # these two know by themselves
        return {}
    return {"io-impl": store.file_io}


def _reached_by(settings: CatalogSettings) -> dict[str, str]:
    match settings.kind:
        case CatalogKind.SQLITE:
            # WAL: a reader of the catalog never stops a commit, nor a commit a reader.
            pragmas = f"busy_timeout={settings.busy_timeout_ms}&journal_mode=WAL"
            file = Path(settings.file or "").absolute()
            return {"type": "jdbc", "uri": f"jdbc:sqlite:{file}?{pragmas}", "jdbc.schema-version": "V1"}
        case CatalogKind.JDBC:
            user = {"jdbc.user": settings.user} if settings.user is not None else {}
            password = {"jdbc.password": settings.password.reveal()} if settings.password is not None else {}
            return {"type": "jdbc", "uri": settings.uri or "", "jdbc.schema-version": "V1", **user, **password}
        case CatalogKind.REST:
            given = {"credential": settings.credential, "token": settings.token}
            secrets = {name: secret.reveal() for name, secret in given.items() if secret is not None}
            return {
                "type": "rest",
                "uri": settings.uri or "",
                **({"rest.auth.type": "oauth2"} if secrets else {}),
                **secrets,
            }
        case CatalogKind.HIVE:
            return {"type": "hive", "uri": settings.uri or ""}
        case CatalogKind.HADOOP | CatalogKind.GLUE:
            return {"type": settings.kind.value}
