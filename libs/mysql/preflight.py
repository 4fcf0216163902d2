"""Pre-flight: whether a MySQL server can be followed, asked before anything is read from it.

Called by a reader each time it starts. Everything that is missing is found in one go, each fault with the statement
that mends it, so that a person corrects the server once. The requirements on the server are in the MySQL manual: "The Binary
Log", "Replication with Global Transaction Identifiers", "Binary Logging Options and Variables".
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import DictCursor

from libs.errors import SourceUnavailable
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.grants import FOLLOWING, LOCKING, LOCKING_OLDER, READING, SEEING
from libs.mysql.gtid import GtidSet
from libs.types.table import TableId


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that stands against following the server."""

    what: str
    mend: str
    """A statement to run at the server, or else the next step."""
    is_purged: bool = False
    """The log does not reach the position to resume from, so that only a new snapshot helps."""
    is_behind: bool = False
    """The server is a replica that has yet to receive transactions that were read from another one; nothing else is wrong."""


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """All faults, and settings that are allowed but may be regretted."""

    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...] = ()


def check_source(
    connection: "Connection[Any]",
    *,
    resume_from: BinlogPosition | None = None,
    is_gtid_passed: Callable[[str], bool] = lambda _: False,
    min_retention_s: int = 86_400,
    needs_full_images: bool = True,
    replica_server_id: int | None = None,
) -> PreflightReport:
    """Check server, log, grants and, when ``resume_from`` is given, that its log continues there. Changes nothing.

    ``is_gtid_passed`` says whether transactions that a server (its uuid) numbered are wanted at all.
    ``min_retention_s``: how long the server should keep its log; a reader that stands still for longer has to copy all rows
    again. The default leaves a day to notice. ``replica_server_id``: under which the log is to be asked for.

    Raises:
        SourceUnavailable: the connection broke; try again.
    """
    version, version_comment = _query(connection, "SELECT VERSION(), @@version_comment")[0]
    if wrong_server := _server_fault(str(version), str(version_comment)):
        return PreflightReport((wrong_server,))  # its settings have other names
    variables = _variables(connection)
    grants = [str(row[0]) for row in _query(connection, "SHOW GRANTS")]
    has_gtids = variables.get("gtid_mode", "ON") == "ON"
    faults = [*_setting_faults(variables, needs_full_images), *_grant_faults(grants)]
    warnings = [
        *_metadata_warnings(variables),
        *_retention_warnings(variables, min_retention_s),
        *_grant_warnings(grants, has_gtids=has_gtids),
        *_foreign_key_warnings(connection),
    ]
    if not any("REPLICATION CLIENT" in fault.what for fault in faults):
        faults += _replica_faults(connection, variables)
        warnings += _filter_warnings(connection)
    if replica_server_id is not None and not any("REPLICATION SLAVE" in fault.what for fault in faults):
        found = _server_id_faults(connection, variables, replica_server_id)
        faults += found.faults
        warnings += found.warnings
    if not has_gtids:
        warnings.append(_NO_GTIDS)
    if resume_from is not None and resume_from.by_file:
        faults += _place_faults(connection, resume_from)
    elif resume_from is not None and has_gtids:
        faults += _resume_faults(connection, GtidSet.parse(resume_from.gtid_set), is_gtid_passed)
    elif resume_from is not None:
        faults.append(Fault("gtid_mode is not ON, but the log was followed by GTID so far", _NO_GTIDS.mend))
    return PreflightReport(tuple(faults), tuple(warnings))


def _server_fault(version: str, version_comment: str) -> Fault | None:
    if "mariadb" in f"{version} {version_comment}".lower():
        return Fault(
            f"the server is MariaDB {version}: its GTIDs and log are others", "point the reader at a MySQL server"
        )
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) < 8:
        return Fault(f"the server is MySQL {version}, older than 8.0", "upgrade the server to MySQL 8.0 or later")
    return None


# Settings


def _setting_faults(variables: Mapping[str, str], needs_full_images: bool) -> list[Fault]:
    """Wrong settings. One that a newer server no longer has is as it must be: it was removed with its other values."""
    faults = []
    if variables.get("log_bin", "OFF") != "ON":
        faults.append(Fault("log_bin is OFF: the server writes no log", "set log_bin in my.cnf and restart the server"))
    if variables.get("server_id", "0") == "0":
        faults.append(Fault("server_id is 0: the server lets no replica read its log", "SET PERSIST server_id = 1"))
    for name, wanted, mend in _WANTED:
        value = variables.get(name, wanted)
        if value != wanted and (needs_full_images or name != "binlog_row_image"):
            faults.append(Fault(f"{name} is {value or 'empty'}, must be {wanted or 'empty'}", mend))
    return faults


