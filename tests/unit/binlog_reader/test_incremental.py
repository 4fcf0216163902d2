"""The window against a model of MySQL: with any writes, chunk reads, kills and DDL in any order, the rows are true.

The source, its log, SELECTs and the publishing are played by a few lines here; the reader's own state is tested
(``IncrementalCopy``), with the watermarks and the transitions of a checkpoint's fields.
"""

import json
from collections import Counter
from dataclasses import dataclass, field, replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.events.batch import OP_CREATE
from libs.events.run_rows import RunRows
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.gtid import GtidHost, GtidSet
from libs.mysql.watermarks import open_low, set_high
from libs.source.signals import ExecuteSnapshot, PauseSnapshot, ResumeSnapshot, StopSnapshot
from libs.types.checkpoint import FinishedCopy, IncrementalSnapshot, TableCopy
from libs.types.order import EventOrder
from libs.types.table import TableId
from services.binlog_reader.incremental import Chunk, IncrementalCopy, TableRefused, difference
from tests.marks import examples

T = TableId(database="s", table="t")
UUID = "24bc7850-2c16-11e6-a073-0242ac110002"
UUIDS = (UUID, "0e5d7850-2c16-11e6-a073-0242ac110003", "f1007850-2c16-11e6-a073-0242ac110004")
"""Of the servers that take turns as the primary: each numbers its own transactions."""
V1 = show_create_to_schema(T, "CREATE TABLE `t` (`id` int NOT NULL, `v` int, PRIMARY KEY (`id`))", "utf8mb4")
V2 = show_create_to_schema(T, "CREATE TABLE `t` (`id` int NOT NULL, `v` bigint, PRIMARY KEY (`id`))", "utf8mb4")
SCHEMAS = (V1, V2)
KEYS = st.integers(0, 7)
CHUNK_ROWS = 3


@dataclass
class Transaction:
    """An entry of the log: changes of the table (None: deleted), a DDL of it (a schema's number), or neither."""

    changes: dict[int, int | None] = field(default_factory=dict)
    schema: int | None = None
    server: int = 0
    """Which one numbered it."""


@dataclass
class Mysql:
    """A table, its log, and transactions that stand in the log while the engine has not committed them yet."""

    rows: dict[int, int]
    schema: int = 0
    log: list[Transaction] = field(default_factory=list)
    committed: int = 0

    def write(self, transaction: Transaction, *, at_once: bool) -> None:
        self.log.append(transaction)
        if at_once or transaction.schema is not None:
            self.commit()

    def commit(self) -> None:
        for transaction in self.log[self.committed :]:
            for key, value in transaction.changes.items():
                if value is None:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = value
            if transaction.schema is not None:
                self.schema = transaction.schema
        self.committed = len(self.log)

    def executed(self) -> GtidSet:
        return self.gtids(self.committed)

    def gtid(self, place: int) -> tuple[str, str, int]:
        """Of the transaction at a place of the log."""
        server = self.log[place].server
        return UUIDS[server], "", sum(1 for each in self.log[: place + 1] if each.server == server)

    def gtids(self, count: int) -> GtidSet:
        """Of the log's first transactions."""
        counts = Counter(UUIDS[each.server] for each in self.log[:count])
        return GtidSet({GtidHost(uuid): ((1, done),) for uuid, done in counts.items()})


@dataclass
class Delivered:
    key: int
    value: int | None
    order: tuple[int, int]
    schema: int
    is_read: bool


