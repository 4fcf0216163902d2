"""checkpoint_committer over a real Kafka and a real Valkey: leases that hold, reads that are never old."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from confluent_kafka import Producer

from libs.errors import Fenced, PipelineHalted, ServiceUnavailable
from libs.events.checkpoint_codec import checkpoint_key, encode_checkpoint
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.servers.process import kill
from libs.types.checkpoint import Checkpoint, FencingToken
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from libs.types.progress import Progress
from protos.headwater.checkpoints.v1 import checkpoint_pb2
from tests.conftest import KafkaBroker, StartValkey, ValkeyServer
from tests.integration.router_rig import read_closed_topic
from tests.integration.service_process import ServiceProcess, refused_until_ended
from tests.waiting import until

ERP = SourcePartition(source="erp", name="server-1")
CRM = SourcePartition(source="crm", name="0")
UNREACHABLE_REDIS = "redis://127.0.0.1:1/0"
LONG_S = 300.0
SHORT_S = 1.0

StartService = Callable[..., ServiceProcess]
Clients = Callable[[ServiceProcess], CheckpointCommitterClient]


@pytest.fixture
def valkey(start_valkey: StartValkey) -> ValkeyServer:
    """This test's own."""
    return start_valkey()


@pytest.fixture
def view(valkey: ValkeyServer) -> Iterator["redis.Redis"]:
    """The values that the service keeps in Redis."""
    with redis.Redis.from_url(valkey.url) as connection:
        yield connection


@pytest.fixture
def topic(unique_name: Callable[[str], str]) -> str:
    """This test's own."""
    return unique_name("checkpoints")


@pytest.fixture
def start_service(
    tmp_path: Path, kafka_broker: KafkaBroker, valkey: ValkeyServer, topic: str
) -> Iterator[StartService]:
    """Starts instances that share one topic and one transactional id of this test's own."""
    instances: list[ServiceProcess] = []

    def start_one(*, failpoints: str = "", **settings: object) -> ServiceProcess:
        service = ServiceProcess.of(
            "checkpoint_committer",
            tmp_path / str(len(instances)),
            {
                "kafka": {"bootstrap_servers": kafka_broker.bootstrap_servers},
                "redis": {"url": valkey.url},
                "topic": topic,
                "transactional_id": topic,
                "kafka_partitions": 1,
                "view_interval_s": 0.1,
                **settings,
            },
        )
        service.start(failpoints=failpoints)
        instances.append(service)
        return service

    with ExitStack() as stops:
        stops.callback(lambda: [service.stop() for service in instances])
        yield start_one


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    """Makes clients that are closed at the end."""
    opened: list[CheckpointCommitterClient] = []

    def client_of(service: ServiceProcess) -> CheckpointCommitterClient:
        opened.append(CheckpointCommitterClient(service.client_settings))
        return opened[-1]

    yield client_of
    for client in opened:
        await client.close()


class Reader:
    """Writes checkpoints as a reader does: in transactions of its own."""

    def __init__(self, broker: KafkaBroker, topic: str, transactional_id: str) -> None:
        self._topic = topic
        self.producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": f"{topic}-{transactional_id}",
                "transaction.timeout.ms": 600_000,  # longer than any test, on a machine at work
            }
        )
        self.producer.init_transactions(120)

    def write(self, checkpoint: Checkpoint) -> None:
        """Open a transaction and send; it stays open."""
        self.producer.begin_transaction()
        self.producer.produce(
            self._topic, key=checkpoint_key(checkpoint.partition), value=encode_checkpoint(checkpoint)
        )
        self.producer.flush(120)

    def commit(self, checkpoint: Checkpoint) -> None:
        """Returns when the checkpoint is committed."""
        self.write(checkpoint)
        self.producer.commit_transaction(120)


@pytest.fixture
def new_reader(kafka_broker: KafkaBroker, topic: str) -> Callable[[str], Reader]:
    """Makes readers, by transactional id."""
    return lambda transactional_id: Reader(kafka_broker, topic, transactional_id)


