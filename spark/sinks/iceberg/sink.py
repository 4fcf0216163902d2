"""The Iceberg sink: tables of format v2, written merge-on-read, in a JDBC catalog on SQLite.

Rows go through Spark SQL. Schemas, snapshots and properties go through Iceberg's own Java API, because only there is a
change of several things one commit.

Exactly once: the streaming query's session carries ``snapshot-property.headwater.batch``, so each commit's snapshot
names its micro-batch (Iceberg documentation, Spark configuration, "CommitMetadata"). The newest snapshot with such a name
is the last batch that the table took in. Whatever else commits (a fill, maintenance) runs in a session without it.
"""

import threading
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
    BATCH_PROPERTY,
    CATALOG,
    IS_CURRENT_COLUMN,
    OP_COLUMN,
    OWN_SQL_TYPES,
    UNAVAILABLE_COLUMN,
    WarehouseTable,
    own_columns,
)
from spark.sinks.evolution import Evolution, evolution
from spark.sinks.iceberg.schema import check_names, iceberg_type, identifier_columns, is_wider, sql_type
from spark.sinks.iceberg.settings import Settings
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

_TABLE_PROPERTIES: Final = {
    "format-version": "2",
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    # The join of a merge has spread the rows already; a further shuffle would only cost.
    "write.distribution-mode": "none",
    "write.merge.distribution-mode": "none",
    "write.update.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    # One delete file a task. A file for each data file that a merge touches made small merges twice as slow.
    "write.delete.granularity": "partition",
    # Small files share a read task; by default each counts as 4 MB and fills a task with a few of them.
    "read.split.open-file-cost": "65536",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_MODE: Final = "headwater.mode"
_DELETES: Final = "headwater.deletes"
_KEY: Final = "headwater.key"
_FILL: Final = "headwater.fill."
_FILL_PENDING: Final = "headwater.fill-pending."
_SNAPSHOT_BATCH: Final = f"spark.sql.iceberg.snapshot-property.{BATCH_PROPERTY}"

# The catalog's own tables and a namespace are made by who finds them missing: two at once would both, and one fail.
_CATALOG_LOCK: Final = threading.Lock()

log = structlog.get_logger()


def open_sink(settings: Settings) -> Sink:
    """The sink over one warehouse folder and catalog; makes the folders."""
    if "://" not in settings.warehouse_dir:
        Path(settings.warehouse_dir).mkdir(parents=True, exist_ok=True)
    Path(settings.catalog_file).parent.mkdir(parents=True, exist_ok=True)
    return IcebergSink(settings)


class IcebergSink:
    """See ``spark.sinks.port.Sink``, which has the promises."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def session_config(self) -> Mapping[str, str]:
        catalog = f"spark.sql.catalog.{CATALOG}"
        directory = self._settings.warehouse_dir
        # WAL: a reader of the catalog never stops a commit, nor a commit a reader.
        pragmas = f"busy_timeout={self._settings.busy_timeout_ms}&journal_mode=WAL"
        return {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "jdbc",
            f"{catalog}.uri": f"jdbc:sqlite:{Path(self._settings.catalog_file).absolute()}?{pragmas}",
            f"{catalog}.jdbc.schema-version": "V1",
            f"{catalog}.warehouse": directory if "://" in directory else Path(directory).absolute().as_uri(),
            # A table that one session wrote must not look old to another.
            f"{catalog}.cache-enabled": "false",
        }

    def begin_batch(self, spark: SparkSession, batch: BatchIdentity) -> None:
        spark.conf.set(_SNAPSHOT_BATCH, str(batch))

    def is_applied(self, spark: SparkSession, table: WarehouseTable, batch: BatchIdentity) -> bool:
        iceberg_table = _load(spark, table)
        if iceberg_table is None:
            return False
        snapshot = iceberg_table.currentSnapshot()
        while snapshot is not None:
            newest = snapshot.summary().get(BATCH_PROPERTY)
            if newest is not None:
                return bool(newest == str(batch))
            parent = snapshot.parentId()
            snapshot = None if parent is None else iceberg_table.snapshot(parent)
        return False

    def ensure_table(self, spark: SparkSession, table: SinkTable) -> Mapping[str, TableColumn]:
        check_names(table)
        iceberg_table = _load(spark, table.name)
        if iceberg_table is None:
            iceberg_table = _create(spark, table)
        else:
            _check_settled(iceberg_table, table)
            current = {name: column.sql_type for name, column in _columns(iceberg_table).items()}
            changes = evolution(current, table, type_of=attrgetter("sql_type"), is_wider=is_wider)
            if changes:
                _evolve(spark, iceberg_table, changes, table)
                log.info(
                    "sink_table_evolved",
                    table=str(table.name),
                    added=[column.name for column in changes.added],
                    widened=[column.name for column in changes.widened],
                )
        _fill_pending_columns(spark, iceberg_table, table.name)
        return _columns(iceberg_table)

    def merge_into(
        self, spark: SparkSession, table: SinkTable, changes: DataFrame, *, truncation: Truncation | None = None
    ) -> None:
        if _is_empty(_load(spark, table.name)):
            # Nothing to join: what a first batch, as large as the source's table, would otherwise pay for.
            rows = changes if table.deletes is Deletes.SOFT else changes.where(sf.col(OP_COLUMN) != DELETE)
            rows.drop(OP_COLUMN, UNAVAILABLE_COLUMN).writeTo(table.name.quoted()).append()
            return
        run_on(
            spark,
            changes,
            lambda view: merge_statement(table.name.quoted(), table, changes.columns, view, truncation),
        )

    def rows(self, spark: SparkSession, table: WarehouseTable) -> DataFrame:
        return spark.table(table.quoted())

    def merge_versions(
        self,
        spark: SparkSession,
        table: SinkTable,
        versions: DataFrame,
        *,
        only_current: bool,
        truncation: Truncation | None = None,
    ) -> None:
        if _is_empty(_load(spark, table.name)):
            versions.drop(STORED_COLUMN, IS_GONE_COLUMN).writeTo(table.name.quoted()).append()
            return
        run_on(
            spark,
            versions,
            lambda view: versions_statement(
                table.name.quoted(), table, versions.columns, view, only_current, truncation
            ),
        )

    def append_to(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        changes.writeTo(table.name.quoted()).append()

    def maintain(self, spark: SparkSession, table: WarehouseTable) -> None:
        iceberg_table = _load(spark, table)
        snapshot = None if iceberg_table is None else iceberg_table.currentSnapshot()
        if iceberg_table is None or snapshot is None:
            return
        delete_files = int(snapshot.summary().get("total-delete-files") or 0)
        snapshots = iceberg_table.history().size()
        if self._settings.is_maintaining and delete_files >= self._settings.rewrite_at_delete_files:
            self._rewrite(spark, table)
        if self._settings.is_maintaining and snapshots >= 2 * self._settings.keep_snapshots:
            self._expire(spark, table)

    def _rewrite(self, spark: SparkSession, table: WarehouseTable) -> None:
        started_s = time.monotonic()
        options = "map('delete-file-threshold', '1', 'remove-dangling-deletes', 'true')"
        arguments = f"table => '{table.quoted()}', options => {options}"
        spark.newSession().sql(f"CALL {CATALOG}.system.rewrite_data_files({arguments})")
        log.info("sink_table_rewritten", table=str(table), took_s=round(time.monotonic() - started_s, 2))

    def _expire(self, spark: SparkSession, table: WarehouseTable) -> None:
        keep = f"older_than => current_timestamp(), retain_last => {self._settings.keep_snapshots}"
        spark.newSession().sql(f"CALL {CATALOG}.system.expire_snapshots(table => '{table.quoted()}', {keep})")


def _is_empty(iceberg_table: Any) -> bool:
    """Whether nothing was ever written to it. Nobody else writes: the session holds the lock."""
    return iceberg_table.currentSnapshot() is None


def _create(spark: SparkSession, table: SinkTable) -> Any:
    """The new table, with its key as identifier fields where it mirrors."""
    jvm = _jvm(spark)
    fields, identifiers = jvm.java.util.ArrayList(), jvm.java.util.HashSet()
    is_mirror = table.mode is SinkMode.MIRROR
    identifying = identifier_columns(table.columns, table.key) if is_mirror else ()
    own = [SinkColumn(name, OWN_SQL_TYPES[name]) for name in own_columns(table.mode, table.deletes)]
    for field_id, column in enumerate([*table.columns, *own], start=1):
        is_required = is_mirror and column.name in table.key and not column.is_optional
        of = jvm.org.apache.iceberg.types.Types.NestedField.required if is_required else _optional(jvm)
        fields.add(of(field_id, column.name, _java_type(spark, column.sql_type), column.comment))
        if column.name in identifying:
            identifiers.add(field_id)
    schema = jvm.org.apache.iceberg.Schema(fields, identifiers)
    properties = jvm.java.util.HashMap()
    described = {
        "comment": f"{table.table} of source {table.source}, {table.mode.value}, written by Headwater",
        "headwater.topic": table.topic,
        "headwater.source": table.source,
        "headwater.table": table.table,
        _MODE: table.mode.value,
        _DELETES: table.deletes.value,
        _KEY: ",".join(table.key),
    }
    late = [column for column in table.columns if column.fill and column.fill.since_version > table.oldest_version]
    fills = _fill_properties(late) if table.mode is not SinkMode.APPEND else {}
    for name, value in {**_TABLE_PROPERTIES, **described, **fills}.items():
        properties.put(name, value)
    catalog, identifier = _catalog(spark), _identifier(spark, table.name)
    with _CATALOG_LOCK:
        if not catalog.namespaceExists(identifier.namespace()):
            catalog.createNamespace(identifier.namespace(), jvm.java.util.HashMap())
    spec = jvm.org.apache.iceberg.PartitionSpec.builderFor(schema)
    if table.mode is SinkMode.HISTORY:
        spec = spec.identity(IS_CURRENT_COLUMN)
    created = catalog.createTable(identifier, schema, spec.build(), properties)
    log.info("sink_table_created", table=str(table.name), mode=table.mode.value, key=list(table.key))
    return created


def _optional(jvm: Any) -> Any:
    return jvm.org.apache.iceberg.types.Types.NestedField.optional


def _check_settled(iceberg_table: Any, table: SinkTable) -> None:
    """Mode, deletes and key are for the table's life."""
    properties = iceberg_table.properties()
    mode, key = properties.get(_MODE), properties.get(_KEY)
    deletes = properties.get(_DELETES) or Deletes.HARD.value
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
    optional = {column.name for column in table.columns if column.is_optional}
    for name in table.key if table.mode is SinkMode.MIRROR else ():
        if name in optional and iceberg_table.schema().findField(name).isRequired():
            raise TableRefused(
                f"{table.name}: key column {name} may be NULL at the source now; make it NOT NULL there, or write the "
                "tenant's tables anew (docs/sinks.md, 'Write tables anew')"
            )


def _columns(iceberg_table: Any) -> dict[str, TableColumn]:
    properties = iceberg_table.properties()
    own = own_columns(SinkMode(properties.get(_MODE)), Deletes(properties.get(_DELETES) or Deletes.HARD.value))
    columns = {}
    for field in iceberg_table.schema().columns():
        if field.name() not in own:
            columns[field.name()] = TableColumn(
                sql_type(field.type().toString()), _stored_fill(properties.get(_FILL + field.name()))
            )
    return columns


def _stored_fill(text: str | None) -> Fill | None:
    if text is None:
        return None
    version, _, expression = text.partition(":")
    return Fill(int(version), expression)


def _evolve(spark: SparkSession, iceberg_table: Any, changes: Evolution, table: SinkTable) -> None:
    """Columns and what fills them, in one commit."""
    transaction = iceberg_table.newTransaction()
    update = transaction.updateSchema()
    for column in changes.added:
        update.addColumn(None, column.name, _java_type(spark, column.sql_type), column.comment or "")
        update.moveBefore(column.name, own_columns(table.mode, table.deletes)[0])
    for column in changes.widened:
        update.updateColumn(column.name, _java_type(spark, column.sql_type))
    update.commit()
    if table.mode is not SinkMode.APPEND:
        properties = transaction.updateProperties()
        for name, value in _fill_properties(changes.added).items():
            properties.set(name, value)
        for column in changes.added:
            if column.fill is not None:
                properties.set(_FILL_PENDING + column.name, "true")
        properties.commit()
    transaction.commitTransaction()
    iceberg_table.refresh()


def _fill_pending_columns(spark: SparkSession, iceberg_table: Any, table: WarehouseTable) -> None:
    """Give the rows from before an ADD COLUMN the value that the source gave them without an event.

    Runs before any row of the new version is written, so NULL means "from before"; cut off, it is begun again.
    """
    pending = [name for name in iceberg_table.properties() if name.startswith(_FILL_PENDING)]
    if not pending:
        return
    columns = _columns(iceberg_table)
    fills = {name: columns[name].fill for name in (setting.removeprefix(_FILL_PENDING) for setting in pending)}
    assignments = ", ".join(
        f"{_quoted(name)} = coalesce({_quoted(name)}, {fill.expression})" for name, fill in fills.items() if fill
    )
    is_lacking = " OR ".join(f"{_quoted(name)} IS NULL" for name in fills)
    # A version that had ended did not have the column.
    of_rows = f" AND {IS_CURRENT_COLUMN}" if iceberg_table.properties().get(_MODE) == SinkMode.HISTORY.value else ""
    spark.newSession().sql(f"UPDATE {table.quoted()} SET {assignments} WHERE ({is_lacking}){of_rows}")
    iceberg_table.refresh()
    update = iceberg_table.updateProperties()
    for setting in pending:
        update.remove(setting)
    update.commit()


def _fill_properties(columns: Sequence[SinkColumn]) -> dict[str, str]:
    return {
        _FILL + column.name: f"{column.fill.since_version}:{column.fill.expression}"
        for column in columns
        if column.fill is not None
    }


def _java_type(spark: SparkSession, spark_type: str) -> Any:
    return _jvm(spark).org.apache.iceberg.types.Types.fromPrimitiveString(iceberg_type(spark_type))


def _load(spark: SparkSession, table: WarehouseTable) -> Any | None:
    catalog, identifier = _catalog(spark), _identifier(spark, table)
    return catalog.loadTable(identifier) if catalog.tableExists(identifier) else None


def _catalog(spark: SparkSession) -> Any:
    with _CATALOG_LOCK:
        # Catalogs are looked up in the settings of the thread's active session; a thread of our own has none yet.
        _jvm(spark).org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
        return _jvm(spark).org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, CATALOG)


def _identifier(spark: SparkSession, table: WarehouseTable) -> Any:
    gateway: Any = spark.sparkContext._gateway
    levels = gateway.new_array(_jvm(spark).java.lang.String, len(table.namespace))
    for place, level in enumerate(table.namespace):
        levels[place] = level
    namespace = _jvm(spark).org.apache.iceberg.catalog.Namespace.of(levels)
    return _jvm(spark).org.apache.iceberg.catalog.TableIdentifier.of(namespace, table.name)


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
