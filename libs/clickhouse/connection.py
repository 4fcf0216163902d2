"""Statements to ClickHouse, and its errors as ours. The one place that knows the driver's exceptions."""

import contextlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, DataError, NotSupportedError, ProgrammingError

from libs.clickhouse.settings import ClickhouseWarehouse
from libs.errors import AccessDenied, DiskFull, HeadwaterError, PipelineHalted, TransientError

Failure = ClickHouseError
"""Every error of the driver."""
# ClickHouse's source, src/Common/ErrorCodes.cpp.
RIGHTS: Final = 497
"""The user lacks a grant on a name in the statement."""
NEEDED: Final = "CREATE, ALTER, DROP, SELECT, INSERT, TRUNCATE and OPTIMIZE"
"""The rights on the tenants' databases that the sink needs."""
_DENIED: Final = frozenset({192, 193, 194, RIGHTS, 516})
_DISK_FULL: Final = 243
_OF_THE_DRIVER: Final = (DataError, NotSupportedError, ProgrammingError)
"""Refused by the driver itself. Other errors without a code come from the connection, or from a proxy between."""
_TRANSIENT: Final = frozenset(
    {159, 160, 164, 202, 203, 209, 210, 216, 225, 236, 241, 242, 252, 394, 473, 517, 519, 999}
)
"""Timeouts, too many queries or parts, memory, locks, read-only for now, Keeper, a server that shuts down."""


def connect(
    settings: ClickhouseWarehouse, *, application: str, query_settings: Mapping[str, Any] = MappingProxyType({})
) -> Client:
    """A client, for any thread. ``query_settings``: of each statement, by ClickHouse's names.

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
            settings=dict(query_settings),
            # A session would run one statement at a time.
            autogenerate_session_id=False,
        )


@contextlib.contextmanager
def errors_named(settings: ClickhouseWarehouse, subject: str) -> Iterator[None]:
    """Raise the driver's errors within the block as ``named_error``."""
    try:
        yield
    except ClickHouseError as error:
        raise named_error(settings, subject, error) from error


def code_of(error: ClickHouseError) -> int | None:
    """The server's; None: the error is of the driver or of the connection."""
    code: int | None = getattr(error, "code", None)
    return code


def named_error(settings: ClickhouseWarehouse, subject: str, error: Any) -> HeadwaterError:
    """An error during the work on ``subject``, by the caller's next step. No value of a row is in its text.

    TransientError where the same may work later; AccessDenied, DiskFull or PipelineHalted where a human must see to it.
    """
    place, code = f"ClickHouse {settings.host}:{settings.port}", code_of(error)
    if code is None and isinstance(error, _OF_THE_DRIVER):
        return PipelineHalted(f"{place}: {subject}: the driver has {type(error).__name__}; report it")
    if code is None:
        return TransientError(
            f"{place}: does not answer; check host and port, is_secure and tls_ca_file, and that the server runs"
        )
    if code in _DENIED:
        return AccessDenied(
            f"{place}: refuses user {settings.user} a right that {subject} needs; check the password, and GRANT it {NEEDED} on "
            f"the tenants' databases and on headwater"
        )
    if code == _DISK_FULL:
        return DiskFull(f"{place}: the server's disk is full; free some room, then restart the job")
    if code in _TRANSIENT:
        return TransientError(f"{place}: {subject}: error {code} ({error.name}); it is tried again")
    return PipelineHalted(
        f"{place}: {subject}: error {code} ({error.name}); system.query_log has the statement, mend that"
    )