NewReader = Callable[[str], Reader]


def checkpoint(rank: int, *, token: int = 1, partition: SourcePartition = ERP) -> Checkpoint:
    return Checkpoint(
        partition=partition,
        position=SourcePosition(source_kind="mysql", token=b"gtid:1-%d" % rank),
        order=EventOrder(epoch=0, rank=rank, tx_ordinal=1),
        fencing_token=FencingToken(token),
        committed_at_us=rank,
        published_at_us=rank,
        rows_published=rank,
    )


async def rank_read(client: CheckpointCommitterClient, partition: SourcePartition = ERP) -> int | None:
    found = await client.checkpoint(partition)
    return found.order.rank if found is not None else None


async def takes_over(client: CheckpointCommitterClient, owner: str, lease_s: float) -> FencingToken:
    """Asks again, as a reader that starts does, until the previous owner's lease has ended."""
    while True:
        try:
            return await client.acquire(ERP, owner, lease_s)
        except Fenced:
            await asyncio.sleep(0.1)


async def test_a_lease_is_renewed_by_its_owner_and_refused_to_others(
    start_service: StartService, clients: Clients
) -> None:
    """The same owner keeps its token; another one is answered with the holder and the time that is left."""
    client = clients(start_service())
    first = await client.acquire(ERP, "a", LONG_S)

    renewed = await client.acquire(ERP, "a", LONG_S)
    of_another_partition = await client.acquire(CRM, "b", LONG_S)

    assert (first, renewed, of_another_partition) == (1, 1, 1)
    with pytest.raises(Fenced, match=r"erp/server-1 is owned by a for another [23]\d\d\.\d s"):
        await client.acquire(ERP, "b", LONG_S)


async def test_the_fencing_token_grows_at_every_takeover(start_service: StartService, clients: Clients) -> None:
    """After the lease ended, and at once after it was given up; an owner that comes back gets a new token, too."""
    service = start_service()
    client = clients(service)
    tokens = [await client.acquire(ERP, "a", SHORT_S)]

    tokens.append(await takes_over(client, "b", LONG_S))
    with pytest.raises(Fenced):
        await client.acquire(ERP, "a", LONG_S)
    await client.release(ERP, "a", FencingToken(1))  # without effect: it is no longer a's
    with pytest.raises(Fenced):
        await client.acquire(ERP, "a", LONG_S)
    await client.release(ERP, "b", FencingToken(2))
    tokens.append(await client.acquire(ERP, "a", LONG_S))

    assert tokens == [1, 2, 3]
    assert 'headwater_lease_takeovers_total{source="erp",source_partition="server-1"} 2.0' in service.get("/metrics")[1]


async def test_a_lease_that_was_written_but_not_answered_is_its_owners(
    start_service: StartService, clients: Clients
) -> None:
    """Killed between Kafka's acknowledgement and the answer: the owner's retry gets the token already written."""
    service = start_service(failpoints="checkpoint_committer_after_lease_before_answer=kill")
    client = clients(service)
    with pytest.raises(ServiceUnavailable):
        await client.acquire(ERP, "a", LONG_S)
    service.wait_for_exit(10)
    service.start()

    with pytest.raises(Fenced, match="owned by a"):
        await client.acquire(ERP, "b", LONG_S)
    retried = await client.acquire(ERP, "a", LONG_S)

    assert retried == 1


