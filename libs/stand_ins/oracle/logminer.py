"""DBMS_LOGMNR and V$LOGMNR_CONTENTS, which each connection has for itself.

(Oracle Database PL/SQL Packages and Types Reference, DBMS_LOGMNR; Database Reference, V$LOGMNR_CONTENTS; Error Messages.)
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from libs.oracle.log_rows import Operation
from libs.stand_ins.oracle import redo
from libs.stand_ins.oracle.answers import Column, OracleError, OracleType, Value, row_id_of
from libs.stand_ins.oracle.logs import Log, RedoRow
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.sql import Table
from libs.stand_ins.oracle.tables import ModelTable

OPTIONS: Final = {
    "NEW": 1,
    "REMOVEFILE": 2,
    "ADDFILE": 3,
    "COMMITTED_DATA_ONLY": 2,
    "SKIP_CORRUPTION": 4,
    "DDL_DICT_TRACKING": 8,
    "DICT_FROM_ONLINE_CATALOG": 16,
    "DICT_FROM_REDO_LOGS": 32,
    "NO_SQL_DELIMITER": 64,
    "PRINT_PRETTY_SQL": 512,
    "CONTINUOUS_MINE": 1024,
    "NO_ROWID_IN_STMT": 2048,
    "STRING_LITERALS_IN_STMT": 4096,
}
"""Constants of the package."""
_COMMITTED_ONLY: Final = OPTIONS["COMMITTED_DATA_ONLY"]
_CONTINUOUS: Final = OPTIONS["CONTINUOUS_MINE"]
_FROM_REDO: Final = OPTIONS["DICT_FROM_REDO_LOGS"]
_NAMES: Final = {
    Operation.LOB_LOCATOR: "SELECT_LOB_LOCATOR",
    Operation.LONG_TEXT_BEGIN: "32K_BEGIN",
    Operation.LONG_TEXT_WRITE: "32K_WRITE",
    Operation.LONG_TEXT_END: "32K_END",
    Operation.XML_BEGIN: "XML DOC BEGIN",
    Operation.XML_WRITE: "XML DOC WRITE",
    Operation.XML_END: "XML DOC END",
}
_TEXT_BYTES: Final = 4_000
_FIRST_PDB: Final = 3
"""CON_ID: 1 is the root, 2 the seed."""


class Window(NamedTuple):
    """A session of LogMiner: redo from ``start`` up to ``end``, of these logs."""

    start: int
    end: int
    logs: tuple[Log, ...]
    committed_only: bool


class LogMiner:
    """One connection's session of LogMiner."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.paths: dict[str, Log] = {}
        """Added files."""
        self._window: Window | None = None

    def call(self, procedure: str, arguments: Mapping[str, Value]) -> None:
        """A procedure of the package.

        Raises:
            OracleError: as the server's.
        """
        match procedure:
            case "ADD_LOGFILE":
                self._add(
                    str(arguments["LOGFILENAME"]), int(Decimal(str(arguments.get("OPTIONS", OPTIONS["ADDFILE"]))))
                )
            case "REMOVE_LOGFILE":
                if self.paths.pop(str(arguments["LOGFILENAME"]), None) is None:
                    raise OracleError(1290, f"cannot remove unlisted log file {arguments['LOGFILENAME']!s}")
            case "START_LOGMNR":
                start, end = (int(Decimal(str(arguments.get(name) or 0))) for name in ("STARTSCN", "ENDSCN"))
                self._start(start, end, int(Decimal(str(arguments.get("OPTIONS") or 0))))
            case "END_LOGMNR":
                if self._window is None:
                    raise OracleError(1307, "no LogMiner session is currently active")
                self._window = None
            case _:
                raise OracleError(6550, f"component '{procedure}' must be declared")

    def contents(self) -> Table:
        """V$LOGMNR_CONTENTS.

        Raises:
            OracleError: 1306, no session was started; 310, a log of it is gone.
        """
        if self._window is None:
            raise OracleError(
                1306, "dbms_logmnr.start_logmnr() must be invoked before selecting from v$logmnr_contents"
            )
        self.check_logs()
        window = self._window
        with self._model.lock:
            rows = _without_cut_changes(self._model.rows_of(window.logs, window.start, window.end), window)
            shown = _committed(rows) if window.committed_only else ((row, None, None) for row in rows)
            names = {table.object_id: name for name, table in self._model.tables.items()}
            return Table(COLUMNS, [cells for row in shown for cells in _cells(*row, names)])

    def check_logs(self) -> None:
        """The logs of the session are there.

        Raises:
            OracleError: 310, one is not.
        """
        for log in self._window.logs if self._window is not None else ():
            if not self._model.threads[log.thread - 1].has(log):
                raise OracleError(310, f"archived log contains sequence; sequence {log.sequence} required")

    def _add(self, path: str, option: int) -> None:
        if option == OPTIONS["REMOVEFILE"]:
            self.call("REMOVE_LOGFILE", {"LOGFILENAME": path})
            return
        log = next((log for thread in self._model.threads if (log := thread.file(path)) is not None), None)
        if log is None:
            raise OracleError(1284, f"file {path} cannot be opened")
        if path in self._model.threads[log.thread - 1].invalid:
            raise OracleError(1368, f"log file {path} is not valid")
        if option == OPTIONS["NEW"]:
            self.paths.clear()
            self._window = None
        if log in self.paths.values():
            raise OracleError(1289, f"cannot add duplicate log file {path}")
        if any(other.incarnation != log.incarnation for other in self.paths.values()):
            raise OracleError(1367, f"log file {path} belongs to another incarnation of the database")
        self.paths[path] = log

    def _start(self, start: int, end: int, options: int) -> None:
        if options & _CONTINUOUS:
            raise OracleError(44609, "CONTINOUS_MINE is desupported for use with DBMS_LOGMNR.START_LOGMNR")
        if options & _FROM_REDO:
            raise OracleError(1371, "Complete LogMiner dictionary not found")
        logs = sorted(self.paths.values(), key=lambda log: (log.thread, log.sequence))
        if not logs:
            raise OracleError(1292, "no log file has been specified for the current LogMiner session")
        end = end or self._model.scn
        start = start or min(log.first_scn for log in logs)
        if end > self._model.scn or start > end:
            raise OracleError(1281, "SCN range specified is invalid")
        for thread in self._model.threads:
            self._check_gaps([log for log in logs if log.thread == thread.number], thread.logs, start, end)
        self._window = Window(start, end, tuple(logs), bool(options & _COMMITTED_ONLY))

    @staticmethod
    def _check_gaps(chosen: Sequence[Log], all_logs: Sequence[Log], start: int, end: int) -> None:
        """Every log of a thread that was added, from start to end. Of a thread that has no file nobody asks."""
        if not chosen:
            return
        follow = all(later.sequence == log.sequence + 1 for log, later in itertools.pairwise(chosen))
        first, last = chosen[0], chosen[-1]
        earliest = min(log.first_scn for log in all_logs if log.incarnation == first.incarnation)
        begins_late = first.first_scn > max(start, earliest)
        ends_early = last.next_scn is not None and last.next_scn <= end and last is not all_logs[-1]
        if begins_late or ends_early or not follow:
            raise OracleError(1291, "missing log file")


