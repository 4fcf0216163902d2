"""The sink job killed at each of its failpoints, in one life after another: tables are exact nonetheless.

One process is killed on each warehouse. At every other point a life in the shared session ends instead (``tests.session_job``).
"""

import random
import secrets
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

import pytest

from libs.config.connections import KafkaSettings
from libs.events.names import resyncs_topic
from libs.mesh.sink_requests import send_to_sink
from libs.mesh.tenant_topics import end_offsets
from libs.mysql.logical import column
from libs.operations.dead_letters import chosen_keys, read_letters, replay_requests, send_requests
from libs.sink_state.parked_keys import TenantParkedKeys, decode_parked_keys, parked_keys_path
from libs.sink_state.resync import ResyncRequest, decode_resyncs, encode_resync_request, resyncs_path
from libs.types.table import TableSchema
from libs.types.tenant import SinkMode
from spark.transforms.versions import UNTOLD
from tests import clickhouse
from tests.clickhouse import ClickhouseServer
from tests.marks import gate
from tests.session_job import SessionJob, session_job
from tests.sink_job import LIFE_TIMEOUT_S, Job, SinkJob, Tenant, write_tenant
from tests.sink_topics import Model, Version, without_own_columns
from tests.spark_session import Row

pytestmark = pytest.mark.spark

ON_ICEBERG = "the gate shows it on Iceberg; test_each_warehouse_is_exact_through_an_end_at_its_commit is of the others"

BETWEEN_COMMITS = (
    "sink_before_merge",
    "sink_after_merge_before_next_table",
    "sink_after_batch_before_spark_commit",
)
LETTER_FAILPOINTS = (
    "sink_after_letters_before_parked_keys",
    "sink_after_parked_keys_before_merge",
    "sink_after_merge_before_next_table",
    "sink_after_batch_before_spark_commit",
)
FAILPOINTS = {
    # Its own two, and one that all have: each life of a job costs seconds.
    "clickhouse": ("sink_before_attach", "sink_before_commit", "sink_after_batch_before_spark_commit"),
    "delta": BETWEEN_COMMITS,
    # The second once the tables are there: they are made by a query.
    "iceberg": ("sink_before_merge", "sink_after_rows_before_commit", *BETWEEN_COMMITS[1:]),
    "postgresql": ("sink_before_commit", *BETWEEN_COMMITS),
}


REAL_KILLS = {
    "clickhouse": "sink_before_commit",
    "delta": "sink_after_merge_before_next_table",
    "iceberg": "sink_after_rows_before_commit",
    "postgresql": "sink_before_commit",
}


@pytest.fixture(params=gate(["iceberg"], sorted(FAILPOINTS), because=ON_ICEBERG))
def job(request: pytest.FixtureRequest, bootstrap_servers: str, tmp_path: Path) -> Iterator[SessionJob]:
    """On each warehouse, in the shared session."""
    with session_job(request.param, tmp_path, bootstrap_servers, request) as opened:
        yield opened


@pytest.mark.rest(because="faults/test_commit_kills.py kills a job's process; the gate has every point below")
@pytest.mark.timeout(3 * LIFE_TIMEOUT_S)
def test_a_process_that_was_killed_has_its_work_done_by_the_next(job: SessionJob) -> None:
    """A mirror of two tables, an append table and a history, one job, which is a process of its own and dies by SIGKILL; its
    tables are exact when the next life is through. Every other point of a kill is below, where the lives are the session's.
    """
    chance = random.Random(40)
    tenants = tenants_of_each_mode(job)
    for tenant in tenants.values():
        tenant.write(chance, transactions=10)
    killed = SinkJob(job.folder, job.bootstrap_servers, job.warehouse, job.warehouse_settings, job.read_rows)
    try:
        killed.start(failpoints=f"{REAL_KILLS[job.warehouse]}=kill@2")
        killed.wait_until_killed()
    finally:
        killed.stop()

    job.start()
    job.wait_until(lambda: all(job.progress(tenant).rows >= tenant.changes for tenant in tenants.values()))

    for mode, tenant in tenants.items():
        assert_exact(job, tenant, mode)


def tenants_of_each_mode(job: Job) -> dict[SinkMode, Tenant]:
    """The mirror has two tables."""
    tables = {SinkMode.MIRROR: ("orders", "items"), SinkMode.APPEND: ("visits",), SinkMode.HISTORY: ("prices",)}
    return {mode: write_tenant(job, f"{mode.value}{secrets.token_hex(3)}", mode, *of) for mode, of in tables.items()}


