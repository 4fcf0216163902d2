"""Connections of the model database: queries, settings, and LogMiner, which each connection has for itself.

(Oracle Database PL/SQL Packages and Types Reference, DBMS_LOGMNR; Database Error Messages.)
"""

import itertools
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from tests.oracle import redo, sql
from tests.oracle.answers import Answer, Done, OracleError, Value
from tests.oracle.logs import Log
from tests.oracle.model import Model
from tests.oracle.sql import Table

_BLOCK: Final = re.compile(r"\s*BEGIN\s+(?:SYS\.)?DBMS_LOGMNR\.(\w+)\s*(?:\((.*)\))?\s*;\s*END;?\s*\Z", re.I | re.S)
_ARGUMENT: Final = re.compile(r"(\w+)\s*=>\s*('(?:[^']|'')*'|[^,]+)")
_SETTING: Final = re.compile(r"\s*ALTER\s+SESSION\s+SET\b", re.IGNORECASE)
_NEW: Final = "DBMS_LOGMNR.NEW"


class Window(NamedTuple):
    """A session of LogMiner: redo after ``start`` up to ``end``, of these logs."""

    start: int
    end: int
    logs: tuple[Log, ...]


class ModelSession:
    """A connection."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._logs: list[Log] = []
        self._window: Window | None = None

    def execute(self, statement: str, binds: Sequence[Sequence[Value]]) -> Answer:
        """A query, a setting of the session, or a call of DBMS_LOGMNR.

        Raises:
            OracleError: as the server's.
        """
        values = binds[0] if binds else ()
        if _SETTING.match(statement):
            return Done()
        if (block := _BLOCK.match(statement)) is not None:
            self._call(block[1].upper(), _arguments(block[2] or "", values))
            return Done()
        return sql.select(statement, values, self)

    def commit(self) -> None:
        """Nothing was changed."""

    def rollback(self) -> None:
        """Nothing was changed."""

    def table(self, owner: str | None, name: str, scn: int | None) -> Table:
        """A table or view as this connection sees it.

        Raises:
            OracleError: 1306, LogMiner was not started; and those of the model.
        """
        if name == "V$LOGMNR_CONTENTS":
            return self._contents()
        return self._model.table(owner, name, scn)

    def _call(self, procedure: str, arguments: dict[str, str]) -> None:
        match procedure:
            case "ADD_LOGFILE":
                self._add(arguments)
            case "START_LOGMNR":
                self._start(*(int(Decimal(arguments[name])) for name in ("STARTSCN", "ENDSCN")))
            case "END_LOGMNR":
                if self._window is None:
                    raise OracleError(1307, "no LogMiner session is currently active")
                self._window = None
            case _:
                raise OracleError(6550, f"component '{procedure}' must be declared")

    def _add(self, arguments: dict[str, str]) -> None:
        path = arguments["LOGFILENAME"]
        log = self._model.thread.file(path)
        if log is None:
            raise OracleError(1284, f"file {path} cannot be opened")
        if arguments.get("OPTIONS", "").upper() == _NEW:
            self._logs.clear()
        if log in self._logs:
            raise OracleError(1289, f"cannot add duplicate log file {path}")
        self._logs.append(log)

    def _start(self, start: int, end: int) -> None:
        chosen = sorted(self._logs, key=lambda log: log.sequence)
        if not chosen:
            raise OracleError(1292, "no log file has been specified for the current LogMiner session")
        follow = all(later.sequence == log.sequence + 1 for log, later in itertools.pairwise(chosen))
        last = chosen[-1].next_scn
        if chosen[0].first_scn > start or not follow or (last is not None and last <= end):
            raise OracleError(1291, "missing log file")
        if end > self._model.scn:
            raise OracleError(1281, "SCN range specified is invalid")
        self._window = Window(start, end, tuple(chosen))

    def _contents(self) -> Table:
        if self._window is None:
            raise OracleError(
                1306, "dbms_logmnr.start_logmnr() must be invoked before selecting from v$logmnr_contents"
            )
        for log in self._window.logs:
            if log.is_overwritten and (log.is_deleted or not log.is_archived):
                raise OracleError(310, f"archived log contains sequence; sequence {log.sequence} required")
        start, end = self._window.start, self._window.end
        with self._model.lock:
            return redo.contents([row for row in self._model.redo if start <= row.scn <= end])


class ModelDatabase:
    """The model, for the stand-in's listener."""

    name = "ORCLCDB"

    def __init__(self, model: Model, users: dict[str, str]) -> None:
        self._model = model
        self._users = users

    def password(self, user: str) -> str | None:
        """None: there is no such user."""
        return self._users.get(user)

    def connect(self, user: str) -> ModelSession:
        """A session of its own."""
        return ModelSession(self._model)


def _arguments(text: str, binds: Sequence[Value]) -> dict[str, str]:
    """A call's named arguments, bind variables by their places."""
    left = iter(binds)
    found = {}
    for name, value in _ARGUMENT.findall(text):
        plain = value.strip()
        if plain.startswith(":"):
            plain = str(next(left))
        found[name.upper()] = plain[1:-1].replace("''", "'") if plain.startswith("'") else plain
    return found
