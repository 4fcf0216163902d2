"""schema_history over a real Kafka and a real Valkey: durable, idempotent, and right in every state of Redis."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from libs.config.connections import KafkaSettings
from libs.errors import PipelineHalted, SchemaUnknown, ServiceUnavailable
from libs.events.schema_change import SchemaChange, SchemaChangeKind, schema_change_to_proto
from libs.kafka.writer import OutgoingRecord, TransactionalWriter
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.servers.process import kill
from libs.types.order import EventOrder
from libs.types.position import SourcePosition
from libs.types.table import Column, TableId, TableSchema
from libs.types.value import LogicalKind, LogicalType
from tests.conftest import KafkaBroker, StartKafka, StartValkey, ValkeyServer
from tests.integration.service_process import ServiceProcess, refused_until_ended
from tests.waiting import until

ORDERS = TableId(database="shop", table="orders")
PURCHASES = TableId(database="shop", table="purchases")
UNREACHABLE_REDIS = "redis://127.0.0.1:1/0"

StartService = Callable[..., ServiceProcess]


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
def start_service(
    tmp_path: Path, kafka_broker: KafkaBroker, valkey: ValkeyServer, unique_name: Callable[[str], str]
) -> Iterator[StartService]:
    """Starts instances that share one topic and one transactional id of this test's own."""
    topic, transactional_id = unique_name("schema-history"), unique_name("schema-history")
    instances: list[ServiceProcess] = []

    def start_one(*, failpoints: str = "", broker: KafkaBroker = kafka_broker) -> ServiceProcess:
        service = ServiceProcess.of(
            "schema_history",
            tmp_path / str(len(instances)),
            {
                "kafka": {"bootstrap_servers": broker.bootstrap_servers},
                "redis": {"url": valkey.url},
                "topic": topic,
                "transactional_id": transactional_id,
                "view_interval_s": 0.1,
            },
        )
        service.start(failpoints=failpoints)
        instances.append(service)
        return service

    with ExitStack() as stops:
        stops.callback(lambda: [service.stop() for service in instances])
        yield start_one


@pytest.fixture
async def clients() -> AsyncIterator[Callable[[ServiceProcess], SchemaHistoryClient]]:
    """Makes clients that are closed at the end."""
    opened: list[SchemaHistoryClient] = []

    def client_of(service: ServiceProcess) -> SchemaHistoryClient:
        opened.append(SchemaHistoryClient(service.client_settings))
        return opened[-1]

    yield client_of
    for client in opened:
        await client.close()


Clients = Callable[[ServiceProcess], SchemaHistoryClient]


def order(rank: int) -> EventOrder:
    return EventOrder(epoch=0, rank=rank, tx_ordinal=1)


def schema(table_id: TableId, *columns: str) -> TableSchema:
    kind = LogicalType(kind=LogicalKind.INT32)
    made = tuple(Column(name=name, source_type="int", logical_type=kind) for name in columns)
    return TableSchema(table_id=table_id, columns=made, key=columns[:1])


async def record(
    client: SchemaHistoryClient,
    rank: int,
    *columns: str,
    table_id: TableId = ORDERS,
    kind: SchemaChangeKind = SchemaChangeKind.ALTER,
    renamed_from: TableId | None = None,
    source: str = "erp",
) -> int:
    """Records a change whose statement follows from its rank and columns."""
    return await client.record_schema_change(
        source=source,
        table_id=table_id,
        kind=kind,
        order=order(rank),
        position=SourcePosition(source_kind="mysql", token=b"%d" % rank),
        committed_at_us=rank,
        ddl=f"{kind.value} {rank} {columns}",
        table_schema=schema(table_id, *columns) if kind is not SchemaChangeKind.DROP else None,
        renamed_from=renamed_from,
    )


async def column_names(client: SchemaHistoryClient, rank: int, table_id: TableId = ORDERS) -> tuple[str, ...]:
    found = await client.table_schema_at("erp", table_id, order(rank))
    return tuple(column.name for column in found.columns)


async def test_versions_are_counted_per_table_and_found_by_version_and_by_order(
    start_service: StartService, clients: Clients
) -> None:
    """Each change of a table is its next version; a lookup at an order finds the one in force then."""
    client = clients(start_service())

    versions = [await record(client, 10, "id"), await record(client, 20, "id", "total")]
    other = await record(client, 15, "id", table_id=PURCHASES)

    assert versions == [1, 2]
    assert other == 1
    assert await column_names(client, 19) == ("id",)
    assert await column_names(client, 20) == ("id", "total")
    assert (await client.table_schema("erp", ORDERS, 1)).version == 1
    with pytest.raises(SchemaUnknown, match=r"shop\.orders"):
        await column_names(client, 9)
    with pytest.raises(SchemaUnknown):
        await client.table_schema("erp", ORDERS, 3)


