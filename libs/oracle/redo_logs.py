"""The redo logs that a window of SCNs needs, chosen from the server's views.

A window (start, end] may be mined when each thread's logs follow one another without a gap, from start to end. Online
logs are taken in every state that has redo, ACTIVE ones too. Nothing is written to the
source to learn how far the redo goes; V$THREAD has the log writer's place.
(Oracle Database Reference: V$THREAD, V$LOG, V$LOGFILE, V$ARCHIVED_LOG; Oracle Database Utilities, "Using LogMiner".)
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self


class RedoThread(NamedTuple):
    """A row of V$THREAD: an instance's redo."""

    number: int
    is_open: bool
    """STATUS is OPEN."""
    is_enabled: bool
    """ENABLED is not DISABLED; a PRIVATE thread is mined as a PUBLIC one is."""
    last_redo_scn: int
    """LAST_REDO_CHANGE#."""
    checkpoint_scn: int
    """CHECKPOINT_CHANGE#: a closed thread has redo up to here."""
    enable_scn: int = 0
    """ENABLE_CHANGE#: the thread has no redo from before."""
    disable_scn: int = 0
    """DISABLE_CHANGE# of a disabled thread."""


class OnlineLog(NamedTuple):
    """A row of V$LOG."""

    group: int
    thread: int
    sequence: int
    status: str
    """CURRENT, ACTIVE, INACTIVE, UNUSED, CLEARING or CLEARING_CURRENT."""
    first_scn: int
    next_scn: int | None
    """None of the CURRENT log, whose end is not known yet."""
    bytes: int


class LogMember(NamedTuple):
    """A row of V$LOGFILE."""

    group: int
    path: str
    status: str | None
    """None where the file is in use and whole; INVALID, STALE or DELETED else."""


class ArchivedLog(NamedTuple):
    """A row of V$ARCHIVED_LOG."""

    thread: int
    sequence: int
    resetlogs_id: int
    path: str | None
    destination: int
    """DEST_ID."""
    is_local: bool
    """STANDBY_DEST is NO, and V$ARCHIVE_DEST_STATUS has the destination as a LOCAL one that is VALID."""
    is_available: bool
    """STATUS is A and DELETED is NO."""
    first_scn: int
    next_scn: int
    bytes: int


class LogViews(NamedTuple):
    """The rows of the views at one time, of one incarnation of the database."""

    resetlogs_id: int
    threads: Sequence[RedoThread]
    online: Sequence[OnlineLog]
    members: Sequence[LogMember]
    archived: Sequence[ArchivedLog]


class LogFile(NamedTuple):
    """One log to mine."""

    thread: int
    sequence: int
    path: str
    first_scn: int
    next_scn: int | None
    """None of the CURRENT log."""
    bytes: int
    is_online: bool


class MissingLog(NamedTuple):
    """A log that a thread's chain lacks."""

    thread: int
    sequence: int
    first_scn: int
    """SCN that it begins at."""
    next_scn: int | None
    """SCN that the following log begins at; None where no later log is listed."""
    is_deleted: bool
    """A view lists it as deleted at every destination. Else no view lists it at this moment: ask again."""

    @property
    def remedy(self) -> str:
        """The command that brings it back, where a backup has it."""
        return f"RMAN: RESTORE ARCHIVELOG SEQUENCE {self.sequence} THREAD {self.thread};"


@dataclass(frozen=True, slots=True)
class LogChoice:
    """The logs of a window, and how far they go."""

    end: int
    """Every thread's redo of (start, end] is in the logs. Before ``start`` where nothing can be mined yet."""
    logs: tuple[LogFile, ...]
    """By thread and sequence; empty where the window is."""
    missing: tuple[MissingLog, ...] = ()
    """The first gap of each thread that has one. The window ends before it."""


