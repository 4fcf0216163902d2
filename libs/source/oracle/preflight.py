"""The pre-flight of an Oracle source: everything that it must offer, asked before anything is read. Nothing is written.

A privilege is tried by its use, because roles, ANY privileges and grants by object all give it.
"""

from collections.abc import Iterator
from typing import Final

import structlog

from libs.errors import AccessDenied, HeadwaterError, PipelineHalted, SourceMisconfigured, SourceUnavailable
from libs.oracle.ddl_text import quote_table
from libs.oracle.preflight import (
    REQUIRED_VIEWS,
    DatabaseState,
    Finding,
    PreflightReport,
    database_faults,
    database_warnings,
    flashback_fault,
    grant_fault,
    log_miner_fault,
    table_faults,
)
from libs.source.oracle.capture import capture_filter
from libs.source.oracle.client import Connection, call, connect, connect_to_tables, hang_up, oracle_error_code, query
from libs.source.oracle.definitions import read_definitions
from libs.source.oracle.settings import OracleSourceSettings
from libs.types.table import TableId

log = structlog.get_logger()

_STATE: Final = (
    "SELECT I.VERSION, D.LOG_MODE, D.DATABASE_ROLE, D.SUPPLEMENTAL_LOG_DATA_MIN, D.SUPPLEMENTAL_LOG_DATA_ALL, D.FORCE_LOGGING "
    "FROM V$DATABASE D, V$INSTANCE I"
)
_UNDO: Final = "SELECT MIN(TUNED_UNDORETENTION) FROM V$UNDOSTAT"
_LOGGED: Final = "SELECT OWNER, TABLE_NAME FROM DBA_LOG_GROUPS WHERE LOG_GROUP_TYPE = 'ALL COLUMN LOGGING'"
_END_LOG_MINER: Final = "BEGIN DBMS_LOGMNR.END_LOGMNR; END;"
_NOTHING_CAPTURED: Final = Finding(
    "include_tables matches no table", "correct the patterns: they match SCHEMA.TABLE in the case that Oracle has"
)
_NO_SESSION: Final = 1307
"""ORA-01307: LogMiner has no session to end, so it may be called."""


def check_source(settings: OracleSourceSettings) -> PreflightReport:
    """Every fault and every warning. Blocks.

    Raises:
        SourceUnavailable: no connection; try again.
        AccessDenied: user or password are wrong.
        PipelineHalted: the driver cannot talk to this server.
    """
    mining = connect(settings.database)
    try:
        missing = [*_view_faults(mining, settings.database.user), *_log_miner_faults(mining, settings.database.user)]
        if missing:
            return PreflightReport(tuple(missing))
        state = _state(mining)
    finally:
        hang_up(mining)
    tables = connect_to_tables(settings.database)
    try:
        found = read_definitions(
            tables, capture_filter(settings.include_tables, settings.exclude_tables, settings.signal_table)
        )
        logged = {TableId(database=owner, table=name) for owner, name in query(tables, _LOGGED)}
        faults = [*database_faults(state), *table_faults(found.tables, logged, state)]
        sound = [each.table.table for each in found.tables if not each.refusal]
        faults += _flashback_faults(tables, settings.database.user, found.scn, sound)
    finally:
        hang_up(tables)
    nothing = [_NOTHING_CAPTURED] if not found.tables else []
    return PreflightReport(tuple(faults), (*database_warnings(state), *nothing))


def require_sound_source(settings: OracleSourceSettings) -> None:
    """The pre-flight, before anything is read. Blocks.

    Raises:
        SourceMisconfigured: every fault with its mend.
        SourceUnavailable, AccessDenied, PipelineHalted: as ``check_source``.
    """
    report = check_source(settings)
    for warning in report.warnings:
        log.warning("source_preflight_warned", fault=warning.what, mend=warning.mend)
    if report.faults:
        listed = "\n".join(f"  - {fault.what}; mend: {fault.mend}" for fault in report.faults)
        where = f"{settings.database.host}:{settings.database.port}"
        raise SourceMisconfigured(f"Oracle at {where} cannot be followed, {len(report.faults)} fault(s):\n{listed}")


def _state(connection: Connection) -> DatabaseState:
    [(release, log_mode, role, least, every, force)] = query(connection, _STATE)
    try:
        [(undo,)] = query(connection, _UNDO)
    except (AccessDenied, PipelineHalted):
        undo = None  # the reader itself needs no figures
    return DatabaseState(release, log_mode, role, least, every, force, None if undo is None else int(undo))


def _view_faults(connection: Connection, user: str) -> Iterator[Finding]:
    for view in REQUIRED_VIEWS:
        try:
            query(connection, f"SELECT COUNT(*) FROM {view} WHERE 1 = 0")
        except HeadwaterError as error:
            if oracle_error_code(error) is None:
                raise
            yield grant_fault(view, user, f"ORA-{oracle_error_code(error):05}")


def _log_miner_faults(connection: Connection, user: str) -> Iterator[Finding]:
    try:
        call(connection, _END_LOG_MINER)
    except HeadwaterError as error:
        code = oracle_error_code(error)
        if code is None:
            raise
        if code != _NO_SESSION:
            yield log_miner_fault(user, f"ORA-{code:05}")


def _flashback_faults(connection: Connection, user: str, scn: int, tables: list[TableId]) -> Iterator[Finding]:
    for table_id in tables:
        try:
            query(connection, f"SELECT COUNT(*) FROM {quote_table(table_id)} AS OF SCN {scn} WHERE 1 = 0")
        except (AccessDenied, PipelineHalted, SourceUnavailable) as error:
            code = oracle_error_code(error)
            if code is None:
                raise
            yield flashback_fault(table_id, user, f"ORA-{code:05}")
