"""The stand-in's tracker of columns: a stream that lags at a DDL statement, or is ahead of the tracker, reads rows
rightly."""

import threading
from collections.abc import Iterator

import pytest

from libs.mysql.gtid import GtidSet
from libs.stand_ins.vtgate.client import StreamReader, changes, count
from libs.stand_ins.vtgate.cluster import on_every_shard
from libs.stand_ins.vtgate.fields import TableFields
from libs.stand_ins.vtgate.schema_tracker import tracked_schemas
from libs.stand_ins.vtgate.schemas import Schemas
from libs.stand_ins.vtgate.service import VtgateServer
from libs.stand_ins.vtgate.topology import Shard, Tablet
from protos.vitess.binlogdata_pb2 import ShardGtid, VEvent, VEventType
from tests.conftest import StartVtgate

TIMEOUT_S = 180.0


@pytest.fixture
def vtgate(start_vtgate: StartVtgate) -> Iterator[VtgateServer]:
    """Two shards with a table of two columns, tracked from then on."""
    server = start_vtgate()
    on_every_shard(
        server.topology, server.topology.keyspaces[0].name, ["CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)"]
    )
    with tracked_schemas(server.topology, server.schemas):
        yield server


def shard_of(vtgate: VtgateServer, name: str = "-80") -> Shard:
    return vtgate.topology.shard(vtgate.topology.keyspaces[0].name, name)


def now(shard: Shard) -> ShardGtid:
    """Where the shard stands."""
    return ShardGtid(keyspace=shard.keyspace, shard=shard.name, gtid=shard.primary.position())


def altered(vtgate: VtgateServer, shard: Shard, *statements: str) -> None:
    """Execute statements one by one, each once the tracker has seen the one before it: it notes columns as it finds them."""
    for statement in statements:
        shard.primary.execute(statement)
        assert columns_at(vtgate.schemas, shard, now(shard).gtid) is not None or "DROP TABLE" in statement


def columns_at(schemas: Schemas, shard: Shard, gtid: str, table: str = "t") -> list[str] | None:
    """Names of the columns for rows at a position, once the tracker is there; None: there is no such table."""
    position = GtidSet.parse(gtid.removeprefix("MySQL56/"))
    found: TableFields | None = schemas.at(shard.primary, shard.primary.database, table, position)
    return None if found is None else [field.name for field in found.fields]


def told_columns(events: list[VEvent]) -> list[list[str]]:
    """The columns of each FIELD event."""
    return [[column.name for column in event.field_event.fields] for event in events if event.type == VEventType.FIELD]


def test_a_stream_that_lags_reads_each_row_under_its_own_columns(vtgate: VtgateServer) -> None:
    """Columns that were added, renamed, moved and dropped since; without tracking there are the present ones alone."""
    shard = shard_of(vtgate)
    start = now(shard)
    altered(
        vtgate,
        shard,
        "INSERT INTO t VALUES (1, 10)",
        "ALTER TABLE t ADD COLUMN more VARCHAR(9) FIRST",
        "INSERT INTO t VALUES ('m', 2, 20)",
        "ALTER TABLE t RENAME COLUMN v TO w, MODIFY COLUMN more VARCHAR(9) AFTER id",
        "INSERT INTO t VALUES (3, 'n', 30)",
        "ALTER TABLE t DROP COLUMN more",
        "INSERT INTO t VALUES (4, 40)",
    )

    with StreamReader(vtgate, [start], tables=["t"]) as stream:
        events = stream.until(count(VEventType.ROW, 4))

    assert told_columns(events) == [["id", "v"], ["more", "id", "v"], ["id", "more", "w"], ["id", "w"]]
    assert [change.after for change in changes(events, "t")] == [
        (b"1", b"10"),
        (b"m", b"2", b"20"),
        (b"3", b"n", b"30"),
        (b"4", b"40"),
    ]


def test_a_stream_that_is_ahead_waits_for_the_tracker(vtgate: VtgateServer) -> None:
    """A row right after its ALTER, time and again: the stream must not take the columns from before it."""
    shard = shard_of(vtgate)

    with StreamReader(vtgate, [now(shard)], tables=["t"]) as stream:
        for number in range(1, 9):
            shard.primary.execute(f"ALTER TABLE t ADD COLUMN c{number} INT")
            shard.primary.execute(f"INSERT INTO t (id, c{number}) VALUES ({number}, {number})")
            events = stream.until(count(VEventType.ROW, number))

    assert [len(columns) for columns in told_columns(events)] == [2 + number for number in range(1, 9)]
    assert [change.after[-1] for change in changes(events, "t")] == [str(number).encode() for number in range(1, 9)]


