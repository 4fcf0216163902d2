"""The one Spark session of a worker: it takes 5 to 20 s to start and a gigabyte, so every test shares it.

Its warehouse is a folder of the run; tests keep apart by tenant names.
"""

import atexit
import contextlib
import functools
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from libs.config.iceberg_catalog import CatalogKind, CatalogSettings
from libs.mesh.processes import SINK_JAVA_OPTIONS
from libs.setup.spark_toolchain import find_toolchain
from libs.types.warehouse import CATALOG, WarehouseTable
from spark.session.start import open_session
from spark.settings import SessionSettings
from spark.sinks.delta.settings import Settings as DeltaSettings
from spark.sinks.delta.sink import open_sink as open_delta_sink
from spark.sinks.iceberg.settings import Settings
from spark.sinks.iceberg.sink import IcebergSink, open_sink
from spark.sinks.postgresql.settings import Settings as PostgresqlSettings
from spark.sinks.postgresql.sink import open_sink as open_postgresql_sink
from tests.marks import need

Row = dict[str, object]

_INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class SharedSpark:
    """A session with an Iceberg and a Delta warehouse."""

    session: SparkSession
    sink: IcebergSink
    iceberg: Settings
    delta: DeltaSettings

    def rows(self, table: WarehouseTable, *columns: str) -> list[Row]:
        """Rows as pyiceberg, which shares no code with Spark, reads them from a table; all of the source's columns by
        default."""
        return read_rows(self.iceberg, table, *columns)

    def loaded(self, table: WarehouseTable) -> contextlib.AbstractContextManager[Table]:
        """The table itself, as pyiceberg sees it."""
        return loaded(self.iceberg, table)


def shared_spark() -> SharedSpark:
    """The session; started by the first test that asks, ended with the process."""
    need("spark")
    return _started()


@functools.cache
def _started() -> SharedSpark:
    folder = Path(tempfile.mkdtemp(prefix="headwater-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    iceberg = Settings(
        warehouse_dir=str(folder / "warehouse"),
        catalog=CatalogSettings(kind=CatalogKind.SQLITE, file=str(folder / "catalog.db")),
        rewrite_at_delete_files=4,
        keep_snapshots=3,
        filter_merges_at_rows=1,
    )
    sink = open_sink(iceberg)
    # Only its settings say where; the session works without.
    postgresql = open_postgresql_sink(PostgresqlSettings(database="none", user="nobody"))
    delta = DeltaSettings(
        warehouse_dir=str(folder / "delta"), optimize_at_files=4, vacuum_every_commits=4, keep_hours=0
    )
    sinks = [sink, postgresql, open_delta_sink(delta)]
    session = open_session(session_settings(folder), sinks, name="tests")
    # A job ends with its process, but a test's query has to before the next one begins.
    session.conf.set("spark.sql.streaming.stopTimeout", "120s")
    # As in Spark's own tests: rows that a test gives go the way of rows from Kafka, and are not computed while planning.
    session.conf.set(
        "spark.sql.optimizer.excludedRules", "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    )
    return SharedSpark(session, sink, iceberg, delta)


@contextlib.contextmanager
def without_generated_code() -> Iterator[None]:
    """Queries of the shared session are planned once, and interpreted: with a few rows, compiling costs more than running.

    For tests about a batch that fails, waits or comes late. Others, and each job that is a process, have the product's
    settings.
    """
    conf = shared_spark().session.conf
    for name, value in _INTERPRETED.items():
        conf.set(name, value)
    try:
        yield
    finally:
        for name in _INTERPRETED:
            conf.unset(name)


def session_settings(folder: Path) -> SessionSettings:
    """A session on the jars and the Java of this machine's set-up."""
    return SessionSettings(
        **find_toolchain().session,
        java_options=SINK_JAVA_OPTIONS,
        driver_memory="1536m",  # for hundreds of tests in a row
        config={"spark.sql.warehouse.dir": str(folder / "spark-warehouse"), "spark.local.dir": str(folder / "local")},
    )


def read_rows(iceberg: Settings, table: WarehouseTable, *columns: str) -> list[Row]:
    """A table's rows, read by pyiceberg."""
    with loaded(iceberg, table) as found:
        return found.scan(selected_fields=tuple(columns) or ("*",)).to_arrow().to_pylist()


@contextlib.contextmanager
def loaded(iceberg: Settings, table: WarehouseTable) -> Iterator[Table]:
    """A table as pyiceberg sees it."""
    yield _catalog(str(iceberg.catalog.file), iceberg.warehouse_dir).load_table(table.identifier)


@functools.cache
def _catalog(file: str, warehouse_dir: str) -> SqlCatalog:
    """Open until the process ends: to open it costs as much as to read a table."""
    catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{file}", warehouse=f"file://{warehouse_dir}")
    atexit.register(catalog.close)
    return catalog
