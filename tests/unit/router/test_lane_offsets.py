"""The offset that a lane commits is the one after the last batch that its transaction wrote."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest
import structlog
from aiokafka import TopicPartition

from libs.config.connections import KafkaSettings
from libs.errors import PipelineHalted
from libs.events.names import straggler_group
from libs.telemetry import metrics
from libs.telemetry.faults import lasting_faults
from libs.types.table import TableId, TableSchema
from libs.types.tenant import EventFormat, FormatSettings, SourceSelection, TenantSpec
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch, Entry, Run, TableChange
from services.router.kafka.kafka_refusals import TopicsRefused
from services.router.lane import worker as lane_worker
from services.router.lane.worker import LaneWorker, Stretch
from services.router.routes.encode import NoSchemaRegistry, RegisteredSchema, SchemaNotKnown, SchemaText
from services.router.routes.topic_claims import TopicClaims
from services.router.settings import LaneSettings, TenantLimitSettings, UnreadableRecords
from services.router.stragglers.missed_batches import MissedBatches
from services.router.stragglers.straggler import Obstacle, Straggler
from services.router.stragglers.straggler_set import StragglerSet
from services.router.stragglers.turns import StragglerTurns
from services.router.transactions import outputs, tenant_topics
from services.router.transactions.covered import OffsetNotWritten, offset_after
from services.router.transactions.outputs import LaneDependencies, Reached, WaitingBatch
from services.router.transactions.rate_limits import RateLimits
from tests.unit.router.test_deliver import add_run, builder, orders
from tests.unit.router.test_poison import ROW

DEFAULTS: Final = LaneSettings()
PLACE: Final = TopicPartition("headwater.changes.s", 0)
NOT_USED: Final[Any] = None
EMPTY: Final = ChangeBatch(source="s", source_partition="0").SerializeToString()


def tenant(name: str) -> TenantSpec:
    return TenantSpec(tenant=name, sources=(SourceSelection(name="s"),))


def no_schema(table_id: TableId, version: int) -> TableSchema:
    raise AssertionError(f"no row of {table_id} comes")


class RecordingWriter:
    """Keeps which offsets were made visible, for which group."""

    def __init__(self) -> None:
        self.offsets: list[tuple[str, int]] = []
        self._open: list[tuple[str, int]] = []
        self.faults_at_commit: list[str] = []

    async def learn_topics(self, _topics: object) -> None:
        return None

    async def begin(self) -> None:
        self._open = []

    async def send_gathered(self) -> None:
        return None

    async def send_offset(self, next_offset: int, *, group: str = "", note: str = "") -> None:
        self._open.append((group, next_offset))

    async def commit(self) -> None:
        self.offsets += self._open
        self.faults_at_commit = [fault.id for fault in lasting_faults()]

    async def abort(self) -> None:
        self._open = []


class ComingBack:
    """Stragglers of which some may come back with the next transaction."""

    def __init__(self, joining: list[tuple[Straggler, list[WaitingBatch]]]) -> None:
        self._joining = joining
        self.tenants = self
        self.added: dict[str, int] = {}
        """By tenant, the cursor at which it became a straggler."""

    def take_joining(self) -> list[tuple[Straggler, list[WaitingBatch]]]:
        taken, self._joining = self._joining, []
        return taken

    def add(self, spec: TenantSpec, cursor: int, *_: object, **__: object) -> None:
        self.added[spec.tenant] = cursor

    def advance(self, *_: object) -> None:
        return None

    def take_gone(self, _tenants: object) -> list[str]:
        return []

    def joined(self, _straggler: Straggler) -> None:
        return None


def waiting(offsets: Sequence[int]) -> list[WaitingBatch]:
    return [WaitingBatch(offset, EMPTY) for offset in offsets]


def worker_of(
    writer: RecordingWriter,
    stragglers: ComingBack,
    behind: dict[str, int],
    settings: LaneSettings = DEFAULTS,
    tenants: tuple[TenantSpec, ...] = (tenant("acme"), tenant("slow")),
    **shared_parts: Any,
) -> Any:
    shared = LaneDependencies(
        kafka=KafkaSettings(bootstrap_servers="nowhere:1"),
        group="routers",
        settings=settings,
        tenants=lambda: tenants,
        claims=TopicClaims(),
        limits=RateLimits(TenantLimitSettings()),
        on_failure=lambda _error: None,
        **{"fetch_schema": lambda _source: no_schema} | shared_parts,
    )
    logger = structlog.get_logger()
    return LaneWorker("s", PLACE, 0, "", writer, shared, {}, stragglers, behind, logger)  # type: ignore[arg-type]


def test_backlogs_that_take_long_let_no_batch_be_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant that comes back has a backlog; the transaction's time is over before a batch of all tenants is written."""
    monkeypatch.setattr(lane_worker, "_MAX_WRITING_S", 0.0)
    written: list[int] = []
    write = outputs.Outputs.write

    async def noted(self: outputs.Outputs, batch: Any, offset: int, book: Any) -> None:
        written.append(offset)
        await write(self, batch, offset, book)

    monkeypatch.setattr(outputs.Outputs, "write", noted)
    writer = RecordingWriter()
    straggler = Straggler(tenant("slow"), 3, Reached(), Obstacle("was behind"))
    worker = worker_of(writer, ComingBack([(straggler, waiting([3, 4]))]), {"slow": 3})
    worker._committed = replace(worker._committed, next_offset=5)
    batches = waiting([5, 7, 8, 11])
    (stretch,) = worker.stretches(batches)
    assert isinstance(stretch, Stretch)

    position = asyncio.run(worker.route(stretch, (), lambda _began_s: None))

    assert written == [3, 4, 5, 7, 8, 11]
    assert [offset for group, offset in writer.offsets if not group] == [6, 8, 9, 12]
    assert [offset for group, offset in writer.offsets if group == straggler_group("routers", "slow")] == [6]
    assert position.next_offset == 12