@pytest.mark.parametrize("redis_state", ["kept", "wiped", "away", "behind"])
async def test_a_restart_honours_leases_and_checkpoints_whatever_became_of_redis(
    start_service: StartService, clients: Clients, new_reader: NewReader, view: "redis.Redis", redis_state: str
) -> None:
    """After a kill -9 an unexpired lease still excludes others, tokens go on growing, checkpoints are the newest."""
    service = start_service()
    client = clients(service)
    await client.acquire(ERP, "a", SHORT_S)
    reader = new_reader("erp")
    reader.commit(checkpoint(10))
    assert await rank_read(client) == 10
    await until(lambda: _covered_offset(view) >= 4, because="the view covers the first records")
    earlier = view.hgetall(_state_key(view))
    await takes_over(client, "b", LONG_S)
    reader.commit(checkpoint(20, token=2))
    assert await rank_read(client) == 20
    await until(lambda: _covered_offset(view) >= 8, because="the view covers all records")
    service.kill()
    match redis_state:
        case "wiped":
            view.flushall()
        case "behind":
            key = _state_key(view)
            view.delete(key)
            view.hset(key, mapping=earlier)
        case "away":
            service.settings = {**service.settings, "redis": {"url": UNREACHABLE_REDIS}}
    service.start()

    with pytest.raises(Fenced, match="owned by b"):
        await client.acquire(ERP, "c", LONG_S)
    renewed = await client.acquire(ERP, "b", LONG_S)
    await client.release(ERP, "b", renewed)
    taken_over = await client.acquire(ERP, "c", LONG_S)

    assert (renewed, taken_over) == (2, 3)
    assert await rank_read(client) == 20
    assert _was_loaded_from_view(service) == (redis_state in ("kept", "behind"))


async def test_a_lease_ends_after_a_restart_too(start_service: StartService, clients: Clients) -> None:
    """The owner died with the service: its lease holds for one whole length from the start on, not for ever."""
    service = start_service()
    client = clients(service)
    await client.acquire(ERP, "a", SHORT_S)
    service.kill()
    service.start()

    token = await takes_over(client, "b", LONG_S)

    assert token == 2


async def test_a_read_is_never_older_than_what_was_committed_when_asked(
    start_service: StartService, clients: Clients, new_reader: NewReader
) -> None:
    """After each of 60 commits, amid aborts and another reader's commits, the answer is that commit or a later one."""
    client = clients(start_service())
    reader, neighbour = new_reader("erp"), new_reader("crm")
    is_done = asyncio.Event()

    async def commit_beside() -> int:
        rank = 0
        while not is_done.is_set():
            rank += 1
            await asyncio.to_thread(neighbour.commit, checkpoint(rank, partition=CRM))
        return rank

    committing = asyncio.create_task(commit_beside())
    read: list[int | None] = []
    for rank in range(1, 61):
        if rank % 3 == 0:
            await asyncio.to_thread(reader.write, checkpoint(1_000 + rank))
            await asyncio.to_thread(reader.producer.abort_transaction, 30)
        await asyncio.to_thread(reader.commit, checkpoint(rank))
        read.append(await rank_read(client))
    is_done.set()
    neighbours_rank = await committing

    assert list(range(1, 61)) == read
    assert await rank_read(client, CRM) == neighbours_rank


async def test_a_read_behind_an_open_transaction_is_refused_and_not_old(
    start_service: StartService, clients: Clients, new_reader: NewReader
) -> None:
    """A crashed neighbour's transaction hides later commits: until it ends the answer is "not now"."""
    client = clients(start_service(barrier_timeout_s=4.0))
    reader, crashed = new_reader("erp"), new_reader("crm")
    reader.commit(checkpoint(1))
    assert await rank_read(client) == 1
    crashed.write(checkpoint(1, partition=CRM))
    reader.commit(checkpoint(2))

    with pytest.raises(ServiceUnavailable, match="transaction is open"):
        await client.checkpoint(ERP)
    new_reader("crm")  # the neighbour starts again and so ends the transaction that it left

    assert await rank_read(client) == 2
    assert await rank_read(client, CRM) is None


