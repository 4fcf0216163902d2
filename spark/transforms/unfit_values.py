"""Which events of a table hold values that do not fit its columns: asked for only where a write has failed for one.

The same steps as on the way into the warehouse (``parse_events``, ``conform_to``), where a value that does not fit becomes NULL
instead of an error. No query fails here.
"""

import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from libs.types.table import Column, TableSchema
from spark.transforms.conform_to import source_columns
from spark.transforms.key_text import CORRUPT, TOLERANT, tolerant_type
from spark.transforms.value_types import decoded, row_type
from spark.transforms.warehouse_columns import TableColumn

UNFIT_COLUMN: Final = "unfit"
"""Names of the columns whose values do not fit; empty where the event itself is malformed, NULL where all is well."""
# For other names a malformed event gives no column: JSON paths have no escape for a quote.
_IN_A_PATH: Final = re.compile(r"[^'\\\]]+")


def find_unfit(columns: Mapping[str, TableColumn], schema: TableSchema) -> Callable[[DataFrame], DataFrame]:
    """Adds ``UNFIT_COLUMN`` to events under ``schema``; ``columns``: the table's.

    The key's columns are looked at in the row and in the record's key: a NULL where the source has none does not fit either.
    """
    taken = source_columns(columns, schema)
    key = [column for column in schema.columns if column.name in schema.key]

    def find(events: DataFrame) -> DataFrame:
        parsed = events.withColumn("read", sf.from_json("image", tolerant_type(row_type(schema.columns)), TOLERANT))
        if key:
            parsed = parsed.withColumn("read_key", sf.from_json("key", tolerant_type(row_type(key)), TOLERANT))
        unfit = [
            sf.when(_is_lost(column, sf.col("read").getField(column.name), columns[name].sql_type), name)
            for name, column in taken.items()
        ]
        missing = [
            sf.when(sf.col("read").getField(column.name).isNull(), column.name)
            for column in key
            if not column.is_optional
        ]
        names = sf.array_distinct(sf.filter(sf.array(sf.lit(None).cast("string"), *unfit, *missing), sf.isnotnull))
        found = (
            sf.when(sf.col("image").isNull(), sf.lit(None))
            .when(~sf.is_valid_utf8("image"), sf.array().cast("array<string>"))
            .when(sf.col("read").getField(CORRUPT).isNotNull(), _unread(schema))
            .when(sf.size(names) > 0, names)
        )
        if key:
            is_unread = sf.col("read_key").getField(CORRUPT).isNotNull() | ~sf.is_valid_utf8("key")
            is_bad_key = sf.col("key").isNotNull() & is_unread
            found = sf.coalesce(found, sf.when(is_bad_key, sf.array(*(sf.lit(column.name) for column in key))))
        return parsed.withColumn(UNFIT_COLUMN, found).drop("read", "read_key")

    return find


def _is_lost(column: Column, value: SparkColumn, sql_type: str) -> SparkColumn:
    return value.isNotNull() & decoded(column, value, is_strict=False).try_cast(sql_type).isNull()


def _unread(schema: TableSchema) -> SparkColumn:
    """Of an image that is no such row: the columns that it has a value of, and that none was read of; none, if none was."""
    is_read = functools.reduce(
        operator.or_, (sf.col("read").getField(item.name).isNotNull() for item in schema.columns)
    )
    unread = [
        sf.when(
            is_read
            & sf.get_json_object("image", f"$['{column.name}']").isNotNull()
            & sf.col("read").getField(column.name).isNull(),
            column.name,
        )
        for column in schema.columns
        if _IN_A_PATH.fullmatch(column.name)
    ]
    return sf.filter(sf.array(sf.lit(None).cast("string"), *unread), sf.isnotnull)
