"""The sink's port, between the streaming job and one kind of warehouse.

``spark.batch`` calls it for each table of a micro-batch: ``is_applied`` ▶ ``ensure_table`` ▶ ``merge_into``,
``append_to`` or ``merge_versions``. A new warehouse is a folder beside ``iceberg/`` and a line in ``registry.py``.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession

from libs.errors import HeadwaterError
from libs.sink_state.progress import ReachedPosition, Standing, TableFiles
from libs.types.table import TableSchema
from libs.types.table_layout import OrderedTerm, Term
from libs.types.tenant import ChangePolicies, Deletes, SinkMode
from libs.types.value import LogicalType
from libs.types.warehouse import OWN_COLUMN_PREFIX, WarehouseTable
from libs.warehouse.dialect import Dialect
from spark.transforms.sql_text import quoted
from spark.transforms.warehouse_columns import Fill, TableColumn, Truncation

KAFKA_PARTITION_COLUMN: Final = f"{OWN_COLUMN_PREFIX}kafka_partition"
OFFSET_COLUMN: Final = f"{OWN_COLUMN_PREFIX}offset"


class TableRefused(HeadwaterError):
    """This table cannot be written as it is: park it, go on with the others; the message ends with the remedy."""


class RowsRefused(TableRefused):
    """Some rows of the batch cannot be stored, and no change of the table helps: ask ``NamesRefusedRows`` which."""


class TableLeftOut(HeadwaterError):
    """By policy this table is not made: pass over its events; the message says which table and which policy."""


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Which micro-batch: the same after a replay, another for every other batch of every query."""

    query_id: str
    """Of the streaming query; lives in its Spark checkpoint."""
    batch_id: int

    def __str__(self) -> str:
        return f"{self.query_id}:{self.batch_id}"


@dataclass(frozen=True, slots=True)
class SinkColumn:
    """A column that the source's table has at its newest version."""

    name: str
    sql_type: str
    """Spark's."""
    comment: str | None = None
    fill: Fill | None = None
    """None: NULL, or not known."""
    logical_type: LogicalType | None = None
    """Its type at the source, for warehouses that have more types than Spark. None: no more than ``sql_type`` says."""
    is_optional: bool = True
    """May be NULL at the source."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a table gets with a batch."""

    order: str
    """The newest of its events."""
    committed_at_us: int
    """When the source committed the newest."""
    offsets: Mapping[int, int]
    """By Kafka partition of its topic: after the last event."""
    positions: tuple[ReachedPosition, ...] = ()
    """By source partition: where the source's log has the newest change; for partitions without one in the batch, the former
    place."""


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Where the keys of a batch lie, of a table whose key is one whole number."""

    column: str
    """The key, as the warehouse's table has it."""
    least: int
    greatest: int

    @property
    def condition(self) -> str:
        """Of stored rows that may have such a key, in Spark SQL; the table's alias is ``t``."""
        return f"t.{quoted(self.column)} BETWEEN {self.least} AND {self.greatest}"


@dataclass(frozen=True, slots=True)
class SinkTable:
    """A table as a batch needs it."""

    name: WarehouseTable
    mode: SinkMode
    deletes: Deletes
    columns: tuple[SinkColumn, ...]
    """Those of ``schema``, in order."""
    key: tuple[str, ...]
    topic: str
    source: str
    table: str
    """``database.table`` at the source."""
    schema: TableSchema
    """The version that the table is to be made ready for: the newest of the batch."""
    oldest_version: int
    """The oldest schema version among the batch's events."""
    reached: Reached
    policies: ChangePolicies
    """The table's change when ``schema`` differs from its own."""
    schema_at: Callable[[int], TableSchema | None]
    """The table at an older version, as the tenant received it; None: not known any more."""
    partition_by: tuple[Term, ...] | None = None
    """None: as the warehouse has it."""
    sort_by: tuple[OrderedTerm, ...] | None = None
    """None: as the warehouse has it."""
    key_bounds: KeyBounds | None = None
    """Of every event of the batch; None: not known."""
    are_first: bool = False
    """Every event of the batch is an insert or a row of a snapshot: where the table has none of their keys, there is nothing to
    merge with."""
    is_copy: bool = False
    """Some are rows of a snapshot."""
    changes: int = 0
    """How many events of the batch are the table's; 0: not known."""
    oldest_order: str = ""
    """None of the events that are written has a smaller one; empty: not known. Of a history."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """A table after its commit."""

    files: TableFiles | None = None
    """None: not known."""
    was_due: bool = False
    """Whether anything was rewritten, expired or cleaned now."""


@dataclass(frozen=True, slots=True)
class NewVersions:
    """A batch's effect on the versions that a table holds."""

    rows: DataFrame
    """As ``spark.transforms.versions`` has them: each replaces the stored one that ``STORED_COLUMN`` names, or is new; those
    with ``IS_GONE_COLUMN`` only go."""
    only_current: bool
    """No other stored version is named than current ones, so no others are read."""


