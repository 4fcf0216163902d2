"""Settings of the Delta sink: ``warehouses.delta`` of the job's settings."""

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tables lie, and how they are kept."""

    warehouse_dir: str
    """Folder, or URI of an object store, under which each table has a folder of its own."""
    wide: tuple[str, ...] = ()
    """Regular expressions for ``database.table`` at the source: new tables of such names ask nothing of readers, neither
    mapped names nor deletion vectors, so that delta-rs, Polars and DuckDB open them too. Each update of one writes whole files,
    and its columns keep their names. Existing tables stay as they are."""
    is_clustered: bool = False
    """Create mirrors with liquid clustering by their key (at most four columns of it). Off by default: each OPTIMIZE then
    sorts later rows, and few readers of such tables ask by key."""
    is_maintaining: bool = True
    """Rewrite small files and remove files that no reader needs any more. False where another job does."""
    optimize_at_files: int = 64
    """A table is optimized when it has grown to so many files, and again when it has doubled them."""
    vacuum_every_commits: int = 200
    """How often files older than ``keep_hours`` are looked for; each time the whole folder is listed."""
    rewrites_widened: bool = True
    """Write a table's files again when a column of it has widened, so that the table does without the feature ``typeWidening``:
    few engines but Spark read a table that has it. False where tables are too large for that, and Spark alone reads them."""
    keep_hours: int = 168
    """For how long files that were replaced stay, for readers that began with an older version. Below 168 a long query, or a
    writer that stands, may lose its files; Delta asks for that to be confirmed, and the sink does so."""

    @property
    def places(self) -> dict[str, str]:
        """Where it lies, a folder or a URI, by the name of the field."""
        return {"warehouse_dir": self.warehouse_dir}
