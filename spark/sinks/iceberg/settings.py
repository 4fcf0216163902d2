"""Settings of the Iceberg sink: ``warehouses.iceberg`` of the job's settings."""

import msgspec

from libs.config.iceberg_catalog import CatalogKind, CatalogSettings
from libs.errors import InvalidSettings
from spark.sinks.iceberg.object_stores import object_store_of


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tables and their catalog lie, and how the tables are kept."""

    warehouse_dir: str
    """Folder, or URI of an object store, under which each table has a folder of its own; of a REST catalog its name for it."""
    catalog: CatalogSettings
    format_version: int = 2
    """Of tables that are created from now on: 2, or 3, whose deletes are deletion vectors, which fewer engines read."""
    is_maintaining: bool = True
    """Rewrite small files into large ones, expire old snapshots, and remove files that no snapshot needs. False where
    another job does."""
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
        store = object_store_of(self.warehouse_dir)
        if self.catalog.kind is CatalogKind.HADOOP and store is not None:
            mistakes.append(
                f"catalog.kind: hadoop commits by renaming a file, which is no single step in {store.name}, and one could be "
                "lost; take jdbc, rest or glue"
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
