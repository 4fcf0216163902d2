"""The Delta sink: tables by path, with deletion vectors, columns mapped by name and types that widen in place.

Exactly once: the streaming query's session carries ``txnAppId`` (the query) and ``txnVersion`` (the batch), which Delta writes
into the very commit that writes the rows, as a SetTransaction action (Delta protocol, "Transaction Identifiers"). The setting
is the session's, and so is the batch: all tables of a batch, though written by several threads, are of the same one. Delta
itself passes over a write whose version the table has, or one before it. Any other commit (columns, a fill, OPTIMIZE)
runs in a session without it.
"""

import contextlib
import functools
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import structlog
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from libs.errors import TransientError
from libs.sink_state.progress import Standing, TableFiles
from libs.types.tenant import SinkMode
from libs.types.warehouse import (
    BATCH_PROPERTY,
    IS_CURRENT_COLUMN,
    OWN_SQL_TYPES,
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    WarehouseTable,
    own_columns,
)
from libs.warehouse.dialect import DIALECTS, Dialect
from spark.jvm.java import activate, java_class
from spark.sinks.delta.settings import Settings
from spark.sinks.evolution import Evolution, check_creation, evolution, log_evolution, stored_key
from spark.sinks.merge import first_rows, first_versions, merge_changes, merge_versions, replaced_entries, replaced_rows
from spark.sinks.new_keys import Answer, ask
from spark.sinks.places import local_folders
from spark.sinks.port import BatchIdentity, Maintained, Sink, SinkColumn, SinkTable, StoredLog, TableRefused, VersionsOf
from spark.sinks.properties import (
    check_kept,
    column_of,
    comment_of,
    fill_statement,
    first_properties,
    own_columns_of,
    pending_of,
    properties_after,
    properties_before,
    settled_of,
    version_of,
)
from spark.sinks.reached import commit_properties
from spark.sinks.settled import check_settled, key_of_log, name_taken, no_such_table
from spark.transforms.sql_text import literal, quoted
from spark.transforms.warehouse_columns import TableColumn, Truncation

