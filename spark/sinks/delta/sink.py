"""The Delta sink: tables by path, with deletion vectors, columns mapped by name and types that widen in place.

Exactly once: the streaming query's session carries ``txnAppId`` (the query) and ``txnVersion`` (the batch), which Delta writes
into the very commit that writes the rows, as a SetTransaction action (Delta protocol, "Transaction Identifiers"). The setting
is the session's, and so is the batch: all tables of a batch, though written by several threads, are of the same one. Delta
itself passes over a write whose version the table has, or one before it. Whatever else commits (columns, a fill, OPTIMIZE)
runs in a session without it.
"""

import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from libs.types.tenant import Deletes, SinkMode
from libs.types.warehouse import (
    IS_CURRENT_COLUMN,
    OP_COLUMN,
    OWN_SQL_TYPES,
    UNAVAILABLE_COLUMN,
    WarehouseTable,
    own_columns,
)
from spark.sinks.delta.schema import is_wider
from spark.sinks.delta.settings import Settings
from spark.sinks.evolution import Evolution, evolution
from spark.sinks.merge import merge_statement, run_on, versions_statement
from spark.sinks.port import (
    BatchIdentity,
    Fill,
    Sink,
    SinkColumn,
    SinkTable,
    TableColumn,
    TableRefused,
    Truncation,
)
from spark.transforms.cut_envelope import DELETE
from spark.transforms.versions import IS_GONE_COLUMN, STORED_COLUMN

_TXN_APP: Final = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION: Final = "spark.databricks.delta.write.txnVersion"
_TABLE_PROPERTIES: Final = {
    "delta.enableDeletionVectors": "true",
    "delta.columnMapping.mode": "name",
}
_TYPE_WIDENING: Final = "delta.enableTypeWidening"
_MODE: Final = "headwater.mode"
_DELETES: Final = "headwater.deletes"
_KEY: Final = "headwater.key"
_FILL: Final = "headwater.fill."
_FILL_PENDING: Final = "headwater.fill-pending."
_MAX_CLUSTERED: Final = 4

log = structlog.get_logger()


def open_sink(settings: Settings) -> Sink:
    """The sink over one warehouse folder; makes the folder."""
    if "://" not in settings.warehouse_dir:
        Path(settings.warehouse_dir).mkdir(parents=True, exist_ok=True)
    return DeltaSink(settings)


