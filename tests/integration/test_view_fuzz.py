"""Past finds of the fuzzer of tenants' views, and some new programs; see ``tests/fuzz/views`` and docs/testing.md."""

from pathlib import Path

import pytest

from tests.conftest import MysqlServer
from tests.fuzz.hunt import hunt, program_of
from tests.fuzz.views.campaign import ViewCampaign, replay
from tests.fuzz.views.trial import ViewCounts

PROGRAMS = 4
GATES_SEED = 202_700
AT_MOST_S = 400.0


@pytest.mark.parametrize("path", ViewCampaign().corpus(), ids=lambda path: path.stem)
async def test_a_past_find_is_right(mysql_server: MysqlServer, path: Path) -> None:
    find = await replay(mysql_server, program_of(path), ViewCounts())

    assert find is None, find.words


def test_tenants_get_the_rows_that_mysql_says_they_do(mysql_server: MysqlServer) -> None:
    """One seed always, so that a change fails for its own fault."""
    reported: list[str] = []
    campaign = ViewCampaign()
    finds = hunt(
        campaign,
        mysql_server,
        seed=GATES_SEED,
        seconds=AT_MOST_S,
        programs_wanted=PROGRAMS,
        reported=reported.append,
    )

    assert not finds, "\n".join(reported)
    assert campaign.counts.judged
    assert campaign.counts.delivered
    print(reported[-1])  # noqa: T201 - the rate
