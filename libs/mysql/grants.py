"""The account by which Headwater reads a MySQL server: its privileges, and the statements that make it.

No other place lists them: the pre-flight, ``headwater init`` and the demo ask here, and a test compares the pages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from libs.mysql.identifiers import quote_identifier


@dataclass(frozen=True, slots=True)
class Privilege:
    """A privilege on all of the server, or on the captured tables."""

    name: str
    without_it: str
    """The work that an account without the privilege cannot do."""


FOLLOWING: Final = (
    Privilege("REPLICATION SLAVE", "it cannot read the log"),
    Privilege("REPLICATION CLIENT", "it cannot ask where the log stands"),
)
"""On all of the server. A reader does not start without them."""
LOCKING: Final = Privilege("FLUSH_TABLES", "the snapshot cannot hold commits back for a moment")
"""On all of the server. A server with GTIDs can be copied without it."""
LOCKING_OLDER: Final = "RELOAD"
"""The same of MySQL before 8.0.23. It allows more, for example FLUSH LOGS."""
SEEING: Final = ("SHOW VIEW", "TRIGGER", "SHOW_ROUTINE")
"""On all of the server: to see by which views, triggers and routines a statement changes other tables than it names. Only a
change that is logged as a statement needs them, so nobody is asked to grant them before. MySQL has none that shows triggers
without the right to make some."""
READING: Final = Privilege("SELECT", "it cannot copy a row")
"""On each captured table; ``GRANT … ON database.*`` covers tables that are created later."""


def create_user(user: str, password: str) -> str:
    """The statement that makes the account; an account of that name keeps its password."""
    return f"CREATE USER IF NOT EXISTS {_text(user)}@'%' IDENTIFIED BY {_text(password)}"


def grant_statements(user: str, databases: Sequence[str]) -> tuple[str, ...]:
    """All that the account needs to follow ``databases``, and nothing else.

    An underscore in a database's name stays as it is. It is a wildcard of GRANT, but an escaped one would name another
    database on a server with partial_revokes.
    """
    account = f"{_text(user)}@'%'"
    everywhere = ", ".join(privilege.name for privilege in (*FOLLOWING, LOCKING))
    return (
        f"GRANT {everywhere} ON *.* TO {account}",
        *(f"GRANT {READING.name} ON {quote_identifier(database)}.* TO {account}" for database in databases),
    )


def _text(value: str) -> str:
    """A string literal, as MySQL reads one without NO_BACKSLASH_ESCAPES."""
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
