"""Windows of redo: chosen from the server's views, and mined by LogMiner.

One connection mines, another one asks the views. A window is (start, end] of SCNs. LogMiner reads a log from its beginning,
so a window is as large as some seconds of its work. Nothing is written to the source, and COMMITTED_DATA_ONLY is never used:
the server would keep whole transactions in memory, and lose those that began before the window.
Everything here blocks.
"""

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import structlog

from libs.errors import HeadwaterError, PipelineHalted, PositionPurged
from libs.oracle.error_codes import Treatment, treatment_of
from libs.oracle.redo_logs import LogChoice, LogFile, LogViews, MissingLog, choose_logs, end_of_window, written_up_to
from libs.source.oracle import client
from libs.source.oracle.client import Connection, call, fetch, oracle_error_code
from libs.source.oracle.settings import MiningSettings, OracleDatabaseSettings
from services.logminer_reader.log_views import need_archived, read_log_views
from services.logminer_reader.mined_rows import CapturedTables, MinedRow, transaction_query, window_query

log = structlog.get_logger()

_ADD: Final = "BEGIN DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => :1, OPTIONS => DBMS_LOGMNR.{}); END;"
_START: Final = (
    "BEGIN DBMS_LOGMNR.START_LOGMNR(STARTSCN => :1, ENDSCN => :2,"
    " OPTIONS => DBMS_LOGMNR.DICT_FROM_ONLINE_CATALOG + DBMS_LOGMNR.NO_ROWID_IN_STMT); END;"
)
_END: Final = "BEGIN DBMS_LOGMNR.END_LOGMNR; END;"
_LEAST_BYTES: Final = 64 << 20
_MOST_BYTES: Final = 2 << 30
_AIM_S: Final = 5.0
"""A full window's size is scaled towards so many seconds."""
_UNLISTED_LOOKS: Final = 6
"""So often is a log looked for that no view lists, with pauses of 1 to 16 s: the archiver may be at it."""
_FAULTS_OF_SMALLEST: Final = 3


class Window(NamedTuple):
    """Redo of the SCNs after ``start``, up to ``end``."""

    start: int
    end: int
    logs: tuple[LogFile, ...]
    is_all: bool
    """It ends where the redo that is written ends."""


class _Mined(NamedTuple):
    """A log of LogMiner's session."""

    thread: int
    sequence: int
    path: str


class MissingRedo(PositionPurged):
    """A log is gone. A person restores it from a backup, or has the source copied again."""


