"""Rows of V$LOGMNR_CONTENTS as this reader selects them, and as it keeps them until their transaction ends."""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import Final, NamedTuple

from libs.oracle.log_rows import LARGE_VALUE_BEGINS, LARGE_VALUE_PARTS, ROW_ENDS, ROW_OPERATIONS, Operation
from libs.types.table import TableId


class MinedRow(NamedTuple):
    """A row as the driver gives it; names as the view's columns."""

    scn: int
    xid: bytes
    thread: int
    rs_id: str
    ssn: int
    operation: int
    is_undo: int
    goes_on: int
    """CSF: the next row has more of the text."""
    status: int
    object_id: int
    object_version: int
    row_id: str | None
    timestamp: datetime | None
    user: str | None
    sequence: int
    owner: str | None
    table: str | None
    info: str | None
    """INFO; of a START, CLIENT_ID where transactions are passed over."""
    sql: str | None


class MinedDdl(NamedTuple):
    """A statement that changed a table's definition, or some of its rows without rows in the log."""

    scn: int
    thread: int
    rs_id: str
    committed_at_us: int
    user: str
    owner: str
    table: str
    object_id: int
    object_version: int
    sql: str
    info: str


class CapturedTables(NamedTuple):
    """What windows are mined for."""

    tables: tuple[TableId, ...]
    has_large: bool = False
    """Some have columns whose values the log may hold in rows of their own (``libs.oracle.logical.is_large``)."""
    passes_over: bool = False
    """Transactions are passed over by the user or client of their START."""

    @property
    def with_starts(self) -> bool:
        """START of every transaction is asked for."""
        return self.has_large or self.passes_over


_COLUMNS: Final = (
    'SCN, XID, "THREAD#", RS_ID, SSN, OPERATION_CODE, "ROLLBACK", CSF, STATUS, "DATA_OBJ#", "DATA_OBJV#", ROW_ID,'
    ' TIMESTAMP, USERNAME, "SEQUENCE#", SEG_OWNER, TABLE_NAME, INFO, SQL_REDO'
)
_NAMES_OF_A_LIST: Final = 1_000
"""Oracle's limit of an IN list (ORA-01795)."""
_ALWAYS: Final = (Operation.COMMIT, Operation.ROLLBACK, Operation.MISSING_SCN)
_OF_TABLES: Final = tuple(
    sorted({*ROW_OPERATIONS, *LARGE_VALUE_BEGINS, *LARGE_VALUE_PARTS, Operation.UNSUPPORTED, ROW_ENDS})
)


def window_query(captured: CapturedTables, pdb: str | None = None) -> str:
    """The SELECT of a window's rows: ``:1`` < SCN <= ``:2``.

    ``pdb``: of this pluggable database alone, its COMMITs too. With local undo one XID may be open in two of them.

    Ends of all transactions come, because commits are counted; all DDL comes too. Rows of tables come by name.
    LogMiner calls a table that its dictionary does not know ``OBJ# n``, and its owner UNKNOWN; the reader knows them by the
    object id.
    START of every transaction comes where large values do: it says whether a window has the whole transaction. It comes with
    its client where transactions are passed over.
    """
    always = (*_ALWAYS, Operation.START) if captured.with_starts else _ALWAYS
    info = f"CASE WHEN OPERATION_CODE = {Operation.START.value} THEN CLIENT_ID ELSE INFO END AS INFO"
    columns = _COLUMNS.replace(" INFO,", f" {info},") if captured.passes_over else _COLUMNS
    within = f" AND SRC_CON_NAME = {_quoted(pdb)}" if pdb else ""
    return (
        f"SELECT {columns} FROM V$LOGMNR_CONTENTS WHERE SCN > :1 AND SCN <= :2{within}"
        f" AND (OPERATION_CODE IN ({_codes(always)})"
        f" OR (OPERATION_CODE = {Operation.DDL.value} AND INFO LIKE 'USER DDL%')"
        f" OR (OPERATION_CODE IN ({_codes(_OF_TABLES)}) AND ({' OR '.join(_conditions(captured.tables))})))"
    )


def transaction_query(xid: bytes, captured: CapturedTables, pdb: str | None = None) -> str:
    """The SELECT of one transaction's rows, as ``window_query``."""
    return f"{window_query(captured, pdb)} AND XID = HEXTORAW('{xid.hex().upper()}')"


def _codes(operations: Iterable[Operation]) -> str:
    return ", ".join(str(operation.value) for operation in operations)


def _conditions(tables: Collection[TableId]) -> Iterator[str]:
    for owner, of_owner in groupby(sorted(tables), key=lambda table_id: table_id.database):
        names = [_quoted(table_id.table) for table_id in of_owner]
        for first in range(0, len(names), _NAMES_OF_A_LIST):
            listed = ", ".join(names[first : first + _NAMES_OF_A_LIST])
            yield f"(SEG_OWNER = {_quoted(owner)} AND TABLE_NAME IN ({listed}))"
    yield "SEG_OWNER = 'UNKNOWN'"
    yield "TABLE_NAME LIKE 'OBJ#%'"


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