@pytest.mark.timeout(5 * LIFE_TIMEOUT_S)
def test_killed_at_every_failpoint_the_tables_are_exact(job: SessionJob) -> None:
    """A mirror of two tables, an append table and a history, one job. It ends before a merge, between a small table's files and
    their commit, within its transaction where the warehouse has one, between rows and their note, between two tables of a
    batch, and between a batch and Spark's commit of it, while more is written: mirrors equal a plain model, the append table
    has every change once, and the history every version once, with the changes that began and ended it.
    """
    assert_exact_through(job, FAILPOINTS[job.warehouse])


@pytest.mark.promise("every warehouse")
@pytest.mark.parametrize("job", ["clickhouse", "delta", "postgresql"], indirect=True)
@pytest.mark.timeout(3 * LIFE_TIMEOUT_S)
def test_each_warehouse_is_exact_through_an_end_at_its_commit(job: SessionJob) -> None:
    """The same with one of the points: the part that `make test` has of the warehouses beside Iceberg."""
    assert_exact_through(job, [REAL_KILLS[job.warehouse]])


def assert_exact_through(job: SessionJob, points: Sequence[str]) -> None:
    """Each life but the last ends at one of ``points``."""
    chance = random.Random(41)
    tenants = tenants_of_each_mode(job)
    for failpoint in points:
        for tenant in tenants.values():
            tenant.write(chance, transactions=4)
        # On the second pass: of the tables of a batch, or of the batches, one is committed by then.
        job.start(failpoints=f"{failpoint}=end@2")
        job.wait_until_killed()

    job.start()
    job.wait_until(lambda: all(job.progress(tenant).rows >= tenant.changes for tenant in tenants.values()))

    for mode, tenant in tenants.items():
        assert_exact(job, tenant, mode)


def assert_exact(job: Job, tenant: Tenant, mode: SinkMode) -> None:
    """Its tables equal those that a plain model makes of all events it was sent, each change once."""
    for model in tenant.models:
        assert_exact_rows(mode, model, job.rows(tenant, model))
    assert job.progress(tenant).rows == tenant.changes, tenant.name


def assert_exact_rows(mode: SinkMode, model: Model, rows: list[Row]) -> None:
    match mode:
        case SinkMode.MIRROR:
            assert without_own_columns(rows) == model.sorted_rows(), model.schema.table_id
        case SinkMode.APPEND:
            assert sorted(str(row["_headwater_order"]) for row in rows) == sorted(model.orders), model.schema.table_id
        case SinkMode.HISTORY:
            assert sorted(map(version, rows), key=opening) == sorted(model.versions, key=opening), model.schema.table_id


opening = attrgetter("opened_by")


def version(row: Row) -> Version:
    """As a history has it."""
    assert row["is_current"] == (row["_headwater_closed_by"] is None) == (row["valid_to"] is None)
    return Version(row["id"], row["note"], row["_headwater_opened_by"], row["_headwater_closed_by"])


@pytest.mark.rest(because="the gate has letters and failpoints, each by itself: integration/test_dead_letters.py")
@pytest.mark.parametrize("job", ["iceberg"], indirect=True)
@pytest.mark.timeout(8 * LIFE_TIMEOUT_S)
def test_killed_around_dead_letters_nothing_is_lost_or_twice(job: SessionJob) -> None:
    """A log of changes has every event once but the one that is given up, and each letter counts once; the job dies after the
    letters, after the parked keys, and after the commit, of the batch that is refused and of the replay.
    """
    tenant = write_tenant(job, f"l{secrets.token_hex(3)}", SinkMode.APPEND, "orders")
    first = tenant.models[0].schema
    schema = TableSchema(
        table_id=first.table_id, columns=(*first.columns, column("n", "int")), key=first.key, version=2
    )
    with tenant.topics.transaction() as transaction:
        transaction.schema(schema)
        for key, note, n in ((1, "a", 1), (2, "b", 2), (2, "bad", "no number"), (2, "c", 3), (3, "d", 4)):
            transaction.change(schema, op="u", after={"id": key, "note": note, "n": n})

    def parked() -> TenantParkedKeys:
        return decode_parked_keys(parked_keys_path(job.folder / "state", tenant.name).read_bytes())

    for failpoint in LETTER_FAILPOINTS:
        job.start(failpoints=f"{failpoint}=end@1")
        job.wait_until_killed()
    job.start()
    job.wait_until(lambda: job.progress(tenant).rows >= 3)
    [(topic, table)] = parked().tables.items()
    [key] = table.keys.values()
    letters = read_letters(kafka_of(job), tenant.name, parked())
    assert (key.letters, len(letters)) == (2, 2)
    assert [each.letter.behind_offset for each in letters] == [None, key.offset]
    job.stop()

    requests = replay_requests(chosen_keys(parked(), [topic], []), leave_out_refused=True)
    send_requests(kafka_of(job), tenant.name, requests)
    for failpoint in LETTER_FAILPOINTS[1:]:
        job.start(failpoints=f"{failpoint}=end@1")
        job.wait_until_killed()
    job.start()
    job.wait_until(lambda: job.progress(tenant).batch_id >= 1)

    assert sorted(str(row["note"]) for row in job.rows(tenant, tenant.models[0])) == ["a", "b", "c", "d"]
    assert not parked().tables[topic].keys


