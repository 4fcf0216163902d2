"""How the catalog of Iceberg tables is reached: by the sink job, and by readers of its tables without Spark."""

import enum
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from libs.config.load import Secret
from libs.errors import InvalidSettings


class CatalogKind(enum.Enum):
    """The keeper of the list of tables, which swaps a table's old state for its new one."""

    SQLITE = "sqlite"
    """A file: the job and its readers are on one machine."""
    JDBC = "jdbc"
    """A database; PostgreSQL's driver is there, another's jar lies in ``session.more_jars_dir``."""
    REST = "rest"
    """A service that has the tables' places too: ``warehouse_dir`` is its name for the warehouse."""
    HADOOP = "hadoop"
    """No service at all, only the warehouse's folder; safe where renaming a file is atomic (HDFS, a local disk), not in S3."""
    HIVE = "hive"
    GLUE = "glue"
    """Its jars (``iceberg-aws-bundle``) lie in ``session.more_jars_dir``."""


_WITH_URI = (CatalogKind.JDBC, CatalogKind.REST, CatalogKind.HIVE)
_SECRET_PROPERTY: Final = re.compile(
    r"(.*[.-])?(password|token|credential|authorization|account\.key)|.*(secret|sas-token).*", re.IGNORECASE
)
"""By Iceberg's names. ``client.credentials-provider`` is none: it names a class."""


class CatalogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which catalog, and how it is reached."""

    kind: CatalogKind
    file: str | None = None
    """Of ``sqlite``: the file (Iceberg's JDBC catalog, schema V1), which pyiceberg's SqlCatalog reads too."""
    uri: str | None = None
    """Of ``jdbc`` (``jdbc:postgresql://…``), ``rest`` (``https://…``) and ``hive`` (``thrift://…``)."""
    user: str | None = None
    """Of ``jdbc``."""
    password: Secret | None = None
    """Of ``jdbc``."""
    credential: Secret | None = None
    """Of ``rest``: ``client:secret`` for OAuth2, for which the catalog gives tokens."""
    token: Secret | None = None
    """Of ``rest``, in its place: a bearer token that somebody else gave."""
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Further properties of the catalog by Iceberg's names (``oauth2-server-uri``, ``s3.endpoint`` …). Secrets are refused: the
    fields above are for the catalog's, the environment of the job (``AWS_SECRET_ACCESS_KEY`` …) for the storage's."""
    busy_timeout_ms: int = 30_000
    """Of ``sqlite``: how long a commit waits while another process holds the file, in milliseconds. Readers hold it for
    milliseconds; half a minute is a reader that was stopped in the middle."""

    def __post_init__(self) -> None:
        """Raises InvalidSettings with every field that its kind needs and lacks, or has and does not know."""
        kind, mistakes = self.kind, []
        wanted = {"file": kind is CatalogKind.SQLITE, "uri": kind in _WITH_URI}
        for name, is_wanted in wanted.items():
            if is_wanted and getattr(self, name) is None:
                mistakes.append(f"{name}: is missing; a catalog of kind {kind.value} needs it")
            elif not is_wanted and getattr(self, name) is not None:
                mistakes.append(f"{name}: a catalog of kind {kind.value} has none; leave it out")
        of_kind = {
            "user": CatalogKind.JDBC,
            "password": CatalogKind.JDBC,
            "credential": CatalogKind.REST,
            "token": CatalogKind.REST,
        }
        mistakes += [
            f"{name}: is for a catalog of kind {owner.value}; leave it out"
            for name, owner in of_kind.items()
            if kind is not owner and getattr(self, name) is not None
        ]
        if kind is CatalogKind.JDBC and self.uri is not None and not self.uri.startswith("jdbc:"):
            mistakes.append("uri: must begin with jdbc:, as in jdbc:postgresql://host:5432/database")
        if self.credential is not None and self.token is not None:
            mistakes.append("token: the catalog gives tokens for credential; leave one of both out")
        mistakes += [
            f"properties.{name}: is a secret, which stands in no file: a REST catalog's goes into credential or token, JDBC's "
            "into password (each by the environment), the storage's into the variables that its client reads "
            "(AWS_SECRET_ACCESS_KEY ...)"
            for name in self.properties
            if _SECRET_PROPERTY.fullmatch(name)
        ]
        if mistakes:
            raise InvalidSettings("catalog", mistakes)
