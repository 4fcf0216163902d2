"""The same recorded stream read by Debezium's Vitess connector and by vstream_reader's decoder: event by event the same.

The stand-in serves real shards through a copy, changes, a key change, an ALTER and a split; what it sent is recorded, and
replayed to both. What may differ is listed here as in docs/vitess-differences.md; anything else fails.
"""

import json
from pathlib import Path

import pytest

from bench.debezium_vitess import debezium_vitess
from libs.events.connect_schema import EnvelopeForm, key_schema, value_schema
from libs.events.source_types import source_type_parameters
from libs.source.vitess.settings import EventSettings, TransactionMetadata
from protos.vitess.binlogdata_pb2 import ShardGtid, VEvent, VEventType
from protos.vitess.vtgate_pb2 import VStreamResponse
from tests.differential.test_debezium_on_the_stand_in import ORDERED, Topic, insert, vtgate  # noqa: F401
from tests.unit.vstream_reader.stream import replay, start_of
from tests.vtgate.client import StreamReader, changes, count, execute
from tests.vtgate.cluster import new_shard, on_every_shard
from tests.vtgate.replay import ReplayServer, read_record, write_record
from tests.vtgate.reshard import reshard
from tests.vtgate.service import VtgateServer

pytestmark = pytest.mark.differential

COPIED = 20
AS_WE_WRITE_IT = {"doc"}  # JSON without the spaces that MySQL prints, so that copy and stream give one form


def test_the_same_events(
    vtgate: VtgateServer,  # noqa: F811
    shard_servers,
    bootstrap_servers: str,
    tmp_path: Path,
) -> None:
    """Keys, images, operations, source and transaction blocks, their order and their schemas."""
    keyspace = vtgate.topology.keyspaces[0].name
    prefix = f"s_{keyspace}"
    _record(vtgate, shard_servers, tmp_path / "record")
    replayed = replay(
        start_of("-80", "80-", keyspace=keyspace),
        source=prefix,
        keyspace=keyspace,
        events=EventSettings(transaction_metadata=TransactionMetadata.ORDERED),
        is_copying=True,
    ).feed(*read_record(tmp_path / "record"))
    ours = [
        (json.loads(key), json.loads(value))
        for run in replayed.runs()
        for key, value in zip(run.keys, run.values, strict=True)
    ]
    options = {
        "poll.interval.ms": 20,
        "provide.transaction.metadata": "true",
        "transaction.metadata.factory": ORDERED,
        "vitess.inherit.epoch": "true",  # without it a new shard begins at epoch 0, below its rows' older events
        "table.include.list": f"{keyspace}.t",
        "tombstones.on.delete": "false",
        "column.propagate.source.type": ".*",
    }
    server = ReplayServer(tmp_path / "record").start()
    peer = debezium_vitess(
        tmp_path / "connect",
        bootstrap_servers,
        vtgate_port=server.port,
        keyspace=keyspace,
        topic_prefix=prefix,
        options=options,
        with_schemas=True,
    )
    try:
        with peer as connector:
            topic = Topic(bootstrap_servers, f"{prefix}.{keyspace}.t")
            theirs = topic.until(len(ours), connector)
            topic.close()
    finally:
        server.stop()

    assert [key for key, _ in ours] == [record.key["payload"] for record in theirs]
    for nth, ((_, value), record) in enumerate(zip(ours, theirs, strict=True)):
        payload, is_copied = record.value["payload"], nth < COPIED
        for image in ("before", "after"):
            assert _comparable(value[image], AS_WE_WRITE_IT) == _comparable(payload[image], AS_WE_WRITE_IT)
        # Debezium says of copied rows that they were created, in transactions, outside a snapshot.
        assert value["op"] == ("r" if is_copied else payload["op"])
        assert value["transaction"] == (None if is_copied else payload["transaction"]), nth
        # Nor does it give a copied row a time: no statement of the log wrote it. Ours has the time of the copy.
        left_out = {"version", "snapshot", "ts_ms", "ts_us", "ts_ns"} if is_copied else {"version"}
        assert _comparable(value["source"], left_out) == _comparable(payload["source"], left_out)
        assert list(value) == list(payload)
        assert list(value["source"]) == list(payload["source"])
    form = EnvelopeForm("vitess", has_ordered_transactions=True)
    for schema, record in ((replayed.schemas[0], theirs[0]), (replayed.schemas[-1], theirs[-1])):
        assert key_schema(prefix, schema) == record.key["schema"]
        # A member's comma is escaped in ours, else the list of members could not be read.
        source_types = {column.name: source_type_parameters(column, form.connector) for column in schema.columns}
        of_values = json.dumps(value_schema(prefix, schema, form, source_types=source_types))
        assert of_values.replace("\\\\,", ",") == json.dumps(record.value["schema"])


def _record(vtgate: VtgateServer, shard_servers, path: Path) -> None:  # noqa: F811
    keyspace = vtgate.topology.keyspaces[0].name
    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t"]) as stream:
        stream.until(count(VEventType.COPY_COMPLETED, 3))
        for statement in (
            "UPDATE t SET name = 'changed', amount = -0.05, seen = NULL WHERE id = 1",
            "UPDATE t SET kind = 'b,c', tags = 'x,z', big = 18446744073709551615, doc = '{\"a\": [1, null]}' WHERE id = 4",
            "DELETE FROM t WHERE id = 2",
            "UPDATE t SET id = 1001 WHERE id = 5",  # in place, as MySQL allows: the row stays on its shard
        ):
            execute(vtgate, statement, keyspace)
        on_every_shard(vtgate.topology, keyspace, ["ALTER TABLE t ADD COLUMN more SMALLINT UNSIGNED"])
        insert(vtgate, range(21, 31))
        servers = shard_servers(4)[2:]
        reshard(
            vtgate,
            [
                new_shard(keyspace, name, 900 + number, server.host, server.port)
                for number, (name, server) in enumerate(zip(("-40", "40-80"), servers, strict=True))
            ],
        )
        insert(vtgate, range(31, 51))
        stream.until(lambda events: _shards(events) >= {"-40", "40-80"} and len(changes(events, "t")) >= 20 + 4 + 30)
        write_record(path, [VStreamResponse(events=events) for events in stream.responses])


def _shards(events: list[VEvent]) -> set[str]:
    return {event.shard for event in events if event.type == VEventType.ROW}


def _comparable(members: dict | None, left_out: set[str]) -> dict | None:
    return None if members is None else {name: value for name, value in members.items() if name not in left_out}
