"""The stand-in streams as Vitess does: scenarios of tests/golden/cases/h_vitess_vstream.json, named by their ids, and more."""

import threading
import time

import grpc
import pytest

from libs.stand_ins.vtgate.client import StreamReader, changes, count, execute, kinds
from libs.stand_ins.vtgate.cluster import heartbeats, new_shard, on_every_shard, prepare
from libs.stand_ins.vtgate.log_stream import TabletOptions
from libs.stand_ins.vtgate.reshard import reparent, replicate, wait_for_position
from libs.stand_ins.vtgate.service import VtgateServer
from libs.stand_ins.vtgate.topology import Keyspace, Shard, Tablet, Topology
from libs.stand_ins.vtgate.vstream import ServerOptions
from protos.vitess.binlogdata_pb2 import Filter, Rule, ShardGtid, VEventType
from protos.vitess.topodata_pb2 import TabletType
from protos.vitess.vtgate_pb2 import VStreamFlags
from tests.conftest import MysqlServer, StartMysql, StartVtgate

ONE_TRANSACTION = ["BEGIN", "FIELD", "ROW", "VGTID", "COMMIT"]
EVERY_TYPE = """CREATE TABLE t (id BIGINT PRIMARY KEY, ti TINYINT, tu TINYINT UNSIGNED, bu BIGINT UNSIGNED, mi MEDIUMINT,
    de DECIMAL(12,2), f FLOAT, d DOUBLE, b BIT(12), ch CHAR(5), vb VARBINARY(9), bi BINARY(4), tx TEXT, la VARCHAR(9) CHARACTER
    SET latin1, da DATE, tm TIME(3), dt DATETIME(6), ts TIMESTAMP(2) NULL, y YEAR, en ENUM('a','b,c'), st SET('x','y','z'),
    js JSON, ge POINT, ve VECTOR(2))"""
EVERY_VALUE = """(1, -3, 250, 18446744073709551615, -8388608, -12.50, 1.5, -2.25e-10, b'101010101010', 'ab', x'0100ff', x'01',
    'żółw', 'ä', '2024-02-29', '-10:20:30.456', '2024-02-29 23:59:59.123456', '2024-01-01 00:00:00.25', 2024, 'b,c', 'x,z',
    '{"b": [1, "x:,y"], "a": 2.5}', ST_GeomFromText('POINT(1 2)'), STRING_TO_VECTOR('[1,2]'))"""


def test_stream_from_position(start_vtgate: StartVtgate) -> None:
    """One shard from an explicit position: its own row as one transaction, in one response."""
    vtgate = start_vtgate()
    keyspace = _with_table(vtgate)
    shard = vtgate.topology.shard(keyspace, "-80")
    start = [ShardGtid(keyspace=keyspace, shard="-80", gtid=shard.primary.position())]
    execute(vtgate, "INSERT INTO t (id, val) VALUES (1, 1), (4, 4)", keyspace)

    with StreamReader(vtgate, start, tables=["t"]) as stream:
        events = stream.until(count(VEventType.COMMIT, 1))

    assert kinds(stream.responses[0]) == ONE_TRANSACTION
    field, row = events[1].field_event, events[2].row_event
    assert (field.table_name, field.keyspace, field.shard) == (f"{keyspace}.t", keyspace, "-80")
    assert (list(row.row_changes[0].after.lengths), row.row_changes[0].after.values) == ([1, 1], b"11")
    assert row.flags & 1  # MySQL 9 sets a flag more
    assert events[0].timestamp > 0 and events[0].current_time > 0


def test_current(start_vtgate: StartVtgate) -> None:
    """Each shard first sends its position: VGTID and OTHER."""
    vtgate = start_vtgate()
    keyspace = _with_table(vtgate)
    execute(vtgate, "INSERT INTO t (id, val) VALUES (1, 1)", keyspace)

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace, gtid="current")], tables=["t"]) as stream:
        stream.until(count(VEventType.OTHER, 2))
        execute(vtgate, "INSERT INTO t (id, val) VALUES (2, 2)", keyspace)
        events = stream.until(count(VEventType.ROW, 1))

    assert kinds(events)[:4] == ["VGTID", "OTHER", "VGTID", "OTHER"]
    assert [change.after for change in changes(events, "t")] == [(b"2", b"2")]


