"""A lane's work: the records of waiting batches, and the offset after them, in one Kafka transaction after the other.

Whom a transaction is written for is its ``TransactionPlan``; the routes are views of the ``LaneRoutes``' book.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition

from libs.errors import ServiceUnavailable
from libs.events.names import STRAGGLING, straggler_group
from libs.failpoints import failpoint
from libs.telemetry import metrics
from services.router.batches.batch_reading import Changes, read_record
from services.router.kafka.awaited import stretches
from services.router.kafka.kafka_refusals import TopicsRefused
from services.router.kafka.straggler_offsets import own_note
from services.router.kafka.writer import TransactionWriter
from services.router.lane.routes import LaneRoutes
from services.router.lane.transaction_plan import TransactionPlan
from services.router.settings import UnreadableRecords
from services.router.stragglers.thread import Stragglers
from services.router.transactions.covered import OffsetNotWritten, offset_after
from services.router.transactions.lane_state import LanePosition
from services.router.transactions.metering import Meter, fetch_cpu_ns
from services.router.transactions.outputs import LaneDependencies, Outputs, Reached, WaitingBatch, reached_by
from services.router.transactions.unreadable import count_unreadable, report_unreadable, require_readable

_POLL_S: Final = 0.2
"""How long a lane waits before it asks again for a topic or a schema."""
_LONGEST_PAUSE_S: Final = 5.0
"""Between two questions to schema_history or the schema registry; the pauses double up to it."""
_SCHEMA_RETRY_S: Final = 30.0
"""How long schema_history or the schema registry may be away before the process ends and is started again with back-off."""
_MAX_WRITING_S: Final = 2.0
"""With many tenants 32 batches take long: a transaction ends after the batch in which so much time has passed."""


class Stretch(NamedTuple):
    """Batches one after the other, of which none but the first awaits others."""

    waiting: Sequence[WaitingBatch]
    batches: Sequence[Changes]


@dataclass(frozen=True, slots=True)
class Committed:
    """The state that the last committed transaction left."""

    next_offset: int
    behind: frozenset[str] = frozenset()
    """The tenants among the stragglers."""
    released: frozenset[str] = frozenset()
    """Former stragglers that are no longer tenants: the next transaction notes it in Kafka."""
    reached: Reached = field(default_factory=Reached)
    source_partition: str = ""


class LaneWorker:
    """Routes a lane's batches for all tenants that keep up; used by the lane's thread alone."""

    def __init__(
        self,
        source: str,
        place: TopicPartition,
        next_offset: int,
        topic_id: str,
        writer: TransactionWriter,
        shared: LaneDependencies,
        rows: MutableMapping[str, int],
        stragglers: Stragglers,
        found: Mapping[str, int],
        logger: Any,
    ) -> None:
        """``found``: the tenants that lagged when the lane opened, with their cursors. ``topic_id``: of the changes
        topic."""
        self._source = source
        self._place = place
        self._topic_id = topic_id
        self._writer = writer
        self._shared = shared
        self._log = logger
        self._outputs = Outputs(source, place, writer, shared, rows, Meter(), logger)
        self._stragglers = stragglers
        self._routes = LaneRoutes(source, shared, logger)
        self.unreadable: str | None = None
        """Of the last record that was set aside since the lane opened: where, and why."""
        specs = self._routes.specs
        for tenant in found.keys() & specs.keys():
            stragglers.add(specs[tenant], found[tenant], "lagged before the router started", Reached())
        self._committed = Committed(
            next_offset,
            behind=frozenset(found.keys() & specs.keys()),
            released=frozenset(found.keys() - specs.keys()),
        )
        stragglers.advance(next_offset, next_offset, ())

    @property
    def moved_s(self) -> float:
        """``time.monotonic()`` when Kafka last took a batch."""
        return self._writer.moved_s

    @property
    def refused_topics(self) -> Mapping[str, str]:
        """Topics whose schemas the registry would not have, with the reason."""
        return {topic: refused.reason for topic, refused in self._routes.book.refused_schemas.items()}

    def stretches(self, waiting: Sequence[WaitingBatch]) -> Iterator[Stretch]:
        """The unrouted part of ``waiting``, cut before each batch that awaits others. Raises PipelineHalted where one cannot be
        read and is not to be set aside."""
        fresh = [batch for batch in waiting if batch.offset >= self._committed.next_offset]
        batches = [read_record(batch.payload, self._source) for batch in fresh]
        if self._shared.settings.unreadable_records is UnreadableRecords.HALT:
            require_readable(self._place, fresh, batches)
        for first, end in stretches(batches):
            yield Stretch(fresh[first:end], batches[first:end])

    def take_in_tenants(self) -> None:
        """Between two transactions: forget stragglers that are no longer tenants."""
        self._routes.look()
        self._release_gone()

    def _release_gone(self) -> None:
        gone = frozenset(self._stragglers.tenants.take_gone(self._routes.specs))
        if gone:
            before = self._committed
            self._committed = replace(before, behind=before.behind - gone, released=before.released | gone)

    def forget_topics(self, prefix: str) -> None:
        """As if topics that begin so had never been seen."""
        self._outputs.topics.forget(prefix)
        self._writer.forget_topics(prefix)

    async def route(
        self, stretch: Stretch, lacking: Collection[str], transaction_began: Callable[[float | None], None]
    ) -> LanePosition:
        """Write the outputs of ``stretch`` and the offset after them, transaction by transaction.

        A tenant that cannot keep up falls behind, and those that can again come back. So do those that are ``lacking`` what
        the stretch awaits.

        Raises:
            Fenced: another owner has the partition; nothing of it became visible.
            BrokerUnavailable, ServiceUnavailable, PipelineHalted: nothing of it became visible.
        """
        fresh, batches = stretch
        self._routes.look_for(batches)
        self._release_gone()
        book, specs = self._routes.book, self._routes.specs
        plan = TransactionPlan(self._committed.behind, self._prepare(batches), lacking)
        done = 0
        while done < len(batches):
            began_s = time.monotonic()
            transaction_began(began_s)
            first = done
            self._take_joining(plan, batches[first:])
            await self._outputs.learn_topics()
            await self._writer.begin()
            try:
                await self._write_backlogs(plan)
                before = self._committed.reached
                plan.leave_stuck(fresh[first].offset, before, specs)
                view = book.view(plan.left_out)
                # One batch at least: the backlogs alone may have taken all the time.
                while done < len(batches) and (done == first or time.monotonic() - began_s < _MAX_WRITING_S):
                    over = () if self._shared.limits.is_empty else self._shared.limits.over()
                    if over and plan.leave_over_limits(over, fresh[done].offset, plan.reached or before, specs):
                        view = book.view(plan.left_out)
                    await self._outputs.write(batches[done], fresh[done].offset, view)
                    plan.reached = reached_by(batches[done], plan.reached or before)
                    done += 1
                next_offset = self._offset_after(fresh[first:done], plan)
                unreadable = report_unreadable(self._source, self._place, fresh[first:done], batches[first:done])
                await self._commit(next_offset, plan)
            except TopicsRefused as error:
                await self._writer.abort()
                self._outputs.forget()
                refused = _tenants_of(error.topics, specs)
                if not refused - (plan.behind - plan.joining.keys()):
                    raise
                self._stay(plan, dict.fromkeys(refused, str(error)))
                # The others stay stuck: a tenant whose schema is not known gets no row of this attempt either.
                stuck = {**plan.stuck, **dict.fromkeys(refused, str(error))}
                plan = TransactionPlan(plan.behind, stuck, plan.lacking)
                done = first
                continue
            transaction_began(None)
            failpoint("router_after_commit")
            self.unreadable = unreadable or self.unreadable
            self._settle(plan, next_offset, batches[first:done], fresh[first:done])
            self._count(batches[first:done], fresh[first:done], time.monotonic() - began_s)
            plan = TransactionPlan(self._committed.behind)
        return self._position()

    def _prepare(self, batches: Sequence[Changes]) -> dict[str, str]:
        """Look schemas up and make topics before the transaction begins, so that neither can make it old. Returns the tenants
        for which that cannot be done at once, each with the reason: nobody waits for them."""
        book, behind = self._routes.book, self._committed.behind
        view = book.view(behind)
        stuck: dict[str, str] = {}
        for batch in batches:
            began_s, pause_s = time.monotonic(), _POLL_S
            while True:
                try:
                    refused = self._outputs.topics.create_for(batch, view)
                except ServiceUnavailable as error:
                    if time.monotonic() > began_s + _SCHEMA_RETRY_S:
                        raise
                    self._log.warning("schema_lookup_retried", reason=str(error))
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                    continue
                stuck |= {target.tenant: str(error) for target, error in refused}
                stuck |= view.unready
                if not refused:
                    break
                view = book.view(behind | stuck.keys())  # once more: the others' topics
        self._routes.log_refused_schemas()
        return stuck

    # --- tenants that come back

    def _take_joining(self, plan: TransactionPlan, batches: Sequence[Changes]) -> None:
        """Tenants that may come back, once everything is there for their missed and later events."""
        book = self._routes.book
        for straggler, backlog in self._stragglers.tenants.take_joining():
            tenant = straggler.tenant
            missed = [(each.offset, read_record(each.payload, self._source)) for each in backlog]
            if tenant in plan.lacking or any(batch.head.awaited for _, batch in missed):
                self._stragglers.stay(straggler, None)  # it finds out itself when that is routed
                continue
            book.ask_again(tenant)
            view = book.view(self._routes.specs.keys() - {tenant})
            needed = (*(batch for _, batch in missed), *batches)
            try:
                refused = [each for batch in needed for each in self._outputs.topics.create_for(batch, view)]
            except ServiceUnavailable as error:  # schema_history; it is asked again where nobody waits
                self._stragglers.stay(straggler, str(error))
                continue
            if refused or tenant in view.unready or tenant in plan.stuck:
                reasons = (str(error) for _, error in refused)
                self._stragglers.stay(straggler, next(reasons, None) or view.unready.get(tenant, straggler.reason))
            else:
                plan.joining[tenant] = straggler
                plan.backlogs[tenant] = missed

    async def _write_backlogs(self, plan: TransactionPlan) -> None:
        for tenant, missed in plan.backlogs.items():
            view = self._routes.book.view(self._routes.specs.keys() - {tenant})
            for offset, batch in missed:
                await self._outputs.write(batch, offset, view)

    def _stay(self, plan: TransactionPlan, refused: Mapping[str, str]) -> None:
        """The transaction was aborted: nobody comes back by it."""
        for tenant, straggler in plan.joining.items():
            self._stragglers.stay(straggler, refused.get(tenant))

    # --- the end of a transaction

    def _offset_after(self, done: Sequence[WaitingBatch], plan: TransactionPlan) -> int:
        """Write, after this transaction's records, the backlogs of returning tenants, then ``done``. Raises
        OffsetNotWritten."""
        written, before = self._outputs.take_written(), 0
        try:
            for tenant, missed in plan.backlogs.items():
                own = written[before : before + len(missed)]
                # A tenant's missed events end before the first batch that it gets with the others.
                end = offset_after(plan.joining[tenant].cursor, [offset for offset, _ in missed], own)
                offset_after(end, [each.offset for each in done[:1]], [each.offset for each in done[:1]])
                before += len(missed)
            return offset_after(self._committed.next_offset, [each.offset for each in done], written[before:])
        except OffsetNotWritten as error:
            place = f"{self._place.topic}/{self._place.partition}"
            raise OffsetNotWritten(
                f"{place}: {error}; nothing of it was committed. Start the router again, and report this with its log"
            ) from error

    async def _commit(self, next_offset: int, plan: TransactionPlan) -> None:
        await self._writer.send_gathered()
        failpoint("router_after_produce_before_offsets")
        await self._writer.send_offset(next_offset, note=own_note(plan.left_out, self._topic_id))
        for tenant in plan.joining.keys() - plan.left.keys() | self._committed.released:
            await self._writer.send_offset(next_offset, group=straggler_group(self._shared.group, tenant))
        for tenant, left in plan.left.items():
            group = straggler_group(self._shared.group, tenant)
            await self._writer.send_offset(left.cursor, group=group, note=STRAGGLING)
        if plan.left or plan.joining:
            failpoint("router_after_leaving_before_commit")
        self._outputs.report()
        failpoint("router_after_offsets_before_commit")
        await self._writer.commit()
        if plan.left:
            failpoint("router_after_leaving_committed")

    def _settle(
        self, plan: TransactionPlan, next_offset: int, batches: Sequence[Changes], waiting: Sequence[WaitingBatch]
    ) -> None:
        """The transaction is committed: it is as its plan says."""
        before = self._committed
        self._committed = Committed(
            next_offset,
            behind=plan.left_out,
            reached=plan.reached or before.reached,
            source_partition=_source_partition(batches) or before.source_partition,
        )
        for straggler in plan.joining.values():
            self._stragglers.tenants.joined(straggler)
        for tenant, left in plan.left.items():
            spec = self._routes.specs[tenant]
            self._stragglers.add(spec, left.cursor, left.reason, left.reached, is_stuck=left.is_stuck)
        self._stragglers.advance(before.next_offset, next_offset, waiting)
        count_unreadable(self._source, waiting, batches, self._log)
        self._routes.release_dropped_tables(batches)
        self._shared.refusals.take_in(self._routes.book.view(self._committed.behind))

    def _count(self, batches: Sequence[Changes], waiting: Sequence[WaitingBatch], took_s: float) -> None:
        source_partition = self._committed.source_partition
        metrics.ROUTER_TRANSACTION_SECONDS.labels(self._source, source_partition).observe(took_s)
        metrics.ROUTER_BATCHES.labels(self._source, source_partition).inc(len(batches))
        self._outputs.count(fetch_cpu_ns(waiting))

    def _position(self) -> LanePosition:
        committed = self._committed
        return LanePosition(
            next_offset=committed.next_offset,
            moved_at_s=time.monotonic(),
            source=self._source,
            source_partition=committed.source_partition,
            committed_at_us=committed.reached.committed_at_us,
            order=committed.reached.order,
            tenants=frozenset(self._routes.specs),
        )


def _tenants_of(topics: Collection[str], tenants: Collection[str]) -> set[str]:
    """Whose topics they are: their names begin with their tenants'."""
    return {topic.partition(".")[0] for topic in topics} & set(tenants)


def _source_partition(batches: Sequence[Changes]) -> str:
    """The source's, of the last batch that says it; empty: none does."""
    said = (batch.head.source_partition for batch in reversed(batches))
    return next(filter(None, said), "")
