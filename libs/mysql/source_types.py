"""The type of a column of MySQL or Vitess in its source's words (``libs.types.source_type``).

Read off the connectors' own code: 3.6.1 for MySQL, whose names are MySQL's, and 3.5.0 for Vitess, whose names are those of
vtgate's FIELD events.
"""

from typing import Final

from libs.mysql.column_type import MysqlType, parse_column_type
from libs.types.source_type import SourceType
from libs.types.table import Column


def source_type(column: Column, connector: str) -> SourceType:
    """The type of a column whose events bear ``connector``."""
    mysql_type = parse_column_type(column.source_type)
    return _of_vitess(mysql_type) if connector == "vitess" else _of_mysql(mysql_type)


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


# query.proto, Type: vtgate's names of MySQL's types. Texts and blobs of all sizes are one type each, spatial types too.
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
