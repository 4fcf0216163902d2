"""How the values of one table's columns are read out of DTS's messages: a ``Reading`` for each column.

DTS prints every value much as MySQL's text protocol does: numbers and times as text, text and bytes as they are stored, with
the name of the character set beside them. The schema has a value's meaning, and gives it the form that the binlog reader
gives it: both are tested side by side.

DTS's printed values: seed document 004 ("mapping of columns": time zones, scientific notation, DataType of each type).
"""

import dataclasses
import datetime
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Final

import msgspec
import orjson

from libs.errors import HeadwaterError, PipelineHalted, SchemaContradiction, UndecodableValue
from libs.mysql.charsets import python_codec
from libs.mysql.column_type import MysqlType, parse_column_type
from libs.mysql.logical import column as mysql_column
from libs.mysql.values import (
    BINARY_KINDS,
    EPOCH_TEXT,
    binary_writer,
    bits_base64,
    compact_json,
    decimal_writer,
    geometry_value,
    moment_from_text,
    moment_writer,
    null_value,
    point_value,
    shortest_float32,
    time_from_text,
    time_writer,
    vector_value,
)
from libs.types.table import Column, Index, TableSchema
from libs.types.value import LogicalKind
from protos.dts.subscription_pb2 import DMLEvent
from services.dts_decoder import row_changes
from services.dts_decoder.row_changes import RowChangeDecoder

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Reading:
    """How one column's values become JSON."""

    kind: int
    """One of ``row_changes``'s kinds."""
    lowest: int = _SMALLEST
    """Of an INTEGER."""
    highest: int = _LARGEST
    padded_bytes: int = 0
    """A BINARY value shorter than this is converted: a BINARY(n)'s, whose zero bytes at the end the log drops."""
    precision: int = 0
    """Digits of a DECIMAL; with ``scale`` of them after the point."""
    scale: int = 0
    """Also the digits of the second, of a DATETIME or TIMESTAMP."""
    units_per_s: int = 0
    """The unit of a DATETIME."""
    null: bytes = b"null"
    """JSON of NULL."""
    convert: Callable[[bytes], bytes] | None = None
    """The value's text or bytes → JSON: of CONVERTED, of a BINARY to be padded, and of values in an unusual form: integers of
    more than 18 digits, zero dates, numbers with an exponent."""


@dataclass(frozen=True, slots=True)
class DtsColumn:
    """A column as a message names it."""

    name: str
    original_type: str
    is_key: bool


def read_columns(serialised: bytes) -> tuple[DtsColumn, ...]:
    """The columns of a DML event (the serialised fields alone). Raises protobuf's DecodeError."""
    event = DMLEvent.FromString(serialised)
    return tuple(DtsColumn(each.name, each.originalType, each.isKey) for each in event.columns)


def row_change_decoder(schema: TableSchema) -> RowChangeDecoder:
    """The decoder for one table version. Raises PipelineHalted for an unknown charset of a column."""
    places = {column.name: index for index, column in enumerate(schema.columns)}
    codecs = tuple(column.charset or "utf8mb4" for column in schema.columns)
    return RowChangeDecoder(
        [reading(column) for column in schema.columns],
        [orjson.dumps(column.name) for column in schema.columns],
        [places[name] for name in schema.key],
        partial(_to_utf8, codecs),
    )


def undecodable(schema: TableSchema, decoder: RowChangeDecoder, error: Exception) -> UndecodableValue:
    """The error to raise when ``decoder`` failed with ``error``: names table, row and column, never the value."""
    if decoder.column < 0:
        return UndecodableValue(f"{schema.table_id}: row {decoder.row}: {_reason(error)}")
    column = schema.columns[decoder.column]
    return UndecodableValue(
        f"{schema.table_id}.{column.name}: row {decoder.row}: the value does not fit its type {column.source_type} "
        f"({_reason(error)})"
    )


