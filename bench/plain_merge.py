"""The peer of the sink bench: a plain streaming MERGE, as the documentation of Spark and Iceberg has it, on the same topic.

``python -m bench.plain_merge SETTINGS.json`` runs until it is stopped. For each micro-batch (Spark 4.1, "Structured Streaming
Programming Guide", foreachBatch): parse the envelope with ``from_json``, keep the last change of each key by ``row_number()``,
``MERGE INTO`` (Iceberg 1.12 documentation, "Spark Writes"). It knows its table's columns beforehand and trusts the offsets for
the order. It has none of the parts that make ours exact: no batch's identity in the commit, no order of the stored rows to
compare with, no schema changes, no parking, one table only.

Tuned where ours is: the same heap, collector, cores, shuffle partitions and size of a micro-batch; merge-on-read, no
distribution before the write. All else is as by default.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

CATALOG: Final = "peer"
NAMESPACE: Final = "plain"
TABLE: Final = "orders"
_FULL_NAME: Final = f"{CATALOG}.{NAMESPACE}.{TABLE}"

_WIRE_ROW: Final = (
    "id BIGINT, customer_id INT, status STRING, amount BINARY, quantity INT, price DOUBLE, created_at BIGINT, "
    "updated_at TIMESTAMP, note STRING, payload STRING"
)
_ENVELOPE: Final = f"before STRUCT<{_WIRE_ROW}>, after STRUCT<{_WIRE_ROW}>, op STRING"
COLUMNS: Final = {
    "id": "BIGINT",
    "customer_id": "INT",
    "status": "STRING",
    "amount": "DECIMAL(12,2)",
    "quantity": "INT",
    "price": "DOUBLE",
    "created_at": "TIMESTAMP_NTZ",
    "updated_at": "TIMESTAMP",
    "note": "STRING",
    "payload": "STRING",
}
# The bench's amounts are five bytes, big-endian, and not negative.
_DECODED: Final = {
    "amount": "CAST(CAST(conv(hex(row.amount), 16, 10) AS DECIMAL(20,0)) / 100 AS DECIMAL(12,2))",
    "created_at": "CAST(timestamp_millis(row.created_at) AS TIMESTAMP_NTZ)",
}
_TABLE_PROPERTIES: Final = {
    "format-version": "2",
    "write.merge.mode": "merge-on-read",
    "write.merge.distribution-mode": "none",  # the join has spread the rows already
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the run."""

    bootstrap_servers: str
    topic: str
    folder: str
    """For warehouse, catalog, checkpoint and ``progress.json``."""
    jars_dir: str
    java_options: str
    driver_memory: str
    master: str
    shuffle_partitions: int
    max_offsets_per_trigger: int
    trigger_s: float


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far it is; written after each commit."""

    begun_at_s: float
    """When the first micro-batch began (seconds since 1970)."""
    written_at_s: float
    to_offset: int
    """The offset after the last record that is merged."""


def load_progress(folder: Path) -> Progress | None:
    """None before the first commit."""
    path = folder / "progress.json"
    return msgspec.json.decode(path.read_bytes(), type=Progress) if path.exists() else None


def main() -> None:
    """Run until killed."""
    settings = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Settings)
    spark = _session(settings)
    columns = ", ".join(f"{name} {sql_type}" for name, sql_type in COLUMNS.items())
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in _TABLE_PROPERTIES.items())
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")
    spark.sql(f"CREATE TABLE {_FULL_NAME} ({columns}) USING iceberg TBLPROPERTIES ({properties})")
    folder = Path(settings.folder)
    begun_at_s = 0.0

    def merge(records: DataFrame, batch_id: int) -> None:
        nonlocal begun_at_s
        begun_at_s = begun_at_s or time.time()
        merge_batch(records)
        # The last line is the end of each topic's partitions; there is one of each.
        offsets = msgspec.json.decode((folder / "checkpoint" / "offsets" / str(batch_id)).read_text().splitlines()[-1])
        progress = Progress(begun_at_s=begun_at_s, written_at_s=time.time(), to_offset=offsets[settings.topic]["0"])
        (folder / "progress.new").write_bytes(msgspec.json.encode(progress))
        (folder / "progress.new").replace(folder / "progress.json")

    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", settings.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", settings.max_offsets_per_trigger)
        .load()
        .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime=f"{settings.trigger_s} seconds")
        .foreachBatch(merge)
        .start()
    )
    query.awaitTermination()


def merge_batch(records: DataFrame) -> None:
    """Merge one micro-batch, tombstones aside."""
    spark = records.sparkSession
    records.where("value IS NOT NULL").createOrReplaceTempView("records")
    columns = ", ".join(f"{_DECODED.get(name, f'row.{name}')} AS {name}" for name in COLUMNS)
    spark.sql(
        f"""MERGE INTO {_FULL_NAME} t USING (
          SELECT op, {columns} FROM (
            SELECT op, row, row_number() OVER (PARTITION BY row.id ORDER BY offset DESC) AS place FROM (
              SELECT offset, event.op AS op, if(event.op = 'd', event.before, event.after) AS row FROM (
                SELECT offset, from_json(CAST(value AS STRING), '{_ENVELOPE}') AS event FROM records)))
          WHERE place = 1) s
        ON t.id = s.id
        WHEN MATCHED AND s.op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {", ".join(f"t.{name} = s.{name}" for name in COLUMNS)}
        WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({", ".join(COLUMNS)})
          VALUES ({", ".join(f"s.{name}" for name in COLUMNS)})"""
    )


def _session(settings: Settings) -> SparkSession:
    jars = sorted(str(jar) for jar in Path(settings.jars_dir).glob("*.jar"))
    folder = Path(settings.folder)
    config: Mapping[str, Any] = {
        "spark.jars": ",".join(jars),
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": settings.java_options,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": settings.shuffle_partitions,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "jdbc",
        f"spark.sql.catalog.{CATALOG}.uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        f"spark.sql.catalog.{CATALOG}.jdbc.schema-version": "V1",
        f"spark.sql.catalog.{CATALOG}.warehouse": (folder / "warehouse").as_uri(),
        f"spark.sql.catalog.{CATALOG}.cache-enabled": "false",
    }
    builder = SparkSession.builder.master(settings.master).appName("plain-merge")
    for name, value in config.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


if __name__ == "__main__":
    main()