class NothingKnown(NoSchemaRegistry):
    """A registry whose ids this process does not have yet."""

    def known(self, subject: str, _schema: SchemaText) -> RegisteredSchema:
        raise SchemaNotKnown(f"subject {subject}: not yet")


class RefusingWriter(RecordingWriter):
    """Kafka refuses one tenant's topics once."""

    def __init__(self, tenant: str) -> None:
        super().__init__()
        self._refused = tenant

    async def write(self, _records: object, topics: list[str]) -> None:
        if topics[0].startswith(f"{self._refused}."):
            raise TopicsRefused("no leader", frozenset(topics))


def test_a_tenant_that_is_not_ready_falls_behind_also_where_another_ones_topic_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The transaction is written again without the other one: the tenant whose schema is not known yet lacks its row then."""
    monkeypatch.setattr(tenant_topics, "create_topics", lambda *_: {})
    avro = msgspec.structs.replace(tenant("avro"), format=FormatSettings(kind=EventFormat.AVRO), sink=None)
    writer, stragglers = RefusingWriter("acme"), ComingBack([])
    worker = worker_of(
        writer,
        stragglers,
        {},
        tenants=(tenant("acme"), avro),
        fetch_schema=lambda _source: lambda *_: orders(1),
        registry=NothingKnown(),
    )
    batch = builder()
    add_run(batch, [ROW])
    (stretch,) = worker.stretches([WaitingBatch(0, batch.take(0)[0])])

    asyncio.run(worker.route(stretch, (), lambda _began_s: None))

    assert stragglers.added == {"acme": 0, "avro": 0}


def test_an_offset_above_what_was_written_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a batch be left out on its way to the writer, the lane ends before its commit."""

    async def left_out(_self: object, _batch: object, _offset: int, _book: object) -> None:
        return None

    monkeypatch.setattr(outputs.Outputs, "write", left_out)
    writer = RecordingWriter()
    worker = worker_of(writer, ComingBack([]), {})
    (stretch,) = worker.stretches(waiting([0, 1]))

    with pytest.raises(OffsetNotWritten, match=r"headwater\.changes\.s/0"):
        asyncio.run(worker.route(stretch, (), lambda _began_s: None))

    assert writer.offsets == []