@pytest.mark.rest(because="the gate has resyncs and failpoints, each by itself: integration/test_resync.py")
@pytest.mark.parametrize(
    ("job", "mode"),
    [
        ("delta", SinkMode.MIRROR),
        ("iceberg", SinkMode.MIRROR),
        ("postgresql", SinkMode.MIRROR),
        ("clickhouse", SinkMode.HISTORY),
        ("delta", SinkMode.HISTORY),
        ("iceberg", SinkMode.HISTORY),
        ("postgresql", SinkMode.HISTORY),
        ("clickhouse", SinkMode.APPEND),
        ("iceberg", SinkMode.APPEND),
        ("postgresql", SinkMode.APPEND),
    ],
    indirect=["job"],
)
@pytest.mark.timeout(9 * LIFE_TIMEOUT_S)
def test_killed_around_a_resync_the_table_is_exact(job: SessionJob, mode: SinkMode) -> None:
    """A table has a row that the source lacks, and is rebuilt from a copy, a log from its topic. The job dies before the swap,
    within its transaction where the warehouse has one, after it, before it is reported, and before Spark's commit, while more
    is written. The table equals a plain model, and one that nobody asked for is as exact.
    """
    chance = random.Random(43)
    tenant = write_tenant(job, f"r{secrets.token_hex(3)}", mode, "orders", "items")
    orders = tenant.models[0]
    tenant.write(chance, transactions=10)
    with tenant.topics.transaction() as transaction:
        doubted = transaction.change(orders.schema, op="c", after={"id": 9_999, "note": "doubted"})
    job.start()
    job.wait_until(lambda: job.progress(tenant).rows >= tenant.changes + 1)
    [topic] = [topic for topic, table in job.progress(tenant).tables.items() if table.table == "shop.orders"]
    assert 9_999 in {row["id"] for row in job.rows(tenant, orders)}
    is_copied = mode is not SinkMode.APPEND
    before = _ends(job, topic) if is_copied else {}
    copied = dict(orders.rows) if is_copied else {}
    with tenant.topics.transaction() as transaction:
        for row in copied.values():
            transaction.change(orders.schema, op="r", after=row)
    tenant.write(chance, transactions=5)
    job.wait_until(lambda: job.progress(tenant).rows >= tenant.changes + 1 + len(copied))
    job.stop()

    request = ResyncRequest(id="r1", topic=topic, from_offsets=before, to_offsets=_ends(job, topic))
    send_to_sink(kafka_of(job), resyncs_topic(tenant.name), {encode_resync_request(request): topic})
    for failpoint in (*FAILPOINTS[job.warehouse][:-1], "sink_after_swap_before_answer", FAILPOINTS[job.warehouse][-1]):
        tenant.write(chance, transactions=2)
        job.start(failpoints=f"{failpoint}=end@1")
        job.wait_until_killed()
    job.start()
    job.wait_until(lambda: job.progress(tenant).rows >= tenant.changes + 1 + len(copied))

    answers = decode_resyncs(resyncs_path(job.folder / "state", tenant.name).read_bytes()).answers
    assert answers["r1"].is_done, answers
    if mode is SinkMode.APPEND:  # whose topic has it
        orders.orders.append(doubted)
    elif mode is SinkMode.HISTORY:
        orders.versions.append(Version(9_999, "doubted", doubted, doubted + UNTOLD))
    for model in tenant.models:
        assert_exact_rows(mode, model, job.rows(tenant, model))


