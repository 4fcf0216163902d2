"""The stand-in copies in Vitess's order: scenarios of tests/golden/cases/h_vitess_vstream.json, named by their ids."""

from collections.abc import Iterable

from libs.stand_ins.vtgate.client import StreamReader, changes, count, execute, kinds, last_vgtid
from libs.stand_ins.vtgate.cluster import on_every_shard
from libs.stand_ins.vtgate.log_stream import TabletOptions
from libs.stand_ins.vtgate.rules import row_values
from libs.stand_ins.vtgate.service import VtgateServer
from libs.stand_ins.vtgate.vstream import ServerOptions
from protos.vitess.binlogdata_pb2 import ShardGtid, TableLastPK, VEvent, VEventType
from protos.vitess.query_pb2 import Field, QueryResult, Row, Type
from protos.vitess.vtgate_pb2 import VStreamFlags
from tests.conftest import StartVtgate

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, val BIGINT)"
COMPLETED = VEventType.COPY_COMPLETED


def test_copy_one_keyspace_all_shards(start_vtgate: StartVtgate) -> None:
    """Each shard's copy in order, its rows along the key; one COPY_COMPLETED more when all are done. 27 events."""
    vtgate = start_vtgate()
    keyspace = _with_rows(vtgate, 8)

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t"]) as stream:
        events = stream.until(count(COMPLETED, 3))

    of_shard = [
        "BEGIN",
        "FIELD",
        "VGTID",
        *4 * ["ROW"],
        "VGTID",
        "COMMIT",
        "BEGIN",
        "VGTID",
        "COMMIT",
        "COPY_COMPLETED",
    ]
    assert [kinds(event for event in events if event.shard == shard) for shard in ("-80", "80-")] == [
        of_shard,
        of_shard,
    ]
    assert (events[-1].type, events[-1].keyspace, events[-1].shard) == (COMPLETED, "", "")
    assert len(events) == 27
    assert [change.after[0] for change in changes(events, "t") if change.shard == "-80"] == [b"1", b"2", b"3", b"5"]
    assert {event.timestamp for event in events if event.type == VEventType.ROW} == {0}


def test_copy_basic_with_lastpk(start_vtgate: StartVtgate) -> None:
    """A copy without a position goes on after the given keys. 23 events."""
    vtgate = start_vtgate()
    keyspace = _with_rows(vtgate, 8)
    start = [ShardGtid(keyspace=keyspace, shard=shard, table_p_ks=[_behind(4)]) for shard in ("-80", "80-")]

    with StreamReader(vtgate, start, tables=["t"]) as stream:
        events = stream.until(count(COMPLETED, 3))

    assert {change.after[0] for change in changes(events, "t")} == {b"5", b"6", b"7", b"8"}
    assert len(events) == 23


def test_copy_all_keyspaces_regex(start_vtgate: StartVtgate, unique_name) -> None:
    """A keyspace that begins with a slash is a regular expression. 47 events."""
    first, second = sorted((unique_name("all"), unique_name("all")))
    vtgate = start_vtgate(first, second)
    for keyspace, rows in ((first, 8), (second, 4)):
        _with_rows(vtgate, rows, keyspace)

    with StreamReader(vtgate, [ShardGtid(keyspace="/all_.*")], tables=["t"]) as stream:
        events = stream.until(count(COMPLETED, 5))

    done = {(event.keyspace, event.shard) for event in events if event.type == COMPLETED}
    assert done == {(keyspace, shard) for keyspace in (first, second) for shard in ("-80", "80-")} | {("", "")}
    assert len(events) == 47 + 2  # 4 rows in the second keyspace instead of 2: all four shards have some


