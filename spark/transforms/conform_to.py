"""From parsed changes to rows of the sink's table: its columns, its types, and Headwater's own columns."""

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from libs.types.table import Column, TableSchema
from libs.types.warehouse import COMMITTED_AT_COLUMN, OP_COLUMN, ORDER_COLUMN, OWN_COLUMN_PREFIX, UNAVAILABLE_COLUMN
from spark.transforms.value_types import decoded
from spark.transforms.warehouse_columns import TableColumn


def conform_to(
    columns: Mapping[str, TableColumn],
    schema: TableSchema,
    *,
    parsed_keys: Mapping[str, str] | None = None,
    is_partial: bool = False,
    kept: Sequence[str] = (),
) -> Callable[[DataFrame], DataFrame]:
    """Rows with exactly ``columns`` and Headwater's three, of changes parsed under ``schema``.

    A column that ``schema`` does not have yet has its fill, one that the source dropped is NULL, and so is one that takes no
    values of this version; a type narrower than the table's is widened. Names are compared without regard to case, as MySQL
    and Spark do. ``parsed_keys`` are columns that ``parse_keys`` has made already, by their names in the table.
    ``is_partial``: ``split_unavailable`` was there, and ``UNAVAILABLE_COLUMN`` names columns of the table. ``kept``: the
    columns of the changes after all these, with Headwater's prefix before its name.
    """
    keys = parsed_keys or {}
    taken = source_columns(columns, schema)

    def value(name: str, target: TableColumn) -> SparkColumn:
        if name in keys:
            return sf.col(keys[name]).alias(name)
        column = taken.get(name)
        if column is not None:
            return decoded(column, sf.col("row").getField(column.name)).cast(target.sql_type).alias(name)
        fill = target.fill
        missing = sf.expr(fill.expression) if fill and schema.version < fill.since_version else sf.lit(None)
        return missing.cast(target.sql_type).alias(name)

    def unavailable() -> SparkColumn:
        names = [
            sf.when(sf.array_contains("unavailable", column.name), sf.lit(name))
            for name, column in taken.items()
            if name not in keys
        ]
        return sf.filter(sf.array(*names), sf.isnotnull) if names else sf.array().cast("array<string>")

    def conform(changes: DataFrame) -> DataFrame:
        return changes.select(
            *(value(name, target) for name, target in columns.items()),
            sf.col("op").alias(OP_COLUMN),
            sf.col("order").alias(ORDER_COLUMN),
            sf.timestamp_micros("committed_at_us").alias(COMMITTED_AT_COLUMN),
            *([unavailable().alias(UNAVAILABLE_COLUMN)] if is_partial else []),
            *(sf.col(name).alias(OWN_COLUMN_PREFIX + name) for name in kept),
        )

    return conform


def source_columns(columns: Mapping[str, TableColumn], schema: TableSchema) -> dict[str, Column]:
    """By the table's columns: the column of ``schema`` whose values each takes. One that takes none is missing."""
    of_schema = {column.name.lower(): column for column in schema.columns}
    names = {
        name: name if target.sources is None else target.sources.get(schema.version) for name, target in columns.items()
    }
    return {name: of_schema[own.lower()] for name, own in names.items() if own is not None and own.lower() in of_schema}
