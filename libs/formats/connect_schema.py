"""Kafka Connect schemas of Debezium's events, built from a ``TableSchema``.

JsonConverter with ``schemas.enable`` writes ``{"schema": …, "payload": …}`` (Kafka Connect, JsonConverter). The router builds
the schema's text once for each (table, version) and splices the payload's bytes after it, so an event with its schema
costs a concatenation. Names, versions, parameters and defaults are those that Debezium 3.6.1 writes: ``tests/golden`` holds
recordings, and the order of the members is theirs too, so the texts can be compared byte by byte.
"""

import base64
import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any, Final

import msgspec

from libs.events.names import sanitize_topic
from libs.formats.avro_names import adjust_schema_name
from libs.types.table import Column, TableId, TableSchema
from libs.types.tenant import NameAdjustment
from libs.types.value import LogicalKind, LogicalType

ConnectSchema = dict[str, Any]
"""A Connect schema in JsonConverter's form."""


@dataclass(frozen=True, slots=True)
class EnvelopeForm:
    """The common parts of one source's envelopes, beside their tables."""

    connector: str = "mysql"
    removed_fields: tuple[str, ...] = ()
    """Members that are left out, as ``source.vgtid``."""
    has_ordered_transactions: bool = False
    """The transaction block has an epoch and a rank."""


MYSQL_FORM: Final = EnvelopeForm()
_NO_PARAMETERS: Final[Mapping[str, str]] = {}
_NO_SOURCE_TYPES: Final[Mapping[str, Mapping[str, str]]] = {}


def key_schema(
    prefix: str, table: TableSchema, schema_names: NameAdjustment = NameAdjustment.NONE
) -> ConnectSchema | None:
    """Schema of a table's keys, fields in key order; None where the table has no key."""
    if not table.key:
        return None
    fields = [connect_field(table.column(name)) for name in table.key]
    return _struct(fields, name=_schema_name(prefix, table.table_id, "Key", schema_names))


def value_schema(
    prefix: str,
    table: TableSchema,
    form: EnvelopeForm = EnvelopeForm(),
    schema_names: NameAdjustment = NameAdjustment.NONE,
    source_types: Mapping[str, Mapping[str, str]] = _NO_SOURCE_TYPES,
) -> ConnectSchema:
    """Schema of a table's row events: Debezium's envelope.

    ``source_types``: by column, parameters that its field gets besides its own (``SourceType.parameters``).
    """
    value_name = _schema_name(prefix, table.table_id, "Value", schema_names)
    columns = [connect_field(column, source_types.get(column.name, {})) for column in table.columns]
    return _struct(
        [
            _struct(columns, optional=True, name=value_name, field="before"),
            _struct(columns, optional=True, name=value_name, field="after"),
            _without(form, {**_source_schema(form), "field": "source"}, "source."),
            _without(form, {**_transaction_schema(form), "field": "transaction"}, "transaction."),
            _plain("string", "op"),
            _plain("int64", "ts_ms", optional=True),
            *(_plain("int64", name, optional=True) for name in ("ts_us", "ts_ns") if name not in form.removed_fields),
        ],
        name=_schema_name(prefix, table.table_id, "Envelope", schema_names),
        version=2,
    )


def _source_schema(form: EnvelopeForm) -> ConnectSchema:
    return _SOURCES.get(form.connector, _MYSQL_SOURCE)


def _transaction_schema(form: EnvelopeForm) -> ConnectSchema:
    return _ORDERED_TRANSACTION_BLOCK if form.has_ordered_transactions else _TRANSACTION_BLOCK


def _without(form: EnvelopeForm, struct: ConnectSchema, place: str) -> ConnectSchema:
    fields = [field for field in struct["fields"] if place + field["field"] not in form.removed_fields]
    return {**struct, "fields": fields}


def payload_prefix(schema: ConnectSchema) -> bytes:
    """The bytes before a payload of ``schema``; ``}`` follows the payload.

    >>> payload_prefix({"type": "string", "optional": False}) + b'"a"' + b"}"
    b'{"schema":{"type":"string","optional":false},"payload":"a"}'
    """
    return b'{"schema":' + msgspec.json.encode(schema) + b',"payload":'


