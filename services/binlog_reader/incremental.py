"""Incremental snapshots: tables read again chunk by chunk between GTID watermarks, while the log is followed.

The reader's loop calls ``read_between_watermarks`` while the log stands still, and hands the chunk to ``IncrementalCopy``,
which the log decoder informs of transactions and changed rows (``decode.LogWatch``). When the window closes the chunk's rest
is due, and the loop puts it into the batch at this very place of the log. How far every table got is a value that travels in
the checkpoint (``libs.source.incremental``): a chunk that was not delivered is read again, one that was is not.

Beside the algorithm (``libs.mysql.watermarks``) these things keep it right:

* The low watermark covers everything that the log has shown. MySQL lets a replica read a transaction before its own
  engine has committed it, so a chunk could otherwise miss a change whose event has already passed.
* A chunk is read under the schema that the log has at its place, compared with ``SHOW CREATE TABLE`` in the transaction of
  the SELECT, which no DDL can enter. Where they differ the log lags: it is read again when the window closes. DDL of
  the table that the log shows before has the same effect.
* A delivered row is the row as of its place in the log, and its order is the one after the transaction before that place
  (``EventOrder.after``). A transaction shown before the place is either of the low watermark, so the chunk has it; or it came
  in the window, and its rows have left the chunk. A transaction shown after the place is beyond the high watermark, so the
  chunk does not have it. The low watermark's own order would not do: of its transactions the log shows some after the chunk
  was read, with orders up to and above it, and the read would stand below changes that it holds.
* A copy proves that it was whole: after its last chunk the source counts the table's rows, and when the log has shown all
  that the count has seen, each of them was in a chunk or came by the log since the first one (``rows_missing``).
* A chunk proves that it was whole: in the transaction of its SELECT the source counts the rows of its range and sums up their
  checksums, and so does the reader with those that came (``_contradiction``).
* The server says where a table ends: by fewer rows than a SELECT was asked for. Rows are counted as they come, because several
  may share one key in JSON. If a row that may share its key changes in the window, the chunk is read again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import orjson
import structlog

from libs.errors import HeadwaterError, UndecodableValue
from libs.events.batch import OP_CREATE, OP_KEY_CHANGE_CREATE, OP_UPDATE
from libs.events.run_rows import RunRows
from libs.failpoints import failpoint
from libs.mysql.chunk_query import (
    KeyPlace,
    chunk_list,
    chunk_statement,
    is_unique_key,
    last_key_statement,
    pack_key,
    place_of,
    places_changed,
    snapshot_key,
    sum_statement,
)
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.gtid import GtidSet
from libs.mysql.identifiers import quote_table
from libs.mysql.row_key import has_row_in_key, may_be_shared, row_key
from libs.mysql.text_row import row_cells, summed_columns, text_rows_decoder, undecodable_text
from libs.mysql.text_rows import row_checksum
from libs.mysql.watermarks import (
    Gtid,
    Window,
    open_low,
    reached_high,
    see_transaction,
    set_high,
    spans_servers,
)
from libs.source.incremental import (
    begin_again,
    chunk_delivered,
    drop_table,
    has_begun,
    is_read,
    is_same_copy,
    rows_arrived,
    rows_missing,
    take_signal,
)
from libs.source.mysql.client import Connection, mysql_error_code, query, select_raw
from libs.source.mysql.snapshot import create_statement, estimated_rows, executed_gtids
from libs.source.mysql.table_copy import UnreadRow
from libs.source.signals import Signal
from libs.types.checkpoint import IncrementalSnapshot, TableCopy
from libs.types.table import Column, TableId, TableSchema

log = structlog.get_logger()

_SELECT_TIMEOUT_S: Final = 600.0
_LOCK_WAIT_S: Final = 2
"""How long a chunk waits for a table that an ALTER holds, the log with it; then it is tried again later."""
_COUNT_LIMIT_MS: Final = 540_000  # below the connection's read_timeout of 600 s
_MAX_REREADS: Final = 3
"""So often a chunk is read again because several servers committed meanwhile, or the schemas differ with nothing in between
that explains it, or the source has other rows in its range. Several servers' commits are awaited exactly then; the table with
two schemas, or with other rows, is given up."""

_MAX_HALVINGS: Final = 20
"""A chunk of a table without a key during which rows of the table changed is read again with half as many rows, the next one
after a chunk that was delivered with twice as many. After so many more of the former the table is given up."""

_LOCK_TIMEOUT, _TIME_LIMIT, _DEFINITION_CHANGED, _DEADLOCK = 1205, 3024, 1412, 1213
_PASSING: Final = frozenset({_LOCK_TIMEOUT, _TIME_LIMIT, _DEFINITION_CHANGED, _DEADLOCK})
_NO_SUCH_TABLE, _NO_SUCH_DATABASE = 1146, 1049
_CLIENT_ERRORS: Final = range(2000, 3000)  # the connection, not the statement


class TableRefused(Exception):
    """A table's incremental snapshot cannot go on; the others do. The message has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class RangeSum:
    """Rows of a range of a table, so that two readings can be compared."""

    rows: int
    checksum: int
    """The sum of the rows' ``text_rows.row_checksum``."""


