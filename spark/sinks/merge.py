"""How one micro-batch goes into a table that Spark SQL itself writes. ``target`` is the table's quoted name."""

from collections.abc import Callable, Sequence
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from libs.types.tenant import Deletes
from libs.types.warehouse import (
    CLOSED_BY_COLUMN,
    COMMITTED_AT_COLUMN,
    DELETED_AT_COLUMN,
    DELETED_COLUMN,
    IS_CURRENT_COLUMN,
    OP_COLUMN,
    OPENED_BY_COLUMN,
    ORDER_COLUMN,
    UNAVAILABLE_COLUMN,
    VALID_TO_COLUMN,
    own_columns,
)
from spark.sinks.port import NewVersions, SinkTable
from spark.transforms.cut_envelope import DELETE
from spark.transforms.sql_text import literal, quoted
from spark.transforms.versions import IS_GONE_COLUMN, STORED_COLUMN
from spark.transforms.warehouse_columns import Truncation


def first_rows(table: SinkTable, changes: DataFrame) -> DataFrame:
    """The rows of ``changes`` for a table with none of their keys: no join is needed, which each batch of a snapshot would
    otherwise pay for."""
    rows = changes if table.deletes is Deletes.SOFT else changes.where(sf.col(OP_COLUMN) != DELETE)
    return rows.drop(OP_COLUMN, UNAVAILABLE_COLUMN)


def first_versions(versions: DataFrame) -> DataFrame:
    """The rows of ``versions`` for an empty table."""
    return versions.drop(STORED_COLUMN, IS_GONE_COLUMN)


def replaced_rows(table: SinkTable, changes: DataFrame, stored: DataFrame) -> DataFrame:
    """All that a mirror holds once it is built again of ``changes`` (``replace_rows``); ``stored``: its rows until then."""
    rows = _completed(table, changes, stored) if UNAVAILABLE_COLUMN in changes.columns else changes
    if table.deletes is not Deletes.SOFT:
        return first_rows(table, rows)
    rows = first_rows(table, rows)
    keys = rows.select(*map(quoted, table.key))
    deleted_at = sf.timestamp_micros(sf.lit(table.reached.committed_at_us))
    left = (
        stored.alias("t")
        .join(keys.alias("s"), sf.expr(_same_key(table)), "left_anti")
        .withColumns(
            {DELETED_COLUMN: sf.lit(True), DELETED_AT_COLUMN: sf.coalesce(sf.col(DELETED_AT_COLUMN), deleted_at)}
        )
    )
    return rows.unionByName(left.select(*map(quoted, rows.columns)))


def replaced_entries(table: SinkTable, changes: DataFrame, stored: DataFrame) -> DataFrame:
    """A log's rows after ``changes`` replace their entries (``replace_entries``); ``stored``: its rows until then."""
    changed = changes.select(*map(quoted, [*table.key, ORDER_COLUMN])).distinct()
    same = " AND ".join(f"t.{quoted(name)} <=> s.{quoted(name)}" for name in table.key)
    # By a plain equality first: Spark joins by it without a look at every pair.
    is_same = f"t.{ORDER_COLUMN} = s.{ORDER_COLUMN}" + (f" AND {same}" if same else "")
    left = stored.alias("t").join(changed.alias("s"), sf.expr(is_same), "left_anti")
    return changes.unionByName(left.select(*map(quoted, changes.columns)))


def _completed(table: SinkTable, changes: DataFrame, stored: DataFrame) -> DataFrame:
    """With the stored values of the columns that ``UNAVAILABLE_COLUMN`` names."""
    kept = {*own_columns(table.mode, table.deletes), OP_COLUMN, UNAVAILABLE_COLUMN, *table.key}

    def given(name: str) -> Column:
        if name in kept:
            return sf.col(f"s.{quoted(name)}")
        is_lacking = sf.array_contains(f"s.{UNAVAILABLE_COLUMN}", name)
        return sf.when(is_lacking, sf.col(f"t.{quoted(name)}")).otherwise(sf.col(f"s.{quoted(name)}")).alias(name)

    joined = changes.alias("s").join(stored.alias("t"), sf.expr(_same_key(table)), "left")
    return joined.select(*(given(name) for name in changes.columns))


def merge_changes(
    spark: SparkSession,
    target: str,
    table: SinkTable,
    changes: DataFrame,
    truncation: Truncation | None,
    of_keys: str | None = None,
    session_of: Callable[[SparkSession], SparkSession] = lambda spark: spark,
) -> None:
    """``Sink.merge_into`` as one MERGE. ``of_keys``: true of each stored row, ``t``, with one of their keys. ``session_of``:
    the session that runs it, made of ``spark`` when that has the changes."""
    view = f"changes_{uuid4().hex}"
    statement = _changes_statement(target, table, changes.columns, view, truncation, of_keys)
    _run_on(spark, changes, view, statement, session_of)


def merge_versions(
    spark: SparkSession,
    target: str,
    table: SinkTable,
    versions: NewVersions,
    truncation: Truncation | None,
    of_keys: str | None = None,
    session_of: Callable[[SparkSession], SparkSession] = lambda spark: spark,
) -> None:
    """``Sink.merge_versions`` as one MERGE. ``of_keys``, ``session_of``: as of ``merge_changes``."""
    view = f"versions_{uuid4().hex}"
    statement = _versions_statement(target, table, versions, view, truncation, of_keys)
    _run_on(spark, versions.rows, view, statement, session_of)


