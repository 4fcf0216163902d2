"""Pre-flight of an Oracle database, judged by its views: each fault with the statement that mends it.

(Oracle Database Utilities, "Using LogMiner to Analyze Redo Log Files"; Database Reference, "V$DATABASE", "DBA_LOG_GROUPS";
Database Administrator's Guide, "Managing Archived Redo Log Files".)
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from libs.oracle.ddl_text import quote_table
from libs.oracle.dictionary import DictionaryTable
from libs.types.table import TableId

LEAST_RELEASE: Final = (12, 1)
_MOST_NAME_BYTES: Final = 30
"""LogMiner reads no table or column with a longer name."""
_PRIMARY: Final = "PRIMARY"
_ARCHIVES: Final = "ARCHIVELOG"
_ON: Final = ("YES", "IMPLICIT")
LEAST_UNDO_S: Final = 900

REQUIRED_VIEWS: Final = (
    "V$DATABASE", "V$THREAD", "V$LOG", "V$LOGFILE", "V$ARCHIVED_LOG", "V$ARCHIVE_DEST_STATUS", "V$DATABASE_INCARNATION",
    "V$LOGMNR_LOGS", "GV$TRANSACTION", "DBA_OBJECTS", "DBA_TABLES", "DBA_TAB_COLS", "DBA_CONSTRAINTS", "DBA_CONS_COLUMNS",
    "DBA_EXTENTS", "DBA_LOG_GROUPS", "NLS_DATABASE_PARAMETERS", "V$INSTANCE",
)  # fmt: skip
"""Views that the reader and its pre-flight ask."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that stands against following the database, or that may be regretted."""

    what: str
    mend: str
    """A statement to run at the server, or else the step."""


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """All faults, and all warnings."""

    faults: tuple[Finding, ...]
    warnings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """V$DATABASE and V$INSTANCE."""

    release: str
    """``19.26.0.0.0``."""
    log_mode: str
    role: str
    supplemental_min: str
    supplemental_all: str
    force_logging: str
    undo_retention_s: int | None = None
    """V$UNDOSTAT.TUNED_UNDORETENTION, the least of late; None: there are no figures."""


def database_faults(state: DatabaseState) -> Iterator[Finding]:
    """Faults of the whole database."""
    release = tuple(int(part) for part in state.release.split(".")[:2])
    if release < LEAST_RELEASE:
        yield Finding(
            f"Oracle {state.release} is older than 12.1", "upgrade the database: the driver cannot talk to it"
        )
    if state.role != _PRIMARY:
        yield Finding(
            f"the database is a {state.role}, which writes no redo of its own", "name the primary in database.host"
        )
    if state.log_mode != _ARCHIVES:
        yield Finding(
            f"LOG_MODE is {state.log_mode}: a log is lost when its group is written again",
            "SHUTDOWN IMMEDIATE; STARTUP MOUNT; ALTER DATABASE ARCHIVELOG; ALTER DATABASE OPEN;  (RDS: exec "
            "rdsadmin.rdsadmin_util.set_configuration('archivelog retention hours',24);)",
        )
    if state.supplemental_min not in _ON:
        yield Finding(
            "minimal supplemental logging is off: changes in the log do not say which rows they are of",
            "ALTER DATABASE ADD SUPPLEMENTAL LOG DATA;  (RDS: exec rdsadmin.rdsadmin_util.alter_supplemental_logging('ADD');)",
        )


def database_warnings(state: DatabaseState) -> Iterator[Finding]:
    """What may be regretted."""
    if state.force_logging not in ("YES", *_ON):
        yield Finding(
            "FORCE LOGGING is off: rows of a NOLOGGING table that are loaded by direct path are in no log",
            "ALTER DATABASE FORCE LOGGING;",
        )
    if state.undo_retention_s is not None and state.undo_retention_s < LEAST_UNDO_S:
        yield Finding(
            f"undo is kept for {state.undo_retention_s} s: a copy that takes longer goes on as incremental snapshots",
            f"ALTER SYSTEM SET UNDO_RETENTION={LEAST_UNDO_S};",
        )


def table_faults(
    tables: Sequence[DictionaryTable], logged: Collection[TableId], state: DatabaseState
) -> Iterator[Finding]:
    """Faults of captured tables. ``logged``: tables whose updates log all columns."""
    for each in tables:
        table_id = each.table.table
        if each.facts.is_temporary:
            continue
        if each.refusal:
            yield Finding(f"{table_id}: {each.refusal}", f"add {table_id} to exclude_tables")
        long_names = [
            name
            for name in (table_id.table, *(column.name for column in each.table.logged))
            if len(name.encode()) > _MOST_NAME_BYTES
        ]
        if long_names:
            yield Finding(
                f"{table_id}: LogMiner reads no name of more than {_MOST_NAME_BYTES} bytes ({', '.join(long_names)})",
                f"rename it, or add {table_id} to exclude_tables",
            )
        if state.supplemental_all != "YES" and table_id not in logged:
            yield Finding(
                f"{table_id}: an UPDATE logs the columns alone that it changes",
                f"ALTER TABLE {quote_table(table_id)} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS;",
            )


def grant_fault(view: str, user: str, reason: str) -> Finding:
    """A view that the user may not read."""
    name = view.replace("V$", "V_$")
    return Finding(f"{user} may not read {view} ({reason})", f"GRANT SELECT ON SYS.{name} TO {user};")


def log_miner_fault(user: str, reason: str) -> Finding:
    """LogMiner cannot be called."""
    return Finding(
        f"{user} may not call LogMiner ({reason})",
        f"GRANT LOGMINING TO {user}; GRANT EXECUTE_CATALOG_ROLE TO {user}; GRANT EXECUTE ON SYS.DBMS_LOGMNR TO {user};",
    )


def flashback_fault(table_id: TableId, user: str, reason: str) -> Finding:
    """A table's rows AS OF an SCN are not to be read."""
    name = quote_table(table_id)
    return Finding(
        f"{user} may not read {table_id} AS OF an SCN ({reason})",
        f"GRANT SELECT ON {name} TO {user}; GRANT FLASHBACK ON {name} TO {user};",
    )
