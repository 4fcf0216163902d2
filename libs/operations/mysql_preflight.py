"""The pre-flight of a MySQL source's document: its server, and everything else that the document names there.

``headwater validate SOURCE`` comes here. ``libs.mysql.preflight`` asks one server what every reader asks at its start; here is
the document's own part: which tables, which servers beside the first, which SQL. Changes nothing.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from libs.config.connections import SecurityProtocol
from libs.errors import AccessDenied, HeadwaterError, SourceUnavailable
from libs.mesh.documents import DatabaseDocument, DtsDocument, MysqlDocument
from libs.mesh.source_tables import is_captured
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.gtid import GtidSet, server_filter
from libs.mysql.identifiers import quote_identifier, quote_table
from libs.mysql.preflight import Fault, PreflightReport, check_source
from libs.operations.exposure import exposed_database, exposed_kafka
from libs.source.mysql.client import Connection, connect, mysql_error_code, query, servers_of
from libs.source.mysql.replica_lag import replica_lag_s
from libs.source.mysql.settings import DatabaseSettings
from libs.source.mysql.snapshot import captured_tables
from libs.source.snapshot_mode import SnapshotMode
from libs.tenants.place import nearest
from libs.types.table import TableId

_SIGNAL_COLUMNS: Final = 3
_NO_SUCH_TABLE: Final = 1146
_SERVER_ERRORS: Final = range(1000, 2000)
"""The server's error numbers about a statement; from 2000 on they are the client's about the connection."""
_LISTED: Final = 5
"""Tables named in one fault; how many there are beside them is said."""


def check_document(document: MysqlDocument | DtsDocument, *, resume_from: BinlogPosition | None) -> PreflightReport:
    """Every fault of the document's tables, servers and SQL, each with its remedy. Blocks.

    ``resume_from``: where its reader stood; None: not known, or it was never there.

    Raises:
        SourceUnavailable, AccessDenied, PipelineHalted: the first server cannot be asked.
    """
    connection = connect(document.database)
    try:
        faults, warnings = _of_server(document, connection, resume_from)
        for server in servers_of(document.database):
            warnings += exposed_database(server, server.host)
        if isinstance(document, DtsDocument):
            subscription = document.subscription
            protocol = subscription.security_protocol or SecurityProtocol.PLAINTEXT
            warnings += exposed_kafka(protocol, subscription.bootstrap_servers, "subscription")
        if not any("lacks SELECT" in fault.what for fault in faults):  # without it no table is seen
            tables = captured_tables(connection)
            captured = [table for table in tables if is_captured(document, table)]
            faults += _table_faults(document, tables, captured)
            warnings += _pattern_warnings(document, tables) if captured else []
            faults += _select_faults(connection, captured)
            if isinstance(document, MysqlDocument):
                faults += _signal_table_faults(document, connection, tables)
                faults += _override_faults(document, connection, captured)
        if isinstance(document, MysqlDocument):
            for found in (_of_failover_servers(document, connection, resume_from), _of_lag_replicas(document)):
                faults += found.faults
                warnings += found.warnings
    finally:
        connection.close()
    return PreflightReport(tuple(faults), tuple(warnings))


# --- servers -------------------------------------------------------------------------------------------------------------


def _of_server(
    document: MysqlDocument | DtsDocument, connection: Connection, resume_from: BinlogPosition | None
) -> tuple[list[Fault], list[Fault]]:
    """As the reader asks the server that it is to follow; where it would copy all rows again, a purged position is no fault."""
    needs_full_images = document.values.unavailable_placeholder is None
    if not isinstance(document, MysqlDocument):
        report = check_source(connection, needs_full_images=needs_full_images)
        return list(report.faults), list(report.warnings)
    report = check_source(
        connection,
        resume_from=resume_from,
        is_gtid_passed=server_filter(document.gtid_source_includes, document.gtid_source_excludes),
        needs_full_images=needs_full_images,
        replica_server_id=document.replica_server_id,
    )
    if document.snapshot.mode is not SnapshotMode.WHEN_NEEDED:
        return list(report.faults), list(report.warnings)
    again = [
        Fault(f"{fault.what}; all rows are copied again", fault.mend) for fault in report.faults if fault.is_purged
    ]
    return [fault for fault in report.faults if not fault.is_purged], [*report.warnings, *again]


def _of_failover_servers(
    document: MysqlDocument, first: Connection, resume_from: BinlogPosition | None
) -> PreflightReport:
    """Each server that may take the first one's place: it must be as sound, and hold the same transactions."""
    faults: list[Fault] = []
    warnings: list[Fault] = []
    for index, server in enumerate(servers_of(document.database)[1:]):
        place = f"database.failover_servers[{index}]: MySQL at {server.host}:{server.port}"
        try:
            report = _of_failover_server(document, server, first, resume_from)
        except SourceUnavailable as error:
            warnings.append(Fault(f"{place}: cannot take over now: {error}", "start it, or correct the address"))
        except HeadwaterError as error:
            faults.append(Fault(f"{place}: {error}", "give it the user that the first server has"))
        else:
            faults += [Fault(f"{place}: {fault.what}", fault.mend) for fault in report.faults]
            warnings += [Fault(f"{place}: {fault.what}", fault.mend) for fault in report.warnings]
    return PreflightReport(tuple(faults), tuple(warnings))