_TXN_APP: Final = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION: Final = "spark.databricks.delta.write.txnVersion"
_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
_METADATA_OPTION: Final = "userMetadata"
_TABLE_PROPERTIES: Final = {
    "delta.enableDeletionVectors": "true",
    "delta.columnMapping.mode": "name",
}
_WIDE_PROPERTIES: Final = {"delta.enableDeletionVectors": "false", "delta.columnMapping.mode": "none"}
_MAPPED_NAMES: Final = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that a column's name has only where names are mapped (Delta documentation, "Column mapping")."""
_TYPE_WIDENING: Final = "delta.enableTypeWidening"
_WIDENING_FEATURE: Final = "typeWidening"
_MAX_CLUSTERED: Final = 4
_RESTORE: Final = "RESTORE"
_TABLE_EXISTS: Final = ("TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_TABLE_ALREADY_EXISTS")

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
        self._vacuumed_version: dict[WarehouseTable, int] = {}

    @property
    def dialect(self) -> Dialect:
        return DIALECTS["delta"]

    @property
    def folders(self) -> Sequence[Path]:
        return [*local_folders(self._settings.places).values()]

    def session_config(self) -> Mapping[str, str]:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # A table's state is small, and read at each batch: fifty tasks for it, the default, cost more than the merge.
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
            # Where a table was vacuumed, its history says so, to the next job too.
            "spark.databricks.delta.vacuum.logging.enabled": "true",
            # VACUUM lists a table's folders in so many tasks, by default 10,000: minutes of CPU for a table of ten files.
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
        }

    def begin_batch(self, spark: SparkSession, batch: BatchIdentity) -> None:
        spark.conf.set(_TXN_APP, batch.query_id)
        spark.conf.set(_TXN_VERSION, str(batch.batch_id))

    def is_applied(
        self, spark: SparkSession, table: WarehouseTable, batch: BatchIdentity, offsets: Mapping[int, int]
    ) -> bool:
        snapshot = self._snapshot(spark, table)
        if snapshot is None:
            return False
        version = snapshot.transactions().get(batch.query_id)
        return bool(version.isDefined() and version.get() >= batch.batch_id)

    def standing(self, spark: SparkSession, table: WarehouseTable) -> Standing | None:
        snapshot = self._snapshot(spark, table)
        if snapshot is None:
            return None
        return Standing(id=snapshot.metadata().id(), batch=self._newest_batch(spark, table, snapshot.version()))

    def ensure_table(self, spark: SparkSession, table: SinkTable) -> Mapping[str, TableColumn]:
        plain = spark.newSession()
        snapshot = self._snapshot(spark, table.name)
        if snapshot is None:
            check_creation(table)
            self._create(plain, table)
        else:
            properties = _properties(snapshot)
            settled = settled_of(properties)
            columns = {} if settled is None else _columns(snapshot)
            version = version_of(properties)
            names = [field.name() for field in snapshot.schema().fields()]
            check_settled(settled, table, stored_key(columns, version, table), names)
            changes = evolution(columns, version, table, self.dialect)
            check_kept(properties, changes, table)
            if changes:
                _evolve(plain, self._sql_name(table.name), table, changes, properties)
        snapshot = self._snapshot(spark, table.name)
        if self._settings.rewrites_widened and _has_feature(snapshot, _WIDENING_FEATURE):
            _rewrite_widened(plain, self._sql_name(table.name), table)
            snapshot = self._snapshot(spark, table.name)
        _fill_pending_columns(plain, self._sql_name(table.name), snapshot)
        return _columns(snapshot)

    def merge_into(
        self, spark: SparkSession, table: SinkTable, changes: DataFrame, *, truncation: Truncation | None = None
    ) -> None:
        if self._snapshot(spark, table.name).numOfFiles() == 0:
            asked = Answer(are_new=True)
        else:
            asked = ask(spark.read.format("delta").load(self._path(table.name)), table, changes)
        if asked.are_new:
            self._append(spark, table, first_rows(table, changes))
        else:
            with_facts, name = functools.partial(_session_with_facts, table), self._sql_name(table.name)
            merge_changes(spark, name, table, changes, truncation, asked.within, session_of=with_facts)

    def merge_versions(
        self,
        spark: SparkSession,
        table: SinkTable,
        keys: DataFrame,
        versions_of: VersionsOf,
        *,
        truncation: Truncation | None = None,
    ) -> None:
        versions = versions_of(spark.read.format("delta").load(self._path(table.name)))
        if self._snapshot(spark, table.name).numOfFiles() == 0:
            self._append(spark, table, first_versions(versions.rows))
        else:
            with_facts = functools.partial(_session_with_facts, table)
            merge_versions(spark, self._sql_name(table.name), table, versions, truncation, session_of=with_facts)

    def replace_rows(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        self._replace(spark, table, lambda stored: replaced_rows(table, changes, stored))

    def replace_versions(
        self, spark: SparkSession, table: SinkTable, versions_of: Callable[[DataFrame], DataFrame]
    ) -> None:
        self._replace(spark, table, versions_of)

    def replace_entries(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        self._replace(spark, table, lambda stored: replaced_entries(table, changes, stored))

    def append_to(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        self._append(spark, table, changes)

    @contextlib.contextmanager
    def open_log(self, spark: SparkSession, table: WarehouseTable) -> Iterator[StoredLog]:
        snapshot = self._snapshot(spark, table)
        if snapshot is None:
            raise no_such_table(table)
        properties = _properties(snapshot)
        key = key_of_log(table, settled_of(properties))
        rows = spark.read.format("delta").option("versionAsOf", snapshot.version()).load(self._path(table))
        yield StoredLog(rows, key, properties[SOURCE_PROPERTY], properties[TABLE_PROPERTY])

    def exists(self, spark: SparkSession, table: WarehouseTable) -> bool:
        return self._snapshot(spark, table) is not None

    def read(self, spark: SparkSession, table: WarehouseTable) -> DataFrame:
        return spark.read.format("delta").load(self._path(table))

    def create_with(
        self,
        spark: SparkSession,
        table: WarehouseTable,
        rows: DataFrame,
        noted: Mapping[str, str],
        *,
        like: WarehouseTable,
    ) -> None:
        writer = rows.writeTo(self._sql_name(table)).using("delta")
        for name, value in {**_TABLE_PROPERTIES, **noted}.items():
            writer = writer.tableProperty(name, value)
        try:
            writer.create()
        except AnalysisException as error:
            if error.getCondition() not in _TABLE_EXISTS:
                raise
            raise name_taken(table) from error

    def maintain(self, spark: SparkSession, table: WarehouseTable) -> Maintained:
        snapshot = self._snapshot(spark, table)
        if snapshot is None:
            return Maintained()
        plain, name = spark.newSession(), self._sql_name(table)
        due_at = max(self._settings.optimize_at_files, 2 * self._optimized_files.get(table, 0))
        is_grown = self._settings.is_maintaining and snapshot.numOfFiles() >= due_at
        is_vacuumed = self._settings.is_maintaining and self._is_vacuum_due(plain, table, snapshot.version())
        if is_grown:
            started_s = time.monotonic()
            plain.sql(f"OPTIMIZE {name}")
            snapshot = self._snapshot(spark, table)
            self._optimized_files[table] = snapshot.numOfFiles()
            log.info("sink_table_rewritten", table=str(table), took_s=round(time.monotonic() - started_s, 2))
        if is_vacuumed:
            plain.sql(f"VACUUM {name} RETAIN {self._settings.keep_hours} HOURS")
            self._vacuumed_version[table] = self._snapshot(spark, table).version()
        vectors = snapshot.numDeletionVectorsOpt()
        files = TableFiles(
            bytes=snapshot.sizeInBytes(),
            data_files=snapshot.numOfFiles(),
            delete_files=vectors.get() if vectors.isDefined() else None,
        )
        return Maintained(files, was_due=bool(is_grown or is_vacuumed))

    def _is_vacuum_due(self, plain: SparkSession, table: WarehouseTable, version: int) -> bool:
        """Whether so many commits came since the last VACUUM; the table's history has one from before this job's start."""
        every = self._settings.vacuum_every_commits
        if table not in self._vacuumed_version and version >= every:
            history = plain.sql(f"DESCRIBE HISTORY {self._sql_name(table)} LIMIT {every}")
            vacuums = history.where("operation = 'VACUUM END'").orderBy("version", ascending=False)
            newest = vacuums.select("version").first()
            self._vacuumed_version[table] = 0 if newest is None else newest.version
        return version - self._vacuumed_version.get(table, 0) >= every

    def drop_tables(self, spark: SparkSession, tenant: str) -> int:
        """The tenant's folder, whole."""
        path = java_class(spark, "org.apache.hadoop.fs.Path")
        folder = path(self._path(WarehouseTable(namespace=(), name=tenant)))
        files = folder.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        logs = files.globStatus(path(folder, "*/*/*/_delta_log")) or ()
        if files.exists(folder) and not files.delete(folder, True):
            raise TransientError(f"folder {folder.toString()} of the tenant's tables is not deleted; try again")
        java_class(spark, "org.apache.spark.sql.delta.DeltaLog").clearCache()  # its memory of them
        return len(logs)

    def _append(self, spark: SparkSession, table: SinkTable, rows: DataFrame) -> None:
        facts = _commit_facts(spark, table)
        rows.write.format("delta").mode("append").option(_METADATA_OPTION, facts).save(self._path(table.name))

    def _replace(self, spark: SparkSession, table: SinkTable, rows_of: Callable[[DataFrame], DataFrame]) -> None:
        path = self._path(table.name)
        rows = rows_of(spark.read.format("delta").load(path))
        rows.write.format("delta").mode("overwrite").option(_METADATA_OPTION, _commit_facts(spark, table)).save(path)

    def _create(self, plain: SparkSession, table: SinkTable) -> None:
        is_mirror = table.mode is SinkMode.MIRROR
        columns = [
            _definition(column, is_required=is_mirror and column.name in table.key and not column.is_optional)
            for column in table.columns
        ]
        columns += [f"{quoted(name)} {OWN_SQL_TYPES[name]}" for name in own_columns(table.mode, table.deletes)]
        is_wide = any(re.fullmatch(pattern, table.table) for pattern in self._settings.wide)
        if is_wide and (odd := [column.name for column in table.columns if _MAPPED_NAMES.search(column.name)]):
            raise TableRefused(
                f"{table.name}: column {odd[0]!r} needs mapped names, which warehouses.delta.wide leaves out; rename it in the "
                "tenant's document, or let the table not be wide"
            )
        properties = {**(_WIDE_PROPERTIES if is_wide else _TABLE_PROPERTIES), **first_properties(table)}
        clustering = ", ".join(quoted(name) for name in table.key[:_MAX_CLUSTERED])
        is_clustered = self._settings.is_clustered and is_mirror
        plain.sql(
            f"CREATE TABLE {self._sql_name(table.name)} ({', '.join(columns)}) USING delta "
            + (f"CLUSTER BY ({clustering}) " if is_clustered else "")
            + (f"PARTITIONED BY ({IS_CURRENT_COLUMN}) " if table.mode is SinkMode.HISTORY else "")
            + f"COMMENT {literal(comment_of(table))} TBLPROPERTIES ({_listed(properties)})"
        )
        log.info("sink_table_created", table=str(table.name), mode=table.mode.value, key=list(table.key))

    def _snapshot(self, spark: SparkSession, table: WarehouseTable) -> Any:
        """The table's newest state; None where there is no table."""
        activate(spark)
        delta_log = java_class(spark, "org.apache.spark.sql.delta.DeltaLog").forTable(
            spark._jsparkSession, self._path(table)
        )
        none = java_class(spark, "scala.Option").empty()
        snapshot = delta_log.update(False, none, none)
        return snapshot if snapshot.version() >= 0 else None

    def _newest_batch(self, spark: SparkSession, table: WarehouseTable, version: int) -> str:
        """The batch of the newest commit that names one, of those that ``version`` rests upon: a RESTORE rests upon the version
        that it restores. The transaction identifiers do not show it, as a RESTORE keeps them."""
        while version >= 0 and (commit := self._commit_info(spark, table, version)) is not None:
            try:
                batch = json.loads(commit.get("userMetadata") or "{}").get(BATCH_PROPERTY, "")
            except (json.JSONDecodeError, AttributeError):
                batch = ""  # somebody else's commit, with words of its own
            if batch:
                return str(batch)
            if commit.get("operation") != _RESTORE:
                version -= 1
            elif (restored := commit.get("operationParameters", {}).get("version")) is not None:
                version = int(restored)
            else:
                return ""  # to a moment: which version that was, the commit does not say
        return ""

    def _commit_info(self, spark: SparkSession, table: WarehouseTable, version: int) -> dict[str, Any] | None:
        """The facts in a version's commit (Delta protocol, "Commit Provenance Information"); None: the log does not
        have it any more."""
        path = java_class(spark, "org.apache.hadoop.fs.Path")(f"{self._path(table)}/_delta_log/{version:020}.json")
        files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        if not files.exists(path):
            return None
        reader = java_class(spark, "java.io.BufferedReader")(
            java_class(spark, "java.io.InputStreamReader")(files.open(path), "UTF-8")
        )
        try:
            while (line := reader.readLine()) is not None:
                if (found := json.loads(line).get("commitInfo")) is not None:
                    return dict(found)
        finally:
            reader.close()
        return {}

    def _path(self, table: WarehouseTable) -> str:
        directory = self._settings.warehouse_dir
        root = directory.rstrip("/") if "://" in directory else str(Path(directory).absolute())
        return "/".join((root, *table.identifier))

    def _sql_name(self, table: WarehouseTable) -> str:
        return f"delta.{quoted(self._path(table))}"


def _commit_facts(spark: SparkSession, table: SinkTable) -> str:
    """The facts for the commit: JSON, in ``userMetadata`` of its commitInfo (Delta documentation, "User-defined commit
    metadata"). The batch is the one that ``begin_batch`` has set in ``spark``."""
    batch = f"{spark.conf.get(_TXN_APP)}:{spark.conf.get(_TXN_VERSION)}"
    return json.dumps(commit_properties(batch, table.reached))


def _session_with_facts(table: SinkTable, spark: SparkSession) -> SparkSession:
    """``spark`` again, with its views and settings, whose MERGE reports on ``table``.

    Tables are written side by side, and a MERGE has no options but its session's settings.
    """
    own = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    own.conf.set(_METADATA, _commit_facts(spark, table))
    return own


def _columns(snapshot: Any) -> dict[str, TableColumn]:
    properties = _properties(snapshot)
    own = own_columns_of(properties)
    columns = {}
    for field in snapshot.schema().fields():
        if field.name() not in own:
            type_name = field.dataType().sql().lower()
            columns[field.name()] = column_of(properties, field.name(), type_name, type_name)
    return columns


def _properties(snapshot: Any) -> dict[str, str]:
    found = {}
    entries = snapshot.metadata().configuration().iterator()
    while entries.hasNext():
        entry = entries.next()
        found[entry._1()] = entry._2()
    return found


def _evolve(
    plain: SparkSession, name: str, table: SinkTable, changes: Evolution, properties: Mapping[str, str]
) -> None:
    """A column's fill and former name are noted before the column is there, the version after all: cut off
    between, the next call goes on."""
    renames = _one_by_one(changes.renamed, table)
    if renames and properties.get("delta.columnMapping.mode") == "none":
        raise TableRefused(
            f"{table.name}: column {renames[0][0]} is {renames[0][1]} now, and the table's names are not mapped "
            "(warehouses.delta.wide); let column_renamed be ignore in the tenant's sink.schema_changes, or write the tenant's "
            "tables again (docs/sinks/repair.md, 'Write tables again')"
        )
    if noted := properties_before(properties, changes, table):
        plain.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({_listed(noted)})")
    for old, new in renames:
        plain.sql(f"ALTER TABLE {name} RENAME COLUMN {quoted(old)} TO {quoted(new)}")
    if any(column.sql_type == "timestamp_ntz" for column in changes.added):
        plain.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")
    if changes.added:
        plain.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(_definition(column) for column in changes.added)})")
    if changes.widened:
        # Not before: engines that know nothing of it (delta-rs) cannot read a table that has it. See ``_rewrite_widened``.
        plain.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({_listed({_TYPE_WIDENING: 'true'})})")
    for column in changes.widened:
        plain.sql(f"ALTER TABLE {name} ALTER COLUMN {quoted(column.name)} TYPE {column.sql_type}")
    noted, gone = properties_after(properties, changes, table)
    if noted:
        plain.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({_listed(noted)})")
    if gone:
        plain.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(literal, gone))})")
    log_evolution(table, changes)


