"""Debezium's Vitess connector, which nobody here wrote, takes the stand-in for Vitess: copy, stream and reshard.

Its records are compared with MySQL's rows, so that the stand-in's events are judged by another reader of them than ours. Kafka
Connect 4.3.1 and the connector 3.5.0.Final are fetched when they are not there (76 MB): ``make test-all``.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from bench.connect import Connector
from bench.debezium_vitess import debezium_vitess
from libs.events.names import CONTEXT_TASK_HEADER
from libs.source.vitess.settings import StreamSettings
from libs.source.vitess.tasks import TaskSettings, partition_name
from libs.stand_ins.vtgate.client import execute
from libs.stand_ins.vtgate.cluster import new_shard, on_every_shard, topology_of
from libs.stand_ins.vtgate.reshard import reshard
from libs.stand_ins.vtgate.rules import row_values
from libs.stand_ins.vtgate.service import VtgateServer
from services.vstream_reader.tasks import dealt_shards
from tests.conftest import MysqlServer
from tests.integration.test_vstream_reader import Follower

pytestmark = pytest.mark.rest(
    because="unit/vstream_reader/test_golden_replay.py holds events to those that the connector wrote"
)

TIMEOUT_S = 500.0
TABLE = """CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(30), amount DECIMAL(12,2), kind ENUM('a','b,c'),
    tags SET('x','y','z'), born DATE, seen DATETIME(6), doc JSON, big BIGINT UNSIGNED)"""
ORDERED = "io.debezium.connector.vitess.pipeline.txmetadata.VitessOrderedTransactionMetadataFactory"
COLUMNS = "id, name, amount, kind, tags, born, seen, doc, big"


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the connector."""

    key: dict | None
    value: dict | None
    headers: dict[str, object]


class Topic:
    """A topic's records so far."""

    def __init__(self, bootstrap_servers: str, name: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": f"reads-{name}", "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([name])
        self.records: list[Record] = []

    def until(self, count: int, connector: Connector) -> list[Record]:
        """All records, once there are so many."""
        return self.until_holds(lambda records: len(records) >= count, connector, what=f"{count} records")

    def until_holds(
        self, is_enough: Callable[[list[Record]], bool], connector: Connector, *, what: str
    ) -> list[Record]:
        """All records, once they are enough."""

        def are_enough() -> bool:
            self._poll()
            return is_enough(self.records)

        connector.wait_until(are_enough, timeout_s=TIMEOUT_S, what=what)
        return self.records

    def _poll(self) -> None:
        message = self._consumer.poll(0.2)
        if message is not None and message.error() is None:
            self.records.append(
                Record(
                    key=_json(message.key()),
                    value=_json(message.value()),
                    headers={name: _json(value) for name, value in message.headers() or ()},
                )
            )

    def until_end(self) -> list[Record]:
        """All records that the topic has now."""
        while any(
            self._consumer.position([partition])[0].offset < self._consumer.get_watermark_offsets(partition)[1]
            for partition in self._consumer.assignment()
        ):
            self._poll()
        return self.records

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


@pytest.fixture
def vtgate(shard_servers, unique_name) -> Iterator[VtgateServer]:
    """Two shards, each on a server of its own, with twenty rows; a third and a fourth server wait for a reshard."""
    servers: list[MysqlServer] = shard_servers(4)
    places = {name: (server.host, server.port) for name, server in zip(("-80", "80-"), servers[:2], strict=True)}
    keyspace = unique_name("dbz")
    server = VtgateServer(topology_of({keyspace: places})).start()
    on_every_shard(server.topology, keyspace, [TABLE])
    insert(server, range(1, 21))
    try:
        yield server
    finally:
        server.stop()


def _debezium(
    folder: Path, bootstrap_servers: str, vtgate: VtgateServer, *, topic_prefix: str, options: Mapping[str, object]
) -> AbstractContextManager[Connector]:
    """Debezium's connector, which reads the table."""
    keyspace = vtgate.topology.keyspaces[0].name
    return debezium_vitess(
        folder / "connect",
        bootstrap_servers,
        vtgate_port=vtgate.port,
        keyspace=keyspace,
        topic_prefix=topic_prefix,
        options={"poll.interval.ms": 20, "table.include.list": f"{keyspace}.t", **options},
    )


def test_copy_stream_and_reshard(vtgate: VtgateServer, shard_servers, bootstrap_servers: str, tmp_path: Path) -> None:
    """Every row is copied once, every change comes once and in order, before and after a split of one shard; ours reads the
    same."""
    keyspace = vtgate.topology.keyspaces[0].name
    follower = Follower(vtgate)
    asyncio.run(follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None))
    options = {
        "provide.transaction.metadata": "true",
        "transaction.metadata.factory": ORDERED,
        "vitess.inherit.epoch": "true",  # without it a new shard begins at epoch 0, below its rows' older events
    }
    with _debezium(tmp_path, bootstrap_servers, vtgate, topic_prefix=f"p_{keyspace}", options=options) as connector:
        topic = Topic(bootstrap_servers, f"p_{keyspace}.{keyspace}.t")
        copied = tuple(topic.until(20, connector))
        _change(vtgate)
        streamed = tuple(topic.until(20 + 2 + 2 + 10, connector))[20:]
        _split(vtgate, shard_servers)
        records = tuple(topic.until(34 + 30 + 1, connector))
        topic.close()
    asyncio.run(follower.read(lambda f: f.rows.keys() >= set(range(1, 61)) and f.rows[1][1]["name"] == "behind"))

    assert sorted(record.key["id"] for record in copied) == list(range(1, 21))
    assert [record.value["op"] for record in copied] == 20 * ["c"]  # the connector calls a copied row a create
    deleted = [record for record in streamed if record.key == {"id": 2}]
    assert [record.value and record.value["op"] for record in deleted] == ["d", None]
    changed = next(record.value for record in streamed if record.key == {"id": 1})
    assert (changed["before"]["name"], changed["after"]["name"], changed["after"]["amount"]) == (
        "n1",
        "changed",
        "-0.05",
    )
    assert next(record.value["after"] for record in streamed if record.key == {"id": 4})["kind"] == "b,c"
    assert {record.value["source"]["shard"] for record in records[34:]} == {"-40", "40-80", "80-"}
    assert _last_images(records) == _stored(vtgate)
    assert _histories(records) == _our_histories(follower)
    assert _epochs(records)["behind"] > _epochs(records)["changed"]
    assert {name for record in copied for name in record.headers} == {
        f"__debezium.context.{name}" for name in ("connectorLogicalName", "taskId", "connectorName", "runId")
    }