class DeltaSink:
    """See ``spark.sinks.port.Sink``, which has the promises."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._optimized_files: dict[WarehouseTable, int] = {}

    def session_config(self) -> Mapping[str, str]:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # A table's state is small, and read at each batch: fifty tasks for it, the default, cost more than the merge.
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        }

    def begin_batch(self, spark: SparkSession, batch: BatchIdentity) -> None:
        spark.conf.set(_TXN_APP, batch.query_id)
        spark.conf.set(_TXN_VERSION, str(batch.batch_id))

    def is_applied(self, spark: SparkSession, table: WarehouseTable, batch: BatchIdentity) -> bool:
        snapshot = self._snapshot(spark, table)
        if snapshot is None:
            return False
        version = snapshot.transactions().get(batch.query_id)
        return bool(version.isDefined() and version.get() >= batch.batch_id)

    def ensure_table(self, spark: SparkSession, table: SinkTable) -> Mapping[str, TableColumn]:
        plain = spark.newSession()
        snapshot = self._snapshot(spark, table.name)
        if snapshot is None:
            self._create(plain, table)
        else:
            properties = _properties(snapshot)
            _check_settled(properties, table)
            current = {name: column.sql_type for name, column in _columns(snapshot).items()}
            changes = evolution(current, table, type_of=attrgetter("sql_type"), is_wider=is_wider)
            if changes:
                _evolve(plain, self._sql_name(table.name), table, changes)
        snapshot = self._snapshot(spark, table.name)
        _fill_pending_columns(plain, self._sql_name(table.name), snapshot)
        return _columns(snapshot)

    def merge_into(
        self, spark: SparkSession, table: SinkTable, changes: DataFrame, *, truncation: Truncation | None = None
    ) -> None:
        if self._snapshot(spark, table.name).numOfFiles() == 0:
            # Nothing to join: what a first batch, as large as the source's table, would otherwise pay for.
            rows = changes if table.deletes is Deletes.SOFT else changes.where(sf.col(OP_COLUMN) != DELETE)
            self._append(table.name, rows.drop(OP_COLUMN, UNAVAILABLE_COLUMN))
            return
        target = self._sql_name(table.name)
        run_on(spark, changes, lambda view: merge_statement(target, table, changes.columns, view, truncation))

    def rows(self, spark: SparkSession, table: WarehouseTable) -> DataFrame:
        return spark.read.format("delta").load(self._path(table))

    def merge_versions(
        self,
        spark: SparkSession,
        table: SinkTable,
        versions: DataFrame,
        *,
        only_current: bool,
        truncation: Truncation | None = None,
    ) -> None:
        if self._snapshot(spark, table.name).numOfFiles() == 0:
            self._append(table.name, versions.drop(STORED_COLUMN, IS_GONE_COLUMN))
            return
        target = self._sql_name(table.name)
        run_on(
            spark,
            versions,
            lambda view: versions_statement(target, table, versions.columns, view, only_current, truncation),
        )

    def append_to(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        self._append(table.name, changes)

    def maintain(self, spark: SparkSession, table: WarehouseTable) -> None:
        snapshot = self._snapshot(spark, table)
        if snapshot is None or not self._settings.is_maintaining:
            return
        plain, name = spark.newSession(), self._sql_name(table)
        due_at = max(self._settings.optimize_at_files, 2 * self._optimized_files.get(table, 0))
        if snapshot.numOfFiles() >= due_at:
            started_s = time.monotonic()
            plain.sql(f"OPTIMIZE {name}")
            self._optimized_files[table] = self._snapshot(spark, table).numOfFiles()
            log.info("sink_table_rewritten", table=str(table), took_s=round(time.monotonic() - started_s, 2))
        if snapshot.version() and snapshot.version() % self._settings.vacuum_every_commits == 0:
            plain.sql(f"VACUUM {name} RETAIN {self._settings.keep_hours} HOURS")

    def _append(self, table: WarehouseTable, rows: DataFrame) -> None:
        rows.write.format("delta").mode("append").save(self._path(table))

    def _create(self, plain: SparkSession, table: SinkTable) -> None:
        is_mirror = table.mode is SinkMode.MIRROR
        columns = [
            _definition(column, is_required=is_mirror and column.name in table.key and not column.is_optional)
            for column in table.columns
        ]
        columns += [f"{_quoted(name)} {OWN_SQL_TYPES[name]}" for name in own_columns(table.mode, table.deletes)]
        late = [column for column in table.columns if column.fill and column.fill.since_version > table.oldest_version]
        properties = {
            **_TABLE_PROPERTIES,
            "headwater.topic": table.topic,
            "headwater.source": table.source,
            "headwater.table": table.table,
            _MODE: table.mode.value,
            _DELETES: table.deletes.value,
            _KEY: ",".join(table.key),
            **(_fill_properties(late) if table.mode is not SinkMode.APPEND else {}),
        }
        clustering = ", ".join(_quoted(name) for name in table.key[:_MAX_CLUSTERED])
        is_clustered = self._settings.is_clustered and is_mirror
        plain.sql(
            f"CREATE TABLE {self._sql_name(table.name)} ({', '.join(columns)}) USING delta "
            + (f"CLUSTER BY ({clustering}) " if is_clustered else "")
            + (f"PARTITIONED BY ({IS_CURRENT_COLUMN}) " if table.mode is SinkMode.HISTORY else "")
            + f"COMMENT {_text(f'{table.table} of source {table.source}, {table.mode.value}, written by Headwater')} "
            f"TBLPROPERTIES ({_listed(properties)})"
        )
        log.info("sink_table_created", table=str(table.name), mode=table.mode.value, key=list(table.key))

    def _snapshot(self, spark: SparkSession, table: WarehouseTable) -> Any:
        """The table's newest state; None where there is no table."""
        jvm: Any = spark.sparkContext._jvm
        # Settings are looked up in the thread's active session; a thread of our own has none yet.
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
        delta_log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, self._path(table))
        snapshot = delta_log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty())
        return snapshot if snapshot.version() >= 0 else None

    def _path(self, table: WarehouseTable) -> str:
        directory = self._settings.warehouse_dir
        root = directory.rstrip("/") if "://" in directory else str(Path(directory).absolute())
        return "/".join((root, *table.identifier))

    def _sql_name(self, table: WarehouseTable) -> str:
        return f"delta.{_quoted(self._path(table))}"


def _columns(snapshot: Any) -> dict[str, TableColumn]:
    properties = _properties(snapshot)
    own = own_columns(SinkMode(properties[_MODE]), Deletes(properties[_DELETES]))
    return {
        field.name(): TableColumn(field.dataType().sql().lower(), _stored_fill(properties.get(_FILL + field.name())))
        for field in snapshot.schema().fields()
        if field.name() not in own
    }


