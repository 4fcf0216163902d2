"""The stand-in copies and streams in Vitess's order: scenarios of tests/golden/cases/h_vitess_vstream.json, by their ids."""

from protos.vitess.binlogdata_pb2 import ShardGtid, VEventType
from tests.conftest import StartVtgate
from tests.vtgate.client import StreamReader, changes, count, execute, kinds
from tests.vtgate.cluster import on_every_shard
from tests.vtgate.service import VtgateServer

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, val BIGINT)"
COPY = [
    "BEGIN",
    "FIELD",
    "VGTID",
    "ROW",
    "ROW",
    "ROW",
    "ROW",
    "VGTID",
    "COMMIT",
    "BEGIN",
    "VGTID",
    "COMMIT",
    "COPY_COMPLETED",
]


def test_copy_one_keyspace_all_shards(start_vtgate: StartVtgate) -> None:
    """Each shard's copy in order, its rows along the key; one COPY_COMPLETED more when all are done. 27 events."""
    vtgate = start_vtgate()
    keyspace = _with_rows(vtgate, ids=range(1, 9))

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t"]) as stream:
        events = stream.until(count(VEventType.COPY_COMPLETED, 3))

    assert [kinds(event for event in events if event.shard == shard) for shard in ("-80", "80-")] == [COPY, COPY]
    assert [(event.keyspace, event.shard) for event in events][-1] == ("", "")
    assert len(events) == 27
    assert [change.after for change in changes(events, "t") if change.shard == "-80"] == [
        (b"1", b"1"),
        (b"2", b"2"),
        (b"3", b"3"),
        (b"5", b"5"),
    ]


def test_stream_after_the_copy(start_vtgate: StartVtgate) -> None:
    """Writes to the real shards come as transactions of their own: BEGIN, FIELD before the first row, ROW, VGTID, COMMIT."""
    vtgate = start_vtgate()
    keyspace = _with_rows(vtgate, ids=range(1, 9))

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t"]) as stream:
        copied = len(stream.until(count(VEventType.COPY_COMPLETED, 3)))
        execute(vtgate, "INSERT INTO t (id, val) VALUES (11, 1), (12, 2)", keyspace)  # both hash to -80
        execute(vtgate, "UPDATE t SET val = 5 WHERE id = 11", keyspace)
        execute(vtgate, "DELETE FROM t WHERE id = 12", keyspace)
        events = stream.until(count(VEventType.COMMIT, 4 + 3))[copied:]

    assert kinds(events) == ["BEGIN", "FIELD", "ROW", "VGTID", "COMMIT"] + 2 * ["BEGIN", "ROW", "VGTID", "COMMIT"]
    assert [(change.before, change.after) for change in changes(events, "t")] == [
        (None, (b"11", b"1")),
        (None, (b"12", b"2")),
        ((b"11", b"1"), (b"11", b"5")),
        ((b"12", b"2"), None),
    ]
    assert {shard.shard for shard in events[-2].vgtid.shard_gtids} == {"-80", "80-"}


def _with_rows(vtgate: VtgateServer, ids: range) -> str:
    """The keyspace, with a table of (id, id)."""
    keyspace = vtgate.topology.keyspaces[0].name
    on_every_shard(vtgate.topology, keyspace, [TABLE])
    execute(vtgate, "INSERT INTO t (id, val) VALUES " + ", ".join(f"({n}, {n})" for n in ids), keyspace)
    return keyspace