def _run_on(
    spark: SparkSession,
    rows: DataFrame,
    view: str,
    statement: str,
    session_of: Callable[[SparkSession], SparkSession],
) -> None:
    rows.createOrReplaceTempView(view)
    try:
        session_of(spark).sql(statement)
    finally:
        spark.catalog.dropTempView(view)


def _changes_statement(
    target: str,
    table: SinkTable,
    columns: Sequence[str],
    view: str,
    truncation: Truncation | None,
    of_keys: str | None,
) -> str:
    """``view`` has one row a key, ``columns`` and the op among them."""
    stored = [name for name in columns if name not in (OP_COLUMN, UNAVAILABLE_COLUMN)]
    is_partial = UNAVAILABLE_COLUMN in columns
    is_soft = table.deletes is Deletes.SOFT
    is_newer = f"s.{ORDER_COLUMN} > t.{ORDER_COLUMN}"
    is_delete = f"s.{OP_COLUMN} = '{DELETE}'"
    own = own_columns(table.mode, table.deletes)
    when_deleted = f"UPDATE SET {_assignments([name for name in stored if name in own])}" if is_soft else "DELETE"
    clauses = [
        f"MERGE INTO {target} t USING {view} s ON {_same_key(table)}{_and(of_keys)}",
        f"WHEN MATCHED AND {is_newer} AND {is_delete} THEN {when_deleted}",
        f"WHEN MATCHED AND {is_newer} THEN UPDATE SET {_assignments(stored, kept=own if is_partial else None)}",
        f"WHEN NOT MATCHED {'' if is_soft else f'AND NOT {is_delete} '}THEN {_insert(stored)}",
    ]
    if truncation is not None:
        is_before = f"t.{ORDER_COLUMN} < '{truncation.order}'"
        clauses.append(
            f"WHEN NOT MATCHED BY SOURCE AND {is_before} AND NOT t.{DELETED_COLUMN} THEN UPDATE SET "
            f"t.{DELETED_COLUMN} = true, t.{DELETED_AT_COLUMN} = {_time_of(truncation)}, "
            f"t.{ORDER_COLUMN} = '{truncation.order}', t.{COMMITTED_AT_COLUMN} = {_time_of(truncation)}"
            if is_soft
            else f"WHEN NOT MATCHED BY SOURCE AND {is_before} THEN DELETE"
        )
    return "\n".join(clauses)


def _versions_statement(
    target: str,
    table: SinkTable,
    versions: NewVersions,
    view: str,
    truncation: Truncation | None,
    of_keys: str | None,
) -> str:
    """``view`` has the rows of ``versions``."""
    stored = [name for name in versions.rows.columns if name not in (STORED_COLUMN, IS_GONE_COLUMN)]
    is_same = f"{_same_key(table)} AND t.{OPENED_BY_COLUMN} = s.{STORED_COLUMN}"
    # Tables are partitioned by it: versions that ended are not even opened.
    is_current = f" AND t.{IS_CURRENT_COLUMN}" if versions.only_current else ""
    clauses = [
        f"MERGE INTO {target} t USING {view} s ON {is_same}{is_current}{_and(of_keys)}",
        f"WHEN MATCHED AND s.{IS_GONE_COLUMN} THEN DELETE",
        f"WHEN MATCHED THEN UPDATE SET {_assignments(stored)}",
        f"WHEN NOT MATCHED THEN {_insert(stored)}",
    ]
    if truncation is not None:
        clauses.append(
            f"WHEN NOT MATCHED BY SOURCE AND t.{IS_CURRENT_COLUMN} AND t.{ORDER_COLUMN} < '{truncation.order}' THEN UPDATE SET "
            f"t.{IS_CURRENT_COLUMN} = false, t.{VALID_TO_COLUMN} = {_time_of(truncation)}, "
            f"t.{CLOSED_BY_COLUMN} = '{truncation.order}'"
        )
    return "\n".join(clauses)


def _same_key(table: SinkTable) -> str:
    optional = {column.name for column in table.columns if column.is_optional}
    same = [f"t.{quoted(name)} {'<=>' if name in optional else '='} s.{quoted(name)}" for name in table.key]
    # By the condition on stored rows alone, files without such a key are not opened.
    return " AND ".join([*same, *([table.key_bounds.condition] if table.key_bounds else [])])


def _and(condition: str | None) -> str:
    return f" AND {condition}" if condition else ""


def _insert(names: Sequence[str]) -> str:
    given = ", ".join(f"s.{quoted(name)}" for name in names)
    return f"INSERT ({', '.join(map(quoted, names))}) VALUES ({given})"


def _assignments(names: Sequence[str], kept: Sequence[str] | None = None) -> str:
    """``kept``, if given: all but these keep their value where ``UNAVAILABLE_COLUMN`` names them."""
    return ", ".join(_assignment(name, may_lack=kept is not None and name not in kept) for name in names)


def _assignment(name: str, *, may_lack: bool) -> str:
    column = quoted(name)
    if not may_lack:
        return f"t.{column} = s.{column}"
    return f"t.{column} = IF(array_contains(s.{UNAVAILABLE_COLUMN}, {literal(name)}), t.{column}, s.{column})"


def _time_of(truncation: Truncation) -> str:
    return f"timestamp_micros({truncation.committed_at_us})"
