"""Hidden partitioning and sort order of Iceberg tables, as a tenant's settings have them.

Both may be changed at any time: files that are there stay as they were, and are read rightly (Iceberg specification, "Partition
Evolution"); new ones, and those that maintenance rewrites, follow.
"""

from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.types.table_layout import OrderedTerm, Term
from libs.types.tenant import SinkMode
from libs.types.warehouse import IS_CURRENT_COLUMN
from spark.jvm.java import java_class
from spark.sinks.port import SinkTable, TableRefused


def follow_layout(spark: SparkSession, iceberg_table: Any, table: SinkTable) -> bool:
    """Give the table the partitioning and the order that the settings name; whether anything had to be changed.

    Raises:
        TableRefused: a column is not there, or a transform is none for its type.
    """
    try:
        is_partitioned = table.partition_by is not None and _partition(spark, iceberg_table, table)
        is_sorted = table.sort_by is not None and _sort(spark, iceberg_table, table, table.sort_by)
    except Py4JJavaError as error:
        raise TableRefused(f"{table.name}: sink.layouts: {error.java_exception.getMessage()}") from error
    return is_partitioned or is_sorted


def partition_terms(table: SinkTable) -> tuple[Term, ...]:
    """The table's partitioning; a history's current versions are always apart from those that ended."""
    always = (Term(IS_CURRENT_COLUMN),) if table.mode is SinkMode.HISTORY else ()
    return (*always, *(table.partition_by or ()))


def _partition(spark: SparkSession, iceberg_table: Any, table: SinkTable) -> bool:
    wanted = {_named(iceberg_table, term, table): term for term in partition_terms(table)}
    schema = iceberg_table.schema()
    current = {
        (schema.findColumnName(field.sourceId()), field.transform().toString()): field.name()
        for field in iceberg_table.spec().fields()
        if not field.transform().isVoid()
    }
    if wanted.keys() == current.keys():
        return False
    update = iceberg_table.updateSpec()
    for known, name in current.items():
        if known not in wanted:
            update.removeField(name)
    for known, term in wanted.items():
        if known not in current:
            update.addField(_expression(spark, known[0], term))
    update.commit()
    return True


def _sort(spark: SparkSession, iceberg_table: Any, table: SinkTable, sort_by: Sequence[OrderedTerm]) -> bool:
    wanted = [(*_named(iceberg_table, each.term, table), each.is_descending) for each in sort_by]
    schema, descending = iceberg_table.schema(), java_class(spark, "org.apache.iceberg.SortDirection").DESC
    current = [
        (schema.findColumnName(field.sourceId()), field.transform().toString(), field.direction().equals(descending))
        for field in iceberg_table.sortOrder().fields()
    ]
    if wanted == current:
        return False
    update, nulls = iceberg_table.replaceSortOrder(), java_class(spark, "org.apache.iceberg.NullOrder")
    for each, (column, _, is_descending) in zip(sort_by, wanted, strict=True):
        term = _expression(spark, column, each.term)
        if is_descending:
            update.desc(term, nulls.NULLS_LAST)
        else:
            update.asc(term, nulls.NULLS_FIRST)
    update.commit()
    return True


def _named(iceberg_table: Any, term: Term, table: SinkTable) -> tuple[str, str]:
    """The column as the table spells it, and the transform as Iceberg prints it."""
    field = iceberg_table.schema().caseInsensitiveFindField(term.column)
    if field is None:
        known = ", ".join(column.name for column in table.columns)
        raise TableRefused(f"{table.name}: sink.layouts: there is no column {term.column}; there are {known}")
    return field.name(), term.transform if term.number is None else f"{term.transform}[{term.number}]"


def _expression(spark: SparkSession, column: str, term: Term) -> Any:
    expressions = java_class(spark, "org.apache.iceberg.expressions.Expressions")
    match term.transform:
        case "identity":
            return expressions.ref(column)
        case "bucket":
            return expressions.bucket(column, term.number)
        case "truncate":
            return expressions.truncate(column, term.number)
        case transform:
            return getattr(expressions, transform)(column)