_WANTED: Final = (
    ("binlog_format", "ROW", "SET PERSIST binlog_format = 'ROW'"),
    ("binlog_row_image", "FULL", "SET PERSIST binlog_row_image = 'FULL'"),
)
# gtid_mode needs enforce_gtid_consistency, and goes step by step (manual, "Enabling GTID Transactions Online").
_NO_GTIDS: Final = Fault(
    "gtid_mode is not ON: the log is followed by file and place, so the reader cannot go over to another server, read "
    "incremental snapshots or follow XA transactions",
    "SET PERSIST enforce_gtid_consistency = ON; SET PERSIST gtid_mode = OFF_PERMISSIVE; SET PERSIST gtid_mode = "
    "ON_PERMISSIVE; SET PERSIST gtid_mode = ON",
)


def _metadata_warnings(variables: Mapping[str, str]) -> list[Fault]:
    """With FULL the log itself names columns, members and key: any unseen change of a table is found out."""
    metadata = variables.get("binlog_row_metadata", "FULL")
    if metadata == "FULL":
        return []
    return [
        Fault(
            f"binlog_row_metadata is {metadata}: after a statement that is not understood, a table is compared with the log by "
            "types and widths alone, not by the names of its columns",
            "SET PERSIST binlog_row_metadata = 'FULL'",
        )
    ]


def _retention_warnings(variables: Mapping[str, str], min_retention_s: int) -> list[Fault]:
    kept_s = int(variables.get("binlog_expire_logs_seconds", "0"))  # 0: for ever
    if kept_s == 0 or kept_s >= min_retention_s:
        return []
    return [
        Fault(
            f"the log is kept for {kept_s} s, less than {min_retention_s} s: a reader that stands still for longer must "
            "copy all rows again",
            f"SET PERSIST binlog_expire_logs_seconds = {min_retention_s}",
        )
    ]


# Grants

_GRANT: Final = re.compile(r"GRANT (?P<privileges>.+) ON (?P<on>.+?) TO ")


def _privileges(grants: list[str], *, everywhere: bool) -> frozenset[str]:
    """Privileges that SHOW GRANTS lists: those on ``*.*``, or those on anything. Active roles are among them."""
    found: set[str] = set()
    for grant in grants:
        match = _GRANT.match(grant)
        if match and (not everywhere or match["on"] == "*.*"):
            without_columns = re.sub(r"\([^)]*\)", "", match["privileges"])
            found.update(privilege.strip().upper() for privilege in without_columns.split(","))
    return frozenset(found)


def _grant_faults(grants: list[str]) -> list[Fault]:
    everywhere = _privileges(grants, everywhere=True)
    if "ALL PRIVILEGES" in everywhere:
        return []
    faults = [
        Fault(
            f"the user lacks {privilege.name}: {privilege.without_it}",
            f"GRANT {privilege.name} ON *.* TO {_user(grants)}",
        )
        for privilege in FOLLOWING
        if privilege.name not in everywhere
    ]
    if not _privileges(grants, everywhere=False) & {READING.name, "ALL PRIVILEGES"}:
        faults.append(
            Fault(
                f"the user lacks {READING.name}: {READING.without_it}",
                f"GRANT {READING.name} ON *.* TO {_user(grants)}",
            )
        )
    return faults


def seeing_grant(grants: list[str]) -> str:
    """The statement that lets a user see every view, trigger and routine, of what SHOW GRANTS says; empty: it sees them."""
    everywhere = _privileges(grants, everywhere=True)
    held = everywhere | {"SHOW_ROUTINE"} if READING.name in everywhere else everywhere
    missing = [] if "ALL PRIVILEGES" in everywhere else [name for name in SEEING if name not in held]
    return f"GRANT {', '.join(missing)} ON *.* TO {_user(grants)}" if missing else ""


