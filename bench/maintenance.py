"""A day of commits: an Iceberg mirror after as many micro-batches as a trigger of five minutes makes in a day, beside a fresh
copy of it.

Time is compressed: batches come one right after another, made by Spark itself and given to the sink as the job gives them.
Maintenance sees no difference: it goes by numbers of files and commits, not by the clock.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from libs.config.iceberg_catalog import CatalogKind, CatalogSettings
from libs.mysql.logical import column
from libs.setup.spark_toolchain import find_toolchain
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from libs.types.tenant import ChangePolicies, Deletes, SinkMode
from libs.types.warehouse import COMMITTED_AT_COLUMN, OP_COLUMN, ORDER_COLUMN, warehouse_table
from libs.warehouse.spark_types import spark_type
from spark.session.start import open_session
from spark.settings import SessionSettings
from spark.sinks.iceberg.maintenance import state_of
from spark.sinks.iceberg.settings import Settings
from spark.sinks.iceberg.sink import load_table, open_sink
from spark.sinks.port import BatchIdentity, Reached, SinkColumn, SinkTable

KEYS: Final = 2_000_000
COMMITS: Final = 24 * 60 // 5
CHANGES_PER_COMMIT: Final = 5_000
_SHARE_OF_DELETES: Final = 0.02
_SCANS: Final = 5
_COPY: Final = "headwater.bench.copy"
_SCHEMA: Final = TableSchema(
    table_id=TableId(database="shop", table="orders"),
    columns=(
        column("id", "bigint", is_optional=False),
        column("customer_id", "int"),
        column("amount", "decimal(12,2)"),
        column("note", "varchar(40)", charset="utf8mb4"),
        column("payload", "varchar(255)", charset="utf8mb4"),
    ),
    key=("id",),
    version=1,
)
_TABLE: Final = SinkTable(
    name=warehouse_table("bench", "shop", _SCHEMA.table_id),
    mode=SinkMode.MIRROR,
    deletes=Deletes.HARD,
    columns=tuple(
        SinkColumn(each.name, spark_type(each), logical_type=each.logical_type, is_optional=each.is_optional)
        for each in _SCHEMA.columns
    ),
    key=_SCHEMA.key,
    topic="bench.shop.shop.orders",
    source="shop",
    table="shop.orders",
    schema=_SCHEMA,
    oldest_version=1,
    policies=ChangePolicies(),
    schema_at=lambda _: None,
    reached=Reached(order="", committed_at_us=0, offsets={}),
)


@dataclass(frozen=True, slots=True)
class MaintenanceFigures:
    """A table after a day of commits."""

    keys: int
    commits: int
    scan_s: float
    """Every value of every row, by Spark; the best of several, taken in turn with the copy's."""
    copy_scan_s: float
    """The same of a table that was written freshly from it."""
    data_files: int
    delete_files: int
    rewrites: int
    average_after_rewrite_mb: float
    """Of the data files right after the last rewrite."""
    share_in_large_files: float
    """Of the bytes at the end, in files of 64 MB and more."""
    snapshots: int
    manifests: int
    s_per_commit: float
    """By the clock, maintenance counted in."""


def measure_maintenance(folder: Path, *, keys: int = KEYS, commits: int = COMMITS) -> MaintenanceFigures:
    """Load ``keys`` rows, commit ``commits`` small batches, and scan. Takes fifteen minutes; ends its session."""
    catalog = CatalogSettings(kind=CatalogKind.SQLITE, file=str(folder / "catalog.db"))
    settings = Settings(warehouse_dir=str(folder / "warehouse"), catalog=catalog)
    sink = open_sink(settings)
    session = SessionSettings(
        **find_toolchain().session,
        config={"spark.local.dir": str(folder / "local")},
    )
    spark = open_session(session, [sink], name="bench")
    try:

        def commit(number: int, changes: DataFrame) -> None:
            sink.begin_batch(spark, BatchIdentity("bench", number))
            sink.ensure_table(spark, _TABLE)
            sink.merge_into(spark, _TABLE, changes)
            sink.maintain(spark, _TABLE.name)

        commit(0, _changes(spark, spark.range(keys), number=0))
        started_s = time.monotonic()
        for number in range(1, commits + 1):
            chosen = (_chance(number, 0) * keys).cast("bigint")
            ids = spark.range(CHANGES_PER_COMMIT).select(chosen.alias("id")).distinct()
            commit(number, _changes(spark, ids, number=number))
        took_s = time.monotonic() - started_s
        return _figures(spark, keys, commits, took_s / commits)
    finally:
        spark.stop()