def test_asking_for_a_position_waits_until_it_is_reached() -> None:
    """And not only for some notification: one of an earlier place wakes nobody up."""
    schemas, tablet = Schemas(), Tablet(uid=1, host="h", port=1, database="d")
    narrow, wide = (TableFields("t", (), (name,), True) for name in ("narrow", "wide"))
    schemas._tracked["h", 1] = [(GtidSet.parse(_gtids(1)), {"t": narrow})]
    schemas.reached(tablet, GtidSet.parse(_gtids(1)))
    answers: list[TableFields | None] = []
    asks = threading.Thread(target=lambda: answers.append(schemas.at(tablet, "d", "t", GtidSet.parse(_gtids(3)))))

    asks.start()
    schemas.reached(tablet, GtidSet.parse(_gtids(2)))
    asks.join(0.2)
    assert asks.is_alive()
    schemas._tracked["h", 1].append((GtidSet.parse(_gtids(3)), {"t": wide}))
    schemas.reached(tablet, GtidSet.parse(_gtids(3)))
    asks.join(TIMEOUT_S)

    assert answers == [wide]


def test_rows_of_a_table_that_is_gone_are_read(vtgate: VtgateServer) -> None:
    """Before its DROP it had columns; after it there is none, and one made again is another."""
    shard = shard_of(vtgate)
    start = now(shard)
    altered(
        vtgate,
        shard,
        "INSERT INTO t VALUES (1, 10)",
        "DROP TABLE t",
        "CREATE TABLE t (k VARCHAR(9) PRIMARY KEY)",
        "INSERT INTO t VALUES ('a')",
    )

    with StreamReader(vtgate, [start], tables=["t"]) as stream:
        events = stream.until(count(VEventType.ROW, 2))

    assert told_columns(events) == [["id", "v"], ["k"]]


def test_shards_are_tracked_each_by_itself(vtgate: VtgateServer) -> None:
    """One that is altered later keeps its columns until then."""
    first, second = shard_of(vtgate, "-80"), shard_of(vtgate, "80-")
    starts = [now(first), now(second)]

    altered(vtgate, first, "ALTER TABLE t ADD COLUMN more INT", "INSERT INTO t VALUES (1, 1, 1)")
    altered(vtgate, second, "INSERT INTO t VALUES (2, 2)", "ALTER TABLE t ADD COLUMN more INT")
    with StreamReader(vtgate, starts, tables=["t"]) as stream:
        events = stream.until(count(VEventType.ROW, 2))

    told = {event.shard: told_columns([event])[0] for event in events if event.type == VEventType.FIELD}
    assert told == {"-80": ["id", "v", "more"], "80-": ["id", "v"]}


def test_a_lost_connection_loses_no_statement(vtgate: VtgateServer) -> None:
    """The tracker reads on from where it was, statements of meanwhile included."""
    shard = shard_of(vtgate)
    start = now(shard)
    altered(vtgate, shard, "INSERT INTO t VALUES (1, 10)")

    killed = _kill_log_readers(shard)
    altered(vtgate, shard, "ALTER TABLE t ADD COLUMN more INT", "INSERT INTO t VALUES (2, 20, 200)")
    altered(vtgate, shard, "ALTER TABLE t DROP COLUMN more", "INSERT INTO t VALUES (3, 30)")
    with StreamReader(vtgate, [start], tables=["t"]) as stream:
        events = stream.until(count(VEventType.ROW, 3))

    assert killed >= 1
    assert [len(columns) for columns in told_columns(events)] == [2, 3, 2]


def test_other_databases_of_the_server_are_passed_over(vtgate: VtgateServer) -> None:
    """A shard is one of several on a server: changes beside it move the tracker on and alter nothing."""
    shard = shard_of(vtgate)
    before = columns_at(vtgate.schemas, shard, now(shard).gtid)
    beside = f"{shard.primary.database}_beside"

    shard.primary.execute(f"CREATE DATABASE `{beside}`")
    try:
        shard.primary.execute(f"CREATE TABLE `{beside}`.t (other INT)")
        assert columns_at(vtgate.schemas, shard, now(shard).gtid) == before == ["id", "v"]
    finally:
        shard.primary.execute(f"DROP DATABASE `{beside}`")


def test_the_tracker_ends_with_its_block(start_vtgate: StartVtgate) -> None:
    """No thread stays, and nobody waits for it any more."""
    server = start_vtgate()
    with tracked_schemas(server.topology, server.schemas):
        names = {thread.name for thread in threading.enumerate()}
        assert {f"schemas of {shard.name}" for shard in server.topology.shards()} <= names

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("schemas of ")]


def _kill_log_readers(shard: Shard) -> int:
    """End every connection that reads this server's log."""
    readers = shard.primary.execute("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
    for (reader,) in readers:
        shard.primary.execute(f"KILL {int(str(reader))}")
    return len(readers)


def _gtids(last: int) -> str:
    return f"00000000-0000-0000-0000-000000000001:1-{last}"
