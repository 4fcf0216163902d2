"""Oracle columns as Headwater's: the logical type of an Oracle type, and one way to build a ``Column``.

A table's definition at the snapshot and DDL in the log both go through ``column``, so that they give *equal* columns.
The mapping is that of Debezium's Oracle connector 3.6.1 (debezium.io, Oracle connector, "Data type mappings"), seen to run
for each type and mode. JSON and BOOLEAN columns of Oracle 23ai have types here that the connector lacks.
"""

import re
from typing import Final

import msgspec

from libs.oracle.column_type import OracleType, UnknownColumnType, parse_column_type
from libs.types.table import Column, TableSchema
from libs.types.value import LogicalKind, LogicalType
from libs.types.value_modes import (
    DEFAULT_ORACLE_MODES,
    BinaryMode,
    DecimalMode,
    IntervalMode,
    OracleValueModes,
    TimePrecision,
    ZeroScaleMode,
)

_KINDS: Final = {
    "CHAR": LogicalKind.STRING,
    "VARCHAR2": LogicalKind.STRING,
    "NCHAR": LogicalKind.STRING,
    "NVARCHAR2": LogicalKind.STRING,
    "CLOB": LogicalKind.STRING,
    "NCLOB": LogicalKind.STRING,
    "LONG": LogicalKind.STRING,
    "ROWID": LogicalKind.STRING,
    "UROWID": LogicalKind.STRING,
    "BINARY_FLOAT": LogicalKind.FLOAT32,
    "BINARY_DOUBLE": LogicalKind.FLOAT64,
    "BOOLEAN": LogicalKind.BOOLEAN,
    "XMLTYPE": LogicalKind.XML,
    "JSON": LogicalKind.JSON,
}
_BINARY: Final = frozenset({"RAW", "LONG RAW", "BLOB"})
_BINARY_KINDS: Final = {
    BinaryMode.BYTES: LogicalKind.BYTES,
    BinaryMode.BASE64: LogicalKind.BASE64,
    BinaryMode.BASE64_URL_SAFE: LogicalKind.BASE64_URL,
    BinaryMode.HEX: LogicalKind.HEX,
}
_MOMENT_KINDS: Final = {
    TimePrecision.CONNECT: LogicalKind.CONNECT_TIMESTAMP,
    TimePrecision.ISO_STRING: LogicalKind.ISO_TIMESTAMP,
    TimePrecision.MICROSECONDS: LogicalKind.TIMESTAMP_US,
    TimePrecision.NANOSECONDS: LogicalKind.TIMESTAMP_NS,
}
_INTEGERS: Final = ((2, LogicalKind.INT8), (4, LogicalKind.INT16), (9, LogicalKind.INT32), (18, LogicalKind.INT64))
"""Digits that each type holds."""
_CHARACTER: Final = frozenset({"CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2", "CLOB", "NCLOB", "LONG"})
_LARGE: Final = frozenset({"CLOB", "NCLOB", "BLOB", "XMLTYPE", "JSON", "LONG", "LONG RAW"})
_LONGEST_PLAIN: Final = {"VARCHAR2": 4_000, "NVARCHAR2": 2_000, "RAW": 2_000}
"""Longer ones exist with MAX_STRING_SIZE = EXTENDED, and are stored as LOBs."""


def is_large(oracle_type: OracleType) -> bool:
    """Whether the log may hold the values apart from their rows. Its WHERE clauses never have them, and an INSERT may hold a
    locator in their place.

    >>> is_large(OracleType("CLOB")), is_large(OracleType("VARCHAR2", 32_767)), is_large(OracleType("VARCHAR2", 4_000))
    (True, True, False)
    """
    longest = _LONGEST_PLAIN.get(oracle_type.name)
    return oracle_type.name in _LARGE or (longest is not None and (oracle_type.size or 0) > longest)