def _chance(number: int, which: int) -> Column:
    """From 0 to 1, by row; other ones with each commit: values that come again would make the table smaller by the day."""
    return sf.rand(100 * number + which)


def _changes(spark: SparkSession, ids: DataFrame, *, number: int) -> DataFrame:
    """An upsert or a delete of each id."""
    order = EventOrder(epoch=0, rank=number + 1, tx_ordinal=1).sort_key()
    is_delete = _chance(number, 1) < (_SHARE_OF_DELETES if number else 0.0)
    return ids.select(
        "id",
        (_chance(number, 3) * 50_000).cast("int").alias("customer_id"),
        (_chance(number, 5) * 10**8).cast("decimal(12,2)").alias("amount"),
        sf.concat(sf.lit("note "), (_chance(number, 7) * 10**9).cast("bigint").cast("string")).alias("note"),
        sf.concat(*(sf.sha2((_chance(number, 9 + part) * 1e18).cast("string"), 256) for part in range(2))).alias(
            "payload"
        ),
        sf.when(is_delete, "d").otherwise("u").alias(OP_COLUMN),
        sf.lit(order).alias(ORDER_COLUMN),
        sf.current_timestamp().alias(COMMITTED_AT_COLUMN),
    )


def _figures(spark: SparkSession, keys: int, commits: int, s_per_commit: float) -> MaintenanceFigures:
    name = _TABLE.name.quoted()
    table = load_table(spark, _TABLE.name)
    state = None if table is None else state_of(spark, table)
    assert state is not None
    files = spark.sql(f"SELECT content, file_size_in_bytes AS bytes FROM {name}.files").collect()
    sizes = [row.bytes for row in files if row.content == 0]
    rewrites = spark.sql(
        "SELECT summary['total-data-files'] AS files, summary['total-files-size'] AS bytes "
        # Manifests that were rewritten are a `replace` too.
        f"FROM {name}.snapshots WHERE operation = 'replace' AND summary['deleted-data-files'] > 0 ORDER BY committed_at"
    ).collect()
    spark.sql(f"CREATE TABLE {_COPY} USING iceberg AS SELECT /*+ COALESCE(2) */ * FROM {name}")
    scan_s, copy_scan_s = _in_turn([lambda: _scan(spark, name), lambda: _scan(spark, _COPY)])
    return MaintenanceFigures(
        keys=keys,
        commits=commits,
        scan_s=scan_s,
        copy_scan_s=copy_scan_s,
        data_files=state.data_files,
        delete_files=state.delete_files,
        rewrites=len(rewrites),
        average_after_rewrite_mb=int(rewrites[-1].bytes) / int(rewrites[-1].files) / 1e6 if rewrites else 0.0,
        share_in_large_files=sum(size for size in sizes if size >= 64_000_000) / sum(sizes),
        snapshots=state.snapshots,
        manifests=state.manifests,
        s_per_commit=s_per_commit,
    )


def _scan(spark: SparkSession, name: str) -> None:
    """Read every column: hashes of rows, summed up."""
    hashed: Any = spark.table(name).select(sf.xxhash64(*(each.name for each in _SCHEMA.columns)).alias("h"))
    hashed.agg(sf.sum(sf.col("h").cast("decimal(38,0)"))).collect()


def _in_turn(scans: Sequence[Callable[[], None]]) -> list[float]:
    """The best time of each, by the clock."""
    best = [float("inf")] * len(scans)
    for _ in range(_SCANS):
        for place, scan in enumerate(scans):
            started_s = time.monotonic()
            scan()
            best[place] = min(best[place], time.monotonic() - started_s)
    return best