def logs_of_ended(resetlogs_id: int, archived: Sequence[ArchivedLog], ends_before: int) -> LogViews:
    """The views of an incarnation that RESETLOGS ended: V$THREAD and V$LOG have rows of the current one alone.

    Each thread's redo has to go up to the branch, so a last log that was never archived is found to be missing. A thread
    begins with its log of sequence 1.
    """
    begins = {log.thread: log.first_scn for log in archived if log.sequence == 1}
    threads = [
        RedoThread(number, True, True, ends_before, ends_before, begins.get(number, 0))
        for number in sorted({log.thread for log in archived} or {1})
    ]
    return LogViews(resetlogs_id, threads, (), (), archived)


WITH_REDO: Final = frozenset({"CURRENT", "ACTIVE", "INACTIVE"})


def written_up_to(threads: Iterable[RedoThread], start: int) -> int:
    """The SCN up to which every thread's redo is written, or ``start`` where nothing after it is.

    An open thread counts with its last redo record, less one: other records may share its SCN. A closed or disabled one
    holds nothing back, because it writes nothing more. Its last rows are in its logs.
    """
    bounds = [thread.last_redo_scn - 1 for thread in threads if thread.is_open and thread.is_enabled]
    return max([start, min(bounds)]) if bounds else start


def choose_logs(views: LogViews, start: int, end: int, destinations: Sequence[int] = ()) -> LogChoice:
    """The logs of (start, end], one file for each thread and sequence.

    An online log comes before its archived copies, and of these the first of ``destinations`` that has one, then any
    local one. Logs of another incarnation are not looked at.
    """
    found = _files(views, destinations)
    chosen: list[LogFile] = []
    missing: list[MissingLog] = []
    for thread in views.threads:
        first, last = max(start + 1, thread.enable_scn), _last_scn(thread, end)
        if first <= last:
            chain, gap = _chain(_ThreadLogs.of(thread, views, found), first, last)
            chosen += chain
            missing += [] if gap is None else [gap]
    reached = min([end, *(gap.first_scn - 1 for gap in missing)])
    logs = tuple(log for log in chosen if log.first_scn <= reached) if reached > start else ()
    return LogChoice(max(reached, start), logs, tuple(missing))


def oldest_scn(views: LogViews, destinations: Sequence[int] = ()) -> int | None:
    """The first SCN from which on the redo of every thread is there without a gap; None: there is no log at all.

    A thread whose oldest log has the SCN at which it was enabled lacks nothing before that.
    """
    found = _files(views, destinations)
    whole: list[int] = []
    cut: list[int] = []
    for thread in views.threads:
        first: LogFile | None = None
        for sequence in sorted((sequence for number, sequence in found if number == thread.number), reverse=True):
            if first is not None and sequence != first.sequence - 1:
                break
            first = found[thread.number, sequence]
        if first is not None:
            (whole if first.first_scn <= thread.enable_scn else cut).append(first.first_scn)
    return max(cut) if cut else min(whole, default=None)


def end_of_window(choice: LogChoice, start: int, window_bytes: int) -> int:
    """The SCN that ends a window of so many bytes of redo, at most the end of the choice.

    LogMiner reads a file from its beginning, so a window that ends in a closed log goes to the end of that log. SCNs are
    taken to be spread evenly within a log.
    """
    room = float(window_bytes)
    for log in sorted(choice.logs, key=lambda log: log.first_scn):
        if log.next_scn is None or log.next_scn > choice.end:
            break
        room -= log.bytes
        if room <= 0 and log.next_scn - 1 > start:
            return log.next_scn - 1
    return choice.end


def _last_scn(thread: RedoThread, end: int) -> int:
    """The last SCN of the window that a thread has redo of."""
    if thread.is_open:
        return end
    return min(end, thread.checkpoint_scn if thread.is_enabled else thread.disable_scn)


