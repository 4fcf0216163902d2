"""The same recorded stream read by Debezium's Vitess connector, and by vstream_reader's decoder and the router: record by
record the same.

The stand-in serves real shards through a copy, changes, key changes, transactions over two tables and two shards, an ALTER and
a split, or a merge; its messages are recorded, and replayed to both. Differences that are allowed are listed here as in
docs/vitess-differences.md; anything else fails.
"""

import json
from pathlib import Path

import pytest

from libs.events.names import CONTEXT_RUN_HEADER, NEW_KEY_HEADER, OLD_KEY_HEADER
from libs.stand_ins.vtgate.client import StreamReader, changes, count, execute
from libs.stand_ins.vtgate.cluster import new_shard, on_every_shard
from libs.stand_ins.vtgate.replay import write_record
from libs.stand_ins.vtgate.reshard import reshard
from libs.stand_ins.vtgate.service import VtgateServer
from libs.stand_ins.vtgate.topology import Shard
from protos.vitess.binlogdata_pb2 import ShardGtid, VEvent, VEventType
from protos.vitess.vtgate_pb2 import VStreamResponse
from tests.differential.recorded import debezium_reads, our_records
from tests.differential.test_debezium_on_the_stand_in import ORDERED, Record, Topic, insert, vtgate  # noqa: F401
from tests.unit.router.test_deliver import OURS

pytestmark = pytest.mark.rest(
    because="unit/vstream_reader/test_golden_replay.py holds events to those that the connector wrote"
)

DELETES, KEY_CHANGES = 1 + 2 * 2 + 5, 1 + 2 * 2  # of both tables
LONGEST_TRANSACTION_MS = 60_000  # on a busy machine
AS_WE_WRITE_IT = {"doc"}  # JSON without the spaces that MySQL prints, so that copy and stream give one form


@pytest.mark.parametrize("targets", [("-40", "40-80"), ("-",)], ids=["split", "merge"])
def test_the_same_records(
    vtgate: VtgateServer,  # noqa: F811
    shard_servers,
    bootstrap_servers: str,
    tmp_path: Path,
    targets: tuple[str, ...],
) -> None:
    """Of rows: keys, images, operations, source and transaction blocks, their order, their schemas, headers and tombstones. Of
    transactions: BEGIN and END."""
    keyspace = vtgate.topology.keyspaces[0].name
    prefix = f"s_{keyspace}"
    _record(vtgate, shard_servers, tmp_path / "record", targets)
    tables = (f"{keyspace}.t", f"{keyspace}.u")
    ours = our_records(tmp_path / "record", prefix, keyspace, (*tables, "transaction"))
    options = {
        "provide.transaction.metadata": "true",
        "transaction.metadata.factory": ORDERED,
        "vitess.inherit.epoch": "true",  # without it a new shard begins at epoch 0, below its rows' older events
        "table.include.list": ",".join(tables),
    }
    theirs = {}
    with debezium_reads(
        tmp_path / "record", tmp_path / "connect", bootstrap_servers, keyspace=keyspace, prefix=prefix, options=options
    ) as connector:
        for name in tables:
            topic = Topic(bootstrap_servers, f"{prefix}.{name}")
            theirs[name] = topic.until(len(ours[name]), connector)
            topic.close()
        last = ours["transaction"][-1].value["payload"]
        topic = Topic(bootstrap_servers, f"{prefix}.transaction")
        theirs["transaction"] = topic.until_holds(
            lambda records: any(_is_end_of(record, last["id"]) for record in records),
            connector,
            what="the last END",
        )
        topic.close()

    copying, tombstones, named = set(), 0, set()
    for name in tables:
        assert [record.key for record in ours[name]] == [record.key for record in theirs[name]], name
        for mine, record in zip(ours[name], theirs[name], strict=True):
            assert _without_run_id(mine.headers) == _without_run_id(record.headers)
            named |= record.headers.keys()
            assert (mine.value is None) == (record.value is None)  # a tombstone
            if record.value is None:
                tombstones += 1
                continue
            _compare(mine.value["payload"], record.value["payload"])
            # A member's comma is escaped in ours, else the list of members could not be read.
            assert json.dumps(mine.value["schema"]).replace("\\\\,", ",") == json.dumps(record.value["schema"])
            if mine.value["payload"]["op"] == "r":
                copying.add(record.value["payload"]["transaction"]["id"])
    _compare_boundaries(ours["transaction"], theirs["transaction"], copying, keyspace)
    assert named >= {NEW_KEY_HEADER, OLD_KEY_HEADER, CONTEXT_RUN_HEADER}
    # Row 1001 is on another shard than its key's: a split leaves it where it is, a merge takes it along to the last DELETE.
    assert tombstones == DELETES + KEY_CHANGES + (targets == ("-",))


def _compare(mine: dict, record: dict) -> None:
    is_copied = mine["op"] == "r"
    for image in ("before", "after"):
        assert _comparable(mine[image], AS_WE_WRITE_IT) == _comparable(record[image], AS_WE_WRITE_IT)
    # Debezium says of copied rows that they were created, in transactions, outside a snapshot.
    assert record["op"] == ("c" if is_copied else mine["op"])
    assert mine["transaction"] == (None if is_copied else record["transaction"])
    # Nor does it give a copied row a time: no statement of the log wrote it. Ours has the time of the copy.
    # Of others it has that of the transaction's last event, ours of the row's own.
    left_out = {"version", "ts_ms", "ts_us", "ts_ns"} | ({"snapshot"} if is_copied else set())
    if not is_copied:
        assert 0 <= record["source"]["ts_ms"] - mine["source"]["ts_ms"] <= LONGEST_TRANSACTION_MS
    assert _comparable(mine["source"], left_out) == _comparable(record["source"], left_out)
    assert list(mine) == list(record)
    assert list(mine["source"]) == list(record["source"])


