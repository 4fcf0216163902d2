"""The pre-flight of a source's servers: which one can be followed, and which tables change without its log."""

import msgspec
import structlog

from libs.errors import HeadwaterError, PositionPurged, SourceMisconfigured, SourceUnavailable
from libs.mysql.preflight import check_source, unlogged_cascades
from libs.source.mysql.client import Connection, connect, servers_of
from libs.source.mysql.settings import DatabaseSettings
from libs.telemetry.faults import CASCADES_NOT_LOGGED, keep_faults, lasting_faults
from libs.types.fault import FaultScope
from services.binlog_reader.capture import capture_filter, gtid_filter
from services.binlog_reader.position import BinlogPosition
from services.binlog_reader.settings import BinlogReaderSettings

log = structlog.get_logger()


def sound_server(settings: BinlogReaderSettings, position: BinlogPosition | None) -> DatabaseSettings:
    """The first of the source's servers that can be followed from ``position`` on. Blocks.

    Raises what ``require_sound_source`` raises for the servers: SourceUnavailable while one of them may still become sound,
    else the first one's fault.
    """
    errors: list[HeadwaterError] = []
    for database in servers_of(settings.database):
        try:
            require_sound_source(msgspec.structs.replace(settings, database=database), position)
        except (SourceUnavailable, PositionPurged) as error:
            errors.append(error)
            log.warning("server_passed_over", server=f"{database.host}:{database.port}", reason=str(error))
        else:
            return database
    raise next((error for error in errors if isinstance(error, SourceUnavailable)), errors[0])


def require_sound_source(settings: BinlogReaderSettings, position: BinlogPosition | None) -> None:
    """The pre-flight: everything the server must offer, before anything is read. Blocks.

    Raises SourceMisconfigured or PositionPurged with every fault and its mend; SourceUnavailable, AccessDenied.
    """
    connection = connect(settings.database)
    try:
        report = check_source(
            connection,
            resume_from=position,
            is_gtid_passed=gtid_filter(settings),
            needs_full_images=settings.values.unavailable_placeholder is None,
            replica_server_id=settings.replica_server_id,
        )
        keep_cascade_faults(settings, connection)
    finally:
        connection.close()
    for warning in report.warnings:
        log.warning("source_preflight_warned", fault=warning.what, mend=warning.mend)
    if report.faults:
        listed = "\n".join(f"  - {fault.what}; mend: {fault.mend}" for fault in report.faults)
        where = f"{settings.database.host}:{settings.database.port}"
        if all(fault.is_behind for fault in report.faults):
            raise SourceUnavailable(
                f"MySQL at {where} is a replica that lags the place that was read already:\n{listed}"
            )
        kind = PositionPurged if all(fault.is_purged for fault in report.faults) else SourceMisconfigured
        raise kind(f"MySQL at {where} cannot be followed, {len(report.faults)} fault(s):\n{listed}")


def keep_cascade_faults(settings: BinlogReaderSettings, connection: Connection) -> None:
    """Raise a fault for each captured table that a foreign key changes without the log, and lift it of others. Blocks."""
    is_captured = capture_filter(settings)
    found = {table_id: by for table_id, by in unlogged_cascades(connection).items() if is_captured(table_id)}
    scopes = {FaultScope(source=settings.source, table=str(table)): f"{table}: {by}" for table, by in found.items()}
    keep_faults({CASCADES_NOT_LOGGED: scopes}, lambda scope: scope.source == settings.source)


def look_at_cascades(settings: BinlogReaderSettings) -> None:
    """As ``keep_cascade_faults``, by a connection of its own. Blocks."""
    connection = connect(settings.database)
    try:
        keep_cascade_faults(settings, connection)
    finally:
        connection.close()


def cascading_tables(source: str) -> set[str]:
    """Tables that foreign keys change without the log, as far as is known."""
    return {
        fault.scope.table
        for fault in lasting_faults()
        if fault.id == CASCADES_NOT_LOGGED.id and fault.scope.source == source
    }
