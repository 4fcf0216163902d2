"""Has everything that a source had committed arrived in the tenants' tables? Asked hop by hop, and waited for.

    source ─▶ reader: its checkpoint holds the source's transactions
           ─▶ router: its committed offset is the end of the changes topic
           ─▶ sink:   Spark's checkpoint is at the end of each of the tenant's row topics

Each hop is asked after the one before it has caught up, so all that was committed at the source when the wait began is in
the tables when it ends. Later changes are not waited for: the wait ends also for a source that changes all the time.
``check`` and the demo call this.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable, HeadwaterError, ServiceUnavailable, TransientError
from libs.events.names import ROUTER_GROUP, changes_topic, is_straggling, row_topic_template, straggler_group
from libs.kafka.clients import client_config
from libs.kafka.offset_note import note_of
from libs.mesh.documents import Documents, SourceDocument
from libs.mesh.executed import Committed, Executed, executed_in, executed_now, missing_transactions
from libs.mesh.home import Home
from libs.mesh.mesh import stack_kafka
from libs.mesh.own_services import caller
from libs.mesh.processes import CHECKPOINT_COMMITTER
from libs.mesh.reader_tasks import last_generations, of_todays_readers, settings_of
from libs.mesh.sink_state import committed_offsets, sink_progress
from libs.mesh.state import read_ports
from libs.mesh.tenant_topics import end_offsets, has_records_between, open_consumer, row_topics
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.types.checkpoint import Checkpoint
from libs.types.tenant import TenantSpec

POLL_PAUSE_S: Final = 0.5
ANSWER_TIMEOUT_S: Final = 5.0

OnProgress = Callable[[str], None]


class NotCaughtUp(TransientError):
    """The tables did not catch up in time; the message says which hop lags, and by how much."""


@dataclass(frozen=True, slots=True)
class SentSignals:
    """Signals to one source's reader."""

    ids: tuple[str, ...]
    last_offset: int
    """Of the last one, in ``headwater.signals``."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The first hop that lacks something."""

    hop: str
    amount: str

    def __str__(self) -> str:
        return f"{self.hop} is behind by {self.amount}"


class Readers(Protocol):
    """The progress of a mesh's readers."""

    def by_source(self, sources: Iterable[str]) -> dict[str, list[Checkpoint] | None]:
        """The checkpoints of each source's readers; None: not all of them have written one yet.

        Raises:
            ServiceUnavailable, BrokerUnavailable: their keeper does not answer.
        """
        ...


class Hops(Readers, Protocol):
    """The progress of each hop of a mesh."""

    @property
    def kafka(self) -> KafkaSettings:
        """Its Kafka."""
        ...

    def sink_hop(self, consumer: Consumer, tenant: TenantSpec) -> Callable[[], Behind | None]:
        """The events of ``tenant``'s topics, as of the first call, that its sink has not written; None: none."""
        ...


@dataclass(frozen=True, slots=True)
class StackHops:
    """Of the stack of a home (``Hops``): from its services, and from the Spark job's files."""

    home: Home
    passes_parked: bool = False
    """Parked tables are not waited for: the caller reports them (``check``). Else one makes waiting vain."""

    @property
    def kafka(self) -> KafkaSettings:
        return stack_kafka(self.home)

    def by_source(self, sources: Iterable[str]) -> dict[str, list[Checkpoint] | None]:
        return _by_source(self.home, sources)

    def sink_hop(self, consumer: Consumer, tenant: TenantSpec) -> Callable[[], Behind | None]:
        return _sink_hop(self.home, consumer, tenant, passes_parked=self.passes_parked)


def wait_for_snapshots(
    home: Home,
    documents: Documents,
    *,
    timeout_s: float,
    on_progress: OnProgress = lambda _: None,
    by_progress: bool = False,
) -> None:
    """Return when every source's initial snapshot is published. Raises NotCaughtUp.

    ``by_progress``: ``timeout_s`` counts from the last progress, so that a slow machine only takes longer.
    """

    def look() -> Behind | None:
        found = _by_source(home, documents.sources)
        for source, of_readers in found.items():
            if of_readers is None:
                return Behind(f"reader of {source}", "the whole snapshot")
            running = [checkpoint.snapshot for checkpoint in of_readers if checkpoint.snapshot is not None]
            if running:
                rows = sum(snapshot.rows_copied for snapshot in running)
                estimated = max(rows, sum(snapshot.rows_estimated for snapshot in running))
                return Behind(f"reader of {source}", f"its snapshot ({rows:,} of about {estimated:,} rows)")
        return None

    wait_while_behind(look, timeout_s=timeout_s, on_progress=on_progress, by_progress=by_progress)


