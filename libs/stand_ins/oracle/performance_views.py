"""V$ and GV$: views of the instance and of its logs. (Oracle Database Reference, "Dynamic Performance Views".)"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final, Protocol

from libs.stand_ins.oracle.logminer import LogMiner
from libs.stand_ins.oracle.logs import Log, RedoThread
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.sql import Table
from libs.stand_ins.oracle.views import made, with_first

LOG_BYTES: Final = 200 << 20
_OPEN_END: Final = 9_295_429_630_892_703_743
"""NEXT_CHANGE# of the log that is written."""
DBID: Final = 2_007_947_551
_STATISTICS: Final = ("session uga memory", "session uga memory max", "session pga memory", "session pga memory max")


class Viewer(Protocol):
    """The session that looks."""

    model: Model
    user: str
    log_miner: LogMiner


def view(name: str, session: Viewer) -> Table | None:
    """None: there is none of this name. GV$ has one instance's rows, and its number."""
    plain = name.replace("V_$", "V$")
    found = _VIEWS.get(plain.removeprefix("G") if plain.startswith("GV$") else plain)
    if found is None:
        return None
    with session.model.lock:
        table = found(session)
    return with_first(table, "INST_ID", "n", 1) if plain.startswith("GV$") else table


def _database(session: Viewer) -> Table:
    model = session.model
    last = model.incarnations[-1]
    begun = model.now - timedelta(days=1)
    return made(
        "DBID:n NAME:t DB_UNIQUE_NAME:t CREATED:d RESETLOGS_CHANGE#:n RESETLOGS_TIME:d PRIOR_RESETLOGS_CHANGE#:n LOG_MODE:t"
        " CHECKPOINT_CHANGE#:n ARCHIVE_CHANGE#:n OPEN_MODE:t DATABASE_ROLE:t CURRENT_SCN:n FORCE_LOGGING:t CDB:t CON_ID:n"
        " SUPPLEMENTAL_LOG_DATA_MIN:t SUPPLEMENTAL_LOG_DATA_PK:t SUPPLEMENTAL_LOG_DATA_UI:t SUPPLEMENTAL_LOG_DATA_ALL:t"
        " PLATFORM_NAME:t FLASHBACK_ON:t LAST_OPEN_INCARNATION#:n SWITCHOVER_STATUS:t",
        [
            (
                *(DBID, "ORCLCDB", "ORCLCDB", begun, last.resetlogs_scn, last.time, last.prior_scn, "ARCHIVELOG"),
                *(1, 1, "READ WRITE", "PRIMARY", model.scn, "NO", "NO" if model.pdb is None else "YES", 0),
                *("YES", "NO", "NO", "NO"),
                *("Linux x86 64-bit", "NO", last.number, "NOT ALLOWED"),
            )
        ],
    )


def _thread(session: Viewer) -> Table:
    model = session.model
    return made(
        "THREAD#:n STATUS:t ENABLED:t GROUPS:n INSTANCE:t OPEN_TIME:d CURRENT_GROUP#:n SEQUENCE#:n CHECKPOINT_CHANGE#:n"
        " CHECKPOINT_TIME:d ENABLE_CHANGE#:n ENABLE_TIME:d DISABLE_CHANGE#:n DISABLE_TIME:d LAST_REDO_SEQUENCE#:n"
        " LAST_REDO_BLOCK:n LAST_REDO_CHANGE#:n LAST_REDO_TIME:d CON_ID:n",
        [
            (
                each.number,
                "OPEN" if each.is_open else "CLOSED",
                "DISABLED" if each.disabled_scn else "PUBLIC",
                each.groups,
                f"ORCLCDB{each.number}",
                model.now,
                each.current.group,
                each.current.sequence,
                each.checkpoint_scn,
                model.now,
                each.enabled_scn,
                model.now,
                each.disabled_scn,
                None,
                each.current.sequence,
                1,
                model.scn + 1 if each.is_open else each.checkpoint_scn,
                model.now,
                0,
            )
            for each in model.threads
        ],
    )


def _online(model: Model) -> list[tuple[RedoThread, Log]]:
    return [(thread, log) for thread in model.threads for log in thread.logs if not log.is_overwritten]


def _log(session: Viewer) -> Table:
    now = session.model.now
    return made(
        "GROUP#:n THREAD#:n SEQUENCE#:n BYTES:n BLOCKSIZE:n MEMBERS:n ARCHIVED:t STATUS:t FIRST_CHANGE#:n FIRST_TIME:d"
        " NEXT_CHANGE#:n NEXT_TIME:d CON_ID:n",
        [
            (
                log.group,
                log.thread,
                log.sequence,
                LOG_BYTES,
                512,
                thread.members,
                "YES" if log.is_archived else "NO",
                "CURRENT" if log.next_scn is None else "INACTIVE" if log.is_archived else "ACTIVE",
                log.first_scn,
                now,
                log.next_scn or _OPEN_END,
                None if log.next_scn is None else now,
                0,
            )
            for thread, log in _online(session.model)
        ],
    )


