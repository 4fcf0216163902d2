"""A parked table is taken up again though nothing new comes, and no batch is larger than it may be: a real PostgreSQL. Of a
warehouse of each kind: rows that a try has written are written once, though the table is met otherwise after a kill."""

import json
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from libs.config.connections import KafkaSettings
from libs.events.names import resyncs_topic
from libs.mesh.parked import written_tables
from libs.mesh.sink_requests import send_to_sink
from libs.operations.retry import ask_for_retry, choose_parked
from libs.sink_state.progress import ParkedTable
from libs.sink_state.resync import ResyncRequest, decode_resyncs, encode_resync_request, resyncs_path
from libs.types.tenant import Consistency, SinkMode, TenantSpec
from libs.types.warehouse import WarehouseTable, warehouse_table
from spark.batch import apply, commit, plan, resync
from spark.batch.context import BatchContext
from spark.batch.table_batch import TableBatch
from spark.pending import retries, table_failures
from spark.sinks.port import BatchIdentity
from tests.conftest import PostgresqlServer
from tests.integration.sink_tenant import StartTenant, Tenant, orders, row
from tests.marks import rest
from tests.sink_query import is_noted
from tests.sink_topics import SOURCE, table_id

pytestmark = pytest.mark.usefixtures("interpreted")

LIMIT = 100
WAITING = 250