@dataclass(slots=True)
class Chunk:
    """Rows of one table between two watermarks, on their way into the log."""

    copy: TableCopy
    """The table's progress once these rows are delivered."""
    schema: TableSchema
    window: Window
    rows: dict[bytes, tuple[bytes, bytes]] = field(default_factory=dict)
    """(row as JSON, key as JSON) by ``_identity``; by its number where the table has none, or another row has the same."""
    shared: set[bytes] = field(default_factory=set)
    """Identities that several of the rows have: JSON does not hold all that MySQL stores."""
    left_out: list[UnreadRow] = field(default_factory=list)
    """Rows that cannot be read."""
    is_last: bool = False
    """The table is done: it was counted, or is empty."""
    is_stale: bool = False
    """Nothing of it may be delivered: read it again when the window is closed."""
    is_written: bool = False
    """It is stale because an unidentified row of its table was changed in the window: the table has no key, or
    rows share the key's JSON."""
    contradiction: str = ""
    """It is stale because the source has other rows in its range, and why."""
    dropped_rows: int = 0
    """Taken out because the log delivers them."""
    counted: int | None = None
    """Of a chunk without rows, after the last one that has any: how many the source has in the table."""

    @property
    def table_id(self) -> TableId:
        """The table."""
        return self.schema.table_id


# --- reading ---------------------------------------------------------------------------------------------------------------


