"""Reshards under the stand-in's streams: scenarios of tests/golden/cases/h_vitess_vstream.json, named by their ids."""

import pytest

from libs.stand_ins.vtgate.client import StreamReader, changes, count, execute, kinds, last_vgtid
from libs.stand_ins.vtgate.cluster import new_shard, on_every_shard
from libs.stand_ins.vtgate.reshard import reshard
from libs.stand_ins.vtgate.service import VtgateServer
from libs.stand_ins.vtgate.topology import Shard
from protos.vitess.binlogdata_pb2 import MigrationType, ShardGtid, VEvent, VEventType
from protos.vitess.vtgate_pb2 import VStreamFlags
from tests.conftest import MysqlServer, StartVtgate

OLD, NEW = ("-80", "80-"), ("-40", "40-")


@pytest.fixture
def vtgate(start_vtgate: StartVtgate) -> VtgateServer:
    """Two shards with ten rows in ``t``."""
    server = start_vtgate()
    keyspace = server.topology.keyspaces[0].name
    on_every_shard(server.topology, keyspace, ["CREATE TABLE t (id BIGINT PRIMARY KEY, val BIGINT)"])
    _insert(server, range(1, 11))
    return server


def test_reshard_stop_on_reshard_false(vtgate: VtgateServer, shard_servers) -> None:
    """The stream goes on with the new shards by itself: no journal is seen, no row is lost, none comes twice."""
    with StreamReader(vtgate, [_start(vtgate, "current")], tables=["t"]) as stream:
        stream.until(count(VEventType.OTHER, 2))
        _insert(vtgate, range(11, 31))
        reshard(vtgate, _targets(vtgate, shard_servers(2)))
        _insert(vtgate, range(31, 61))
        events = stream.until(lambda events: len(changes(events, "t")) >= 50)

    assert VEventType.JOURNAL not in {event.type for event in events}
    assert sorted(int(change.after[0]) for change in changes(events, "t")) == list(range(11, 61))
    assert {change.shard for change in changes(events, "t")[:20]} == set(OLD)
    assert {change.shard for change in changes(events, "t")[20:]} == set(NEW)
    assert {shard.shard for shard in last_vgtid(events).shard_gtids} == set(NEW)


def test_reshard_stop_on_reshard_true(vtgate: VtgateServer, shard_servers) -> None:
    """Each old shard sends its journal, then the stream ends without an error and without a row of the new shards."""
    flags = VStreamFlags(stop_on_reshard=True)
    with StreamReader(vtgate, [_start(vtgate, "current")], tables=["t"], flags=flags) as stream:
        stream.until(count(VEventType.OTHER, 2))
        _insert(vtgate, range(11, 31))
        reshard(vtgate, _targets(vtgate, shard_servers(2)))
        _insert(vtgate, range(31, 41))
        events = stream.until_over()

    assert stream.error is None
    assert sorted(int(change.after[0]) for change in changes(events, "t")) == list(range(11, 31))
    _expect_journals(stream.responses)


def test_resume_after_reshard_from_old_vgtid(vtgate: VtgateServer, shard_servers) -> None:
    """A position of the old shards, from before: the old ones to their journals, then the new ones."""
    start = _old_position(vtgate)
    _insert(vtgate, range(11, 31))
    reshard(vtgate, _targets(vtgate, shard_servers(2)))
    _insert(vtgate, range(31, 61))

    with StreamReader(vtgate, start, tables=["t"], flags=VStreamFlags(include_reshard_journal_events=True)) as stream:
        events = stream.until(lambda events: len(changes(events, "t")) >= 50)

    journals = [event.journal for event in events if event.type == VEventType.JOURNAL]
    assert [journal.migration_type for journal in journals] == 2 * [MigrationType.SHARDS]
    assert sorted(int(change.after[0]) for change in changes(events, "t")) == list(range(11, 61))
    shards = [change.shard for change in changes(events, "t")]
    assert set(shards[:20]) == set(OLD) and set(shards[20:]) == set(NEW)


def test_resume_after_reshard_stop_on_reshard(vtgate: VtgateServer, shard_servers) -> None:
    """Twice from the same position: the same both times."""
    start = _old_position(vtgate)
    _insert(vtgate, range(11, 31))
    reshard(vtgate, _targets(vtgate, shard_servers(2)))
    _insert(vtgate, range(31, 41))

    for _ in range(2):
        with StreamReader(vtgate, start, tables=["t"], flags=VStreamFlags(stop_on_reshard=True)) as stream:
            events = stream.until_over()
        assert stream.error is None
        assert len(changes(events, "t")) == 20
        _expect_journals(stream.responses)


