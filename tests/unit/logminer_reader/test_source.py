"""The Oracle source over the stand-in keeps every source's promises; ``tests/contract`` has it with the real services."""

from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import cast

import pytest

from libs.errors import PositionPurged
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.testing import source_contract as contract
from tests.oracle.database import ModelDatabase
from tests.oracle.harness import USERS, OracleHarness
from tests.oracle.model import Model
from tests.oracle.reading import MemoryHistory
from tests.oracle.server import listening


@pytest.fixture
def harness() -> Iterator[OracleHarness]:
    database = ModelDatabase(Model(clock=lambda: datetime.now(UTC).replace(tzinfo=None)), USERS)
    with listening(database) as listener:
        yield OracleHarness(database, listener, cast(SchemaHistoryClient, MemoryHistory()), "shop")


@pytest.mark.parametrize(
    "promise",
    [
        contract.existing_rows_come_first_then_changes,
        contract.reading_resumes_without_gap_or_repeat,
        contract.a_replay_carries_the_same_orders,
        contract.no_resume_point_lies_inside_a_transaction,
        contract.closing_releases_every_connection,
    ],
    ids=lambda promise: promise.__name__,
)
async def test_every_source_promises_it(
    promise: Callable[[contract.SourceHarness], Awaitable[None]], harness: OracleHarness
) -> None:
    await promise(harness)


async def test_a_purged_position_halts(harness: OracleHarness) -> None:
    await contract.a_purged_position_halts(harness, PositionPurged)
