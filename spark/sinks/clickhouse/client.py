"""Statements to ClickHouse, and its errors as ours. The one place that knows the driver's exceptions."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, DataError, NotSupportedError, ProgrammingError

from libs.errors import AccessDenied, DiskFull, HeadwaterError, PipelineHalted, TransientError
from libs.types.warehouse import WarehouseTable
from spark.sinks.clickhouse.settings import Settings
from spark.sinks.port import TableRefused

# ClickHouse's source, src/Common/ErrorCodes.cpp.
_RIGHTS: Final = 497
_DENIED: Final = frozenset({192, 193, 194, _RIGHTS, 516})
_NEEDED: Final = "CREATE, ALTER, DROP, SELECT, INSERT, TRUNCATE and OPTIMIZE"
_DISK_FULL: Final = 243
_OF_THE_DRIVER: Final = (DataError, NotSupportedError, ProgrammingError)
"""What it refuses itself; without a code others are of the connection, or of a proxy between."""
_TRANSIENT: Final = frozenset(
    {159, 160, 164, 202, 203, 209, 210, 216, 225, 236, 241, 242, 252, 394, 473, 517, 519, 999}
)
"""Timeouts, too many queries or parts, memory, locks, read-only for now, Keeper, a server that shuts down."""
_RENAMED: Final = "somebody dropped or renamed one of its columns; put that back"
_GONE: Final = (
    "the table is gone; restart the job, which makes it again, or write the tenant's tables anew (docs/sinks.md, 'Write tables "
    "anew')"
)
_CHANGED: Final = (
    "somebody changed its engine, key or columns; set that back, or write the tenant's tables anew (docs/sinks.md, 'Write "
    "tables anew')"
)
_REFUSALS: Final = {
    10: _RENAMED,
    16: _RENAMED,
    47: _RENAMED,
    48: _CHANGED,
    60: _GONE,
    81: _GONE,
    122: _CHANGED,
    218: _GONE,
    248: "somebody made it anew with partitions; a batch is attached to a table's only one",
    359: "the server lets nobody drop as much at once; raise its max_table_size_to_drop and max_partition_size_to_drop",
    469: "a row breaks a CONSTRAINT that somebody put on the table; drop that",
    524: "somebody uses one of its columns in an index, a projection or a key, so that ClickHouse does not change it; drop "
    "that",
    774: "somebody made it read-only; set table_readonly back, or the disk that it lies on",
}
"""Each is about one table, whatever is done about the others, and is found before a statement has done anything: the rows of a
batch that was attached, and is told as refused, would come into a log of changes once more."""


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
def errors_named(settings: Settings, subject: WarehouseTable | str) -> Iterator[None]:
    """Raise what the driver raises within the block as ours; its text, which may quote a row, is not handed on.

    ``subject``: the table that the block is about; else, by any name, what all tables need.

    Raises:
        TableRefused: ClickHouse does not take what the block did to that table, and will not, whatever it takes of others.
        TransientError, AccessDenied, DiskFull, PipelineHalted: see ``libs.errors``.
    """
    try:
        yield
    except ClickHouseError as error:
        refused = _refusal(settings, subject, error) if isinstance(subject, WarehouseTable) else None
        raise refused or _named_error(settings, str(subject), error) from error


def _refusal(settings: Settings, table: WarehouseTable, error: Any) -> TableRefused | None:
    """None: the error is of the server, of the connection, or may get over by itself."""
    code = getattr(error, "code", None)
    if code == _RIGHTS:
        return TableRefused(
            f"{table}: ClickHouse {settings.host}:{settings.port} refuses user {settings.user} what the table needs; GRANT it "
            f"{_NEEDED} on the table's database"
        )
    because = _REFUSALS.get(code)
    return None if because is None else TableRefused(f"{table}: {because}")


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
            f"{place}: refuses user {settings.user} what {subject} needs; check the password, and GRANT it {_NEEDED} on "
            f"the tenants' databases and on headwater"
        )
    if code == _DISK_FULL:
        return DiskFull(f"{place}: the server's disk is full; free some room, then restart the job")
    if code in _TRANSIENT:
        return TransientError(f"{place}: {subject}: error {code} ({error.name}); it is tried again")
    return PipelineHalted(
        f"{place}: {subject}: error {code} ({error.name}); system.query_log has the statement, mend that"
    )
