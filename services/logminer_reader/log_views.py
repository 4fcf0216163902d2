"""The views that say how far the redo is written, and where its logs are."""

from datetime import timedelta
from typing import Any, Final, NamedTuple

from libs.errors import PipelineHalted, PositionPurged
from libs.oracle.incarnations import DatabaseIncarnation, NoAncestor, incarnation_after
from libs.oracle.log_position import LogminerPosition
from libs.oracle.redo_logs import ArchivedLog, LogChoice, LogMember, LogViews, OnlineLog, RedoThread, logs_of_ended
from libs.source.oracle.client import Connection, query

_THREADS: Final = (
    'SELECT "THREAD#", STATUS, ENABLED, "LAST_REDO_CHANGE#", "CHECKPOINT_CHANGE#", "ENABLE_CHANGE#", "DISABLE_CHANGE#"'
    " FROM V$THREAD"
)
_ONLINE: Final = 'SELECT "GROUP#", "THREAD#", "SEQUENCE#", STATUS, "FIRST_CHANGE#", "NEXT_CHANGE#", BYTES FROM V$LOG'
_MEMBERS: Final = "SELECT \"GROUP#\", MEMBER, STATUS FROM V$LOGFILE WHERE TYPE = 'ONLINE'"
_ARCHIVED: Final = (
    'SELECT A."THREAD#", A."SEQUENCE#", A.RESETLOGS_ID, A.NAME, A.DEST_ID, A.STANDBY_DEST, A.STATUS, A.DELETED,'
    ' A."FIRST_CHANGE#", A."NEXT_CHANGE#", A.BLOCKS * A.BLOCK_SIZE, D.STATUS, D.TYPE'
    " FROM V$ARCHIVED_LOG A LEFT JOIN V$ARCHIVE_DEST_STATUS D ON D.DEST_ID = A.DEST_ID"
    " WHERE A.RESETLOGS_ID = :1"
)
_INCARNATION: Final = (
    'SELECT D.DBID, I."RESETLOGS_CHANGE#", I.RESETLOGS_ID, D."CURRENT_SCN" FROM V$DATABASE D,'
    " V$DATABASE_INCARNATION I WHERE I.STATUS = 'CURRENT'"
)
_INCARNATIONS: Final = (
    'SELECT "INCARNATION#", "PRIOR_INCARNATION#", "RESETLOGS_CHANGE#", RESETLOGS_ID, STATUS FROM V$DATABASE_INCARNATION'
)
_OFFSET: Final = "SELECT TO_CHAR(SYSTIMESTAMP, 'TZH:TZM') FROM DUAL"


class Incarnation(NamedTuple):
    """Which database it is, and since which RESETLOGS."""

    dbid: int
    resetlogs_change: int
    resetlogs_id: int
    current_scn: int


def incarnation(connection: Connection) -> Incarnation:
    """Of the database as it is open now. Raises as ``query``; PipelineHalted: the view names none."""
    rows = query(connection, _INCARNATION)
    if len(rows) != 1:
        raise PipelineHalted(
            f"V$DATABASE_INCARNATION has {len(rows)} incarnations that are CURRENT, not 1: is it open?"
        )
    return Incarnation(*rows[0])


def next_incarnation(connection: Connection, position: LogminerPosition) -> DatabaseIncarnation | None:
    """The incarnation whose redo follows that of the position; None: the database is still the same one.

    Raises:
        PositionPurged: changes that were read are no part of the database any more.
        PipelineHalted: another database answers. Else as ``query``.
    """
    found = incarnation(connection)
    if found.dbid != position.dbid:
        raise PipelineHalted(
            f"the database has DBID {found.dbid}, and the source was read from DBID {position.dbid}: check the address, or "
            "re-snapshot the source"
        )
    if found.resetlogs_id == position.resetlogs_id:
        return None
    try:
        after = incarnation_after(_incarnations(connection), position.resetlogs_id)
    except NoAncestor as error:
        raise PositionPurged(
            f"the source was read from the incarnation of RESETLOGS_ID {position.resetlogs_id}, and the database does not come "
            f"from it ({error}): re-snapshot the source (snapshot.mode when_needed does)"
        ) from error
    if after is not None and (position.done_scn, position.done_commits) > (after.resetlogs_change, 0):
        raise PositionPurged(
            f"the database was opened with RESETLOGS at SCN {after.resetlogs_change}, and it was read up to SCN "
            f"{position.done_scn - (not position.done_commits)}: changes from there on may be delivered, and "
            "are no part of the database: re-snapshot the source (snapshot.mode when_needed does)"
        )
    return after


def _incarnations(connection: Connection) -> list[DatabaseIncarnation]:
    return [
        DatabaseIncarnation(number, prior_number, resetlogs_change, resetlogs_id, status == "CURRENT")
        for number, prior_number, resetlogs_change, resetlogs_id, status in query(connection, _INCARNATIONS)
    ]


def server_offset(connection: Connection) -> timedelta:
    """The server's clock, less UTC: V$LOGMNR_CONTENTS.TIMESTAMP is of that clock. Raises as ``query``."""
    text = str(query(connection, _OFFSET)[0][0])
    hours, _, minutes = text.removeprefix("-").removeprefix("+").partition(":")
    offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
    return -offset if text.startswith("-") else offset


def read_log_views(
    connection: Connection, resetlogs_id: int, *, with_archived: bool, ends_before: int | None = None
) -> LogViews:
    """The views' rows of one incarnation. V$ARCHIVED_LOG may have thousands, and is read only where it is needed.

    ``ends_before``: the first SCN of the next incarnation; None: it is the current one. Raises as ``query``.
    """
    if ends_before is not None:
        rows = query(connection, _ARCHIVED, [resetlogs_id])
        return logs_of_ended(resetlogs_id, [_archived(row) for row in rows], ends_before)
    archived = query(connection, _ARCHIVED, [resetlogs_id]) if with_archived else []
    return LogViews(
        resetlogs_id=resetlogs_id,
        threads=[
            RedoThread(number, status == "OPEN", enabled != "DISABLED", *scns)
            for number, status, enabled, *scns in query(connection, _THREADS)
        ],
        online=[OnlineLog(*row) for row in query(connection, _ONLINE)],
        members=[LogMember(*row) for row in query(connection, _MEMBERS)],
        archived=[_archived(row) for row in archived],
    )


def need_archived(views: LogViews, start: int, choice: LogChoice) -> bool:
    """Whether the online logs alone lack redo of after ``start``."""
    closed = [thread for thread in views.threads if not thread.is_open]
    return bool(choice.missing) or any(max(each.checkpoint_scn, each.disable_scn) > start for each in closed)


def _archived(row: tuple[Any, ...]) -> ArchivedLog:
    thread, sequence, resetlogs_id, path, destination, standby, status, deleted, first, following, size, state, kind = (
        row
    )
    return ArchivedLog(
        thread=thread,
        sequence=sequence,
        resetlogs_id=resetlogs_id,
        path=path,
        destination=destination,
        is_local=standby == "NO" and state in (None, "VALID") and kind in (None, "LOCAL"),
        is_available=status == "A" and deleted == "NO",
        first_scn=first,
        next_scn=following,
        bytes=size,
    )