def logical_type(oracle_type: OracleType, modes: OracleValueModes = DEFAULT_ORACLE_MODES) -> LogicalType:
    """The logical type of the values.

    Raises:
        UnknownColumnType: LogMiner does not print such values (BFILE, an object type).
    """
    name = oracle_type.name
    match name:
        case "NUMBER":
            return _number(oracle_type.size or 0, oracle_type.scale, modes)
        case "FLOAT":
            return _decimal(0, 0, modes.decimal)
        case "DATE":
            return LogicalType(kind=_moment_kind(0, modes.time_precision))
        case "TIMESTAMP":
            return LogicalType(kind=_moment_kind(oracle_type.size or 0, modes.time_precision))
        case "TIMESTAMP WITH TIME ZONE" | "TIMESTAMP WITH LOCAL TIME ZONE":
            return LogicalType(kind=LogicalKind.ZONED_TIMESTAMP, scale=oracle_type.size or 0)
        case "INTERVAL YEAR TO MONTH" | "INTERVAL DAY TO SECOND":
            is_text = modes.interval is IntervalMode.STRING
            return LogicalType(kind=LogicalKind.INTERVAL if is_text else LogicalKind.MICRO_DURATION)
        case _ if name in _BINARY:
            return LogicalType(kind=_BINARY_KINDS[modes.binary])
        case _ if name in _KINDS:
            return LogicalType(kind=_KINDS[name])
        case _:
            raise UnknownColumnType(f"the log does not hold values of type {name}")


def _number(digits: int, scale: int | None, modes: OracleValueModes) -> LogicalType:
    if scale is None:
        return _decimal(0, 0, modes.decimal)
    is_integer = scale < 0 or modes.decimal is DecimalMode.PRECISE or modes.zero_scale_numbers is ZeroScaleMode.INTEGER
    if scale <= 0 and is_integer:
        for most_digits, kind in _INTEGERS:
            if digits - scale <= most_digits:
                return LogicalType(kind=kind)
    return _decimal(digits, scale, modes.decimal)


def _decimal(digits: int, scale: int, mode: DecimalMode) -> LogicalType:
    """``digits`` 0: each value has a scale of its own."""
    match mode:
        case DecimalMode.DOUBLE:
            return LogicalType(kind=LogicalKind.FLOAT64)
        case DecimalMode.STRING:
            return LogicalType(kind=LogicalKind.DECIMAL_TEXT, precision=digits, scale=scale)
        case DecimalMode.PRECISE if digits:
            return LogicalType(kind=LogicalKind.DECIMAL, precision=digits, scale=scale)
        case DecimalMode.PRECISE:
            return LogicalType(kind=LogicalKind.VARIABLE_SCALE_DECIMAL)


def _moment_kind(fraction_digits: int, precision: TimePrecision) -> LogicalKind:
    if (kind := _MOMENT_KINDS.get(precision)) is not None:
        return kind
    if fraction_digits <= 3:
        return LogicalKind.TIMESTAMP_MS
    return LogicalKind.TIMESTAMP_US if fraction_digits <= 6 else LogicalKind.TIMESTAMP_NS


def in_value_modes(schema: TableSchema, modes: OracleValueModes) -> TableSchema:
    """``schema`` with its columns' logical types as ``modes`` have them, whatever they were before."""
    columns = tuple(
        msgspec.structs.replace(column, logical_type=logical_type(parse_column_type(column.source_type), modes))
        for column in schema.columns
    )
    return schema if columns == schema.columns else msgspec.structs.replace(schema, columns=columns)


def column(
    name: str,
    source_type: str | OracleType,
    *,
    charset: str | None = None,
    is_optional: bool = True,
    is_virtual: bool = False,
    is_invisible: bool = False,
    default: str | None = None,
    comment: str | None = None,
) -> Column:
    """A column with its type in canonical form, in the default handling modes.

    ``default``: the expression as the dictionary or the DDL has it. ``charset`` counts only for types that have one.

    Raises:
        UnknownColumnType: LogMiner does not print values of the type.
    """
    oracle_type = source_type if isinstance(source_type, OracleType) else parse_column_type(source_type)
    constant = None if default is None else _constant(default)
    return Column(
        name=name,
        source_type=str(oracle_type),
        logical_type=logical_type(oracle_type),
        is_optional=is_optional,
        charset=charset if oracle_type.name in _CHARACTER else None,
        is_generated=is_virtual,
        is_virtual=is_virtual,
        is_invisible=is_invisible,
        default_expression=constant,
        is_default_computed=constant is None and default is not None and default.strip().upper() not in ("", "NULL"),
        comment=comment or None,
    )


_LITERAL: Final = re.compile(r"\s*N?'((?:[^']|'')*)'\s*", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:E[+-]?\d+)?)\s*", re.IGNORECASE)


def _constant(default: str) -> str | None:
    """The value of a literal: a text without its quotes, or a number. None: an expression, whose value the server knows."""
    if literal := _LITERAL.fullmatch(default):
        return literal[1].replace("''", "'")
    number = _NUMBER.fullmatch(default)
    return None if number is None else number[1]