@pytest.mark.rest(because="the gate shows on Iceberg that the tries of a parked log are written once")
@pytest.mark.parametrize("job", ["clickhouse"], indirect=True)
@pytest.mark.timeout(6 * LIFE_TIMEOUT_S)
def test_killed_before_a_batch_is_noted_a_log_that_is_parked_then_has_each_change_once(
    job: SessionJob, clickhouse_server: ClickhouseServer
) -> None:
    """A batch's rows are attached, and nobody has noted it. Before it comes again the table is one that is refused: for a
    column that somebody renamed, and then for the tenant's document. Its later rows come under other batches.
    """
    chance = random.Random(53)
    tenant = write_tenant(job, f"p{secrets.token_hex(3)}", SinkMode.APPEND, "visits")
    [visits] = tenant.models
    document = job.folder / "tenants" / f"{tenant.name}.yaml"
    as_a_log, place = document.read_text(), clickhouse.place_of(job.place(tenant, visits))

    def run_until_killed() -> None:
        tenant.write(chance, transactions=10)
        job.start(failpoints="sink_before_commit=end@2")
        job.wait_until_killed()

    def run_until_parked() -> None:
        tenant.write(chance, transactions=2)
        job.start()
        job.wait_until(lambda: bool(job.progress(tenant).parked_topics))
        job.stop()

    def run_until_written() -> None:
        tenant.write(chance, transactions=2)
        job.start()
        job.wait_until(lambda: job.progress(tenant).rows >= tenant.changes)
        assert_exact(job, tenant, SinkMode.APPEND)

    run_until_killed()
    clickhouse_server.execute(f"ALTER TABLE {place} RENAME COLUMN note TO remark")
    run_until_parked()
    clickhouse_server.execute(f"ALTER TABLE {place} RENAME COLUMN remark TO note")
    run_until_written()
    job.stop()
    run_until_killed()
    document.write_text(as_a_log.replace("mode: append", "mode: history"))
    run_until_parked()
    document.write_text(as_a_log)
    run_until_written()


@pytest.mark.rest(because="integration/test_parked_tables.py ends a query at the same points of a try")
@pytest.mark.parametrize("job", ["iceberg"], indirect=True)
@pytest.mark.timeout(6 * LIFE_TIMEOUT_S)
def test_killed_in_the_tries_of_a_parked_table_each_change_is_there_once(job: SessionJob) -> None:
    """A log is parked, with its new events, because the tenant's document asks for a mirror. The document is put right, and
    the log is tried: the job dies when that is noted, when it is written, and when the batch is done, while more is written.
    """
    chance = random.Random(59)
    tenant = write_tenant(job, f"t{secrets.token_hex(3)}", SinkMode.APPEND, "visits")
    document = job.folder / "tenants" / f"{tenant.name}.yaml"
    as_a_log = document.read_text()
    tenant.write(chance, transactions=5)
    job.start()
    job.wait_until(lambda: job.progress(tenant).rows >= tenant.changes)
    job.stop()
    document.write_text(as_a_log.replace("mode: append", "mode: mirror"))
    tenant.write(chance, transactions=10)
    job.start()
    job.wait_until(lambda: bool(job.progress(tenant).parked_topics))
    job.stop()

    document.write_text(as_a_log)
    for failpoint in ("sink_after_try_before_merge", *BETWEEN_COMMITS[1:]):
        tenant.write(chance, transactions=2)
        job.start(failpoints=f"{failpoint}=end@1")
        job.wait_until_killed()
        assert job.progress(tenant).tries or failpoint == BETWEEN_COMMITS[-1]
    job.start()
    job.wait_until(lambda: job.progress(tenant).rows >= tenant.changes)

    assert_exact(job, tenant, SinkMode.APPEND)
    assert not job.progress(tenant).tries


def kafka_of(job: SessionJob) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=job.bootstrap_servers)


def _ends(job: SessionJob, topic: str) -> dict[int, int]:
    return {partition: end for (_, partition), end in end_offsets(kafka_of(job), [topic]).items()}


@pytest.mark.parametrize("job", ["iceberg"], indirect=True)
@pytest.mark.timeout(6 * LIFE_TIMEOUT_S)
def test_killed_while_one_table_is_far_behind_nothing_is_lost_or_twice(job: SessionJob) -> None:
    """A log of two tables, of which one has a backlog of many batches; the job dies when it is known how far a batch reads the
    other, between the two tables of such a batch, and after a later one, while more of both is written.
    """
    tenant = write_tenant(job, f"b{secrets.token_hex(3)}", SinkMode.APPEND, "copied", "live")
    copied, live = tenant.models
    chance = random.Random(47)

    def write(model: Model, changes: int) -> None:
        with tenant.topics.transaction() as transaction:
            for _ in range(changes):
                model.change_at_random(transaction, chance, keys=40)

    for model in (copied, live):
        write(model, 5)
    job.start()
    job.wait_until(lambda: job.progress(tenant).rows == 10)
    job.stop()
    write(copied, 720)
    for failpoint in (
        "sink_after_read_ahead_before_tables=end@1",
        "sink_after_merge_before_next_table=end@1",
        "sink_after_batch_before_spark_commit=end@2",
        "sink_after_read_ahead_before_tables=end@2",
    ):
        write(live, 20)
        job.start(failpoints=failpoint)
        job.wait_until_killed()
        assert job.progress(tenant).rows < tenant.changes

    job.start()
    job.wait_until(lambda: job.progress(tenant).rows >= tenant.changes)

    for model in tenant.models:
        assert sorted(str(row["_headwater_order"]) for row in job.rows(tenant, model)) == sorted(model.orders)
    assert job.progress(tenant).rows == tenant.changes
