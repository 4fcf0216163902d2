"""ClickHouse's errors about one table."""

import contextlib
from collections.abc import Iterator
from typing import Final

from libs.clickhouse.connection import NEEDED, RIGHTS, Failure, code_of, named_error
from libs.types.warehouse import WarehouseTable
from spark.sinks.clickhouse.settings import Settings
from spark.sinks.port import TableRefused

# ClickHouse's source, src/Common/ErrorCodes.cpp.
_RENAMED: Final = "somebody dropped or renamed one of its columns; put that back"
_GONE: Final = (
    "the table is gone; restart the job, which makes it again, or write the tenant's tables again "
    "(docs/sinks/repair.md, 'Write tables again')"
)
_CHANGED: Final = (
    "somebody changed its engine, key or columns; set that back, or write the tenant's tables again "
    "(docs/sinks/repair.md, 'Write tables again')"
)
_REFUSALS: Final = {
    10: _RENAMED,
    16: _RENAMED,
    47: _RENAMED,
    48: _CHANGED,
    57: "a table of that name is there already; rename that, or choose another name",
    60: _GONE,
    81: _GONE,
    122: _CHANGED,
    218: _GONE,
    248: "somebody created it again with partitions; a batch is attached to a table's only one",
    359: "the server lets nobody drop as much at once; raise its max_table_size_to_drop and max_partition_size_to_drop",
    469: "a row breaks a CONSTRAINT that somebody put on the table; drop that",
    524: "somebody uses one of its columns in an index, a projection or a key, so that ClickHouse does not change it; drop "
    "that",
    774: "somebody made it read-only; set table_readonly back, or the disk that it lies on",
}
"""Each is about one table alone, and is found before a statement has done anything: the rows of a
batch that was attached, and is reported as refused, would come into a log of changes once more."""


@contextlib.contextmanager
def errors_named(settings: Settings, subject: WarehouseTable | str) -> Iterator[None]:
    """Raise what the driver raises within the block as ours; its text, which may quote a row, is not handed on.

    ``subject``: the table that the block is about; else, by any name, a thing that all tables need.

    Raises:
        TableRefused: ClickHouse lastingly refuses the block's statements on that table alone.
        TransientError, AccessDenied, DiskFull, PipelineHalted: see ``libs.errors``.
    """
    try:
        yield
    except Failure as error:
        refused = _refusal(settings, subject, error) if isinstance(subject, WarehouseTable) else None
        raise refused or named_error(settings, str(subject), error) from error


def _refusal(settings: Settings, table: WarehouseTable, error: Failure) -> TableRefused | None:
    """None: the error is of the server, of the connection, or may get over by itself."""
    code = code_of(error)
    if code == RIGHTS:
        return TableRefused(
            f"{table}: ClickHouse {settings.host}:{settings.port} refuses user {settings.user} what the table needs; GRANT it "
            f"{NEEDED} on the table's database"
        )
    because = None if code is None else _REFUSALS.get(code)
    return None if because is None else TableRefused(f"{table}: {because}")