def test_copy_resume_with_catchup(start_vtgate: StartVtgate) -> None:
    """Position and last key: the log first, with the changes of copied rows, then the rows after the key."""
    vtgate = start_vtgate()
    keyspace = _with_rows(vtgate, 8)
    on_every_shard(vtgate.topology, keyspace, ["CREATE TABLE other (id BIGINT PRIMARY KEY)"])
    start = [
        ShardGtid(keyspace=keyspace, shard=shard.name, gtid=shard.primary.position(), table_p_ks=[_behind(4)])
        for shard in vtgate.topology.serving(keyspace)
    ]
    for statement in (
        "INSERT INTO t (id, val) VALUES (9, 9)",
        "UPDATE t SET val = 90 WHERE id = 1",
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET val = 90 WHERE id = 9",
        "INSERT INTO other (id) VALUES (1)",
    ):
        execute(vtgate, statement, keyspace)

    with StreamReader(vtgate, start, tables=["t"]) as stream:
        events = stream.until(count(COMPLETED, 3))

    rows = [event for event in events if event.type == VEventType.ROW]
    assert len([row for row in rows if row.timestamp]) == 4
    assert len([row for row in rows if not row.timestamp]) == 5
    assert [change.after for change in changes(events, "t") if change.after and change.after[0] == b"9"] == [
        (b"9", b"9"),
        (b"9", b"90"),
        (b"9", b"90"),
    ]
    copying = [event.vgtid for event in events if event.type == VEventType.VGTID and b"lastpk" in _text(event)]
    assert all(any(last.lastpk.fields for shard in vgtid.shard_gtids for last in shard.table_p_ks) for vgtid in copying)
    assert not changes(events, "other")


def test_rows_changed_while_they_are_copied_end_right(start_vtgate: StartVtgate) -> None:
    """Between read views the log is followed: a client that keeps the last image of each key has the table."""
    small = ServerOptions(tablet=TabletOptions(copy_rows=10, packet_bytes=100))
    vtgate = start_vtgate(options=small)
    keyspace = _with_rows(vtgate, 200)

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t"]) as stream:
        for key in range(1, 60):
            execute(vtgate, f"UPDATE t SET val = val + 1000 WHERE id = {key}", keyspace)
        execute(vtgate, "DELETE FROM t WHERE id = 200", keyspace)
        execute(vtgate, "INSERT INTO t (id, val) VALUES (1000, 1)", keyspace)
        stream.until(count(COMPLETED, 3))
        rows = [tuple(row_values(row)) for row in execute(vtgate, "SELECT id, val FROM t", keyspace).rows]
        stored = {row[0]: row for row in rows}
        stream.until(lambda events: last_images(events) == stored)  # each shard's log ends by itself

    assert len(stored) == 200
    assert sum(int(row[1]) for row in stored.values()) == sum(range(1, 200)) + 59 * 1000 + 1


def test_a_copy_resumed_from_any_vgtid_is_whole(start_vtgate: StartVtgate) -> None:
    """Rows before a VGTID of the copy, with those of a stream that goes on from it, are all rows."""
    vtgate = start_vtgate(options=ServerOptions(tablet=TabletOptions(copy_rows=4, packet_bytes=40)))
    keyspace = _with_rows(vtgate, 30)
    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t"]) as stream:
        events = stream.until(count(COMPLETED, 3))
    middle = [place for place, event in enumerate(events) if event.type == VEventType.VGTID][7]
    before = {change.after[0] for change in changes(events[:middle], "t")}

    with StreamReader(vtgate, last_vgtid(events[: middle + 1]).shard_gtids, tables=["t"]) as stream:
        rest = stream.until(lambda events: len(before | {change.after[0] for change in changes(events, "t")}) == 30)

    assert len(before) < 30
    assert len(changes(rest, "t")) < 30


def test_copy_transactions_wrapped(start_vtgate: StartVtgate) -> None:
    """Every copied row stands between BEGIN and COMMIT, and no BEGIN follows another, however many packets there are."""
    vtgate = start_vtgate(options=ServerOptions(tablet=TabletOptions(copy_rows=50, packet_bytes=100)))
    keyspace = _with_rows(vtgate, 400)

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t"]) as stream:
        events = stream.until(count(COMPLETED, 3))

    is_open = {"-80": False, "80-": False}
    for event in events:
        if event.type == VEventType.BEGIN:
            assert not is_open[event.shard]
            is_open[event.shard] = True
        elif event.type == VEventType.COMMIT:
            is_open[event.shard] = False
        elif event.type == VEventType.ROW:
            assert is_open[event.shard]
    assert len(changes(events, "t")) == 400
    assert kinds(stream.responses[-1]) == ["COPY_COMPLETED", "COPY_COMPLETED"]