def test_a_merge(vtgate: VtgateServer, shard_servers) -> None:
    """Two shards become one; a stream that has one of them alone is refused, because it cannot know the rows that are lost."""
    keyspace = vtgate.topology.keyspaces[0].name
    with (
        StreamReader(vtgate, [_start(vtgate, "current")], tables=["t"]) as stream,
        StreamReader(vtgate, [ShardGtid(keyspace=keyspace, shard="-80", gtid="current")]) as half,
    ):
        stream.until(count(VEventType.OTHER, 2))
        half.until(count(VEventType.OTHER, 1))
        reshard(vtgate, [new_shard(keyspace, "-", 950, shard_servers(2)[0].host, shard_servers(2)[0].port)])
        _insert(vtgate, range(11, 21))
        events = stream.until(lambda events: len(changes(events, "t")) >= 10)
        half.until_over()

    assert {change.shard for change in changes(events, "t")} == {"-"}
    assert len(execute(vtgate, "SELECT * FROM t", keyspace).rows) == 20
    assert "not all journaling participants are in the stream" in half.error.details()


def test_reshard_while_copying_many_keyspaces(start_vtgate: StartVtgate, shard_servers, unique_name) -> None:
    """Of two keyspaces one is cut again; the other's stream does not notice."""
    first, second = sorted((unique_name("both"), unique_name("both")))
    vtgate = start_vtgate(first, second)
    for keyspace in (first, second):
        on_every_shard(vtgate.topology, keyspace, ["CREATE TABLE t (id BIGINT PRIMARY KEY, val BIGINT)"])
        _insert(vtgate, range(1, 11), keyspace)

    with StreamReader(vtgate, [ShardGtid(keyspace="/both_.*")], tables=["t"]) as stream:
        stream.until(count(VEventType.COPY_COMPLETED, 5))
        reshard(vtgate, _targets(vtgate, shard_servers(2)))
        for keyspace in (first, second):
            _insert(vtgate, range(11, 41), keyspace)
        events = stream.until(lambda events: len(changes(events, "t")) >= 80)

    rows = [(event.keyspace, event.shard) for event in events if event.type == VEventType.ROW]
    assert VEventType.JOURNAL not in {event.type for event in events}
    assert {shard for keyspace, shard in rows if keyspace == first} == {*OLD, *NEW}
    assert {shard for keyspace, shard in rows if keyspace == second} == set(OLD)
    assert len(changes(events, "t")) == 80


def _expect_journals(responses: list[list[VEvent]]) -> None:
    """One of each old shard, alone in its response: BEGIN, JOURNAL, VGTID, COMMIT."""
    found = [response for response in responses if VEventType.JOURNAL in {event.type for event in response}]
    assert [kinds(response) for response in found] == 2 * [["BEGIN", "JOURNAL", "VGTID", "COMMIT"]]
    assert {response[1].shard for response in found} == set(OLD)
    assert {shard.shard for shard in found[0][1].journal.shard_gtids} == set(NEW)
    assert all(shard.gtid for shard in found[0][1].journal.shard_gtids)


def _start(vtgate: VtgateServer, gtid: str) -> ShardGtid:
    return ShardGtid(keyspace=vtgate.topology.keyspaces[0].name, gtid=gtid)


def _old_position(vtgate: VtgateServer) -> list[ShardGtid]:
    keyspace = vtgate.topology.keyspaces[0].name
    return [
        ShardGtid(keyspace=keyspace, shard=shard.name, gtid=shard.primary.position())
        for shard in vtgate.topology.serving(keyspace)
    ]


def _targets(vtgate: VtgateServer, servers: list[MysqlServer]) -> list[Shard]:
    """On the same servers, the other way round."""
    keyspace = vtgate.topology.keyspaces[0].name
    return [
        new_shard(keyspace, name, 900 + number, server.host, server.port)
        for number, (name, server) in enumerate(zip(NEW, reversed(servers), strict=True))
    ]


def _insert(vtgate: VtgateServer, ids: range, keyspace: str = "") -> None:
    values = ", ".join(f"({number}, {number})" for number in ids)
    execute(vtgate, f"INSERT INTO t (id, val) VALUES {values}", keyspace or vtgate.topology.keyspaces[0].name)
