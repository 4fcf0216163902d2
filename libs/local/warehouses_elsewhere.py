"""Warehouses of a mesh elsewhere, read without Spark: Iceberg by its catalog, Delta by its folder, PostgreSQL by its server."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError, OAuthError, RESTError, UnauthorizedError
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from libs.config.iceberg_catalog import CatalogKind
from libs.errors import AccessDenied, InvalidSettings, ServiceUnavailable
from libs.local.delta_warehouse import DeltaTables
from libs.local.documents import DELTA, ICEBERG, POSTGRESQL
from libs.local.mesh import IcebergPlace, WarehousePlaces
from libs.local.postgresql_warehouse import PostgresqlWarehouse
from libs.local.warehouse import IcebergTables, StoredTable, TableStore, TenantTable
from libs.types.warehouse import CATALOG, WarehouseTable

_JDBC_OF_POSTGRESQL: Final = "jdbc:postgresql://"
_DRIVER: Final = "postgresql+psycopg://"


class CatalogTables(IcebergTables):
    """The tables of a catalog elsewhere (``TableStore``), whose errors are named."""

    def __init__(self, place: IcebergPlace) -> None:
        """Raises as ``iceberg_catalog``, and ServiceUnavailable, AccessDenied."""
        with _errors_named(place):
            super().__init__(iceberg_catalog(place))
        self._place = place

    def load(self, place: WarehouseTable) -> StoredTable | None:
        with _errors_named(self._place):
            return super().load(place)

    def progress(self, tables: Sequence[TenantTable]) -> pa.Table:
        with _errors_named(self._place):
            return super().progress(tables)


def table_store(places: WarehousePlaces, warehouse: str) -> TableStore | None:
    """The warehouse that tenants' documents call so; None: the mesh's file does not name it.

    Raises:
        InvalidSettings: it is read by Spark alone.
        ServiceUnavailable, AccessDenied: its catalog does not answer, or refuses.
    """
    match warehouse:
        case _ if warehouse == ICEBERG and places.iceberg is not None:
            return CatalogTables(places.iceberg)
        case _ if warehouse == DELTA and places.delta is not None:
            return DeltaTables(places.delta.warehouse_dir)
        case _ if warehouse == POSTGRESQL and places.postgresql is not None:
            return PostgresqlWarehouse(places.postgresql)
        case _:
            return None


def iceberg_catalog(place: IcebergPlace) -> Catalog:
    """The catalog, by pyiceberg. Secrets of the storage are looked for in the environment (``AWS_SECRET_ACCESS_KEY`` …).

    Raises:
        InvalidSettings: pyiceberg knows no such catalog.
    """
    settings = place.catalog
    own = {"warehouse": place.warehouse_dir, **settings.properties}
    match settings.kind:
        case CatalogKind.SQLITE:
            return SqlCatalog(CATALOG, uri=f"sqlite:///{settings.file}", init_catalog_tables="false", **own)
        case CatalogKind.JDBC if (settings.uri or "").startswith(_JDBC_OF_POSTGRESQL):
            url = make_url((settings.uri or "").replace(_JDBC_OF_POSTGRESQL, _DRIVER, 1)).set(
                username=settings.user, password=None if settings.password is None else settings.password.reveal()
            )
            uri = url.render_as_string(hide_password=False)
            return SqlCatalog(CATALOG, uri=uri, init_catalog_tables="false", **own)
        case CatalogKind.REST:
            secrets = {"credential": settings.credential, "token": settings.token}
            given = {name: secret.reveal() for name, secret in secrets.items() if secret is not None}
            return RestCatalog(CATALOG, uri=settings.uri or "", **own, **given)
        case _:
            raise InvalidSettings(
                "warehouses.iceberg",
                [
                    f"catalog.kind: {settings.kind.value} is read by Spark alone; rest, jdbc of a PostgreSQL, and sqlite are "
                    "read here: leave the warehouse out, and its tenants are not compared"
                ],
            )


@contextlib.contextmanager
def _errors_named(place: IcebergPlace) -> Iterator[None]:
    called = f"the catalog of Iceberg tables ({place.catalog.kind.value}, {place.catalog.uri or place.catalog.file})"
    try:
        yield
    except (UnauthorizedError, ForbiddenError, OAuthError) as error:
        raise AccessDenied(f"{called} refuses: {error}; look at warehouses.iceberg.catalog and its secrets") from error
    except (RESTError, SQLAlchemyError, OSError) as error:
        raise ServiceUnavailable(f"{called} does not answer: {str(error).splitlines()[0]}") from error
