"""A table's columns as FIELD events describe them: MySQL's own result-set metadata, with Vitess's type numbers.

Vitess source ``go/sqltypes/type.go`` (types from MySQL's types and flags), ``vstreamer.go`` (``getExtColInfos``: the
column's full type, and its own collation instead of the connection's).
"""

from dataclasses import dataclass
from typing import Any, Final

from libs.mysql.identifiers import quote_identifier
from libs.source.mysql.client import Connection, query
from protos.vitess.query_pb2 import Field, MySqlFlag, Type

BINARY_COLLATION: Final = 63

# MySQL source include/field_types.h.
_TYPES: Final = {
    0: Type.DECIMAL,
    1: Type.INT8,
    2: Type.INT16,
    3: Type.INT32,
    4: Type.FLOAT32,
    5: Type.FLOAT64,
    6: Type.NULL_TYPE,
    7: Type.TIMESTAMP,
    8: Type.INT64,
    9: Type.INT24,
    10: Type.DATE,
    11: Type.TIME,
    12: Type.DATETIME,
    13: Type.YEAR,
    15: Type.VARCHAR,
    16: Type.BIT,
    17: Type.TIMESTAMP,
    18: Type.DATETIME,
    19: Type.TIME,
    242: Type.VECTOR,
    245: Type.JSON,
    246: Type.DECIMAL,
    247: Type.ENUM,
    248: Type.SET,
    249: Type.TEXT,
    250: Type.TEXT,
    251: Type.TEXT,
    252: Type.TEXT,
    253: Type.VARCHAR,
    254: Type.CHAR,
    255: Type.GEOMETRY,
}
_UNSIGNED: Final = {
    Type.INT8: Type.UINT8,
    Type.INT16: Type.UINT16,
    Type.INT24: Type.UINT24,
    Type.INT32: Type.UINT32,
    Type.INT64: Type.UINT64,
}
_BINARY: Final = {Type.TEXT: Type.BLOB, Type.VARCHAR: Type.VARBINARY, Type.CHAR: Type.BINARY}
_INT24_CODE, _TIMESTAMP_CODE, _YEAR_CODE, _NEWDECIMAL_CODE = 9, 7, 13, 246


@dataclass(frozen=True, slots=True)
class TableFields:
    """A table as it is now."""

    table: str
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    """The columns that a copy goes along: the primary key, else a unique one without NULLs, else all."""
    has_key: bool
    """Whether ``key`` distinguishes rows."""


def vitess_type(code: int, flags: int) -> "Type":
    """Of a column that MySQL describes by its type's number and its flags."""
    found = _TYPES[code]
    if flags & MySqlFlag.ENUM_FLAG:
        return Type.ENUM
    if flags & MySqlFlag.SET_FLAG:
        return Type.SET
    if flags & MySqlFlag.UNSIGNED_FLAG:
        found = _UNSIGNED.get(found, found)
    return _BINARY.get(found, found) if flags & MySqlFlag.BINARY_FLAG else found


def table_fields(connection: Connection, database: str, table: str) -> TableFields | None:
    """None: there is no such table."""
    details = {
        name: (column_type, collation)
        for name, column_type, collation in query(
            connection,
            "SELECT c.column_name, c.column_type, l.id FROM information_schema.columns c "
            "LEFT JOIN information_schema.collations l ON l.collation_name = c.collation_name "
            "WHERE c.table_schema = %s AND c.table_name = %s",
            database,
            table,
        )
    }
    if not details:
        return None
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {quote_identifier(database)}.{quote_identifier(table)} WHERE 1 != 1")
        described = cursor._result.fields  # type: ignore[attr-defined]  # not in the stubs
    if any(packet.name not in details for packet in described):
        return table_fields(connection, database, table)  # it was altered between the two
    fields = tuple(_field(packet, *details[packet.name]) for packet in described)
    key = _key(connection, database, table)
    return TableFields(table, fields, key or tuple(field.name for field in fields), bool(key))


def table_names(connection: Connection, database: str) -> tuple[str, ...]:
    """Base tables, in alphabetical order."""
    rows = query(
        connection,
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND table_type = 'BASE TABLE'",
        database,
    )
    return tuple(sorted(str(row[0]) for row in rows))


def _field(packet: Any, column_type: str, collation: int | None) -> Field:
    flags = packet.flags
    if _is_number(packet.type_code):
        flags |= MySqlFlag.NUM_FLAG  # as MySQL's C client sets it, and Vitess's after it
    return Field(
        name=packet.name,
        type=vitess_type(packet.type_code, flags),
        table=packet.table_name,
        org_table=packet.org_table,
        database=packet.db,
        org_name=packet.org_name,
        column_length=packet.length,
        charset=collation or BINARY_COLLATION,
        decimals=packet.scale,
        flags=flags,
        column_type=column_type,
    )


def _is_number(code: int) -> bool:
    return (code <= _INT24_CODE and code != _TIMESTAMP_CODE) or code in (_YEAR_CODE, _NEWDECIMAL_CODE)


def _key(connection: Connection, database: str, table: str) -> tuple[str, ...]:
    rows = query(
        connection,
        "SELECT index_name, column_name, nullable FROM information_schema.statistics WHERE table_schema = %s "
        "AND table_name = %s AND non_unique = 0 ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index",
        database,
        table,
    )
    indexes: dict[str, list[tuple[str | None, str]]] = {}
    for index, column, nullable in rows:
        indexes.setdefault(index, []).append((column, nullable))
    for parts in indexes.values():
        if all(column is not None and nullable != "YES" for column, nullable in parts):
            return tuple(str(column) for column, _ in parts)
    return ()