class VersionsOf(Protocol):
    """A batch's effect on the versions of its keys."""

    def __call__(self, stored: DataFrame, *, may_hold_batch: bool = False) -> NewVersions:
        """``may_hold_batch``: some of ``stored`` may be of this very batch. Then they all count, and none is written that is
        there already; ``only_current`` is false. Else those that have ended count only where a change is late."""
        ...


@dataclass(frozen=True, slots=True)
class StoredLog:
    """An ``append`` table, as it is now."""

    rows: DataFrame
    """With Headwater's own columns; as of the moment it was opened in, without later writes."""
    key: tuple[str, ...]
    """Of the source's table; empty: it has none."""
    source: str
    table: str
    """``database.table`` at the source."""


class SinkLifecycle(Protocol):
    """A warehouse over batches: which of them its tables hold."""

    def session_config(self) -> Mapping[str, str]:
        """Spark settings that the warehouse needs; read before the session starts."""
        ...

    def begin_batch(self, spark: SparkSession, batch: BatchIdentity) -> None:
        """Called once before the tables of a batch; ``spark`` is the session that all of them use."""
        ...

    def is_applied(
        self, spark: SparkSession, table: WarehouseTable, batch: BatchIdentity, offsets: Mapping[int, int]
    ) -> bool:
        """Whether the table holds the batch already. False where there is no table.

        ``offsets``: after the batch's events, by Kafka partition of the table's topic, as ``Reached`` has them. A batch that
        was cut off may come again with others, where the table was parked in between: its rows count only if
        it got as far.

        Raises:
            TableRefused: it cannot be known now.
        """
        ...

    def standing(self, spark: SparkSession, table: WarehouseTable) -> Standing | None:
        """Which table there is, and which batch its rows are of, as ``spark`` writes upon them; None: there is no table.

        Asked after ``is_applied`` or ``maintain``, which may have looked already.
        """
        ...


class SinkTables(Protocol):
    """A warehouse's tables and their columns."""

    @property
    def dialect(self) -> Dialect:
        """The types of its columns."""
        ...

    def ensure_table(self, spark: SparkSession, table: SinkTable) -> Mapping[str, TableColumn]:
        """Create the table, or add, widen and rename columns (``spark.sinks.evolution``); the columns it has now, in order,
        Headwater's aside.

        Never drops or narrows. In a mirror, rows from before a column was added get its ``fill``. Idempotent; a call that
        was cut off is completed by the next one.

        Raises:
            TableRefused: the change cannot be made without losing values, a policy refuses it, or the table is of another mode.
            TableLeftOut: the table is not there, and a policy has it so.
        """
        ...

    def exists(self, spark: SparkSession, table: WarehouseTable) -> bool:
        """Whether there is a table of that name, by any maker."""
        ...

    def read(self, spark: SparkSession, table: WarehouseTable) -> DataFrame:
        """All rows of a table that exists, with Headwater's own columns."""
        ...

    def open_log(self, spark: SparkSession, table: WarehouseTable) -> AbstractContextManager[StoredLog]:
        """The rows that are there now, to be read in the block.

        Raises:
            TableRefused: there is no such table, or it is no log.
        """
        ...

    def create_with(
        self,
        spark: SparkSession,
        table: WarehouseTable,
        rows: DataFrame,
        noted: Mapping[str, str],
        *,
        like: WarehouseTable,
    ) -> None:
        """A new table with ``rows`` and its notes, in one commit: until then there is none. Its columns are some
        of those of ``like``, a log.

        Raises:
            TableRefused: there is such a table; it stays as it is.
        """
        ...


