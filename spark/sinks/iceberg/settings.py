"""Settings of the Iceberg sink: ``warehouses.iceberg`` of the job's settings."""

import enum
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from libs.config.load import Secret
from libs.errors import InvalidSettings


class CatalogKind(enum.Enum):
    """What keeps the list of tables, and swaps a table's old state for its new one."""

    SQLITE = "sqlite"
    """A file: the job and its readers are on one machine."""
    JDBC = "jdbc"
    """A database; PostgreSQL's driver is there, another's jar lies in ``session.more_jars_dir``."""
    REST = "rest"
    """A service that has the tables' places too: ``warehouse_dir`` is what it knows the warehouse by, a name mostly."""
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


def is_s3(place: str) -> bool:
    """Whether it is a URI in S3, by whatever name Hadoop or Iceberg have for it."""
    return place.partition("://")[0] in ("s3", "s3a", "s3n")


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
        """Raises InvalidSettings with every field that its kind needs and has not, or has and does not know."""
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
            "into password (each by the environment), the storage's into what its client looks for there "
            "(AWS_SECRET_ACCESS_KEY ...)"
            for name in self.properties
            if _SECRET_PROPERTY.fullmatch(name)
        ]
        if mistakes:
            raise InvalidSettings("catalog", mistakes)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tables and their catalog lie, and how the tables are kept."""

    warehouse_dir: str
    """Folder, or URI of an object store, under which each table has a folder of its own; of a REST catalog its name for it."""
    catalog: CatalogSettings
    format_version: int = 2
    """Of tables that are created from now on: 2, or 3, whose deletes are deletion vectors, which fewer engines read."""
    is_maintaining: bool = True
    """Rewrite small files into large ones, expire old snapshots, and remove what no snapshot needs. False where another job
    does."""
    filter_merges_at_rows: int = 1_000_000
    """A mirror or history with so many rows is merged by a filter over the batch's keys, which costs a small job and spares the
    sort of the whole table; where the batch has more than a quarter as many changes it is not."""
    rewrite_at_delete_files: int = 64
    """A table's files are rewritten when it has this many delete files, and one for every two data files: each merge adds up to
    one for each task, and every read and merge opens all of them."""
    rewrite_at_files: int = 64
    """Also when it has grown to this many data files that are small on average, and again when it has doubled them."""
    target_file_mb: int = 128
    """How large rewritten files become, where there is as much."""
    keep_snapshots: int = 100
    """How many snapshots of a table stay, for readers that began with an older one: at least this many triggers."""
    orphans_every_commits: int = 2_000
    """How often a table's folder is listed for files that no snapshot knows, left by tasks that were killed; 0: never."""
    orphans_older_than_hours: int = 72
    """Only such as are older than this go: a younger one may be a commit that is under way. At least 24."""

    @property
    def is_folder(self) -> bool:
        """Whether the tables lie in a folder of this machine, or one that looks so."""
        return self.catalog.kind is not CatalogKind.REST and "://" not in self.warehouse_dir

    @property
    def places(self) -> dict[str, str]:
        """Where it lies, folders or URIs, by the name of the field."""
        found = {"warehouse_dir": self.warehouse_dir} if self.catalog.kind is not CatalogKind.REST else {}
        return found if self.catalog.file is None else {**found, "catalog.file": self.catalog.file}

    def __post_init__(self) -> None:
        """Raises InvalidSettings with every value that makes no sense."""
        mistakes = []
        if self.catalog.kind is CatalogKind.HADOOP and is_s3(self.warehouse_dir):
            mistakes.append(
                "catalog.kind: hadoop commits by renaming a file, which S3 does by copying it, and one could be lost; take "
                "jdbc, rest or glue"
            )
        if self.format_version not in (2, 3):
            mistakes.append("format_version: must be 2 or 3: merges need one of these")
        if self.orphans_older_than_hours < 24:
            mistakes.append("orphans_older_than_hours: must be at least 24: younger files may be of a commit under way")
        for name in (
            "filter_merges_at_rows",
            "rewrite_at_delete_files",
            "rewrite_at_files",
            "target_file_mb",
            "keep_snapshots",
        ):
            if getattr(self, name) < 1:
                mistakes.append(f"{name}: must be at least 1")
        if self.orphans_every_commits < 0:
            mistakes.append("orphans_every_commits: must be 0 (never) or more")
        if mistakes:
            raise InvalidSettings("iceberg", mistakes)