async def test_a_repeated_change_answers_the_version_of_the_first_call(
    start_service: StartService, clients: Clients
) -> None:
    """Same source, table, order and statement: nothing is recorded again, also when newer versions exist."""
    client = clients(start_service())
    first = await record(client, 10, "id")
    await record(client, 20, "id", "total")

    repeated = await record(client, 10, "id")

    assert first == repeated
    assert await column_names(client, 99) == ("id", "total")
    assert await record(client, 30, "id") == 3


async def test_concurrent_changes_of_one_table_get_different_versions(
    start_service: StartService, clients: Clients
) -> None:
    """Twenty calls at once are decided one after another."""
    client = clients(start_service())

    versions = await asyncio.gather(*(record(client, rank, "id") for rank in range(1, 21)))

    assert list(range(1, 21)) == sorted(versions)


async def test_dropped_tables_are_absent_and_a_rename_shows_under_the_new_name(
    start_service: StartService, clients: Clients
) -> None:
    """ListTables at an order gives the tables of then; a rename is a DROP and an ALTER with ``renamed_from``."""
    client = clients(start_service())
    await record(client, 10, "id", kind=SchemaChangeKind.CREATE)
    await record(client, 20, kind=SchemaChangeKind.DROP)
    await record(client, 20, "id", table_id=PURCHASES, renamed_from=ORDERS)

    before = await client.list_changes("erp", order(19))
    after = await client.list_changes("erp")

    assert [change.table_id for change in before] == [ORDERS]
    assert [(change.table_id, change.renamed_from) for change in after] == [(PURCHASES, ORDERS)]
    with pytest.raises(SchemaUnknown):
        await column_names(client, 20)
    assert await record(client, 30, "id", kind=SchemaChangeKind.CREATE) == 3


async def test_a_change_that_was_written_but_not_answered_keeps_its_version(
    start_service: StartService, clients: Clients
) -> None:
    """Killed between Kafka's acknowledgement and the answer, the retry gets the version already written."""
    service = start_service(failpoints="schema_history_after_kafka_before_answer=kill@2")
    client = clients(service)
    assert await record(client, 10, "id") == 1
    with pytest.raises(ServiceUnavailable):
        await record(client, 20, "id", "total")
    service.wait_for_exit(10)
    service.start()

    retried = await record(client, 20, "id", "total")

    assert retried == 2
    assert await record(client, 30, "id") == 3


@pytest.mark.parametrize("redis_state", ["kept", "wiped", "away", "behind"])
async def test_a_restart_answers_alike_whatever_became_of_redis(
    start_service: StartService, clients: Clients, view: "redis.Redis", redis_state: str
) -> None:
    """Versions old and new survive a kill -9, with the view kept, wiped, out of reach or older than the log."""
    service = start_service()
    client = clients(service)
    await record(client, 10, "id")
    await record(client, 20, "id", "total")
    await until(lambda: _covered_offset(view) >= 3, because="the view covers the first changes")
    earlier = view.hgetall(_heads_key(view))
    await record(client, 30, "id", "total", "note")
    await until(lambda: _covered_offset(view) >= 5, because="the view covers all changes")
    service.kill()
    match redis_state:
        case "wiped":
            view.flushall()
        case "behind":
            view.hset(_heads_key(view), mapping=earlier)
        case "away":
            service.settings = {**service.settings, "redis": {"url": UNREACHABLE_REDIS}}
    service.start()

    found = [await column_names(client, rank) for rank in (10, 20, 30)]

    assert found == [("id",), ("id", "total"), ("id", "total", "note")]
    assert await record(client, 20, "id", "total") == 2
    assert await record(client, 40, "id") == 4
    assert _was_loaded_from_view(service) == (redis_state in ("kept", "behind"))


async def test_a_view_wiped_while_running_is_rebuilt_and_answers_stay_right(
    start_service: StartService, clients: Clients, view: "redis.Redis"
) -> None:
    """A start from the view knows only heads; old versions then come from Kafka, and the view is written again."""
    service = start_service()
    client = clients(service)
    await record(client, 10, "id")
    await record(client, 20, "id", "total")
    service.stop()
    service.start()
    names = sorted(view.keys())
    view.flushall()

    found = await column_names(client, 10)

    assert found == ("id",)
    assert _was_loaded_from_view(service)
    await until(lambda: sorted(view.keys()) == names, because="the view is written again", seen=view.keys)
    assert "schema_view_rebuilt" in service.log_text