def test_stop_on_reshard(vtgate: VtgateServer, shard_servers, bootstrap_servers: str, tmp_path: Path) -> None:
    """Both have vtgate end their streams at the journal of a split. Ours goes on with the new shards. The connector opens no
    other, and stays running; where its task is started again it stands after the journal, and has the shard that stayed."""
    keyspace = vtgate.topology.keyspaces[0].name
    follower = Follower(vtgate, stream=StreamSettings(stop_on_reshard=True))
    asyncio.run(follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None))
    opened = len(vtgate.requests)
    options = {"vitess.stop_on_reshard": "true"}
    with _debezium(tmp_path, bootstrap_servers, vtgate, topic_prefix=f"r_{keyspace}", options=options) as connector:
        topic = Topic(bootstrap_servers, f"r_{keyspace}.{keyspace}.t")
        topic.until(20, connector)
        _change(vtgate)
        topic.until(34, connector)
        _split(vtgate, shard_servers)
        connector.wait_until(lambda: not vtgate.open_streams, timeout_s=TIMEOUT_S, what="the end of its stream")
        connector.suspend()
        connector.resume()
        connector.wait_until(lambda: vtgate.open_streams > 0, timeout_s=TIMEOUT_S, what="another stream")
        insert(vtgate, range(61, 91))
        stayed = {row_id for row_id in range(1, 91) if vtgate.topology.shard_of(keyspace, row_id).name == "80-"}
        topic.until_holds(
            lambda records: {record.key["id"] for record in records} >= stayed, connector, what="the rows of 80-"
        )
        connector.suspend()  # all that it has received is in Kafka then
        records = tuple(topic.until_end())
        topic.close()
    first, *again = vtgate.requests[opened:]
    asyncio.run(follower.read(lambda f: f.rows.keys() >= set(range(1, 91))))

    # Started again it repeats the events of which it had kept no offset.
    theirs = {row_id: list(dict.fromkeys(history)) for row_id, history in _histories(records).items()}
    ours = _our_histories(follower)
    assert first.flags.stop_on_reshard
    (places,) = [{shard.shard: shard.gtid for shard in each.vgtid.shard_gtids} for each in again]
    assert places.keys() == {"-80", "80-"}
    assert places["-80"] == vtgate.topology.shard(keyspace, "-80").primary.position()  # nothing follows the journal
    assert {record.value["source"]["shard"] for record in records if record.value} == {"-80", "80-"}
    assert {row_id: history for row_id, history in ours.items() if row_id in stayed or row_id <= 30} == {
        **theirs,
        1: [*theirs[1], ("u", _our_images(follower)[1])],
    }
    assert theirs.keys() == stayed | set(range(1, 31))
    assert _our_images(follower) == _stored(vtgate) != _last_images(records)


