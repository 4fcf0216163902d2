"""A few changes merged into a small table without a query; the work is ``RowMerge.java``'s."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.sql import SparkSession

from libs.types.tenant import SinkMode
from libs.types.warehouse import OP_COLUMN, ORDER_COLUMN, own_columns
from spark.jvm.java import compiled, java_array
from spark.sinks.iceberg.table_facts import TableFacts
from spark.sinks.port import RowsAtHand, SinkTable
from spark.transforms.cut_envelope import DELETE

_MOST_ROWS: Final = 100_000
_MOST_BYTES: Final = 64_000_000
"""Of a table that one thread reads through, its keys and orders: in less time than a query takes to begin."""
_MOST_DELETE_FILES: Final = 64
"""Each is opened; maintenance leaves no more."""
_ANEW_BY_SHARE: Final = 4
"""One change for so many rows."""
_ANEW_AT_FILES: Final = 16
_WITHOUT_ROW_NUMBERS: Final = 2
_CLASS: Final = "RowMerge"
_EQUAL_ALIKE: Final = (
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "string",
    "binary",
    "date",
    "timestamp",
    "decimal",
    "timestamp_ntz",
)
"""Types of keys whose equal values are equal in Java. Fractions are left out: 0.0 equals -0.0."""
_NO_KEYS: Final = ("boolean", "float", "double")
"""Types of a history's other columns besides, which are compared as Spark's SQL compares them."""


def is_small_table(facts: TableFacts) -> bool:
    """Whether it has few rows, or none, neither partitioned nor sorted, and takes deletes beside its rows."""
    newest = facts.newest
    if facts.properties.get("write.merge.mode") != "merge-on-read" or facts.is_partitioned or facts.is_sorted:
        return False
    limits = {"records": _MOST_ROWS, "files-size": _MOST_BYTES, "delete-files": _MOST_DELETE_FILES}
    return newest is None or all(newest.total(name) <= limit for name, limit in limits.items())


def is_better_rewritten(facts: TableFacts, changes: int) -> bool:
    """Whether so many changes go into a small table at less cost by all of it being written again: they replace much of it, or
    every batch reads many files of it.

    Rows of tables of format 3 have numbers, which a merge keeps.
    """
    newest = facts.newest
    if newest is None or facts.format_version > _WITHOUT_ROW_NUMBERS:
        return False
    rows, files, deletes = (newest.total(of) for of in ("records", "data-files", "delete-files"))
    return 0 < rows <= _ANEW_BY_SHARE * changes or files + deletes >= _ANEW_AT_FILES


def is_small_history(facts: TableFacts) -> bool:
    """Whether it has few rows, or none, unsorted, and takes deletes beside its rows."""
    newest = facts.newest
    if facts.properties.get("write.merge.mode") != "merge-on-read" or facts.is_sorted:
        return False
    limits = {"records": _MOST_ROWS, "files-size": _MOST_BYTES, "delete-files": _MOST_DELETE_FILES}
    return newest is None or all(newest.total(name) <= limit for name, limit in limits.items())


def version_merge(
    spark: SparkSession, iceberg_table: Any, table: SinkTable, changes: RowsAtHand, tracked: Sequence[str]
) -> Callable[[], Any | None] | None:
    """What merges ``changes`` into a history: it gives the merge, its files written, as ``row_merge`` does, or None where a
    change is not newer than what is stored. None: such rows, or such a table, it does not take."""
    key = java_array(spark, "String", table.key)
    types, more_types = (java_array(spark, "String", names) for names in (_EQUAL_ALIKE, _NO_KEYS))
    own = java_array(spark, "String", own_columns(SinkMode.HISTORY, table.deletes))
    merge = compiled(spark, _CLASS)(iceberg_table, key, ORDER_COLUMN, OP_COLUMN, DELETE)
    if not merge.takesVersions(changes.row_type, own, types, more_types):
        return None
    names = java_array(spark, "String", tracked)
    return lambda: merge if merge.writeVersions(changes.take(), changes.row_type, own, names) else None


def row_merge(
    spark: SparkSession, iceberg_table: Any, facts: TableFacts, table: SinkTable, changes: RowsAtHand
) -> Any | None:
    """The merge, its files written; its ``commit``, with properties, is left to do. None: it does not take such rows."""
    types = [changes.row_type.apply(name).dataType().simpleString().partition("(")[0] for name in table.key]
    if not set(types) <= set(_EQUAL_ALIKE):
        return None
    key = java_array(spark, "String", table.key)
    merge = compiled(spark, _CLASS)(iceberg_table, key, ORDER_COLUMN, OP_COLUMN, DELETE)
    if not merge.takes(changes.row_type):
        return None
    if facts.newest is not None and is_better_rewritten(facts, table.changes):
        merge.writeAnew(changes.take(), str(facts.newest.id))
    else:
        merge.write(changes.take())
    return merge
