"""Chunks of a table read beside its log, with commits between any two questions to the source.

``services.binlog_reader.incremental`` reads and holds the chunks, ``libs.mysql.watermarks`` has the windows, and
``libs.source.mysql.snapshot.append_rows`` gives the rows their order: all are the product's. Played here are MySQL (a table,
its log, commits that the log shows before the engine has them), the answers to SELECTs, and the reader's loop with its kills.

Each delivered row is compared with the table as of its place in the log, and its order with the changes around it. At the end
the events by order, and in the topic's order, give the table.
"""

import itertools
import json
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from libs.events.batch import OP_CREATE, OP_DELETE, OP_UPDATE, RowRun
from libs.events.run_rows import RunRows
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.chunk_query import unpack_key
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.gtid import GtidHost, GtidSet
from libs.source.mysql import snapshot
from libs.source.mysql.snapshot import CopiedAt
from libs.source.signals import ExecuteSnapshot
from libs.types.checkpoint import IncrementalSnapshot
from libs.types.order import EventOrder
from libs.types.table import TableId
from services.binlog_reader import incremental
from services.binlog_reader.incremental import IncrementalCopy, TableRefused
from tests.simulation import scheduler
from tests.simulation.log import LOG
from tests.simulation.violation import Violation

_TABLE: Final = TableId(database="s", table="t")
_CREATE: Final = "CREATE TABLE `t` (`id` int NOT NULL, `v` int, PRIMARY KEY (`id`))"
_SCHEMA: Final = show_create_to_schema(_TABLE, _CREATE, "utf8mb4")
_UUID: Final = "24bc7850-2c16-11e6-a073-0242ac110002"
_KEYS: Final = 8
_ROUNDS: Final = 400


@dataclass(frozen=True, slots=True)
class Change:
    """One row of a transaction; None: the row is not there."""

    key: int
    before: int | None
    after: int | None


@dataclass(slots=True)
class Mysql:
    """A table and its log."""

    random: random.Random
    log: list[list[Change]] = field(default_factory=list)
    versions: list[dict[int, int]] = field(default_factory=list)
    """The table after so many transactions of the log."""
    committed: int = 0
    """How many the engine has."""
    is_quiet: bool = False
    """Nobody writes any more."""
    values: Iterator[int] = field(default_factory=lambda: itertools.count(100))

    @property
    def rows(self) -> dict[int, int]:
        """What a SELECT sees now."""
        return self.versions[self.committed]

    def write(self) -> None:
        """One transaction into the log; a row may change several times in it."""
        rows, changes = dict(self.versions[-1]), []
        for _ in range(self.random.choice((1, 1, 2, 4))):
            key = self.random.randrange(_KEYS)
            before = rows.get(key)
            after = None if before is not None and self.random.random() < 0.3 else next(self.values)
            changes.append(Change(key, before, after))
            if after is None:
                del rows[key]
            else:
                rows[key] = after
        self.log.append(changes)
        self.versions.append(rows)

    def breathe(self) -> None:
        """Writes and commits of others between two questions."""
        while not self.is_quiet and self.random.random() < 0.4:
            if self.committed < len(self.log) and self.random.random() < 0.7:
                self.committed += 1
            else:
                self.write()


class Connection:
    """Answers what ``incremental`` asks."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.view: dict[int, int] | None = None

    @property
    def seen(self) -> dict[int, int]:
        """The rows that the running transaction sees; its view is made by the first SELECT that reads rows."""
        self.view = self.world.mysql.rows if self.view is None else self.view
        return self.view

    def executed(self) -> GtidSet:
        """``@@gtid_executed``."""
        mysql = self.world.ask("gtid_executed")
        return _gtids(mysql.committed)

    def query(self, statement: str) -> Sequence[tuple[Any, ...]]:
        """The statements that give no rows of the table."""
        mysql = self.world.ask(statement)
        if statement.startswith("SELECT WAIT_FOR_EXECUTED_GTID_SET") and mysql.random.random() < 0.8:
            mysql.committed = len(mysql.log)
        elif statement.startswith("SELECT COUNT"):
            return [(len(mysql.rows),)]
        elif statement.startswith("SELECT 1 FROM") and mysql.random.random() < 0.5:
            self.view = mysql.rows
        elif statement.startswith(("START", "COMMIT")):
            self.view = None
        return []

    def sum(self, behind: bytes, until: bytes) -> incremental.RangeSum:
        """The server's count and sum of a range."""
        self.world.ask("sum")
        first, last = _key(behind, -1), _key(until, _KEYS)
        rows = [(key, self.seen[key]) for key in self.seen if first < key <= last]
        sums = [zlib.crc32(b",".join(b"%d" % zlib.crc32(b"%d" % value) for value in row)) for row in rows]
        return incremental.RangeSum(len(rows), sum(sums))

    def select(self, statement: tuple[str, bytes, bytes, int]) -> Iterator[bytes]:
        """A chunk's rows, or a last key."""
        kind, behind, until, limit = statement
        self.world.ask(kind)
        first, last = _key(behind, -1), _key(until, _KEYS)
        found = sorted(key for key in self.seen if first < key <= last)
        if kind == "last key":
            return iter([_packet(found[-1])] if found else [])
        return iter([_packet(key, self.seen[key]) for key in found[: limit or None]])


