"""Past finds of the differential fuzzer, and a minute of new programs; see ``tests/fuzz/source`` and docs/testing.md."""

import datetime
from pathlib import Path

import pytest

from tests.conftest import MysqlServer
from tests.fuzz.source.campaign import corpus, program_of, replay, rotating_seed, run
from tests.fuzz.source.trial import Counts

PROGRAMS = 10
"""About half a minute of two cores."""
GATES_SEED = 202_648
AT_MOST_S = 400.0


@pytest.mark.parametrize("path", corpus(), ids=lambda path: path.stem)
async def test_a_past_find_is_right_or_reported(mysql_server: MysqlServer, path: Path) -> None:
    assert await replay(mysql_server, program_of(path), Counts()) is None


def test_random_statements_differ_nowhere_unreported(mysql_server: MysqlServer) -> None:
    """One seed always, so that a change fails for what it changed."""
    differ_nowhere(mysql_server, GATES_SEED)


@pytest.mark.rest(because="the gate draws from one seed; other statements would fail a change that is not at fault")
def test_random_statements_of_the_week_differ_nowhere_unreported(mysql_server: MysqlServer) -> None:
    """A failure comes again all week, and another week tries other statements."""
    year, week, _ = datetime.datetime.now(datetime.UTC).isocalendar()
    differ_nowhere(mysql_server, year * 100 + week)


def differ_nowhere(mysql_server: MysqlServer, number: int) -> None:
    """Carry out the programs of a seed."""
    reported: list[str] = []
    seed = rotating_seed(number)
    counts, finds = run(mysql_server, seed=seed, seconds=AT_MOST_S, programs_wanted=PROGRAMS, reported=reported.append)

    assert not finds, "\n".join(reported)
    assert counts.statements > counts.refused
    assert counts.cells
    assert counts.events
    print(reported[-1])  # noqa: T201 - the rate
