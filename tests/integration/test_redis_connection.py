"""Views over a real Valkey: a task that uses one ends when it is cancelled, in whatever moment that is."""

import asyncio
import random

from libs.config.connections import RedisSettings
from services.checkpoint_committer.view import CheckpointView
from tests.conftest import StartValkey

CANCELLATIONS = 2_000
LONGEST_RUN_S = 0.004
ENDS_WITHIN_S = 5.0


async def test_a_task_that_is_cancelled_during_a_command_ends(start_valkey: StartValkey) -> None:
    """Two thousand times; without the note's look, several of them went on for ever (one in some hundred)."""
    view = CheckpointView(RedisSettings(url=start_valkey().url), "topic")
    await view.replace({0: 0}, [])

    async def use_for_ever() -> None:
        while True:
            await view.extend({0: 0}, {0: 0}, [])

    for _ in range(CANCELLATIONS):
        using = asyncio.create_task(use_for_ever())
        await asyncio.sleep(random.uniform(0, LONGEST_RUN_S))
        using.cancel()
        done, _ = await asyncio.wait([using], timeout=ENDS_WITHIN_S)
        assert done, "it went on"
    await view.close()