async def test_a_restart_beside_a_dead_readers_transaction_keeps_every_lease(
    start_service: StartService, clients: Clients, new_reader: NewReader
) -> None:
    """The holder of a lease after that transaction keeps it, others get theirs; only hidden checkpoints are not answered."""
    service = start_service(barrier_timeout_s=4.0)
    client = clients(service)
    reader, crashed = new_reader("erp"), new_reader("crm")
    reader.commit(checkpoint(1))
    crashed.write(checkpoint(1, partition=CRM))
    granted = await client.acquire(ERP, "a", LONG_S)
    reader.commit(checkpoint(2))
    service.kill()
    service.start()

    with pytest.raises(Fenced, match="owned by a"):
        await client.acquire(ERP, "b", LONG_S)
    renewed = await client.acquire(ERP, "a", LONG_S)
    of_the_dead = await client.acquire(CRM, "c", LONG_S)
    with pytest.raises(ServiceUnavailable, match="transaction is open"):
        await client.checkpoint(ERP)
    new_reader("crm")

    assert (renewed, of_the_dead) == (granted, 1)
    assert await rank_read(client) == 2
    await client.release(ERP, "a", renewed)
    assert await client.acquire(ERP, "b", LONG_S) == granted + 1
    service.kill()
    service.start()
    with pytest.raises(Fenced, match="owned by b"):
        await client.acquire(ERP, "a", LONG_S)


async def test_an_open_transaction_hides_the_checkpoints_of_its_kafka_partition_alone(
    start_service: StartService, clients: Clients, new_reader: NewReader
) -> None:
    """A source whose records stand elsewhere is answered."""
    client = clients(start_service(barrier_timeout_s=1.0, kafka_partitions=16))
    reader, crashed = new_reader("erp"), new_reader("crm")
    crashed.write(checkpoint(1, partition=CRM))
    reader.commit(checkpoint(2))

    assert await rank_read(client) == 2
    with pytest.raises(ServiceUnavailable, match="transaction is open"):
        await client.checkpoint(CRM)


async def test_a_checkpoint_with_an_older_token_is_ignored_and_counted(
    start_service: StartService, clients: Clients, new_reader: NewReader
) -> None:
    """A writer that escaped Kafka's fencing (another transactional id) cannot move the resume point."""
    service = start_service()
    client = clients(service)
    new_reader("erp").commit(checkpoint(10, token=2))
    new_reader("escaped").commit(checkpoint(20, token=1))

    found = await rank_read(client)

    assert found == 10
    refused = 'headwater_checkpoints_refused_total{reason="fenced",source="erp",source_partition="server-1"} 1.0'
    assert refused in service.get("/metrics")[1]


async def test_the_last_checkpoint_of_the_previous_owner_counts_until_kafka_fences_it(
    start_service: StartService, clients: Clients, new_reader: NewReader
) -> None:
    """Its events are out, so the new owner, which asks after init_transactions, must resume after them."""
    client = clients(start_service())
    await client.acquire(ERP, "a", SHORT_S)
    reader = new_reader("erp")
    await takes_over(client, "b", LONG_S)
    reader.commit(checkpoint(10, token=1))
    new_reader("erp")

    found = await rank_read(client)

    assert found == 10


async def test_a_reset_is_refused_while_owned_and_leaves_an_audit_record(
    start_service: StartService, clients: Clients, new_reader: NewReader, kafka_broker: KafkaBroker, topic: str
) -> None:
    """It needs a reason; it changes position and token; the record and the log line say why."""
    service = start_service()
    client = clients(service)
    token = await client.acquire(ERP, "a", LONG_S)
    new_reader("erp").commit(checkpoint(10, token=token))
    earlier = SourcePosition(source_kind="mysql", token=b"gtid:1-5")
    with pytest.raises(Fenced, match="owned by a"):
        await client.reset(ERP, position=earlier, reason="bad deploy")
    await client.release(ERP, "a", token)
    with pytest.raises(PipelineHalted, match="reason"):
        await client.reset(ERP, position=earlier, reason=" ")

    await client.reset(ERP, position=earlier, reason="bad deploy")

    found = await client.checkpoint(ERP)
    assert found is not None
    assert (found.position, found.rows_published, found.snapshot) == (earlier, 10, None)
    assert await client.acquire(ERP, "a", LONG_S) == found.fencing_token + 1
    written = read_closed_topic(kafka_broker.bootstrap_servers, topic)
    [audit] = [message.value() for message in written if message.key() == b"reset/erp/server-1"]
    assert checkpoint_pb2.CheckpointReset.FromString(audit).reason == "bad deploy"
    assert "checkpoint_reset" in service.log_text