def test_an_empty_keyspace_is_every_keyspace(start_vtgate: StartVtgate, unique_name) -> None:
    """Allowed with "current" alone."""
    vtgate = start_vtgate(unique_name("ks"), unique_name("ks"))

    with StreamReader(vtgate, [ShardGtid(gtid="current")]) as stream:
        events = stream.until(count(VEventType.OTHER, 4))
    assert len({(shard.keyspace, shard.shard) for shard in events[-2].vgtid.shard_gtids}) == 4
    with StreamReader(vtgate, [ShardGtid(gtid="MySQL56/x")]) as refused:
        refused.until_over()
    assert refused.error.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_every_type_as_text(start_vtgate: StartVtgate) -> None:
    """Copied and streamed, a row is the same but for FLOAT and DOUBLE, which Vitess's log reader writes with exponents."""
    vtgate = start_vtgate()
    keyspace = vtgate.topology.keyspaces[0].name
    on_every_shard(vtgate.topology, keyspace, [EVERY_TYPE])
    primary = vtgate.topology.shard_of(keyspace, 1).primary

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace, gtid="current")], tables=["t"]) as stream:
        stream.until(count(VEventType.OTHER, 2))
        primary.execute(f"INSERT INTO t VALUES {EVERY_VALUE}")
        streamed = stream.until(count(VEventType.ROW, 1))
    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t"]) as stream:
        copied = stream.until(count(VEventType.COPY_COMPLETED, 3))

    (from_log,), (from_copy,) = changes(streamed, "t"), changes(copied, "t")
    described = {
        event.type: event.field_event.fields for events in (copied, streamed) for event in events if event.type == 13
    }[13]
    names = [field.name for field in described]
    differing = [name for name, log, copy in zip(names, from_log.after, from_copy.after, strict=True) if log != copy]
    row = dict(zip(names, from_log.after, strict=True))
    assert differing == ["f", "d"]
    assert (row["f"], row["d"]) == (b"1.5E+00", b"-2.25E-10")
    assert row["la"] == "ä".encode("latin1")
    assert row["bi"] == b"\x01\0\0\0"
    assert row["tm"] == b"-10:20:30.456"
    assert row["en"] == b"b,c" and row["st"] == b"x,z"
    assert row["js"] == b'{"a": 2.5, "b": [1, "x:,y"]}'
    assert [field.charset for field in described if field.name in ("la", "tx", "bi")] == [63, 255, 8]


def test_enum_as_its_number(start_vtgate: StartVtgate) -> None:
    """Before Vitess 22 ENUM and SET come as numbers while streaming, and FIELD says so."""
    vtgate = start_vtgate(options=ServerOptions(tablet=TabletOptions(enum_as_text=False)))
    keyspace = vtgate.topology.keyspaces[0].name
    on_every_shard(
        vtgate.topology, keyspace, ["CREATE TABLE t (id BIGINT PRIMARY KEY, e ENUM('a','b'), s SET('x','y','z'))"]
    )

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace, gtid="current")], tables=["t"]) as stream:
        stream.until(count(VEventType.OTHER, 2))
        execute(vtgate, "INSERT INTO t (id, e, s) VALUES (1, 'b', 'x,z')", keyspace)
        events = stream.until(count(VEventType.ROW, 1))

    assert [change.after for change in changes(events, "t")] == [(b"1", b"2", b"5")]
    assert not next(event.field_event.enum_set_string_values for event in events if event.type == VEventType.FIELD)


def test_ddl_and_other(start_vtgate: StartVtgate) -> None:
    """A streamed table's DDL comes with its statement, any other as OTHER; then the new columns."""
    vtgate = start_vtgate()
    keyspace = _with_table(vtgate)
    primary = vtgate.topology.shard(keyspace, "-80").primary

    with StreamReader(vtgate, [_current(keyspace)], tables=["t"]) as stream:
        stream.until(count(VEventType.OTHER, 1))
        primary.execute("INSERT INTO t VALUES (1, 1)")
        primary.execute("ALTER TABLE t ADD COLUMN more INT")
        primary.execute("CREATE TABLE unseen (id BIGINT PRIMARY KEY)")
        primary.execute("INSERT INTO unseen VALUES (1)")
        primary.execute("INSERT INTO t VALUES (2, 2, 2)")
        events = stream.until(lambda events: len(changes(events, "t")) == 2)

    behind_the_first = kinds(events)[2 + len(ONE_TRANSACTION) :]
    assert behind_the_first[:7] == ["VGTID", "DDL", "VGTID", "OTHER", "BEGIN", "VGTID", "COMMIT"]
    assert behind_the_first[7:10] == ["BEGIN", "FIELD", "ROW"]
    assert [event.statement for event in events if event.type == VEventType.DDL] == [
        "ALTER TABLE t ADD COLUMN more INT"
    ]
    assert changes(events, "t")[-1].after == (b"2", b"2", b"2")


