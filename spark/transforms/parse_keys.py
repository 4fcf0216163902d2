"""From the JSON text of a record's key to typed columns, before anything else of the event is parsed."""

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, LongType

from libs.types.table import TableSchema
from libs.types.value import LogicalKind
from libs.types.warehouse import OWN_COLUMN_PREFIX
from spark.transforms.parsed_row import parsed_row
from spark.transforms.value_types import decoded, row_type
from spark.transforms.warehouse_columns import TableColumn

_WHOLE_NUMBERS: Final = frozenset({LogicalKind.INT8, LogicalKind.INT16, LogicalKind.INT32, LogicalKind.INT64})
_BIGINT: Final = LongType()


def has_whole_number_key(schema: TableSchema) -> bool:
    """Whether the key is one whole number, written as such."""
    kinds = [column.logical_type.kind for column in schema.columns if column.name in schema.key]
    return len(kinds) == 1 and kinds[0] in _WHOLE_NUMBERS


def last_number(key: str, number_type: DataType = _BIGINT) -> SparkColumn:
    """7 of a key ``{"id":7}``; NULL where that is no whole number of the type. Of a key of other columns it means nothing."""
    return sf.substring_index(sf.substring_index(key, ":", -1), "}", 1).try_cast(number_type)


def key_columns(schema: TableSchema) -> dict[str, str]:
    """Names of the columns of ``parse_keys``, by the key's columns; no column of a source is named so."""
    return {name: f"{OWN_COLUMN_PREFIX}key_{place}" for place, name in enumerate(schema.key)}


def parse_keys(columns: Mapping[str, TableColumn], schema: TableSchema) -> Callable[[DataFrame], DataFrame]:
    """``key`` gives way to ``key_columns``, in the types of the table's ``columns``; the other columns stay.

    All events were written under ``schema``, which has a key. Keys are compared by value, not by text: two spellings of one
    number meet here, as they do in the row. JSON that does not fit the schema fails the query.
    """
    names = key_columns(schema)
    parts = [column for column in schema.columns if column.name in names]
    json_type = row_type(parts)
    is_number = has_whole_number_key(schema)

    def wire_value(name: str) -> SparkColumn:
        parsed = sf.col("parsed_key").getField(name)
        if not is_number:
            return parsed
        # A JSON parser for each such key costs five times as much as cutting it out.
        return sf.coalesce(last_number("key", json_type[0].dataType), parsed)

    def parse(events: DataFrame) -> DataFrame:
        others = [name for name in events.columns if name != "key"]
        parsed_key = parsed_row(events.sparkSession, sf.col("key"), json_type).alias("parsed_key")
        return events.select("*", parsed_key).select(
            *others,
            *(
                decoded(column, wire_value(column.name)).cast(columns[column.name].sql_type).alias(names[column.name])
                for column in parts
            ),
        )

    return parse