async def test_a_reset_that_starts_over_keeps_the_epoch_to_go_above(
    start_service: StartService, clients: Clients, new_reader: NewReader
) -> None:
    """A checkpoint of the next owner takes the mark away; one of an owner from before does not."""
    client = clients(start_service())
    reader = new_reader("erp")
    reader.commit(checkpoint(10))
    assert await rank_read(client) == 10
    with pytest.raises(PipelineHalted, match="takes no position"):
        earlier = SourcePosition(source_kind="mysql", token=b"gtid:1-5")
        await client.reset(ERP, position=earlier, reason="restored", starts_over=True)

    await client.reset(ERP, position=None, reason="restored", starts_over=True)
    reader.commit(checkpoint(11))

    marked = await client.checkpoint(ERP)
    assert marked is not None
    assert (marked.starts_over, marked.order.rank) == (True, 10)
    token = await client.acquire(ERP, "b", LONG_S)
    reader.commit(checkpoint(12, token=token))
    found = await client.checkpoint(ERP)
    assert found is not None
    assert (found.starts_over, found.order.rank) == (False, 12)


@pytest.mark.parametrize("redis_state", ["kept", "wiped"])
async def test_a_partition_that_was_reset_to_nothing_stays_forgotten(
    start_service: StartService, clients: Clients, new_reader: NewReader, view: "redis.Redis", redis_state: str
) -> None:
    """A stray checkpoint of an owner from before the reset does not bring it back, nor does a restart."""
    service = start_service()
    client = clients(service)
    reader = new_reader("erp")
    reader.commit(checkpoint(10))
    assert await rank_read(client) == 10
    await client.reset(ERP, position=None, reason="start over")
    reader.commit(checkpoint(11))
    before_restart = await client.checkpoint(ERP)
    service.stop()
    if redis_state == "wiped":
        view.flushall()
    service.start()

    found = await client.checkpoint(ERP)

    assert (before_restart, found) == (None, None)
    assert await client.list_checkpoints() == []


async def test_the_earlier_of_two_instances_is_fenced_and_both_answer_reads_alike(
    start_service: StartService, clients: Clients, new_reader: NewReader
) -> None:
    """The zombie can neither grant nor renew, and exits with code 4; its earlier answers were never old."""
    zombie = start_service()
    at_zombie = clients(zombie)
    await at_zombie.acquire(ERP, "a", LONG_S)
    at_second = clients(start_service())
    new_reader("erp").commit(checkpoint(10))

    read = [await rank_read(at_zombie), await rank_read(at_second)]
    with pytest.raises(Fenced, match="owned by a"):
        await at_second.acquire(ERP, "b", LONG_S)
    await refused_until_ended(zombie, lambda: at_zombie.acquire(ERP, "a", LONG_S))

    assert read == [10, 10]
    assert zombie.wait_for_exit(0) == 4
    assert await at_second.acquire(ERP, "a", LONG_S) == 1


async def test_a_view_wiped_while_running_is_written_anew(
    start_service: StartService, clients: Clients, new_reader: NewReader, view: "redis.Redis"
) -> None:
    """Answers do not change meanwhile, and the next start is from the view again."""
    service = start_service()
    client = clients(service)
    await client.acquire(ERP, "a", LONG_S)
    new_reader("erp").commit(checkpoint(10))
    await client.report_progress([_progress(1)])
    await until(lambda: len(view.keys()) == 2, because="the view is written", seen=view.keys)
    view.flushall()

    found = await rank_read(client)

    assert found == 10
    await until(lambda: len(view.keys()) == 2, because="the view is written again", seen=view.keys)
    service.stop()
    service.start()
    assert _was_loaded_from_view(service)
    assert await rank_read(client) == 10
    assert [report.rows for report in await client.progress()] == [1]