class SinkRows(Protocol):
    """The rows of one table. Each call is one commit; until it, readers see the table as it was."""

    def merge_into(
        self, spark: SparkSession, table: SinkTable, changes: DataFrame, *, truncation: Truncation | None = None
    ) -> None:
        """Upsert and delete by key, one commit. ``changes``: one row a key, with the columns of ``ensure_table``, the
        order, the commit time and the op; with soft deletes ``_headwater_deleted`` and ``_headwater_deleted_at`` besides.

        A row that holds an equal or greater order stays as it is; deleting an absent key is fine. ``truncation``: all
        rows of a smaller order go, or are marked. Where ``changes`` have ``UNAVAILABLE_COLUMN``, the columns that it names keep
        the value that the stored row has.
        """
        ...

    def append_to(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        """Add every change as a row, one commit."""
        ...

    def merge_versions(
        self,
        spark: SparkSession,
        table: SinkTable,
        keys: DataFrame,
        versions_of: VersionsOf,
        *,
        truncation: Truncation | None = None,
    ) -> None:
        """Write versions of rows, one commit; the table was created.

        ``keys``: those of the batch, the columns of ``SinkTable.key``, none twice. ``versions_of`` is given the table's
        versions of them, perhaps of others too, and returns the versions to write; versions that had ended before
        ``SinkTable.oldest_order`` may be left out. ``truncation`` ends the current versions of a smaller order, save those
        that are replaced.
        """
        ...

    def replace_rows(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        """Replace a mirror's rows by ``changes``, which are the whole table, in one commit. Stored rows count for
        nothing, and so do their orders.

        ``changes``: as of ``merge_into``. A stored row whose key they do not have goes; with soft deletes it stays, marked: as
        it was marked, or as deleted when ``table.reached`` was committed.
        """
        ...

    def replace_versions(
        self, spark: SparkSession, table: SinkTable, versions_of: Callable[[DataFrame], DataFrame]
    ) -> None:
        """Replace a history's versions by the result of ``versions_of``, in one commit.

        ``versions_of`` gets all of the table's versions, and may read them twice; its result has the same columns.
        """
        ...

    def replace_entries(self, spark: SparkSession, table: SinkTable, changes: DataFrame) -> None:
        """The entries of a log that are of the same changes as ``changes``, by order and key, give way to these, however often
        they are there; others stay. One commit.

        ``changes``: as of ``append_to``; may be read twice.
        """
        ...


class SinkUpkeep(Protocol):
    """A table after its commits, and the end of a tenant."""

    def maintain(self, spark: SparkSession, table: WarehouseTable) -> Maintained:
        """Called after each commit: keep the table fast to read, if it is due. Changes no row."""
        ...

    def drop_tables(self, spark: SparkSession, tenant: str) -> int:
        """Remove all tables of ``tenant``, with their rows, old versions and stages; returns how many there were. Nothing of
        another tenant's. Fine where there are none; a call that was cut off is completed by the next one.

        Raises:
            HeadwaterError, PySparkException, Py4JError, OSError: the warehouse does not do it; try again.
        """
        ...


class Sink(SinkLifecycle, SinkTables, SinkRows, SinkUpkeep, Protocol):
    """One kind of warehouse. Calls for different tables may come from different threads at once.

    Exactly once: all that ``merge_into``, ``append_to`` and ``merge_versions`` write becomes visible in one commit together
    with the batch's identity, so after a crash ``is_applied`` says whether it happened. Where the warehouse has a place for
    it, the commit carries ``SinkTable.reached`` too.
    """


@dataclass(frozen=True, slots=True)
class RowsAtHand:
    """Changes of one table in the driver's memory, as its JVM has them."""

    row_type: Any
    """Java's StructType: the columns of ``ensure_table``, Headwater's, the op."""
    take: Callable[[], Any]
    """Java's Iterator of InternalRow, each good until the next one; to be called once. Undecodable events fail in it."""


@runtime_checkable
class MergesRows(Protocol):
    """A sink that merges a few changes into a small mirror without a query (``spark.batch.small_tables``)."""

    def merge_rows(self, spark: SparkSession, table: SinkTable, changes: RowsAtHand) -> Callable[[], None] | None:
        """Do the work of ``merge_into`` up to its commit, and return that, one commit with the same promises. None: the
        table is not one for it, and nothing was written.

        ``changes``: several of a key may be there, of which the last one counts. With soft deletes none is a delete.

        Raises:
            PySparkException, Py4JJavaError: nothing of the write is left; ``merge_into`` may be called.
        """
        ...


@runtime_checkable
class MergesVersionRows(Protocol):
    """A sink that merges a few changes into a small history without a query (``spark.batch.small_tables``)."""

    def merge_version_rows(
        self, spark: SparkSession, table: SinkTable, changes: RowsAtHand, *, tracked: Sequence[str], is_known: bool
    ) -> Callable[[], None] | None:
        """Do what ``merge_versions`` does up to its commit, and return that commit, with the same promises. None: the table, or
        a change, is not one for it, and nothing was written.

        ``changes``: whole rows, in any order, each with its order, commit time and op. ``tracked``: columns of which a change
        opens a version. ``is_known``: all changes are newer than all that the table holds; else it has to be empty.

        Raises:
            PySparkException, Py4JJavaError: nothing is left of what was written; ``merge_versions`` may be called.
        """
        ...


@runtime_checkable
class NeedsClasses(Protocol):
    """A sink that needs classes which are not among the job's own jars."""

    def needed_classes(self) -> Mapping[str, str]:
        """Full names, each with the jar that has it."""
        ...


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that the warehouse cannot store, by its event's place in the table's topic."""

    kafka_partition: int
    offset: int
    because: str
    """The mistake, with the remedy; never a row's values."""


@runtime_checkable
class NamesRefusedRows(Protocol):
    """A sink whose warehouse refuses values that Spark's types hold; it raises ``RowsRefused`` for them."""

    def refused_rows(
        self, spark: SparkSession, table: SinkTable, changes: DataFrame, *, at_most: int
    ) -> list[RefusedRow]:
        """Those among ``changes``, of which it changes nothing. ``changes`` have the columns of ``append_to``, and after them
        ``KAFKA_PARTITION_COLUMN`` and ``OFFSET_COLUMN``. Stops when it has found more than ``at_most``."""
        ...


@runtime_checkable
class ShowsTogether(Protocol):
    """A sink that can show a batch's rows in several tables at once (``sink.consistency: transaction``)."""

    def staged_batch(self, spark: SparkSession) -> AbstractContextManager[None]:
        """Hide the writes of ``spark`` in the block until ``show_together``. Writes that were not shown at its end are either
        durable, known by ``is_applied`` and shown by the next ``show_together``, or it is undone, and the batch comes again."""
        ...

    def show_together(self, spark: SparkSession, tenant: str, tables: Sequence[WarehouseTable]) -> None:
        """Show the waiting rows of ``tables``, by one commit: to all, or where the warehouse has no such commit, to readers of
        which snapshots belong together, and then to all, table by table. Idempotent: a call that was cut off anywhere is
        completed by the next one, or by the batch that comes again."""
        ...


@runtime_checkable
class KeepsFiles(Protocol):
    """A sink whose tables may lie on the job's own machine."""

    @property
    def folders(self) -> Sequence[Path]:
        """Folders and files of this machine without which nobody finds the tables; none where others have them too."""
        ...