def test_transaction_chunk_size(start_vtgate: StartVtgate) -> None:
    """A large transaction comes in several responses: BEGIN in the first, COMMIT in the last, no row lost, none between."""
    vtgate = start_vtgate(options=ServerOptions(tablet=TabletOptions(packet_bytes=200), chunk_events=5))
    keyspace = _with_table(vtgate)
    primary = vtgate.topology.shard(keyspace, "-80").primary

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace, gtid="current")], tables=["t"]) as stream:
        stream.until(count(VEventType.OTHER, 2))
        connection = primary.connect()
        connection.begin()
        with connection.cursor() as cursor:
            for first in range(0, 3000, 100):
                cursor.execute("INSERT INTO t VALUES " + ", ".join(f"({n}, {n})" for n in range(first, first + 100)))
            execute(vtgate, "INSERT INTO t (id, val) VALUES (4, 4)", keyspace)
        connection.commit()
        connection.close()
        stream.until(lambda events: len(changes(events, "t")) == 3001)

    large = [response for response in stream.responses if any(event.shard == "-80" for event in response)][1:]
    assert len(large) > 3
    assert large[0][0].type == VEventType.BEGIN and large[-1][-1].type == VEventType.COMMIT
    assert sum(event.type in (VEventType.BEGIN, VEventType.COMMIT) for response in large for event in response) == 2
    assert all(event.shard == "-80" for response in large for event in response)
    assert max(map(len, large)) <= 5


@pytest.mark.parametrize("is_tracked", [True, False], ids=["with --track-schema-versions", "without"])
def test_lagging_ddl_needs_schema_tracking(start_vtgate: StartVtgate, is_tracked: bool) -> None:
    """Rows of a layout that is gone: with tracking under their own columns, without under made-up ones or not at all."""
    vtgate = start_vtgate()
    keyspace = _with_table(vtgate)
    shard = vtgate.topology.shard(keyspace, "-80")
    start = [ShardGtid(keyspace=keyspace, shard="-80", gtid=shard.primary.position())]
    for statement in (
        "ALTER TABLE t ADD COLUMN more INT, ADD COLUMN e ENUM('a','b') COLLATE utf8mb4_bin",
        "INSERT INTO t VALUES (1, 1, 1, 'b')",
        "ALTER TABLE t DROP COLUMN more, DROP COLUMN e",
    ):
        if is_tracked:
            vtgate.schemas.track(shard)
        shard.primary.execute(statement)

    if is_tracked:
        with StreamReader(vtgate, start, tables=["t"]) as stream:
            events = stream.until(count(VEventType.ROW, 1))
        (field,) = [event.field_event for event in events if event.type == VEventType.FIELD]
        assert [column.name for column in field.fields] == ["id", "val", "more", "e"]
        assert changes(events, "t")[0].after == (b"1", b"1", b"1", b"b")
        return
    with StreamReader(vtgate, start, tables=["t"], filter_mode=Filter.BEST_EFFORT) as stream:
        events = stream.until(count(VEventType.ROW, 1))
    (field,) = [event.field_event for event in events if event.type == VEventType.FIELD]
    assert [column.name for column in field.fields] == ["@1", "@2", "@3", "@4"]
    with StreamReader(vtgate, start, tables=["t"], filter_mode=Filter.ERR_ON_MISMATCH) as stream:
        stream.until_over()
    assert "cannot determine table columns for t" in stream.error.details()