class Windows:
    """LogMiner on one database, for one incarnation's redo."""

    def __init__(self, database: OracleDatabaseSettings, settings: MiningSettings, resetlogs_id: int) -> None:
        self._database = database
        self._settings = settings
        self._resetlogs_id = resetlogs_id
        self.ends_before: int | None = None
        """The first SCN of the incarnation that follows; None: this one goes on."""
        self._views: Connection | None = None
        self._miner: Connection | None = None
        self._added: frozenset[_Mined] = frozenset()
        """Logs of the session on ``_miner``; empty: there is no session."""
        self._connected_s = self._session_s = 0.0
        self._window_bytes = settings.window_redo_mb << 20
        self._unlisted = 0
        self._smallest_faults = 0

    def close(self) -> None:
        """Close both connections. No thread uses them."""
        for connection in (self._views, self._miner):
            if connection is not None:
                client.hang_up(connection)
        self._views = self._miner = None
        self._added = frozenset()

    def interrupt(self) -> None:
        """End the call that another thread is in; it raises SourceUnavailable."""
        for connection in (self._views, self._miner):
            if connection is not None:
                client.interrupt(connection)

    @property
    def views(self) -> Connection:
        """The connection that asks. Raises as ``connect``."""
        if self._views is None:
            self._views = client.connect(self._database)
        return self._views

    @property
    def awaits_log(self) -> bool:
        """The last answer of ``next`` was None because of a log that no view lists at this moment."""
        return self._unlisted > 0

    def next(self, start: int) -> Window | None:
        """The window after an SCN; None: nothing more is written yet, or a log is awaited.

        Raises:
            MissingRedo: a log of the redo after ``start`` is gone.
            SourceUnavailable, AccessDenied, PipelineHalted: as ``query``.
        """
        choice, bound = self._choose(start)
        self._require_listed(choice, start)
        if choice.end <= start:
            return None
        end = end_of_window(choice, start, self._window_bytes)
        logs = tuple(each for each in choice.logs if each.first_scn <= end)
        return Window(start, end, logs, is_all=end >= bound)

    def whole(self, start: int, end: int) -> Window:
        """The window of (start, end], of any size; its redo was mined before.

        Raises:
            MissingRedo: a log of it is gone.
            SourceUnavailable, AccessDenied, PipelineHalted: as ``query``.
        """
        views = self._log_views(with_archived=True)
        choice = choose_logs(views, start, end, self._settings.archive_destinations)
        if choice.end < end:
            raise _missing_redo(choice.missing[0], start)
        return Window(start, end, choice.logs, is_all=True)

    def _choose(self, start: int) -> tuple[LogChoice, int]:
        views = self._log_views(with_archived=False)
        bound = written_up_to(views.threads, start)
        choice = choose_logs(views, start, bound, self._settings.archive_destinations)
        if need_archived(views, start, choice):
            views = self._log_views(with_archived=True)
            bound = written_up_to(views.threads, start)
            choice = choose_logs(views, start, bound, self._settings.archive_destinations)
        return choice, bound

    def _log_views(self, *, with_archived: bool) -> LogViews:
        return read_log_views(self.views, self._resetlogs_id, with_archived=with_archived, ends_before=self.ends_before)

    def _require_listed(self, choice: LogChoice, start: int) -> None:
        """Raises MissingRedo: the next log is deleted everywhere, or no view has listed it for some time."""
        if not choice.missing or choice.end > start:
            self._unlisted = 0
            return
        deleted = [each for each in choice.missing if each.is_deleted]
        followed = [each for each in choice.missing if each.next_scn is not None]
        self._unlisted += 1
        if deleted or (followed and self._unlisted > _UNLISTED_LOOKS):
            raise _missing_redo((deleted or followed)[0], start)
        log.warning("log_awaited", thread=choice.missing[0].thread, sequence=choice.missing[0].sequence)

    def rows(self, window: Window, captured: CapturedTables) -> Iterator[list[MinedRow]]:
        """The window's rows of these tables, by SCN, some thousands at a time.

        Raises:
            SourceUnavailable, AccessDenied, PipelineHalted: as ``query``; see ``recover``.
        """
        yield from self._rows(window, window_query(captured, self._database.pdb_name))

    def rows_of(self, window: Window, captured: CapturedTables, xid: bytes) -> Iterator[list[MinedRow]]:
        """The same, of one transaction alone."""
        yield from self._rows(window, transaction_query(xid, captured, self._database.pdb_name))

    def _rows(self, window: Window, statement: str) -> Iterator[list[MinedRow]]:
        began_s = time.monotonic()
        miner = self._start(window)
        for rows in fetch(miner, statement, [window.start, window.end]):
            yield [MinedRow._make(row) for row in rows]
        self._smallest_faults = 0
        if not window.is_all:
            factor = _AIM_S / max(time.monotonic() - began_s, 0.1)
            self._window_bytes = int(min(max(self._window_bytes * factor, _LEAST_BYTES), _MOST_BYTES))

    def _start(self, window: Window) -> Connection:
        now_s = time.monotonic()
        if self._miner is not None and now_s - self._connected_s > self._settings.connection_max_s:
            self._hang_up()
        if self._miner is None:
            self._miner = client.connect(self._database)
            self._connected_s = now_s
        logs = {_Mined(each.thread, each.sequence, each.path): each.path for each in window.logs}
        if self._added != logs.keys() or now_s - self._session_s > self._settings.session_max_s:
            if self._added:
                self._added = frozenset()
                call(self._miner, _END)
            for nth, path in enumerate(logs.values()):
                call(self._miner, _ADD.format("ADDFILE" if nth else "NEW"), [path])
            self._added, self._session_s = frozenset(logs), now_s
        call(self._miner, _START, [window.start + 1, window.end])
        return self._miner

    def _hang_up(self) -> None:
        if self._miner is not None:
            client.hang_up(self._miner)
        self._miner, self._added = None, frozenset()

    def recover(self, error: HeadwaterError) -> None:
        """Prepare to mine the rest of a window that broke off; the caller asks for the window after the last whole SCN.

        Raises:
            HeadwaterError: ``error`` itself, where no other window helps.
            PipelineHalted: LogMiner fails even at the smallest window.
        """
        treatment = treatment_of(oracle_error_code(error))
        self._hang_up()
        if treatment is Treatment.SMALLER_WINDOW:
            if self._window_bytes <= _LEAST_BYTES:
                self._smallest_faults += 1
            if self._smallest_faults >= _FAULTS_OF_SMALLEST:
                raise PipelineHalted(
                    f"LogMiner fails at the smallest window: {error}: ask Oracle's support, or re-snapshot the source"
                ) from error
            self._window_bytes = max(self._window_bytes // 2, _LEAST_BYTES)
        elif treatment not in (Treatment.CHOOSE_LOGS, Treatment.NEW_SESSION):
            raise error
        log.info("window_broke_off", reason=str(error), treatment=treatment.value)


def _missing_redo(missing: MissingLog, start: int) -> MissingRedo:
    return MissingRedo(
        f"log {missing.sequence} of thread {missing.thread} is gone (it begins at SCN {missing.first_scn}; the source was read "
        f"up to SCN {start}): bring it back ({missing.remedy}), or re-snapshot the source"
    )
