"""Connections to PostgreSQL, and its errors as ours. The one place that knows the driver's exceptions."""

import contextlib
from collections.abc import Iterator
from typing import Final

import psycopg

from libs.config.connections import PostgresqlSettings
from libs.errors import AccessDenied, DiskFull, HeadwaterError, PipelineHalted, TransientError

# PostgreSQL manual, appendix A, "PostgreSQL Error Codes": by class, then by code.
_ENDS: Final = frozenset({"57P01", "57P02", "57P03"})
"""The server is shut down, crashed or starts (PostgreSQL manual, appendix A)."""
_TRANSIENT_CLASSES: Final = frozenset({"08", "40", "53", "55", "57"})
"""Connection, transaction rollback, insufficient resources, object not in prerequisite state, operator intervention."""
_DISK_FULL: Final = "53100"
_DENIED: Final = frozenset({"28000", "28P01", "42501"})
_NO_TABLE: Final = "42P01"
_LOCK_NOT_AVAILABLE: Final = "55P03"
_READ_ONLY: Final = "25006"
# Before it lets a client in, a server's answer has no code for libpq to hand on: these are its own English words.
_REFUSALS: Final = (
    "password authentication failed",
    "no pg_hba.conf entry",
    "no password supplied",
    "permission denied",
)
_NO_SUCH: Final = "does not exist"
_BAD_TLS: Final = ("SSL error", "certificate", "does not support SSL")


def connect(settings: PostgresqlSettings, *, application: str) -> "psycopg.Connection[tuple[object, ...]]":
    """A new connection; times are in UTC, and each transaction is begun and ended by hand.

    Raises:
        TransientError: the server does not answer, or takes nobody more.
        AccessDenied: it does not let this user in.
        PipelineHalted: there is no such database, or it is not in UTF-8, or TLS is not as the settings want it.
    """
    try:
        connection = psycopg.connect(
            host=settings.host,
            port=settings.port,
            dbname=settings.database,
            user=settings.user,
            password=settings.password.reveal() or None,
            sslmode=settings.tls_mode.value,
            sslrootcert=settings.tls_ca_file,
            connect_timeout=settings.connect_timeout_s,
            application_name=application,
            client_encoding="UTF8",
            options="-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=1",
        )
    except psycopg.OperationalError as error:
        raise _connect_failure(settings, str(error)) from None  # its text may quote settings
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        connection.close()
        raise PipelineHalted(
            f"{_place(settings)}: the database's encoding is {encoding}, which does not hold every text; "
            "make one with ENCODING 'UTF8'"
        )
    return connection


@contextlib.contextmanager
def errors_named(settings: PostgresqlSettings, subject: str) -> Iterator[None]:
    """Raise the driver's errors of the block as ``named_error``."""
    try:
        yield
    except psycopg.Error as error:
        raise named_error(settings, subject, error) from error


def is_refusal(error: BaseException | None) -> bool:
    """Whether a driver's error says that the server does not let this user in, or not do that."""
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is not None:
        return error.sqlstate in _DENIED
    text = str(error)
    return any(refusal in text for refusal in _REFUSALS) or ('role "' in text and _NO_SUCH in text)


def is_missing_table(error: BaseException | None) -> bool:
    """Whether a driver's error says that the table of a statement is not there, as far as its user sees."""
    return isinstance(error, psycopg.Error) and error.sqlstate == _NO_TABLE


def named_error(settings: PostgresqlSettings, subject: str, error: psycopg.Error) -> HeadwaterError:
    """An error of work on ``subject``, as the class that names the caller's next step. No value of a row is in its text.

    TransientError where the same may work later; AccessDenied, DiskFull or PipelineHalted where a human must see to it.
    """
    code, place = error.sqlstate, _place(settings)
    if code is None:
        return TransientError(f"{place}: the connection was lost while {subject} was worked on")
    if code == _DISK_FULL:
        return DiskFull(f"{place}: the server's disk is full; free some room, then restart the job")
    if code == _LOCK_NOT_AVAILABLE:
        return TransientError(f"{place}: another session holds a lock on {subject}; end its transaction if it stays")
    if code in _DENIED:
        return AccessDenied(
            f"{place}: user {settings.user} may not do what {subject} needs; let it own the schemas and tables, and "
            "GRANT CREATE ON DATABASE to it"
        )
    if code == _READ_ONLY:
        return TransientError(
            f"{place}: takes no writes; it is a standby, or default_transaction_read_only is on: name the primary as host"
        )
    if code in _ENDS:
        return TransientError(f"{place}: does not answer; the server ended the connection, and is stopped or restarted")
    if code[:2] in _TRANSIENT_CLASSES:
        return TransientError(f"{place}: {subject}: {type(error).__name__} (SQLSTATE {code})")
    return PipelineHalted(
        f"{place}: {subject}: {type(error).__name__} (SQLSTATE {code}); the server's log has the statement, mend that"
    )


def _connect_failure(settings: PostgresqlSettings, text: str) -> HeadwaterError:
    place = _place(settings)
    if any(refusal in text for refusal in _REFUSALS):
        return AccessDenied(
            f"{place}: refuses user {settings.user}; check user and password, and the server's pg_hba.conf"
        )
    if f'database "{settings.database}" {_NO_SUCH}' in text:
        return PipelineHalted(f"{place}: there is no database {settings.database}; create it with ENCODING 'UTF8'")
    if f'role "{settings.user}" {_NO_SUCH}' in text:
        return AccessDenied(f"{place}: there is no user {settings.user}; create it, or name another")
    if any(word in text for word in _BAD_TLS):
        return PipelineHalted(
            f"{place}: TLS is not as tls_mode {settings.tls_mode} wants it; check tls_mode, tls_ca_file and the host's name"
        )
    return TransientError(f"{place}: does not answer; check host and port, and that the server runs")


def _place(settings: PostgresqlSettings) -> str:
    return f"PostgreSQL {settings.host}:{settings.port}/{settings.database}"