def _logfile(session: Viewer) -> Table:
    return made(
        "GROUP#:n STATUS:t TYPE:t MEMBER:t IS_RECOVERY_DEST_FILE:t CON_ID:n",
        [
            (log.group, "INVALID" if path in thread.invalid else None, "ONLINE", path, "NO", 0)
            for thread, log in _online(session.model)
            for path in (log.path(member) for member in range(1, thread.members + 1))
        ],
    )


def _archived_log(session: Viewer) -> Table:
    now = session.model.now
    return made(
        "RECID:n STAMP:n NAME:t DEST_ID:n THREAD#:n SEQUENCE#:n RESETLOGS_CHANGE#:n RESETLOGS_TIME:d RESETLOGS_ID:n"
        " FIRST_CHANGE#:n FIRST_TIME:d NEXT_CHANGE#:n NEXT_TIME:d BLOCKS:n BLOCK_SIZE:n CREATOR:t STANDBY_DEST:t ARCHIVED:t"
        " APPLIED:t DELETED:t STATUS:t COMPLETION_TIME:d DICTIONARY_BEGIN:t DICTIONARY_END:t CON_ID:n",
        [
            (
                log.sequence,
                log.sequence,
                None if place in log.deleted_from else log.archived_path(place),
                place,
                log.thread,
                log.sequence,
                log.incarnation.resetlogs_scn,
                log.incarnation.time,
                log.incarnation.resetlogs_id,
                log.first_scn,
                now,
                log.next_scn,
                now,
                LOG_BYTES // 512,
                512,
                "ARCH",
                "NO",
                "YES",
                "NO",
                "YES" if place in log.deleted_from else "NO",
                "D" if place in log.deleted_from else "A",
                now,
                "NO",
                "NO",
                0,
            )
            for thread in session.model.threads
            for log in thread.logs
            if log.is_archived
            for place in range(1, thread.destinations + 1)
        ],
    )


def _incarnation(session: Viewer) -> Table:
    model = session.model
    return made(
        "INCARNATION#:n RESETLOGS_CHANGE#:n RESETLOGS_TIME:d PRIOR_RESETLOGS_CHANGE#:n STATUS:t RESETLOGS_ID:n"
        " PRIOR_INCARNATION#:n CON_ID:n",
        [
            (
                each.number,
                each.resetlogs_scn,
                each.time,
                each.prior_scn,
                "CURRENT" if each is model.incarnations[-1] else "PARENT",
                each.resetlogs_id,
                each.number - 1,
                0,
            )
            for each in model.incarnations
        ],
    )


def _transaction(session: Viewer) -> Table:
    return made(
        "ADDR:r XIDUSN:n XIDSLOT:n XIDSQN:n STATUS:t START_TIME:t START_SCN:n START_SCNB:n START_SCNW:n XID:r START_DATE:d"
        " CON_ID:n",
        [
            (
                each.xid,
                int.from_bytes(each.xid[:2], "little"),
                int.from_bytes(each.xid[2:4], "little"),
                int.from_bytes(each.xid[4:], "little"),
                "ACTIVE",
                f"{session.model.now:%m/%d/%y %H:%M:%S}",
                each.start_scn,
                each.start_scn,
                0,
                each.xid,
                session.model.now,
                0,
            )
            for each in session.model.open.values()
        ],
    )


def _logmnr_logs(session: Viewer) -> Table:
    return made(
        "LOG_ID:n FILENAME:t LOW_TIME:d HIGH_TIME:d DB_ID:n DB_NAME:t RESET_SCN:n THREAD_ID:n THREAD_SQN:n LOW_SCN:n"
        " NEXT_SCN:n STATUS:n TYPE:t CON_ID:n",
        [
            (
                *(log.sequence, path, session.model.now, session.model.now, DBID, "ORCLCDB"),
                *(log.incarnation.resetlogs_scn, log.thread, log.sequence, log.first_scn, log.next_scn or _OPEN_END),
                *(0, "ARCHIVED" if path.startswith("/archive") else "ONLINE", 0),
            )
            for path, log in session.log_miner.paths.items()
        ],
    )


def _parameter(session: Viewer) -> Table:
    settings = {
        "compatible": "19.0.0",
        "undo_retention": "900",
        "max_string_size": "STANDARD",
        "enable_goldengate_replication": "FALSE",
        "pga_aggregate_limit": "2147483648",
        "db_files": "200",
        "cluster_database": "TRUE" if len(session.model.threads) > 1 else "FALSE",
    }
    return made(
        "NUM:n NAME:t TYPE:n VALUE:t DISPLAY_VALUE:t ISDEFAULT:t CON_ID:n",
        [(nth, name, 2, value, value, "TRUE", 0) for nth, (name, value) in enumerate(settings.items())],
    )