async def test_without_redis_answers_go_on_and_health_says_degraded(
    start_service: StartService, clients: Clients, new_reader: NewReader, valkey: ValkeyServer
) -> None:
    """Redis dies under a running service: grants, reads and progress go on; /readyz stays 200 and names the loss."""
    service = start_service()
    client = clients(service)
    kill(valkey.running)

    token = await client.acquire(ERP, "a", LONG_S)
    new_reader("erp").commit(checkpoint(10))
    await client.report_progress([_progress(1)])
    await until(
        lambda: "degraded" in service.get("/readyz")[1],
        because="the lost Redis is reported",
        seen=lambda: service.get("/readyz"),
    )

    assert token == 1
    assert await rank_read(client) == 10
    assert [report.rows for report in await client.progress("acme")] == [1]
    assert service.get("/readyz")[0] == 200
    assert service.get("/healthz") == (200, "ok\n")


async def test_progress_is_the_newest_report_of_each_hop(start_service: StartService, clients: Clients) -> None:
    """An older report that arrives late does not turn it back; another tenant's is apart."""
    client = clients(start_service())

    await client.report_progress([_progress(1), _progress(2), _progress(9, tenant="globex")])
    await client.report_progress([_progress(1)])

    assert [report.rows for report in await client.progress("acme")] == [2]
    assert [(report.tenant, report.rows) for report in await client.progress()] == [("acme", 2), ("globex", 9)]


async def test_what_is_forgotten_of_a_tenant_is_away_from_the_view_too(
    start_service: StartService, clients: Clients, view: "redis.Redis"
) -> None:
    """Another tenant's reports stay, and a later start finds those alone; a hop that reports again is listed again."""
    service = start_service()
    client = clients(service)
    await client.report_progress([_progress(1), _progress(9, tenant="globex")])
    await until(lambda: len(_progress_fields(view)) == 2, because="the progress of both tenants is kept")

    assert await client.forget_progress("acme") == 1

    assert await client.progress("acme") == []
    await until(
        lambda: [field.split(b"\0")[0] for field in _progress_fields(view)] == [b"globex"],
        because="the tenant that went is forgotten",
    )
    service.stop()
    service.start()
    assert [report.tenant for report in await client.progress()] == ["globex"]
    await client.report_progress([_progress(2)])
    assert [report.rows for report in await client.progress("acme")] == [2]
    with pytest.raises(PipelineHalted, match="a tenant must be given"):
        await client.forget_progress("")


async def test_it_stops_cleanly_and_refuses_names_and_leases_that_cannot_be(
    start_service: StartService, clients: Clients
) -> None:
    """SIGTERM ends it with code 0; a reserved source name or a lease of no length is refused, not retried."""
    service = start_service()
    client = clients(service)

    with pytest.raises(PipelineHalted, match="lease"):
        await client.acquire(SourcePartition(source="lease", name="0"), "a", LONG_S)
    with pytest.raises(PipelineHalted, match="1000 to 600000 ms"):
        await client.acquire(ERP, "a", 0.0)

    assert service.stop() == 0


def _progress(rows: int, *, tenant: str = "acme") -> Progress:
    return Progress(
        tenant=tenant,
        hop="router",
        partition=ERP,
        committed_at_us=rows,
        order=EventOrder(epoch=0, rank=rows, tx_ordinal=1),
        rows=rows,
        reported_at_us=rows,
    )


def _progress_fields(view: "redis.Redis") -> list[bytes]:
    return [field for key in view.keys("*:progress") for field in view.hkeys(key)]


def _state_key(view: "redis.Redis") -> bytes:
    [key] = view.keys("*:state")
    return bytes(key)


def _covered_offset(view: "redis.Redis") -> int:
    """How far the view reaches in Kafka partition 0; -1: it is not there yet."""
    if not view.keys("*:state"):
        return -1
    return int(json.loads(view.hget(_state_key(view), "#next_offsets") or b"{}").get("0", -1))


def _was_loaded_from_view(service: ServiceProcess) -> bool:
    started = [json.loads(line) for line in service.log_text.splitlines() if '"service_started"' in line]
    return bool(started[-1]["is_from_view"])
