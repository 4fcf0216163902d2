"""FIELD events: the columns of a table from vtgate, and how each column's text becomes its wire form.

Which type has which form: ``libs.source.vitess.columns``.

Text comes as the column stores it, in copy and log alike: vttablet reads rows with ``SET NAMES binary`` (Vitess,
``rowstreamer.go``) and hands on the log's bytes. A FIELD event's ``charset`` is the column's collation. The members of ENUM
and SET are in the column's character set in a copy, and UTF-8 or numbers in the log (``vstreamer.go``).
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson

from libs.errors import SourceUnavailable
from libs.mysql.charsets import charset_of_collation_id, python_codec
from libs.mysql.column_type import MysqlType, UnknownColumnType, parse_column_type
from libs.mysql.logical import column
from libs.mysql.shown_definition import doubtful_members
from libs.mysql.values import (
    BINARY_KINDS,
    Memo,
    base64_text,
    binary_writer,
    bits_base64,
    decimal_writer,
    geometry_value,
    moment_from_text,
    moment_writer,
    point_value,
    set_from_binary,
    time_from_text,
    time_writer,
    vector_value,
    zero_moment,
)
from libs.source.key_columns import KeyColumns, chosen_key
from libs.source.vitess.columns import reported_column
from libs.types.table import Column, TableId, TableSchema
from libs.types.value import UNAVAILABLE_VALUE, LogicalKind, LogicalType
from libs.types.value_modes import ValueModes
from protos.vitess import binlogdata_pb2, query_pb2
from services.vstream_reader import row_changes

# MySQL's column flags (query.proto, MySqlFlag).
_NOT_NULL: Final = 1
_PRIMARY_KEY: Final = 2
_UNIQUE_KEY: Final = 4
_AUTO_INCREMENT: Final = 512
_ON_UPDATE_NOW: Final = 8192

_TYPE_OF_VITESS: Final = {
    "INT8": "tinyint", "UINT8": "tinyint unsigned", "INT16": "smallint", "UINT16": "smallint unsigned",
    "INT24": "mediumint", "UINT24": "mediumint unsigned", "INT32": "int", "UINT32": "int unsigned", "INT64": "bigint",
    "UINT64": "bigint unsigned", "FLOAT32": "float", "FLOAT64": "double", "TIMESTAMP": "timestamp", "DATE": "date",
    "TIME": "time", "DATETIME": "datetime", "YEAR": "year", "DECIMAL": "decimal", "TEXT": "text", "BLOB": "blob",
    "VARCHAR": "varchar(255)", "VARBINARY": "varbinary(255)", "CHAR": "char(255)", "BINARY": "binary", "BIT": "bit",
    "GEOMETRY": "geometry", "JSON": "json", "VECTOR": "vector(2048)",
}  # fmt: skip
"""For a FIELD that does not say the column's type in MySQL's words, as old vtgates send it."""
_UTF8: Final = frozenset({"utf8mb4", "utf8mb3", "ascii"})
"""Read in compiled code."""

OTHER_SCHEMA_REMEDY: Final = (
    "run the tablets with --track_schema_versions, or copy the table again. Vitess reads no log of a table with an "
    "INVISIBLE column (vitess #9783): make the column VISIBLE, or exclude the table"
)
"""Where a tablet's columns of a table are not those of its log."""


def table_schema(
    event: binlogdata_pb2.FieldEvent, keyspace: str, *, modes: ValueModes, key_columns: Sequence[KeyColumns] = ()
) -> TableSchema:
    """The table that a FIELD event describes; version 0.

    The key: the columns of ``key_columns`` where one names the table; else the primary key; else the first column that is
    unique by itself and never NULL.

    Raises:
        SourceUnavailable: vtgate sent column names of its own making; open the stream again.
        UnknownColumnType: this release does not know a column's type; leave the table out, or upgrade.
    """
    name = event.table_name.removeprefix(f"{keyspace}.")
    _require_column_names(event.fields, keyspace, name)
    columns = tuple(_column(field, modes) for field in event.fields)
    table_id = TableId(database=keyspace, table=name)
    return TableSchema(table_id=table_id, columns=columns, key=_key(event.fields, table_id, key_columns))


