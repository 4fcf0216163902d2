"""Past finds of the differential fuzzer, and a minute of new programs; see ``tests/fuzz/source`` and docs/testing.md."""

import datetime
from pathlib import Path

import pytest

from tests.conftest import MysqlServer
from tests.fuzz.hunt import hunt, program_of
from tests.fuzz.source.campaign import DTS, KINDS, MYSQL, VITESS, Kind, SourceCampaign, replay, rotating_seed
from tests.fuzz.source.followed import CORPUS
from tests.fuzz.source.trial import Counts

PROGRAMS = 4
"""Of the gate: some ten CPU seconds. `make test-all` adds ``WEEKS_PROGRAMS``."""
WEEKS_PROGRAMS = 10
OTHERS_PROGRAMS = 2
"""Some five CPU seconds."""
GATES_SEED = 202_648
AT_MOST_S = 400.0


def test_each_past_find_is_in_the_folder_of_a_source() -> None:
    """One beside them would be replayed by nobody."""
    assert {path.parent.name for path in CORPUS.rglob("*.sql")} == set(KINDS)
    assert not list(CORPUS.glob("*.sql"))


@pytest.mark.parametrize("path", MYSQL.corpus(), ids=lambda path: path.stem)
async def test_a_past_find_is_right_or_reported(mysql_server: MysqlServer, path: Path) -> None:
    assert await replay(mysql_server, program_of(path), Counts()) is None


def test_random_statements_differ_nowhere_unreported(mysql_server: MysqlServer) -> None:
    """One seed always, so that a change fails for its own fault."""
    differ_nowhere(mysql_server, GATES_SEED)


@pytest.mark.rest(because="the gate draws from one seed; other statements would fail a change that is not at fault")
def test_random_statements_of_the_week_differ_nowhere_unreported(mysql_server: MysqlServer) -> None:
    """A failure comes again all week, and another week tries other statements."""
    year, week, _ = datetime.datetime.now(datetime.UTC).isocalendar()
    differ_nowhere(mysql_server, year * 100 + week, programs=WEEKS_PROGRAMS)


def test_tencent_dts_differs_nowhere_unreported(mysql_server: MysqlServer) -> None:
    """The same statements through the stand-in's encoder and the decoder."""
    differ_nowhere(mysql_server, GATES_SEED, DTS, programs=OTHERS_PROGRAMS)


def test_vitess_differs_nowhere_unreported(mysql_server: MysqlServer) -> None:
    """The same statements over two shards, through the stand-in's vtgate and the VStream reader."""
    differ_nowhere(mysql_server, GATES_SEED, VITESS, programs=OTHERS_PROGRAMS)


@pytest.mark.parametrize("path", VITESS.corpus(), ids=lambda path: path.stem)
async def test_a_past_find_of_vitess_is_right_or_reported(mysql_server: MysqlServer, path: Path) -> None:
    assert await replay(mysql_server, program_of(path), Counts(), VITESS) is None


@pytest.mark.parametrize("path", DTS.corpus(), ids=lambda path: path.stem)
async def test_a_past_find_of_tencent_dts_is_right_or_reported(mysql_server: MysqlServer, path: Path) -> None:
    assert await replay(mysql_server, program_of(path), Counts(), DTS) is None


@pytest.mark.rest(because="the gate has the same programs by the binlog, and some of DTS by a seed")
@pytest.mark.parametrize("path", MYSQL.corpus(), ids=lambda path: path.stem)
async def test_a_past_find_of_the_binlog_is_right_by_tencent_dts(mysql_server: MysqlServer, path: Path) -> None:
    """Without a session's settings, which DTS does not say, the server refuses some of the statements."""
    assert await replay(mysql_server, program_of(path), Counts(), DTS, may_refuse=True) is None


def differ_nowhere(mysql_server: MysqlServer, number: int, kind: Kind = MYSQL, *, programs: int = PROGRAMS) -> None:
    """Carry out the programs of a seed."""
    reported: list[str] = []
    campaign = SourceCampaign(kind)
    finds = hunt(
        campaign,
        mysql_server,
        seed=rotating_seed(number),
        seconds=AT_MOST_S,
        programs_wanted=programs,
        reported=reported.append,
    )

    assert not finds, "\n".join(reported)
    assert campaign.counts.statements > campaign.counts.refused
    assert campaign.counts.cells
    assert campaign.counts.events
    print(reported[-1])  # noqa: T201 - the rate
