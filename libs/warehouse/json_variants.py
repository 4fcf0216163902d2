"""Which JSON columns a tenant has as VARIANT: those that its ``sink.json_as_variant`` names, where the warehouse has the type.

A VARIANT is the document parsed: engines find a member of it without reading the rest, and it holds values, not their spelling.
``spark/transforms/parsed_variant.py`` has what it does not hold.
"""

from collections.abc import Sequence

import msgspec

from libs.types.patterns import any_column
from libs.types.table import Column, TableSchema
from libs.types.value import LogicalKind, LogicalType


def with_variants(schema: TableSchema, patterns: Sequence[str]) -> TableSchema:
    """``schema`` with the JSON columns as VARIANT whose ``database.table.column`` one of ``patterns`` matches. A key's stay
    text: values of a VARIANT cannot be compared."""
    if not patterns:
        return schema

    def kept(column: Column) -> Column:
        name = f"{schema.table_id}.{column.name}"
        is_meant = column.logical_type.kind is LogicalKind.JSON and column.name not in schema.key
        if not is_meant or not any_column(patterns, name):
            return column
        variant = LogicalType(kind=LogicalKind.JSON_VARIANT)
        born = column.born
        if (
            born is not None and born.logical_type.kind is LogicalKind.JSON
        ):  # the values of earlier rows are VARIANTs, too
            born = msgspec.structs.replace(born, logical_type=variant)
        return msgspec.structs.replace(column, logical_type=variant, born=born)

    return msgspec.structs.replace(schema, columns=tuple(map(kept, schema.columns)))
