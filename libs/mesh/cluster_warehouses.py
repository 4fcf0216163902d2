"""Warehouses of a mesh elsewhere, read without Spark: Iceberg by its catalog, Delta by its folder, others by their server."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError, OAuthError, RESTError, UnauthorizedError
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from libs.config.iceberg_catalog import CatalogKind, CatalogSettings
from libs.errors import AccessDenied, HeadwaterError, InvalidSettings, ServiceUnavailable
from libs.mesh.documents import CLICKHOUSE, DELTA, ICEBERG, POSTGRESQL
from libs.mesh.mesh_settings import IcebergPlace, WarehousePlaces
from libs.postgresql.connection import is_missing_table, is_refusal
from libs.tenants.place import nearest
from libs.types.warehouse import CATALOG, WarehouseTable
from libs.warehouse_readers.clickhouse import ClickhouseTables
from libs.warehouse_readers.delta import DeltaTables
from libs.warehouse_readers.postgresql import PostgresqlWarehouse
from libs.warehouse_readers.warehouse import IcebergTables, StoredTable, TableStore, TenantTable

_JDBC_OF_POSTGRESQL: Final = "jdbc:postgresql://"
_DRIVER: Final = "postgresql+psycopg://"
_GUARDS: Final = ("ssl", "gss")
"""How parameters begin that say how the connection is guarded."""
_OPTIONS: Final = ("user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey", "options")
"""Parameters that JDBC's driver of PostgreSQL and libpq call alike."""
_OPTIONS_OF_JDBC: Final[Mapping[str, Callable[[str], dict[str, str]]]] = {
    "currentSchema": lambda value: {"options": f"-csearch_path={value}"},
    "ApplicationName": lambda value: {"application_name": value},
    "connectTimeout": lambda value: {"connect_timeout": value},
    "ssl": lambda value: {} if value.lower() == "false" else {"sslmode": "verify-full"},
}
_ANY_TABLE: Final = ("headwater", "headwater")
"""It may be missing."""
_KNOWN_OPTIONS: Final = (*_OPTIONS, *_OPTIONS_OF_JDBC)


class CatalogTables(IcebergTables):
    """The tables of a catalog elsewhere (``TableStore``), whose errors are named."""

    def __init__(self, place: IcebergPlace) -> None:
        """Raises as ``iceberg_catalog``, and ServiceUnavailable, AccessDenied."""
        with _errors_named(place):
            catalog = iceberg_catalog(place)
            if place.catalog.kind is CatalogKind.JDBC:
                catalog.table_exists(_ANY_TABLE)  # REST is asked as it is opened, a database with the first question
            super().__init__(catalog)
        self._place = place
        self.close = catalog.close
        """Let go of the connections; nothing is asked of it any more."""

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
        case _ if warehouse == CLICKHOUSE and places.clickhouse is not None:
            return ClickhouseTables(places.clickhouse)
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
            uri = _url_of(settings).render_as_string(hide_password=False)
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


def _url_of(settings: CatalogSettings) -> URL:
    """JDBC's address of a PostgreSQL as the driver here takes it. Parameters that only tune JDBC's driver are left out.

    Raises:
        InvalidSettings: with required settings that are not known here.
    """
    mistakes = []
    try:
        url = make_url((settings.uri or "").replace(_JDBC_OF_POSTGRESQL, _DRIVER, 1))
    except (ArgumentError, ValueError):
        url = None
    if url is None or url.host is None or "," in url.host:
        mistakes.append("catalog.uri: must be jdbc:postgresql://host:port/database, of one server, to be read here")
        url = URL.create(_DRIVER.removesuffix("://"))
    options: dict[str, str] = {}
    for name, values in url.normalized_query.items():
        if name in _OPTIONS_OF_JDBC:
            options |= _OPTIONS_OF_JDBC[name](values[-1])
        elif name in _OPTIONS:
            options[name] = values[-1]
        elif name.startswith(_GUARDS):
            mistakes.append(f"catalog.uri: parameter {name} is not known here; {nearest(name, _KNOWN_OPTIONS)}")
    if mistakes:
        raise InvalidSettings("warehouses.iceberg", mistakes)
    password = None if settings.password is None else settings.password.reveal()
    return url.set(username=settings.user, password=password, query=options)


@contextlib.contextmanager
def _errors_named(place: IcebergPlace) -> Iterator[None]:
    where = (place.catalog.uri or place.catalog.file or "").partition("?")[0]  # a password may follow it
    called = f"the catalog of Iceberg tables ({place.catalog.kind.value}, {where})"
    try:
        yield
    except (UnauthorizedError, ForbiddenError, OAuthError) as error:
        raise AccessDenied(f"{called} refuses: {error}; look at warehouses.iceberg.catalog and its secrets") from error
    except DBAPIError as error:
        raise _sql_error(called, error) from error
    except (RESTError, SQLAlchemyError, OSError) as error:
        raise ServiceUnavailable(f"{called} does not answer: {str(error).splitlines()[0]}") from error


def _sql_error(called: str, error: DBAPIError) -> HeadwaterError:
    """Of a catalog that is a database."""
    reason = str(error.orig).strip().splitlines()[0]
    if is_refusal(error.orig):
        return AccessDenied(f"{called} refuses: {reason}; look at warehouses.iceberg.catalog and its secrets")
    if is_missing_table(error.orig):
        return ServiceUnavailable(
            f"{called} has no list of tables that this user sees: {reason}; the first Spark job makes it, else look at the "
            "database, its currentSchema and the user's rights"
        )
    return ServiceUnavailable(f"{called} does not answer: {reason}")
