"""Records about this job's tenants, for their operator: sent beside the job's loop.

A thread sends each record, so that the loop waits for nothing. A record that Kafka does not take is sent again.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

import structlog
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from libs.errors import TransientError
from libs.types.sink_place import Places

PAUSE_S: Final = 30.0
"""After Kafka did not take it."""

Record = TypeVar("Record")
Sent = TypeVar("Sent")

log = structlog.get_logger()


def own_tenants(places: Places, key_of: Callable[[str, str, str], str]) -> dict[str, str]:
    """The tenants that this job serves, by the key of their records; those that leave with their tables are not among them."""
    return {
        key_of(name, place.tenancy, places.job): name
        for name, place in places.tenants.items()
        if place.job == places.job and not place.drops_tables
    }


class Reporter(Generic[Record, Sent]):
    """Sends records one after another, and remembers the last one of each key."""

    def __init__(
        self,
        send: Callable[[Mapping[str, Record | None]], None],
        kept: Callable[[Record | None, float], Sent],
        refused_event: str,
    ) -> None:
        """``send``: durable when it returns; raises TransientError where it may not be. ``kept``: the memory of a record
        that was sent at a second. ``refused_event``: the log's name for a failure.
        """
        self.sent: dict[str, Sent] = {}
        self._send = send
        self._kept = kept
        self._refused_event = refused_event
        self._not_before_s = 0.0
        self._is_sending = False

    def is_busy(self, now_s: float) -> bool:
        """A thread is sending, or waits for Kafka."""
        return self._is_sending or now_s < self._not_before_s

    def start(self, news: Mapping[str, Record | None]) -> None:
        """Send ``news`` in a thread, if there are any. Not while it is busy."""
        if news:
            self._is_sending = True
            threading.Thread(target=self._run, args=(news,), daemon=True).start()

    def _run(self, news: Mapping[str, Record | None]) -> None:
        try:
            self._send(news)
            at_s = time.monotonic()
            self.sent = self.sent | {key: self._kept(record, at_s) for key, record in news.items()}
        except TransientError as error:
            self._not_before_s = time.monotonic() + PAUSE_S
            log.warning(self._refused_event, reason=str(error), retry_in_s=PAUSE_S)
        except (Py4JError, ConnectionError):  # the JVM is gone, which the job's loop sees
            self._not_before_s = time.monotonic() + PAUSE_S
        finally:
            self._is_sending = False