def test_sharded_copy_field_metadata(start_vtgate: StartVtgate) -> None:
    vtgate = start_vtgate()
    keyspace = _with_rows(vtgate, 8)

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t"]) as stream:
        events = stream.until(count(COMPLETED, 3))

    (field,) = [event.field_event for event in events if event.type == VEventType.FIELD and event.shard == "-80"]
    key, other = field.fields
    assert (key.database, key.org_table, key.column_length, key.charset) == (f"vt_{keyspace}_-80", "t", 20, 63)
    assert (key.flags, other.flags, key.column_type) == (53251, 32768, "bigint")
    assert field.enum_set_string_values
    assert field.table_name == f"{keyspace}.t"
    assert all(event.keyspace == keyspace and event.shard for event in events[:-1])


def test_tables_to_copy_flag(start_vtgate: StartVtgate) -> None:
    """Of three tables two are copied; all three are streamed after the copy."""
    vtgate = start_vtgate()
    keyspace = vtgate.topology.keyspaces[0].name
    tables = ("customer", "merchant", "product")
    on_every_shard(vtgate.topology, keyspace, [f"CREATE TABLE {table} (id BIGINT PRIMARY KEY)" for table in tables])
    for table in tables:
        execute(vtgate, f"INSERT INTO {table} (id) VALUES " + ", ".join(f"({n})" for n in range(1, 11)), keyspace)
    flags = VStreamFlags(tables_to_copy=["product", "customer"])

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=tables, flags=flags) as stream:
        copied = stream.until(count(COMPLETED, 3))
        for table in tables:
            execute(vtgate, f"INSERT INTO {table} (id) VALUES (21)", keyspace)
        events = stream.until(count(VEventType.ROW, 20 + 3))

    assert [len(changes(copied, table)) for table in tables] == [10, 0, 10]
    assert [len(changes(events[len(copied) :], table)) for table in tables] == [1, 1, 1]


def test_a_key_of_several_columns_and_of_text(start_vtgate: StartVtgate) -> None:
    """The copy goes on after (a, b) in the column's own collation, where 'B' lies after 'a'."""
    vtgate = start_vtgate(options=ServerOptions(tablet=TabletOptions(copy_rows=2)))
    keyspace = vtgate.topology.keyspaces[0].name
    on_every_shard(
        vtgate.topology,
        keyspace,
        ["CREATE TABLE t (a VARCHAR(5) CHARACTER SET latin1, b INT, id BIGINT, PRIMARY KEY (a, b))"],
    )
    rows = [(a, b) for a in ("a", "B", "ä", "z") for b in (1, 2, 3) if not (a == "a" and b == 2)]
    values = ", ".join(f"('{a}', {b}, 1)" for a, b in rows)
    execute(vtgate, f"INSERT INTO t (a, b, id) VALUES {values}", keyspace)

    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t"]) as stream:
        events = stream.until(count(COMPLETED, 3))

    assert {(change.after[0].decode("latin1"), int(change.after[1])) for change in changes(events, "t")} == set(rows)
    assert len(changes(events, "t")) == len(rows)


def last_images(events: Iterable[VEvent]) -> dict[bytes | None, tuple[bytes | None, ...]]:
    """The table ``t`` as a client has it that keeps the last image of each key."""
    images: dict[bytes | None, tuple[bytes | None, ...]] = {}
    for change in changes(events, "t"):
        if change.after is not None:
            images[change.after[0]] = change.after
        elif change.before is not None:
            images.pop(change.before[0], None)
    return images


def _behind(key: int) -> TableLastPK:
    """The rows of ``t`` up to the key are there."""
    field = Field(name="id", type=Type.INT64, charset=63, flags=53251)
    text = str(key).encode()
    return TableLastPK(table_name="t", lastpk=QueryResult(fields=[field], rows=[Row(lengths=[len(text)], values=text)]))


def _text(event) -> bytes:
    return str(event).encode()


def _with_rows(vtgate: VtgateServer, rows: int, keyspace: str = "") -> str:
    """The keyspace, with a table of (id, id)."""
    keyspace = keyspace or vtgate.topology.keyspaces[0].name
    on_every_shard(vtgate.topology, keyspace, [TABLE])
    execute(vtgate, "INSERT INTO t (id, val) VALUES " + ", ".join(f"({n}, {n})" for n in range(1, rows + 1)), keyspace)
    return keyspace
