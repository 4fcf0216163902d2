"""Tables' definitions asked of an Oracle database, each known to be that of one SCN.

The dictionary's views cannot be read AS OF an SCN. So a definition counts as that of an SCN only where no statement has changed
the table between the first question and that SCN: LAST_DDL_TIME, of a second's resolution, is asked before and after.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from libs.errors import SourceUnavailable
from libs.oracle.dictionary import DictionaryTable, TableObjects, facts_of, objects_of, questions, tables_of
from libs.oracle.table_schema import table_schema
from libs.source.oracle.client import Connection, query
from libs.types.table import TableId, TableSchema

log = structlog.get_logger()

_MOMENT: Final = "SELECT CURRENT_SCN, SYSDATE FROM V$DATABASE"
_CHARSETS: Final = "SELECT PARAMETER, VALUE FROM NLS_DATABASE_PARAMETERS WHERE PARAMETER LIKE '%CHARACTERSET'"
_SETTLED: Final = timedelta(seconds=2)
"""A statement of the second before may not show in LAST_DDL_TIME, whose clock is cut to seconds."""
_TRIES: Final = 40
_PAUSE_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Definitions:
    """Definitions of tables, all as of one SCN."""

    scn: int
    taken_at_us: int
    tables: Sequence[DictionaryTable]
    """By name."""
    charset: str
    national_charset: str

    def schema(self, found: DictionaryTable) -> TableSchema:
        """One of ``tables`` as the history keeps it, in the default handling modes."""
        return table_schema(
            found.table, found.objects.object_ids, charset=self.charset, national_charset=self.national_charset
        )


def read_definitions(
    connection: Connection, is_wanted: Callable[[TableId], bool], table: TableId | None = None
) -> Definitions:
    """The definitions of every wanted table, or of ``table`` alone. Blocks; it waits while statements change them.

    Raises:
        SourceUnavailable: connection lost, or the tables do not come to rest; try again.
        AccessDenied: the dictionary is not to be read; the message has the grant.
    """
    charset, national_charset = _charsets(connection)
    for _ in range(_TRIES):
        _, asked_at = _moment(connection)
        found = _asked(connection, is_wanted, table)
        scn, _ = _moment(connection)
        changed = _changed_since(connection, found, table, asked_at)
        if not changed:
            return Definitions(scn, time.time_ns() // 1_000, found, charset, national_charset)
        log.info("definitions_changed_meanwhile", tables=[str(each) for each in changed])
        time.sleep(_PAUSE_S)
    raise SourceUnavailable(
        f"statements went on changing {', '.join(map(str, changed))} while their definitions were read"
    )


def read_objects(connection: Connection, table_id: TableId) -> TableObjects | None:
    """A table's numbers and times now; None: there is none of this name. Blocks. Raises as ``read_definitions``."""
    asked = questions(table_id)
    return objects_of(query(connection, asked.objects, asked.binds)).get(table_id)


def _asked(
    connection: Connection, is_wanted: Callable[[TableId], bool], table: TableId | None
) -> list[DictionaryTable]:
    asked = questions(table)
    return tables_of(
        objects_of(query(connection, asked.objects, asked.binds)),
        facts_of(query(connection, asked.tables, asked.binds)),
        query(connection, asked.columns, asked.binds),
        query(connection, asked.keys, asked.binds),
        is_wanted=is_wanted,
    )


def _changed_since(
    connection: Connection, found: Sequence[DictionaryTable], table: TableId | None, asked_at: datetime
) -> list[TableId]:
    """Tables whose definition may be another one by now, or by ``asked_at`` was younger than a clock of seconds shows."""
    asked = questions(table)
    now = objects_of(query(connection, asked.objects, asked.binds))
    return [
        each.table.table
        for each in found
        if now.get(each.table.table) != each.objects or each.objects.last_ddl_at > asked_at - _SETTLED
    ]


def _moment(connection: Connection) -> tuple[int, datetime]:
    [(scn, at)] = query(connection, _MOMENT)
    assert isinstance(at, datetime)
    return int(scn), at


def _charsets(connection: Connection) -> tuple[str, str]:
    found: dict[str, Any] = dict(query(connection, _CHARSETS))
    return str(found["NLS_CHARACTERSET"]), str(found["NLS_NCHAR_CHARACTERSET"])
