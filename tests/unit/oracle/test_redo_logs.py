"""The logs of a window. Names of sequences and threads are those of the cases in Debezium's LogFileCollectorTest."""

import pytest

from libs.oracle.incarnations import DatabaseIncarnation, NoAncestor, incarnation_after
from libs.oracle.redo_logs import (
    ArchivedLog,
    LogChoice,
    LogMember,
    LogViews,
    MissingLog,
    OnlineLog,
    RedoThread,
    choose_logs,
    end_of_window,
    oldest_scn,
    written_up_to,
)

MB = 1 << 20
Logs = list[OnlineLog | ArchivedLog]


def thread(number: int = 1, *, last_redo: int = 1_000, is_open: bool = True, checkpoint: int = 0) -> RedoThread:
    return RedoThread(number, is_open, True, last_redo, checkpoint)


def online(sequence: int, first: int, following: int | None, status: str = "CURRENT", number: int = 1) -> OnlineLog:
    return OnlineLog(10 * number + sequence % 3, number, sequence, status, first, following, 512 * MB)


def archived(sequence: int, first: int, following: int, number: int = 1, **fields: object) -> ArchivedLog:
    values: dict[str, object] = {
        "path": f"/archive/{number}_{sequence}",
        "destination": 1,
        "is_local": True,
        "is_available": True,
        "resetlogs_id": 7,
        **fields,
    }
    return ArchivedLog(thread=number, sequence=sequence, first_scn=first, next_scn=following, bytes=100 * MB, **values)  # type: ignore[arg-type]


def views(
    *logs: OnlineLog | ArchivedLog,
    threads: tuple[RedoThread, ...] = (thread(),),
    members: tuple[LogMember, ...] | None = None,
) -> LogViews:
    of_group = [log for log in logs if isinstance(log, OnlineLog)]
    files = (
        members
        if members is not None
        else tuple(LogMember(log.group, f"/online/{log.group}", None) for log in of_group)
    )
    return LogViews(7, threads, of_group, files, [log for log in logs if isinstance(log, ArchivedLog)])


def sequences(choice: LogChoice) -> list[tuple[int, int]]:
    return [(log.thread, log.sequence) for log in choice.logs]


def test_an_active_log_is_mined_before_it_is_archived() -> None:
    choice = choose_logs(
        views(archived(10, 80, 100), online(11, 100, 200, "ACTIVE"), online(12, 200, None)), start=90, end=250
    )

    assert (choice.end, sequences(choice), choice.missing) == (250, [(1, 10), (1, 11), (1, 12)], ())


def test_of_a_group_the_member_that_is_whole_is_taken() -> None:
    log = online(12, 200, None)
    members = (LogMember(log.group, "/a/redo01.log", "INVALID"), LogMember(log.group, "/b/redo01.log", None))

    choice = choose_logs(views(log, members=members), start=200, end=250)

    assert [log.path for log in choice.logs] == ["/b/redo01.log"]


def test_an_online_log_comes_before_its_archived_copy_and_each_log_comes_once() -> None:
    choice = choose_logs(
        views(online(11, 100, 200, "INACTIVE"), archived(11, 100, 200), online(12, 200, None)), start=100, end=250
    )

    assert [(log.sequence, log.is_online) for log in choice.logs] == [(11, True), (12, True)]


@pytest.mark.parametrize(
    ("destinations", "path"), [((), "/near"), ((3, 1), "/mine"), ((2,), "/far")], ids=["local", "preferred", "remote"]
)
def test_a_copy_is_taken_from_the_preferred_destination(destinations: tuple[int, ...], path: str) -> None:
    copies = [
        archived(7, 100, 200, destination=1, path="/near"),
        archived(7, 100, 200, destination=2, path="/far", is_local=False),
        archived(7, 100, 200, destination=3, path="/mine"),
    ]

    choice = choose_logs(views(*copies, online(8, 200, None)), start=100, end=250, destinations=destinations)

    assert choice.logs[0].path == path


def test_a_log_that_is_deleted_at_one_destination_is_read_from_the_other() -> None:
    copies = [archived(7, 100, 200, is_available=False, path=None), archived(7, 100, 200, destination=2, path="/two")]

    choice = choose_logs(views(*copies, online(8, 200, None)), start=100, end=250)

    assert (choice.logs[0].path, choice.missing) == ("/two", ())


def test_a_log_that_is_deleted_everywhere_is_named_with_the_command_that_brings_it_back() -> None:
    logs: Logs = [
        archived(6, 50, 100),
        archived(7, 100, 200, is_available=False, path=None),
        archived(8, 200, 300),
    ]

    choice = choose_logs(views(*logs, online(9, 300, None)), start=60, end=400)

    assert (choice.end, sequences(choice)) == (99, [(1, 6)])
    assert choice.missing == (MissingLog(1, 7, 100, 200, is_deleted=True),)
    assert choice.missing[0].remedy == "RMAN: RESTORE ARCHIVELOG SEQUENCE 7 THREAD 1;"


def test_before_a_gap_that_no_view_lists_the_window_ends() -> None:
    choice = choose_logs(views(archived(2, 80, 90), online(4, 100, None)), start=80, end=150)

    assert (choice.end, sequences(choice)) == (89, [(1, 2)])
    assert choice.missing == (MissingLog(1, 3, 90, 100, is_deleted=False),)