def connect_field(column: Column, source_type: Mapping[str, str] = _NO_PARAMETERS) -> ConnectSchema:
    """A column as a field of a Connect struct; ``source_type`` are parameters beside its own."""
    kind = column.logical_type.kind
    connect_type, name = _CONNECT_TYPES[kind]
    field: ConnectSchema = {"type": connect_type, **_PARTS.get(kind, {}), "optional": column.is_optional}
    if name is not None:
        field |= {"name": name, "version": 1}
    if kind in _DOCS:
        field["doc"] = _DOCS[kind]
    if parameters := {**_parameters(column.logical_type), **source_type}:
        field["parameters"] = parameters
    default = connect_default(column)
    if default is not None:
        field["default"] = default
    field["field"] = column.name
    return field


_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_CONNECT_TYPES: Final[Mapping[LogicalKind, tuple[str, str | None]]] = {
    LogicalKind.BOOLEAN: ("boolean", None),
    LogicalKind.INT8: ("int8", None),
    LogicalKind.INT16: ("int16", None),
    LogicalKind.INT32: ("int32", None),
    LogicalKind.INT64: ("int64", None),
    LogicalKind.FLOAT32: ("float", None),
    LogicalKind.FLOAT64: ("double", None),
    LogicalKind.STRING: ("string", None),
    LogicalKind.BYTES: ("bytes", None),
    LogicalKind.BASE64: ("string", None),
    LogicalKind.BASE64_URL: ("string", None),
    LogicalKind.HEX: ("string", None),
    LogicalKind.DECIMAL: ("bytes", _DECIMAL),
    LogicalKind.DECIMAL_TEXT: ("string", None),
    LogicalKind.VARIABLE_SCALE_DECIMAL: ("struct", "io.debezium.data.VariableScaleDecimal"),
    LogicalKind.DATE: ("int32", "io.debezium.time.Date"),
    LogicalKind.CONNECT_DATE: ("int32", "org.apache.kafka.connect.data.Date"),
    LogicalKind.ISO_DATE: ("string", "io.debezium.time.IsoDate"),
    LogicalKind.TIME_MS: ("int32", "io.debezium.time.Time"),
    LogicalKind.MICRO_TIME: ("int64", "io.debezium.time.MicroTime"),
    LogicalKind.TIME_NS: ("int64", "io.debezium.time.NanoTime"),
    LogicalKind.CONNECT_TIME: ("int32", "org.apache.kafka.connect.data.Time"),
    LogicalKind.ISO_TIME: ("string", "io.debezium.time.IsoTime"),
    LogicalKind.TIMESTAMP_MS: ("int64", "io.debezium.time.Timestamp"),
    LogicalKind.TIMESTAMP_US: ("int64", "io.debezium.time.MicroTimestamp"),
    LogicalKind.TIMESTAMP_NS: ("int64", "io.debezium.time.NanoTimestamp"),
    LogicalKind.CONNECT_TIMESTAMP: ("int64", "org.apache.kafka.connect.data.Timestamp"),
    LogicalKind.ISO_TIMESTAMP: ("string", "io.debezium.time.IsoTimestamp"),
    LogicalKind.ZONED_TIMESTAMP: ("string", "io.debezium.time.ZonedTimestamp"),
    LogicalKind.MICRO_DURATION: ("int64", "io.debezium.time.MicroDuration"),
    LogicalKind.INTERVAL: ("string", "io.debezium.time.Interval"),
    LogicalKind.YEAR: ("int32", "io.debezium.time.Year"),
    LogicalKind.JSON: ("string", "io.debezium.data.Json"),
    LogicalKind.JSON_VARIANT: ("string", "io.debezium.data.Json"),
    LogicalKind.XML: ("string", "io.debezium.data.Xml"),
    LogicalKind.ENUM: ("string", "io.debezium.data.Enum"),
    LogicalKind.ENUM_SET: ("string", "io.debezium.data.EnumSet"),
    LogicalKind.BITS: ("bytes", "io.debezium.data.Bits"),
    LogicalKind.GEOMETRY: ("struct", "io.debezium.data.geometry.Geometry"),
    LogicalKind.POINT: ("struct", "io.debezium.data.geometry.Point"),
    LogicalKind.FLOAT_VECTOR: ("array", "io.debezium.data.FloatVector"),
}
_SRID: Final = {"type": "int32", "optional": True, "field": "srid"}
_PARTS: Final[Mapping[LogicalKind, ConnectSchema]] = {
    LogicalKind.VARIABLE_SCALE_DECIMAL: {
        "fields": [
            {"type": "int32", "optional": False, "field": "scale"},
            {"type": "bytes", "optional": False, "field": "value"},
        ]
    },
    LogicalKind.GEOMETRY: {"fields": [{"type": "bytes", "optional": False, "field": "wkb"}, _SRID]},
    LogicalKind.POINT: {
        "fields": [
            {"type": "double", "optional": False, "field": "x"},
            {"type": "double", "optional": False, "field": "y"},
            {"type": "bytes", "optional": True, "field": "wkb"},
            _SRID,
        ]
    },
    LogicalKind.FLOAT_VECTOR: {"items": {"type": "float", "optional": False}},
}
"""The members of a struct or an array."""
_DOCS: Final = {
    LogicalKind.VARIABLE_SCALE_DECIMAL: "Variable scaled decimal",
    LogicalKind.GEOMETRY: "Geometry",
    LogicalKind.POINT: "Geometry (POINT)",
}


