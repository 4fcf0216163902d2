"""The account by which Headwater reads an Oracle database: its privileges, and the statements that make it.

(Oracle Database Utilities, "Using LogMiner to Analyze Redo Log Files"; Security Guide, "Managing Common Users".)
"""

import re
from typing import Final

from libs.oracle.preflight import REQUIRED_VIEWS

SYSTEM_PRIVILEGES: Final = ("CREATE SESSION", "LOGMINING", "SELECT ANY TRANSACTION")
"""To log in, to call LogMiner, and to read its rows."""
IN_CONTAINERS: Final = "SET CONTAINER"
"""Of a common user: to read the pluggable database whose tables are captured."""
READING: Final = ("SELECT ANY TABLE", "FLASHBACK ANY TABLE")
"""To copy tables, as of an SCN. SELECT and FLASHBACK on each captured table will do instead."""
ASKED_VIEWS: Final = ("V$LOGMNR_CONTENTS", "V$UNDOSTAT")
"""Beside ``REQUIRED_VIEWS``: rows of LogMiner, which only a session of it has, and figures for a warning."""
_PUBLIC: Final = frozenset({"NLS_DATABASE_PARAMETERS"})
"""Everybody may read them."""
_COMMON: Final = re.compile(r"c##", re.IGNORECASE)
PLAIN_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_$#]{0,29}")
"""A user's name that needs no quotes."""


def is_common(user: str) -> bool:
    """The user is one of all containers: its name begins with ``C##``."""
    return _COMMON.match(user) is not None


def create_user(user: str, password: str) -> str:
    """The statement that makes the account.

    Raises:
        ValueError: no statement can have such a name or password.
    """
    if not PLAIN_NAME.fullmatch(user):
        raise ValueError(f"a user's name is letters, digits and _$#, and begins with a letter; {user!r} is none")
    if '"' in password or not password.isprintable() or not 1 <= len(password.encode()) <= 30:
        raise ValueError("a password has 1 to 30 bytes, and no double quote")
    return f'CREATE USER {user} IDENTIFIED BY "{password}"{_everywhere(user)}'


def grant_statements(user: str) -> tuple[str, ...]:
    """All that the account needs to follow the database, and nothing else."""
    privileges = [*SYSTEM_PRIVILEGES, *([IN_CONTAINERS] if is_common(user) else []), *READING]
    views = (name for name in (*REQUIRED_VIEWS, *ASKED_VIEWS) if name not in _PUBLIC)
    everywhere = _everywhere(user)
    return (
        f"GRANT {', '.join(privileges)} TO {user}{everywhere}",
        f"GRANT EXECUTE ON SYS.DBMS_LOGMNR TO {user}{everywhere}",
        *(f"GRANT SELECT ON SYS.{view.replace('V$', 'V_$')} TO {user}{everywhere}" for view in views),
    )


def _everywhere(user: str) -> str:
    return " CONTAINER=ALL" if is_common(user) else ""
