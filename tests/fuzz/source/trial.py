"""One program on a real server and through the reader, compared after each statement.

Compared are the model with SHOW CREATE and information_schema, the mirror of the events with a snapshot's rows, these with the
server's own words of each cell, and values of before in a new or altered column with the sinks' fill and the reader's words.
A table of which something was reported is taken from the server and followed from there.
"""

import contextlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import msgspec
import orjson
import pymysql
import structlog
from pymysql.constants import CLIENT
from pymysql.cursors import Cursor

from libs.errors import HeadwaterError, UndecodableValue
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.ddl_syntax import DdlNotUnderstood
from libs.mysql.identifiers import quote_table
from libs.mysql.logical import in_value_modes
from libs.mysql.text_row import select_list, text_rows_decoder, undecodable_text
from libs.source.mysql.client import Connection, query, select_raw
from libs.source.mysql.snapshot import create_statement
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import ValueModes
from spark.transforms.fill import fill_of
from tests.conftest import MysqlServer
from tests.fuzz.hunt import Find
from tests.fuzz.source.constants import UNREADABLE, value_of
from tests.fuzz.source.followed import SIGNALS, BinlogFollowed, Followed
from tests.fuzz.source.follower import Difference, Follower, Published, previous_column, tables_of
from tests.fuzz.source.program import BEGIN, COPY, DATABASES, READER, RESTART, Program, Step
from tests.fuzz.source.statements import GLOBALS
from tests.fuzz.source.stored_rows import (
    Cell,
    ServerTable,
    as_server_has_it,
    cell_of,
    compared,
    default_differs,
    is_same,
    loose,
    server_tables,
    stored_rows,
)

SESSIONS: Final = ("a", "b", "x")
IS_OF_ROWS: Final = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|COMMIT|ROLLBACK|XA)\b[^;]*$")
"""Statements after which no definition is asked for, unless the history has a new version."""
_SERVER_SETTINGS: Final = (("binlog_row_metadata", "MINIMAL"), *((name, "DEFAULT") for name in GLOBALS))
"""Of the whole server, as each program finds them."""
_SELECT_TIMEOUT_S: Final = 60.0
_EXPECTED_REFUSALS: Final = ("has no key to read it along",)
_COPIES_ALL: Final = json.dumps({"data-collections": [rf"{name}\..*" for name in DATABASES]})
_EXPECTED_WORDS: Final = (
    "as a statement",
    "rows changed unseen",
    " text",  # a byte that its charset does not map
    "the row's key changed, and the row image in the log lacks",
)
"""Words that a program without a fault may have; any other word is a difference."""


@dataclass
class Counts:
    statements: int = 0
    refused: int = 0
    cells: int = 0
    events: int = 0
    reported: Counter[str] = field(default_factory=Counter)
    copies: int = 0
    copies_refused: dict[str, str] = field(default_factory=dict)
    """Tables that the last incremental snapshot gave up, and why."""
    not_understood: Counter[str] = field(default_factory=Counter)
    """Statements that only the source's definition of now answered, by their reason."""