@pytest.mark.promise("retry")
@pytest.mark.timeout(1_800)
def test_a_quiet_tenants_parked_table_is_read_piece_by_piece(
    start_tenant: StartTenant, postgresql_server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's CHECK refuses the rows; it is dropped, and not one event comes any more. Asked, the sink tries the table
    though it is due in an hour. The log has each row once, from batches of the limit, over a batch that comes again when all
    of it is done but Spark does not know, and over a restart in their midst with another limit, when the table has a piece
    that nothing else knows of.
    """
    schema = orders()
    tenant = start_tenant("postgresql", schema, mode=SinkMode.APPEND)
    tenant.settings = msgspec.structs.replace(tenant.settings, max_offsets_per_trigger=LIMIT)
    monkeypatch.setattr(retries, "FIRST_WAIT_S", 3_600.0)
    tenant.write(schema, row(0, "first", 0), op="c")
    tenant.run_until_noted(1)
    [*namespace, name] = str(warehouse_table(tenant.spec.tenant, SOURCE, table_id("orders"))).split(".")
    place = f'"{"_".join(namespace)}".{name}'
    postgresql_server.execute(f"ALTER TABLE {place} ADD CONSTRAINT low CHECK (n < 1) NOT VALID")
    tenant.write(schema, *(row(n, "waits", n) for n in range(1, WAITING + 1)), op="c")
    refused: list[ParkedTable] = []
    repeated: list[str] = []

    def is_asked_and_begun(tenant: Tenant) -> bool:
        found = parked(tenant)
        # It was tried with the second batch of the three that it takes until so many wait.
        if not refused and found is not None and found.waiting_offsets >= WAITING:
            refused.append(found)
            postgresql_server.execute(f"ALTER TABLE {place} DROP CONSTRAINT low")
            tables = choose_parked(written_tables(tenant.progress), tenant.spec.tenant, ()).parked
            ask_for_retry(tenant.settings.kafka, tenant.spec.tenant, [each.topic for each in tables])
        return tenant.progress.rows >= 2 * LIMIT

    def fail_once(point: str) -> None:
        found = parked(tenant)
        if point == "sink_after_batch_before_spark_commit" and found and found.is_catching_up and not repeated:
            repeated.append(point)
            raise RuntimeError(point)

    monkeypatch.setattr(apply, "failpoint", fail_once)
    tenant.run_until(is_asked_and_begun)
    assert "breaks a CHECK" in refused[0].because
    assert not refused[0].is_catching_up
    assert repeated
    begun = parked(tenant)
    assert begun is not None
    assert begun.is_catching_up
    assert 0 < begun.waiting_offsets < WAITING
    written: list[str] = []

    def fail_when_written(point: str) -> None:
        if point == "sink_after_merge_before_next_table":
            written.append(point)
            raise RuntimeError(point)

    monkeypatch.setattr(commit, "failpoint", fail_when_written)
    tenant.run_until(lambda _: bool(written))
    assert parked(tenant) == begun
    monkeypatch.setattr(commit, "failpoint", lambda _: None)
    tenant.settings = msgspec.structs.replace(tenant.settings, max_offsets_per_trigger=3 * LIMIT)
    tenant.run_until_noted(WAITING + 1)

    assert [each["id"] for each in tenant.rows()] == list(range(WAITING + 1))
    assert parked(tenant) is None


@pytest.mark.parametrize(
    "mode",
    [
        SinkMode.APPEND,
        *rest(
            SinkMode.HISTORY,
            because="a batch of a history that comes again: unit/spark/test_history.py, left under way",
        ),
    ],
)
@pytest.mark.timeout(1_800)
def test_what_a_try_wrote_is_not_written_again(
    start_tenant: StartTenant, warehouse: str, mode: SinkMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is killed before the first piece of the waiting events is written, and after it, when no file knows of it. When
    the batch comes again Kafka does not give the waiting events; later ones go on after the piece. Nothing is there twice or
    lost.
    """
    tenant = put_back(start_tenant, warehouse, monkeypatch, mode=mode)
    before = tenant.progress

    for where in ("sink_after_try_before_merge", "sink_after_merge_before_next_table"):
        kill_at(where, tenant, monkeypatch)
        assert tenant.progress.tables == before.tables
    assert 1 < len(tenant.rows()) <= LIMIT + 1
    unread = fail_to_read_once(plan, monkeypatch)
    tenant.write(orders(), row(0, "last", 0))
    tenant.run_until_noted(WAITING + 2)

    assert unread
    assert notes(tenant) == EVERY_NOTE
    assert (tenant.progress.rows, parked(tenant), tenant.progress.tries) == (WAITING + 2, None, {})


@pytest.mark.timeout(1_800)
def test_what_a_try_wrote_is_not_awaited_though_kafka_has_it_no_more(
    start_tenant: StartTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention takes the waiting events, after a kill that came when all of them were written: the table goes on with later
    events."""
    tenant = put_back(start_tenant, "iceberg", monkeypatch, mode=SinkMode.APPEND, limit=10 * WAITING)
    kill_at("sink_after_merge_before_next_table", tenant, monkeypatch)
    [(topic, table)] = tenant.progress.tables.items()
    assert table.parked is not None
    tenant.topics.forget_before(topic, table.parked.to_offsets[0])

    tenant.run_until(lambda tenant: parked(tenant) is None and is_stored(tenant))
    tenant.write(orders(), row(0, "last", 0))
    tenant.run_until_noted(WAITING + 2)

    assert notes(tenant) == EVERY_NOTE
    assert tenant.progress.tables[topic].order == max(each["_headwater_order"] for each in own_rows(tenant))


@pytest.mark.parametrize("kind", ["iceberg", *rest("postgresql", because="the gate shows it on Iceberg")])
@pytest.mark.timeout(1_800)
def test_what_a_try_staged_is_shown_or_undone(
    start_tenant: StartTenant, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tables that move together a try may be written, and the job be killed before it is shown: Iceberg's branch has it,
    PostgreSQL's transaction is undone, and the waiting events are read once more.
    """
    together = {"mode": SinkMode.APPEND, "consistency": Consistency.TRANSACTION}
    tenant = put_back(start_tenant, kind, monkeypatch, **together)
    kill_at("sink_after_merge_before_next_table", tenant, monkeypatch)
    assert len(tenant.rows()) == 1
    unread = fail_to_read_once(plan, monkeypatch)

    tenant.run_until(lambda tenant: parked(tenant) is None and is_stored(tenant))
    assert notes(tenant) == EVERY_NOTE[:1] + EVERY_NOTE[2:]
    tenant.write(orders(), row(0, "last", 0))
    tenant.run_until_noted(WAITING + 2)

    assert bool(unread) == (kind == "postgresql")
    assert notes(tenant) == EVERY_NOTE


@pytest.mark.timeout(1_800)
def test_a_table_that_is_parked_for_failing_may_have_been_written(
    start_tenant: StartTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last commit was made, and nobody heard of it. The next batches ask, before one would write that once more; as long
    as the warehouse does not answer, new events wait too.
    """
    monkeypatch.setattr(retries, "FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(table_failures, "TRIES", 2)
    schema, other = orders(), orders(name="other")
    tenant = start_tenant("iceberg", schema, other, mode=SinkMode.APPEND)
    write_batch = commit.write_batch
    failures: list[int] = []

    def fail(context: BatchContext, table: TableBatch, *arguments: Any) -> None:
        if table.newest.table_schema != schema or len(failures) == table_failures.TRIES:
            write_batch(context, table, *arguments)
            return
        failures.append(table.slices[0].rows)
        if len(failures) == table_failures.TRIES:
            write_batch(context, table, *arguments)
        raise PySparkException("the catalog did not answer")

    monkeypatch.setattr(commit, "write_batch", fail)
    tenant.write(schema, row(1, "one", 1), row(2, "two", 2))
    tenant.write(other, row(1, "one", 1))
    tenant.run_until(lambda tenant: bool(tenant.progress.parked_topics) and is_stored(tenant))
    [because] = [table.parked.because for table in tenant.progress.tables.values() if table.parked]
    assert "the catalog did not answer" in because or "failed again and again" in because
    [tried] = tenant.progress.tries.values()
    is_applied = tenant.sink.is_applied
    asked: list[int] = []

    def answer(spark: SparkSession, table: WarehouseTable, identity: BatchIdentity, offsets: dict[int, int]) -> bool:
        if identity.batch_id == tried.batch_id:
            asked.append(waiting(tenant, "orders"))
            if len(asked) < 4:
                raise PySparkException("the catalog does not answer")
        return is_applied(spark, table, identity, offsets)

    monkeypatch.setattr(tenant.sink, "is_applied", answer)
    tenant.write(schema, row(3, "three", 3))
    tenant.run_until_noted(4)

    assert failures == [2] * table_failures.TRIES
    assert asked == [2, 4, 4, 4]
    assert notes(tenant) == [(1, "one"), (2, "two"), (3, "three")]
    assert not tenant.progress.parked_topics


@pytest.mark.timeout(1_800)
def test_a_parked_log_that_was_built_anew_has_each_change_once(
    start_tenant: StartTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is killed after the swap, before anything reports it. The topic cannot be read for it any more, so that the
    request is refused in the end; the waiting events are in the table nonetheless, and are not written again.
    """
    tenant = put_back(start_tenant, "iceberg", monkeypatch, mode=SinkMode.APPEND)
    [(topic, table)] = tenant.progress.tables.items()
    assert table.parked is not None
    request = ResyncRequest(id="r1", topic=topic, from_offsets={}, to_offsets=table.parked.to_offsets)
    send_to_sink(tenant.settings.kafka, resyncs_topic(tenant.spec.tenant), {encode_resync_request(request): topic})
    kill_at("sink_after_swap_before_answer", tenant, monkeypatch)
    assert len(tenant.rows()) == WAITING + 1
    fail_to_read_once(resync, monkeypatch, times=3)

    tenant.write(orders(), row(0, "last", 0))
    tenant.run_until(lambda tenant: len(tenant.rows()) >= WAITING + 2 and is_stored(tenant))

    assert notes(tenant) == EVERY_NOTE
    assert parked(tenant) is None
    answers = decode_resyncs(resyncs_path(Path(tenant.settings.state_dir), tenant.spec.tenant).read_bytes()).answers
    assert "failed again and again" in answers["r1"].refused_because


@pytest.mark.timeout(1_800)
def test_events_of_another_kafka_partition_join_what_waits(
    start_tenant: StartTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch that tries the table has the first ones of that partition since it was parked: the partition's earlier ones
    are not read again.
    """
    schema = orders()
    tenant = start_tenant("iceberg", mode=SinkMode.APPEND)
    tenant.topics.create_table(schema, kafka_partitions=2)
    with tenant.topics.transaction() as first:
        first.schema(schema)
    monkeypatch.setattr(retries, "FIRST_WAIT_S", 0.0)
    tenant.write(schema, *(row(n, "first", n) for n in range(20)), op="c")
    tenant.run_until_noted(20)
    here, elsewhere = (next(n for n in range(20) if kafka_partition_of(n) == partition) for partition in (0, 1))
    as_it_is = tenant.spec
    tenant.spec = in_mode(as_it_is, SinkMode.MIRROR)
    tenant.write(schema, row(here, "waits", 0))
    tenant.run_until(lambda tenant: waiting(tenant) == 1 and is_stored(tenant))
    found = parked(tenant)
    assert found is not None
    assert found.from_offsets.keys() == {0}
    tenant.spec = as_it_is

    tenant.write(schema, row(elsewhere, "joins", 0))
    tenant.run_until_noted(22)

    assert sorted(notes(tenant)) == sorted([*((n, "first") for n in range(20)), (here, "waits"), (elsewhere, "joins")])
    assert parked(tenant) is None


@pytest.mark.parametrize("is_met_parked", [True, False])
@pytest.mark.timeout(1_800)
def test_rows_of_a_copy_that_stand_among_what_a_cut_let_go_are_not_written_again(
    start_tenant: StartTenant, monkeypatch: pytest.MonkeyPatch, is_met_parked: bool
) -> None:
    """A transaction's row waits for its END, rows of a copy after it are written, then the table is parked for one more of
    those. The transaction is let go to the table while it is parked, or in the batch that tries it.
    """
    schema = orders()
    tenant = start_tenant("iceberg", schema, mode=SinkMode.APPEND, consistency=Consistency.TRANSACTION)
    tenant.topics.create_boundaries()
    monkeypatch.setattr(retries, "FIRST_WAIT_S", 0.0)
    tenant.write(schema, row(0, "first", 0), op="c")
    tenant.run_until_noted(1)
    tenant.topics.forget_boundaries()
    tenant.write(schema, row(1, "held", 1), op="c")
    tenant.write(schema, row(10, "copied", 1), row(11, "copied", 1), op="r")
    tenant.run_until_noted(3)
    together = tenant.spec
    tenant.spec = in_mode(together, SinkMode.MIRROR)
    tenant.write(schema, row(12, "copied", 1), op="r")
    tenant.run_until(lambda tenant: waiting(tenant) == 1 and is_stored(tenant))
    assert notes(tenant) == [(0, "first"), (10, "copied"), (11, "copied")]
    assert together.sink is not None
    alone = msgspec.structs.replace(
        together, sink=msgspec.structs.replace(together.sink, consistency=Consistency.TABLE)
    )
    if is_met_parked:
        tenant.spec = in_mode(alone, SinkMode.MIRROR)
        tenant.write(schema, row(13, "copied", 1), op="r")
        tenant.run_until(lambda tenant: waiting(tenant) > 2 and is_stored(tenant))
    else:
        tenant.write(schema, row(13, "copied", 1), op="r")

    tenant.spec = alone
    tenant.write(schema, row(2, "last", 2), op="c")
    tenant.run_until_noted(7)

    copied = [(n, "copied") for n in range(10, 14)]
    assert notes(tenant) == [(0, "first"), (1, "held"), (2, "last"), *copied]
    assert parked(tenant) is None


def put_back(
    start_tenant: StartTenant, warehouse: str, monkeypatch: pytest.MonkeyPatch, *, limit: int = LIMIT, **sink: Any
) -> Tenant:
    """A tenant with a table of one row that another mode of its document had parked, and ``WAITING`` events that wait; it is
    to be tried, because the document has the first mode again."""
    schema = orders()
    tenant = start_tenant(warehouse, schema, **sink)
    tenant.topics.create_boundaries()
    tenant.settings = msgspec.structs.replace(tenant.settings, max_offsets_per_trigger=limit)
    monkeypatch.setattr(retries, "FIRST_WAIT_S", 0.0)
    tenant.write(schema, row(0, "first", 0), op="c")
    tenant.run_until_noted(1)
    as_it_is = tenant.spec
    tenant.spec = in_mode(as_it_is, SinkMode.MIRROR)
    tenant.write(schema, *(row(n, note, n) for n in range(1, WAITING // 2 + 1) for note in ("waits", "changed")))
    tenant.run_until(lambda tenant: waiting(tenant) >= WAITING and is_stored(tenant))
    tenant.spec = as_it_is
    return tenant


def in_mode(spec: TenantSpec, mode: SinkMode) -> TenantSpec:
    assert spec.sink is not None
    return msgspec.structs.replace(spec, sink=msgspec.structs.replace(spec.sink, mode=mode))


def kafka_partition_of(key: int) -> int:
    """Of two: as librdkafka's own partitioner has it (its CONFIGURATION.md, ``partitioner``)."""
    return zlib.crc32(json.dumps({"id": key}).encode()) % 2


EVERY_NOTE = [
    (0, "first"),
    (0, "last"),
    *((n, note) for n in range(1, WAITING // 2 + 1) for note in ("changed", "waits")),
]


def notes(tenant: Tenant) -> list[tuple[int, str]]:
    return sorted((each["id"], each["note"]) for each in tenant.rows())


def own_rows(tenant: Tenant) -> list[dict[str, Any]]:
    """With Headwater's own columns."""
    return tenant.read_rows(warehouse_table(tenant.spec.tenant, SOURCE, table_id("orders")))


def kill_at(where: str, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a query work until it comes to that failpoint; nothing is done after it."""
    passed: list[str] = []

    def fail(point: str) -> None:
        if point == where:
            passed.append(point)
            raise RuntimeError(point)

    with monkeypatch.context() as patched:
        for module in (apply, commit):
            patched.setattr(module, "failpoint", fail)
        tenant.run_until(lambda _: bool(passed))


def fail_to_read_once(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *, times: int = 1) -> list[str]:
    """The waiting events of a topic are not read by ``module``, so often; the topics of these times."""
    failed: list[str] = []
    read_range = module.read_range

    def read(spark: SparkSession, kafka: KafkaSettings, topic: str, *arguments: Any, **options: Any) -> DataFrame:
        if len(failed) < times:
            failed.append(topic)
            raise PySparkException("the broker is away")
        found: DataFrame = read_range(spark, kafka, topic, *arguments, **options)
        return found

    monkeypatch.setattr(module, "read_range", read)
    return failed


def is_stored(tenant: Tenant) -> bool:
    """Whether Spark has noted the batch that the progress is of."""
    return is_noted(tenant.settings.state_dir, tenant.spec.tenant, tenant.progress.batch_id)


def parked(tenant: Tenant, name: str = "orders") -> ParkedTable | None:
    [table] = [table for table in tenant.progress.tables.values() if table.table == f"shop.{name}"]
    return table.parked


def waiting(tenant: Tenant, name: str = "orders") -> int:
    found = parked(tenant, name)
    return 0 if found is None else found.waiting_offsets