async def test_without_redis_answers_go_on_and_health_says_degraded(
    start_service: StartService, clients: Clients, valkey: ValkeyServer
) -> None:
    """Redis dies under a running service: writes and reads go on; /readyz stays 200 and names the loss."""
    service = start_service()
    client = clients(service)
    await record(client, 10, "id")
    kill(valkey.running)

    version = await record(client, 20, "id", "total")
    await until(
        lambda: "degraded" in service.get("/readyz")[1],
        because="the lost Redis is reported",
        seen=lambda: service.get("/readyz"),
    )

    assert version == 2
    assert await column_names(client, 10) == ("id",)
    assert service.get("/readyz")[0] == 200
    assert service.get("/healthz") == (200, "ok\n")
    assert "headwater_redis_available 0.0" in service.get("/metrics")[1]


async def test_the_earlier_of_two_instances_is_fenced_and_both_answer_reads_alike(
    start_service: StartService, clients: Clients
) -> None:
    """The zombie's write is refused and it exits with code 4; its earlier answers were never old."""
    zombie = start_service()
    at_zombie = clients(zombie)
    await record(at_zombie, 10, "id")
    at_second = clients(start_service())
    assert await record(at_second, 20, "id", "total") == 2

    read_at_zombie = await column_names(at_zombie, 99)
    version_at_zombie = await at_zombie.table_schema("erp", ORDERS, 2)
    await refused_until_ended(zombie, lambda: record(at_zombie, 30, "id"))

    assert read_at_zombie == ("id", "total")
    assert version_at_zombie.version == 2
    assert zombie.wait_for_exit(0) == 4
    assert await record(at_second, 30, "id") == 3


async def test_a_watcher_gets_the_newest_of_each_table_and_then_every_change(
    start_service: StartService, clients: Clients
) -> None:
    """Nothing is missed or repeated between the tables known at the start of the stream and the later changes."""
    client = clients(start_service())
    await record(client, 10, "id")
    await record(client, 20, "id", "total")
    await record(client, 21, "id", source="crm")
    seen: list[SchemaChange] = []

    async def watch() -> None:
        async for change in client.watch("erp"):
            seen.append(change)

    watching = asyncio.create_task(watch())
    await until(lambda: len(seen) == 1, because="the first answer is seen")
    await record(client, 30, kind=SchemaChangeKind.DROP)
    await record(client, 31, "id", source="crm")
    await record(client, 40, "id", kind=SchemaChangeKind.CREATE)
    await until(lambda: len(seen) == 3, because="all answers are seen")
    watching.cancel()

    assert [(change.version, change.kind) for change in seen] == [
        (2, SchemaChangeKind.ALTER),
        (3, SchemaChangeKind.DROP),
        (4, SchemaChangeKind.CREATE),
    ]


async def test_a_broker_crash_loses_nothing_and_is_survived(
    start_service: StartService, clients: Clients, start_kafka: StartKafka
) -> None:
    """While Kafka is away versions are still answered, and nothing that could be old; then all goes on."""
    broker = start_kafka()
    service = start_service(broker=broker)
    client = clients(service)
    await record(client, 10, "id")
    # Seen by a read_committed consumer, so its commit marker is in the log: a Kafka of one node that is killed between
    # acknowledging a commit and writing the marker forgets the marker at its next start (seen with 4.3.1; KAFKA-20734).
    assert await column_names(client, 10) == ("id",)
    broker.kill()

    version_1 = await client.table_schema("erp", ORDERS, 1)
    with pytest.raises(ServiceUnavailable):
        await column_names(client, 10)
    await until(
        lambda: service.get("/readyz")[0] == 503,
        because="the lost Kafka is reported",
        seen=lambda: service.get("/readyz"),
    )
    alive = service.get("/healthz")
    broker.restart()
    await until(
        lambda: service.get("/readyz")[0] == 200, because="Kafka is there again", seen=lambda: service.get("/readyz")
    )

    assert version_1.version == 1
    assert alive == (200, "ok\n")
    assert await column_names(client, 10) == ("id",)
    assert await record(client, 20, "id", "total") == 2