def prepare_connection(connection: Connection) -> None:
    """Once, before chunks are read through it. Blocks.

    All statements of a chunk see the same rows, under any default isolation of the server.
    """
    query(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    query(connection, f"SET SESSION lock_wait_timeout = {_LOCK_WAIT_S}, innodb_lock_wait_timeout = {_LOCK_WAIT_S}")


def read_between_watermarks(
    connection: Connection,
    schema: TableSchema,
    copy: TableCopy,
    *,
    seen: GtidSet,
    chunk_rows: int,
    leaves_out: bool,
) -> Chunk | None:
    """The next rows of ``copy``, with the watermarks around their reading; ``seen``: transactions that the log has
    delivered. Blocks.

    ``leaves_out``: a row that cannot be read is reported, and the others go on.

    None: not now (the server lags the log, or somebody holds the table); try again later.

    Raises:
        TableRefused: this table cannot be read so, or a row of it cannot and none is left out.
        SourceUnavailable: connection lost.
    """
    low = executed_gtids(connection)
    if not low.is_superset(seen):
        query(connection, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 1)", str(seen))
        low = executed_gtids(connection)
        if not low.is_superset(seen):
            return None
    chunk = Chunk(copy=copy, schema=schema, window=open_low(low))
    try:
        query(connection, "START TRANSACTION READ ONLY")
        try:
            _read_rows(connection, chunk, chunk_rows, leaves_out=leaves_out)
        finally:
            query(connection, "COMMIT")
    except (HeadwaterError, ValueError) as error:
        code = mysql_error_code(error)
        if code in _PASSING:
            log.info("incremental_chunk_postponed", table=copy.table, reason=str(error))
            return None
        if code in (_NO_SUCH_TABLE, _NO_SUCH_DATABASE):  # the log will show its fate
            chunk.is_stale = True
        elif isinstance(error, ValueError) or (code and code not in _CLIENT_ERRORS):
            raise TableRefused(f"{copy.table} cannot be read: {error}") from error
        else:
            raise
    failpoint("reader_between_watermarks")
    chunk.window = set_high(chunk.window, executed_gtids(connection), seen)
    return chunk


@dataclass(frozen=True, slots=True)
class Counted:
    """How many rows the source has of a copy."""

    rows: int | None
    """None: counting them took too long."""
    low: GtidSet
    """Executed before they were counted."""
    executed: GtidSet
    """Executed by the time they were."""


def count_rows(connection: Connection, schema: TableSchema, copy: TableCopy) -> Counted | None:
    """The rows that the source has of ``copy``; None: not now. Blocks, for minutes where the table is large.

    Raises as ``read_between_watermarks``.
    """
    low = executed_gtids(connection)
    where = f" WHERE {copy.condition}" if copy.condition.strip() else ""
    try:
        query(connection, f"SET SESSION max_execution_time = {_COUNT_LIMIT_MS}")
        [(rows,)] = query(connection, f"SELECT COUNT(*) FROM {quote_table(schema.table_id)}{where}")
    except HeadwaterError as error:
        code = mysql_error_code(error)
        if code == _TIME_LIMIT:
            log.warning("incremental_copy_not_counted", table=copy.table, rows_read=copy.rows_read)
            return Counted(None, low, executed_gtids(connection))
        if code in _PASSING or code in (_NO_SUCH_TABLE, _NO_SUCH_DATABASE):
            log.info("incremental_count_postponed", table=copy.table, reason=str(error))
            return None
        if code and code not in _CLIENT_ERRORS:
            raise TableRefused(f"{copy.table} cannot be counted: {error}") from error
        raise
    return Counted(int(rows), low, executed_gtids(connection))


def counted_chunk(schema: TableSchema, copy: TableCopy, counted: Counted, *, seen: GtidSet) -> Chunk:
    """The end of a copy, due when the log has delivered all that the count saw; ``seen``: the log so far."""
    window = set_high(open_low(counted.low), counted.executed, seen)
    return Chunk(copy=copy, schema=schema, window=window, is_last=True, counted=counted.rows)


def _read_rows(connection: Connection, chunk: Chunk, chunk_rows: int, *, leaves_out: bool) -> None:
    """Fill ``chunk``, inside a transaction: having looked at the table, it keeps DDL out until its end."""
    schema, copy = chunk.schema, chunk.copy
    query(connection, f"SELECT 1 FROM {quote_table(schema.table_id)} LIMIT 0")
    if difference(schema, show_create_to_schema(schema.table_id, *create_statement(connection, schema.table_id))):
        chunk.is_stale = True
        return
    key = snapshot_key(schema, copy.surrogate_key)
    if not copy.maximum_key:
        maximum = _key_of_first(connection, last_key_statement(schema, key, condition=copy.condition))
        if not maximum:
            chunk.is_last = True
            return
        copy = msgspec.structs.replace(
            copy, maximum_key=maximum, rows_estimated=estimated_rows(connection, [schema.table_id])
        )
    until, limit = copy.maximum_key, chunk_rows
    ends_here = False
    if not is_unique_key(schema, key):
        # Rows that share the value at which the chunk ends belong into it, or they would be lost.
        statement = last_key_statement(
            schema, key, behind=copy.last_key, until=until, condition=copy.condition, nth=chunk_rows
        )
        end = _key_of_first(connection, statement)
        until, limit, ends_here = end or until, 0, not end
    statement = chunk_statement(
        schema, chunk_list(schema, key), key, behind=copy.last_key, until=until, condition=copy.condition, limit=limit
    )
    received, last_packet = _take_rows(
        select_raw(connection, statement, _SELECT_TIMEOUT_S), chunk, leaves_out=leaves_out
    )
    count = received.rows
    last_key = place_of(schema, key, last_packet) if count else copy.last_key
    # The server alone says where the table ends: by fewer rows than it was asked for, or by the place itself.
    is_read_whole = ends_here or (limit > 0 and count < limit)
    last_key = copy.maximum_key if is_read_whole else last_key
    if not copy.condition.strip():  # one that looks at the clock gives other rows each time
        at_source = sum_at_source(connection, schema, key, behind=copy.last_key, until=last_key)
        chunk.contradiction = _contradiction(copy.table, received, at_source)
        chunk.is_stale = bool(chunk.contradiction)
    chunk.copy = msgspec.structs.replace(
        copy,
        last_key=last_key,
        rows_read=copy.rows_read + count,
        chunks_read=copy.chunks_read + 1,
    )


def sum_at_source(
    connection: Connection, schema: TableSchema, key: Sequence[str], *, behind: KeyPlace, until: KeyPlace
) -> RangeSum:
    """The rows of a range of the table, as the server counts them and sums them up. Blocks."""
    [(rows, checksum)] = query(connection, sum_statement(schema, key, behind=behind, until=until))
    return RangeSum(int(rows), int(checksum))


def _contradiction(table: str, received: RangeSum, at_source: RangeSum) -> str:
    """Why the rows that came are not those of the source at one moment; empty: they are."""
    if received == at_source:
        return ""
    return (
        f"{table}: a chunk brought {received.rows} rows with the checksum {received.checksum}, and at the same moment the "
        f"source has {at_source.rows} with {at_source.checksum} in its range"
    )


def _take_rows(packets: Iterable[bytes], chunk: Chunk, *, leaves_out: bool) -> tuple[RangeSum, bytes]:
    """Put the rows of an answer into ``chunk``; all that the server gave, and the last one. Raises TableRefused."""
    schema = chunk.schema
    decoder, identity = text_rows_decoder(schema), _identity(schema)
    is_summed = summed_columns(schema)
    count, packet, checksum = 0, b"", 0
    failures: list[UndecodableValue] = []
    for count, packet in enumerate(packets, start=1):
        checksum += row_checksum(packet, is_summed)
        try:
            image, key_json = decoder.row(packet)
        except Exception as error:
            failure = undecodable_text(schema, decoder, error)
            if not leaves_out:
                failures.append(failure)
                continue  # the whole answer is to be taken
            chunk.left_out.append(UnreadRow(schema.columns[decoder.column].name, str(failure), packet))
            continue
        name = identity(image, key_json)
        if name in chunk.rows:
            chunk.shared.add(name)
        chunk.rows[name if name and name not in chunk.rows else b"%b#%d" % (name, count)] = (image, key_json)
    if failures:
        raise TableRefused(f"{failures[0]}; mend the row, or set failure_handling, then ask for the table again")
    return RangeSum(count, checksum), packet


def _key_of_first(connection: Connection, statement: str) -> KeyPlace:
    """b"": there is no row."""
    packets = list(select_raw(connection, statement, _SELECT_TIMEOUT_S))
    return pack_key(row_cells(packets[0])) if packets else b""


def difference(ours: TableSchema, theirs: TableSchema) -> str:
    """Where two versions of a table would read a row differently; empty: nowhere."""
    if row_key(ours) != row_key(theirs):
        return f"the key: {row_key(ours)} here, {row_key(theirs)} at the source"
    for mine, other in zip(ours.columns, theirs.columns, strict=False):
        if _layout(mine) != _layout(other):
            return f"column {mine.name} {mine.source_type} here, {other.name} {other.source_type} at the source"
    if len(ours.columns) != len(theirs.columns):
        return f"{len(ours.columns)} columns here, {len(theirs.columns)} at the source"
    return ""


def _layout(column: Column) -> tuple[str, str, str | None, bool]:
    return column.name, column.source_type, column.charset, column.is_optional


# --- between the log and the chunk -------------------------------------------------------------------------------------------


class IncrementalCopy:
    """The incremental snapshot of one reader: which chunk is on its way, and whether it is due.

    Touches nothing outside: the reader's loop brings chunks (``take_chunk``) and signals, the log decoder its transactions.
    """

    def __init__(self, state: IncrementalSnapshot, *, signal_table: str = "") -> None:
        self._signal_table = signal_table
        self._signal_rows: RunRows | None = None
        self._signals: list[tuple[object, ...]] = []
        self.state = state
        """The pending work, as the next checkpoint holds it."""
        self.chunk: Chunk | None = None
        self.is_due = False
        """The chunk's rest belongs here in the log: before anything that follows, ``deliver`` it."""
        self._newest: Gtid | None = None
        self._rows: RunRows | None = None
        self._arriving: tuple[RunRows, int] | None = None
        self._stale_in_row = 0
        self._spanning_in_row = 0
        self._halvings = 0

    def chunk_rows(self, most: int) -> int:
        """How many rows the next chunk should have: fewer where writes made one stale, because it is read faster."""
        return max(1, most >> self._halvings)

    @property
    def wants_count(self) -> bool:
        """The first table was read to its end: only its count is left."""
        return self.wants_chunk and is_read(self.state.tables[0])

    @property
    def wants_chunk(self) -> bool:
        """Something is to be read, and no chunk is on its way."""
        return self.chunk is None and bool(self.state.tables) and not self.state.is_paused

    def take(self, signal: Signal, captured: Iterable[str]) -> list[str]:
        """Let a signal act; returns its parts that failed."""
        self.state, notes = take_signal(self.state, signal, captured)
        chunk = self.chunk
        if chunk is not None and not (self.state.tables and is_same_copy(self.state.tables[0], chunk.copy)):
            self._forget()
        return notes

    def table_signals(self) -> list[tuple[object, ...]]:
        """Rows inserted into the signal table since the last call: id, type and data, under any names of its columns."""
        rows, self._signals = self._signals, []
        return rows

    def take_chunk(self, chunk: Chunk, *, caught_up: bool) -> None:
        """A chunk was read while the log stood still; ``caught_up``: the log has shown both watermarks already.

        Raises TableRefused: the log has no other schema to come, and yet the source's is another one; or the table has no key
        and too many writes.
        """
        if self._halvings > _MAX_HALVINGS:
            self._halvings = 0
            raise TableRefused(
                f"{chunk.copy.table} has no key that distinguishes its rows in JSON, and its rows changed during each of "
                f"{_MAX_HALVINGS} readings of a chunk: nobody can know which of them the log delivers; ask again when less is "
                "written, or give the table another key"
            )
        if spans_servers(chunk.window) and self._spanning_in_row < _MAX_REREADS:
            self._spanning_in_row += 1
            chunk.is_stale = True
        elif chunk.is_stale and (caught_up or chunk.contradiction):
            self._stale_in_row += 1
            if self._stale_in_row > _MAX_REREADS:
                self._stale_in_row = 0
                raise TableRefused(
                    f"{chunk.contradiction}; nothing is finished by this copy. Ask for the table again; if it differs again, "
                    "report it with the table's SHOW CREATE TABLE"
                    if chunk.contradiction
                    else f"{chunk.copy.table}: the log's schema of it is not the source's, and no DDL is to come; "
                    "re-snapshot the source, or exclude the table"
                )
        else:
            self._spanning_in_row = self._stale_in_row = 0
        self.chunk = chunk
        self.is_due = caught_up

    def refuse(self, table: str) -> None:
        """Give a table up; the others go on."""
        self.state = drop_table(self.state, table)
        self._forget()

    def table_changed(self, table_id: TableId, before: TableSchema | None, after: TableSchema | None) -> None:
        """DDL of the table in the log, or a TRUNCATE: its chunk is read again; from the beginning where its order changed."""
        name = str(table_id)
        if not any(copy.table == name for copy in self.state.tables):
            return
        if after is None:
            log.warning("incremental_table_gone", table=name)
            self.refuse(name)
            return
        if self.chunk is not None and self.chunk.table_id == table_id:
            self.chunk.is_stale = True
        if before is not None and any(
            places_changed(before, after, copy.surrogate_key) for copy in self.state.tables if copy.table == name
        ):
            self.state = begin_again(self.state, name)

    def deliver(self) -> Chunk | None:
        """The chunk that is due, now delivered; None: there is nothing of it to deliver, and it is read again.

        Raises TableRefused: rows of the table were in no chunk, and did not come by the log.
        """
        chunk, self.chunk, self.is_due = self.chunk, None, False
        if chunk is None:
            return None
        if self._is_first(chunk.copy):
            chunk.copy = msgspec.structs.replace(chunk.copy, rows_arrived=self.state.tables[0].rows_arrived)
        self._halvings = self._halvings + 1 if chunk.is_written else max(0, self._halvings - 1)
        if chunk.is_stale:
            log.info("incremental_chunk_read_again", table=chunk.copy.table, has_writes=chunk.is_written)
            return None
        if chunk.counted is not None and (missing := rows_missing(chunk.copy, chunk.counted)):
            raise TableRefused(
                f"{chunk.copy.table}: the copy is short: the source has {chunk.counted} rows, and at least {missing} of them "
                "were not read; nothing is finished by this copy. Ask for the table again; if it is short again, report it "
                "with the table's SHOW CREATE TABLE"
            )
        self.state = chunk_delivered(self.state, chunk.copy, is_last=chunk.is_last)
        return chunk

    def row_set_aside(self, table: str) -> None:
        """A changed row of ``table`` could not be decoded: it may be one that came."""
        if self.state.tables and self.state.tables[0].table == table:
            self.state = rows_arrived(self.state, 1)

    def _is_first(self, copy: TableCopy) -> bool:
        return bool(self.state.tables) and is_same_copy(self.state.tables[0], copy)

    def _forget(self) -> None:
        self.chunk, self.is_due, self._rows = None, False, None

    # --- decode.LogWatch

    def transaction_begins(self, gtid: Gtid) -> None:
        """The log shows a transaction."""
        chunk = self.chunk
        if chunk is None or self.is_due:
            return
        chunk.window = see_transaction(chunk.window, gtid)
        self.is_due = chunk.window.is_closed

    def rows_begin(self, table_id: TableId, rows: RunRows) -> None:
        """Changed rows of ``table_id`` are about to be written into ``rows``."""
        self._take_out()
        if str(table_id) == self._signal_table:
            self._signal_rows = rows
        chunk = self.chunk
        if chunk is not None and not self.is_due and chunk.window.is_open and chunk.table_id == table_id:
            self._rows = rows
        if self.state.tables and self.state.tables[0].table == str(table_id):
            self._arriving = rows, len(rows)

    def transaction_ends(self, gtid: Gtid) -> None:
        """All rows of a transaction have been shown."""
        self._take_out()
        self._newest = gtid
        self._look_whether_due()

    def log_is_silent(self) -> None:
        """A heartbeat came: the source has nothing newer than the last transaction."""
        if self._newest is not None:
            self._look_whether_due()

    def _look_whether_due(self) -> None:
        chunk = self.chunk
        if chunk is None or self.is_due:
            return
        self.is_due = reached_high(chunk.window, self._newest)

    def _take_out(self) -> None:
        """Rows that the window showed leave the chunk: the log delivers them."""
        signals, self._signal_rows = self._signal_rows, None
        if signals is not None:
            inserted = (
                orjson.loads(value) for op, value in zip(signals.ops, signals.values(), strict=True) if op == OP_CREATE
            )
            self._signals += [tuple(event["after"].values()) for event in inserted]
        self._count_arrived()
        rows, self._rows = self._rows, None
        chunk = self.chunk
        if rows is None or chunk is None:
            return
        if not row_key(chunk.schema):  # the chunk's changed rows cannot be identified
            chunk.is_stale = chunk.is_written = True
            return
        for identity in _identities(chunk.schema, rows):
            if identity not in chunk.rows:
                continue
            if identity in chunk.shared or may_be_shared(chunk.schema, identity):
                chunk.is_stale = chunk.is_written = True  # the row that changed may be the other one
                return
            del chunk.rows[identity]
            chunk.dropped_rows += 1

    def _count_arrived(self) -> None:
        """Rows that came into the first table leave its copy whole without them."""
        arriving, self._arriving = self._arriving, None
        if arriving is None or not self.state.tables:
            return
        (rows, begin), copy = arriving, self.state.tables[0]
        has_begun_here = has_begun(copy) or (self.chunk is not None and self._is_first(self.chunk.copy))
        came = rows.ops[begin:].count(OP_CREATE) + rows.ops[begin:].count(OP_KEY_CHANGE_CREATE)
        if copy.condition:  # an update, too, may bring a row among those that meet it
            came += rows.ops[begin:].count(OP_UPDATE)
        if came and has_begun_here:
            self.state = rows_arrived(self.state, came)


def _identity(schema: TableSchema) -> Callable[[bytes, bytes], bytes]:
    """From a row's image and key to its identity in its table: the key, or where ``key_columns`` chose one
    that several rows may share, its own. Empty: nothing does."""
    own = row_key(schema)
    if not own or has_row_in_key(schema):
        return lambda image, key_json: key_json if own else b""
    return lambda image, key_json: _own_key(own, orjson.loads(image))


def _identities(schema: TableSchema, rows: RunRows) -> Iterator[bytes]:
    """Of the rows that a run's events are about, before and after."""
    if has_row_in_key(schema):
        yield from rows.keys()
        return
    own = row_key(schema)
    for event in map(orjson.loads, rows.values()):
        for image in filter(None, (event["before"], event["after"])):
            yield _own_key(own, image)


def _own_key(own: Sequence[str], image: Mapping[str, Any]) -> bytes:
    return orjson.dumps([image[name] for name in own])