def wait_for_copies(
    hops: Hops, sent: Mapping[str, SentSignals], *, timeout_s: float, on_progress: OnProgress = lambda _: None
) -> None:
    """Return when the reader of each source has copied its signals' tables, and published them. Raises NotCaughtUp."""

    def look() -> Behind | None:
        for source, of_readers in hops.by_source(sent).items():
            signals = sent[source]
            if of_readers is None:
                return Behind(f"reader of {source}", "its first checkpoint")
            if any((each.incremental.signals_offset or 0) <= signals.last_offset for each in of_readers):
                return Behind(f"reader of {source}", "a signal")
            copies = [copy for each in of_readers for copy in each.incremental.tables if copy.signal_id in signals.ids]
            if copies:
                return Behind(f"reader of {source}", f"a copy of {len(copies)} part(s) of tables")
        return None

    wait_while_behind(look, timeout_s=timeout_s, on_progress=on_progress)


def wait_for_whole_copy(
    readers: Readers,
    source: str,
    table: str,
    signal: SentSignals,
    *,
    timeout_s: float,
    on_progress: OnProgress = lambda _: None,
) -> None:
    """Return when the reader has read all of ``table`` for the one ``signal``, and published it.

    Raises:
        CopyLost: it never will.
        NotCaughtUp: it still lags after ``timeout_s``; it goes on.
    """
    (signal_id,) = signal.ids

    def look() -> Behind | None:
        of_readers: Sequence[Checkpoint | None] = readers.by_source([source])[source] or [None]
        looks = (copy_behind(each, source, table, signal_id, signal.last_offset) for each in of_readers)
        return next((behind for behind in looks if behind is not None), None)

    wait_while_behind(look, timeout_s=timeout_s, on_progress=on_progress)


def copy_behind(
    checkpoint: Checkpoint | None, source: str, table: str, signal_id: str, signal_offset: int
) -> Behind | None:
    """The pending part until all of ``table`` is read for one signal; None: none. Raises CopyLost where it never will be."""
    reader = f"reader of {source}"
    if checkpoint is None:
        return Behind(reader, "its first checkpoint")
    copying = checkpoint.incremental
    if any((each.signal_id, each.table, each.condition) == (signal_id, table, "") for each in copying.finished):
        return None
    for copy in copying.tables:
        if (copy.signal_id, copy.table) == (signal_id, table):
            rows = max(copy.rows_read, copy.rows_estimated)
            paused = ", paused" if copying.is_paused else ""
            return Behind(reader, f"a copy of {table} ({copy.rows_read:,} of about {rows:,} rows{paused})")
    if (copying.signals_offset or 0) <= signal_offset:
        return Behind(reader, "a signal")
    raise CopyLost(
        f"the copy of {table} did not come to its end: it was stopped, the reader could not read the table (its log says so in "
        "incremental_table_refused), or another one of the same table was waiting already"
    )


def wait_until_delivered(
    kafka: KafkaSettings, source: str, topic: str, *, timeout_s: float, on_progress: OnProgress = lambda _: None
) -> dict[int, int]:
    """Return when all that the reader of ``source`` has published by now is in ``topic``: its ends then, by Kafka partition.

    Raises:
        NotCaughtUp: it is not within ``timeout_s``.
    """
    consumer = open_consumer(kafka)
    try:
        wait_while_behind(
            _router_hop(kafka, consumer, [source], [topic.partition(".")[0]]),
            timeout_s=timeout_s,
            on_progress=on_progress,
        )
        return {partition: end for (_, partition), end in end_offsets(kafka, [topic]).items()}
    finally:
        consumer.close()


def sink_behind(home: Home, tenant: str, topic: str, ends: Mapping[int, int]) -> Behind | None:
    """The work of a stack's sink that is left of ``topic`` up to ``ends``, be the table parked or not; None: nothing.

    Raises:
        ServiceUnavailable: it is halted: waiting is vain, the message has the remedy.
    """
    progress = sink_progress(home, tenant)
    if progress is not None and progress.halted_because is not None:
        raise Hopeless(f"the sink of tenant {tenant} is halted: {progress.halted_because}")
    done = committed_offsets(home, tenant).get(topic, {})
    lacking = sum(max(0, end - done.get(partition, 0)) for partition, end in ends.items())
    return Behind(f"the sink of {tenant}", f"at most {lacking:,} event(s)") if lacking else None


