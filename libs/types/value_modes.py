"""Handling modes: which of several JSON forms a source gives its times, decimals, large numbers and bytes.

The choices and defaults are Debezium's (debezium.io, MySQL connector, "Connector properties": ``time.precision.mode``,
``decimal.handling.mode``, ``bigint.unsigned.handling.mode``, ``binary.handling.mode``), so consumers that were written for
one choice go on as they are. A mode changes a column's ``LogicalType`` and nothing else: a reader of a table's schema reads
its rows rightly. Every reader takes the modes of its source document; no step after it knows them.
"""

import enum
from typing import Final

import msgspec


class TimePrecision(enum.Enum):
    """The form of DATE, TIME and DATETIME columns. TIMESTAMP and YEAR are the same in all."""

    ADAPTIVE = "adaptive"
    """As fine as the column: up to 3 digits of the second in milliseconds, else microseconds."""
    ADAPTIVE_TIME_MICROSECONDS = "adaptive_time_microseconds"
    """As ``adaptive``, but every TIME in microseconds."""
    CONNECT = "connect"
    """Kafka Connect's own types, in milliseconds for every precision of the column. A TIME below 0 or of 24 hours and more
    does not fit into them: such a row fails (``failure_handling``)."""
    ISO_STRING = "isostring"
    """ISO 8601 text in UTC: ``2024-02-29Z``, ``12:34:56.5Z``, ``2024-02-29T12:34:56.5Z``."""
    MICROSECONDS = "microseconds"
    NANOSECONDS = "nanoseconds"
    """64 bits hold the years 1678 to 2261: a DATETIME outside them fails."""


class DecimalMode(enum.Enum):
    """The form of DECIMAL columns."""

    PRECISE = "precise"
    """Connect's Decimal: base64 of the unscaled number."""
    DOUBLE = "double"
    """A JSON number, the double nearest to the value: digits beyond about 15 are lost."""
    STRING = "string"
    """Text with all digits of the column's scale."""


class UnsignedBigintMode(enum.Enum):
    """The form of BIGINT UNSIGNED columns."""

    LONG = "long"
    """A signed 64-bit number; above 2**63-1 it wraps to a negative one."""
    PRECISE = "precise"
    """Connect's Decimal of 20 digits."""
    STRING = "string"
    """Text (the Vitess connector's default)."""


class IntervalMode(enum.Enum):
    """The form of Oracle's INTERVAL columns."""

    NUMERIC = "numeric"
    """Microseconds; a month counts as 365.25 / 12 days."""
    STRING = "string"
    """ISO 8601 text: ``P3Y6M0DT0H0M0S``."""


class ZeroScaleMode(enum.Enum):
    """The form of Oracle's NUMBER(p,0) of at most 18 digits where ``decimal`` is double or string. With precise it is the
    smallest integer in any case."""

    EXACT = "exact"
    """As ``decimal`` says."""
    INTEGER = "integer"
    """The smallest integer (``legacy.decimal.handling.strategy=true``)."""


class BinaryMode(enum.Enum):
    """The form of BINARY, VARBINARY, RAW and BLOB columns."""

    BYTES = "bytes"
    """Connect's bytes, which are base64 in JSON."""
    BASE64 = "base64"
    """The same characters, declared as text."""
    BASE64_URL_SAFE = "base64-url-safe"
    """base64 with ``-`` and ``_`` (RFC 4648, section 5)."""
    HEX = "hex"
    """Lower-case hexadecimal digits."""


class ValueModes(msgspec.Struct, frozen=True, kw_only=True):
    """The group ``values`` of a source document."""

    time_precision: TimePrecision = TimePrecision.ADAPTIVE_TIME_MICROSECONDS
    """``time.precision.mode``: adaptive, adaptive_time_microseconds, connect, isostring, microseconds, nanoseconds."""
    decimal: DecimalMode = DecimalMode.PRECISE
    """``decimal.handling.mode``: precise, double, string."""
    unsigned_bigint: UnsignedBigintMode = UnsignedBigintMode.LONG
    """``bigint.unsigned.handling.mode``: long, precise, string."""
    binary: BinaryMode = BinaryMode.BYTES
    """``binary.handling.mode``: bytes, base64, base64-url-safe, hex."""
    unavailable_placeholder: str | None = None
    """``unavailable.value.placeholder``: the text for a value that the log does not hold, because a row image lacks columns
    (``binlog_row_image`` other than FULL). None: such a row fails. Set Debezium's text, ``__debezium_unavailable_value``: row
    filters, masks and the sink know it, and a mirror keeps the value that it has; of another text they know nothing.
    """


class VitessValueModes(ValueModes, frozen=True, kw_only=True):
    """``ValueModes`` with the Vitess connector's defaults: decimals and BIGINT UNSIGNED are text, and an
    ``unavailable_placeholder`` that is not said is Debezium's."""

    decimal: DecimalMode = DecimalMode.STRING
    unsigned_bigint: UnsignedBigintMode = UnsignedBigintMode.STRING


class OracleValueModes(ValueModes, frozen=True, kw_only=True):
    """``ValueModes`` with the Oracle connector's further choices. ``unsigned_bigint`` means nothing to it."""

    time_precision: TimePrecision = TimePrecision.ADAPTIVE
    """``time.precision.mode``. Of adaptive, a TIMESTAMP(7) to (9) is in nanoseconds, which reach from 1678 to 2261."""
    interval: IntervalMode = IntervalMode.NUMERIC
    """``interval.handling.mode``: numeric, string."""
    zero_scale_numbers: ZeroScaleMode = ZeroScaleMode.EXACT
    """``legacy.decimal.handling.strategy``: exact (false), integer (true)."""


DEFAULT_ORACLE_MODES: Final = OracleValueModes()
DEFAULT_MODES: Final = ValueModes()