def _gtids(count: int) -> GtidSet:
    return GtidSet({GtidHost(_UUID): ((1, count),)}) if count else GtidSet()


def _key(place: bytes, otherwise: int) -> int:
    return int(unpack_key(place)[0]) if place else otherwise


def _packet(*values: int) -> bytes:
    texts = [b"%d" % value for value in values]
    return b"".join(bytes([len(text)]) + text for text in texts)


@dataclass(frozen=True, slots=True)
class Event:
    """One record of the topic."""

    order: str
    key: int
    value: int | None


class _Run:
    """In the place of a BatchBuilder: keeps the run."""

    def __init__(self) -> None:
        self.run: RowRun

    def open_run(self, run: RowRun) -> RowRun:
        """As of BatchBuilder."""
        self.run = run
        return run

    def close_run(self) -> None:
        """As of BatchBuilder."""


class World:
    """One run."""

    def __init__(self, seed: int, *, traces: bool = False) -> None:
        self.random = random.Random(seed)
        self.steps = 0
        self.trace: list[str] = []
        self._traces = traces
        rows = {key: key for key in range(_KEYS) if self.random.random() < 0.7}
        self.mysql = Mysql(self.random, versions=[rows])
        self._topic: list[Event] = []
        self._connection = Connection(self)
        self._copy = IncrementalCopy(IncrementalSnapshot())
        self._position = 0
        self._order = EventOrder(epoch=0, rank=0, tx_ordinal=0)
        self._copy.take(ExecuteSnapshot("1", ("s.t",)), ["s.t"])
        self._checkpoint = (self._position, self._order, self._copy.state, len(self._topic))

    def note(self, text: str) -> None:
        """One line of the trace."""
        if self._traces:
            self.trace.append(f"{self._position:3}/{self.mysql.committed}/{len(self.mysql.log)}  {text}")

    def ask(self, what: str) -> Mysql:
        """A question on its way: others write before it comes."""
        self.steps += 1
        self.mysql.breathe()
        self.note(what)
        return self.mysql

    def run(self) -> None:
        """Raises Violation."""
        with scheduler.replaced(
            (incremental, "executed_gtids", lambda connection: connection.executed()),
            (incremental, "query", lambda connection, statement, *_: connection.query(statement)),
            (incremental, "select_raw", lambda connection, statement, _timeout: connection.select(statement)),
            (incremental, "create_statement", lambda *_: (_CREATE, "utf8mb4")),
            (incremental, "estimated_rows", lambda *_: 0),
            (incremental, "chunk_statement", lambda *_, behind, until, limit, **__: ("chunk", behind, until, limit)),
            (incremental, "sum_at_source", lambda connection, *_, behind, until: connection.sum(behind, until)),
            (incremental, "last_key_statement", lambda *_, **__: ("last key", b"", b"", 0)),
            (incremental, "failpoint", lambda _name: self.ask("failpoint")),
            (incremental, "log", LOG),
        ):
            for _ in range(self.random.randrange(10, 60)):
                self._act()
            self._end()
        self._compare()

    def _act(self) -> None:
        self.steps += 1
        match self.random.randrange(12):
            case 0 | 1:
                self.mysql.breathe()
            case 2 | 3 | 4:
                self._follow(self.random.choice((1, 1, 3)))
            case 5 | 6 | 7 | 8:
                self._read()
            case 9:
                self._checkpoint = (self._position, self._order, self._copy.state, len(self._topic))
            case 10 if self.random.random() < 0.3:
                self._begin_again()
            case _:
                self._heartbeat()

    def _begin_again(self) -> None:
        self.note("killed")
        self._position, self._order, state, events = self._checkpoint
        del self._topic[events:]
        self._copy = IncrementalCopy(state)

    def _end(self) -> None:
        """Nobody writes any more: the copy comes to its end."""
        self.mysql.committed = len(self.mysql.log)
        self.mysql.is_quiet = True
        for _ in range(_ROUNDS):
            self._follow(len(self.mysql.log))
            if not self._copy.state.tables:
                return
            self._read()
            self._heartbeat()
        raise Violation(f"the copy did not come to its end in {_ROUNDS} rounds")

    # --- the reader

    def _follow(self, transactions: int) -> None:
        for changes in self.mysql.log[self._position : self._position + transactions]:
            number = self._position + 1
            gtid = (_UUID, "", number)
            self._copy.transaction_begins(gtid)
            self._deliver()
            self.note(f"the log shows transaction {number}: {changes}")
            run = RunRows()
            self._copy.rows_begin(_TABLE, run)
            for ordinal, change in enumerate(changes, start=1):
                op = OP_DELETE if change.after is None else OP_CREATE if change.before is None else OP_UPDATE
                run.append(op, b'{"id":%d}' % change.key, b"{}")
                self._order = EventOrder(epoch=0, rank=number, tx_ordinal=ordinal)
                self._topic.append(Event(self._order.sort_key(), change.key, change.after))
            self._position = number
            self._copy.transaction_ends(gtid)
            self._deliver()

    def _read(self) -> None:
        copy, state = self._copy, self._copy.state
        if not copy.wants_chunk:
            return
        seen = _gtids(self._position)
        table: Any = self._connection
        try:
            if copy.wants_count:
                counted = incremental.count_rows(table, _SCHEMA, state.tables[0])
                assert counted is not None
                chunk = incremental.counted_chunk(_SCHEMA, state.tables[0], counted, seen=seen)
                copy.take_chunk(chunk, caught_up=not chunk.window.unseen)
            else:
                read = incremental.read_between_watermarks(
                    table, _SCHEMA, state.tables[0], seen=seen, chunk_rows=3, leaves_out=False
                )
                if read is None:
                    return
                copy.take_chunk(read, caught_up=not read.window.unseen)
        except TableRefused as refused:
            raise Violation(f"the table is given up: {refused}") from refused
        self._deliver()

    def _heartbeat(self) -> None:
        if self._position == len(self.mysql.log):
            self._copy.log_is_silent()
            self._deliver()

    def _deliver(self) -> None:
        if not self._copy.is_due:
            return
        try:
            chunk = self._copy.deliver()
        except TableRefused as refused:
            raise Violation(f"the table is given up: {refused}") from refused
        if chunk is None or not chunk.rows:
            return
        batch: Any = _Run()
        position = BinlogPosition(gtid_set="", file="f", pos=4)
        view = CopiedAt(position=position, order=self._order, taken_at_us=1)
        snapshot.append_rows(
            batch, list(chunk.rows.values()), source="s", schema=_SCHEMA, view=view, marker=lambda *_: b'"incremental"'
        )
        order = batch.run.first_order
        for value in batch.run.rows.values():
            after, _ = json.JSONDecoder().raw_decode(value.decode().partition('"after":')[2])
            self._check(order, after["id"], after["v"])
            self._topic.append(Event(order.sort_key(), after["id"], after["v"]))
        self.note(f"delivered at {order.sort_key()}: {sorted(chunk.rows)}")

    def _check(self, order: EventOrder, key: int, value: int) -> None:
        """A read is the row as of its place in the log, and stands between the changes around that."""
        there = self.mysql.versions[self._position].get(key)
        if there != value:
            raise Violation(f"row {key} is read as {value} after transaction {self._position}, where it is {there}")
        if order <= self._order and self._position:
            raise Violation(
                f"the read of row {key} has order {order.sort_key()}, and what it holds {self._order.sort_key()}"
            )
        if order >= EventOrder(epoch=0, rank=self._position + 1, tx_ordinal=1):
            raise Violation(
                f"the read of row {key} has order {order.sort_key()}, which is above the next transaction's"
            )

    def _compare(self) -> None:
        table = self.mysql.versions[-1]
        for name, events in (
            ("by order", sorted(self._topic, key=lambda each: each.order)),
            ("as they stand", self._topic),
        ):
            mirror: dict[int, int | None] = {}
            for event in events:
                mirror[event.key] = event.value
            found = {key: value for key, value in mirror.items() if value is not None}
            if found != table:
                raise Violation(f"the events {name} give {found}, and the table is {table}")
