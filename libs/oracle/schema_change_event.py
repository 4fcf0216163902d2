"""Debezium's schema-change events of an Oracle source: what a tenant reads in ``<tenant>.<prefix>`` when a table changes.

Fields and their order are those of Debezium's MySQL events (``libs.mysql.schema_change_event``); ``databaseName`` is the
pluggable database, ``schemaName`` the owner. The numbers of ``jdbcType`` are those of java.sql.Types and of Oracle's driver.
"""

from typing import Any, Final

import orjson

from libs.oracle.column_type import parse_column_type
from libs.oracle.source_types import source_type
from libs.types.table import Column, TableId, TableSchema

_JDBC_TYPES: Final = {
    "NUMBER": 2, "FLOAT": 6, "BINARY_FLOAT": 100, "BINARY_DOUBLE": 101,
    "CHAR": 1, "VARCHAR2": 12, "NCHAR": -15, "NVARCHAR2": -9, "LONG": -1, "CLOB": 2005, "NCLOB": 2011,
    "RAW": -3, "LONG RAW": -4, "BLOB": 2004, "ROWID": -8, "UROWID": -8, "XMLTYPE": 2009,
    "DATE": 93, "TIMESTAMP": 93, "TIMESTAMP WITH TIME ZONE": -101, "TIMESTAMP WITH LOCAL TIME ZONE": -102,
    "INTERVAL YEAR TO MONTH": -103, "INTERVAL DAY TO SECOND": -104,
}  # fmt: skip
_OTHER: Final = 1111


def schema_change_key(database: str) -> bytes:
    """Key of a schema-change event.

    >>> schema_change_key("ORCLPDB1")
    b'{"databaseName":"ORCLPDB1"}'
    """
    return orjson.dumps({"databaseName": database})


def schema_change_value(
    *,
    database: str,
    table_id: TableId,
    schema: TableSchema | None,
    kind: str,
    ddl: str,
    source_block: bytes,
    ts_ms: int,
) -> bytes:
    """Value of a schema-change event: one statement, and one table after it.

    Args:
        database: the pluggable database, or the database without one.
        table_id: the table; its ``database`` is the owner.
        schema: the table afterwards; None with DROP.
        kind: CREATE, ALTER or DROP; empty: the statement is about no single table.
        ddl: the statement.
        source_block: the ``source`` object as JSON.
        ts_ms: now, in milliseconds since 1970.
    """
    changes = []
    if kind:
        table = None if schema is None else _table(schema)
        changes.append({"type": kind, "id": _quoted_id(database, table_id), "table": table})
    return orjson.dumps(
        {
            "source": orjson.Fragment(source_block),
            "ts_ms": ts_ms,
            "databaseName": database,
            "schemaName": table_id.database,
            "ddl": ddl,
            "tableChanges": changes,
        }
    )


def _quoted_id(database: str, table_id: TableId) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in (database, table_id.database, table_id.table))


def _table(schema: TableSchema) -> dict[str, Any]:
    return {
        "defaultCharsetName": None,
        "primaryKeyColumnNames": schema.key,
        "columns": [column_block(each, position) for position, each in enumerate(schema.columns, start=1)],
        "comment": None,
    }


def column_block(column: Column, position: int) -> dict[str, Any]:
    """One column of ``tableChanges``; ``position`` counts from 1."""
    type_of_column = source_type(column)
    return {
        "name": column.name,
        "jdbcType": _JDBC_TYPES.get(parse_column_type(column.source_type).name, _OTHER),
        "nativeType": None,
        "typeName": type_of_column.name,
        "typeExpression": type_of_column.name,
        "charsetName": None,
        "length": type_of_column.length,
        "scale": type_of_column.scale,
        "position": position,
        "optional": column.is_optional,
        "autoIncremented": False,
        "generated": False,
        "comment": None,
        "defaultValueExpression": column.default_expression,
        "enumValues": None,
    }