def _grant_warnings(grants: list[str], *, has_gtids: bool) -> list[Fault]:
    if _privileges(grants, everywhere=True) & {"ALL PRIVILEGES", LOCKING_OLDER, LOCKING.name}:
        return []
    effect = (
        "hold commits back while it notes its position, so the log may repeat some changes that the copy already has"
        if has_gtids
        else "begin: without GTIDs it needs a lock while it notes its position"
    )
    return [
        Fault(
            f"the user has neither {LOCKING_OLDER} nor {LOCKING.name}: the snapshot cannot {effect}",
            f"GRANT {LOCKING.name} ON *.* TO {_user(grants)}",
        )
    ]


def _user(grants: list[str]) -> str:
    """The account, as SHOW GRANTS quotes it."""
    account = re.search(r" TO (`(?:[^`]|``)*`@`(?:[^`]|``)*`)", grants[0]) if grants else None
    return account[1] if account else "CURRENT_USER()"


# Replicas


def _server_id_faults(
    connection: "Connection[Any]", variables: Mapping[str, str], replica_server_id: int
) -> PreflightReport:
    """Others who have that id. Of two that name no uuid, as this reader and mysqlbinlog do, the server cuts off the older one
    (``kill_zombie_dump_threads`` in its rpl_source.cc); such a one is listed only where it registered."""
    mend = "give the reader another replica_server_id, which no server and no other reader has"
    if str(replica_server_id) == variables.get("server_id"):
        taken = Fault(f"replica_server_id {replica_server_id} is the server's own server_id", mend)
        return PreflightReport((), (taken,))
    listed = _query(connection, "SHOW REPLICAS", "SHOW SLAVE HOSTS")  # Server_Id stands first, Replica_UUID last
    uuids = [str(row[-1] or "") for row in listed if int(row[0]) == replica_server_id]
    if not uuids:
        return PreflightReport(())
    taken = Fault(f"replica_server_id {replica_server_id} is that of another replica (SHOW REPLICAS lists it)", mend)
    return PreflightReport((taken,)) if "" in uuids else PreflightReport((), (taken,))


# The log


def _replica_faults(connection: "Connection[Any]", variables: Mapping[str, str]) -> list[Fault]:
    # Names since MySQL 8.0.26 and 8.0.22, and those before.
    logs_updates = variables.get("log_replica_updates", variables.get("log_slave_updates", "ON"))
    if logs_updates == "ON" or not _query(connection, "SHOW REPLICA STATUS", "SHOW SLAVE STATUS"):
        return []
    return [
        Fault(
            "the server is a replica with log_replica_updates OFF: its log lacks its source's writes",
            "set log_replica_updates = ON in my.cnf and restart the server, or follow its source",
        )
    ]


def _filter_warnings(connection: "Connection[Any]") -> list[Fault]:
    # MySQL 8.2 brought the new name, 8.4 removed the old one.
    rows = _query(connection, "SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")
    if not rows or not any(rows[0][2:4]):
        return []
    return [
        Fault(
            "the log leaves databases out (binlog_do_db or binlog_ignore_db): their changes are never seen",
            "remove binlog_do_db and binlog_ignore_db from my.cnf and restart the server",
        )
    ]


_FOREIGN_KEYS_LISTED: Final = 5


def unlogged_cascades(connection: "Connection[Any]") -> dict[TableId, str]:
    """The tables whose rows a foreign key changes without the log, each with the foreign key that does.

    InnoDB carries out CASCADE and SET NULL by itself, and no log has it. MySQL 9.6 and later do it in the server, which logs
    the rows, unless ``innodb_native_foreign_keys`` is ON."""
    stated = _query(connection, "SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")
    if stated and stated[0][1] != "ON":
        return {}
    rows = _query(
        connection,
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, REFERENCED_TABLE_NAME, CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE "
        "FROM information_schema.REFERENTIAL_CONSTRAINTS "
        "WHERE (DELETE_RULE IN ('CASCADE', 'SET NULL') OR UPDATE_RULE IN ('CASCADE', 'SET NULL')) "
        "AND CONSTRAINT_SCHEMA NOT IN ('mysql', 'sys') ORDER BY 1, 2, 4",
    )
    found: dict[TableId, str] = {}
    for schema, table, parent, name, on_delete, on_update in rows:
        own = f"{name}, which follows {parent} (ON DELETE {on_delete}, ON UPDATE {on_update})"
        table_id = TableId(database=schema, table=table)
        found[table_id] = f"{found[table_id]}; {own}" if table_id in found else own
    return found


