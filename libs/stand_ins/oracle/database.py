"""Connections of the model database: queries, changes, definitions, settings and blocks."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from libs.stand_ins.oracle import blocks, changes, definitions, dictionary, performance_views
from libs.stand_ins.oracle.answers import Answer, Done, OracleError, Rows, Value
from libs.stand_ins.oracle.faults import Faults
from libs.stand_ins.oracle.logminer import LogMiner
from libs.stand_ins.oracle.model import Model, Transaction, table_of
from libs.stand_ins.oracle.sql import Queries, Table
from libs.stand_ins.oracle.tables import ModelTable

_COMMENT: Final = re.compile(r"\s*(?:/\*.*?\*/|--[^\n]*\n)\s*", re.DOTALL)
_PACKAGES: Final = frozenset({"DBMS_METADATA", "DBMS_SESSION", "DBMS_APPLICATION_INFO", "DBMS_STATS", "DBMS_OUTPUT"})
"""Packages whose procedures do nothing here."""
_NO_EFFECT: Final = frozenset({"SET", "LOCK", "ANALYZE", "GRANT", "REVOKE", "EXPLAIN", "NULL"})
_QUERIES: Final = frozenset({"SELECT", "WITH"})
_CHANGES: Final = frozenset({"INSERT", "UPDATE", "DELETE"})
_DEFINITIONS: Final = frozenset({"CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "COMMENT"})


class ModelSession:
    """A connection."""

    def __init__(self, model: Model, user: str, *, faults: Faults, may_see: Callable[[str, str], bool]) -> None:
        self.model = model
        self.user = user
        self.log_miner = LogMiner(model)
        self.schema = user
        """Of names without an owner."""
        self._faults = faults
        self._may_see = may_see
        self._queries = Queries(self)
        self._transaction: Transaction | None = None
        self._savepoints: dict[str, int] = {}

    def execute(self, statement: str, binds: Sequence[Sequence[Value]]) -> Answer:
        """Any statement.

        Raises:
            OracleError: as the server's.
        """
        statement = _plain(statement)
        self._faults.before(statement)
        answer = self._execute(statement, binds)
        return self._faults.within(statement, self._watched(answer) if "LOGMNR_CONTENTS" in statement else answer)

    def commit(self) -> None:
        """End the transaction."""
        if self._transaction is not None:
            self._transaction.commit()
        self._transaction = None
        self._savepoints.clear()

    def rollback(self) -> None:
        """Take the transaction back."""
        if self._transaction is not None:
            self._transaction.roll_back()
        self._transaction = None
        self._savepoints.clear()

    @property
    def transaction(self) -> Transaction:
        """The open one, or a new one."""
        if self._transaction is None:
            self._transaction = self.model.begin(self.user)
        return self._transaction

    def named(self, owner: str | None, name: str) -> ModelTable:
        """A table of the model.

        Raises:
            OracleError: 942, there is none that this user sees.
        """
        found = self.model.tables.get((owner or self.schema, name))
        if found is None or not self._may_see(owner or self.schema, name):
            raise OracleError(942, "table or view does not exist")
        return found

    def table(self, owner: str | None, name: str, scn: int | None, only: Collection[str] | None = None) -> Table:
        """A table or view as this connection sees it; ``only``: the rows of a table that are looked at.

        Raises:
            OracleError: 942, there is none, or none for this user; 1306, LogMiner was not started; and those of the model.
        """
        if owner in (None, "SYS"):
            view = performance_views.view(name, self)
            if view is None:
                view = dictionary.view(name, self)
            if view is not None:
                if not self._may_see("SYS", name):
                    raise OracleError(942, "table or view does not exist")
                return view
        found = self.named(owner, name)
        with self.model.lock:
            if only is not None:
                return table_of(found, self.transaction.seen(found, only))
            if scn is None and self._transaction is not None and self._transaction.start_scn:
                return table_of(found, self._transaction.seen(found))
            return self.model.table(found.named.owner, found.named.name, scn)

    def function(self, name: str, arguments: Sequence[Value]) -> Value:
        """A function that asks the database.

        Raises:
            OracleError: 904, there is none.
        """
        return dictionary.function(name, arguments, self)

    def _execute(self, statement: str, binds: Sequence[Sequence[Value]]) -> Answer:
        values = binds[0] if binds else ()
        words = statement.split(None, 2)
        verb = words[0].upper().rstrip(";") if words else ""
        if verb in _QUERIES:
            return self._queries.select(statement.rstrip("; \n"), values)
        if verb in _CHANGES:
            return Done(sum(changes.change(statement, row, self, self._queries) for row in (binds or ((),))))
        if verb in ("BEGIN", "DECLARE"):
            return blocks.run(statement, values, self, self._queries)
        if verb == "ALTER" and len(words) > 1 and words[1].upper() in ("SESSION", "SYSTEM"):
            self._set(statement)
            return Done()
        if verb in _DEFINITIONS:
            self.commit()
            definitions.define(statement.rstrip("; \n"), self)
            return Done()
        if verb in _NO_EFFECT:
            return Done()
        return self._end(verb, statement)

    def _end(self, verb: str, statement: str) -> Done:
        name = statement.rstrip("; \n").split()[-1].upper()
        if verb == "COMMIT":
            self.commit()
        elif verb == "SAVEPOINT":
            self._savepoints[name] = self.transaction.savepoint()
        elif verb == "ROLLBACK" and re.search(r"\bTO\b", statement, re.IGNORECASE):
            if name not in self._savepoints:
                raise OracleError(1086, f"savepoint '{name}' never established in this session or is invalid")
            self.transaction.roll_back_to(self._savepoints[name])
        elif verb == "ROLLBACK":
            self.rollback()
        else:
            raise OracleError(900, "invalid SQL statement")
        return Done()

    def _set(self, statement: str) -> None:
        if re.search(r"\bSWITCH\s+LOGFILE\b|\bARCHIVE\s+LOG\s+CURRENT\b", statement, re.IGNORECASE):
            self.model.switch_logs()
        found = re.search(r"\bCURRENT_SCHEMA\s*=\s*\"?(\w+)", statement, re.IGNORECASE)
        if found:
            self.schema = found[1].upper()

    def call(self, package: str, procedure: str, arguments: Mapping[str, Value]) -> None:
        """A package's procedure.

        Raises:
            OracleError: 6550, there is none, or none for this user; and those of LogMiner.
        """
        if package == "DBMS_LOGMNR":
            if not self._may_see("SYS", "DBMS_LOGMNR"):
                raise OracleError(6550, "PLS-00201: identifier 'DBMS_LOGMNR' must be declared")
            self.log_miner.call(procedure, arguments)
        elif package not in _PACKAGES:
            raise OracleError(6550, f"PLS-00201: identifier '{package}.{procedure}' must be declared")

    def carry_out(self, statement: str, binds: Sequence[Value]) -> Answer:
        """One statement of a block."""
        return self._execute(_plain(statement), [binds])

    def _watched(self, answer: Answer) -> Answer:
        """Rows of LogMiner end with an error once a log of the session is gone."""
        if not isinstance(answer, Rows):
            return answer
        rows = answer.rows

        def watched() -> Iterator[Sequence[Value]]:
            for nth, row in enumerate(rows):
                if nth % 100 == 0:
                    self.log_miner.check_logs()
                yield row

        return Rows(answer.columns, watched())


class ModelDatabase:
    """The model, for the stand-in's listener."""

    name = "ORCLCDB"

    def __init__(
        self, model: Model, users: Mapping[str, str], *, grants: Mapping[str, Collection[str]] | None = None
    ) -> None:
        """``users``: passwords by name in capitals.

        ``grants``: of users that may not see everything, the objects that they see, such as ``SHOP.ORDERS`` or
        ``V$DATABASE``; views of the dictionary that begin with ALL_ or USER_ are everybody's.
        """
        self.model = model
        self.faults = Faults()
        self._users = users
        self._grants = {} if grants is None else grants

    def password(self, user: str) -> str | None:
        """None: there is no such user."""
        return self._users.get(user)

    def connect(self, user: str) -> ModelSession:
        """A session of its own."""
        granted = self._grants.get(user)

        def may_see(owner: str, name: str) -> bool:
            if granted is None or owner == user or (owner == "SYS" and name.startswith(("ALL_", "USER_"))):
                return True
            plain = name.replace("V_$", "V$")
            return (plain if owner == "SYS" else f"{owner}.{name}") in granted

        return ModelSession(self.model, user, faults=self.faults, may_see=may_see)


def _plain(statement: str) -> str:
    """The statement from its first word on."""
    while (found := _COMMENT.match(statement)) is not None:
        statement = statement[found.end() :]
    return statement.strip()