def wait_until_caught_up(
    hops: Hops,
    tenants: Sequence[TenantSpec],
    wanted: Mapping[str, Executed],
    *,
    timeout_s: float,
    on_progress: OnProgress = lambda _: None,
    by_progress: bool = False,
) -> None:
    """Return when the tables of ``tenants`` hold the transactions ``wanted`` of each source. Blocks.

    ``by_progress``: ``timeout_s`` counts from the last progress.

    Raises:
        NotCaughtUp: they did not within ``timeout_s``.
        ServiceUnavailable: a table is parked or a tenant's query halted: waiting is vain, the message has the remedy.
    """
    deadline_s = time.monotonic() + timeout_s
    consumer = open_consumer(hops.kafka)
    try:
        looks: list[Callable[[], Behind | None]] = [
            lambda: _readers_behind(hops, wanted),
            _router_hop(hops.kafka, consumer, sorted(wanted), [tenant.tenant for tenant in tenants]),
        ]
        looks += [hops.sink_hop(consumer, tenant) for tenant in tenants if tenant.sink is not None]
        for look in looks:
            left_s = timeout_s if by_progress else max(0.0, deadline_s - time.monotonic())
            wait_while_behind(look, timeout_s=left_s, on_progress=on_progress, by_progress=by_progress)
    finally:
        consumer.close()


def source_positions(documents: Mapping[str, SourceDocument], sources: Sequence[str]) -> dict[str, Executed]:
    """Each source's committed transactions now. Raises as ``executed_now``."""
    found = {}
    for source in sources:
        found[source] = executed_now(documents[source])
    return found


def wait_while_behind(
    look: Callable[[], Behind | None], *, timeout_s: float, on_progress: OnProgress, by_progress: bool = False
) -> None:
    """Return when ``look`` finds nothing. An error that may pass is waited out.

    ``by_progress``: a lag that was never reported before is progress, and renews the time.

    Raises:
        NotCaughtUp: it found something all the time.
        ServiceUnavailable: ``look`` says that waiting is vain (``Hopeless``).
    """
    deadline_s = time.monotonic() + timeout_s
    reason = ""
    reported: set[str] = set()
    while True:
        try:
            behind = look()
        except (BrokerUnavailable, ServiceUnavailable) as error:
            if isinstance(error, Hopeless):
                raise
            behind = None  # it is being restarted
            reason = str(error)
        else:
            if behind is None:
                return
            reason = str(behind)
        on_progress(reason)
        if by_progress and reason not in reported:
            reported.add(reason)
            deadline_s = time.monotonic() + timeout_s
        if time.monotonic() > deadline_s:
            raise NotCaughtUp(f"not caught up in time: {reason}; `headwater status` and logs/ say why")
        time.sleep(POLL_PAUSE_S)


class Hopeless(ServiceUnavailable):
    """Waiting does not help."""


class CopyLost(Hopeless):
    """A copy that was asked for will not come to its end; ask for another."""


def checkpoints(home: Home) -> list[Checkpoint]:
    """The checkpoints of the readers of a stack that runs. Raises ServiceUnavailable: checkpoint_committer does not answer."""

    async def ask() -> list[Checkpoint]:
        port = read_ports(home)[f"{CHECKPOINT_COMMITTER}-grpc"]
        async with CheckpointCommitterClient(caller(home, port, timeout_s=ANSWER_TIMEOUT_S)) as client:
            return await client.list_checkpoints()

    try:
        return of_todays_readers(asyncio.run(ask()), last_generations(home))
    except ServiceUnavailable:
        raise
    except HeadwaterError as error:
        raise Hopeless(str(error)) from error


def _by_source(home: Home, sources: Iterable[str]) -> dict[str, list[Checkpoint] | None]:
    """The checkpoints of each source's readers; None: not all of them have written one yet. Raises as ``checkpoints``."""
    generations = last_generations(home)
    found: dict[str, list[Checkpoint]] = {source: [] for source in sources}
    for checkpoint in checkpoints(home):
        if checkpoint.partition.source in found:
            found[checkpoint.partition.source].append(checkpoint)
    return {
        source: of_readers if len(of_readers) >= len(settings_of(generations.get(source))) else None
        for source, of_readers in found.items()
    }