class Reader:
    """Follows the log from its checkpoint: the position, the snapshot's state, and how many events were committed."""

    def __init__(self, mysql: Mysql, *, lost: int = 0) -> None:
        self.mysql = mysql
        self.lost = lost
        """Rows that each chunk loses."""
        self.topic: list[Delivered] = []
        self.checkpoint = (0, IncrementalSnapshot(), 0, 0)
        self.start()

    def start(self) -> None:
        """As after a kill: uncommitted state is gone."""
        self.position, state, events, self.schema = self.checkpoint
        del self.topic[events:]
        self.copy = IncrementalCopy(state)

    def publish(self) -> None:
        self.checkpoint = (self.position, self.copy.state, len(self.topic), self.schema)

    def follow(self, transactions: int) -> None:
        for transaction in self.mysql.log[self.position : self.position + transactions]:
            number = self.position + 1
            gtid = self.mysql.gtid(self.position)
            self.copy.transaction_begins(gtid)
            self.deliver()
            if transaction.changes:
                run = RunRows()
                self.copy.rows_begin(T, run)
                for ordinal, (key, value) in enumerate(transaction.changes.items(), start=1):
                    run.append(OP_CREATE, key_json(key), b"{}")
                    self.topic.append(Delivered(key, value, (number, ordinal), self.schema, is_read=False))
            self.copy.transaction_ends(gtid)
            self.position = number
            if transaction.schema is not None:
                before, self.schema = self.schema, transaction.schema
                self.copy.table_changed(T, SCHEMAS[before], SCHEMAS[self.schema])
            self.deliver()

    def deliver(self) -> None:
        if not self.copy.is_due:
            return
        chunk = self.copy.deliver()
        if chunk is None:
            return
        order = _place(EventOrder(epoch=0, rank=self.position, tx_ordinal=0).after())
        for image, key in chunk.rows.values():
            read = json.loads(image)
            assert key == key_json(read["id"])
            self.topic.append(Delivered(read["id"], read["v"], order, self.schema, is_read=True))
            assert difference(chunk.schema, SCHEMAS[self.schema]) == ""

    def read_chunk(self, between: list[Transaction]) -> None:
        """``read_between_watermarks``, with ``between`` written while it runs: half before the SELECT, half after it."""
        if not self.copy.wants_chunk:
            return
        mysql, seen, half = self.mysql, self.mysql.gtids(self.position), len(between) // 2
        if not mysql.executed().is_superset(seen):
            mysql.commit()
        window = open_low(mysql.executed())
        for transaction in between[:half]:
            mysql.write(transaction, at_once=True)
        copy = self.copy.state.tables[0]
        chunk = Chunk(copy=copy, schema=SCHEMAS[self.schema], window=window)
        if self.copy.wants_count:
            chunk.is_last, chunk.counted = True, len(mysql.rows)
        elif mysql.schema != self.schema:
            chunk.is_stale = True
        elif not copy.maximum_key and not mysql.rows:
            chunk.is_last = True
        else:
            maximum = int(copy.maximum_key) if copy.maximum_key else max(mysql.rows)
            last = int(copy.last_key) if copy.last_key else -1
            found = sorted(key for key in mysql.rows if last < key <= maximum)[:CHUNK_ROWS]
            for key in found:
                chunk.rows[key_json(key)] = (json.dumps({"id": key, "v": mysql.rows[key]}).encode(), key_json(key))
            ends = len(found) < CHUNK_ROWS
            for _ in range(min(self.lost, len(found))):
                chunk.rows.popitem()
            chunk.copy = msgspec.structs.replace(
                copy,
                maximum_key=b"%d" % maximum,
                last_key=b"%d" % (maximum if ends else found[-1]),
                rows_read=copy.rows_read + len(chunk.rows),
            )
        for transaction in between[half:]:
            mysql.write(transaction, at_once=True)
        chunk.window = set_high(chunk.window, mysql.executed(), seen)
        self.copy.take_chunk(chunk, caught_up=not chunk.window.unseen)
        self.deliver()

    def heartbeat(self) -> None:
        if self.position == len(self.mysql.log):
            self.copy.log_is_silent()
            self.deliver()


def _place(order: EventOrder) -> tuple[int, int]:
    return order.rank, order.tx_ordinal


def gtids(count: int) -> GtidSet:
    return GtidSet({GtidHost(UUID): ((1, count),)}) if count else GtidSet()


def key_json(key: int) -> bytes:
    return b'{"id":%d}' % key


changes = st.dictionaries(KEYS, st.none() | st.integers(0, 99), min_size=1, max_size=3)
contents = st.one_of(
    changes.map(lambda each: Transaction(changes=each)),
    changes.map(lambda each: Transaction(changes=each)),
    st.just(Transaction()),  # of a table that nobody captures
    st.sampled_from((0, 1)).map(lambda number: Transaction(schema=number)),
)
writes = st.builds(replace, contents, server=st.sampled_from((0, 0, 0, 1, 2)))
steps = st.one_of(
    st.tuples(st.just("write"), writes, st.booleans()),
    st.tuples(st.just("commit")),
    st.tuples(st.just("follow"), st.integers(1, 4)),
    st.tuples(st.just("chunk"), st.lists(writes, max_size=4)),
    st.tuples(st.just("race"), changes),
    st.tuples(st.just("publish")),
    st.tuples(st.just("kill")),
    st.tuples(st.just("heartbeat")),
    st.tuples(st.just("signal"), st.sampled_from((PauseSnapshot(""), ResumeSnapshot("")))),
)


