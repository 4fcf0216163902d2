"""Changes as LogMiner prints them: rows of V$LOGMNR_CONTENTS, in forms that others recorded from real servers.

The texts have the forms of ``tests/golden/cases/a_oracle_logminer.json``. The undo of a change names its row by ROWID, as
oracdc's recorded transactions have it (``tests/golden/oracle``).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final, NamedTuple

from libs.oracle.log_rows import Operation
from tests.oracle.answers import Column, OracleType, Value
from tests.oracle.sql import Table

Row = Mapping[str, Value]
"""A table's row: every column's value."""


class RedoRow(NamedTuple):
    """A row of V$LOGMNR_CONTENTS."""

    scn: int
    xid: bytes
    thread: int
    rs_id: str
    ssn: int
    operation: Operation
    is_undo: bool
    object_id: int
    object_version: int
    row_id: str
    timestamp: datetime
    user: str
    owner: str | None
    table: str | None
    sequence: int
    text: str | None


class Named(NamedTuple):
    """A table, as texts name it, and its columns in their order."""

    owner: str
    name: str
    columns: Sequence[Column]

    def __str__(self) -> str:
        return f'"{self.owner}"."{self.name}"'


_NUMBER: Final = Column("", OracleType.NUMBER, 22)
COLUMNS: Final = (
    Column("SCN", OracleType.NUMBER, 22),
    Column("XID", OracleType.RAW, 8),
    Column("THREAD#", OracleType.NUMBER, 22),
    Column("RS_ID", size=32),
    Column("SSN", OracleType.NUMBER, 22),
    Column("OPERATION_CODE", OracleType.NUMBER, 22),
    Column("OPERATION", size=32),
    Column("ROLLBACK", OracleType.NUMBER, 22),
    Column("CSF", OracleType.NUMBER, 22),
    Column("STATUS", OracleType.NUMBER, 22),
    Column("DATA_OBJ#", OracleType.NUMBER, 22),
    Column("DATA_OBJV#", OracleType.NUMBER, 22),
    Column("ROW_ID", size=18),
    Column("TIMESTAMP", OracleType.DATE, 7),
    Column("USERNAME", size=384),
    Column("SEG_OWNER", size=384),
    Column("TABLE_NAME", size=384),
    Column("SEQUENCE#", OracleType.NUMBER, 22),
    Column("SQL_REDO"),
    Column("INFO", size=64),
)


def contents(rows: Sequence[RedoRow]) -> Table:
    """The view of these rows. A text above 4,000 bytes is cut into rows that CSF joins."""
    return Table(COLUMNS, [cells for row in rows for cells in _cells(row)])


def _cells(row: RedoRow) -> list[tuple[Value, ...]]:
    parts = _parts(row.text)
    return [
        (
            row.scn,
            row.xid,
            row.thread,
            row.rs_id,
            row.ssn,
            row.operation.value,
            row.operation.name,
            int(row.is_undo),
            int(place < len(parts)),
            0,
            row.object_id,
            row.object_version,
            row.row_id,
            row.timestamp,
            row.user,
            row.owner,
            row.table,
            row.sequence,
            part,
            None,
        )
        for place, part in enumerate(parts, start=1)
    ]


def _parts(text: str | None) -> list[str | None]:
    """Pieces of at most 4,000 bytes, no character cut."""
    parts: list[str | None] = []
    rest = text or ""
    while len(data := rest.encode()) > 4_000:
        part = data[:4_000].decode(errors="ignore")
        parts.append(part)
        rest = rest[len(part) :]
    return [*parts, rest or None]


def insert(table: Named, row: Row) -> str:
    """The text of an INSERT."""
    names = ",".join(f'"{column.name}"' for column in table.columns)
    values = ",".join(literal(column, row[column.name]) for column in table.columns)
    return f"insert into {table}({names}) values ({values});"


def update(table: Named, before: Row, after: Row) -> str:
    """The text of an UPDATE: the columns that changed, and with supplemental logging of all columns the row before."""
    return f"update {table} set {_assigned(table, before, after)} where {_conditions(table, before)};"


def delete(table: Named, row: Row) -> str:
    """The text of a DELETE."""
    return f"delete from {table} where {_conditions(table, row)};"


def undo_of_insert(table: Named, row_id: str) -> str:
    """The row that was inserted goes."""
    return f"delete from {table} where ROWID = '{row_id}';"


def undo_of_update(table: Named, before: Row, after: Row, row_id: str) -> str:
    """The columns that were changed have their former values."""
    return f"update {table} set {_assigned(table, after, before)} where ROWID = '{row_id}';"


def literal(column: Column, value: Value) -> str:
    """A value as LogMiner prints it under the reader's settings of the session."""
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"HEXTORAW('{value.hex()}')"
        case datetime() if column.type is OracleType.DATE:
            return f"TO_DATE('{value:%Y-%m-%d %H:%M:%S}', 'YYYY-MM-DD HH24:MI:SS')"
        case datetime():
            return f"TO_TIMESTAMP('{value:%Y-%m-%d %H:%M:%S.%f}')"
        case int() | float() | Decimal():
            return f"'{value}'"
        case str():
            doubled = value.replace("'", "''")
            return f"'{doubled}'"
    raise TypeError(f"no recorded form of {value!r}")


def _assigned(table: Named, before: Row, after: Row) -> str:
    changed = [column for column in table.columns if before[column.name] != after[column.name]]
    return ", ".join(f'"{column.name}" = {literal(column, after[column.name])}' for column in changed)


def _conditions(table: Named, row: Row) -> str:
    return " and ".join(
        f'"{column.name}" IS NULL'
        if row[column.name] is None
        else f'"{column.name}" = {literal(column, row[column.name])}'
        for column in table.columns
    )
