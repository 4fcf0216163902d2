"""Logical types: the kind of a column's values, and the one JSON form in which they travel.

Every source maps its column types onto these; the router, the Connect schemas and the sinks know only
these. The forms are Debezium's (``golden/`` holds recordings); ``value_modes`` chooses between several of one type.
"""

import enum
from typing import Final

import msgspec


class LogicalKind(enum.Enum):
    """Name and JSON form of a logical type; in brackets Connect's type and schema name."""

    BOOLEAN = "boolean"
    """true or false [boolean]"""
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    """JSON number [int64]. A BIGINT UNSIGNED above 2**63-1 wraps to a negative number, as Debezium's default
    ``bigint.unsigned.handling.mode=long`` has it; sinks that read ``Column.source_type`` undo it."""
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    STRING = "string"
    BYTES = "bytes"
    """base64 text [bytes]"""
    BASE64 = "base64"
    """the same characters [string]"""
    BASE64_URL = "base64_url"
    """base64 with ``-`` and ``_`` [string]"""
    HEX = "hex"
    """lower-case hexadecimal digits [string]"""
    DECIMAL = "decimal"
    """base64 of the unscaled number, big-endian two's complement [bytes, org.apache.kafka.connect.data.Decimal]"""
    DECIMAL_TEXT = "decimal_text"
    """text with all digits of the scale [string]"""
    VARIABLE_SCALE_DECIMAL = "variable_scale_decimal"
    """``{"scale":n,"value":base64 of the unscaled number}``: each value has a scale of its own, below 0 too
    [struct, io.debezium.data.VariableScaleDecimal]"""
    DATE = "date"
    """days since 1970-01-01 [int32, io.debezium.time.Date]"""
    CONNECT_DATE = "connect_date"
    """days since 1970-01-01 [int32, org.apache.kafka.connect.data.Date]"""
    ISO_DATE = "iso_date"
    """``2024-01-02Z`` [string, io.debezium.time.IsoDate]"""
    TIME_MS = "time_ms"
    """milliseconds, negative and beyond 24 h too [int32, io.debezium.time.Time]"""
    MICRO_TIME = "micro_time"
    """microseconds, negative and beyond 24 h too [int64, io.debezium.time.MicroTime]"""
    TIME_NS = "time_ns"
    """nanoseconds, negative and beyond 24 h too [int64, io.debezium.time.NanoTime]"""
    CONNECT_TIME = "connect_time"
    """milliseconds of a day [int32, org.apache.kafka.connect.data.Time]"""
    ISO_TIME = "iso_time"
    """``03:04:05.678Z``; ``-03:04:05Z`` and ``120:30:00Z`` where Debezium has null [string, io.debezium.time.IsoTime]"""
    TIMESTAMP_MS = "timestamp_ms"
    """milliseconds since 1970 of a wall clock without zone [int64, io.debezium.time.Timestamp]"""
    TIMESTAMP_US = "timestamp_us"
    """microseconds since 1970 of a wall clock without zone [int64, io.debezium.time.MicroTimestamp]"""
    TIMESTAMP_NS = "timestamp_ns"
    """nanoseconds since 1970 of a wall clock without zone [int64, io.debezium.time.NanoTimestamp]"""
    CONNECT_TIMESTAMP = "connect_timestamp"
    """milliseconds since 1970 of a wall clock without zone [int64, org.apache.kafka.connect.data.Timestamp]"""
    ISO_TIMESTAMP = "iso_timestamp"
    """a wall clock without zone as ``2024-01-02T03:04:05.678Z`` [string, io.debezium.time.IsoTimestamp]"""
    ZONED_TIMESTAMP = "zoned_timestamp"
    """ISO 8601 text: ``2024-01-02T03:04:05.678Z``. Oracle's TIMESTAMP WITH TIME ZONE keeps its offset, as ``+02:00``
    [string, io.debezium.time.ZonedTimestamp]"""
    MICRO_DURATION = "micro_duration"
    """microseconds of an interval; a month counts as 365.25 / 12 days [int64, io.debezium.time.MicroDuration]"""
    INTERVAL = "interval"
    """ISO 8601 text with all parts: ``P0Y0M5DT10H11M12.5S``, ``P-3Y-6M0DT0H0M0S`` [string, io.debezium.time.Interval]"""
    YEAR = "year"
    """[int32, io.debezium.time.Year]"""
    JSON = "json"
    """the document as text [string, io.debezium.data.Json]"""
    JSON_VARIANT = "json_variant"
    """the same; no source has it: it is JSON that a tenant wants as VARIANT in its tables (``libs.warehouse.json_variants``)"""
    XML = "xml"
    """the document as text [string, io.debezium.data.Xml]"""
    ENUM = "enum"
    """[string, io.debezium.data.Enum]"""
    ENUM_SET = "enum_set"
    """members joined by commas [string, io.debezium.data.EnumSet]"""
    BITS = "bits"
    """base64 of the bytes, little-endian [bytes, io.debezium.data.Bits]"""
    GEOMETRY = "geometry"
    """``{"wkb":base64,"srid":number or null}``: well-known binary [struct, io.debezium.data.geometry.Geometry]"""
    POINT = "point"
    """``{"x":…,"y":…,"wkb":base64,"srid":number or null}`` [struct, io.debezium.data.geometry.Point]"""
    FLOAT_VECTOR = "float_vector"
    """numbers, each the shortest that is the stored float [array, io.debezium.data.FloatVector]"""


class LogicalType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A logical type with its parameters."""

    kind: LogicalKind
    precision: int = 0
    """Digits of a DECIMAL or DECIMAL_TEXT; 0: each DECIMAL_TEXT has its own scale, as Oracle's NUMBER. Width of BITS."""
    scale: int = 0
    """Digits after the point of a DECIMAL or DECIMAL_TEXT, in Oracle also below 0 or above the precision; fractional-second
    digits of a ZONED_TIMESTAMP."""
    allowed: tuple[str, ...] = ()
    """Members of an ENUM or ENUM_SET, in order."""


UNAVAILABLE_VALUE: Final = "__debezium_unavailable_value"
"""Stands in a JSON payload for a value that the log does not hold; it is not NULL."""