@settings(max_examples=examples(400))
@given(first=st.dictionaries(KEYS, st.integers(0, 99)), steps=st.lists(steps, max_size=30))
def test_any_interleaving_ends_with_the_true_rows(first: dict[int, int], steps: list[tuple[object, ...]]) -> None:
    """Writes numbered by several servers, chunk reads, kills, DDL and pauses: each row's newest event is the row, in log order
    and by order."""
    mysql = Mysql(rows=dict(first))
    reader = Reader(mysql)
    reader.copy.take(ExecuteSnapshot("a", ("s.t",)), ["s.t"])
    reader.publish()

    for step in steps:
        match step:
            case ("write", Transaction() as transaction, bool() as at_once):
                mysql.write(transaction, at_once=at_once)
            case ("commit",):
                mysql.commit()
            case ("follow", int() as count):
                reader.follow(count)
            case ("chunk", list() as between):
                reader.read_chunk(between)
            case (
                "race",
                dict() as shown,
            ):  # the log shows a transaction, and a chunk is read before its engine commits
                mysql.write(Transaction(changes=shown), at_once=False)
                reader.follow(len(mysql.log))
                reader.read_chunk([])
            case ("publish",):
                reader.publish()
            case ("kill",):
                reader.start()
            case ("heartbeat",):
                reader.heartbeat()
            case ("signal", PauseSnapshot() | ResumeSnapshot() as signal):
                reader.copy.take(signal, ["s.t"])
    finish(reader)

    assert applied_in_order(reader.topic) == mysql.rows
    assert applied_by_order(reader.topic) == mysql.rows
    orders = [event.order for event in reader.topic]
    assert orders == sorted(orders), "a topic's own order is that of the events"
    for event in reader.topic:
        if event.is_read:
            rank, _ = event.order
            assert rows_after(first, mysql.log[: rank - 1])[event.key] == event.value, "a read is as of its order"
    reads = [event.key for event in reader.topic if event.is_read]
    assert len(reads) == len(set(reads)) or any(t.schema is not None for t in mysql.log)


def rows_after(first: dict[int, int], transactions: list[Transaction]) -> dict[int, int | None]:
    rows: dict[int, int | None] = dict(first)
    for transaction in transactions:
        rows |= transaction.changes
    return rows


def finish(reader: Reader) -> None:
    """The source falls silent; the reader ends the work that it has left."""
    reader.mysql.commit()
    reader.copy.take(ResumeSnapshot(""), ["s.t"])
    for _ in range(50):
        reader.follow(len(reader.mysql.log))
        reader.heartbeat()
        reader.read_chunk([])
        if not reader.copy.state.tables:
            return
    raise AssertionError(f"the snapshot does not end: {reader.copy.state}, {reader.copy.chunk}")


def applied_in_order(events: list[Delivered]) -> dict[int, int]:
    table = {event.key: event.value for event in events}
    return {key: value for key, value in table.items() if value is not None}


def applied_by_order(events: list[Delivered]) -> dict[int, int]:
    newest: dict[int, Delivered] = {}
    for event in events:
        if event.key not in newest or newest[event.key].order <= event.order:
            newest[event.key] = event
    return {key: event.value for key, event in newest.items() if event.value is not None}


# --- single promises ---------------------------------------------------------------------------------------------------------


def test_a_silent_source_needs_no_heartbeat() -> None:
    """All that the watermarks hold has been shown: the chunk is due at once, and so is the next."""
    reader = Reader(Mysql(rows={n: n for n in range(8)}))
    reader.copy.take(ExecuteSnapshot("a", ("s.t",)), ["s.t"])

    for _ in range(4):
        reader.read_chunk([])

    assert sorted(event.key for event in reader.topic) == [*range(8)]
    assert reader.copy.state == IncrementalSnapshot(finished=(FinishedCopy(table="s.t", signal_id="a", rows_read=8),))


def test_a_copy_that_is_short_is_refused_and_never_finished() -> None:
    """Lost rows show, from any cause: the source's own count is more than chunks read and the log brought."""
    reader = Reader(Mysql(rows={n: n for n in range(8)}), lost=1)
    reader.copy.take(ExecuteSnapshot("a", ("s.t",)), ["s.t"])

    reader.read_chunk([Transaction(changes={9: 1})])  # read by no chunk, brought by the log
    reader.follow(1)
    with pytest.raises(TableRefused, match="the source has 9 rows, and at least 3 of them were not read"):
        for _ in range(3):
            reader.read_chunk([])

    assert reader.copy.state.finished == ()