def _properties(snapshot: Any) -> dict[str, str]:
    found = {}
    entries = snapshot.metadata().configuration().iterator()
    while entries.hasNext():
        entry = entries.next()
        found[entry._1()] = entry._2()
    return found


def _check_settled(properties: Mapping[str, str], table: SinkTable) -> None:
    """Mode, deletes and key are for the table's life."""
    mode, deletes, key = (properties.get(name) for name in (_MODE, _DELETES, _KEY))
    if mode != table.mode.value:
        raise TableRefused(
            f"{table.name} holds {mode} rows, but the tenant's sink.mode is {table.mode.value}; set the mode back, or "
            "write the tenant's tables anew (docs/sinks.md, 'Write tables anew')"
        )
    if deletes != table.deletes.value:
        raise TableRefused(
            f"{table.name} has {deletes} deletes, but the tenant's sink.deletes is {table.deletes.value}; set it back, or "
            "write the tenant's tables anew (docs/sinks.md, 'Write tables anew')"
        )
    if table.mode is not SinkMode.APPEND and key != ",".join(table.key):
        raise TableRefused(
            f"{table.name} is merged by the key ({key}), but the source's key is ({','.join(table.key)}) now; write "
            "the tenant's tables anew (docs/sinks.md, 'Write tables anew')"
        )


def _stored_fill(text: str | None) -> Fill | None:
    if text is None:
        return None
    version, _, expression = text.partition(":")
    return Fill(int(version), expression)


def _evolve(plain: SparkSession, name: str, table: SinkTable, changes: Evolution) -> None:
    """What fills a column is noted before the column is there: cut off between, the next call begins again."""
    if table.mode is not SinkMode.APPEND and (filled := [column for column in changes.added if column.fill]):
        pending = {_FILL_PENDING + column.name: "true" for column in filled}
        plain.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({_listed({**_fill_properties(filled), **pending})})")
    if any(column.sql_type == "timestamp_ntz" for column in changes.added):
        plain.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")
    if changes.added:
        plain.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(_definition(column) for column in changes.added)})")
    if changes.widened:
        # Not before: engines that know nothing of it (delta-rs) cannot read a table that has it.
        plain.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({_listed({_TYPE_WIDENING: 'true'})})")
    for column in changes.widened:
        plain.sql(f"ALTER TABLE {name} ALTER COLUMN {_quoted(column.name)} TYPE {column.sql_type}")
    log.info(
        "sink_table_evolved",
        table=str(table.name),
        added=[column.name for column in changes.added],
        widened=[column.name for column in changes.widened],
    )


def _fill_pending_columns(plain: SparkSession, name: str, snapshot: Any) -> None:
    """Give the rows from before an ADD COLUMN the value that the source gave them without an event.

    Runs before any row of the new version is written, so NULL means "from before"; cut off, it is begun again.
    """
    pending = [setting for setting in _properties(snapshot) if setting.startswith(_FILL_PENDING)]
    columns = _columns(snapshot)
    fills = {
        column: columns[column].fill
        for column in (setting.removeprefix(_FILL_PENDING) for setting in pending)
        if column in columns
    }
    if not fills:
        return
    assignments = ", ".join(
        f"{_quoted(column)} = coalesce({_quoted(column)}, {fill.expression})" for column, fill in fills.items() if fill
    )
    is_lacking = " OR ".join(f"{_quoted(column)} IS NULL" for column in fills)
    # A version that had ended did not have the column.
    is_history = _properties(snapshot).get(_MODE) == SinkMode.HISTORY.value
    of_rows = f" AND {IS_CURRENT_COLUMN}" if is_history else ""
    plain.sql(f"UPDATE {name} SET {assignments} WHERE ({is_lacking}){of_rows}")
    plain.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(_text, pending))})")


def _fill_properties(columns: Sequence[SinkColumn]) -> dict[str, str]:
    return {
        _FILL + column.name: f"{column.fill.since_version}:{column.fill.expression}"
        for column in columns
        if column.fill is not None
    }


def _definition(column: SinkColumn, *, is_required: bool = False) -> str:
    comment = f" COMMENT {_text(column.comment)}" if column.comment else ""
    return f"{_quoted(column.name)} {column.sql_type}{' NOT NULL' if is_required else ''}{comment}"


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{_text(name)} = {_text(value)}" for name, value in properties.items())


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