def _instance(session: Viewer) -> Table:
    return made(
        "INSTANCE_NUMBER:n INSTANCE_NAME:t HOST_NAME:t VERSION:t VERSION_FULL:t STARTUP_TIME:d STATUS:t PARALLEL:t THREAD#:n"
        " LOGINS:t DATABASE_STATUS:t INSTANCE_ROLE:t ACTIVE_STATE:t CON_ID:n",
        [
            (
                *(1, "ORCLCDB1", "db1", "19.0.0.0.0", "19.26.0.0.0", session.model.now - timedelta(days=1), "OPEN"),
                *(
                    "YES" if len(session.model.threads) > 1 else "NO",
                    1,
                    "ALLOWED",
                    "ACTIVE",
                    "PRIMARY_INSTANCE",
                    "NORMAL",
                    0,
                ),
            )
        ],
    )


def _version(session: Viewer) -> Table:
    banner = "Oracle Database 19c Enterprise Edition Release 19.0.0.0.0 - Production"
    return made(
        "BANNER:t BANNER_FULL:t BANNER_LEGACY:t CON_ID:n", [(banner, f"{banner}\nVersion 19.26.0.0.0", banner, 0)]
    )


def _undo(session: Viewer) -> Table:
    now = session.model.now
    return made(
        "BEGIN_TIME:d END_TIME:d UNDOTSN:n UNDOBLKS:n MAXQUERYLEN:n SSOLDERRCNT:n TUNED_UNDORETENTION:n CON_ID:n",
        [(now - timedelta(minutes=10), now, 2, 100, 60, 0, 900, 0)],
    )


def _destinations(session: Viewer) -> Table:
    count = max(thread.destinations for thread in session.model.threads)
    return made(
        "DEST_ID:n DEST_NAME:t STATUS:t TYPE:t DATABASE_MODE:t DESTINATION:t ARCHIVED_SEQ#:n ERROR:t CON_ID:n",
        [
            (nth, f"LOG_ARCHIVE_DEST_{nth}", "VALID", "LOCAL", "OPEN", f"/archive{nth}", 1, None, 0)
            for nth in range(1, count + 1)
        ],
    )


def _session(session: Viewer) -> Table:
    return made(
        "SID:n SERIAL#:n USERNAME:t STATUS:t OSUSER:t MACHINE:t PROGRAM:t CON_ID:n",
        [(1, 1, session.user, "ACTIVE", "oracle", "db1", "client", 0)],
    )


_VIEWS: Final[dict[str, Callable[[Viewer], Table]]] = {
    "V$DATABASE": _database,
    "V$THREAD": _thread,
    "V$LOG": _log,
    "V$LOGFILE": _logfile,
    "V$ARCHIVED_LOG": _archived_log,
    "V$ARCHIVE_DEST_STATUS": _destinations,
    "V$ARCHIVE_DEST": _destinations,
    "V$DATABASE_INCARNATION": _incarnation,
    "V$TRANSACTION": _transaction,
    "V$LOGMNR_CONTENTS": lambda session: session.log_miner.contents(),
    "V$LOGMNR_LOGS": _logmnr_logs,
    "V$PARAMETER": _parameter,
    "V$SYSTEM_PARAMETER": _parameter,
    "V$INSTANCE": _instance,
    "V$VERSION": _version,
    "V$UNDOSTAT": _undo,
    "V$SESSION": _session,
    "V$OPTION": lambda session: made("PARAMETER:t VALUE:t CON_ID:n", [("Partitioning", "TRUE", 0)]),
    "V$STATNAME": lambda session: made(
        "STATISTIC#:n NAME:t CON_ID:n", [(nth, name, 0) for nth, name in enumerate(_STATISTICS)]
    ),
    "V$MYSTAT": lambda session: made(
        "SID:n STATISTIC#:n VALUE:n CON_ID:n", [(1, nth, 1_000_000, 0) for nth in range(len(_STATISTICS))]
    ),
    "V$CONTAINERS": lambda session: made("CON_ID:n NAME:t OPEN_MODE:t", [(0, "ORCLCDB", "READ WRITE")]),
    "V$PDBS": lambda session: made(
        "CON_ID:n NAME:t OPEN_MODE:t", [(3, session.model.pdb, "READ WRITE")] if session.model.pdb else []
    ),
    "V$NLS_PARAMETERS": lambda session: made(
        "PARAMETER:t VALUE:t CON_ID:n",
        [("NLS_CHARACTERSET", "AL32UTF8", 0), ("NLS_NCHAR_CHARACTERSET", "AL16UTF16", 0)],
    ),
}
