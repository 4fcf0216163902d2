"""Avro schemas of Debezium's events, made from their Connect schemas as Confluent's AvroConverter makes them.

An Avro library reads them as records; Connect's AvroConverter gives the Connect schema back: its parts
without a word in Avro stand in ``connect.*`` members. Members, and their order, are those of ``AvroData`` of Confluent's Schema
Registry with its defaults, so a consumer that was written for Debezium after that converter finds the schema that it knows.

Two things differ. Connect has names that Avro refuses; here each part of a dotted name is one that it takes. And a column that
is NULL although it has a DEFAULT is null, as in the JSON form (that converter writes the default).
"""

import base64
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from libs.formats.connect_schema import ConnectSchema

AvroSchema = Any
"""A schema in Avro's JSON form: a type's name, a mapping, or the list of a union."""

_PRIMITIVES: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
}
_CONNECT_TYPES: Final[Mapping[str, str]] = {"int8": "int8", "int16": "int16"}
"""Named in a member, because Avro's type is wider."""
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_LOGICAL_TYPES: Final[Mapping[str, str]] = {
    _DECIMAL: "decimal",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
    "org.apache.kafka.connect.data.Date": "date",
}
_UNTOLD_PRECISION: Final = 64
"""``CONNECT_AVRO_DECIMAL_PRECISION_DEFAULT``."""
_UNNAMED: Final = "io.confluent.connect.avro.ConnectDefault"


def avro_schema(connect_schema: ConnectSchema) -> AvroSchema:
    """The schema of a whole key or value.

    >>> avro_schema({"type": "string", "optional": True})
    ['null', 'string']
    """
    return _schema(connect_schema, "", set())


def avro_schema_text(connect_schema: ConnectSchema) -> str:
    """The same, as it is registered: one text for one schema, so that a registry gives one id."""
    return msgspec.json.encode(avro_schema(connect_schema)).decode()


def avro_full_name(name: str) -> str:
    """A schema's name whose dotted parts are names that Avro takes (Avro specification, "Names").

    ``format.schema_names`` made it of letters, digits, ``_`` and dots; Debezium's rule looks at the first character of the
    whole alone.

    >>> avro_full_name("shop.2024_orders..Value")
    'shop._2024_orders._.Value'
    """
    return ".".join(f"_{part}" if not part or part[0].isdigit() else part for part in name.split("."))


def _schema(connect: ConnectSchema, namespace: str, defined: set[str]) -> AvroSchema:
    """``namespace``: of the record around it; ``defined``: full names of records that stand before it in the text."""
    base = _base(connect, namespace, defined)
    if not connect.get("optional", False):
        return base
    return (
        ["null", base] if connect.get("default") is None else [base, "null"]
    )  # a default is of the union's first type


def _base(connect: ConnectSchema, namespace: str, defined: set[str]) -> AvroSchema:
    members: dict[str, Any]
    match connect["type"]:
        case "struct":
            full_name = avro_full_name(connect.get("name", _UNNAMED))
            own_namespace, _, name = full_name.rpartition(".")
            if full_name in defined:
                return name if own_namespace == namespace else full_name
            defined.add(full_name)
            members = {"type": "record", "name": name}
            if own_namespace != namespace:
                members["namespace"] = own_namespace
            members["fields"] = [_field(field, own_namespace, defined) for field in connect["fields"]]
            if "name" in connect:
                connect = {**connect, "name": full_name}
        case "array":
            members = {"type": "array", "items": _schema(connect["items"], namespace, defined)}
        case primitive:
            members = {"type": _PRIMITIVES[primitive]}
            if connect.get("name") == _DECIMAL:
                parameters = connect["parameters"]
                precision = parameters.get("connect.decimal.precision", _UNTOLD_PRECISION)
                members |= {"scale": int(parameters["scale"]), "precision": int(precision)}
    members |= _metadata(connect)
    if (logical_type := _LOGICAL_TYPES.get(connect.get("name", ""))) is not None:
        members["logicalType"] = logical_type
    return members["type"] if len(members) == 1 else members


def _metadata(connect: ConnectSchema) -> dict[str, Any]:
    given = {
        "connect.doc": connect.get("doc"),
        "connect.version": connect.get("version"),
        "connect.parameters": connect.get("parameters"),
        "connect.default": _default(connect),
        "connect.name": connect.get("name"),
        "connect.type": _CONNECT_TYPES.get(connect["type"]),
    }
    return {member: value for member, value in given.items() if value is not None}


def _field(connect: ConnectSchema, namespace: str, defined: set[str]) -> dict[str, Any]:
    field = {"name": connect["field"], "type": _schema(connect, namespace, defined)}
    default = _default(connect)
    if default is not None or connect.get("optional", False):
        field["default"] = default
    return field


def _default(connect: ConnectSchema) -> Any:
    """Bytes are a text of the characters U+0000 to U+00FF (Avro specification, "Complex Types", defaults)."""
    default = connect.get("default")
    if default is None or connect["type"] != "bytes":
        return default
    return base64.b64decode(default).decode("latin-1")