def _of_failover_server(
    document: MysqlDocument, server: DatabaseSettings, first: Connection, resume_from: BinlogPosition | None
) -> PreflightReport:
    connection = connect(server)
    try:
        report = check_source(
            connection,
            resume_from=resume_from,
            is_gtid_passed=server_filter(document.gtid_source_includes, document.gtid_source_excludes),
            needs_full_images=document.values.unavailable_placeholder is None,
            replica_server_id=document.replica_server_id,
        )
        faults, warnings = list(report.faults), list(report.warnings)
        if _answer(connection, "@@GLOBAL.server_uuid") == _answer(first, "@@GLOBAL.server_uuid"):
            warnings.append(Fault("is the first server itself", "name another one, or leave it out"))
        elif _answer(connection, "@@GLOBAL.gtid_mode") != "ON":
            faults.append(Fault("gtid_mode is not ON: nobody can go over to it", "set gtid_mode = ON there"))
        elif not _shares_history(connection, first):
            faults.append(
                Fault(
                    "has none of the first server's transactions",
                    "make it a replica of the same data, or name one that is",
                )
            )
    finally:
        connection.close()
    return PreflightReport(tuple(faults), tuple(warnings))


def _shares_history(connection: Connection, first: Connection) -> bool:
    """Some transaction is at both; of a first server without any, nothing can be said against the other."""
    here, there = (GtidSet.parse(_answer(each, "@@GLOBAL.gtid_executed")) for each in (connection, first))
    return not there or bool(there.subtract(there.subtract(here)))


def _answer(connection: Connection, expression: str) -> str:
    return str(query(connection, f"SELECT {expression}")[0][0])


def _of_lag_replicas(document: MysqlDocument) -> PreflightReport:
    """Replicas that hold a snapshot back: one that cannot be asked, or does not replicate, holds it back for ever."""
    faults = []
    warnings = []
    for index, replica in enumerate(document.snapshot.lag_replicas):
        place = f"snapshot.lag_replicas[{index}]: {_address(replica)}"
        try:
            lag_s = replica_lag_s(document.database, [replica])
        except SourceUnavailable as error:
            warnings.append(Fault(f"{place}: no snapshot goes on while it cannot be asked: {error}", "start it"))
        except AccessDenied as error:
            faults.append(Fault(f"{place}: {error}", "GRANT REPLICATION CLIENT ON *.* to the user there"))
        except HeadwaterError as error:
            faults.append(Fault(f"{place}: {error}", "name a replica of the source, or leave it out"))
        else:
            if lag_s == float("inf"):
                warnings.append(Fault(f"{place}: does not replicate, so no snapshot goes on", "START REPLICA there"))
    return PreflightReport(tuple(faults), tuple(warnings))


def _address(database: DatabaseDocument) -> str:
    return f"MySQL at {database.host}:{database.port}"


# --- tables --------------------------------------------------------------------------------------------------------------


def _table_faults(
    document: MysqlDocument | DtsDocument, tables: Sequence[TableId], captured: Sequence[TableId]
) -> list[Fault]:
    if captured:
        return []
    if any(any(re.fullmatch(pattern, str(table)) for pattern in document.include_tables) for table in tables):
        return [Fault("exclude_tables removes every table that include_tables matches", "correct the patterns")]
    return [Fault("include_tables matches no table that the user may see", _other_pattern("", tables))]


def _pattern_warnings(document: MysqlDocument | DtsDocument, tables: Sequence[TableId]) -> list[Fault]:
    """A pattern that matches nothing may be for tables that are yet to come; it may be misspelt."""
    return [
        Fault(
            f"include_tables[{index}]: {pattern!r} matches no table that the user may see",
            _other_pattern(pattern, tables),
        )
        for index, pattern in enumerate(document.include_tables)
        if not any(re.fullmatch(pattern, str(table)) for table in tables)
    ]