def _require_column_names(fields: Sequence[query_pb2.Field], keyspace: str, table: str) -> None:
    """A tablet that has lost track of a table's schema numbers its columns ``@1``, ``@2`` (seed 002, "invalid column
    name"). A column that somebody named so is recognised by its number."""
    if fields and all(field.name == f"@{number}" for number, field in enumerate(fields, 1)):
        raise SourceUnavailable(
            f"vtgate names the columns of {keyspace}.{table} @1 to @{len(fields)}: its tablet reads the log with another "
            "schema than the table has now. This passes when the tablet has reloaded its schema; where it does not, "
            f"{OTHER_SCHEMA_REMEDY}"
        )


def _column(field: query_pb2.Field, modes: ValueModes) -> Column:
    mysql_type = _mysql_type(field)
    charset = charset_of_collation_id(field.charset)
    made = column(
        field.name,
        mysql_type,
        charset=charset if charset not in ("utf8mb3", "binary") else "utf8mb4",  # vtgate's texts are UTF-8 of any kind
        is_optional=not field.flags & _NOT_NULL,
        is_auto_increment=bool(field.flags & _AUTO_INCREMENT),
        has_on_update=bool(field.flags & _ON_UPDATE_NOW),
    )
    return reported_column(made, mysql_type, modes)


def _mysql_type(field: query_pb2.Field) -> MysqlType:
    try:
        return parse_column_type(field.column_type)
    except UnknownColumnType:
        name = _TYPE_OF_VITESS.get(query_pb2.Type.Name(field.type))
        if name is None:
            raise
        return parse_column_type(name)


def _key(fields: Sequence[query_pb2.Field], table_id: TableId, key_columns: Sequence[KeyColumns]) -> tuple[str, ...]:
    chosen = chosen_key(table_id, (field.name for field in fields), key_columns)
    if chosen:
        return chosen
    primary = tuple(field.name for field in fields if field.flags & _PRIMARY_KEY)
    if primary:
        return primary
    return tuple(field.name for field in fields if field.flags & _UNIQUE_KEY and field.flags & _NOT_NULL)[:1]


# --- readings ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """How ``row_changes`` reads one column."""

    kind: int
    convert: Callable[[bytes], bytes] | None = None
    """From the text to JSON."""
    zero: bytes = b"null"
    """The JSON of a date without month or day."""
    unavailable: bytes = b""
    """The JSON for a value that the log does not hold; empty: such a row is an error."""
    is_optional: bool = True
    """Whether the column takes NULL, which is the value of a new row that the log does not hold."""
    padded_bytes: int = 0
    """Of a BINARY(n): shorter values are filled up."""
    units_per_s: int = 0
    """The unit of a DATETIME."""
    precision: int = 0
    scale: int = 0
    """Of a decimal."""


_IN_COMPILED_CODE: Final = {
    LogicalKind.INT16: row_changes.INTEGER,
    LogicalKind.INT32: row_changes.INTEGER,
    LogicalKind.INT64: row_changes.INTEGER,
    LogicalKind.YEAR: row_changes.INTEGER,
    LogicalKind.STRING: row_changes.TEXT,
    LogicalKind.DECIMAL_TEXT: row_changes.TEXT,
    LogicalKind.JSON: row_changes.JSON,
    LogicalKind.MICRO_TIME: row_changes.TIME,
}
_UNITS_PER_S: Final = {
    LogicalKind.TIMESTAMP_MS: 1_000,
    LogicalKind.CONNECT_TIMESTAMP: 1_000,
    LogicalKind.TIMESTAMP_US: 1_000_000,
}
_TIME_KINDS: Final = frozenset(
    {LogicalKind.TIME_MS, LogicalKind.TIME_NS, LogicalKind.CONNECT_TIME, LogicalKind.ISO_TIME}
)
_WHOLE_VALUES: Final[Mapping[LogicalKind, Callable[[bytes], object]]] = {
    LogicalKind.GEOMETRY: geometry_value,
    LogicalKind.POINT: point_value,
    LogicalKind.FLOAT_VECTOR: vector_value,
    LogicalKind.BITS: bits_base64,
    LogicalKind.BOOLEAN: lambda text: text not in (b"\0", b"0", b""),
}
_TEXTS: Final = frozenset({LogicalKind.STRING, LogicalKind.JSON})
_BYTES: Final = frozenset({LogicalKind.BYTES, LogicalKind.BASE64})


