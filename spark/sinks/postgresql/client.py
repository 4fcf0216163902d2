"""Transactions of the sink on connections that are kept between batches, and PostgreSQL's errors about one table."""

import contextlib
import select
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import psycopg

from libs.errors import DiskFull, HeadwaterError, PipelineHalted
from libs.postgresql.connection import connect, named_error
from libs.postgresql.names import REGISTRY
from spark.sinks.port import RowsRefused, TableRefused
from spark.sinks.postgresql.settings import Settings

Connection = psycopg.Connection[tuple[Any, ...]]

# PostgreSQL manual, appendix A. Each is about one table alone.
_ROW_REFUSALS: Final = {
    "22021": "a text holds the character U+0000, which PostgreSQL has no form for; exclude or mask the column in the "
    "tenant's document, or take another warehouse for the tenant",
    "22P02": "a value is none of its column's type; set the column's type back if somebody changed it, else report it",
    "22003": "a number is too large for its column; set the column's type back if somebody changed it, else report it",
    "22007": "a date or time has no form in PostgreSQL; mend the row at the source",
    "22008": "a date or time is out of PostgreSQL's range; mend the row at the source",
}
"""Each is about one row."""
_REFUSALS: Final = {
    "23502": "a row lacks a value that the table wants; drop the NOT NULL that somebody put on it",
    "23505": "a row breaks a UNIQUE that somebody put on the table; drop that",
    "23503": "a row breaks a FOREIGN KEY that somebody put on the table; drop that: rows of two tables come in two commits",
    "23514": "a row breaks a CHECK that somebody put on the table; drop that",
    "54000": "a row's key is too long for an index of PostgreSQL (2,704 bytes); set the tenant's sink.mode to append",
    "54011": "it has more columns than a table of PostgreSQL can have (1,600); exclude some in the tenant's document",
    "0A000": "a view or rule uses a column whose type must change; drop it, and make it again afterwards",
    "42710": "another object has the table's name; rename that, or choose another warehouses.postgresql.schema",
    "42P07": "a table of that name is there already and is not Headwater's; rename that, or choose another "
    "warehouses.postgresql.schema",
    "42P01": "the table is gone; restart the job, which makes it again, or write the tenant's tables again "
    "(docs/sinks/repair.md, 'Write tables again')",
    "42703": "somebody dropped or renamed one of its columns; put that back",
    "42P10": "somebody dropped its primary key; put that back",
}
_OF_SERVER: Final = frozenset({"25", "28", "3D"})
"""Classes of errors without a table at fault: the state of the transaction, authentication, the database."""


class Connections:
    """Transactions on one database; for any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[Connection] = []

    @contextlib.contextmanager
    def transaction(self, subject: str) -> Iterator[Connection]:
        """Begin one; commit it when the block ends well, and roll it back when not.

        Raises:
            TableRefused: PostgreSQL does not take what the block did to ``subject``, a table.
            TransientError, AccessDenied, DiskFull, PipelineHalted: of the server, and not of a table (``table_error``).
        """
        connection = self._take()
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {round(self._settings.lock_timeout_s * 1000)}")
                yield connection
        except psycopg.Error as error:
            connection.close()
            raise table_error(self._settings, subject, error) from error
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)

    def open_transaction(self, subject: str) -> "OpenTransaction":
        """Begin one that several threads write in, and that ends on request.

        Raises:
            TransientError, AccessDenied, DiskFull, PipelineHalted: see ``libs.postgresql.connection``.
        """
        return OpenTransaction(self, self._settings, subject)

    def close(self) -> None:
        """End the connections that wait."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _take(self) -> Connection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                # Nothing is due on an idle connection but its end.
                if not connection.closed and not select.select([connection.fileno()], [], [], 0)[0]:
                    return connection
                connection.close()
        connection = connect(self._settings, application="headwater-sink")
        connection.autocommit = True  # ``transaction`` begins transactions
        return connection

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if len(self._idle) < self._settings.idle_connections:
                self._idle.append(connection)
                return
        connection.close()


class OpenTransaction:
    """A transaction in parts, each of which may fail by itself."""

    def __init__(self, connections: Connections, settings: Settings, subject: str) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._end = ExitStack()
        self._connection = self._end.enter_context(connections.transaction(subject))
        # Between two parts Spark is at work.
        self._connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")

    @contextlib.contextmanager
    def part(self, subject: str) -> Iterator[Connection]:
        """Keep the block's writes when it ends well, and undo them alone when not. One part at a time; others wait.

        Raises:
            TableRefused: PostgreSQL does not take what the block did to ``subject``, a table.
            TransientError, DiskFull, PipelineHalted: see ``libs.postgresql.connection``; the whole transaction is lost.
        """
        with self._lock:
            try:
                with self._connection.transaction():
                    yield self._connection
            except psycopg.Error as error:
                raise table_error(self._settings, subject, error) from error

    def commit(self) -> None:
        """All parts are there for everybody, at once. Raises as ``Connections.transaction``."""
        with self._lock:
            self._end.close()

    def roll_back(self) -> None:
        """As if no part had ever been; the connection ends."""
        with self._lock:
            given_up = _GivenUp()
            self._end.__exit__(type(given_up), given_up, None)


class _GivenUp(Exception):
    """Ends a transaction's block as failed."""


def table_error(settings: Settings, subject: str, error: psycopg.Error) -> HeadwaterError:
    """The error to raise for the driver's; its text, which may quote a row, is not handed on.

    A lasting error of the server about a statement on a table is that table's: rights that somebody took
    away, a trigger that raises. Others may be fine.
    """
    if (because := row_refusal(error)) is not None:
        return RowsRefused(f"{subject}: {because}")
    code = error.sqlstate or ""
    if (because := _REFUSALS.get(code)) is not None:
        return TableRefused(f"{subject}: {because}")
    named = named_error(settings, subject, error)
    is_of_all = subject == REGISTRY or isinstance(named, DiskFull) or code[:2] in _OF_SERVER
    return TableRefused(str(named)) if isinstance(named, PipelineHalted) and not is_of_all else named


def row_refusal(error: psycopg.Error) -> str | None:
    """The mistake in a row, and the remedy; None: the error is about something else."""
    return _ROW_REFUSALS.get(error.sqlstate or "")