def test_a_heartbeat_closes_the_window_when_the_last_transaction_was_the_high_watermark() -> None:
    reader = Reader(Mysql(rows={1: 1, 2: 2}))
    reader.copy.take(ExecuteSnapshot("a", ("s.t",)), ["s.t"])
    reader.read_chunk([Transaction(changes={1: 10})])
    assert not reader.copy.is_due

    reader.follow(1)

    assert [(event.key, event.value, event.is_read) for event in reader.topic] == [(1, 10, False), (2, 2, True)]


def test_a_table_whose_schema_contradicts_the_source_for_good_is_refused() -> None:
    mysql = Mysql(rows={1: 1}, schema=1)
    reader = Reader(mysql)
    reader.copy.take(ExecuteSnapshot("a", ("s.t",)), ["s.t"])

    with pytest.raises(TableRefused, match="no DDL is to come"):
        for _ in range(10):
            reader.read_chunk([])


@pytest.mark.parametrize(("changed", "is_read_again"), [(0, True), (1, False), (9, False)])
def test_a_change_of_a_row_that_shares_its_key_in_json_has_the_chunk_read_again(
    changed: int, is_read_again: bool
) -> None:
    """Day 0 is 0000-00-00 and 1970-01-01: nobody knows which of the two changed, and taking both out would lose one."""
    table = "CREATE TABLE `t` (`id` date NOT NULL, `v` int, PRIMARY KEY (`id`))"
    copy = IncrementalCopy(IncrementalSnapshot(tables=(TableCopy(table="s.t"),)))
    chunk = Chunk(
        copy=copy.state.tables[0],
        schema=show_create_to_schema(T, table, "utf8mb4"),
        window=set_high(open_low(gtids(3)), gtids(5), gtids(3)),
        rows={key_json(0): (b"zero", key_json(0)), b"more": (b"1970", key_json(0)), key_json(1): (b"one", key_json(1))},
        shared={key_json(0)},
    )
    copy.take_chunk(chunk, caught_up=False)
    run = RunRows()
    copy.transaction_begins((UUID, "", 4))
    copy.rows_begin(T, run)
    run.append(OP_CREATE, key_json(changed), b"{}")
    copy.transaction_ends((UUID, "", 4))
    copy.transaction_begins((UUID, "", 6))

    delivered = copy.deliver()

    assert (delivered is None) == is_read_again
    assert delivered is None or len(delivered.rows) == 3 - (changed == 1)


def test_stopping_a_table_discards_its_chunk_and_leaves_the_others() -> None:
    copy = IncrementalCopy(IncrementalSnapshot(tables=(TableCopy(table="s.t"), TableCopy(table="s.u"))))
    copy.take_chunk(
        Chunk(copy=copy.state.tables[0], schema=V1, window=set_high(open_low(gtids(3)), gtids(5), gtids(3))),
        caught_up=False,
    )

    notes = copy.take(StopSnapshot("", ("s.t", "s.x")), ["s.t", "s.u"])

    assert copy.chunk is None
    assert [each.table for each in copy.state.tables] == ["s.u"]
    assert notes == ["s.x: no snapshot of it to stop"]


def test_a_table_that_is_dropped_leaves_the_snapshot() -> None:
    copy = IncrementalCopy(IncrementalSnapshot(tables=(TableCopy(table="s.t"), TableCopy(table="s.u"))))

    copy.table_changed(T, V1, None)

    assert [each.table for each in copy.state.tables] == ["s.u"]


def test_another_order_of_the_key_begins_the_table_again() -> None:
    other = show_create_to_schema(
        T, "CREATE TABLE `t` (`id` varchar(9) NOT NULL, `v` int, PRIMARY KEY (`id`))", "utf8mb4"
    )
    copy = IncrementalCopy(IncrementalSnapshot(tables=(TableCopy(table="s.t", last_key=b"k", maximum_key=b"m"),)))

    copy.table_changed(T, V1, V2)
    assert copy.state.tables[0].last_key == b"k"
    copy.table_changed(T, V1, other)
    assert copy.state.tables[0].last_key == b""
