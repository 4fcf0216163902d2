"""When the supervisor starts an ended process again."""

import pytest

from libs.stack.restart import LeaveStopped, RestartAfter, RestartPolicy, describe_exit, judge_exit

POLICY = RestartPolicy()


def delays(exit_code: int, *, exits: int, ran_for_s: float = 1.0) -> list[float]:
    """The delays after ``exits`` exits in a row."""
    crashes, found = 0, []
    for _ in range(exits):
        decision = judge_exit(exit_code, ran_for_s=ran_for_s, crashes_in_row=crashes, policy=POLICY)
        assert isinstance(decision, RestartAfter)
        crashes = decision.crashes_in_row
        found.append(decision.delay_s)
    return found


def test_delay_doubles_to_its_limit() -> None:
    """Half a second first, then twice as long each time, never more than 30 s."""
    assert delays(1, exits=8) == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_kill_is_restarted_as_a_crash_is() -> None:
    """SIGKILL says nothing about the next run."""
    assert delays(-9, exits=2) == [0.5, 1]


def test_a_long_run_forgives_earlier_crashes() -> None:
    """A process that ran for a minute starts again at the first delay."""
    decision = judge_exit(1, ran_for_s=60.0, crashes_in_row=6, policy=POLICY)

    assert decision == RestartAfter(0.5, 1)


def test_wrong_settings_are_not_tried_again() -> None:
    """Exit code 2: the same file would be refused again."""
    decision = judge_exit(2, ran_for_s=0.4, crashes_in_row=0, policy=POLICY)

    assert isinstance(decision, LeaveStopped)


def test_a_halted_process_is_tried_once_a_minute() -> None:
    """Exit code 3: a human is needed, and may mend the source while the stack is up."""
    assert delays(3, exits=3) == [60, 60, 60]


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [(-9, "killed by SIGKILL"), (-15, "killed by SIGTERM"), (1, "crashed"), (2, "settings"), (4, "fenced"), (77, "77")],
)
def test_exit_codes_are_told_in_words(exit_code: int, words: str) -> None:
    """The words of `headwater status` need no table of exit codes."""
    assert words in describe_exit(exit_code)
