"""Past finds of the fuzzer of sinks, and some new programs; see ``tests/fuzz/sinks`` and docs/testing.md."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import KafkaBroker, MysqlServer, PostgresqlServer
from tests.fuzz.hunt import hunt, program_of
from tests.fuzz.sinks.campaign import CORPUS, SinkCampaign, replay
from tests.fuzz.sinks.trial import SinkCounts
from tests.fuzz.sinks.warehouses import KINDS, Warehouses

pytestmark = [
    pytest.mark.spark,
    pytest.mark.rest(
        because="the gate has the plans and fills of such sequences in tests/unit/spark/test_schema_sequences.py"
    ),
]
PROGRAMS = 2
SEED = 202_648
AT_MOST_S = 600.0


@pytest.fixture
def warehouses(kafka_broker: KafkaBroker, postgresql_server: PostgresqlServer, tmp_path: Path) -> Iterator[Warehouses]:
    with ExitStack() as servers:
        yield Warehouses(tmp_path, servers, kafka_broker, postgresql_server)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.sql")), ids=lambda path: path.stem)
async def test_a_past_find_is_right(mysql_server: MysqlServer, warehouses: Warehouses, path: Path) -> None:
    find = await replay(mysql_server, program_of(path), SinkCounts(), warehouses)

    assert find is None, find.words


@pytest.mark.parametrize("kind", KINDS)
def test_warehouses_have_what_the_source_has(mysql_server: MysqlServer, warehouses: Warehouses, kind: str) -> None:
    """One seed always, so that a change fails for its own fault."""
    reported: list[str] = []
    campaign = SinkCampaign(warehouses, kinds=(kind,))
    finds = hunt(
        campaign, mysql_server, seed=SEED, seconds=AT_MOST_S, programs_wanted=PROGRAMS, reported=reported.append
    )

    assert not finds, "\n".join(reported)
    assert campaign.counts.rows
    print(reported[-1])  # noqa: T201 - the rate
