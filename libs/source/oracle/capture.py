"""Which tables of an Oracle source are captured, by name."""

import re
from collections.abc import Callable, Sequence
from typing import Final

from libs.oracle.dictionary import SYSTEM_SCHEMAS
from libs.types.table import TableId

_DROPPED: Final = "BIN$"
"""First letters of the names in the recycle bin."""


def capture_filter(
    include_tables: Sequence[str], exclude_tables: Sequence[str] = (), signal_table: str | None = None
) -> Callable[[TableId], bool]:
    """Whether a table is captured: regular expressions over the whole ``SCHEMA.TABLE``, in the case that Oracle has.

    Oracle's own schemas and the recycle bin never are.
    """
    include = [re.compile(pattern) for pattern in include_tables]
    exclude = [re.compile(pattern) for pattern in exclude_tables]
    known: dict[TableId, bool] = {}

    def is_captured(table_id: TableId) -> bool:
        if table_id not in known:
            name = str(table_id)
            known[table_id] = (
                table_id.database not in SYSTEM_SCHEMAS
                and not table_id.table.startswith(_DROPPED)
                and (name == signal_table or any(pattern.fullmatch(name) for pattern in include))
                and not any(pattern.fullmatch(name) for pattern in exclude)
            )
        return known[table_id]

    return is_captured