def _has_feature(snapshot: Any, feature: str) -> bool:
    """Whether a reader of the table must know ``feature`` (Delta protocol, "Table Features")."""
    features = snapshot.protocol().readerFeatures()
    return bool(features.isDefined() and features.get().contains(feature))


def _rewrite_widened(plain: SparkSession, name: str, table: SinkTable) -> None:
    """Files of the narrower types give way to files of the wider ones, and the feature goes. Cut off, it is begun again."""
    started_s = time.monotonic()
    plain.sql(f"ALTER TABLE {name} DROP FEATURE {_WIDENING_FEATURE}")
    log.info("sink_table_rewritten", table=str(table.name), took_s=round(time.monotonic() - started_s, 2))


def _one_by_one(renamed: Mapping[str, str], table: SinkTable) -> list[tuple[str, str]]:
    """In an order in which each new name is free.

    Raises:
        TableRefused: columns exchanged their names, which is no row of commits that could be cut off anywhere.
    """
    left, ordered = dict(renamed), []
    while left:
        free = [old for old, new in left.items() if new.lower() not in {name.lower() for name in left} - {old.lower()}]
        if not free:
            names = ", ".join(sorted(left))
            raise TableRefused(
                f"{table.name}: columns {names} exchanged their names, which Delta cannot do at once; let column_renamed "
                "be ignore in the tenant's sink.schema_changes, or write the tenant's tables again "
                "(docs/sinks/repair.md, 'Write tables again')"
            )
        ordered += [(old, left.pop(old)) for old in free]
    return ordered


def _fill_pending_columns(plain: SparkSession, name: str, snapshot: Any) -> None:
    properties = _properties(snapshot)
    statement = fill_statement(name, properties, list(_columns(snapshot)))
    if statement is not None:
        plain.sql(statement)
        pending = ", ".join(map(literal, pending_of(properties)))
        plain.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES IF EXISTS ({pending})")


def _definition(column: SinkColumn, *, is_required: bool = False) -> str:
    comment = f" COMMENT {literal(column.comment)}" if column.comment else ""
    return f"{quoted(column.name)} {column.sql_type}{' NOT NULL' if is_required else ''}{comment}"


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