def _files(views: LogViews, destinations: Sequence[int]) -> dict[tuple[int, int], LogFile]:
    paths: dict[int, str] = {}
    for member in views.members:
        if member.status is None:
            paths.setdefault(member.group, member.path)
    preferred = {destination: rank for rank, destination in enumerate(destinations)}
    copies: dict[tuple[int, int], list[ArchivedLog]] = defaultdict(list)
    for archived in views.archived:
        is_there = archived.is_available and archived.path is not None
        is_near = archived.is_local or archived.destination in preferred
        if is_there and is_near and archived.resetlogs_id == views.resetlogs_id:
            copies[archived.thread, archived.sequence].append(archived)
    files = {place: _archived_file(_best(of_place, preferred)) for place, of_place in copies.items()}
    for log in views.online:
        if log.status in WITH_REDO and log.group in paths:
            is_current = log.status == "CURRENT"
            files[log.thread, log.sequence] = LogFile(
                log.thread,
                log.sequence,
                paths[log.group],
                log.first_scn,
                None if is_current else log.next_scn,
                log.bytes,
                is_online=True,
            )
    return files


def _best(copies: Sequence[ArchivedLog], preferred: Mapping[int, int]) -> ArchivedLog:
    return min(copies, key=lambda copy: (preferred.get(copy.destination, len(preferred)), copy.destination))


def _archived_file(log: ArchivedLog) -> LogFile:
    assert log.path is not None
    return LogFile(log.thread, log.sequence, log.path, log.first_scn, log.next_scn, log.bytes, is_online=False)


@dataclass(frozen=True, slots=True)
class _ThreadLogs:
    """One thread's logs."""

    thread: RedoThread
    files: Mapping[int, LogFile]
    """By sequence, ascending: those that can be mined."""
    ends: Mapping[int, int]
    """next_scn by sequence, of every log that a view lists."""

    @classmethod
    def of(cls, thread: RedoThread, views: LogViews, found: Mapping[tuple[int, int], LogFile]) -> Self:
        number, incarnation = thread.number, views.resetlogs_id
        ends = {
            log.sequence: log.next_scn
            for log in views.archived
            if log.thread == number and log.resetlogs_id == incarnation
        }
        files = {sequence: found[each, sequence] for each, sequence in sorted(found) if each == number}
        return cls(thread, files, ends | {log.sequence: log.next_scn for log in files.values() if log.next_scn})


def _chain(logs: _ThreadLogs, first: int, last: int) -> tuple[list[LogFile], MissingLog | None]:
    """A thread's logs of the SCNs first to last, and the first one that is missing among them.

    Sequences follow one another; SCNs may not, where a thread was closed for a time.
    """
    chain: list[LogFile] = []
    for log in logs.files.values():
        if log.next_scn is not None and log.next_scn <= first:
            continue
        if log.first_scn > last:
            break
        follows = log.sequence == chain[-1].sequence + 1 if chain else _is_beginning(logs, log, first)
        if not follows:
            lacking = chain[-1].sequence + 1 if chain else log.sequence - 1
            return chain, _missing(logs, lacking, first, chain)
        chain.append(log)
    if chain and (chain[-1].next_scn is None or chain[-1].next_scn > last):
        return chain, None
    lacking = chain[-1].sequence + 1 if chain else _first_lacking(logs.ends, first)
    if logs.thread.is_open or lacking in logs.ends:
        return chain, _missing(logs, lacking, first, chain)
    return chain, None


def _first_lacking(ends: Mapping[int, int], first: int) -> int:
    """The sequence that has an SCN, of logs that no file is left of; else the one after all that are listed."""
    later = [sequence for sequence, end in ends.items() if end > first]
    return min(later, default=max(ends, default=0) + 1)


def _is_beginning(logs: _ThreadLogs, log: LogFile, first: int) -> bool:
    """The log has the first SCN, or the log before it is listed and ends before that SCN."""
    return log.first_scn <= first or logs.ends.get(log.sequence - 1, first + 1) <= first


def _missing(logs: _ThreadLogs, sequence: int, first: int, chain: Sequence[LogFile]) -> MissingLog:
    following = next((log for log in logs.files.values() if log.sequence > sequence), None)
    begins = chain[-1].next_scn if chain else None
    return MissingLog(
        logs.thread.number,
        sequence,
        begins or first,
        following.first_scn if following else None,
        is_deleted=sequence in logs.ends,
    )