def _reason(error: Exception) -> str:
    """Of our own errors the text; of others, whose text may hold the value, the kind."""
    if isinstance(error, HeadwaterError) or type(error) is ValueError:
        text = str(error)
        return "not a number" if "invalid literal" in text or "could not convert" in text else text
    return type(error).__name__


# --- a table's columns, and the columns of a message ------------------------------------------------------------------


def require_agreement(schema: TableSchema, columns: Sequence[DtsColumn]) -> None:
    """The columns of a message are those of the schema, by name, in order and by type.

    Raises:
        SchemaContradiction: they are not; the message names the first that differs.
    """
    if len(columns) != len(schema.columns):
        raise SchemaContradiction(
            f"{schema.table_id}: the message has {len(columns)} columns where version {schema.version} of the schema has "
            f"{len(schema.columns)}; re-snapshot the source"
        )
    for named, known in zip(columns, schema.columns, strict=True):
        if named.name != known.name or not _same_type(named.original_type, known.source_type):
            raise SchemaContradiction(
                f"{schema.table_id}: the message has a column {named.name} {named.original_type} where version "
                f"{schema.version} of the schema has {known.name} {known.source_type}; re-snapshot the source"
            )


def schema_of_columns(schema: TableSchema, columns: Sequence[DtsColumn]) -> TableSchema:
    """The schema of a table that nothing is known of but its messages: columns that are no key may be NULL."""
    key = tuple(named.name for named in columns if named.is_key)
    return msgspec.structs.replace(
        schema,
        columns=tuple(
            mysql_column(named.name, named.original_type, charset="utf8mb4", is_optional=not named.is_key)
            for named in columns
        ),
        key=key,
        indexes=(Index(name="PRIMARY", columns=key, is_unique=True),) if key else (),
    )


def _same_type(named: str, known: str) -> bool:
    """DTS and the server may write one type in two ways: display widths, spaces, quotes of members."""
    if named == known:
        return True
    try:
        one, other = parse_column_type(named), parse_column_type(known)
    except (HeadwaterError, ValueError):
        return False
    return (one.name, one.is_unsigned) == (other.name, other.is_unsigned) and _details(one) == _details(other)


def _details(declared: MysqlType) -> object:
    match declared.name:
        case "decimal":
            return declared.precision, declared.scale
        case "datetime" | "timestamp" | "time":
            return declared.fractional_digits
        case "enum" | "set":
            return declared.members
        case "bit" | "binary":
            return 1 if declared.length is None else declared.length
    return None


# --- readings --------------------------------------------------------------------------------------------------------

_SAFE_DIGITS: Final = 18  # so many always fit into 64 bits
_INTEGER_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_ASCII: Final = bytes(range(128))


def reading(column: Column) -> Reading:
    """How the column's values become JSON. Raises PipelineHalted where its kind has no form."""
    null = orjson.dumps(null_value(column.logical_type, is_optional=column.is_optional))
    return dataclasses.replace(_reading(column, parse_column_type(column.source_type)), null=null)


def _reading(column: Column, declared: MysqlType) -> Reading:
    kind = column.logical_type.kind
    if kind in (LogicalKind.INT16, LogicalKind.INT32, LogicalKind.INT64):
        bits = _INTEGER_BITS[declared.name]
        lowest, highest = (0, 2**bits - 1) if declared.is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return Reading(
            row_changes.INTEGER,
            lowest=lowest,
            highest=min(highest, _LARGEST),
            convert=lambda text: b"%d" % _wrapped(_within(int(text), lowest, highest)),
        )
    if kind is LogicalKind.YEAR:
        return Reading(row_changes.INTEGER, lowest=0, highest=2155, convert=_refuse)
    if kind in (LogicalKind.STRING, LogicalKind.ENUM, LogicalKind.ENUM_SET):
        return Reading(row_changes.TEXT)
    if kind in BINARY_KINDS:
        return _binary_reading(kind, declared)
    value_of = _value_of(column, declared)
    convert: Callable[[bytes], bytes] = lambda text: orjson.dumps(value_of(text))  # noqa: E731
    match kind:
        case LogicalKind.FLOAT64 if declared.name in ("float", "double"):
            return Reading(row_changes.DOUBLE, convert=convert)
        case LogicalKind.DECIMAL if column.logical_type.precision <= _SAFE_DIGITS:
            logical = column.logical_type
            return Reading(row_changes.DECIMAL, precision=logical.precision, scale=logical.scale, convert=convert)
        case LogicalKind.DATE:
            return Reading(row_changes.DATE, convert=convert)
        case LogicalKind.TIMESTAMP_MS | LogicalKind.TIMESTAMP_US:
            units_per_s = 1_000 if kind is LogicalKind.TIMESTAMP_MS else 1_000_000
            digits = declared.fractional_digits
            return Reading(row_changes.DATETIME, scale=digits, units_per_s=units_per_s, convert=convert)
        case LogicalKind.ZONED_TIMESTAMP:
            return Reading(row_changes.TIMESTAMP, scale=column.logical_type.scale, convert=convert)
    return Reading(row_changes.CONVERTED, convert=convert)


