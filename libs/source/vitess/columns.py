"""A column of Vitess: its type's wire form, and the part of a column in vtgate's FIELD events.

The types and their forms are those of Debezium's Vitess connector (seed 002, "Data type mappings"): as for MySQL, but that a
FLOAT is a double, and ``isostring`` is the text that MySQL prints; a DECIMAL and a BIGINT UNSIGNED are text unless asked
otherwise. BIT, geometries and VECTOR, which it drops, have the forms that they have from MySQL.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from libs.mysql.column_type import MysqlType, parse_column_type
from libs.mysql.logical import logical_type
from libs.source.key_columns import KeyColumns, chosen_key
from libs.types.table import Column, Index, TableSchema
from libs.types.value import LogicalKind, LogicalType
from libs.types.value_modes import TimePrecision, ValueModes

_TIMES: Final = frozenset({"date", "time", "datetime"})


def vitess_logical_type(mysql_type: MysqlType, charset: str | None, modes: ValueModes) -> LogicalType:
    """The kind of a type's values."""
    if mysql_type.name == "float":
        return LogicalType(kind=LogicalKind.FLOAT64)
    if mysql_type.name in _TIMES and modes.time_precision is TimePrecision.ISO_STRING:
        return LogicalType(kind=LogicalKind.STRING)
    return logical_type(mysql_type, charset, modes)


def as_vtgate_reports(schema: TableSchema, modes: ValueModes, key_columns: Sequence[KeyColumns]) -> TableSchema:
    """``schema``, which MySQL's words describe, as a reader learns it by FIELD events: these know no default, no comment, no
    generated column, and of a column that was renamed nothing but its new name."""
    key = chosen_key(schema.table_id, (column.name for column in schema.columns), key_columns) or schema.key
    columns = tuple(reported_column(column, parse_column_type(column.source_type), modes) for column in schema.columns)
    return msgspec.structs.replace(schema, columns=columns, key=key)


def with_key_index(schema: TableSchema) -> TableSchema:
    """``schema``, from FIELD events, as a statement can be applied to it: of all indexes they have the key alone."""
    indexes = (Index(name="PRIMARY", columns=schema.key, is_unique=True),) if schema.key else ()
    return msgspec.structs.replace(schema, indexes=indexes)


def reported_column(column: Column, mysql_type: MysqlType, modes: ValueModes) -> Column:
    """``column``, of that type, with the facts of FIELD events and no more."""
    return Column(
        name=column.name,
        source_type=column.source_type,
        logical_type=vitess_logical_type(mysql_type, column.charset, modes),
        is_optional=column.is_optional,
        charset=column.charset,
        is_auto_increment=column.is_auto_increment,
        has_on_update=column.has_on_update,
    )
