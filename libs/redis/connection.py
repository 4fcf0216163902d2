"""A connection to the server that holds the fast views, left alone for some seconds after it did not answer.

Redis makes a service quick, and is never needed for right answers: a service that cannot reach it goes on, and says so.
"""

import asyncio
import time
from typing import Final

import redis.asyncio
import structlog

from libs.config.connections import RedisSettings
from libs.redis.bounded import bounded_pool
from libs.telemetry.metrics import REDIS_AVAILABLE

TIMEOUT_S: Final = 2.0
RETRY_AFTER_S: Final = 5.0
"""How long an unreachable Redis is left alone, so that nothing waits for its time-out each time."""

AWAY: Final = (redis.RedisError, OSError)
"""A command's errors where Redis is away."""
UNUSABLE: Final = (*AWAY, ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""Also those where something answers that is no Redis: redis-py lets its parser's errors of numbers and depth pass."""

log = structlog.get_logger()


class RedisConnection:
    """``client`` for the commands; its owner asks ``is_away`` before them and notes afterwards how they went.

    A task that was cancelled during a command ends at the note: redis-py writes through ``asyncio.wait_for``, which
    before Python 3.12 loses a cancellation that comes as the write ends (CPython gh-86296).
    """

    def __init__(self, settings: RedisSettings) -> None:
        pool = bounded_pool(
            settings.url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, health_check_interval=30
        )
        self.client = redis.asyncio.Redis.from_pool(pool)
        self.unavailable: str | None = None
        """Why, in words for an operator; None while Redis answers."""
        self._away_until_s = 0.0
        REDIS_AVAILABLE.set(1)

    def is_away(self) -> bool:
        """It did not answer a moment ago: do not ask again yet."""
        return time.monotonic() < self._away_until_s

    def note_away(self, error: Exception) -> None:
        """A command failed."""
        _end_if_cancelled()
        if self.unavailable is None:
            log.warning("redis_lost", reason=type(error).__name__)
        if isinstance(error, redis.ResponseError):
            self.unavailable = (
                f"Redis refuses a command ({str(error)[:100]}): starts are slow; give Headwater a Redis of its own, whose "
                "keys nobody else writes"
            )
        else:
            self.unavailable = f"Redis does not answer ({type(error).__name__}): starts are slow until it does"
        self._away_until_s = time.monotonic() + RETRY_AFTER_S
        REDIS_AVAILABLE.set(0)

    def note_foreign(self, key: str, error: Exception) -> None:
        """A command succeeded, and the value under ``key`` is not in Headwater's form: it is passed over."""
        _end_if_cancelled()
        log.warning(
            "redis_value_discarded",
            key=key,
            reason=f"{type(error).__name__}: {error}"[:200],
            remedy="find out who else writes to this Redis, and give Headwater one of its own; Kafka is read instead",
        )

    def note_back(self) -> None:
        """A command succeeded."""
        _end_if_cancelled()
        if self.unavailable is not None:
            log.info("redis_found_again")
        self.unavailable = None
        REDIS_AVAILABLE.set(1)

    async def close(self) -> None:
        """Close the connections."""
        await self.client.aclose()


def _end_if_cancelled() -> None:
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