def test_failover_planned_reparent(start_mysql: StartMysql) -> None:
    """Two planned reparents while rows are written: the same stream goes on, no row is lost, none comes twice."""
    first, second = start_mysql(server_id=1), start_mysql(server_id=2)
    primary, replica = _tablet(first, 1), _tablet(second, 2, TabletType.REPLICA)
    prepare(primary)
    replicate(replica, primary)
    topology = Topology([Keyspace("ks")], [Shard("ks", "0", (primary, replica))])
    vtgate = VtgateServer(topology).start()
    try:
        on_every_shard(topology, "ks", ["CREATE TABLE t (id BIGINT PRIMARY KEY, val BIGINT)"])
        wait_for_position(replica, primary.position(), timeout_s=30)
        with StreamReader(vtgate, [_current("ks", "0")], tables=["t"]) as stream:
            stream.until(count(VEventType.OTHER, 1))
            for number in range(60):
                execute(vtgate, f"INSERT INTO t (id, val) VALUES ({number}, 1)", "ks")
                if number in (20, 40):
                    shard = topology.shard("ks", "0")
                    reparent(vtgate, shard, shard.tablet(TabletType.REPLICA))
            events = stream.until(lambda events: len(changes(events, "t")) >= 60)

        assert [int(change.after[0]) for change in changes(events, "t")] == list(range(60))
        hosts = events[-1 if events[-1].type == VEventType.VGTID else -2].vgtid.shard_gtids[0].gtid.split(",")
        assert len(hosts) == 2  # both servers have numbered transactions
        with StreamReader(vtgate, [_current("ks", "0")], tables=["t"], tablet_type=TabletType.REPLICA) as stream:
            stream.until(count(VEventType.OTHER, 1))
            execute(vtgate, "INSERT INTO t (id, val) VALUES (100, 1)", "ks")
            assert len(changes(stream.until(count(VEventType.ROW, 1)), "t")) == 1
    finally:
        vtgate.stop()


def test_no_tablet_of_the_type_or_the_cell(start_vtgate: StartVtgate) -> None:
    """A clear refusal instead of another tablet's stream."""
    vtgate = start_vtgate()
    keyspace = _with_table(vtgate)

    for options in ({"tablet_type": TabletType.RDONLY}, {"flags": VStreamFlags(cells="zone9")}):
        with StreamReader(vtgate, [_current(keyspace)], **options) as stream:
            stream.until_over()
        assert stream.error.code() is grpc.StatusCode.UNAVAILABLE
        assert "no healthy tablet available" in stream.error.details()


@pytest.mark.parametrize("is_wanted", [True, False], ids=["on", "off"])
def test_keyspace_heartbeat_tables(start_vtgate: StartVtgate, is_wanted: bool) -> None:
    """The heartbeat table's rows come when they are asked for; otherwise their transactions are empty."""
    vtgate = start_vtgate()
    keyspace = _with_table(vtgate)
    flags = VStreamFlags(stream_keyspace_heartbeats=is_wanted)

    with (
        heartbeats(vtgate.topology),
        StreamReader(vtgate, [_current(keyspace)], tables=["t"], flags=flags) as stream,
    ):
        stream.until(count(VEventType.OTHER, 1))
        execute(vtgate, "INSERT INTO t (id, val) VALUES (1, 1), (2, 2), (3, 3)", keyspace)
        events = stream.until(count(VEventType.COMMIT, 4))

    beats = [event.row_event for event in events if event.row_event.table_name == f"{keyspace}.heartbeat"]
    assert len(beats) >= 3 if is_wanted else not beats
    assert all(beat.is_internal_table for beat in beats)
    fields = [event.field_event.table_name for event in events if event.type == VEventType.FIELD]
    assert fields.count(f"{keyspace}.t") == 1
    assert len(changes(events, "t")) == 3


def test_heartbeat_events(start_vtgate: StartVtgate) -> None:
    """HEARTBEAT comes when nothing else was sent for the interval; with a long one, none."""
    vtgate = start_vtgate()
    keyspace = _with_table(vtgate)

    with (
        StreamReader(vtgate, [_current(keyspace)], flags=VStreamFlags(heartbeat_interval=1)) as beating,
        StreamReader(vtgate, [_current(keyspace)], flags=VStreamFlags(heartbeat_interval=3600)) as silent,
    ):
        events = beating.until(count(VEventType.HEARTBEAT, 2))
        assert kinds(silent.events) == ["VGTID", "OTHER"]

    assert kinds(events) == ["VGTID", "OTHER", "HEARTBEAT", "HEARTBEAT"]
    assert events[-1].current_time > events[-2].current_time


