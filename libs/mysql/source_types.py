"""What a source calls a column's type: name, length and scale, as Debezium tells them.

They stand in schema-change events, and in the Connect schemas of tenants that ask for them (``format.source_types``:
Debezium's ``column.propagate.source.type`` and ``datatype.propagate.source.type``). Read off the connectors' own code: 3.6.1
for MySQL, whose names are MySQL's, and 3.5.0 for Vitess, whose names are those of vtgate's FIELD events.
"""

from dataclasses import dataclass
from typing import Final

from libs.mysql.column_type import MysqlType, parse_column_type
from libs.types.table import Column


@dataclass(frozen=True, slots=True)
class SourceType:
    """A column's type in its source's words."""

    name: str
    """Upper case: ``INT UNSIGNED``; of Vitess ``UINT32``."""
    length: int | None = None
    scale: int | None = None


def source_type(column: Column, connector: str) -> SourceType:
    """The type of a column whose events bear ``connector``."""
    mysql_type = parse_column_type(column.source_type)
    return _of_vitess(mysql_type) if connector == "vitess" else _of_mysql(mysql_type)


def source_type_parameters(column: Column, connector: str) -> dict[str, str]:
    """The parameters that Debezium adds to a field's Connect schema, in its order; ``column`` bears the source's name."""
    told = source_type(column, connector)
    sizes = {"length": told.length, "scale": told.scale}
    return {
        f"{_PARAMETER}type": told.name,
        **{f"{_PARAMETER}{name}": str(size) for name, size in sizes.items() if size is not None},
        f"{_PARAMETER}name": column.name,
    }


_PARAMETER: Final = "__debezium.source.column."


def _of_mysql(mysql_type: MysqlType) -> SourceType:
    name = mysql_type.name.upper() + " UNSIGNED" * mysql_type.is_unsigned + " ZEROFILL" * mysql_type.is_zerofill
    return SourceType(name, _mysql_length(mysql_type), mysql_type.scale)


def _mysql_length(mysql_type: MysqlType) -> int | None:
    """The first number after the type's name; of an enum 1, of a set room for a comma between its members."""
    match mysql_type.name:
        case "enum":
            return 1
        case "set":
            return 2 * len(mysql_type.members) - 1
        case _:
            return mysql_type.precision or mysql_type.length or mysql_type.fractional_digits or None


# query.proto, Type: what vtgate calls MySQL's types. Texts and blobs of all sizes are one type each, spatial types too.
_VITESS_NAMES: Final = {
    "tinyint": "INT8", "smallint": "INT16", "mediumint": "INT24", "int": "INT32", "bigint": "INT64",
    "float": "FLOAT32", "double": "FLOAT64", "tinytext": "TEXT", "mediumtext": "TEXT", "longtext": "TEXT",
    "tinyblob": "BLOB", "mediumblob": "BLOB", "longblob": "BLOB", "point": "GEOMETRY", "linestring": "GEOMETRY",
    "polygon": "GEOMETRY", "multipoint": "GEOMETRY", "multilinestring": "GEOMETRY", "multipolygon": "GEOMETRY",
    "geomcollection": "GEOMETRY",
}  # fmt: skip
_WITH_FRACTION: Final = frozenset({"time", "datetime", "timestamp"})


def _of_vitess(mysql_type: MysqlType) -> SourceType:
    """Of a length that connector knows only the digits after a second's point, 0 too; of a scale nothing."""
    name = _VITESS_NAMES.get(mysql_type.name, mysql_type.name.upper())
    if mysql_type.is_unsigned and name.startswith("INT"):
        name = f"U{name}"
    return SourceType(name, mysql_type.fractional_digits if mysql_type.name in _WITH_FRACTION else None)
