"""Redo logs of a model database: threads, groups, switches, archiving."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from libs.stand_ins.oracle.redo import Piece
from libs.stand_ins.oracle.tables import ModelTable, Named


class Session(NamedTuple):
    """The author of a transaction."""

    user: str
    client: str | None = None
    """CLIENT_ID, by DBMS_SESSION.SET_IDENTIFIER."""


class RedoRow(NamedTuple):
    """A record of redo, as a row of V$LOGMNR_CONTENTS has it."""

    scn: int
    xid: bytes
    thread: int
    rs_id: str
    ssn: int
    piece: Piece
    timestamp: datetime
    session: Session
    table: ModelTable | None
    named: Named | None
    """The table as it was called when the record was written."""
    object_version: int
    """Of the table, then."""
    change: int
    """Rows of one change have the same number; 0: of none."""
    pdb: str | None
    """The pluggable database of its transaction."""
    info: str | None = None


class Incarnation(NamedTuple):
    """The database from an OPEN RESETLOGS on."""

    number: int
    resetlogs_scn: int
    resetlogs_id: int
    prior_scn: int
    """RESETLOGS_CHANGE# of the one before."""

    @property
    def time(self) -> datetime:
        """RESETLOGS_TIME."""
        return datetime(2025, 1, self.number)


@dataclass(slots=True)
class Log:
    """One redo log: the redo of [first_scn, next_scn) of a thread."""

    incarnation: Incarnation
    thread: int
    sequence: int
    group: int
    first_scn: int
    next_scn: int | None = None
    """None while it is written."""
    is_archived: bool = False
    deleted_from: set[int] = field(default_factory=set)
    """Destinations whose copy is gone."""
    is_overwritten: bool = False
    """Its group has a later log."""
    rows: list[RedoRow] = field(default_factory=list)

    def between(self, start: int, end: int) -> list[RedoRow]:
        """Its records from one SCN to another. Rows of one change follow each other: all of them are there, or none."""
        first = bisect_left(self.rows, start, key=_scn)
        last = bisect_right(self.rows, end, key=_scn)
        while (
            0 < first < len(self.rows) and self.rows[first].change and _are_one(self.rows[first - 1], self.rows[first])
        ):
            first -= 1
        while 0 < last < len(self.rows) and self.rows[last].change and _are_one(self.rows[last - 1], self.rows[last]):
            last += 1
        return self.rows[first:last]

    def path(self, member: int = 1) -> str:
        """Of a member of its group."""
        return f"/redo/{'abc'[member - 1]}/group{self.group}.log"

    def archived_path(self, destination: int = 1) -> str:
        """Of its copy."""
        return f"/archive{destination}/{self.thread}_{self.sequence}_{self.incarnation.resetlogs_id}.arc"


def _scn(row: RedoRow) -> int:
    return row.scn


def _are_one(one: RedoRow, other: RedoRow) -> bool:
    return one.change == other.change


@dataclass(slots=True)
class RedoThread:
    """The redo of one instance."""

    number: int
    logs: list[Log]
    groups: int = 3
    members: int = 1
    """Files of each group."""
    destinations: int = 1
    """Places that each log is archived to."""
    is_open: bool = True
    enabled_scn: int = 1
    disabled_scn: int = 0
    """0: it is enabled."""
    checkpoint_scn: int = 1
    invalid: set[str] = field(default_factory=set)
    """Paths of members whose content cannot be trusted."""

    @property
    def current(self) -> Log:
        """The log that is written."""
        return self.logs[-1]

    def switch(self, scn: int, *, archives: bool = True) -> None:
        """Go on in the next group at this SCN."""
        before = self.current
        before.next_scn = scn
        before.is_archived = archives
        self.checkpoint_scn = scn
        group = (self.number - 1) * self.groups + before.sequence % self.groups + 1
        following = Log(before.incarnation, self.number, before.sequence + 1, group, scn)
        for log in self.logs:
            log.is_overwritten = log.is_overwritten or log.group == group
        self.logs.append(following)

    def reset(self, incarnation: Incarnation, scn: int) -> None:
        """Begin again with sequence 1: nothing online is of an earlier incarnation."""
        self.current.next_scn = scn
        for log in self.logs:
            log.is_archived = log.is_overwritten = True
        self.logs.append(Log(incarnation, self.number, 1, (self.number - 1) * self.groups + 1, scn))

    def file(self, path: str) -> Log | None:
        """The log that lies there."""
        for log in self.logs:
            if not log.is_overwritten and path in [log.path(nth) for nth in range(1, self.members + 1)]:
                return log
            kept = {nth for nth in range(1, self.destinations + 1) if nth not in log.deleted_from}
            if log.is_archived and path in map(log.archived_path, kept):
                return log
        return None

    def has(self, log: Log) -> bool:
        """The log lies somewhere still."""
        archived = log.is_archived and len(log.deleted_from) < self.destinations
        return log in self.logs and (archived or not log.is_overwritten)


def first_log(incarnation: Incarnation, thread: int, groups: int, scn: int) -> Log:
    """The first one of a thread."""
    return Log(incarnation, thread, 1, (thread - 1) * groups + 1, scn)