def _binary_reading(kind: LogicalKind, declared: MysqlType) -> Reading:
    size = (1 if declared.length is None else declared.length) if declared.name == "binary" else 0
    write = binary_writer(kind)
    convert: Callable[[bytes], bytes] = lambda stored: orjson.dumps(write(stored.ljust(size, b"\0")))  # noqa: E731
    is_base64 = kind in (LogicalKind.BYTES, LogicalKind.BASE64)
    # Base64 is written by compiled code; in another form every value is "shorter" than this, and so converted.
    return Reading(row_changes.BINARY, padded_bytes=size if is_base64 else _LARGEST, convert=convert)


def _value_of(column: Column, declared: MysqlType) -> Callable[[bytes], object]:
    """The printed value → its JSON."""
    kind = column.logical_type.kind
    match declared.name:
        case "bigint":  # unsigned, as a decimal or its digits
            write_integer = decimal_writer(column.logical_type, 0)
            return lambda text: write_integer(_within(int(text), 0, 2**64 - 1))
        case "bit" if kind is LogicalKind.BOOLEAN:
            return lambda text: bool(_within(int(text), 0, 1))
        case "bit":
            bits = declared.length or 1
            size = (bits + 7) // 8
            # A BIT(64) comes as a signed number.
            return lambda text: bits_base64((_within(int(text), -(2**63), 2**bits - 1) % 2**bits).to_bytes(size, "big"))
        case "float" if kind is LogicalKind.FLOAT32:
            return lambda text: shortest_float32(struct.pack("<f", _double(text)))
        case "float" | "double":
            return _double
        case "decimal":
            precision, scale = declared.precision or 0, declared.scale or 0
            write = decimal_writer(column.logical_type, scale)
            return lambda text: write(_unscaled(text, precision, scale))
        case "date" | "datetime":
            write_moment = moment_writer(kind, is_optional=column.is_optional)
            form = _DATE if declared.name == "date" else _DATETIME
            return _checked(form, lambda text: write_moment(moment_from_text(text)))
        case "time":
            write_time = time_writer(kind)
            return _checked(_TIME, lambda text: write_time(time_from_text(text)))
        case "timestamp":
            zero = None if column.is_optional else EPOCH_TEXT
            return partial(_zoned_timestamp, digits=declared.fractional_digits, zero=zero)
        case "json":
            return _json
    if kind in _WHOLE_VALUES:
        return _WHOLE_VALUES[kind]
    raise PipelineHalted(
        f"column {column.name}: type {column.source_type} cannot be captured; exclude its table (exclude_tables)"
    )


_WHOLE_VALUES: Final[dict[LogicalKind, Callable[[bytes], object]]] = {
    LogicalKind.GEOMETRY: geometry_value,
    LogicalKind.POINT: point_value,
    LogicalKind.FLOAT_VECTOR: vector_value,
}


def _refuse(_text: bytes) -> bytes:
    raise ValueError("a number that its column cannot hold")