def _parameters(logical_type: LogicalType) -> dict[str, str]:
    match logical_type.kind:
        case LogicalKind.DECIMAL:
            return {"scale": str(logical_type.scale), "connect.decimal.precision": str(logical_type.precision)}
        case LogicalKind.BITS:
            return {"length": str(logical_type.precision)}
        case LogicalKind.ENUM | LogicalKind.ENUM_SET:
            return {"allowed": ",".join(member.replace(",", "\\,") for member in logical_type.allowed)}
        case _:
            return {}


def _schema_name(prefix: str, table_id: TableId, part: str, adjustment: NameAdjustment) -> str:
    """Debezium names schemas after the topic that it would write, the tenant's name not among it."""
    topic = sanitize_topic(f"{prefix}.{table_id.database}.{table_id.table}")
    return adjust_schema_name(f"{topic}.{part}", adjustment)


# --- defaults -------------------------------------------------------------------------------------------------------


def connect_default(column: Column) -> Any:
    """A column's DEFAULT in its JSON form; None where it has none, or where no constant stands for it.

    As Debezium has it: CURRENT_TIMESTAMP and zero dates are the start of 1970 (none, for a TIMESTAMP or a zero date that
    may be NULL), a BIGINT UNSIGNED beyond 64 signed bits is the largest signed number.
    """
    text = column.default_expression
    if text is None or column.is_generated or column.is_default_computed:
        return None
    try:
        return _default(column, text)
    except (ValueError, InvalidOperation):
        return None


def _default(column: Column, text: str) -> Any:
    logical_type = column.logical_type
    match logical_type.kind:
        case LogicalKind.BOOLEAN:
            return _integer(text) != 0
        case LogicalKind.INT8 | LogicalKind.INT16 | LogicalKind.INT32 | LogicalKind.YEAR:
            return _integer(text)
        case LogicalKind.INT64:
            return min(_integer(text), 2**63 - 1)
        case LogicalKind.FLOAT32 | LogicalKind.FLOAT64:
            return float(text)
        case LogicalKind.DECIMAL:
            return _decimal(text, logical_type.scale)
        case LogicalKind.DECIMAL_TEXT:
            return text
        case LogicalKind.BYTES | LogicalKind.BASE64:
            return _base64(_literal_bytes(text))
        case LogicalKind.BASE64_URL:
            return base64.urlsafe_b64encode(_literal_bytes(text)).decode()
        case LogicalKind.HEX:
            return _literal_bytes(text).hex()
        case LogicalKind.BITS:
            return _base64(_integer(text).to_bytes((logical_type.precision + 7) // 8, "little"))
        case kind if kind in _MOMENTS:
            micros = _datetime_us(text, is_optional=column.is_optional)
            return None if micros is None else _MOMENTS[kind](micros)
        case LogicalKind.ZONED_TIMESTAMP:
            return _zoned(text, logical_type.scale, is_optional=column.is_optional)
        case kind if kind in _TIMES:
            return _TIMES[kind](_time_us(text))
        case _:
            return text


def _integer(text: str) -> int:
    if text[:2].lower() == "b'":
        return int(text[2:-1], 2)
    if text[:2].lower() == "0x":
        return int(text, 16)
    return int(text)


def _literal_bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:]) if text[:2].lower() == "0x" else text.encode()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _decimal(text: str, scale: int) -> str:
    with localcontext() as context:
        context.prec = 100  # a DECIMAL has at most 65 digits
        unscaled = int(Decimal(text).scaleb(scale).to_integral_value(ROUND_HALF_UP))
    length = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() >> 3) + 1
    return _base64(unscaled.to_bytes(length, "big", signed=True))


