"""Redo logs of a model database: groups, switches, archiving, and the views that show them."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tests.oracle.answers import Column, OracleType
from tests.oracle.sql import Table

_BYTES: Final = 200 << 20
_OPEN_END: Final = 9_295_429_630_892_703_743
"""NEXT_CHANGE# of the log that is written."""
_EPOCH: Final = datetime(2026, 1, 1)


def _number(name: str) -> Column:
    return Column(name, OracleType.NUMBER, 22)


def _text(name: str) -> Column:
    return Column(name, size=513)


@dataclass(slots=True)
class Log:
    """One redo log: the redo of [first_scn, next_scn) of a thread."""

    sequence: int
    group: int
    first_scn: int
    next_scn: int | None = None
    """None while it is written."""
    is_archived: bool = False
    is_deleted: bool = False
    """Its archived copy is gone."""
    is_overwritten: bool = False
    """Its group has a later log."""

    def path(self, *, online: bool) -> str:
        """Of its online file, or of its archived copy."""
        return f"/redo/group{self.group}.log" if online else f"/archive/1_{self.sequence}.arc"


@dataclass(slots=True)
class RedoThread:
    """The redo of one instance."""

    number: int = 1
    groups: int = 3
    logs: list[Log] = field(default_factory=lambda: [Log(1, 1, 1)])

    @property
    def current(self) -> Log:
        """The log that is written."""
        return self.logs[-1]

    def switch(self, scn: int, *, archives: bool = True) -> None:
        """Go on in the next group at this SCN."""
        self.current.next_scn = scn
        self.current.is_archived = archives
        following = Log(self.current.sequence + 1, self.current.sequence % self.groups + 1, scn)
        for log in self.logs:
            log.is_overwritten = log.is_overwritten or log.group == following.group
        self.logs.append(following)

    def file(self, path: str) -> Log | None:
        """The log that lies there."""
        for log in self.logs:
            if path == log.path(online=True) and not log.is_overwritten:
                return log
            if path == log.path(online=False) and log.is_archived and not log.is_deleted:
                return log
        return None


def v_thread(threads: list[RedoThread], scn: int) -> Table:
    """V$THREAD."""
    names = ("THREAD#", "SEQUENCE#", "CHECKPOINT_CHANGE#", "ENABLE_CHANGE#", "DISABLE_CHANGE#", "LAST_REDO_CHANGE#")
    columns = [*map(_number, names), _text("STATUS"), _text("ENABLED")]
    rows = [(each.number, each.current.sequence, 1, 1, 0, scn + 1, "OPEN", "PUBLIC") for each in threads]
    return Table(columns, rows)


def v_log(threads: list[RedoThread]) -> Table:
    """V$LOG."""
    names = ("GROUP#", "THREAD#", "SEQUENCE#", "BYTES", "FIRST_CHANGE#", "NEXT_CHANGE#")
    columns = [*map(_number, names), _text("STATUS"), _text("ARCHIVED")]
    rows = [
        (
            log.group,
            thread.number,
            log.sequence,
            _BYTES,
            log.first_scn,
            log.next_scn or _OPEN_END,
            "CURRENT" if log.next_scn is None else "INACTIVE" if log.is_archived else "ACTIVE",
            "YES" if log.is_archived else "NO",
        )
        for thread in threads
        for log in thread.logs
        if not log.is_overwritten
    ]
    return Table(columns, rows)


def v_logfile(threads: list[RedoThread]) -> Table:
    """V$LOGFILE."""
    columns = [_number("GROUP#"), _text("STATUS"), _text("TYPE"), _text("MEMBER")]
    logs = [log for thread in threads for log in thread.logs if not log.is_overwritten]
    return Table(columns, [(log.group, None, "ONLINE", log.path(online=True)) for log in logs])


def v_archived_log(threads: list[RedoThread], resetlogs_id: int) -> Table:
    """V$ARCHIVED_LOG."""
    names = ("THREAD#", "SEQUENCE#", "RESETLOGS_ID", "DEST_ID", "BLOCKS", "BLOCK_SIZE", "FIRST_CHANGE#", "NEXT_CHANGE#")
    columns = [*map(_number, names), *map(_text, ("NAME", "STANDBY_DEST", "STATUS", "DELETED", "ARCHIVED"))]
    columns.append(Column("FIRST_TIME", OracleType.DATE, 7))
    rows = [
        (
            thread.number,
            log.sequence,
            resetlogs_id,
            1,
            _BYTES // 512,
            512,
            log.first_scn,
            log.next_scn,
            None if log.is_deleted else log.path(online=False),
            "NO",
            "D" if log.is_deleted else "A",
            "YES" if log.is_deleted else "NO",
            "YES",
            _EPOCH,
        )
        for thread in threads
        for log in thread.logs
        if log.is_archived
    ]
    return Table(columns, rows)
