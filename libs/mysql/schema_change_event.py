"""Debezium's schema-change events: the messages that a tenant reads in ``<tenant>.<prefix>`` when a table changes.

Made by a source's reader from the schema before and after; their Connect schemas are in ``connect_schema``. Fields, their
order and their values are those that Debezium 3.6.1 writes (``tests/golden``), with MySQL's type names.
"""

from typing import Any, Final

import orjson

from libs.mysql.column_type import MysqlType, parse_column_type, quoted_member
from libs.mysql.row_key import row_key
from libs.mysql.source_types import source_type
from libs.types.table import Column, TableId, TableSchema

# java.sql.Types of each MySQL type, as Debezium's DDL parser resolves them.
_JDBC_TYPES: Final = {
    "tinyint": 5, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "decimal": 3, "float": 6, "double": 8,
    "bit": -7, "char": 1, "varchar": 12, "tinytext": 12, "text": 12, "mediumtext": 12, "longtext": 12,
    "binary": -2, "varbinary": -3, "tinyblob": 2004, "blob": 2004, "mediumblob": 2004, "longblob": 2004,
    "date": 91, "time": 92, "datetime": 93, "timestamp": 2014, "year": 4, "enum": 1, "set": 1,
}  # fmt: skip
_OTHER: Final = 1111


def schema_change_key(database: str) -> bytes:
    """Key of a schema-change event.

    >>> schema_change_key("shop")
    b'{"databaseName":"shop"}'
    """
    return orjson.dumps({"databaseName": database})


def schema_change_value(
    *,
    source_block: bytes,
    ts_ms: int,
    database: str,
    ddl: str,
    table_id: TableId | None,
    schema: TableSchema | None,
    kind: str,
    with_comments: bool = False,
) -> bytes:
    """Value of a schema-change event: one statement, and one table as it left it.

    ``source_block`` is the ``source`` object as JSON. ``kind`` is CREATE, ALTER or DROP; ``schema`` is the table
    afterwards, None with DROP. Without ``table_id`` the statement concerned no table. Comments are left out unless asked
    for, as with Debezium's default ``include.schema.comments=false``.
    """
    changes = []
    if table_id is not None:
        table = None if schema is None else _table(schema, with_comments=with_comments)
        changes.append({"type": kind, "id": _quoted_id(table_id), "table": table})
    return orjson.dumps(
        {
            "source": orjson.Fragment(source_block),
            "ts_ms": ts_ms,
            "databaseName": database,
            "schemaName": None,
            "ddl": ddl,
            "tableChanges": changes,
        }
    )


def _quoted_id(table_id: TableId) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in (table_id.database, table_id.table))


def _table(schema: TableSchema, *, with_comments: bool) -> dict[str, Any]:
    return {
        "defaultCharsetName": schema.charset,
        "primaryKeyColumnNames": row_key(schema),
        "columns": [
            column_block(column, position, with_comments=with_comments)
            for position, column in enumerate(schema.columns, start=1)
        ],
        "comment": schema.comment if with_comments else None,
    }


def column_block(column: Column, position: int, *, with_comments: bool) -> dict[str, Any]:
    """One column in ``tableChanges``; ``position`` counts from 1."""
    mysql_type = parse_column_type(column.source_type)
    type_of_column = source_type(column, "mysql")
    # Debezium says of a column that the server sets by itself, be it by AUTO_INCREMENT or ON UPDATE, that it is both.
    is_set_by_server = column.is_auto_increment or column.has_on_update
    return {
        "name": column.name,
        "jdbcType": _JDBC_TYPES.get(mysql_type.name, _OTHER),
        "nativeType": None,
        "typeName": type_of_column.name,
        "typeExpression": type_of_column.name,
        "charsetName": column.charset,
        "length": type_of_column.length,
        "scale": type_of_column.scale,
        "position": position,
        "optional": column.is_optional,
        "autoIncremented": is_set_by_server,
        "generated": is_set_by_server,
        "comment": column.comment if with_comments else None,
        "defaultValueExpression": _default(column, mysql_type),
        "enumValues": [quoted_member(member) for member in mysql_type.members] or None,
    }


def _default(column: Column, mysql_type: MysqlType) -> str | None:
    text = column.default_expression
    if text is None or column.is_default_computed:
        return None
    if mysql_type.name == "bit":
        return text.removeprefix("b'").removesuffix("'")
    if mysql_type.name in ("datetime", "timestamp") and text.startswith("CURRENT_TIMESTAMP"):
        return "1970-01-01 00:00:00"
    return text