def _without_cut_changes(rows: Sequence[RedoRow], window: Window) -> list[RedoRow]:
    """The rows of a window.

    A change of a LOB is several rows. A session that ends between them has none of them, and a session that begins between
    them has neither locators nor writes, as was seen at a real server (Stack Overflow 68097524).
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for row in rows:
        if row.change:
            first.setdefault(row.change, row.scn)
            last[row.change] = row.scn
    found = []
    for row in rows:
        if not window.start <= row.scn <= window.end:
            continue
        if row.change and last[row.change] > window.end:
            continue
        if row.change and first[row.change] < window.start and row.piece.operation not in _SHOWN_ALONE:
            continue
        found.append(row)
    return found


_SHOWN_ALONE: Final = frozenset({Operation.UPDATE, redo.PLACED, Operation.INSERT})

_Shown = tuple[RedoRow, RedoRow | None, RedoRow | None]
"""A row, and START and COMMIT of its transaction where they are shown."""


def _committed(rows: Iterable[RedoRow]) -> Iterator[_Shown]:
    """COMMITTED_DATA_ONLY: whole transactions in the order of their COMMITs; no rolled back or open ones.

    A change that was rolled back to a savepoint is not shown, nor is its undo. No recording shows it: Debezium's unbuffered
    adapter passes over no row with ROLLBACK = 1, and its developers' test of a violated key expects one event
    (OracleConnectorIT, DBZ-3322).
    """
    transactions: dict[tuple[bytes, str | None], list[RedoRow]] = {}
    for row in rows:
        if row.piece.operation is redo.PLACED:
            continue
        held = transactions.setdefault((row.xid, row.pdb), [])
        if row.piece.is_undo:
            _take_back(held)
            continue
        held.append(row)
        if row.piece.operation in (Operation.COMMIT, Operation.ROLLBACK):
            del transactions[row.xid, row.pdb]
            if row.piece.operation is Operation.COMMIT:
                yield from ((each, held[0], row) for each in held)


def _take_back(held: list[RedoRow]) -> None:
    """The newest change that is left goes, with all rows of it."""
    if held and held[-1].piece.operation is not Operation.START:
        change = held.pop().change
        while change and held and held[-1].change == change:
            held.pop()


def _number(name: str) -> Column:
    return Column(name, OracleType.NUMBER, 22, 0, 0)


def _text(name: str, size: int = 384) -> Column:
    return Column(name, size=size)


def _date(name: str) -> Column:
    return Column(name, OracleType.DATE, 7)


COLUMNS: Final = (
    _number("SCN"),
    _number("START_SCN"),
    _number("COMMIT_SCN"),
    _date("TIMESTAMP"),
    _date("START_TIMESTAMP"),
    _date("COMMIT_TIMESTAMP"),
    Column("XID", OracleType.RAW, 8),
    Column("PXID", OracleType.RAW, 8),
    _number("THREAD#"),
    _text("RS_ID", 32),
    _number("SSN"),
    _number("OPERATION_CODE"),
    _text("OPERATION", 32),
    _number("ROLLBACK"),
    _number("CSF"),
    _number("STATUS"),
    _number("DATA_OBJ#"),
    _number("DATA_OBJV#"),
    _number("DATA_OBJD#"),
    _text("ROW_ID", 18),
    _text("USERNAME"),
    _text("CLIENT_ID", 64),
    _text("SEG_OWNER"),
    _text("SEG_NAME"),
    _text("TABLE_NAME"),
    _number("SEQUENCE#"),
    _text("SQL_REDO", 4_000),
    _text("INFO", 64),
    _text("SRC_CON_NAME"),
    _number("SRC_CON_ID"),
)


def _cells(
    row: RedoRow, start: RedoRow | None, commit: RedoRow | None, names: Mapping[int, tuple[str, str]]
) -> Iterator[tuple[Value, ...]]:
    """The rows of a record: a text above 4,000 bytes is cut into several that CSF joins."""
    table = row.table
    owner, name, text, is_mismatch = _as_catalogued(row, table, names)
    parts = _parts(text)
    object_id = table.object_id if table is not None else 0
    for place, part in enumerate(parts, start=1):
        yield (
            row.scn,
            start and start.scn,
            commit and commit.scn,
            row.timestamp,
            start and start.timestamp,
            commit and commit.timestamp,
            row.xid,
            row.xid,
            row.thread,
            row.rs_id,
            row.ssn,
            row.piece.operation.value,
            _NAMES.get(row.piece.operation, row.piece.operation.name),
            int(row.piece.is_undo),
            int(place < len(parts)),
            2 if is_mismatch else 0,
            object_id,
            row.object_version,
            row_id_of(row.piece.row_id).object_id if table is not None else 0,
            row.piece.row_id,
            row.session.user,
            row.session.client,
            owner,
            name,
            name,
            row.piece.sequence,
            part,
            "Dictionary Version Mismatch" if is_mismatch else row.info,
            row.pdb,
            0 if row.pdb is None else _FIRST_PDB,
        )


def _as_catalogued(
    row: RedoRow, table: ModelTable | None, names: Mapping[int, tuple[str, str]]
) -> tuple[str | None, str | None, str | None, bool]:
    """Owner, table and text as the online catalogue has them now, and whether it has other columns than then."""
    if table is None:
        return None, None, row.piece.text, False
    if row.piece.operation is Operation.DDL:
        assert row.named is not None
        return row.named.owner, row.named.name, row.piece.text, False
    owner, name = names.get(table.object_id, ("UNKNOWN", f"OBJ# {table.object_id}"))
    is_mismatch = row.object_version != table.object_version or table.object_id not in names
    text = row.piece.raw_text if is_mismatch else row.piece.text
    return owner, name, text and text.replace(redo.TABLE, f'"{owner}"."{name}"'), is_mismatch


def _parts(text: str | None) -> list[str | None]:
    """Pieces of at most 4,000 bytes, no character cut."""
    parts: list[str | None] = []
    rest = text or ""
    while len(data := rest.encode()) > _TEXT_BYTES:
        part = data[:_TEXT_BYTES].decode(errors="ignore")
        parts.append(part)
        rest = rest[len(part) :]
    return [*parts, rest or None]
