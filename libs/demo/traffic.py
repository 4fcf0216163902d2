"""The demo's live traffic: several writers for some seconds, and the events that a capture must survive.

Every writer has a session and a seeded random sequence of its own. Beside them one thread runs the set pieces at
their times: changes of primary keys, a transaction of 10,000 rows, an ``ALTER TABLE … ADD COLUMN`` while the writers
go on. Orders also move from one tenant to another, so that a row filter has to let rows in and out.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from libs.demo.shop import DemoShop
from libs.errors import ServiceUnavailable

WRITERS: Final = 3
PAUSE_S: Final = 0.01
"""Between two transactions of a writer: some 150 to 250 transactions a second in all."""
LARGE_TRANSACTION_ROWS: Final = 10_000
RENUMBERED_CUSTOMERS: Final = 5
FIRST_NEW_NUMBER: Final = 1_000_001
"""Beyond all that the shop was filled with."""

PRIMARY_KEY_CHANGE_AT: Final = 0.25
LARGE_TRANSACTION_AT: Final = 0.45
ADD_COLUMN_AT: Final = 0.65
"""When the set pieces are played, as parts of the traffic's duration."""


@dataclass(slots=True)
class Traffic:
    """The rows written so far, by all writers together."""

    rows: int = 0
    transactions: int = 0
    set_pieces: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    has_channel: threading.Event = field(default_factory=threading.Event)
    next_number: int = FIRST_NEW_NUMBER
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take_numbers(self, count: int = 1) -> int:
        """The first of ``count`` numbers that nobody else is given."""
        with self.lock:
            first, self.next_number = self.next_number, self.next_number + count
        return first

    def add(self, rows: int) -> None:
        """Count one committed transaction."""
        with self.lock:
            self.rows += rows
            self.transactions += 1


def run_traffic(
    shop: DemoShop,
    *,
    duration_s: float,
    seed: int,
    stop: threading.Event,
    on_progress: Callable[[float, Traffic], None] = lambda *_: None,
    at: Mapping[float, Callable[[], None]] | None = None,
    scale: float = 1.0,
) -> Traffic:
    """Write for ``duration_s``; returns when every writer has ended.

    ``at`` maps parts of the duration to the caller's acts at that time (the demo's kills), in its own thread.
    ``scale`` is that of ``DemoShop.fill``.

    Raises:
        ServiceUnavailable: a statement failed; the first failure of any writer.
    """
    traffic = Traffic()
    ends_s = time.monotonic() + duration_s
    writers = [
        threading.Thread(
            target=_guarded, args=(traffic, _write_until, shop, ends_s, seed + number, traffic, stop, scale)
        )
        for number in range(WRITERS)
    ]
    started_s = time.monotonic()
    director = threading.Thread(target=_guarded, args=(traffic, _play, shop, started_s, duration_s, traffic, stop))
    threads = [*writers, director]
    for thread in threads:
        thread.start()
    waiting = sorted((at or {}).items())
    try:
        while any(thread.is_alive() for thread in threads):
            part = (time.monotonic() - started_s) / duration_s
            if waiting and part >= waiting[0][0] and not traffic.failures:
                waiting.pop(0)[1]()
            on_progress(min(part, 1.0), traffic)
            if traffic.failures:
                stop.set()
            time.sleep(0.1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if traffic.failures:
        failure = traffic.failures[0]
        raise ServiceUnavailable(f"the traffic could not be written: {type(failure).__name__}: {failure}") from failure
    return traffic


def _guarded(traffic: Traffic, work: Callable[..., None], *arguments: Any) -> None:
    try:
        work(*arguments)
    except Exception as error:
        traffic.failures.append(error)


def _write_until(
    shop: DemoShop, ends_s: float, seed: int, traffic: Traffic, stop: threading.Event, scale: float
) -> None:
    chance = random.Random(seed)  # noqa: S311 - test data
    writes, weights = zip(*shop.writes, strict=True)
    with shop.session() as session:
        while time.monotonic() < ends_s and not stop.is_set():
            [write] = chance.choices(writes, weights=weights)

            def work(session: Any, write: Any = write) -> int:
                return int(write(session, chance, traffic, scale))

            traffic.add(shop.in_transaction(session, work))
            stop.wait(PAUSE_S * 2 * chance.random())


def _play(shop: DemoShop, started_s: float, duration_s: float, traffic: Traffic, stop: threading.Event) -> None:
    with shop.session() as session:
        for part, piece in sorted(shop.set_pieces.items()):
            if stop.wait(max(0.0, started_s + part * duration_s - time.monotonic())):
                return
            rows = piece(session, traffic)
            traffic.add(rows)
            traffic.set_pieces.append(piece.__name__)