def test_pushdown_filter_collation(start_vtgate: StartVtgate) -> None:
    """A filter's condition holds as MySQL compares, while copying and while streaming."""
    vtgate = start_vtgate()
    keyspace = vtgate.topology.keyspaces[0].name
    on_every_shard(vtgate.topology, keyspace, ["CREATE TABLE customer (id BIGINT PRIMARY KEY, name VARCHAR(20))"])
    names = ("PAUĹ", "paul", "john", "paÜl")
    rule = Rule(match="customer", filter="select * from customer where name = 'påul'")
    values = ", ".join(f"({number}, '{name}')" for number, name in enumerate(names))
    execute(vtgate, f"INSERT INTO customer (id, name) VALUES {values}", keyspace)

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=[rule]) as stream:
        copied = changes(stream.until(count(VEventType.COPY_COMPLETED, 3)), "customer")
        values = ", ".join(f"({10 + number}, '{name}')" for number, name in enumerate(names))
        execute(vtgate, f"INSERT INTO customer (id, name) VALUES {values}", keyspace)
        execute(vtgate, "UPDATE customer SET name = 'Paul' WHERE id = 12", keyspace)
        streamed = changes(stream.until(lambda events: len(changes(events, "customer")) == 7), "customer")[3:]

    assert {change.after[0] for change in copied} == {b"0", b"1", b"3"}
    assert {change.after[0] for change in streamed} == {b"10", b"11", b"13", b"12"}
    assert streamed[-1].before is None  # it moved into the filter's rows


def test_filters_by_columns_and_key_range(start_vtgate: StartVtgate) -> None:
    vtgate = start_vtgate()
    keyspace = _with_table(vtgate)
    execute(vtgate, "INSERT INTO t (id, val) VALUES (1, 10), (2, 20), (3, 30)", keyspace)
    two_columns = Rule(match="t", filter="select val from t")

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=[two_columns]) as stream:
        values = changes(stream.until(count(VEventType.COPY_COMPLETED, 3)), "t")
    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=[Rule(match="/.*", filter="-10")]) as stream:
        low = changes(stream.until(count(VEventType.COPY_COMPLETED, 3)), "t")

    assert {change.after for change in values} == {(b"10",), (b"20",), (b"30",)}
    assert [change.after for change in low] == [(b"2", b"20")]  # hash(2) is 06e7…


def test_exclude_keyspace_from_table_name(start_vtgate: StartVtgate) -> None:
    vtgate = start_vtgate()
    keyspace = _with_table(vtgate)
    execute(vtgate, "INSERT INTO t (id, val) VALUES (1, 1)", keyspace)
    flags = VStreamFlags(exclude_keyspace_from_table_name=True)

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t"], flags=flags) as stream:
        events = stream.until(count(VEventType.COPY_COMPLETED, 3))

    named = [event.field_event or event.row_event for event in events if event.type in (12, 13)]
    assert {
        event.row_event.table_name or event.field_event.table_name for event in events if event.type in (12, 13)
    } == {"t"}
    assert {described.keyspace for described in named} >= {keyspace}


def test_minimize_skew_holds_the_newer_shard_back(start_vtgate: StartVtgate) -> None:
    """A shard that lags comes first: its older transactions before the newer ones of the other."""
    vtgate = start_vtgate()
    keyspace = _with_table(vtgate)
    shards = vtgate.topology.serving(keyspace)
    start = [ShardGtid(keyspace=keyspace, shard=shard.name, gtid=shard.primary.position()) for shard in shards]
    now_s = int(time.time())
    for shard, age_s in zip(shards, (0, 600), strict=True):
        connection = shard.primary.connect()
        with connection.cursor() as cursor:
            for number in range(30):
                cursor.execute(f"SET timestamp = {now_s - age_s + number // 10}")
                cursor.execute(f"INSERT INTO t VALUES ({number}, 1)")
        connection.close()

    with StreamReader(vtgate, start, tables=["t"], flags=VStreamFlags(minimize_skew=True)) as stream:
        events = stream.until(count(VEventType.ROW, 60))

    order = [event.shard for event in events if event.type == VEventType.ROW]
    # One that has sent nothing yet is waited for only so long: on a busy machine rows may come before it begins.
    of_old = [place for place, shard in enumerate(order) if shard == "80-"]
    assert order[of_old[0] : of_old[-1] + 1].count("-80") <= 1