def columns_with_doubtful_members(schema: TableSchema) -> tuple[str, ...]:
    """The ENUM and SET columns whose members vtgate may not have named as they are.

    A tablet takes them from COLUMN_TYPE of information_schema, which MySQL keeps in utf8mb3: any other character is a question
    mark there, in the column's type and in the values of the log. A copy has the values as they are.
    """
    return tuple(
        column.name
        for column in schema.columns
        if column.logical_type.kind in (LogicalKind.ENUM, LogicalKind.ENUM_SET)
        and doubtful_members(parse_column_type(column.source_type).members, column.charset)
    )


def reads_otherwise_copied(of: Column, *, has_text_members: bool) -> bool:
    """The column has another reading in rows that are copied."""
    is_member = of.logical_type.kind in (LogicalKind.ENUM, LogicalKind.ENUM_SET)
    return is_member and not (has_text_members and of.charset in _UTF8)


def reading(
    of: Column, *, has_text_members: bool, is_copy: bool = False, placeholder: str = UNAVAILABLE_VALUE
) -> Reading:
    """How a column's values are read, ``is_copy``: out of a table, not out of the log. ``has_text_members``: in the log ENUM
    and SET come as their members, not as numbers. ``placeholder``: for a text or bytes that the log does not hold.

    Raises:
        PipelineHalted: no codec for the column's character set.
    """
    kind = of.logical_type.kind
    mysql_type = parse_column_type(of.source_type)
    zero = orjson.dumps(zero_moment(kind, is_optional=of.is_optional))
    unavailable = _unavailable(kind, placeholder)
    if kind is LogicalKind.INT64 and mysql_type.name == "bigint" and mysql_type.is_unsigned:
        return _converted(_wrapped, row_changes.UNSIGNED)
    if kind is LogicalKind.STRING and of.charset is not None and of.charset not in _UTF8:
        convert_text = _text_reader(of.charset)
        return Reading(row_changes.CONVERTED, convert_text, unavailable=unavailable, is_optional=of.is_optional)
    if kind is LogicalKind.DECIMAL_TEXT and mysql_type.is_zerofill:  # a copy has the zeros, the log lacks them
        return _converted(_decimal_reader(of.logical_type, mysql_type))
    if kind in _IN_COMPILED_CODE:
        return Reading(_IN_COMPILED_CODE[kind], unavailable=unavailable, is_optional=of.is_optional)
    if kind in _UNITS_PER_S:
        return Reading(row_changes.DATETIME, zero=zero, units_per_s=_UNITS_PER_S[kind])
    if kind in BINARY_KINDS:
        return replace(_binary_reading(kind, mysql_type, unavailable), is_optional=of.is_optional)
    if kind in _WHOLE_VALUES:
        convert = _WHOLE_VALUES[kind]
        return Reading(row_changes.CONVERTED, convert=lambda text: orjson.dumps(convert(text)))
    match kind:
        case LogicalKind.DATE | LogicalKind.CONNECT_DATE:
            return Reading(row_changes.DATE, zero=zero)
        case LogicalKind.ZONED_TIMESTAMP:
            return Reading(row_changes.TIMESTAMP, zero=zero)
        case LogicalKind.ENUM | LogicalKind.ENUM_SET if is_copy and of.charset not in _UTF8:
            return Reading(row_changes.CONVERTED, convert=Memo(_text_reader(of.charset or "utf8mb4")).__getitem__)
        case LogicalKind.ENUM_SET if not is_copy and has_text_members and "" in mysql_type.members:
            return _converted(_set_of_text)
        case LogicalKind.ENUM | LogicalKind.ENUM_SET if is_copy or has_text_members:
            return Reading(row_changes.TEXT)
        case LogicalKind.ENUM:
            return _converted(_enum_reader(mysql_type.members))
        case LogicalKind.ENUM_SET:
            return _converted(_set_reader(mysql_type.members))
        case LogicalKind.FLOAT64 if mysql_type.name == "float":
            return _converted(_widened, row_changes.SINGLE)
        case LogicalKind.FLOAT64:
            return _converted(float, row_changes.DOUBLE)
        case LogicalKind.DECIMAL:
            precision, scale = of.logical_type.precision, of.logical_type.scale
            read = _decimal_reader(of.logical_type, mysql_type)
            return _converted(read, row_changes.DECIMAL, precision=precision, scale=scale)
        case _ if kind in _TIME_KINDS:
            write_time = time_writer(kind)
            return _converted(lambda text: write_time(time_from_text(text)))
        case _:
            write_moment = moment_writer(kind, is_optional=of.is_optional)
            return _converted(lambda text: write_moment(moment_from_text(text)))


