"""Column values: from their JSON wire form to Spark types.

A value passes three types: ``row_type`` (read by ``from_json``), ``decoded`` (an expression over it) and ``spark_type``
(``libs.warehouse.spark_types``: stored by the warehouse). Nothing is lost on the way, or the batch fails.
"""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from libs.types.table import Column
from libs.types.value import LogicalKind
from libs.warehouse.spark_types import UNSIGNED_BIGINT, is_unsigned_bigint, spark_type
from spark.jvm.java import column_function
from spark.transforms.parsed_variant import parsed_variant

_CLASS: Final = "DecodeValues"
_JSON_TYPES: Final[dict[LogicalKind, DataType]] = {
    LogicalKind.BOOLEAN: BooleanType(),
    LogicalKind.INT8: IntegerType(),
    LogicalKind.INT16: IntegerType(),
    LogicalKind.INT32: IntegerType(),
    LogicalKind.INT64: LongType(),
    LogicalKind.FLOAT32: FloatType(),
    LogicalKind.FLOAT64: DoubleType(),
    LogicalKind.STRING: StringType(),
    LogicalKind.BYTES: BinaryType(),  # from_json reads base64 into BINARY
    LogicalKind.BASE64: BinaryType(),
    LogicalKind.BASE64_URL: StringType(),
    LogicalKind.HEX: StringType(),
    LogicalKind.DECIMAL: BinaryType(),
    LogicalKind.DECIMAL_TEXT: StringType(),
    LogicalKind.VARIABLE_SCALE_DECIMAL: StructType(
        [StructField("scale", IntegerType()), StructField("value", BinaryType())]
    ),
    LogicalKind.DATE: IntegerType(),
    LogicalKind.CONNECT_DATE: IntegerType(),
    LogicalKind.ISO_DATE: StringType(),
    LogicalKind.TIME_MS: LongType(),
    LogicalKind.MICRO_TIME: LongType(),
    LogicalKind.TIME_NS: LongType(),
    LogicalKind.CONNECT_TIME: LongType(),
    LogicalKind.ISO_TIME: StringType(),
    LogicalKind.TIMESTAMP_MS: LongType(),
    LogicalKind.TIMESTAMP_US: LongType(),
    LogicalKind.TIMESTAMP_NS: LongType(),
    LogicalKind.CONNECT_TIMESTAMP: LongType(),
    LogicalKind.ISO_TIMESTAMP: StringType(),
    LogicalKind.ZONED_TIMESTAMP: StringType(),
    LogicalKind.MICRO_DURATION: LongType(),
    LogicalKind.INTERVAL: StringType(),
    LogicalKind.XML: StringType(),
    LogicalKind.YEAR: IntegerType(),
    LogicalKind.JSON: StringType(),
    LogicalKind.JSON_VARIANT: StringType(),
    LogicalKind.ENUM: StringType(),
    LogicalKind.ENUM_SET: StringType(),
    LogicalKind.BITS: BinaryType(),
    # from_json reads an object or an array into a text as JSON.
    LogicalKind.GEOMETRY: StringType(),
    LogicalKind.POINT: StringType(),
    LogicalKind.FLOAT_VECTOR: StringType(),
}


def row_type(columns: Iterable[Column]) -> StructType:
    """The type as which ``from_json`` reads a row image, or a key, of these columns.

    Raises:
        KeyError: a column's type has no wire form; such a table is not captured.
    """
    return StructType([StructField(column.name, _JSON_TYPES[column.logical_type.kind]) for column in columns])


