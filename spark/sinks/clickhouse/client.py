"""Statements to ClickHouse, and its errors as ours. The one place that knows the driver's exceptions."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, DataError, NotSupportedError, ProgrammingError

from libs.errors import AccessDenied, DiskFull, HeadwaterError, PipelineHalted, TransientError
from spark.sinks.clickhouse.settings import Settings
from spark.sinks.port import TableRefused

# ClickHouse's source, src/Common/ErrorCodes.cpp.
_DENIED: Final = frozenset({192, 193, 194, 497, 516})
_DISK_FULL: Final = 243
_OF_THE_DRIVER: Final = (DataError, NotSupportedError, ProgrammingError)
"""What it refuses itself; without a code others are of the connection, or of a proxy between."""
_TRANSIENT: Final = frozenset(
    {159, 160, 164, 202, 203, 209, 210, 216, 225, 236, 241, 242, 252, 394, 473, 517, 519, 999}
)
"""Timeouts, too many queries or parts, memory, locks, read-only for now, Keeper, a server that shuts down."""
_REFUSALS: Final = {
    10: "somebody dropped or renamed one of its columns; put that back",
    16: "somebody dropped or renamed one of its columns; put that back",
    47: "somebody dropped or renamed one of its columns; put that back",
    60: "the table is gone; restart the job, which makes it again, or write the tenant's tables anew "
    "(docs/sinks.md, 'Write tables anew')",
    122: "somebody changed its engine, key or columns; set that back, or write the tenant's tables anew (docs/sinks.md, "
    "'Write tables anew')",
    524: "somebody uses one of its columns in an index, a projection or a key, so that ClickHouse does not change it; drop "
    "that",
}
"""Each is about one table, whatever is done about the others."""


def connect(settings: Settings, *, application: str) -> Client:
    """A client, for any thread.

    Raises:
        TransientError: the server does not answer.
        AccessDenied: it does not let this user in.
    """
    with errors_named(settings, "the connection"):
        return clickhouse_connect.get_client(
            host=settings.host,
            port=settings.port,
            username=settings.user,
            password=settings.password.reveal(),
            secure=settings.is_secure,
            ca_cert=settings.tls_ca_file,
            connect_timeout=settings.connect_timeout_s,
            send_receive_timeout=settings.statement_timeout_s,
            client_name=application,
            # A session would run one statement at a time.
            autogenerate_session_id=False,
        )


@contextlib.contextmanager
def errors_named(settings: Settings, subject: str) -> Iterator[None]:
    """Raise what the driver raises within the block as ours; its text, which may quote a row, is not handed on.

    Raises:
        TableRefused: ClickHouse does not take what the block did to ``subject``, a table.
        TransientError, AccessDenied, DiskFull, PipelineHalted: see ``libs.errors``.
    """
    try:
        yield
    except ClickHouseError as error:
        raise _named_error(settings, subject, error) from error


def _named_error(settings: Settings, subject: str, error: Any) -> HeadwaterError:
    place, code = f"ClickHouse {settings.host}:{settings.port}", getattr(error, "code", None)
    if code is None and isinstance(error, _OF_THE_DRIVER):
        return PipelineHalted(f"{place}: {subject}: the driver has {type(error).__name__}; report it")
    if code is None:
        return TransientError(
            f"{place}: does not answer; check host and port, is_secure and tls_ca_file, and that the server runs"
        )
    if code in _DENIED:
        return AccessDenied(
            f"{place}: refuses user {settings.user} what {subject} needs; check the password, and GRANT it CREATE, ALTER, "
            f"DROP, SELECT, INSERT and OPTIMIZE on the tenants' databases and on headwater"
        )
    if code == _DISK_FULL:
        return DiskFull(f"{place}: the server's disk is full; free some room, then restart the job")
    if code in _TRANSIENT:
        return TransientError(f"{place}: {subject}: error {code} ({error.name}); it is tried again")
    if (because := _REFUSALS.get(code)) is not None:
        return TableRefused(f"{subject}: {because}")
    return PipelineHalted(
        f"{place}: {subject}: error {code} ({error.name}); system.query_log has the statement, mend that"
    )
