"""Past finds of the differential fuzzer, and a minute of new programs; see ``tests/fuzz/source`` and docs/testing.md."""

import datetime
from pathlib import Path

import pytest

from tests.conftest import MysqlServer
from tests.fuzz.source.campaign import corpus, program_of, replay, rotating_seed, run
from tests.fuzz.source.trial import Counts

PROGRAMS = 10
"""About a minute of two busy cores."""
AT_MOST_S = 400.0


@pytest.mark.parametrize("path", corpus(), ids=lambda path: path.stem)
async def test_a_past_find_is_right_or_reported(mysql_server: MysqlServer, path: Path) -> None:
    assert await replay(mysql_server, program_of(path), Counts()) is None


def test_random_statements_differ_nowhere_unreported(mysql_server: MysqlServer) -> None:
    """The seed is the week's: a failure comes again all week, and another week tries other statements."""
    year, week, _ = datetime.datetime.now(datetime.UTC).isocalendar()
    reported: list[str] = []
    seed = rotating_seed(year * 100 + week)
    counts, finds = run(mysql_server, seed=seed, seconds=AT_MOST_S, programs_wanted=PROGRAMS, reported=reported.append)

    assert not finds, "\n".join(reported)
    assert counts.statements > counts.refused
    assert counts.cells
    assert counts.events
    print(reported[-1])  # noqa: T201 - the rate