def _within(number: int, lowest: int, highest: int) -> int:
    if not lowest <= number <= highest:
        raise ValueError("a number that its column cannot hold")
    return number


def _wrapped(number: int) -> int:
    """A BIGINT UNSIGNED above 2**63-1 is negative (LogicalKind.INT64)."""
    return number - 2**64 if number > _LARGEST else number


def _double(text: bytes) -> float:
    """``2.25``, ``1e+06``, ``-1.5E-05``."""
    number = float(text)
    if number - number != 0:
        raise ValueError("JSON has no infinite numbers")
    return number


def _unscaled(text: bytes, precision: int, scale: int) -> int:
    try:
        number = Decimal(text.decode("ascii"))
    except InvalidOperation:
        raise ValueError("not a number") from None
    if not number.is_finite() or number.adjusted() > precision or -number.adjusted() > 100:
        raise ValueError("a number that its column cannot hold")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits)))
    shift = exponent + scale
    if shift >= 0:
        unscaled *= int(10**shift)
    else:
        unscaled, rest = divmod(unscaled, int(10**-shift))
        if rest:
            raise ValueError("a number that its column cannot hold")
    if unscaled >= int(10**precision):
        raise ValueError("a number that its column cannot hold")
    return -unscaled if sign else unscaled


_DATE: Final = re.compile(rb"\d{4}-\d\d-\d\d")
_TIME: Final = re.compile(rb"-?\d{1,3}:\d\d:\d\d(?:\.\d{1,6})?")
_DATETIME: Final = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?")
_ZONED: Final = re.compile(
    rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,6}))? ?(?:([+-])(\d\d):(\d\d)|(Z|UTC))", re.ASCII
)


def _checked(form: re.Pattern[bytes], convert: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def of_text(text: bytes) -> object:
        if form.fullmatch(text) is None:
            raise ValueError("not a date or time as DTS prints it")
        return convert(text)

    return of_text


def _zoned_timestamp(text: bytes, *, digits: int, zero: str | None) -> str | None:
    """``2021-05-17 07:22:42.5 +00:00`` → ISO 8601 text in UTC with the column's digits of the second.

    A TIMESTAMP without a zone is refused: it could be of any.
    """
    match = _ZONED.fullmatch(text)
    if match is None:
        raise ValueError("not a time with its zone, as DTS prints a TIMESTAMP")
    if text.startswith(b"0000-00-00"):
        return zero
    wall, fraction, sign, hours, minutes, _ = match.groups()
    moment = datetime.datetime.fromisoformat(wall.decode("ascii"))
    if sign is not None:
        offset = datetime.timedelta(hours=int(hours), minutes=int(minutes))
        moment += -offset if sign == b"+" else offset
    second_digits = (fraction or b"").decode("ascii").ljust(6, "0")
    if second_digits[digits:].strip("0"):
        raise ValueError("more digits of the second than its column has")
    suffix = f".{second_digits[:digits]}" if digits else ""
    return f"{moment.isoformat()}{suffix}Z"


def _json(text: bytes) -> str:
    """A JSON document as DTS prints it, like MySQL; refused where it is none."""
    orjson.loads(text)
    return compact_json(text)


# --- character sets --------------------------------------------------------------------------------------------------


def _to_utf8(column_charsets: Sequence[str], named: bytes, column: int) -> Callable[[bytes], bytes] | None:
    """How a value that DTS says is in ``named`` becomes UTF-8; None: it is already.

    Where DTS names none, or ``binary``, which is no charset, the column's own counts. Raises PipelineHalted for one that
    is not known; the function raises UnicodeDecodeError for a byte that is no character: nothing is replaced.
    """
    name = named.decode("ascii", "replace").lower()
    codec = python_codec(column_charsets[column] if name in ("", "binary") else name)
    if codec == "utf-8":
        return None
    is_ascii_compatible = _ASCII.decode(codec, "replace") == _ASCII.decode()

    def to_utf8(stored: bytes) -> bytes:
        return stored if is_ascii_compatible and stored.isascii() else stored.decode(codec).encode()

    return to_utf8