def test_where_the_first_log_is_missing_nothing_is_mined() -> None:
    choice = choose_logs(views(archived(6, 120, 200), online(7, 200, None)), start=100, end=250)

    assert (choice.end, choice.logs) == (100, ())
    assert choice.missing == (MissingLog(1, 5, 101, 120, is_deleted=False),)


def test_the_gap_of_one_thread_ends_the_window_of_all() -> None:
    threads = (thread(1), thread(2))
    logs: Logs = [online(1, 80, None, number=2), archived(2, 80, 90), online(4, 100, None)]

    choice = choose_logs(views(*logs, threads=threads), start=80, end=150)

    assert (choice.end, sequences(choice)) == (89, [(1, 2), (2, 1)])


def test_threads_have_sequences_of_their_own() -> None:
    threads = (thread(1), thread(2))
    logs: Logs = [
        online(4, 100, None),
        online(3, 90, None, number=2),
        archived(3, 80, 100),
        archived(2, 70, 90, number=2),
    ]

    choice = choose_logs(views(*logs, threads=threads), start=85, end=150)

    assert (choice.end, sequences(choice)) == (150, [(1, 3), (1, 4), (2, 2), (2, 3)])


def test_a_closed_thread_holds_nothing_back_and_its_last_rows_are_mined() -> None:
    threads = (thread(1, last_redo=2_001), thread(2, is_open=False, checkpoint=900, last_redo=900))
    logs: Logs = [online(5, 500, None), online(8, 400, 900, "INACTIVE", number=2)]

    assert written_up_to(threads, start=500) == 2_000
    assert sequences(choose_logs(views(*logs, threads=threads), start=500, end=2_000)) == [(1, 5), (2, 8)]
    assert sequences(choose_logs(views(*logs, threads=threads), start=900, end=2_000)) == [(1, 5)]


def test_a_thread_that_was_closed_for_a_time_has_no_gap() -> None:
    threads = (thread(1), thread(2))
    logs: Logs = [
        online(5, 50, None),
        archived(8, 60, 90, number=2),
        online(9, 200, None, number=2),
    ]

    for start in (70, 100):
        assert choose_logs(views(*logs, threads=threads), start=start, end=300).missing == ()


def test_a_thread_that_was_enabled_after_the_start_needs_no_earlier_log() -> None:
    threads = (thread(1), thread(2)._replace(enable_scn=120))

    choice = choose_logs(
        views(online(5, 50, None), online(1, 120, None, number=2), threads=threads), start=100, end=300
    )

    assert (choice.end, choice.missing) == (300, ())


def test_logs_of_another_incarnation_are_not_mined() -> None:
    logs: Logs = [archived(6, 50, 100, resetlogs_id=6), online(1, 100, None)]

    choice = choose_logs(views(*logs), start=100, end=150)

    assert sequences(choice) == [(1, 1)]


def test_an_idle_thread_bounds_the_window_by_what_it_has_written() -> None:
    assert written_up_to([thread(1, last_redo=900), thread(2, last_redo=400)], start=100) == 399
    assert written_up_to([thread(1, last_redo=90)], start=100) == 100
    assert written_up_to([], start=100) == 100


def test_a_window_ends_with_a_closed_log() -> None:
    logs: Logs = [
        archived(5, 100, 200),
        archived(6, 200, 300),
        archived(7, 300, 400),
        online(8, 400, None),
    ]
    choice = choose_logs(views(*logs), start=150, end=450)

    assert [end_of_window(choice, 150, megabytes * MB) for megabytes in (1, 150, 250, 999)] == [199, 299, 399, 450]


def test_the_oldest_scn_is_after_the_last_gap_of_any_thread() -> None:
    two = (thread(1), thread(2))
    logs = (
        archived(3, 100, 200),
        archived(5, 300, 400),
        online(6, 400, None),
        archived(1, 350, 450, 2),
        online(2, 450, None, number=2),
    )
    assert oldest_scn(views(*logs[:3])) == 300
    assert oldest_scn(views(*logs, threads=two)) == 350
    assert oldest_scn(views()) is None


def test_a_thread_that_was_enabled_later_has_nothing_before() -> None:
    enabled = RedoThread(2, True, True, 1_000, 0, enable_scn=350)
    logs = (archived(5, 300, 400), online(6, 400, None), archived(1, 350, 450, 2), online(2, 450, None, number=2))
    assert oldest_scn(views(*logs, threads=(thread(), enabled))) == 300
    assert oldest_scn(views(online(1, 1, None), threads=(RedoThread(1, True, True, 9, 0, enable_scn=1),))) == 1


def test_an_incarnation_follows_the_one_that_it_branched_off_from() -> None:
    first, lost, third, last = (
        DatabaseIncarnation(1, 0, 1, 7, False),
        DatabaseIncarnation(2, 1, 500, 8, False),
        DatabaseIncarnation(3, 1, 400, 9, False),
        DatabaseIncarnation(4, 3, 900, 10, True),
    )
    every = (first, lost, third, last)
    assert [incarnation_after(every, number) for number in (7, 9, 10)] == [third, last, None]
    with pytest.raises(NoAncestor, match="10, 9, 7"):
        incarnation_after(every, 8)