def test_a_purged_position_is_refused(start_mysql: StartMysql) -> None:
    mysql = start_mysql()
    topology = Topology([Keyspace("ks")], [new_shard("ks", "0", 1, mysql.host, mysql.port)])
    start = [ShardGtid(keyspace="ks", shard="0", gtid=topology.shard("ks", "0").primary.position())]
    on_every_shard(topology, "ks", ["CREATE TABLE t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS"])
    last_log = mysql.execute("SHOW BINARY LOGS")[-1][0]
    mysql.execute(f"PURGE BINARY LOGS TO '{last_log}'")
    vtgate = VtgateServer(topology).start()
    try:
        with StreamReader(vtgate, start) as stream:
            stream.until_over()
    finally:
        vtgate.stop()

    assert "purged required binary logs" in stream.error.details()


def test_a_table_or_keyspace_that_is_not_there(start_vtgate: StartVtgate) -> None:
    vtgate = start_vtgate()
    keyspace = _with_table(vtgate)

    for start, tables, named in (
        (ShardGtid(keyspace="nowhere"), ["t"], "keyspaces/nowhere"),
        (ShardGtid(keyspace=keyspace, shard="c0-"), ["t"], "shards/c0-"),
        (ShardGtid(keyspace=keyspace), ["nothing"], "table nothing is not present"),
        (ShardGtid(keyspace=keyspace, shard="-80", gtid="nonsense"), ["t"], "could not decode position"),
    ):
        with StreamReader(vtgate, [start], tables=tables) as stream:
            stream.until_over()
        assert named in stream.error.details()


def test_compressed_and_partial_transactions(start_vtgate: StartVtgate) -> None:
    """Compressed transactions are read; a partial row image says which columns it holds."""
    vtgate = start_vtgate()
    keyspace = vtgate.topology.keyspaces[0].name
    on_every_shard(vtgate.topology, keyspace, ["CREATE TABLE t (id BIGINT PRIMARY KEY, val BIGINT, doc TEXT)"])
    connection = vtgate.topology.shard(keyspace, "-80").primary.connect()

    with StreamReader(vtgate, [_current(keyspace)], tables=["t"]) as stream, connection.cursor() as cursor:
        stream.until(count(VEventType.OTHER, 1))
        cursor.execute("SET SESSION binlog_transaction_compression = ON")
        cursor.execute("INSERT INTO t VALUES (1, 1, 'long')")
        cursor.execute("SET SESSION binlog_transaction_compression = OFF, binlog_row_image = MINIMAL")
        cursor.execute("UPDATE t SET val = 2 WHERE id = 1")
        events = stream.until(count(VEventType.ROW, 2))
    connection.close()

    first, second = changes(events, "t")
    assert first.after == (b"1", b"1", b"long")
    assert second.after == (None, b"2", None)
    (partial,) = [
        change.data_columns
        for event in events
        for change in event.row_event.row_changes
        if change.HasField("data_columns")
    ]
    assert (partial.count, partial.cols) == (3, b"\x02")


def test_streams_of_several_clients_do_not_meet(start_vtgate: StartVtgate) -> None:
    """Each has its own position and filter, at the same time."""
    vtgate = start_vtgate()
    keyspace = _with_table(vtgate)
    streams = [StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t"]) for _ in range(4)]
    for stream in streams:
        stream.until(count(VEventType.COPY_COMPLETED, 3))
    writers = [
        threading.Thread(target=execute, args=(vtgate, f"INSERT INTO t (id, val) VALUES ({number}, 1)", keyspace))
        for number in range(20)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    for stream in streams:
        with stream:
            events = stream.until(lambda events: len(changes(events, "t")) == 20)
        assert {int(change.after[0]) for change in changes(events, "t")} == set(range(20))


def _current(keyspace: str, shard: str = "-80") -> ShardGtid:
    return ShardGtid(keyspace=keyspace, shard=shard, gtid="current")


def _tablet(server: MysqlServer, uid: int, tablet_type: "TabletType.ValueType" = TabletType.PRIMARY) -> Tablet:
    return Tablet(uid=uid, host=server.host, port=server.port, database="vt_ks_0", tablet_type=tablet_type)


def _with_table(vtgate: VtgateServer) -> str:
    """The keyspace, with an empty table of (id, val)."""
    keyspace = vtgate.topology.keyspaces[0].name
    on_every_shard(vtgate.topology, keyspace, ["CREATE TABLE t (id BIGINT PRIMARY KEY, val BIGINT)"])
    return keyspace
