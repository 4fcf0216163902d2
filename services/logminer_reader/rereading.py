"""Rows read again at the source, AS OF the SCN of a commit, for values that the log lacks.

One connection of its own reads, and pauses as long as each query took, so that it takes at most half of one core of the server.
Everything here blocks.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from libs.errors import HeadwaterError
from libs.oracle.error_codes import Treatment, treatment_of
from libs.oracle.snapshot_query import MOST_ROW_IDS, rows_select
from libs.source.oracle import client
from libs.source.oracle.client import Connection, connect_to_tables, fetch, oracle_error_code
from libs.source.oracle.settings import OracleDatabaseSettings
from libs.telemetry import metrics
from libs.types.table import TableSchema
from services.logminer_reader.copied_cells import cell_writer
from services.logminer_reader.lacking_values import SourceRows
from services.logminer_reader.position import SOURCE_PARTITION

log = structlog.get_logger()

_FIRST_ROWS: Final = 50
_AIM_BYTES: Final = 8 << 20
"""One query's values: a table of large documents is asked for fewer rows at once."""
_FETCHED_ROWS: Final = 50
_MOST_PAUSE_S: Final = 5.0
_NO_SUCH_COLUMN: Final = 904
_UNDO_GONE: Final = (
    "the source's undo of SCN {} is gone ({}): raise UNDO_RETENTION, and RETENTION of the column's LOB; name a "
    "values.unavailable_placeholder, or snapshot the table again"
)
_CHANGED: Final = (
    "the source cannot read the row as of SCN {} ({}): its table has another definition since; name a "
    "values.unavailable_placeholder, or snapshot the table again"
)


class SourceReader:
    """Reads on one connection, one call at a time."""

    def __init__(
        self, source: str, database: OracleDatabaseSettings, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._source = source
        self._database = database
        self._sleep = sleep
        self._connection: Connection | None = None
        self.batch_rows = _FIRST_ROWS
        """So many are to be asked for at once."""

    def close(self) -> None:
        """Close the connection. No thread uses it."""
        if self._connection is not None:
            client.hang_up(self._connection)
            self._connection = None

    def interrupt(self) -> None:
        """End the call that another thread is in; it raises SourceUnavailable."""
        if self._connection is not None:
            client.interrupt(self._connection)

    def rows(self, schema: TableSchema, columns: Sequence[str], scn: int, row_ids: Sequence[str]) -> SourceRows:
        """See ``lacking_values.Rereading``."""
        found: dict[str, dict[str, bytes]] = {}
        lost: dict[str, str] = {}
        left = [list(row_ids[first : first + MOST_ROW_IDS]) for first in range(0, len(row_ids), MOST_ROW_IDS)]
        while left:
            part = left.pop()
            try:
                self._read(schema, columns, scn, part, found)
            except HeadwaterError as error:
                why = _reason(error, scn)
                if why is None:
                    self.close()
                    raise
                treatment, reason = why
                if treatment is Treatment.UNDO_GONE and len(part) > 1:  # maybe of one row's document alone
                    half = len(part) // 2
                    left += [part[:half], part[half:]]
                    continue
                log.warning(
                    "row_not_read_again", table=str(schema.table_id), scn=scn, rows=len(part), reason=str(error)
                )
                self._count(treatment.value, len(part))
                lost.update(dict.fromkeys(part, reason))
        self._count("read", len(found))
        self._count("gone", len(row_ids) - len(found) - len(lost))
        return SourceRows(found, lost)

    def _read(
        self,
        schema: TableSchema,
        columns: Sequence[str],
        scn: int,
        row_ids: Sequence[str],
        found: dict[str, dict[str, bytes]],
    ) -> None:
        began_s = time.monotonic()
        if self._connection is None:
            self._connection = connect_to_tables(self._database)
        writers = [(name, cell_writer(schema.column(name))) for name in columns]
        select = rows_select(schema, scn, columns, row_ids)
        size_bytes = rows = 0
        for fetched in fetch(self._connection, select.sql, select.binds, rows=_FETCHED_ROWS):
            for row_id, *values in fetched:
                cells = {name: write(value) for (name, write), value in zip(writers, values, strict=True)}
                size_bytes += sum(map(len, cells.values()))
                found[str(row_id)] = cells
                rows += 1
        if rows:
            self.batch_rows = min(max(_AIM_BYTES * rows // max(size_bytes, 1), 1), 2 * self.batch_rows, MOST_ROW_IDS)
        self._sleep(min(time.monotonic() - began_s, _MOST_PAUSE_S))

    def _count(self, outcome: str, rows: int) -> None:
        if rows > 0:
            metrics.ORACLE_REREADS.labels(self._source, SOURCE_PARTITION, outcome).inc(rows)


def _reason(error: HeadwaterError, scn: int) -> tuple[Treatment, str] | None:
    """Why a row is not to be had, with the remedy; None: the error is of the world."""
    code = oracle_error_code(error)
    treatment = Treatment.DEFINITION_CHANGED if code == _NO_SUCH_COLUMN else treatment_of(code)
    if treatment is Treatment.UNDO_GONE:
        return treatment, _UNDO_GONE.format(scn, f"ORA-{code:05}")
    if treatment in (Treatment.DEFINITION_CHANGED, Treatment.OTHER_INCARNATION):
        return treatment, _CHANGED.format(scn, f"ORA-{code:05}")
    return None