def decoded(column: Column, value: SparkColumn, *, is_strict: bool = True) -> SparkColumn:
    """``value``, as ``from_json`` read it, in the column's ``spark_type``; NULL stays NULL. The session's zone is UTC.

    A value that has no such form fails the query; not ``is_strict``: it becomes NULL.
    """
    logical_type = column.logical_type
    cast = SparkColumn.cast if is_strict else SparkColumn.try_cast
    match logical_type.kind:
        case LogicalKind.INT64 if is_unsigned_bigint(column):
            # Above 2**63-1 it came as a negative number, wrapped around.
            wide = value.cast(UNSIGNED_BIGINT)
            return sf.when(
                value < 0, (wide + sf.lit(str(2**64)).cast(UNSIGNED_BIGINT)).cast(UNSIGNED_BIGINT)
            ).otherwise(wide)
        case LogicalKind.VARIABLE_SCALE_DECIMAL:
            return _number_text(value.getField("value"), value.getField("scale"), is_strict=is_strict)
        case LogicalKind.DECIMAL if spark_type(column) == "string":
            return _number_text(value, sf.lit(logical_type.scale), is_strict=is_strict)
        case LogicalKind.DECIMAL if logical_type.scale < 0:
            text = _number_text(value, sf.lit(logical_type.scale), is_strict=is_strict)
            return cast(text, spark_type(column))
        case LogicalKind.DECIMAL:
            digits = max(logical_type.precision, logical_type.scale)
            return _decimal(value, digits, logical_type.scale, is_strict=is_strict)
        case LogicalKind.DECIMAL_TEXT:
            return cast(value, spark_type(column))
        case LogicalKind.JSON_VARIANT:
            return parsed_variant(value, is_strict=is_strict)
        case LogicalKind.BASE64_URL:
            return sf.unbase64(sf.translate(value, "-_", "+/"))
        case LogicalKind.HEX:
            return sf.unhex(value)
        case LogicalKind.DATE | LogicalKind.CONNECT_DATE:
            return sf.date_from_unix_date(value)
        case LogicalKind.ISO_DATE:
            return cast(sf.rtrim(value, sf.lit("Z")), "date")
        case LogicalKind.TIME_MS | LogicalKind.CONNECT_TIME:
            return value * 1000 if is_strict else sf.try_multiply(value, sf.lit(1000))
        case LogicalKind.TIME_NS:
            return _thousandth(value)
        case LogicalKind.ISO_TIME:
            return _iso_time_us(value)
        case LogicalKind.TIMESTAMP_MS | LogicalKind.CONNECT_TIMESTAMP:
            return sf.timestamp_millis(value).cast("timestamp_ntz")
        case LogicalKind.TIMESTAMP_US:
            return _local_time(value)
        case LogicalKind.TIMESTAMP_NS:
            return _local_time(_thousandth(value))
        case LogicalKind.ISO_TIMESTAMP:
            return cast(sf.rtrim(value, sf.lit("Z")), "timestamp_ntz")
        case LogicalKind.ZONED_TIMESTAMP:
            return column_function(_CLASS, "instant", "timestamp")(value, is_strict)
        case _:
            return value


def _thousandth(nanoseconds: SparkColumn) -> SparkColumn:
    """Whole microseconds: Oracle alone has finer ones, and no warehouse. Not by ``/``, which goes through a double."""
    return sf.floor(nanoseconds.cast("decimal(20,0)") / sf.lit(1000).cast("decimal(4,0)")).cast("bigint")


def _iso_time_us(text: SparkColumn) -> SparkColumn:
    """``-120:30:00.5Z`` → microseconds."""
    parts = r"^(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?Z$"
    hours, minutes, seconds = (sf.regexp_extract(text, parts, group).cast("bigint") for group in (2, 3, 4))
    fraction = sf.rpad(sf.regexp_extract(text, parts, 5), 6, "0").cast("bigint")
    magnitude = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction
    return sf.when(sf.regexp_extract(text, parts, 1) == "-", -magnitude).otherwise(magnitude)


def _decimal(unscaled: SparkColumn, precision: int, scale: int, *, is_strict: bool) -> SparkColumn:
    """Big-endian two's complement bytes as DECIMAL."""
    decimal = column_function(_CLASS, "decimal", f"decimal({precision},{scale})")
    return decimal(unscaled, precision, scale, is_strict)


def _number_text(unscaled: SparkColumn, scale: SparkColumn, *, is_strict: bool) -> SparkColumn:
    """Big-endian two's complement bytes as text with all digits and no exponent."""
    return column_function(_CLASS, "numberText", "string")(unscaled, scale, is_strict)


def _local_time(micros: SparkColumn) -> SparkColumn:
    """As a cast of ``timestamp_micros`` has it in a session in UTC, which goes through a date of the calendar."""
    return column_function(_CLASS, "localTime", "timestamp_ntz")(micros)