class Trial:
    """Sessions, a reader, and the last state of both; ``open`` and ``close`` around all else."""

    def __init__(
        self,
        server: MysqlServer,
        values: ValueModes,
        counts: Counts,
        followed: Callable[[MysqlServer], Followed] = BinlogFollowed,
        *,
        beside: Callable[[MysqlServer], Followed] | None = None,
    ) -> None:
        """``followed``: the source; its events are also compared with those of ``beside``."""
        self._server = server
        self.counts = counts
        self.follower = Follower(followed(server), values)
        self._beside: Follower | None = None
        self._published: tuple[list[Published], list[Published]] = ([], [])
        """Of both since the last comparison."""
        if beside is not None:
            self._beside = Follower(beside(server), values)
            self.follower.on_event = self._published[0].append
            self._beside.on_event = self._published[1].append
        self.tables: dict[TableId, ServerTable] = {}
        """As the server had them when it was looked at last."""
        self._values = values
        self._sessions: dict[str, Connection] = {}
        self._admin = server.connect(charset="utf8mb4", init_command="SET time_zone = '+00:00', sql_mode = ''")
        self._has_begun = False
        self._executed = ""
        self._stored: dict[TableId, tuple[TableSchema, list[tuple[Cell, ...]]]] = {}
        self._reported = 0
        self._new_words: list[str] = []
        self._known: dict[TableId, TableSchema] = {}
        self._versions = -1

    def open(self) -> None:
        """Make the databases again."""
        self._clear()
        for setting, value in _SERVER_SETTINGS:
            query(self._admin, f"SET GLOBAL {setting} = {value}")
        query(self._admin, f"CREATE DATABASE {SIGNALS.split('.')[0]}")
        query(self._admin, f"CREATE TABLE {SIGNALS} (id VARCHAR(9), type VARCHAR(32), data TEXT)")
        for name in DATABASES:
            query(self._admin, f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
            query(self._admin, f"CREATE TABLE {name}.t0 (id INT PRIMARY KEY, a VARCHAR(9))")

    async def close(self) -> None:
        """End reader and sessions, drop everything."""
        for follower in self._followers:
            await follower.end()
            follower.followed.close()
        for session in self._sessions.values():
            with contextlib.suppress(pymysql.MySQLError, OSError):
                session.close()
        self._sessions.clear()
        self._clear()
        for setting, value in _SERVER_SETTINGS:
            query(self._admin, f"SET GLOBAL {setting} = {value}")
        self._admin.close()
        self.counts.events += self.follower.events

    def _clear(self) -> None:
        for row in query(self._admin, "XA RECOVER CONVERT XID"):
            xid = row[3].removeprefix("0x")
            gtrid, bqual = xid[: row[1] * 2], xid[row[1] * 2 :]
            with contextlib.suppress(Exception):
                query(self._admin, f"XA ROLLBACK X'{gtrid}', X'{bqual}', {row[0]}")
        for name in (*DATABASES, SIGNALS.split(".")[0]):
            query(self._admin, f"DROP DATABASE IF EXISTS {name}")

    async def take(self, step: Step) -> bool:
        """Carry out a step and compare; whether the server took it. Raises Difference."""
        if step.session == READER:
            if step.text == BEGIN and not self._has_begun:
                await self._begin()
            elif step.text == RESTART and self._has_begun:
                for follower in self._followers:
                    await self._guarded(follower.restart)
            elif step.text == COPY and self._has_begun:
                await self._guarded(self._copy)
            return True
        if not self._has_begun and step.text != BEGIN and not self._begins_later:
            await self._begin()
        taken = self._execute(step)
        if self._has_begun:
            await self._compare(step)
        else:
            self.tables = server_tables(self._admin, DATABASES)
        return taken

    _begins_later = False

    def begins_later(self) -> None:
        """A ``begin`` is among the steps."""
        self._begins_later = True

    async def _begin(self) -> None:
        self._has_begun = True
        for follower in self._followers:
            await self._guarded(follower.begin)
        query(self._admin, "DROP DATABASE IF EXISTS fz_none")  # once it is read, the snapshot's locks are gone
        await self._compare(Step(READER, BEGIN))

    async def _copy(self) -> None:
        """An incremental snapshot reads each row that there is, and no other."""
        query(self._admin, f"INSERT INTO {SIGNALS} VALUES ('copy', 'execute-snapshot', %s)", _COPIES_ALL)
        [(uuid, self._executed)] = query(self._admin, "SELECT @@server_uuid, @@GLOBAL.gtid_executed")
        self.counts.copies_refused.clear()
        self.counts.copies += 1
        copied = await self.follower.copy(last_transaction(uuid, self._executed))
        self._judge_words()
        refused = self.counts.copies_refused
        for table, reason in refused.items():
            if not any(words in reason for words in _EXPECTED_REFUSALS):
                raise Difference(f"reported without need: {table}: {reason}")
        for table_id, schema in self._known.items():
            if str(table_id) in refused or str(table_id) in self.follower.quarantined:
                continue
            try:
                stored = Counter(tables_of(list(self._snapshot(schema))))
            except UndecodableValue:
                continue
            read = Counter(tables_of(copied.get(table_id, [])))
            if stored != read:
                raise Difference(
                    f"{table_id}: a copy lacks {list((stored - read).elements())}, has besides "
                    f"{list((read - stored).elements())}"
                )

    async def _guarded(self, act: Callable[[], Any]) -> None:
        """An error that halts the reader is a difference: it was to go on."""
        try:
            await act()
        except Difference:
            raise
        except Exception as error:
            raise Difference(f"the reader halted: {type(error).__name__}: {error}") from error

    # --- sessions ----------------------------------------------------------------------------------------------------------

    def _execute(self, step: Step) -> bool:
        return self._execute_in(step.session, DATABASES[0], step.text)

    def _execute_in(self, name: str, database: str, statement: str, *, is_counted: bool = True) -> bool:
        """Carry out a statement in the session ``name``; whether the server took it."""
        self.counts.statements += is_counted
        session = self._sessions.get(name)
        if session is None or not session.open:
            session = self._sessions[name] = self._server.connect(
                database,
                charset="utf8mb4",
                client_flag=CLIENT.MULTI_STATEMENTS,
                init_command="SET lock_wait_timeout = 2, innodb_lock_wait_timeout = 1",
            )
        try:
            with Cursor(session) as cursor:
                cursor.execute(statement)
                while cursor.nextset():
                    pass
        except (pymysql.MySQLError, OSError, UnicodeError, LookupError):
            self.counts.refused += is_counted
            if not session.open:
                self._sessions.pop(name)
            return False
        return True

    # --- comparing ---------------------------------------------------------------------------------------------------------

    async def _compare(self, step: Step) -> None:
        [(uuid, executed)] = query(self._admin, "SELECT @@server_uuid, @@GLOBAL.gtid_executed")
        if executed == self._executed and step.session != READER:
            return
        self._executed = executed
        last = last_transaction(uuid, executed)
        if last:
            for follower in self._followers:
                await self._guarded(partial(follower.catch_up, last))
        self._judge_words()
        self._compare_events()
        if not IS_OF_ROWS.match(step.text) or self._versions != len(self.follower.history.changes):
            await self._compare_models()
        for table_id in self.tables:
            if str(table_id) not in self.follower.quarantined:
                self._compare_rows(table_id, self._known[table_id])
            else:
                self._stored.pop(table_id, None)

    def _compare_events(self) -> None:
        """The same rows in the same order, table by table, as the binlog reader's; none of a table that either doubts."""
        ours, logs = map(list, self._published)
        for events in self._published:
            events.clear()
        if self._beside is None:
            return
        for table_id in {event.table_id for event in (*ours, *logs)}:
            mirrors = [follower.mirror.get(table_id) for follower in self._followers]
            if any(mirror is None or mirror.is_doubted for mirror in mirrors):
                continue
            mine, theirs = ([event for event in events if event.table_id == table_id] for events in (ours, logs))
            for a, b in itertools.zip_longest(mine, theirs):
                if a is None or b is None or not a.says_the_same(b):
                    raise Difference(f"{table_id}: {self.follower.followed.name} has {a}, the log {b}")

    @property
    def _followers(self) -> list[Follower]:
        return [self.follower] if self._beside is None else [self.follower, self._beside]

    async def _compare_models(self) -> None:
        self._versions = len(self.follower.history.changes)
        self.tables = server_tables(self._admin, DATABASES)
        history = await self.follower.history.list_tables(self.follower.followed.name)
        known = {schema.table_id: schema for schema in history if schema.table_id.database in DATABASES}
        self._known = known
        if set(known) != set(self.tables):
            raise Difference(f"known tables {_names(known)}, the server's {_names(self.tables)}")
        for table_id, seen in self.tables.items():
            if str(table_id) not in self.follower.quarantined:
                self._compare_model(table_id, known[table_id], seen)

    def _judge_words(self) -> None:
        reported = self._new_words = self.follower.reported[self._reported :]
        self._reported = len(self.follower.reported)
        for words in reported:
            expected = next((each for each in _EXPECTED_WORDS if each in words), None)
            if expected is None:
                raise Difference(f"reported without need: {words}")
            self.counts.reported[expected] += 1

    def _compare_model(self, table_id: TableId, known: TableSchema, seen: ServerTable) -> None:
        if len(known.columns) != len(seen.columns):
            raise Difference(
                f"{table_id}: columns {[c.name for c in known.columns]}, server {[c.name for c in seen.columns]}"
            )
        for ours, column, mine in zip(known.columns, seen.columns, as_server_has_it(known), strict=True):
            if mine != compared(column, ours):
                raise Difference(f"{table_id}: the model has {mine}, information_schema {column}")
            if default_differs(column, ours):
                raise Difference(
                    f"{table_id}.{column.name}: DEFAULT {ours.default_expression!r}, server {column.default!r}"
                )
        if seen.primary_key and known.key != seen.primary_key:
            raise Difference(f"{table_id}: key {known.key}, the server's {seen.primary_key}")
        statement, charset = create_statement(self._admin, table_id)
        try:
            shown = show_create_to_schema(table_id, statement, charset)
        except DdlNotUnderstood as error:
            raise Difference(f"{table_id}: SHOW CREATE is not understood: {error}") from error
        shown_anew = _as_read_anew(in_value_modes(shown, self._values))
        ours_anew = _as_shown(_as_read_anew(known), shown_anew, seen)
        if ours_anew != shown_anew:
            raise Difference(f"{table_id}: the model differs from SHOW CREATE: {_apart(ours_anew, shown_anew)}")

    def _compare_rows(self, table_id: TableId, schema: TableSchema) -> None:
        mirror = self.follower.mirror.get(table_id)
        if mirror is None or mirror.schema.columns != schema.columns:
            raise Difference(f"{table_id}: no version of the table reached the mirror")
        try:
            stored = stored_rows(self._admin, schema)
        except HeadwaterError:  # a virtual column that the server itself cannot compute
            self._stored.pop(table_id, None)
            mirror.is_doubted = mirror.has_changed = True
            return
        self.counts.cells += len(stored) * len(schema.columns)
        altered = [each for each in self.follower.altered if each[0] == table_id]
        self.follower.altered[:] = [each for each in self.follower.altered if each[0] != table_id]
        was_reported = any(words.startswith(f"{table_id}: ") for words in self._new_words)
        if altered and table_id in self._stored and not was_reported:
            self._compare_altered(table_id, schema, stored)
        if altered and not was_reported:
            self._compare_fills(table_id, altered, schema, stored)
        before = self._stored.get(table_id)
        self._stored[table_id] = (schema, stored)
        if before == (schema, stored) and not mirror.has_changed:
            return
        mirror.has_changed = False
        try:
            copied = list(self._snapshot(schema))
        except UndecodableValue as error:
            if not any(each in str(error) for each in _EXPECTED_WORDS):
                raise Difference(str(error)) from error
            mirror.is_doubted = True
            return
        ours = [tuple(cell_of(column, row[column.name]) for column in schema.columns) for row in copied]
        if not same_rows(stored, ours, schema):
            raise Difference(
                f"{table_id}: a snapshot reads {_cells(ours, schema)}, the server has {_cells(stored, schema)}"
            )
        if mirror.is_doubted:
            mirror.rows, mirror.is_doubted = copied, False
        elif tables_of(copied) != tables_of(mirror.rows):
            snapshot, log = Counter(tables_of(copied)), Counter(tables_of(mirror.rows))
            raise Difference(
                f"{table_id}: a snapshot reads {list((snapshot - log).elements())}, the log gave "
                f"{list((log - snapshot).elements())}"
            )

    def _snapshot(self, schema: TableSchema) -> Iterator[dict[str, Any]]:
        """The rows as the snapshot's own code reads them."""
        decoder = text_rows_decoder(schema)
        statement = f"SELECT {select_list(schema)} FROM {quote_table(schema.table_id)}"
        for packet in select_raw(self._admin, statement, _SELECT_TIMEOUT_S):
            try:
                image, _ = decoder.row(packet)
            except Exception as error:
                raise undecodable_text(schema, decoder, error) from error
            yield orjson.loads(image) if b"e" not in image else _loads(image)

    def _compare_altered(self, table_id: TableId, schema: TableSchema, stored: list[tuple[Cell, ...]]) -> None:
        """No value that stayed in its column is another one, or it was reported."""
        before, rows = self._stored[table_id]
        pairs = _paired(before, schema)
        keys = [pair for pair in pairs if before.columns[pair[0]].name in before.key]
        if not before.key or len(keys) != len(before.key) or len(rows) != len(stored):
            return
        old = {tuple(str(loose(row[i], before.columns[i])) for i, _ in keys): row for row in rows}
        new = {tuple(str(loose(row[j], schema.columns[j])) for _, j in keys): row for row in stored}
        for key in old.keys() & new.keys():
            for i, j in pairs:
                a, b = old[key][i], new[key][j]
                if not _is_alike(loose(a, before.columns[i]), loose(b, schema.columns[j])):
                    types = f"{before.columns[i].source_type} to {schema.columns[j].source_type}"
                    name = schema.columns[j].name
                    raise Difference(
                        f"{table_id}.{name}: an ALTER changed {a!r} to {b!r}, from {types}, and nothing was reported"
                    )

    def _compare_fills(
        self,
        table_id: TableId,
        altered: list[tuple[TableId, TableSchema, TableSchema]],
        schema: TableSchema,
        stored: list[tuple[Cell, ...]],
    ) -> None:
        """Rows of before have the sinks' fill in a column that this statement brought."""
        versions = [altered[0][1], *(after for _, _, after in altered)]
        for place, column in enumerate(schema.columns):
            if column.born is None or column.born.after_version < altered[0][1].version or column.is_generated:
                continue
            fill = fill_of(column, versions)
            expected = None if fill is None else value_of(fill.expression, column)
            if expected is UNREADABLE:
                continue
            for row in stored:
                if not is_same(row[place], expected, column):
                    raise Difference(
                        f"{table_id}.{column.name} ({column.source_type}): rows of before have {row[place]!r}, a sink fills "
                        f"{expected!r} ({fill})"
                    )


async def carried_out(trial: Trial, program: Program) -> Find | None:
    """The first difference, with the statements up to it; None: all is right. The server may refuse some statements."""
    done = 0
    try:
        trial.open()
        for step in program.steps:
            done += 1
            await trial.take(step)
    except Difference as difference:
        return Find(replace(program, steps=program.steps[:done]), str(difference))
    finally:
        await trial.close()
    return None


def last_transaction(uuid: str, executed: str) -> str:
    """The GTID of the last transaction that the server numbered, without a tag; empty: there is none."""
    match = re.search(rf"{uuid}:((?:\d+(?:-\d+)?:?)+)", executed.replace("\n", ""))
    return f"{uuid}:{max(map(int, re.split('[:-]', match[1].strip(':'))))}" if match else ""


def _loads(image: bytes) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(image)
    return loaded


def _names(tables: Mapping[TableId, Any]) -> list[str]:
    return sorted(map(str, tables))


def _as_read_anew(schema: TableSchema) -> TableSchema:
    """A definition lacks former names, and when a column came."""
    columns = tuple(
        msgspec.structs.replace(column, former_names=(), earlier_names=(), born=None, is_late=False)
        for column in schema.columns
    )
    # The server keeps an index's length in bytes where a column is dropped and another of its name added; nothing reads it.
    # Nor are others than unique ones read; which of a foreign key's own it keeps, no definition shows.
    indexes = tuple(msgspec.structs.replace(index, prefix_lengths=()) for index in schema.indexes if index.is_unique)
    return msgspec.structs.replace(schema, columns=columns, indexes=indexes, former_ids=(), version=0, key=(), ddl="")


def _as_shown(ours: TableSchema, shown: TableSchema, seen: ServerTable) -> TableSchema:
    """SHOW CREATE prints ``DEFAULT ('😀')`` with question marks, and leaves out a key's DEFAULT that is an expression and was
    set by an ALTER in place (both seen with 9.7). It says nothing of these defaults."""
    columns = tuple(
        msgspec.structs.replace(
            mine, default_expression=theirs.default_expression, is_default_computed=theirs.is_default_computed
        )
        if mine.is_default_computed
        and (
            "????" in (theirs.default_expression or "")
            or (not theirs.is_default_computed and "DEFAULT_GENERATED" in column.extra)
        )
        else mine
        for mine, theirs, column in zip(ours.columns, shown.columns, seen.columns, strict=True)
    )
    return msgspec.structs.replace(ours, columns=columns)


def _apart(ours: TableSchema, shown: TableSchema) -> str:
    parts = []
    for name in ours.__struct_fields__:
        mine, theirs = getattr(ours, name), getattr(shown, name)
        if name == "columns":
            parts += [f"{a} / {b}" for a, b in zip(mine, theirs, strict=False) if a != b]
        elif mine != theirs:
            parts.append(f"{name} {mine} / {theirs}")
    return "; ".join(parts)


def same_rows(server: list[tuple[Cell, ...]], ours: list[tuple[Cell, ...]], schema: TableSchema) -> bool:
    left = list(ours)
    for row in server:
        found = next(
            (
                nth
                for nth, mine in enumerate(left)
                if all(is_same(a, b, column) for a, b, column in zip(row, mine, schema.columns, strict=True))
            ),
            None,
        )
        if found is None:
            return False
        left.pop(found)
    return not left


def _cells(rows: list[tuple[Cell, ...]], schema: TableSchema) -> str:
    return str([dict(zip((c.name for c in schema.columns), row, strict=True)) for row in rows])


def _paired(before: TableSchema, after: TableSchema) -> list[tuple[int, int]]:
    """Places of a column before and after."""
    places = {column.name: nth for nth, column in enumerate(before.columns)}
    pairs = []
    for nth, column in enumerate(after.columns):
        old = previous_column(column, before)
        if old is not None and not (column.is_generated or old.is_generated):
            pairs.append((places[old.name], nth))
    return pairs


def _is_alike(before: tuple[str, Any], after: tuple[str, Any]) -> bool:
    """Whether a changed type kept the value, as far as the two can be compared. -0 is 0 here."""
    return not before[0] or before[0] != after[0] or before[1] == after[1]


def events_of_structlog(counts: Counts) -> None:
    """Let the reader's log events go nowhere but into ``counts``."""

    def keep(_: Any, __: str, event: Any) -> Any:
        if event.get("event") == "incremental_table_refused":
            counts.copies_refused[str(event["table"])] = str(event["reason"])
        if event.get("event") == "ddl_not_understood":
            counts.not_understood[str(event.get("reason"))[:160]] += 1
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