async def test_it_stops_cleanly_and_refuses_what_is_no_change(start_service: StartService, clients: Clients) -> None:
    """SIGTERM ends it with code 0; a change without a schema is refused, not retried."""
    service = start_service()
    client = clients(service)
    with pytest.raises(PipelineHalted, match="table_schema"):
        await client.record_schema_change(
            source="erp",
            table_id=ORDERS,
            kind=SchemaChangeKind.ALTER,
            order=order(1),
            position=SourcePosition(source_kind="mysql", token=b""),
            committed_at_us=0,
            ddl="ALTER TABLE orders",
            table_schema=None,
        )

    assert service.stop() == 0


def _heads_key(view: "redis.Redis") -> bytes:
    [key] = view.keys("*:heads")
    return bytes(key)


def _covered_offset(view: "redis.Redis") -> int:
    """How far the view reaches in the log; -1: it is not there yet."""
    if not view.keys("*:heads"):
        return -1
    return int(view.hget(_heads_key(view), "#next_offset") or -1)


def _was_loaded_from_view(service: ServiceProcess) -> bool:
    started = [json.loads(line) for line in service.log_text.splitlines() if '"service_started"' in line]
    return bool(started[-1]["is_from_view"])


async def test_tables_are_listed_in_parts(start_service: StartService, clients: Clients) -> None:
    """Tens of thousands of tables do not fit into one message: the client asks on until all are there, dropped ones not."""
    client = clients(start_service())
    columns = [f"{number:060d}" for number in range(1_750)]  # 850 KB a table, of which 8 MB are a part
    tables = [TableId(database="wide", table=f"t{number:02d}") for number in range(24)]
    for table_id in tables:
        await record(client, 10, *columns, table_id=table_id)
    await record(client, 20, table_id=tables[11], kind=SchemaChangeKind.DROP)

    listed = await client.list_tables("erp", order(30))
    before = await client.list_tables("erp", order(10))

    assert [found.table_id for found in listed] == [*tables[:11], *tables[12:]]
    assert [found.table_id for found in before] == tables


async def test_a_restart_with_many_tables_gives_the_same_ones_from_log_and_view(
    start_service: StartService, clients: Clients, view: "redis.Redis", kafka_broker: KafkaBroker
) -> None:
    """More than go through Redis at once: the view is written, and caught up, in parts; of each table the newest version and
    the older ones are there, whether a start reads the log, the view, or a view that is much older."""
    service = start_service()
    client = clients(service)
    await _write_log(kafka_broker, service, range(1_300), rank=10)
    service.kill()
    service.start()
    await until(lambda: _covered_offset(view) > 1_300, because="the view covers the many changes")
    from_log = await client.list_tables("erp")
    await record(client, 20, "id", "total", table_id=_numbered(7))
    await until(lambda: _covered_offset(view) > 1_302, because="the view covers two more")
    service.kill()
    await _write_log(kafka_broker, service, range(1_300, 2_600), rank=30)
    service.start()
    from_view_behind = await client.list_tables("erp")
    await until(lambda: _covered_offset(view) > 2_603, because="the view covers as many again")
    service.kill()
    service.start()

    from_view = await client.list_tables("erp")

    assert [found.table_id for found in from_log] == [_numbered(number) for number in range(1_300)]
    assert [found.table_id for found in from_view] == [_numbered(number) for number in range(2_600)]
    assert from_view_behind == from_view
    assert (from_log[7].version, from_view[7].version) == (1, 2)
    assert await column_names(client, 15, _numbered(7)) == ("id",)
    assert await client.list_tables("erp", order(15)) == from_log
    assert _was_loaded_from_view(service)
    assert '"schema_history_read_whole"' not in service.log_text
    assert len(view.keys("*:heads*")) == 1


def _numbered(number: int) -> TableId:
    return TableId(database="many", table=f"t{number:05d}")


async def _write_log(broker: KafkaBroker, service: ServiceProcess, numbers: range, *, rank: int) -> None:
    """First sights of tables, as the service writes them, but many at once."""
    topic = str(service.settings["topic"])
    writer = TransactionalWriter(KafkaSettings(bootstrap_servers=broker.bootstrap_servers), topic, f"{topic}-test")
    await writer.open()
    changes = [
        SchemaChange(
            source="erp",
            table_id=_numbered(number),
            kind=SchemaChangeKind.SNAPSHOT,
            order=order(rank),
            position=SourcePosition(source_kind="mysql", token=b""),
            committed_at_us=rank,
            ddl=f"CREATE TABLE {number}",
            table_schema=schema(_numbered(number), "id"),
            version=1,
        )
        for number in numbers
    ]
    await writer.write(
        [OutgoingRecord(b"erp", schema_change_to_proto(change).SerializeToString()) for change in changes]
    )
    writer.close()
