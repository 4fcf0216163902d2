"""The Iceberg sink: tables of format v2 or v3, written merge-on-read, in the settings' catalog.

Rows go through Spark SQL. Schemas, snapshots and properties go through Iceberg's own Java API, because only there is a
change of several things one commit.

Exactly once: the snapshot of each commit of rows names its micro-batch (``commits``). The newest snapshot with such a name is
the last batch that the table took in. Other commits (a fill, maintenance) name none.
"""

import contextlib
import dataclasses
import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import VariantType

from libs.failpoints import failpoint
from libs.sink_state.progress import Standing, TableFiles
from libs.types.tenant import SinkMode
from libs.types.warehouse import (
    CATALOG,
    CONSISTENT_TABLE,
    IS_CURRENT_COLUMN,
    OWN_SQL_TYPES,
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    WarehouseTable,
    own_columns,
)
from libs.warehouse.dialect import DIALECTS, Dialect
from libs.warehouse.iceberg import iceberg_type, sql_type
from libs.warehouse.spark_types import VARIANT_TYPE
from spark.jvm.java import activate, java_array, java_class
from spark.sinks.evolution import Evolution, check_creation, evolution, log_evolution, stored_key
from spark.sinks.iceberg.catalog import catalog_config, is_flat, place_in
from spark.sinks.iceberg.commits import batch_of, begin_batch, commit, properties_of
from spark.sinks.iceberg.farewell import drop_namespaces, tenant_tables
from spark.sinks.iceberg.key_filter import MOST_CHANGED, key_filter
from spark.sinks.iceberg.layout import follow_layout
from spark.sinks.iceberg.loaded_tables import LoadedTables
from spark.sinks.iceberg.maintenance import Due, due, maintain, newest_identity, newest_with_identity, state_of
from spark.sinks.iceberg.object_stores import object_store_of
from spark.sinks.iceberg.publication import (
    AUDIT_BRANCH,
    consistent_row,
    is_staging,
    prepare,
    show,
    stage,
    staged_snapshot,
    tell,
)
from spark.sinks.iceberg.row_merge import is_small_history, is_small_table, row_merge, version_merge
from spark.sinks.iceberg.schema import identifier_columns
from spark.sinks.iceberg.settings import Settings
from spark.sinks.iceberg.table_facts import TableFacts, facts_of
from spark.sinks.merge import first_rows, first_versions, merge_changes, merge_versions, replaced_entries, replaced_rows
from spark.sinks.new_keys import Answer, ask
from spark.sinks.places import local_folders
from spark.sinks.port import (
    BatchIdentity,
    Maintained,
    RowsAtHand,
    Sink,
    SinkColumn,
    SinkTable,
    StoredLog,
    TableRefused,
    VersionsOf,
)
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
from spark.sinks.settled import check_settled, key_of_log, name_taken, no_such_table
from spark.transforms.warehouse_columns import TableColumn, Truncation

