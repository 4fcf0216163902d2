"""Talks to Oracle by python-oracledb. No other module imports the driver.

Everything here blocks; a reader calls it in threads, one call at a time on each connection. Oracle's errors become ours
here, and ``oracle_error_code`` has the code of each.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import oracledb

from libs.errors import AccessDenied, HeadwaterError, PipelineHalted, SourceUnavailable
from libs.oracle.error_codes import REMEDIES, Treatment, treatment_of, treatment_of_driver
from libs.source.oracle.settings import OracleDatabaseSettings

__all__ = [
    "Connection",
    "call",
    "connect",
    "connect_to_tables",
    "fetch",
    "hang_up",
    "interrupt",
    "oracle_error_code",
    "query",
]

Connection = oracledb.Connection

Binds = Sequence[object] | Mapping[str, object]
"""Values by place (``:1``) or by name (``:scn``)."""

FETCH_ROWS: Final = 10_000
_CALL_TIMEOUT_MS: Final = 600_000
"""To the first row of a window or chunk: LogMiner reads a log from its beginning."""
_SESSION: Final = (
    "ALTER SESSION SET NLS_DATE_FORMAT = 'SYYYY-MM-DD HH24:MI:SS'"
    " NLS_TIMESTAMP_FORMAT = 'SYYYY-MM-DD HH24:MI:SS.FF9'"
    " NLS_TIMESTAMP_TZ_FORMAT = 'SYYYY-MM-DD HH24:MI:SS.FF9 TZR'"
    " NLS_NUMERIC_CHARACTERS = '.,'"
    " NLS_SORT = BINARY NLS_COMP = BINARY"
    " TIME_ZONE = '+00:00'"
)
"""LogMiner prints values by the session's formats. SYYYY keeps years before Christ apart from those after."""
_SERVER_CODE: Final = re.compile(r"^ORA-(\d+):", re.MULTILINE)
_DRIVER_CODE: Final = re.compile(r"DPY-(\d+)")


def connect(settings: OracleDatabaseSettings) -> Connection:
    """A connection whose values print in fixed formats, in UTC.

    Raises:
        SourceUnavailable: try again.
        AccessDenied: user or password are wrong, or a privilege is missing.
        PipelineHalted: the driver cannot talk to this server.
    """
    try:
        connection = oracledb.connect(
            user=settings.user,
            password=settings.password.reveal(),
            host=settings.host,
            port=settings.port,
            service_name=settings.service_name,
            tcp_connect_timeout=settings.connect_timeout_s,
        )
        connection.call_timeout = _CALL_TIMEOUT_MS
    except oracledb.Error as error:
        raise _as_ours(error, f"{settings.host}:{settings.port}") from error
    call(connection, _SESSION)
    return connection


def connect_to_tables(settings: OracleDatabaseSettings) -> Connection:
    """As ``connect``, in the pluggable database whose tables are captured: its dictionary, its rows. Raises the same."""
    connection = connect(settings)
    if settings.pdb_name is not None:
        quoted = settings.pdb_name.replace('"', '""')
        call(connection, f'ALTER SESSION SET CONTAINER = "{quoted}"')
    return connection


def query(connection: Connection, statement: str, binds: Binds = ()) -> list[tuple[Any, ...]]:
    """All rows of a SELECT. A NUMBER is an int where it is whole; LOBs come as str and bytes.

    Raises:
        SourceUnavailable, AccessDenied, PipelineHalted: as ``connect``, or the statement was refused.
    """
    return [row for rows in fetch(connection, statement, binds) for row in rows]


def fetch(
    connection: Connection, statement: str, binds: Binds = (), *, rows: int = FETCH_ROWS
) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of a SELECT, at most ``rows`` at a time. The cursor is closed with the iterator.

    Raises:
        SourceUnavailable, AccessDenied, PipelineHalted: as ``query``. Rows before the error were handed over already.
    """
    with _ours():
        cursor = connection.cursor()
        try:
            cursor.arraysize = rows
            cursor.prefetchrows = rows + 1
            cursor.execute(statement, _bound(binds), fetch_lobs=False)
            while fetched := cursor.fetchmany():
                yield fetched
        finally:
            with contextlib.suppress(oracledb.Error):  # the connection was closed meanwhile
                cursor.close()


def call(connection: Connection, statement: str, binds: Binds = ()) -> None:
    """Carry out a statement without a result, such as a PL/SQL block.

    Raises:
        SourceUnavailable, AccessDenied, PipelineHalted: as ``query``.
    """
    with _ours(), connection.cursor() as cursor:
        cursor.execute(statement, _bound(binds))


def hang_up(connection: Connection) -> None:
    """Close a connection that no thread uses. One that is broken is closed too."""
    with contextlib.suppress(oracledb.Error):
        connection.close()


def interrupt(connection: Connection) -> None:
    """End the call that another thread is in. It raises SourceUnavailable (ORA-01013)."""
    with contextlib.suppress(oracledb.Error):
        connection.cancel()


def oracle_error_code(error: BaseException) -> int | None:
    """The number of the ``ORA-`` code that an error, or its cause, has; None where it has none."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, oracledb.Error):
        cause = cause.__cause__
    # The driver names codes that end a connection DPY-4011, and has the server's own text after that.
    found = _SERVER_CODE.search(str(cause)) if cause is not None else None
    return int(found[1]) if found else None


def _bound(binds: Binds) -> dict[str, object] | list[object]:
    return dict(binds) if isinstance(binds, Mapping) else list(binds)


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    try:
        yield
    except oracledb.Error as error:
        raise _as_ours(error, "the source") from error


_UNAVAILABLE: Final = frozenset(
    {
        Treatment.CHOOSE_LOGS,
        Treatment.NEW_SESSION,
        Treatment.SMALLER_WINDOW,
        Treatment.RECONNECT,
        Treatment.OTHER_HOST,
        None,
    }
)


def _as_ours(error: oracledb.Error, where: str) -> HeadwaterError:
    """Oracle's error as one of ours, by the next step."""
    lines = str(error).splitlines() or [type(error).__name__]
    code, text = oracle_error_code(error), next((line for line in lines if line.startswith("ORA-")), lines[0])
    treatment = treatment_of(code)
    if code is None:
        named = _DRIVER_CODE.match(text)
        treatment = treatment_of_driver(int(named[1])) if named else None
        if treatment is None:
            return PipelineHalted(f"the driver cannot do what the reader asks of Oracle at {where}: {text}")
    match treatment:
        case Treatment.CREDENTIALS | Treatment.PRIVILEGE:
            return AccessDenied(f"Oracle denies the reader at {where} ({text}): check user, password and grants")
        case Treatment.THICK_MODE:
            return PipelineHalted(f"the driver's thin mode cannot talk to Oracle at {where}: {text}")
    if treatment in _UNAVAILABLE:
        return SourceUnavailable(f"Oracle at {where} cannot do it now: {text}")
    remedy = REMEDIES.get(code or 0)
    return PipelineHalted(f"Oracle at {where} refuses it: {text}{f': {remedy}' if remedy else ''}")