def _other_pattern(pattern: str, tables: Sequence[TableId]) -> str:
    names = [str(table) for table in tables]
    shown = nearest(pattern.replace("\\", ""), names)
    if shown.startswith("known:") and len(names) > _LISTED:
        shown = f"known: {', '.join(names[:_LISTED])} and {len(names) - _LISTED} more"
    return f"correct the pattern (it must match database.table), or grant SELECT; {shown}"


def _select_faults(connection: Connection, captured: Sequence[TableId]) -> list[Fault]:
    """Captured tables of which some column may not be read."""
    denied = [table for table in captured if _is_denied(connection, table)]
    if not denied:
        return []
    beside = f" and {len(denied) - _LISTED} more" if len(denied) > _LISTED else ""
    return [
        Fault(
            f"the user may not read all columns of {', '.join(map(str, denied[:_LISTED]))}{beside}",
            "; ".join(f"GRANT SELECT ON {quote_table(table)} TO {_account(connection)}" for table in denied[:_LISTED]),
        )
    ]


def _is_denied(connection: Connection, table: TableId) -> bool:
    try:
        query(connection, f"SELECT * FROM {quote_table(table)} LIMIT 0")
    except AccessDenied:
        return True
    except HeadwaterError as error:
        if mysql_error_code(error) != _NO_SUCH_TABLE:  # dropped a moment ago
            raise
    return False


def _account(connection: Connection) -> str:
    user, _, host = _answer(connection, "CURRENT_USER()").rpartition("@")
    return f"{quote_identifier(user)}@{quote_identifier(host)}"


def _signal_table_faults(document: MysqlDocument, connection: Connection, tables: Sequence[TableId]) -> list[Fault]:
    name = document.signal_table
    if name is None:
        return []
    database, _, table = name.partition(".")
    create = (
        f"CREATE TABLE {quote_table(TableId(database=database, table=table))} "
        "(id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL)"
    )
    if TableId(database=database, table=table) not in tables:
        close = nearest(name, [str(each) for each in tables])
        hint = f"; {close}" if close.startswith("did you") else ""
        return [Fault(f"signal_table: there is no {name} that the user may see{hint}", create)]
    faults = []
    if any(re.fullmatch(pattern, name) for pattern in document.exclude_tables):
        faults.append(
            Fault(f"signal_table: exclude_tables leaves {name} out, so no signal is heard", "narrow the pattern")
        )
    columns = _columns(connection, TableId(database=database, table=table))
    if len(columns) != _SIGNAL_COLUMNS:
        faults.append(
            Fault(
                f"signal_table: {name} has {len(columns)} columns ({', '.join(columns)}); it needs three: id, type, data",
                f"DROP TABLE {quote_table(TableId(database=database, table=table))}; {create}",
            )
        )
    return faults


def _columns(connection: Connection, table: TableId) -> list[str]:
    rows = query(
        connection,
        "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s "
        "ORDER BY ORDINAL_POSITION",
        table.database,
        table.table,
    )
    return [str(row[0]) for row in rows]


def _override_faults(document: MysqlDocument, connection: Connection, captured: Sequence[TableId]) -> Iterator[Fault]:
    """Overrides of tables that nobody copies, and those that the server does not take; no row is read."""
    names = {str(table): table for table in captured}
    for name, select in document.snapshot.select_overrides.items():
        place = f"snapshot.select_overrides[{name!r}]"
        if name not in names:
            yield Fault(f"{place}: no captured table has this name", f"correct it; {nearest(name, sorted(names))}")
            continue
        try:
            query(connection, _override_statement(connection, names[name], select))
        except SourceUnavailable as error:
            if mysql_error_code(error) not in _SERVER_ERRORS:  # the connection is gone
                raise
            yield _refused(place, error)
        except HeadwaterError as error:
            yield _refused(place, error)


def _refused(place: str, error: HeadwaterError) -> Fault:
    text = error.__cause__.args[-1] if error.__cause__ is not None else error
    return Fault(
        f"{place}: MySQL refuses it: {text}",
        "give an SQL condition, or a SELECT whose rows have all of the table's columns",
    )


def _override_statement(connection: Connection, table: TableId, select: str) -> str:
    """As the reader asks (``libs.source.mysql.table_copy``), but for no row."""
    columns = ", ".join(quote_identifier(name) for name in _columns(connection, table))
    if select.lstrip()[:6].upper() == "SELECT":
        return f"SELECT {columns} FROM ({select}) AS {quote_identifier(table.table)} LIMIT 0"
    return f"SELECT {columns} FROM {quote_table(table)} WHERE ({select}) LIMIT 0"