def test_tasks_have_our_names(vtgate: VtgateServer, bootstrap_servers: str, tmp_path: Path) -> None:
    """Each record's headers name the task that read it: the source partition of ours."""
    keyspace = vtgate.topology.keyspaces[0].name
    options = {
        "tasks.max": 2,
        "vitess.offset.storage.per.task": "true",
        "vitess.offset.storage.task.key.gen": 0,
        "vitess.prev.num.tasks": 1,
    }
    with _debezium(tmp_path, bootstrap_servers, vtgate, topic_prefix=f"n_{keyspace}", options=options) as connector:
        topic = Topic(bootstrap_servers, f"n_{keyspace}.{keyspace}.t")
        records = topic.until(20, connector)
        topic.close()

    ours = [TaskSettings(number=number, of=2, generation=0) for number in range(2)]
    assert {(record.value["source"]["shard"], record.headers[CONTEXT_TASK_HEADER]) for record in records} == {
        (shard, partition_name(task)) for task in ours for shard in dealt_shards(task, ["-80", "80-"])
    }


def _change(vtgate: VtgateServer) -> None:
    """Fourteen records, a tombstone among them, after the copy of the twenty rows."""
    keyspace = vtgate.topology.keyspaces[0].name
    for statement in (
        "UPDATE t SET name = 'changed', amount = -0.05 WHERE id = 1",
        "UPDATE t SET kind = 'b,c', tags = 'x,z', big = 18446744073709551615 WHERE id = 4",
        "DELETE FROM t WHERE id = 2",
    ):
        execute(vtgate, statement, keyspace)
    insert(vtgate, range(21, 31))


def _split(vtgate: VtgateServer, shard_servers) -> None:
    """One of the two shards; and changes after it."""
    keyspace = vtgate.topology.keyspaces[0].name
    targets = [
        new_shard(keyspace, name, 900 + number, server.host, server.port)
        for number, (name, server) in enumerate(zip(("-40", "40-80"), shard_servers(4)[2:], strict=True))
    ]
    reshard(vtgate, targets)
    insert(vtgate, range(31, 61))
    execute(vtgate, "UPDATE t SET name = 'behind' WHERE id = 1", keyspace)


Histories = dict[int, list[tuple[str, tuple[object, ...] | None]]]
"""Of each row its operations, each with the row's values after it."""


def _histories(records: tuple[Record, ...]) -> Histories:
    found: Histories = {}
    for record in records:
        if record.value is not None:
            found.setdefault(record.key["id"], []).append((record.value["op"], _image(record.value["after"])))
    return found


def _our_histories(follower: Follower) -> Histories:
    """A copied row as the connector names it: a create."""
    found: Histories = {}
    for op, row_id, after in follower.images:
        found.setdefault(row_id, []).append(("c" if op == "r" else op, _image(after)))
    return found


def _image(row: Mapping[str, object] | None) -> tuple[object, ...] | None:
    return None if row is None else tuple(row[column] for column in ("name", "amount", "kind", "tags", "big"))


def _our_images(follower: Follower) -> dict[int, tuple[object, ...] | None]:
    return {row_id: _image(row) for row_id, (_, row) in follower.rows.items() if row is not None}


def _last_images(records: tuple[Record, ...]) -> dict[int, tuple[object, ...]]:
    """The table as a consumer has it that keeps each key's last event."""
    table: dict[int, tuple[object, ...]] = {}
    for record in records:
        if record.value is None:
            continue
        if record.value["after"] is None:
            table.pop(record.key["id"], None)
        else:
            after = record.value["after"]
            table[record.key["id"]] = tuple(after[column] for column in ("name", "amount", "kind", "tags", "big"))
    return table


def _stored(vtgate: VtgateServer) -> dict[int, tuple[object, ...]]:
    keyspace = vtgate.topology.keyspaces[0].name
    rows = [row_values(row) for row in execute(vtgate, f"SELECT {COLUMNS} FROM t", keyspace).rows]
    texts = [[value if value is None else value.decode() for value in row] for row in rows]
    return {int(row[0]): (row[1], row[2], row[3], row[4], row[8]) for row in texts}


def _epochs(records: tuple[Record, ...]) -> dict[str, int]:
    """The transaction epoch of each event of row 1, by the name it wrote."""
    return {
        record.value["after"]["name"]: record.value["transaction"]["transaction_epoch"]
        for record in records
        if record.value is not None and record.key == {"id": 1}
    }


def insert(vtgate: VtgateServer, ids: range) -> None:
    """Rows of these numbers."""
    values = ", ".join(
        f"({n}, 'n{n}', {n}.50, 'a', 'y', '2024-02-29', '2024-02-29 12:00:00.123456', '{{\"n\": {n}}}', {n})"
        for n in ids
    )
    keyspace = vtgate.topology.keyspaces[0].name
    execute(vtgate, f"INSERT INTO t ({COLUMNS}) VALUES {values}", keyspace)


def _json(data: bytes | str | None):
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return data.decode() if isinstance(data, bytes) else data
