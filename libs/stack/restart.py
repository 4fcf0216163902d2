"""When an ended process is started again: a plain function from its exit to the decision."""

import signal
from dataclasses import dataclass
from typing import Final

from libs.setup.installation import SETUP_COMMAND

EXIT_CLEAN: Final = 0
EXIT_INVALID_SETTINGS: Final = 2
EXIT_HALTED: Final = 3


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How eagerly the supervisor restarts a process that ended unasked."""

    first_delay_s: float = 0.5
    """After the first crash: long enough for a killed server's port to be free."""
    longest_delay_s: float = 30.0
    """Doubling stops here."""
    forgiven_after_s: float = 60.0
    """A process that ran so long starts again at ``first_delay_s``."""
    halted_delay_s: float = 60.0
    """After exit code 3: a human is needed, so trying is cheap but rare."""


@dataclass(frozen=True, slots=True)
class RestartAfter:
    """Start it again after ``delay_s``."""

    delay_s: float
    crashes_in_row: int
    """To be handed in at the next exit."""


@dataclass(frozen=True, slots=True)
class LeaveStopped:
    """No restart helps; the process's last log lines say why."""

    reason: str


def judge_exit(
    exit_code: int, *, ran_for_s: float, crashes_in_row: int, policy: RestartPolicy
) -> RestartAfter | LeaveStopped:
    """The action for a process that ended unasked after ``ran_for_s``.

    ``crashes_in_row`` counts its exits before this one without a run of ``forgiven_after_s`` between them.
    """
    if exit_code == EXIT_INVALID_SETTINGS:
        return LeaveStopped("its settings are wrong")
    crashes = 0 if ran_for_s >= policy.forgiven_after_s else crashes_in_row
    delay_s = min(policy.first_delay_s * 2**crashes, policy.longest_delay_s)
    if exit_code == EXIT_HALTED:
        delay_s = max(delay_s, policy.halted_delay_s)
    return RestartAfter(delay_s, crashes + 1)


def describe_exit(exit_code: int) -> str:
    """An exit code in words, as subprocess gives it (negative: the signal that ended the process)."""
    if exit_code < 0:
        try:
            return f"killed by {signal.Signals(-exit_code).name}"
        except ValueError:
            return f"killed by signal {-exit_code}"
    match exit_code:
        case 0:
            return "ended by itself"
        case 1:
            return "crashed (exit code 1)"
        case 2:
            return "refused its settings (exit code 2)"
        case 3:
            return "halted: a human is needed (exit code 3)"
        case 4:
            return "fenced: another owner holds its source partition (exit code 4)"
        case 126 | 127:
            return f"its program could not be run (exit code {exit_code}): run `{SETUP_COMMAND}`"
        case _:
            return f"exit code {exit_code}"
