"""A straggler's next transaction: prepared beside the stragglers' thread, written in it.

Work that may have to wait for a server (schemas, topics) is done before a turn, beside others' turns.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from aiokafka import TopicPartition

from libs.errors import BrokerUnavailable, HeadwaterError, ServiceUnavailable, refusal_of
from libs.events.names import STRAGGLING, straggler_group
from libs.failpoints import failpoint
from services.router.batches.batch_reading import Changes, read_record
from services.router.kafka.awaited import LACKS, PassedPartitions, awaited_ends
from services.router.kafka.kafka_refusals import TopicsRefused
from services.router.kafka.writer import TransactionWriter
from services.router.stragglers.missed_batches import ChangesLost, MissedBatches
from services.router.stragglers.routes import RefusedForNow
from services.router.stragglers.straggler import State, Straggler
from services.router.stragglers.straggler_set import AT_ONCE, StragglerSet, needs_touch
from services.router.transactions.covered import offset_after
from services.router.transactions.outputs import LaneDependencies, Outputs, Reached, WaitingBatch, reached_by

_TURN_WRITING_S: Final = 0.2


class StragglerTurns:
    """Of one partition's stragglers, over their one producer."""

    def __init__(
        self,
        source: str,
        place: TopicPartition,
        shared: LaneDependencies,
        tenants: StragglerSet,
        missed: MissedBatches,
        writer: TransactionWriter,
        new_outputs: Callable[[], Outputs],
        logger: Any,
    ) -> None:
        self._source = source
        self._place = place
        self._shared = shared
        self._tenants = tenants
        self._missed = missed
        self.writer = writer
        self._new_outputs = new_outputs
        self._log = logger
        self._others = PassedPartitions(shared.kafka, shared.group)
        self._executor = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="straggler")
        self.rests_until_s = 0.0
        """``time.monotonic()`` before which no turn is to begin."""
        self.transaction_began_s: float | None = None
        """``time.monotonic()`` at the begin of the running transaction; the watchdog looks at it."""

    def close(self) -> None:
        """Prepare nothing more."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    # --- before a turn

    async def prepare(self, straggler: Straggler) -> None:
        """Read a tenant's next batches, and prepare their writing, beside the thread."""
        if straggler.outputs is None:
            straggler.outputs = self._new_outputs()
        straggler.ready = []
        obstacle, state = straggler.obstacle, State.IDLE
        try:
            if not needs_touch(straggler, time.monotonic()):
                loop = asyncio.get_running_loop()
                straggler.ready = await loop.run_in_executor(self._executor, self._made_ready, straggler)
        except _Awaits as error:
            obstacle.put_off(str(error))
        except ServiceUnavailable as error:
            self._log_stuck(straggler, str(error))
            obstacle.lack_server(str(error))
        except RefusedForNow as error:
            self._log_stuck(straggler, str(error))
            obstacle.fail(str(error))
        except ChangesLost as error:
            self._log_stuck(straggler, str(error))
            obstacle.refuse(str(error))
        except Exception as error:  # of this tenant's document, or a name: the others take their turns
            if isinstance(error, HeadwaterError):
                raise
            self._log.error("refused_unforeseen", tenant_id=straggler.tenant, exc_info=error)
            obstacle.refuse(refusal_of(error))
        else:
            obstacle.lacks_server_since_s = None
            state = State.READY
        self._tenants.set_state(straggler, state)

    def _made_ready(self, straggler: Straggler) -> list[tuple[WaitingBatch, Changes]]:
        assert straggler.outputs is not None
        began_ns = time.thread_time_ns()
        waiting = self._missed.read(straggler.cursor)
        batches = self._passed([(each, read_record(each.payload, self._source)) for each in waiting], straggler.tenant)
        routes = straggler.routes
        routes.renew(self._source, straggler.spec, self._shared)
        for _, batch in batches:
            routes.prepare(batch, straggler.outputs.topics, self._log)
        routes.note_refused(self._log)
        self._shared.refusals.take_in(routes.view)
        straggler.prepared_ns += time.thread_time_ns() - began_ns
        return batches

    def _passed(
        self, batches: Sequence[tuple[WaitingBatch, Changes]], tenant: str
    ) -> list[tuple[WaitingBatch, Changes]]:
        """Up to the first batch whose awaited records the tenant lacks. Raises _Awaits: it is the first one."""
        passed: list[tuple[WaitingBatch, Changes]] = []
        for waiting, batch in batches:
            ends = awaited_ends(batch, self._place.topic)
            try:
                if ends and not self._others.is_passed_by(tenant, ends):
                    break
            except BrokerUnavailable as error:
                self._log.warning("awaited_partitions_unknown", reason=str(error))
                break
            passed.append((waiting, batch))
        if batches and not passed:
            raise _Awaits(LACKS)
        return passed

    # --- a turn

    async def take(self, straggler: Straggler) -> None:
        """One transaction for one tenant: records and cursor."""
        outputs, view, writer = straggler.outputs, straggler.routes.view, self.writer
        assert outputs is not None
        began_s = time.monotonic()
        self.transaction_began_s = began_s
        reached, done = straggler.reached, 0
        try:
            await outputs.learn_topics()
            await writer.begin()
            for waiting, batch in straggler.ready:
                await outputs.write(batch, waiting.offset, view)
                reached, done = reached_by(batch, reached), done + 1
                if self._shared.limits.wait_s(straggler.tenant) > 0 or time.monotonic() > began_s + _TURN_WRITING_S:
                    break
            planned = [waiting.offset for waiting, _ in straggler.ready[:done]]
            cursor = offset_after(straggler.cursor, planned, outputs.take_written())
            await writer.send_gathered()
            failpoint("router_straggler_after_produce_before_offset")
            group = straggler_group(self._shared.group, straggler.tenant)
            await writer.send_offset(cursor, group=group, note=STRAGGLING)
            outputs.report()
            failpoint("router_straggler_after_offset_before_commit")
            await writer.commit()
            failpoint("router_straggler_after_commit")
        except TopicsRefused as error:
            await writer.abort()
            outputs.forget()
            self._log_stuck(straggler, str(error))
            straggler.ready = []
            straggler.obstacle.refuse(str(error))
        else:
            self._settle(straggler, outputs, cursor, reached, done)
        finally:
            self.transaction_began_s = None
        self._tenants.set_state(straggler, State.IDLE)

    def _settle(self, straggler: Straggler, outputs: Outputs, cursor: int, reached: Reached, done: int) -> None:
        """The turn's transaction is committed, with ``done`` batches."""
        cpu_s = outputs.count(straggler.prepared_ns)
        straggler.prepared_ns = 0
        now_s = time.monotonic()
        straggler.cursor, straggler.reached = cursor, reached
        straggler.ready = []
        straggler.touched_s = now_s
        if not done:
            return
        straggler.virtual_s += cpu_s / self._shared.limits.weight(straggler.tenant)
        straggler.near_since_s = None
        self.rests_until_s = now_s + cpu_s
        if straggler.obstacle.lift():
            self._log.info("tenant_goes_on", tenant_id=straggler.tenant, cursor=cursor)

    def _log_stuck(self, straggler: Straggler, reason: str) -> None:
        if reason != straggler.reason or not straggler.obstacle.is_stuck:
            self._log.warning("tenant_stuck", tenant_id=straggler.tenant, cursor=straggler.cursor, reason=reason)


class _Awaits(HeadwaterError):
    """The next batch waits until the tenant has another partition's records."""