def _compare_boundaries(ours: list[Record], theirs: list[Record], copying: set[str], keyspace: str) -> None:
    """BEGIN and END, but for transactions that Debezium makes of a copy, and those without captured rows."""
    told = {}  # of each END: how many events
    for record in theirs:
        payload = record.value["payload"]
        told[payload["id"]] = payload["event_count"]
    expected = [
        record
        for record in theirs
        if record.key["payload"]["id"] not in copying and told[record.key["payload"]["id"]] != 0
    ]
    assert [record.key for record in ours] == [record.key for record in expected]
    for mine, record in zip(ours, expected, strict=True):
        assert mine.value["schema"] == record.value["schema"]
        assert mine.headers == record.headers
        payload = dict(record.value["payload"])
        if payload["data_collections"] is not None:
            # Debezium puts the shard before ("-80.keyspace.table"), and has the tables in the order of a Java HashMap.
            payload["data_collections"] = sorted(
                (
                    {**each, "data_collection": each["data_collection"].partition(".")[2]}
                    for each in payload["data_collections"]
                ),
                key=lambda each: each["data_collection"],  # of the log too: there t comes before u
            )
        assert mine.value["payload"] == payload
        assert list(mine.value["payload"]) == list(payload)
    of_two_tables = [record for record in ours if len(record.value["payload"]["data_collections"] or ()) == 2]
    assert len(of_two_tables) == 2  # one on each shard


def _is_end_of(record: Record, transaction_id: str) -> bool:
    payload = record.value["payload"]
    return (payload["status"], payload["id"]) == ("END", transaction_id)


def _without_run_id(headers: dict[str, object]) -> list[tuple[str, object]]:
    """In their order, but for the two that Headwater adds; a run's id is another at each start."""
    return [
        (name, None if name == CONTEXT_RUN_HEADER else value) for name, value in headers.items() if name not in OURS
    ]


def _record(vtgate: VtgateServer, shard_servers, path: Path, targets: tuple[str, ...]) -> None:  # noqa: F811
    keyspace = vtgate.topology.keyspaces[0].name
    on_every_shard(
        vtgate.topology, keyspace, ["CREATE TABLE u (id BIGINT PRIMARY KEY, note VARCHAR(20)) DEFAULT CHARSET utf8mb4"]
    )
    execute(vtgate, "INSERT INTO u (id, note) VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')", keyspace)
    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t", "u"]) as stream:
        stream.until(count(VEventType.COPY_COMPLETED, 3))
        for statement in (
            "UPDATE t SET name = 'changed', amount = -0.05, seen = NULL WHERE id = 1",
            "UPDATE t SET kind = 'b,c', tags = 'x,z', big = 18446744073709551615, doc = '{\"a\": [1, null]}' WHERE id = 4",
            "DELETE FROM t WHERE id = 2",
            "UPDATE t SET id = 1001 WHERE id = 5",  # in place, as MySQL allows: the row stays on its shard
        ):
            execute(vtgate, statement, keyspace)
        for number, shard in enumerate(vtgate.topology.serving(keyspace)):
            _transaction(shard, 2_000 + 100 * number)
        on_every_shard(vtgate.topology, keyspace, ["ALTER TABLE t ADD COLUMN more SMALLINT UNSIGNED"])
        insert(vtgate, range(21, 31))
        servers = shard_servers(4)[2:]
        reshard(
            vtgate,
            [
                new_shard(keyspace, name, 900 + number, server.host, server.port)
                for number, (name, server) in enumerate(zip(targets, servers, strict=False))
            ],
        )
        insert(vtgate, range(31, 51))
        execute(vtgate, "DELETE FROM t WHERE id > 45", keyspace)  # several rows and tombstones of a transaction
        stream.until(
            lambda events: _shards(events) >= set(targets) and len(changes(events, "t")) >= 20 + 4 + 6 + 30 + 5
        )
        write_record(path, [VStreamResponse(events=events) for events in stream.responses])


def _transaction(shard: Shard, first: int) -> None:
    """One transaction of a shard: rows of two tables by turns, a row that comes, changes its key and goes."""
    connection = shard.primary.connect()
    try:
        connection.autocommit(False)
        with connection.cursor() as cursor:
            for statement in (
                f"INSERT INTO t (id, name) VALUES ({first}, 'within')",
                f"INSERT INTO u (id, note) VALUES ({first}, 'within'), ({first + 1}, 'stays')",
                f"UPDATE t SET id = {first + 1}, name = 'moved' WHERE id = {first}",
                f"UPDATE u SET id = {first + 2} WHERE id = {first}",
                f"DELETE FROM t WHERE id = {first + 1}",
                f"DELETE FROM u WHERE id = {first + 2}",
            ):
                cursor.execute(statement)
        connection.commit()
    finally:
        connection.close()


def _shards(events: list[VEvent]) -> set[str]:
    return {event.shard for event in events if event.type == VEventType.ROW}


def _comparable(members: dict | None, left_out: set[str]) -> dict | None:
    return None if members is None else {name: value for name, value in members.items() if name not in left_out}
