"""A row of V$LOGMNR_CONTENTS, without its texts.

Oracle Database Reference, "V$LOGMNR_CONTENTS"; codes that the manual leaves out are those that LogMiner writes.
"""

import enum
from typing import Final, NamedTuple


class Operation(enum.IntEnum):
    """OPERATION_CODE. Any code that is not listed is of no use to a reader."""

    INTERNAL = 0
    INSERT = 1
    DELETE = 2
    UPDATE = 3
    DDL = 5
    START = 6
    COMMIT = 7
    LOB_LOCATOR = 9
    LOB_WRITE = 10
    LOB_TRIM = 11
    LOB_ERASE = 29
    MISSING_SCN = 34
    ROLLBACK = 36
    XML_BEGIN = 68
    XML_WRITE = 70
    XML_END = 71
    LONG_TEXT_BEGIN = 91
    LONG_TEXT_WRITE = 92
    LONG_TEXT_END = 93
    UNSUPPORTED = 255


ROW_ENDS: Final = Operation(0)
"""INTERNAL: the row says where a change of several rows was stored."""
ROW_OPERATIONS: Final = frozenset({Operation.INSERT, Operation.DELETE, Operation.UPDATE})
LARGE_VALUE_BEGINS: Final = frozenset({Operation.LOB_LOCATOR, Operation.XML_BEGIN, Operation.LONG_TEXT_BEGIN})
"""Rows that name a column whose content follows."""
LARGE_VALUE_PARTS: Final = frozenset(
    {
        Operation.LOB_WRITE,
        Operation.LOB_TRIM,
        Operation.LOB_ERASE,
        Operation.XML_WRITE,
        Operation.XML_END,
        Operation.LONG_TEXT_WRITE,
        Operation.LONG_TEXT_END,
    }
)

NO_ROW_ID: Final = "AAAAAAAAAAAAAAAAAA"
"""ROW_ID of a row whose place the log does not say yet."""


class LogRow(NamedTuple):
    """One row."""

    operation: Operation
    object_id: int
    """DATA_OBJ# of the table."""
    row_id: str | None
    """None stands for ``NO_ROW_ID``."""
    is_undo: bool = False
    """ROLLBACK = 1: the row takes an earlier one of the transaction back."""
    sequence: int = 0
    """SEQUENCE#."""
    rs_id: str = ""
    """Record set: rows with one RS_ID come from one redo record."""
    column: str = ""
    """Of rows that begin a large value: the column that they name."""
    is_temporary: bool = False
    """SQL_REDO is ``/* No SQL_REDO for temporary tables */``."""