_TABLE_PROPERTIES: Final = {
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

_MISSING: Final = ("NoSuchTableException", "NoSuchIcebergTableException", "NoSuchNamespaceException")
_VARIANT_FORMAT: Final = 3
_NESTED_FIELD: Final = "org.apache.iceberg.types.Types$NestedField"

# The first user creates the catalog's own tables and a namespace: of two at once one would fail.
_CATALOG_LOCK: Final = threading.Lock()

log = structlog.get_logger()


def open_sink(settings: Settings) -> Sink:
    """The sink over one warehouse folder and catalog; makes the folders."""
    if settings.is_folder:
        Path(settings.warehouse_dir).mkdir(parents=True, exist_ok=True)
    if settings.catalog.file is not None:
        Path(settings.catalog.file).parent.mkdir(parents=True, exist_ok=True)
    return IcebergSink(settings)


class IcebergSink:
    """See ``spark.sinks.port.Sink``, which has the promises."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rewritten_files: dict[WarehouseTable, int] = {}
        """How many data files the last rewrite of a table left."""
        self._answered: set[WarehouseTable] = set()
        """Histories whose last commit was this sink's, and was answered."""
        self._loaded = LoadedTables(load_table)

    @property
    def dialect(self) -> Dialect:
        return DIALECTS["iceberg"]

    @property
    def folders(self) -> Sequence[Path]:
        return [*local_folders(self._settings.places).values()]

    def session_config(self) -> Mapping[str, str]:
        directory = self._settings.warehouse_dir
        warehouse = Path(directory).absolute().as_uri() if self._settings.is_folder else directory
        return {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            **catalog_config(self._settings.catalog, warehouse),
        }

    def needed_classes(self) -> Mapping[str, str]:
        store = object_store_of(self._settings.warehouse_dir)
        return {} if store is None else {store.client: store.jar}

    def begin_batch(self, spark: SparkSession, batch: BatchIdentity) -> None:
        begin_batch(spark, batch)
        self._loaded.forget()

    def is_applied(
        self, spark: SparkSession, table: WarehouseTable, batch: BatchIdentity, offsets: Mapping[int, int]
    ) -> bool:
        iceberg_table = self._loaded.table(spark, self._place(table))
        if iceberg_table is None:
            return False
        if is_staging(spark):
            return newest_identity(iceberg_table, _newest(spark, iceberg_table)) == str(batch)
        newest = facts_of(spark, iceberg_table).newest
        return newest is not None and newest.batch == str(batch)

    def standing(self, spark: SparkSession, table: WarehouseTable) -> Standing | None:
        iceberg_table = self._loaded.last(spark, self._place(table))
        if iceberg_table is None:
            return None
        facts = facts_of(spark, iceberg_table)
        if is_staging(spark):
            batch = newest_identity(iceberg_table, _newest(spark, iceberg_table))
        else:
            batch = None if facts.newest is None else facts.newest.batch
        return Standing(id=facts.uuid, batch=batch or "")

    def ensure_table(self, spark: SparkSession, table: SinkTable) -> Mapping[str, TableColumn]:
        table = self._placed(table)
        iceberg_table = self._loaded.table(spark, table.name)
        if iceberg_table is None:
            check_creation(table)
            _check_variants(table, table.columns, self._settings.format_version)
            iceberg_table = _create(spark, table, self._settings.format_version)
            properties, types = _properties_and_types(iceberg_table, facts_of(spark, iceberg_table))
        else:
            facts = facts_of(spark, iceberg_table)
            properties, types = _properties_and_types(iceberg_table, facts)
            settled = settled_of(properties)
            columns = {} if settled is None else _columns(types, properties)
            version = version_of(properties)
            key = stored_key(columns, version, table)
            check_settled(settled, table, key, types)
            _check_key_may_be_null(iceberg_table, table, key)
            changes = evolution(columns, version, table, self.dialect)
            check_kept(properties, changes, table)
            _check_variants(table, changes.added, facts.format_version)
            if changes:
                _evolve(spark, iceberg_table, changes, table, properties)
                properties, types = _properties_and_types(iceberg_table, facts_of(spark, iceberg_table))
        if is_staging(spark):
            prepare(iceberg_table)
        if VARIANT_TYPE in types.values() and _is_behind(iceberg_table, _newest(spark, iceberg_table)):
            _forestall(spark, iceberg_table)
        if follow_layout(spark, iceberg_table, table):
            log.info("sink_table_laid_out", table=str(table.name))
        columns = _columns(types, properties)
        _fill_pending_columns(spark, iceberg_table, table.name, columns, properties)
        return columns

    def merge_into(
        self, spark: SparkSession, table: SinkTable, changes: DataFrame, *, truncation: Truncation | None = None
    ) -> None:
        table = self._placed(table)
        name = table.name.quoted()
        iceberg_table = load_table(spark, table.name)
        newest = _newest(spark, iceberg_table)
        asked = Answer(are_new=newest is None or _has_none_of(spark, iceberg_table, newest, table))
        if not asked.are_new and table.is_copy:
            asked = ask(spark.table(name), table, changes)
        if asked.are_new:
            commit(spark, table.reached, lambda: _append(first_rows(table, changes), table.name, newest))
            return
        # A truncation is about all rows.
        of_keys = self._filter(spark, newest, table, changes) if truncation is None else None
        of_keys = " AND ".join(filter(None, [asked.within, of_keys])) or None
        commit(spark, table.reached, lambda: merge_changes(spark, name, table, changes, truncation, of_keys))

    def merge_rows(self, spark: SparkSession, table: SinkTable, changes: RowsAtHand) -> Callable[[], None] | None:
        table = self._placed(table)
        iceberg_table = self._loaded.table(spark, table.name)
        if is_staging(spark) or not is_small_table(facts := facts_of(spark, iceberg_table)):
            return None
        merge = row_merge(spark, iceberg_table, facts, table, changes)
        return None if merge is None else lambda: merge.commit(properties_of(spark, table.reached))

    def merge_version_rows(
        self, spark: SparkSession, table: SinkTable, changes: RowsAtHand, *, tracked: Sequence[str], is_known: bool
    ) -> Callable[[], None] | None:
        table = self._placed(table)
        iceberg_table = self._loaded.table(spark, table.name)
        if is_staging(spark) or not is_small_history(facts := facts_of(spark, iceberg_table)):
            return None
        if facts.newest is not None and not is_known:
            return None
        write = version_merge(spark, iceberg_table, table, changes, tracked)
        if write is None:
            return None
        if facts.newest is not None and table.name not in self._answered:
            _forestall(spark, iceberg_table)
            # The table is read after the fence.
            write = version_merge(spark, iceberg_table, table, changes, tracked)
        if write is None or newest_identity(iceberg_table, _newest(spark, iceberg_table)) == batch_of(spark):
            return None
        self._answered.discard(table.name)
        if (merge := write()) is None:
            return None

        def commit_versions() -> None:
            merge.commit(properties_of(spark, table.reached))
            self._answered.add(table.name)

        return commit_versions

    def merge_versions(
        self,
        spark: SparkSession,
        table: SinkTable,
        keys: DataFrame,
        versions_of: VersionsOf,
        *,
        truncation: Truncation | None = None,
    ) -> None:
        table = self._placed(table)
        name, iceberg_table = table.name.quoted(), load_table(spark, table.name)
        if _newest(spark, iceberg_table) is not None and table.name not in self._answered:
            _forestall(spark, iceberg_table)
        newest = _newest(spark, iceberg_table)
        if newest_identity(iceberg_table, newest) == batch_of(spark):
            return
        self._answered.discard(table.name)
        stored = spark.table(name)
        if newest is None:
            rows = first_versions(versions_of(stored).rows)
            commit(spark, table.reached, lambda: _append(rows, table.name, newest))
        else:
            of_keys = self._filter(spark, newest, table, keys)
            versions = versions_of(stored if of_keys is None else stored.alias("t").where(of_keys))
            merged_by = of_keys if truncation is None else None  # it ends versions of all keys
            commit(spark, table.reached, lambda: merge_versions(spark, name, table, versions, truncation, merged_by))
        self._answered.add(table.name)

    def replace_rows(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        table = self._placed(table)
        name = table.name.quoted()
        # Files that nobody knows until one snapshot has all of them instead of those before; these stay for time travel.
        rows = replaced_rows(table, changes, spark.table(name))
        commit(spark, table.reached, lambda: rows.writeTo(name).overwrite(sf.lit(True)))

    def replace_versions(
        self, spark: SparkSession, table: SinkTable, versions_of: Callable[[DataFrame], DataFrame]
    ) -> None:
        name = self._place(table.name).quoted()
        versions = versions_of(spark.table(name))
        commit(spark, table.reached, lambda: versions.writeTo(name).overwrite(sf.lit(True)))

    def replace_entries(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        name = self._place(table.name).quoted()
        entries = replaced_entries(table, changes, spark.table(name))
        commit(spark, table.reached, lambda: entries.writeTo(name).overwrite(sf.lit(True)))

    def append_to(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        place = self._place(table.name)
        iceberg_table = load_table(spark, place)
        newest = _newest(spark, iceberg_table)
        # A commit that a killed job left under way may have come since ``is_applied`` was asked.
        if newest_identity(iceberg_table, newest) != batch_of(spark):
            commit(spark, table.reached, lambda: _append(changes, place, newest))

    @contextlib.contextmanager
    def open_log(self, spark: SparkSession, table: WarehouseTable) -> Iterator[StoredLog]:
        place = self._place(table)
        iceberg_table = load_table(spark, place)
        if iceberg_table is None:
            raise no_such_table(table)
        properties = facts_of(spark, iceberg_table).properties
        key = key_of_log(table, settled_of(properties))
        snapshot = iceberg_table.currentSnapshot()
        if snapshot is None:
            raise TableRefused(f"{table}: nothing was written to it yet")
        rows = spark.read.option("versionAsOf", snapshot.snapshotId()).table(place.quoted())
        yield StoredLog(rows, key, properties[SOURCE_PROPERTY], properties[TABLE_PROPERTY])

    def exists(self, spark: SparkSession, table: WarehouseTable) -> bool:
        return load_table(spark, self._place(table)) is not None

    def read(self, spark: SparkSession, table: WarehouseTable) -> DataFrame:
        return spark.table(self._place(table).quoted())

    def create_with(
        self,
        spark: SparkSession,
        table: WarehouseTable,
        rows: DataFrame,
        noted: Mapping[str, str],
        *,
        like: WarehouseTable,
    ) -> None:
        writer = rows.writeTo(self._place(table).quoted()).using("iceberg")
        # The log may be of a newer format than tables are made of now.
        needed = _VARIANT_FORMAT if any(isinstance(field.dataType, VariantType) for field in rows.schema) else 0
        for name, value in {"format-version": str(max(self._settings.format_version, needed)), **noted}.items():
            writer = writer.tableProperty(name, value)
        try:
            writer.create()
        except AnalysisException as error:
            if error.getCondition() != "TABLE_OR_VIEW_ALREADY_EXISTS":
                raise
            raise name_taken(table) from error

    def maintain(self, spark: SparkSession, table: WarehouseTable) -> Maintained:
        place = self._place(table)
        iceberg_table = self._loaded.table(spark, place)
        state = None if iceberg_table is None else state_of(spark, iceberg_table)
        if state is None:
            return Maintained()
        due_now = due(state, self._settings, rewritten_files=self._rewritten_files.get(table, 0))
        was_due = due_now != Due()
        if was_due:
            maintain(spark, self._settings, place, iceberg_table, due_now)
            state = state_of(spark, load_table(spark, place)) or state
        if due_now.rewrite_files:
            self._rewritten_files[table] = state.data_files
        files = TableFiles(bytes=state.bytes, data_files=state.data_files, delete_files=state.delete_files)
        return Maintained(files, was_due)

    @contextlib.contextmanager
    def staged_batch(self, spark: SparkSession) -> Iterator[None]:
        stage(spark)
        yield

    def show_together(self, spark: SparkSession, tenant: str, tables: Sequence[WarehouseTable]) -> None:
        waiting, rows = [], []
        for table in tables:
            iceberg_table = load_table(spark, self._place(table))
            staged = None if iceberg_table is None else staged_snapshot(iceberg_table)
            shown = (
                None if iceberg_table is None else newest_with_identity(iceberg_table, iceberg_table.currentSnapshot())
            )
            if staged is not None:
                waiting.append(iceberg_table)
            if (snapshot := staged or shown) is not None:
                of_batch = newest_with_identity(iceberg_table, snapshot) or snapshot
                rows.append(consistent_row(table, iceberg_table, snapshot, of_batch))
        if not rows:
            return
        place = self._place(WarehouseTable(namespace=(tenant,), name=CONSISTENT_TABLE))
        tell(spark, place, rows)
        failpoint("sink_after_listing_before_showing")
        for iceberg_table in waiting:
            show(iceberg_table)
            failpoint("sink_between_shown_tables")
        self._expire(spark, place)

    def drop_tables(self, spark: SparkSession, tenant: str) -> int:
        catalog = _catalog(spark)
        found = tenant_tables(spark, catalog, self._settings.catalog, tenant)
        for identifier in found:
            catalog.dropTable(identifier, True)
            log.info("sink_table_dropped", table=identifier.toString())
        drop_namespaces(spark, catalog, self._settings.catalog, tenant, {each.namespace() for each in found})
        folder = Path(self._settings.warehouse_dir) / tenant
        if self._settings.is_folder and not is_flat(self._settings.catalog) and folder.exists():
            shutil.rmtree(folder)  # remains of killed tasks
        return len(found)

    def _expire(self, spark: SparkSession, place: WarehouseTable) -> None:
        """Expire old snapshots of published tables; that may fail, and is tried again after the next batch."""
        iceberg_table = load_table(spark, place)
        state = None if iceberg_table is None else state_of(spark, iceberg_table)
        if state is not None:
            due_now = Due(expire_but=due(state, self._settings, rewritten_files=0).expire_but)
            try:
                maintain(spark, self._settings, place, iceberg_table, due_now)
            except (PySparkException, Py4JJavaError) as error:
                log.warning("sink_maintenance_failed", table=str(place), reason=type(error).__name__)

    def _filter(self, spark: SparkSession, newest: Any, table: SinkTable, changes: DataFrame) -> str | None:
        """``key_filter`` of the batch, where the table, as of ``newest``, is large enough for one."""
        rows = int(newest.summary().get("total-records") or 0)
        is_large = rows >= max(self._settings.filter_merges_at_rows, MOST_CHANGED * table.changes)
        return key_filter(spark, spark.table(table.name.quoted()), table, changes) if is_large else None

    def _place(self, table: WarehouseTable) -> WarehouseTable:
        return place_in(self._settings.catalog, table)

    def _placed(self, table: SinkTable) -> SinkTable:
        return dataclasses.replace(table, name=self._place(table.name))


def _newest(spark: SparkSession, iceberg_table: Any) -> Any | None:
    """The snapshot that ``spark`` writes upon; None: nothing was ever written. Nobody else writes: the session has the lock."""
    staged = staged_snapshot(iceberg_table) if is_staging(spark) else None
    return staged or iceberg_table.currentSnapshot()


def _is_behind(iceberg_table: Any, newest: Any | None) -> bool:
    """Whether the columns have changed since ``newest``. Where one of them, a VARIANT, got another name, Iceberg 1.12 fails at
    every read with a condition (it looks for the name among the snapshot's own), until there is a snapshot that knows it."""
    return newest is not None and newest.schemaId() != iceberg_table.schema().schemaId()


def _forestall(spark: SparkSession, iceberg_table: Any) -> None:
    """Commit an empty snapshot as a fence: a commit left pending by a killed job has landed before it, or fails validation
    after it. Refreshes ``iceberg_table``.

    A batch is merged into the versions that it reads, without ended ones; and a MERGE tolerates commits that came
    between that reading and its own. A mirror is safe by its orders, and an append by the snapshot that it names.
    """
    without_rows = iceberg_table.newFastAppend()
    (without_rows.toBranch(AUDIT_BRANCH) if is_staging(spark) else without_rows).commit()
    iceberg_table.refresh()


def _append(rows: DataFrame, place: WarehouseTable, newest: Any | None) -> None:
    """Add ``rows`` to the table, whose newest snapshot was ``newest``; fails where somebody has added some since.

    Iceberg retries the second of two commits upon the first. A plain append is valid upon any snapshot, so a table would have
    the batch twice if a killed job's commit was still pending in the catalog. overwrite(false) is an append that Iceberg
    checks against concurrent commits (Iceberg documentation, "Spark Configuration", Write options), as it checks MERGE by
    default. Compaction is no conflict.
    """
    writer = rows.writeTo(place.quoted()).option("isolation-level", "serializable")
    if newest is not None:
        writer = writer.option("validate-from-snapshot-id", str(newest.snapshotId()))
    writer.overwrite(sf.lit(False))


def _has_none_of(spark: SparkSession, iceberg_table: Any, newest: Any, table: SinkTable) -> bool:
    """Whether no row of the snapshot ``newest`` has a key of the batch: no file's bounds meet the batch's."""
    bounds = table.key_bounds
    if bounds is None or not table.are_first:
        return False
    expressions = java_class(spark, "org.apache.iceberg.expressions.Expressions")
    scan = (
        iceberg_table.newScan()
        .useSnapshot(newest.snapshotId())
        .filter(expressions.greaterThanOrEqual(bounds.column, bounds.least))
        .filter(expressions.lessThanOrEqual(bounds.column, bounds.greatest))
    )
    files = scan.planFiles()
    try:
        return not files.iterator().hasNext()
    finally:
        files.close()


def _create(spark: SparkSession, table: SinkTable, format_version: int) -> Any:
    """The new table, with its key as identifier fields where it mirrors."""
    fields, identifiers = java_class(spark, "java.util.ArrayList")(), java_class(spark, "java.util.HashSet")()
    nested_field = java_class(spark, _NESTED_FIELD)
    is_mirror = table.mode is SinkMode.MIRROR
    identifying = identifier_columns(table.columns, table.key) if is_mirror else ()
    own = [SinkColumn(name, OWN_SQL_TYPES[name]) for name in own_columns(table.mode, table.deletes)]
    for field_id, column in enumerate([*table.columns, *own], start=1):
        is_required = is_mirror and column.name in table.key and not column.is_optional
        of = nested_field.required if is_required else nested_field.optional
        fields.add(of(field_id, column.name, _java_type(spark, column.sql_type), column.comment))
        if column.name in identifying:
            identifiers.add(field_id)
    schema = java_class(spark, "org.apache.iceberg.Schema")(fields, identifiers)
    hash_map = java_class(spark, "java.util.HashMap")
    properties = hash_map()
    described = {"format-version": str(format_version), "comment": comment_of(table), **first_properties(table)}
    for name, value in {**_TABLE_PROPERTIES, **described}.items():
        properties.put(name, value)
    catalog, identifier = _catalog(spark), _identifier(spark, table.name)
    with _CATALOG_LOCK:
        if not catalog.namespaceExists(identifier.namespace()):
            catalog.createNamespace(identifier.namespace(), hash_map())
    spec = java_class(spark, "org.apache.iceberg.PartitionSpec").builderFor(schema)
    if table.mode is SinkMode.HISTORY:
        spec = spec.identity(IS_CURRENT_COLUMN)
    created = catalog.createTable(identifier, schema, spec.build(), properties)
    log.info("sink_table_created", table=str(table.name), mode=table.mode.value, key=list(table.key))
    return created


def _check_variants(table: SinkTable, columns: Sequence[SinkColumn], format_version: int) -> None:
    """Raises TableRefused where the table's format has no VARIANT."""
    names = ", ".join(column.name for column in columns if column.sql_type == VARIANT_TYPE)
    if names and format_version < _VARIANT_FORMAT:
        raise TableRefused(
            f"{table.name}: column {names} should be VARIANT (the tenant's sink.json_as_variant), which Iceberg has from "
            f"format {_VARIANT_FORMAT} on, and the table is of format {format_version}: leave it out there, or set "
            f"warehouses.iceberg.format_version to {_VARIANT_FORMAT} and write the tenant's tables again "
            "(docs/sinks/repair.md, 'Write tables again')"
        )


def _check_key_may_be_null(iceberg_table: Any, table: SinkTable, key: Sequence[str]) -> None:
    """A required column cannot be made optional while it identifies rows."""
    optional = {column.name for column in table.columns if column.is_optional}
    for name, stored in zip(table.key, key, strict=True) if table.mode is SinkMode.MIRROR else ():
        if name in optional and iceberg_table.schema().findField(stored).isRequired():
            raise TableRefused(
                f"{table.name}: key column {name} may be NULL at the source now; make it NOT NULL there, or write the "
                "tenant's tables again (docs/sinks/repair.md, 'Write tables again')"
            )


def _columns(types: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, TableColumn]:
    own = own_columns_of(properties)
    spark_types = {name: sql_type(each) for name, each in types.items() if name not in own}
    return {name: column_of(properties, name, each, each) for name, each in spark_types.items()}


def _properties_and_types(iceberg_table: Any, facts: TableFacts) -> tuple[dict[str, str], dict[str, str]]:
    """The types of all its columns, as Iceberg writes them."""
    types = {
        # A struct, list or map, which somebody else has added, is an object there.
        field["name"]: each if isinstance(each := field["type"], str) else _nested_type(iceberg_table, field["name"])
        for field in json.loads(facts.schema)["fields"]
    }
    return facts.properties, types


def _nested_type(iceberg_table: Any, column: str) -> str:
    return str(iceberg_table.schema().findType(column).toString())


def _evolve(
    spark: SparkSession, iceberg_table: Any, changes: Evolution, table: SinkTable, before: Mapping[str, str]
) -> None:
    """Change columns and their notes in one commit."""
    transaction = iceberg_table.newTransaction()
    if changes.renamed or changes.widened:
        update = transaction.updateSchema()
        old_names = {new: old for old, new in changes.renamed.items()}
        for old, new in changes.renamed.items():
            update.renameColumn(old, new)
        for column in changes.widened:  # an update knows columns by the names from before it
            update.updateColumn(old_names.get(column.name, column.name), _java_type(spark, column.sql_type))
        update.commit()
    if changes.added:
        update = transaction.updateSchema()  # of its own: a column may have the name that another one had
        for column in changes.added:
            update.addColumn(None, column.name, _java_type(spark, column.sql_type), column.comment or "")
            update.moveBefore(column.name, own_columns(table.mode, table.deletes)[0])
        update.commit()
    noted, gone = properties_after(before, changes, table)
    properties = transaction.updateProperties()
    for name, value in {**properties_before(before, changes, table), **noted}.items():
        properties.set(name, value)
    for name in gone:
        properties.remove(name)
    properties.commit()
    transaction.commitTransaction()
    iceberg_table.refresh()
    log_evolution(table, changes)


def _fill_pending_columns(
    spark: SparkSession,
    iceberg_table: Any,
    table: WarehouseTable,
    columns: Mapping[str, TableColumn],
    properties: Mapping[str, str],
) -> None:
    statement = fill_statement(table.quoted(), properties, list(columns))
    if statement is None:
        return
    spark.newSession().sql(statement)
    iceberg_table.refresh()
    update = iceberg_table.updateProperties()
    for pending in pending_of(properties):
        update.remove(pending)
    update.commit()


def _java_type(spark: SparkSession, spark_type: str) -> Any:
    return java_class(spark, "org.apache.iceberg.types.Types").fromTypeName(iceberg_type(spark_type))


def load_table(spark: SparkSession, table: WarehouseTable) -> Any | None:
    """Iceberg's own table at a place of the catalog; None: there is none."""
    # Not asked for first: a catalog that is asked whether there is a table loads it.
    try:
        return _catalog(spark).loadTable(_identifier(spark, table))
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() not in _MISSING:
            raise
        return None


def _catalog(spark: SparkSession) -> Any:
    with _CATALOG_LOCK:
        activate(spark)
        return java_class(spark, "org.apache.iceberg.spark.Spark3Util").loadIcebergCatalog(
            spark._jsparkSession, CATALOG
        )


def _identifier(spark: SparkSession, table: WarehouseTable) -> Any:
    names = java_array(spark, "String", table.identifier)
    return java_class(spark, "org.apache.iceberg.catalog.TableIdentifier").of(names)
