"""Settings of the Iceberg sink: ``warehouses.iceberg`` of the job's settings."""

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tables and their catalog lie."""

    warehouse_dir: str
    """Folder, or URI of an object store, under which each table has a folder of its own."""
    catalog_file: str
    """SQLite file of the catalog (Iceberg's JDBC catalog, schema V1), which pyiceberg's SqlCatalog reads too."""
    busy_timeout_ms: int = 30_000
    """How long a commit waits while another process holds the catalog, in milliseconds. Readers hold it for
    milliseconds; half a minute is a reader that was stopped in the middle."""
    is_maintaining: bool = True
    """Rewrite a table's small files into large ones, and expire old snapshots, when many have come together. False
    where another job does."""
    rewrite_at_delete_files: int = 64
    """A table's files are rewritten when it has this many delete files: each merge adds up to one for each task, and every
    read and merge opens all of them."""
    keep_snapshots: int = 100
    """How many snapshots of a table stay, for readers that began with an older one: at least this many triggers."""
