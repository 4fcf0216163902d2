"""Tenants that lag the others in a partition of a changes topic, each with a cursor of its own.

The lane goes on for all others while a tenant cannot or may not keep up: it is over its limits, a topic of it cannot be
written, the registry does not know its schema. Its missed batches are read from the changes topic again, from its cursor
on, and written for it alone, by a thread and a transactional producer beside the lane's. When only the last few batches are
missing, and nothing is in the way, the lane takes the tenant in again and writes these with its next transaction.

A tenant belongs to the lane or to the stragglers, never to both. It leaves and comes back in the lane's transactions alone;
its cursor moves in the stragglers' transactions alone, each with the records that it covers. So nothing is lost or repeated,
and each topic has its events in log order, through any kill (``straggler_offsets`` says where the state lies).

Turns are given by weight: the ready tenant that took the least CPU for its weight is next. A turn ends after some batches,
and all
pause for as long as it took CPU, so that turns leave at least half of a core to the lanes. Work that may have to wait for a
server (schemas, topics) is done before a turn, beside others' turns.
"""

import asyncio
import functools
import threading
import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Final

from aiokafka import TopicPartition

from libs.errors import BrokerUnavailable, Fenced, HeadwaterError, PipelineHalted
from libs.types.tenant import TenantSpec
from services.router.kafka.writer import TransactionWriter
from services.router.stragglers.missed_batches import MissedBatches
from services.router.stragglers.straggler import Obstacle, State, Straggler
from services.router.stragglers.straggler_set import StragglerSet
from services.router.stragglers.turns import StragglerTurns
from services.router.transactions.inbox import call_in
from services.router.transactions.metering import Meter
from services.router.transactions.outputs import LaneDependencies, Outputs, Reached, WaitingBatch

_OPEN_TIMEOUT_S: Final = 35.0  # below the time that a lane may take to open
_JOIN_TIMEOUT_S: Final = 4.0
_POLL_S: Final = 0.5


class Stragglers:
    """The thread of one lane's stragglers. It and its producer begin with the first of them."""

    def __init__(
        self,
        source: str,
        place: TopicPartition,
        shared: LaneDependencies,
        rows: MutableMapping[str, int],
        logger: Any,
        on_failure: Callable[[HeadwaterError], None],
    ) -> None:
        self._place = place
        self._shared = shared
        self._log = logger
        self._on_failure = on_failure
        self._missed = MissedBatches(place, shared)
        self.tenants = StragglerSet(shared, self._missed, logger)
        """Those that lag."""
        self._new_turns = functools.partial(_turns, source, place, shared, self.tenants, self._missed, rows, logger)
        self._turns: StragglerTurns | None = None
        """None until the producer is open."""
        self._opened = threading.Event()
        """The producer is open, or cannot be."""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()

    @property
    def transaction_began_s(self) -> float | None:
        """``time.monotonic()`` at the begin of the running transaction; from any thread."""
        return None if self._turns is None else self._turns.transaction_began_s

    # --- the lane's side

    def open(self) -> None:
        """Begin, and fence the process that moved cursors before. Blocks. Raises BrokerUnavailable."""
        self._begin()
        if not self._opened.wait(_OPEN_TIMEOUT_S) or self._turns is None:
            raise BrokerUnavailable(f"the producer of tenants that lag in {self._place.topic} did not open in time")

    def add(self, spec: TenantSpec, cursor: int, reason: str, reached: Reached, *, is_stuck: bool = False) -> None:
        """A tenant fell behind, by a committed transaction."""
        self.tenants.add(spec, cursor, reached, Obstacle(reason, is_stuck))
        self._begin()
        self._rouse()

    def advance(self, start: int, end: int, batches: Sequence[WaitingBatch]) -> None:
        """The lane's committed offset went from ``start`` to ``end`` by ``batches``."""
        has_any = bool(self.tenants.all())
        if has_any:
            self._missed.recent.add(start, end, batches)
        self._missed.end = end
        if has_any:
            self._rouse()

    def stay(self, straggler: Straggler, reason: str | None) -> None:
        """See ``StragglerSet.stay``; the thread goes on for it."""
        self.tenants.stay(straggler, reason)
        self._rouse()

    def forget_topics(self, prefix: str) -> None:
        """See ``TransactionWriter.forget_topics``; for tenants without topics. From any thread."""
        if self._turns is not None:
            self._call(functools.partial(self._turns.writer.forget_topics, prefix))

    def close(self) -> None:
        """Let the running transaction end, then stop. Blocks for some seconds at most."""
        self._missed.is_closing = True
        self._rouse()
        if self._thread is not None:
            self._thread.join(_JOIN_TIMEOUT_S)
        if self._turns is not None:
            self._turns.close()

    def _begin(self) -> None:
        if self._thread is None:
            name = f"stragglers-{self._place.topic}-{self._place.partition}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def _rouse(self) -> None:
        self._call(self._wake.set)

    def _call(self, function: Callable[[], None]) -> None:
        """In the thread's loop, while there is one."""
        if self._loop is not None:
            call_in(self._loop, function)

    # --- the thread's side

    def _run(self) -> None:
        try:
            asyncio.run(self._follow())
        except Fenced as error:  # the lane's own producer will find out too
            self._log.warning("stragglers_fenced", reason=str(error))
        except HeadwaterError as error:
            self._fail(error)
        except Exception as error:
            self._log.exception("stragglers_failed")
            self._fail(PipelineHalted(f"the router failed on lagging tenants with {type(error).__name__}; see the log"))
        finally:
            self._opened.set()

    def _fail(self, error: HeadwaterError) -> None:
        if not self._missed.is_closing:
            self._on_failure(error)

    async def _follow(self) -> None:
        self._loop = asyncio.get_running_loop()
        shared = self._shared
        writer = await TransactionWriter.open(
            shared.kafka, shared.group, self._place, shared.settings, part="-stragglers"
        )
        turns = self._turns = self._new_turns(writer)
        tasks: set[asyncio.Task[None]] = set()
        try:
            self._opened.set()
            while not self._missed.is_closing:
                self._wake.clear()
                self.tenants.take_in_documents()
                for straggler in self.tenants.take_to_prepare():
                    tasks.add(asyncio.create_task(self._prepare(straggler, turns)))
                for task in [task for task in tasks if task.done()]:
                    tasks.discard(task)
                    task.result()
                ready = [each for each in self.tenants.all() if each.state is State.READY]
                if ready:
                    await asyncio.sleep(max(0.0, turns.rests_until_s - time.monotonic()))
                    await turns.take(min(ready, key=lambda each: each.virtual_s))
                else:
                    await self._pause()
        finally:
            for task in tasks:
                task.cancel()
            await writer.close()

    async def _prepare(self, straggler: Straggler, turns: StragglerTurns) -> None:
        await turns.prepare(straggler)
        self._wake.set()

    async def _pause(self) -> None:
        """Until something is to be done."""
        try:
            async with asyncio.timeout(max(0.01, min(_POLL_S, self.tenants.next_due_s(time.monotonic())))):
                await self._wake.wait()
        except TimeoutError:
            return


def _turns(
    source: str,
    place: TopicPartition,
    shared: LaneDependencies,
    tenants: StragglerSet,
    missed: MissedBatches,
    rows: MutableMapping[str, int],
    logger: Any,
    writer: TransactionWriter,
) -> StragglerTurns:
    """Called in the thread, whose CPU is metered. ``rows``: see ``Outputs``."""
    new_outputs = functools.partial(Outputs, source, place, writer, shared, rows, Meter(), logger)
    return StragglerTurns(source, place, shared, tenants, missed, writer, new_outputs, logger)