_MOMENT: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?")
_CLOCK: Final = re.compile(r"(-?)(\d{1,3}):(\d\d):(\d\d)(?:\.(\d{1,6}))?")


def _datetime_us(text: str, *, is_optional: bool) -> int | None:
    if _is_current_timestamp(text):
        return 0
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError("no date")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if not (month and day):
        return None if is_optional else 0
    # Proleptic Gregorian; the month before as the base, so that 31 February runs on into March.
    days = _first_of_month(year, month) + day - 1
    return ((days * 24 + hour) * 60 + minute) * 60 * 1_000_000 + second * 1_000_000 + _fraction_us(match[7])


def _zoned(text: str, digits: int, *, is_optional: bool) -> str | None:
    """A TIMESTAMP's text is read as UTC: the DDL does not say in which zone it was written."""
    fraction = "." + "0" * digits if digits else ""
    if _is_current_timestamp(text) or text.startswith("0000-00-00"):
        return None if is_optional else f"1970-01-01T00:00:00{fraction}Z"
    if _MOMENT.fullmatch(text) is None:
        raise ValueError("no timestamp")
    return f"{text.replace(' ', 'T')}Z"


def _time_us(text: str) -> int:
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError("no time")
    seconds = (int(match[2]) * 60 + int(match[3])) * 60 + int(match[4])
    micros = seconds * 1_000_000 + _fraction_us(match[5])
    return -micros if match[1] else micros


_DAY_US: Final = 86_400_000_000
_EPOCH: Final = datetime.datetime(1970, 1, 1)


def _iso_timestamp(micros: int) -> str:
    try:
        moment = _EPOCH + datetime.timedelta(microseconds=micros)
    except OverflowError as error:
        raise ValueError("year 0") from error
    return f"{moment:%Y-%m-%d}T{_clock(micros % _DAY_US)}Z"