def _readers_behind(hops: Hops, wanted: Mapping[str, Executed]) -> Behind | None:
    found = hops.by_source(wanted)
    for source, transactions in wanted.items():
        of_readers = found[source]
        if of_readers is None or any(checkpoint.snapshot is not None for checkpoint in of_readers):
            return Behind(f"reader of {source}", "its snapshot")
        done: dict[str, Committed] = {}
        for checkpoint in of_readers:
            done.update(executed_in(checkpoint.position.token) or {})
        missing = missing_transactions(transactions, done)
        if missing.amount:
            return Behind(f"reader of {source}", str(missing))
    return None


def _router_hop(
    kafka: KafkaSettings, consumer: Consumer, sources: Sequence[str], tenants: Sequence[str]
) -> Callable[[], Behind | None]:
    topics = [changes_topic(source) for source in sources]
    ends: dict[tuple[str, int], int] = {}

    def look() -> Behind | None:
        if not ends:
            ends.update(end_offsets(kafka, topics))
        behind = _router_behind(kafka, consumer, ends, "the router", ROUTER_GROUP)
        for tenant in tenants:
            group = straggler_group(ROUTER_GROUP, tenant)
            hop = f"the router, for {tenant} alone"
            behind = behind or _router_behind(kafka, consumer, ends, hop, group, is_counted=is_straggling)
        return behind

    return look


def _router_behind(
    kafka: KafkaSettings,
    consumer: Consumer,
    ends: Mapping[tuple[str, int], int],
    hop: str,
    group: str,
    is_counted: Callable[[str], bool] = lambda _: True,
) -> Behind | None:
    """``is_counted``: by the note beside it, whether an offset counts."""
    asking = Consumer(
        {
            **client_config(kafka),
            "group.id": group,  # only asked about; never joined, because nothing is subscribed
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        committed = (
            asking.committed([TopicPartition(*place) for place in ends], timeout=ANSWER_TIMEOUT_S) if ends else []
        )
        for place in committed:
            end, done = ends[place.topic, place.partition], max(0, place.offset)
            if not is_counted(note_of(place)):
                continue
            if has_records_between(consumer, place.topic, place.partition, done, end):
                return Behind(hop, f"at most {end - done:,} batch(es)")
    except KafkaException as error:
        raise BrokerUnavailable(f"Kafka did not say how far the router got: {error}") from error
    finally:
        asking.close()
    return None


def _sink_hop(
    home: Home, consumer: Consumer, tenant: TenantSpec, *, passes_parked: bool
) -> Callable[[], Behind | None]:
    ends: dict[tuple[str, int], int] = {}

    def look() -> Behind | None:
        if not ends:
            ends.update(_ends_of(home, tenant))
        progress = sink_progress(home, tenant.tenant)
        if progress is not None:
            if progress.halted_because is not None:
                raise Hopeless(f"the sink of tenant {tenant.tenant} is halted: {progress.halted_because}")
            for table in progress.tables.values():
                if table.parked is not None and table.needs_a_human and not passes_parked:
                    raise Hopeless(f"table {table.warehouse_table} is parked: {table.parked.because}")
            for table in progress.tables.values():
                # Its events were passed over, so Spark's checkpoint is beyond them.
                if table.parked is not None and not table.needs_a_human:
                    return Behind(
                        f"table {table.warehouse_table}", f"at most {table.parked.waiting_offsets:,} event(s)"
                    )
        return _sink_behind(home, consumer, tenant.tenant, ends)

    return look


def _ends_of(home: Home, tenant: TenantSpec) -> dict[tuple[str, int], int]:
    kafka = stack_kafka(home)
    topics = [topic.name for topic in row_topics(kafka, tenant.tenant, row_topic_template(tenant))]
    return dict(end_offsets(kafka, topics))


def _sink_behind(home: Home, consumer: Consumer, tenant: str, ends: Mapping[tuple[str, int], int]) -> Behind | None:
    """The events up to ``ends`` that a tenant's sink has not written; None: none. Raises BrokerUnavailable."""
    done = committed_offsets(home, tenant)
    lacking = 0
    for (topic, partition), end in ends.items():
        start = done.get(topic, {}).get(partition, 0)
        if has_records_between(consumer, topic, partition, start, end):
            lacking += end - start
    return Behind(f"the sink of {tenant}", f"at most {lacking:,} event(s)") if lacking else None