def test_an_unforeseen_error_of_a_tenant_behind_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again after a pause; the other stragglers take their turns."""
    shared = worker_of(RecordingWriter(), ComingBack([]), {})._shared
    missed = MissedBatches(PLACE, shared)
    tenants = StragglerSet(shared, missed, structlog.get_logger())
    writer: Any = RecordingWriter()
    turns = StragglerTurns("s", PLACE, shared, tenants, missed, writer, lambda: NOT_USED, structlog.get_logger())
    straggler = Straggler(tenant("slow"), 3, Reached(), Obstacle("was behind"))

    def failing(_straggler: Straggler) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(turns, "_made_ready", failing)
    asyncio.run(turns.prepare(straggler))

    position = straggler.position
    assert position.refusal is not None
    assert "ZeroDivisionError" in position.refusal
    assert (position.is_stuck, position.next_offset) == (True, 3)


POISON: Final = (
    b"",
    b"\x00",
    b"garbage bytes of a stranger",
    b"\x0a\x05other",
    EMPTY + b"\x3a\x02\x0a\x00",
    ChangeBatch(
        source="s", entries=[Entry(run=Run(ops=b"c", keys=[b""], values=[b"{}"], rank="x"))]
    ).SerializeToString(),
    ChangeBatch(
        source="s", entries=[Entry(run=Run(ops=b"z", keys=[b""], values=[b"{}"], rank="1"))]
    ).SerializeToString(),
    ChangeBatch(source="s", entries=[Entry(table_change=TableChange(rank=""))]).SerializeToString(),
)


def test_records_that_nobody_can_read_are_set_aside_by_their_place() -> None:
    """Later records are routed; the metric and ``unreadable`` count those that were set aside."""
    writer, counter = RecordingWriter(), metrics.ROUTER_UNREADABLE_RECORDS.labels("s")
    worker, before = worker_of(writer, ComingBack([]), {}), counter._value.get()
    batches = [WaitingBatch(offset, payload) for offset, payload in enumerate((*POISON, EMPTY))]
    (stretch,) = worker.stretches(batches)

    position = asyncio.run(worker.route(stretch, (), lambda _began_s: None))

    assert position.next_offset == len(batches)
    assert counter._value.get() - before == len(POISON)
    assert f"headwater.changes.s/0: the record at offset {len(POISON) - 1} is no ChangeBatch" in worker.unreadable
    assert [(each.id, each.happened) for each in lasting_faults()] == [("changes_record_set_aside", worker.unreadable)]
    assert writer.faults_at_commit == [
        "changes_record_set_aside"
    ]  # a router that is killed after it reads them no more
    assert position.source_partition == "0"


def test_a_mesh_may_rather_halt_at_such_a_record() -> None:
    settings = LaneSettings(unreadable_records=UnreadableRecords.HALT)
    worker = worker_of(RecordingWriter(), ComingBack([]), {}, settings)

    with pytest.raises(PipelineHalted, match=r"offset 7 is no ChangeBatch .*: set_aside"):
        list(worker.stretches([WaitingBatch(6, EMPTY), WaitingBatch(7, POISON[2])]))


@pytest.mark.parametrize(
    ("cursor", "planned", "written"),
    [
        (5, (5, 6), (5,)),
        (5, (5,), (5, 6)),
        (5, (5, 6), (6, 5)),
        (5, (), (5,)),
        (5, (4, 5), (4, 5)),
        (5, (5, 5), (5, 5)),
        (5, (6, 5), (6, 5)),
    ],
)
def test_planned_and_written_are_the_same_batches_in_log_order(
    cursor: int, planned: tuple[int, ...], written: tuple[int, ...]
) -> None:
    with pytest.raises(OffsetNotWritten):
        offset_after(cursor, planned, written)


def test_an_offset_follows_the_last_batch_written() -> None:
    assert offset_after(5, (5, 7), (5, 7)) == 8
    assert offset_after(5, (), ()) == 5