def _clock(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{clock}.{fraction:06d}".rstrip("0") if fraction else clock


_MOMENTS: Final[Mapping[LogicalKind, Callable[[int], int | str]]] = {
    LogicalKind.DATE: lambda micros: micros // _DAY_US,
    LogicalKind.CONNECT_DATE: lambda micros: micros // _DAY_US,
    LogicalKind.ISO_DATE: lambda micros: _iso_timestamp(micros)[:10] + "Z",
    LogicalKind.TIMESTAMP_MS: lambda micros: micros // 1000,
    LogicalKind.CONNECT_TIMESTAMP: lambda micros: micros // 1000,
    LogicalKind.TIMESTAMP_US: lambda micros: micros,
    LogicalKind.TIMESTAMP_NS: lambda micros: micros * 1000,
    LogicalKind.ISO_TIMESTAMP: _iso_timestamp,
}
"""From microseconds since 1970."""
_TIMES: Final[Mapping[LogicalKind, Callable[[int], int | str]]] = {
    LogicalKind.TIME_MS: lambda micros: micros // 1000,
    LogicalKind.CONNECT_TIME: lambda micros: micros // 1000,
    LogicalKind.MICRO_TIME: lambda micros: micros,
    LogicalKind.TIME_NS: lambda micros: micros * 1000,
    LogicalKind.ISO_TIME: lambda micros: f"{'-' if micros < 0 else ''}{_clock(abs(micros))}Z",
}


def _fraction_us(digits: str | None) -> int:
    return int((digits or "").ljust(6, "0"))


def _is_current_timestamp(text: str) -> bool:
    return text.upper().startswith(("CURRENT_TIMESTAMP", "NOW(", "LOCALTIME"))


def _first_of_month(year: int, month: int) -> int:
    """Days from 1970-01-01 to the first of a month, years before 1 included (days-from-civil, years begin in March)."""
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


# --- the envelope's fixed parts ----------------------------------------------------------------------------------------


def _plain(connect_type: str, field: str, *, optional: bool = False) -> ConnectSchema:
    return {"type": connect_type, "optional": optional, "field": field}


def _struct(
    fields: Sequence[ConnectSchema],
    *,
    name: str | None = None,
    optional: bool = False,
    version: int | None = None,
    field: str | None = None,
) -> ConnectSchema:
    schema: ConnectSchema = {"type": "struct", "fields": list(fields), "optional": optional}
    optional_members = {"name": name, "version": version, "field": field}
    return schema | {member: value for member, value in optional_members.items() if value is not None}


_SHARED_SOURCE_MEMBERS: Final = frozenset(
    {"version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "ts_us", "ts_ns"}
)
"""Of the ``source`` block, in every connector's."""
_MYSQL_SOURCE: Final = _struct(
    [
        _plain("string", "version"),
        _plain("string", "connector"),
        _plain("string", "name"),
        _plain("int64", "ts_ms"),
        {
            "type": "string",
            "optional": True,
            "name": "io.debezium.data.Enum",
            "version": 1,
            "parameters": {
                "allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
            },
            "default": "false",
            "field": "snapshot",
        },
        _plain("string", "db"),
        _plain("string", "sequence", optional=True),
        _plain("int64", "ts_us", optional=True),
        _plain("int64", "ts_ns", optional=True),
        _plain("string", "table", optional=True),
        _plain("int64", "server_id"),
        _plain("string", "gtid", optional=True),
        _plain("string", "file"),
        _plain("int64", "pos"),
        _plain("int32", "row"),
        _plain("int64", "thread", optional=True),
        _plain("string", "query", optional=True),
    ],
    name="io.debezium.connector.mysql.Source",
    version=1,
)
_VITESS_SOURCE: Final = _struct(
    [
        *[field for field in _MYSQL_SOURCE["fields"] if field["field"] in _SHARED_SOURCE_MEMBERS],
        _plain("string", "keyspace"),
        _plain("string", "table"),
        _plain("string", "shard"),
        _plain("string", "vgtid"),
    ],
    name="io.debezium.connector.vitess.Source",
    version=1,
)
_ORACLE_SOURCE: Final = _struct(
    [
        *[field for field in _MYSQL_SOURCE["fields"] if field["field"] in _SHARED_SOURCE_MEMBERS],
        _plain("string", "schema"),
        _plain("string", "table"),
        *(_plain("string", name, optional=True) for name in ("txId", "scn", "commit_scn", "lcr_position", "rs_id")),
        _plain("int64", "ssn", optional=True),
        _plain("int32", "redo_thread", optional=True),
        *(_plain("string", name, optional=True) for name in ("user_name", "redo_sql", "row_id")),
        _plain("int64", "commit_ts_ms", optional=True),
        _plain("string", "start_scn", optional=True),
        _plain("int64", "start_ts_ms", optional=True),
        _plain("int64", "txSeq", optional=True),
    ],
    name="io.debezium.connector.oracle.Source",
    version=1,
)
_SOURCES: Final[Mapping[str, ConnectSchema]] = {"oracle": _ORACLE_SOURCE, "vitess": _VITESS_SOURCE}
"""Of the connectors whose events have a block of their own."""
_TRANSACTION_MEMBERS: Final = [
    _plain("string", "id"),
    _plain("int64", "total_order"),
    _plain("int64", "data_collection_order"),
]
_TRANSACTION_BLOCK: Final = _struct(_TRANSACTION_MEMBERS, optional=True, name="event.block", version=1)
_ORDERED_TRANSACTION_BLOCK: Final = _struct(
    [
        *_TRANSACTION_MEMBERS,
        _plain("int64", "transaction_epoch"),
        {
            "type": "bytes",
            "optional": False,
            "name": _DECIMAL,
            "version": 1,
            "parameters": {"scale": "0"},
            "field": "transaction_rank",
        },
    ],
    optional=True,
    name="event.block",
    version=1,
)


def _array(items: ConnectSchema, field: str, *, optional: bool = False) -> ConnectSchema:
    return {"type": "array", "items": items, "optional": optional, "field": field}


_TEXT: Final[ConnectSchema] = {"type": "string", "optional": False}
_HISTORY_COLUMN: Final = _struct(
    [
        _plain("string", "name"),
        _plain("int32", "jdbcType"),
        _plain("int32", "nativeType", optional=True),
        _plain("string", "typeName"),
        _plain("string", "typeExpression", optional=True),
        _plain("string", "charsetName", optional=True),
        _plain("int32", "length", optional=True),
        _plain("int32", "scale", optional=True),
        _plain("int32", "position"),
        _plain("boolean", "optional", optional=True),
        _plain("boolean", "autoIncremented", optional=True),
        _plain("boolean", "generated", optional=True),
        _plain("string", "comment", optional=True),
        _plain("string", "defaultValueExpression", optional=True),
        _array(_TEXT, "enumValues", optional=True),
    ],
    name="io.debezium.connector.schema.Column",
    version=1,
)
_HISTORY_TABLE: Final = _struct(
    [
        _plain("string", "defaultCharsetName", optional=True),
        _array(_TEXT, "primaryKeyColumnNames", optional=True),
        _array(_HISTORY_COLUMN, "columns"),
        _plain("string", "comment", optional=True),
    ],
    optional=True,
    name="io.debezium.connector.schema.Table",
    version=1,
    field="table",
)
_HISTORY_CHANGE: Final = _struct(
    [_plain("string", "type"), _plain("string", "id"), _HISTORY_TABLE],
    name="io.debezium.connector.schema.Change",
    version=1,
)


def schema_change_key_schema(form: EnvelopeForm) -> ConnectSchema:
    """Key of the records of ``<prefix>``."""
    name = f"io.debezium.connector.{_schema_owner(form)}.SchemaChangeKey"
    return _struct([_plain("string", "databaseName")], name=name, version=1)


def schema_change_value_schema(form: EnvelopeForm) -> ConnectSchema:
    """Value of the records of ``<prefix>``."""
    return _struct(
        [
            {**_source_schema(form), "field": "source"},
            _plain("int64", "ts_ms"),
            _plain("string", "databaseName", optional=True),
            _plain("string", "schemaName", optional=True),
            _plain("string", "ddl", optional=True),
            _array(_HISTORY_CHANGE, "tableChanges"),
        ],
        name=f"io.debezium.connector.{_schema_owner(form)}.SchemaChangeValue",
        version=1,
    )


def _schema_owner(form: EnvelopeForm) -> str:
    """Whose schemas the records bear: those of another road to MySQL's changes are MySQL's."""
    return form.connector if form.connector in _SOURCES else "mysql"


TRANSACTION_KEY: Final = _struct(
    [_plain("string", "id")], name="io.debezium.connector.common.TransactionMetadataKey", version=1
)
"""Key of the records of ``<prefix>.transaction``."""
TRANSACTION_VALUE: Final = _struct(
    [
        _plain("string", "status"),
        _plain("string", "id"),
        _plain("int64", "event_count", optional=True),
        _array(
            _struct(
                [_plain("string", "data_collection"), _plain("int64", "event_count")],
                optional=True,
                name="event.collection",
                version=1,
            ),
            "data_collections",
            optional=True,
        ),
        _plain("int64", "ts_ms"),
    ],
    name="io.debezium.connector.common.TransactionMetadataValue",
    version=1,
)
"""Value of the records of ``<prefix>.transaction``."""
HEADER_TEXT: Final[ConnectSchema] = _TEXT
"""A header's text, as JsonConverter writes it."""