def _foreign_key_warnings(connection: "Connection[Any]") -> list[Fault]:
    found = unlogged_cascades(connection)
    if not found:
        return []
    listed = [f"{table} by {name}" for table, name in list(found.items())[:_FOREIGN_KEYS_LISTED]]
    more = [f"{len(found) - _FOREIGN_KEYS_LISTED} more"] if len(found) > _FOREIGN_KEYS_LISTED else []
    return [
        Fault(
            f"foreign keys change rows of which this server's log has no event, by CASCADE or SET NULL: "
            f"{', '.join([*listed, *more])}",
            "upgrade to MySQL 9.6 or later with innodb_native_foreign_keys = OFF, or change such rows by own statements; "
            "`headwater check TENANT` shows the differences, `headwater resync TENANT TABLE` mends it",
        )
    ]


def _resume_faults(
    connection: "Connection[Any]", resume_from: GtidSet, is_gtid_passed: Callable[[str], bool]
) -> list[Fault]:
    """Whether the log holds everything that is not in ``resume_from``, and the server knows all that is."""
    row = _query(connection, "SELECT @@GLOBAL.gtid_purged, @@GLOBAL.gtid_executed")[0]
    purged, executed = (GtidSet.parse(str(text)).without(is_gtid_passed) for text in row)
    faults = []
    if missing := purged.subtract(resume_from):
        faults.append(
            Fault(
                f"the server has purged transactions that were not read yet: {missing}",
                "re-snapshot the source, and keep the log longer (binlog_expire_logs_seconds)",
                is_purged=True,
            )
        )
    if unknown := resume_from.without(is_gtid_passed).subtract(executed):
        faults.append(
            Fault(
                f"the server does not have transactions that were already read: {unknown}",
                "wait if it is a lagging replica; otherwise it was restored or is another server: re-snapshot",
                is_purged=True,
                is_behind=_replicates(connection),
            )
        )
    return faults


def _replicates(connection: "Connection[Any]") -> bool:
    """The server is a replica that receives another one's transactions."""
    with connection.cursor(DictCursor) as cursor:
        try:
            cursor.execute("SHOW REPLICA STATUS")
        except (pymysql.OperationalError, pymysql.ProgrammingError):  # no such statement, or no right to it
            return False
        return any(
            row.get("Replica_IO_Running") == row.get("Replica_SQL_Running") == "Yes" for row in cursor.fetchall()
        )


def _place_faults(connection: "Connection[Any]", resume_from: BinlogPosition) -> list[Fault]:
    """Whether the log of a server without GTIDs still holds a place."""
    bytes_of_file = {str(row[0]): int(row[1]) for row in _query(connection, "SHOW BINARY LOGS")}
    if bytes_of_file.get(resume_from.file, -1) >= resume_from.pos:
        return []
    files = f"{min(bytes_of_file)} to {max(bytes_of_file)}" if bytes_of_file else "nothing"
    return [
        Fault(
            f"the log was read up to {resume_from.file}:{resume_from.pos}, which the server does not have any more (it has "
            f"{files})",
            "re-snapshot the source, and keep the log longer (binlog_expire_logs_seconds)",
            is_purged=True,
        )
    ]


# Asking

_NO_SUCH_STATEMENT: Final = 1064  # ER_PARSE_ERROR


def _variables(connection: "Connection[Any]") -> dict[str, str]:
    names = (
        "log_bin",
        "server_id",
        "binlog_expire_logs_seconds",
        "log_replica_updates",
        "log_slave_updates",
        "gtid_mode",
        "binlog_row_metadata",
        "innodb_native_foreign_keys",
        *(name for name, *_ in _WANTED),
    )
    listed = ", ".join(f"'{name}'" for name in names)
    rows = _query(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")
    values = {str(name): str(value) for name, value in rows}
    return {name: value.upper() for name, value in values.items()}


def _query(connection: "Connection[Any]", statement: str, older: str | None = None) -> list[tuple[Any, ...]]:
    """All rows; of ``older`` where the server does not know ``statement``."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
    except pymysql.ProgrammingError as error:
        if older is None or error.args[0] != _NO_SUCH_STATEMENT:
            raise
        return _query(connection, older)
    except pymysql.OperationalError as error:
        raise SourceUnavailable(
            f"MySQL did not answer {statement.split(maxsplit=1)[0]} during the pre-flight"
        ) from error