def _unavailable(kind: LogicalKind, placeholder: str) -> bytes:
    """The JSON for a value that the log does not hold; empty: there is none."""
    if kind in _TEXTS:
        return b"%b" % orjson.dumps(placeholder)
    if kind in _BYTES:
        return b"%b" % orjson.dumps(base64_text(placeholder.encode()))
    return b""


def _converted(
    convert: Callable[[bytes], object], kind: int = row_changes.CONVERTED, *, precision: int = 0, scale: int = 0
) -> Reading:
    """For values that are short and repeat: each is converted once. ``kind``: only values that compiled code leaves are
    converted."""

    def compute(text: bytes) -> bytes:
        # A copy: orjson's result keeps the 4 KB that it was written into.
        return b"%b" % orjson.dumps(convert(text))

    return Reading(kind, convert=Memo(compute).__getitem__, precision=precision, scale=scale)


def _binary_reading(kind: LogicalKind, mysql_type: MysqlType, unavailable: bytes) -> Reading:
    size = (mysql_type.length or 0) if mysql_type.name == "binary" else 0
    write = binary_writer(kind)

    def convert(stored: bytes) -> bytes:
        return orjson.dumps(write(stored.ljust(size, b"\0")))

    if kind in (LogicalKind.BYTES, LogicalKind.BASE64):
        return Reading(row_changes.BINARY, convert=convert, unavailable=unavailable, padded_bytes=size)
    return Reading(row_changes.CONVERTED, convert=convert)


def _decimal_reader(of: LogicalType, mysql_type: MysqlType) -> Callable[[bytes], object]:
    if mysql_type.name == "bigint":
        write_integer = decimal_writer(of, 0)
        return lambda text: write_integer(int(text))
    write = decimal_writer(of, of.scale)

    def read(text: bytes) -> object:
        whole, _, fraction = text.partition(b".")
        if len(fraction) > of.scale:
            raise ValueError("a decimal has more digits than its column")
        return write(int(whole + fraction) * 10 ** (of.scale - len(fraction)))

    return read


def _text_reader(charset: str) -> Callable[[bytes], bytes]:
    codec = python_codec(charset)
    return lambda stored: b"%b" % orjson.dumps(stored.decode(codec))


def _enum_reader(members: tuple[str, ...]) -> Callable[[bytes], str]:
    """MySQL stores 0 for a value that it refused."""

    def read(number: bytes) -> str:
        if int(number) > len(members):
            raise ValueError("an ENUM's value is beyond its members")
        return ("", *members)[int(number)]

    return read


def _set_reader(members: tuple[str, ...]) -> Callable[[bytes], str]:
    of_bits = set_from_binary(members)

    def read(number: bytes) -> str:
        chosen: str = of_bits[int(number)]
        return chosen

    return read


def _set_of_text(members: bytes) -> str:
    """vttablet writes a comma after an empty first member; the server, and so a copy, does not (``Field_set::val_str``)."""
    return members.decode().removeprefix(",")


def _widened(text: bytes) -> float:
    """The double that the stored FLOAT is: Debezium declares a double and fills it so."""
    widened: float = struct.unpack("<f", struct.pack("<f", float(text)))[0]
    return widened


def _wrapped(text: bytes) -> int:
    number = int(text)
    return number - (1 << 64) if number >> 63 else number
