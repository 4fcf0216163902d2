"""From the log's bytes to batches: events ▶ transactions ▶ rows as Debezium events, in log order.

``LogDecoder`` is fed the events one after another. It keeps the state that the log itself has: the file, the transactions
done, the table maps, the schemas, the transaction that is open. It talks to nobody: a DDL statement is handed out
(``feed`` yields it) and the caller brings the new schemas back, so that everything here is tested from recorded bytes.

Orders: ``rank`` is the number of transactions executed before and with this one (for the gapless sets that a server
writes, the sum of the GTID sequence numbers), or without GTIDs its place (``rank_of_place``); the ordinal counts a
transaction's delivered row events from 1. Both depend on nothing but the log and the settings, so a replay gives them again.

An XA transaction stands in the log when it is prepared, which is no commit. Its rows are held until its XA COMMIT, whose order
they get, and dropped at its XA ROLLBACK. Until then its GTID is left out of the position: the server sends it again to a
reader that starts again.
"""

import io
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, Final, Protocol, cast

import structlog

from libs.errors import PipelineHalted, SchemaContradiction, SchemaUnknown, UndecodableValue, is_of_all, refusal_of
from libs.events.batch import BatchBuilder, RowRun
from libs.events.dead_letter import UndecodedRow
from libs.events.envelope import MysqlSourceBlock, event_tail, json_text, source_tail
from libs.events.run_rows import RunRows
from libs.formats.row_images import EventFrame
from libs.mysql import binlog_events as events
from libs.mysql.binlog_position import BinlogPosition, rank_of_place
from libs.mysql.ddl_syntax import temporary_tables
from libs.mysql.gtid import ExecutedGtids, GtidSet
from libs.mysql.packets import Packets
from libs.mysql.row_events import RowsDecoder
from libs.mysql.row_image import rows_decoder, undecodable, wire_columns
from libs.mysql.sql_lexer import UnreadableSql, first_words, names_in, sql_mode_of
from libs.mysql.table_map_metadata import parse_facts, require_agreement
from libs.mysql.transaction_payload import inner_events, whole_events
from libs.source.spill import out_of_room_named
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from services.binlog_reader.position import SOURCE_PARTITION

log = structlog.get_logger()

_CRC32: Final = 1
_MAX_RUN_BYTES: Final = 500_000
"""A run is closed at about so many bytes of JSON, so that a transaction of one table can be cut into batches too."""
_DDL: Final = frozenset({"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"})
_WITHOUT_ROWS: Final = frozenset(
    {"ANALYZE", "FLUSH", "GRANT", "INSTALL", "OPTIMIZE", "RELEASE", "REPAIR", "REVOKE", "ROLLBACK", "SAVEPOINT", "SET",
     "UNINSTALL", "XA"}
)  # fmt: skip
"""Statements of the log that change no row. All others that are no DDL may change some, be it by a function that they call."""
_OF_ONE_TABLE: Final = frozenset(
    {("ALTER", "TABLE"), ("DROP", "INDEX")} | {("CREATE", kind) for kind in ("INDEX", "UNIQUE", "FULLTEXT", "SPATIAL")}
)
"""Statements that are of a temporary table if they use any."""
_HELD_IN_MEMORY_BYTES: Final = 4 << 20
"""Of one prepared XA transaction; the rest goes to a file."""


@dataclass(frozen=True, slots=True)
class DdlStatement:
    """A statement of the log that may change schemas; everything before it has been decoded."""

    database: str
    statement: str
    order: EventOrder
    position: BinlogPosition
    committed_at_us: int
    server_id: int
    event_position: int
    thread_id: int
    transaction_id: str
    gtid: str | None
    """None: the server has none."""
    query: events.QueryEvent
    """The log's facts of the session beside the text."""


@dataclass(frozen=True, slots=True)
class UnknownTable:
    """A captured table of which the log has rows, and of which no schema is known (``LogDecoder.learn``)."""

    table_id: TableId


@dataclass(frozen=True, slots=True)
class RowStatement:
    """A change that the log has as a statement, without its rows; the captured tables that it names are quarantined already."""

    database: str
    names: frozenset[str]
    """Every word that may be a name, in lower case."""
    where: str


Step = DdlStatement | RowStatement | UnknownTable | None


class LogWatch(Protocol):
    """Called for the log's content, in its order (``incremental.IncrementalCopy``)."""

    is_due: bool
    """Something is to be put into the batch before any row that follows: the decoder yields."""

    def transaction_begins(self, gtid: tuple[str, str, int]) -> None:
        """uuid, tag and number of a transaction, before its first row."""
        ...

    def rows_begin(self, table_id: TableId, rows: RunRows) -> None:
        """Rows of a table will be written into ``rows`` until the next call of any of these."""
        ...

    def transaction_ends(self, gtid: tuple[str, str, int]) -> None:
        """Behind its last row."""
        ...

    def log_is_silent(self) -> None:
        """A heartbeat: the server has nothing newer."""
        ...


@dataclass(frozen=True, slots=True)
class _Table:
    """A captured table at its present version, with the common parts of its rows events."""

    schema: TableSchema
    decoder: RowsDecoder
    source_block: MysqlSourceBlock


@dataclass(frozen=True, slots=True)
class _OpenRun:
    """Rows of one table and transaction that are being gathered, with the common parts of their values."""

    table: _Table
    rows: RunRows
    frame: EventFrame


@dataclass(frozen=True, slots=True)
class Passed:
    """Parts of the log that are passed over on purpose."""

    operations: frozenset[str] = frozenset()
    """``c``, ``u``, ``d``, ``t``."""
    is_gtid_passed: Callable[[str], bool] = lambda _: False
    """Rows of transactions that this server (its uuid) numbered; their DDL counts."""
    heard: str = ""
    """A table (``database.table``) whose new rows are not passed over, in spite of ``operations``: signals come by them."""


_PASS_NOTHING: Final = Passed()


@dataclass(frozen=True, slots=True)
class _XaTransaction:
    """One that is prepared, or on its way to it: its captured tables' events, as the log has them."""

    gtid: events.GtidEvent
    file: str
    events: IO[bytes]
    captured: set[bytes] = field(default_factory=set)
    """Numbers of the tables whose rows are held."""


@dataclass(slots=True)
class _Transaction:
    gtid: str
    """Of a server without GTIDs: the transaction's place, as Debezium names it."""
    event: events.GtidEvent
    order: EventOrder
    committed_at_us: int
    gtid_json: bytes
    is_passed: bool
    xa: _XaTransaction | None = None
    """The prepared one that this ends."""
    rows: int = 0
    rows_by_table: dict[TableId, int] = field(default_factory=dict)
    thread_id: int = 0
    has_begun: bool = False
    """Its BEGIN was published."""
    is_open: bool = False
    """The log has its BEGIN: statements within do not end it."""


class LogDecoder:
    """Decodes one server's log from a position on."""

    def __init__(
        self,
        source: str,
        position: BinlogPosition,
        executed: ExecutedGtids | None,
        schemas: Mapping[TableId, TableSchema],
        *,
        is_captured: Callable[[TableId], bool],
        batch: BatchBuilder,
        checksum_bytes: int,
        transaction_metadata: bool,
        unavailable_placeholder: str | None = None,
        set_aside: Callable[[UndecodedRow], None] | None = None,
        watch: LogWatch | None = None,
        passed: Passed = _PASS_NOTHING,
        spill_dir: Path | None = None,
    ) -> None:
        """``executed``: None for a server without GTIDs, whose log is followed by file and place."""
        self._watch = watch
        self._source = source
        self._passed = passed
        self._rows_events = frozenset(
            kind for kind, operation in _OPERATION_OF_EVENT.items() if operation not in passed.operations
        )
        self._spill_dir = spill_dir
        self._unavailable_placeholder = unavailable_placeholder
        self._set_aside = set_aside
        self._executed = executed
        self._is_captured = is_captured
        self._batch = batch
        self._checksum_bytes = checksum_bytes
        self._transaction_metadata = transaction_metadata
        self._epoch = position.epoch
        self._last_transaction = position.last_transaction
        self._last_committed_at_us = position.last_committed_at_us
        self._file = position.file
        self._file_json = json_text(position.file)
        self._pos = position.pos
        self._schemas = dict(schemas)
        self._tables_by_map: dict[bytes, _Table | None] = {}
        self._tables_by_id: dict[bytes, _Table | None] = {}
        self._last_map = b""
        self._run_number = b""
        """Under which the open run's table was mapped last."""
        self._source_blocks: dict[TableId, MysqlSourceBlock] = {}
        self._transaction: _Transaction | None = None
        self._holding: _XaTransaction | None = None
        """An XA transaction whose events are being read."""
        self._prepared: dict[str, _XaTransaction] = {}
        """By their xid, as XA COMMIT names it."""
        self._quarantined = dict(position.quarantined)
        self._unseen = dict(position.unseen)
        self._temporary: dict[int, set[TableId]] = {}
        """In lower case: temporary tables that statements of the log made, by the session's thread."""
        self._ddl_of: dict[TableId, str] = {}
        """The last statement that changed a table, where it was read here."""
        self._run: _OpenRun | None = None
        self._room = 0
        self._payload_end = 0
        """Where the compressed transaction ends that is being read; 0: none is."""
        self._tails = _tails(time.time_ns())
        self.committed_at_us = 0
        """Commit time of the newest transaction that ended."""
        self.last_order = EventOrder(epoch=position.epoch, rank=position.rank, tx_ordinal=0)
        """Order of the last event that ended."""
        self.transactions = 0

    @property
    def is_between_transactions(self) -> bool:
        """The log may be resumed from here."""
        return self._transaction is None

    @property
    def position(self) -> BinlogPosition:
        """Where the log stands; to resume from only between transactions."""
        return BinlogPosition(
            gtid_set=self._done(),
            file=self._file,
            pos=self._pos,
            epoch=self._epoch,
            by_file=self._executed is None,
            last_transaction=self._last_transaction,
            last_committed_at_us=self._last_committed_at_us,
            quarantined=self._quarantined,
            unseen=self._unseen,
        )

    @property
    def quarantined(self) -> Mapping[str, str]:
        """Tables whose rows are passed over because they could not be read rightly, each with the reason."""
        return self._quarantined

    @property
    def unseen(self) -> Mapping[str, str]:
        """Tables with rows that changed without the log, each with the cause, until all of it was read again."""
        return self._unseen

    def note_unseen(self, table_id: TableId, reason: str) -> None:
        """Rows of a table changed, and the log does not have it."""
        self._unseen[str(table_id)] = reason

    def seen_again(self, table: str) -> None:
        """A table was read again from its beginning for everybody, or it was emptied or dropped."""
        self._unseen.pop(table, None)

    @property
    def executed(self) -> GtidSet:
        """Every transaction that the log has shown whole, or that was executed where it was opened; empty without GTIDs."""
        return self._executed.snapshot() if self._executed is not None else GtidSet()

    def _done(self) -> str:
        """``executed`` without prepared transactions."""
        if self._executed is None:
            return ""
        if not self._prepared:
            return self._executed.text()
        held = GtidSet()
        for prepared in self._prepared.values():
            held = held.add(prepared.gtid.uuid, prepared.gtid.tag, prepared.gtid.number)
        return str(self._executed.snapshot().subtract(held))

    @property
    def schemas(self) -> Mapping[TableId, TableSchema]:
        """The captured tables as they are at this place of the log."""
        return self._schemas

    def tick(self, now_ns: int) -> None:
        """The time that the next events are marked with as processed."""
        self._tails = _tails(now_ns)

    def feed(self, log: Packets) -> Iterator[Step]:
        """Take the events of ``log``, one after another.

        Yields a DDL statement before anything after it is taken (``apply_schemas`` comes before the next step), a table that
        is unknown before its rows are (``learn``, or else SchemaUnknown), and None wherever the batch may be taken: after each
        transaction, and inside one when a run was closed for its size.

        Raises UndecodableValue, SchemaUnknown, SchemaContradiction, PipelineHalted; the message names the place.
        """
        data, nth = log.data, 0
        while nth < len(log):
            place, end = log[nth]
            kind = data[place + events.KIND_OFFSET]
            if self._holding is not None and kind in _HELD_EVENTS:
                self._hold(self._holding, kind, events.without_checksum(data[place:end], self._checksum_bytes))
            elif kind == events.TABLE_MAP:
                layout = data[place + events.HEADER_BYTES : end - self._checksum_bytes]
                if layout != self._last_map:
                    unknown = self._unknown_table(layout)
                    if unknown is not None:
                        yield unknown
                    self._map_table(layout)
            elif kind in self._rows_events or (kind == events.WRITE_ROWS and self._is_heard(data, place)):
                run = self._run_of(data, place, end)
                if run is not None:
                    nth = self._rows(run, log, nth)
                    if self._room < 0:
                        self.flush()
                        yield None
                    continue
            elif kind == events.TRANSACTION_PAYLOAD:
                yield from self.feed_compressed(io.BytesIO(data[place : end - self._checksum_bytes]))
            else:
                ddl = self._other(kind, data, place, end)
                if self._transaction is not None and self._transaction.xa is not None:
                    yield from self._feed_prepared(self._transaction, self._transaction.xa)
                is_due = self._watch is not None and self._watch.is_due
                if ddl is not None or self._transaction is None or is_due:
                    yield ddl
            nth += 1

    def _other(self, kind: int, data: bytes, place: int, end: int) -> DdlStatement | RowStatement | None:
        _, _, server_id, size, end_position, flags = events.read_header(data, place)
        body = place + events.HEADER_BYTES
        end -= self._checksum_bytes
        if kind == events.XID:
            self._pos = self._unwrapped(end_position)
            self._end_transaction()
        elif kind == events.GTID:
            self._begin_transaction(events.parse_gtid(data[body:end]), end_position - size)
        elif kind == events.GTID_TAGGED:
            self._begin_transaction(events.parse_gtid_tagged(data[body:end]), end_position - size)
        elif kind == events.ANONYMOUS_GTID:
            if self._executed is not None:
                raise self._without_gtid(end_position - size)
            self._begin_transaction(events.parse_gtid(data[body:end]), end_position - size)
        elif kind == events.XA_PREPARE:
            self._pos = self._unwrapped(end_position)
            self._end_prepare(*events.parse_xa_prepare(data[body:end]))
        elif kind == events.QUERY:
            is_of_thread = bool(flags & events.THREAD_SPECIFIC)
            return self._statement(
                events.parse_query(data[body:end], flags), server_id, end_position, size, is_of_thread
            )
        elif kind == events.EXECUTE_LOAD_QUERY:
            return self._report_statement(events.parse_load_query(data[body:end]), end_position - size)
        elif kind == events.ROTATE:
            self._rotate(data[body:end])
        elif kind == events.FORMAT_DESCRIPTION:
            # Its own last byte before the checksum says whether this file's events carry one.
            self._checksum_bytes = events.CHECKSUM_BYTES if data[place + size - 5] == _CRC32 else 0
        elif kind in _HEARTBEATS and self._watch is not None:
            self._watch.log_is_silent()
        elif kind in _UNSUPPORTED:
            raise PipelineHalted(_UNSUPPORTED[kind] + f" (at {self._where(end_position)})")
        return None

    def feed_compressed(self, event: BinaryIO) -> Iterator[Step]:
        """Take a TRANSACTION_PAYLOAD event; yields and raises as ``feed``. The checksum after it may be there or not."""
        _, _, _, size, end_position, _ = events.read_header(event.read(events.HEADER_BYTES), 0)
        outer_checksum_bytes, self._checksum_bytes = self._checksum_bytes, 0  # the events inside have none
        self._payload_end = end_position
        try:
            for inner in inner_events(event, at=end_position - size):
                yield from self.feed(inner)
        finally:
            self._checksum_bytes = outer_checksum_bytes
            self._payload_end = 0

    def apply_schemas(self, schemas: Mapping[TableId, TableSchema | None], statement: str = "") -> None:
        """Schemas that are in force from here on, by which statement; None: the table is gone, and a quarantine with it."""
        for table_id, schema in schemas.items():
            self._ddl_of[table_id] = statement
            if schema is None:
                self._schemas.pop(table_id, None)
                self._ddl_of.pop(table_id)
                self.release(table_id)
                self.seen_again(str(table_id))
            else:
                self._schemas[table_id] = schema
        self._forget_tables()

    def learn(self, schema: TableSchema) -> None:
        """The schema of a table that was unknown."""
        self._schemas[schema.table_id] = schema

    def quarantine(self, table_id: TableId, reason: str) -> None:
        """Pass over the rows of a table from here on; all other tables go on."""
        self._quarantined[str(table_id)] = reason
        self._forget_tables()

    def release(self, table_id: TableId) -> None:
        """End a quarantine: the table's rows have been read again, with the schema that is known of it now."""
        if self._quarantined.pop(str(table_id), None) is not None:
            self._forget_tables()

    def _forget_tables(self) -> None:
        self._tables_by_map.clear()
        self._tables_by_id.clear()
        self._last_map = b""
        self.flush()

    def flush(self) -> None:
        """Close the open run, so that the batch can be taken; decoding goes on with a new one."""
        self._run = None
        self._batch.close_run()

    # --- transactions ----------------------------------------------------------------------------------------------------

    def _begin_transaction(self, gtid: events.GtidEvent, at: int) -> None:
        at = self._unwrapped(at)
        text = str(gtid) if gtid.number else f"file={self._file},pos={at}"
        # By GTID: this transaction is one more than those executed.
        rank = self._executed.rank() + 1 if self._executed is not None else rank_of_place(self._file, at)
        self._transaction = _Transaction(
            gtid=text,
            event=gtid,
            order=EventOrder(epoch=self._epoch, rank=rank, tx_ordinal=0),
            committed_at_us=gtid.committed_at_us,
            gtid_json=json_text(text) if gtid.number else b"null",
            is_passed=bool(gtid.number) and self._passed.is_gtid_passed(gtid.uuid),
        )
        self._run = None
        if self._watch is not None:
            self._watch.transaction_begins((gtid.uuid, gtid.tag, gtid.number))

    def _end_transaction(self) -> None:
        transaction, self._transaction = self._transaction, None
        self.flush()
        if transaction is None:
            return
        if self._watch is not None:
            self._watch.transaction_ends((transaction.event.uuid, transaction.event.tag, transaction.event.number))
        if self._executed is not None:
            self._executed.add(transaction.event.uuid, transaction.event.tag, transaction.event.number)
            self._last_transaction = transaction.gtid
            self._last_committed_at_us = transaction.committed_at_us
        self.transactions += 1
        self.committed_at_us = transaction.committed_at_us
        self.last_order = EventOrder(
            epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows
        )
        if self._transaction_metadata and transaction.rows:
            self._batch.add_end(transaction.gtid, transaction.committed_at_us, tuple(transaction.rows_by_table.items()))

    def _statement(
        self, query: events.QueryEvent, server_id: int, end_position: int, size: int, uses_temporary: bool
    ) -> DdlStatement | RowStatement | None:
        self._pos = self._unwrapped(end_position)
        transaction = self._transaction
        if transaction is None:
            raise self._without_gtid(end_position - size)
        if query.statement == "BEGIN":
            transaction.thread_id = query.thread_id
            transaction.is_open = True
            return None
        if query.statement in ("COMMIT", "ROLLBACK"):  # of an engine without transactions: its rows did happen
            self._end_transaction()
            return None
        if query.statement.startswith("XA "):
            self._xa_statement(transaction, query, end_position - size)
            return None
        verb, noun = self._words(query)
        ddl = DdlStatement(
            database=query.database,
            statement=query.statement,
            order=EventOrder(epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows),
            position=self.position,
            committed_at_us=transaction.committed_at_us,
            server_id=server_id,
            event_position=end_position - size,
            thread_id=query.thread_id,
            transaction_id=transaction.gtid,
            gtid=transaction.gtid if transaction.event.number else None,
            query=query,
        )
        if verb in _DDL:
            if noun == "TEMPORARY":
                self._follow_temporary(query)
        elif verb not in _WITHOUT_ROWS:
            rows = self._report_statement(query, end_position - size, uses_temporary)
            if not transaction.is_open:
                self._end_transaction()
            return rows
        # CREATE TABLE … SELECT and temporary tables stand between BEGIN and its end too: that alone ends the transaction.
        if not transaction.is_open:
            self._end_transaction()
        # The server splits a DROP of both kinds, RENAME is of none of them, and CREATE TABLE may but read one.
        is_of_temporary = uses_temporary and (verb == "TRUNCATE" or (verb, noun) in _OF_ONE_TABLE)
        return ddl if verb in _DDL and not is_of_temporary else None

    def _words(self, query: events.QueryEvent) -> tuple[str, str]:
        """The statement's first two words; of one that cannot be read none, so that it may change rows."""
        try:
            verb, noun = first_words(query.statement, sql_mode_of(query.sql_mode))
        except UnreadableSql:
            return "", ""
        return verb, noun

    def _follow_temporary(self, query: events.QueryEvent) -> None:
        """A temporary table hides one of its name from its session; the server ends each with a DROP of its own."""
        found = temporary_tables(query.statement, query.database, sql_mode_of(query.sql_mode))
        hidden = self._temporary.setdefault(query.thread_id, set())
        hidden -= set(found.dropped)
        hidden |= set(found.made)
        if not hidden:
            del self._temporary[query.thread_id]

    def _captured_in(self, query: events.QueryEvent) -> set[TableId]:
        """The captured tables that a statement may name."""
        return self._captured_of(names_in(query.statement, sql_mode_of(query.sql_mode)), query.database)

    def _captured_of(self, names: frozenset[str], database: str) -> set[TableId]:
        return {
            table_id
            for table_id in self._schemas
            if table_id.table.lower() in names
            and self._is_captured(table_id)
            and (database.lower() == table_id.database.lower() or table_id.database.lower() in names)
        }

    def _report_statement(self, query: events.QueryEvent, at: int, uses_temporary: bool = False) -> RowStatement:
        """A change that the log has as a statement: its rows are not there, so each table that it may concern is incomplete."""
        named = self._captured_in(query)
        hidden = self._temporary.get(query.thread_id, set())
        if uses_temporary:
            named = {table_id for table_id in named if _in_lower_case(table_id) not in hidden}
        where = f"transaction {self._gtid_text()}, {self._where(at)}"
        self._quarantine_incomplete(named, where)
        hidden_names = {table_id.table for table_id in hidden} if uses_temporary else set()
        return RowStatement(
            query.database, names_in(query.statement, sql_mode_of(query.sql_mode)) - hidden_names, where
        )

    def quarantine_reached(self, statement: RowStatement, names: frozenset[str]) -> None:
        """Quarantine the captured tables that a statement may have changed by way of others."""
        self._quarantine_incomplete(self._captured_of(names - statement.names, statement.database), statement.where)

    def _quarantine_incomplete(self, tables: set[TableId], where: str) -> None:
        for table_id in sorted(tables):
            if str(table_id) not in self._quarantined:
                self.quarantine(
                    table_id,
                    f"{table_id}: the log has a change of it as a statement, without its rows ({where}): SET GLOBAL "
                    "binlog_format = 'ROW', end the sessions that have another one, then re-snapshot the table",
                )

    def _without_gtid(self, at: int) -> PipelineHalted:
        return PipelineHalted(
            f"the log has a transaction without a GTID at {self._where(at)}: set gtid_mode=ON at the source and re-snapshot it"
        )

    def _gtid_text(self) -> str:
        return self._transaction.gtid if self._transaction is not None else "none"

    def _unwrapped(self, position: int) -> int:
        """A header's position, of which the log has 32 bits only, as the place in the file that it means."""
        if self._payload_end:
            position = self._payload_end
        unwrapped = self._pos & ~0xFFFFFFFF | position
        return unwrapped if unwrapped >= self._pos or position == 0 else unwrapped + (1 << 32)

    # --- XA ----------------------------------------------------------------------------------------------------------------

    def _xa_statement(self, transaction: _Transaction, query: events.QueryEvent, at: int) -> None:
        """XA START opens a part that XA_PREPARE ends; XA COMMIT and XA ROLLBACK end a prepared one in a transaction of their
        own.

        Names as the log writes them: ``XA COMMIT X'7831',X'62',7``.
        """
        _, verb, *rest = query.statement.split(None, 2)
        xid = rest[0] if rest else ""
        transaction.thread_id = query.thread_id
        match verb:
            case "START":
                folder = str(self._spill_dir) if self._spill_dir is not None else None
                held = tempfile.SpooledTemporaryFile(max_size=_HELD_IN_MEMORY_BYTES, dir=folder)  # noqa: SIM115
                self._holding = _XaTransaction(transaction.event, self._file, cast(IO[bytes], held))
            case "COMMIT":
                transaction.xa = self._prepared.pop(xid, None)
                if transaction.xa is None:
                    raise PipelineHalted(
                        f"XA transaction {xid} was prepared before the log was followed, so its rows are not known "
                        f"(transaction {transaction.gtid}, {self._where(at)}): re-snapshot the source"
                    )
            case "ROLLBACK":
                if (prepared := self._prepared.pop(xid, None)) is not None:
                    prepared.events.close()
                self._end_transaction()

    def _hold(self, held: _XaTransaction, kind: int, event: bytes) -> None:
        number = event[events.HEADER_BYTES : events.HEADER_BYTES + events.TABLE_ID_BYTES]
        if kind == events.TABLE_MAP:
            mapped = events.parse_table_map(event[events.HEADER_BYTES + events.TABLE_ID_BYTES :])
            held.captured.discard(number)
            if self._is_captured(TableId(database=mapped.database, table=mapped.table)):
                held.captured.add(number)
        if number in held.captured:
            with out_of_room_named(self._spill_dir):
                held.events.write(event)

    def _end_prepare(self, xid: str, is_one_phase: bool) -> None:
        held, transaction, self._holding = self._holding, self._transaction, None
        if held is None or transaction is None:
            return
        if is_one_phase:
            transaction.xa = held
            return
        if self._executed is None:
            raise PipelineHalted(
                f"XA transaction {xid} was prepared (at {self._where(self._pos)}), which cannot be followed without GTIDs: set "
                "gtid_mode=ON at the source and re-snapshot it"
            )
        self._prepared[xid] = held
        self._end_transaction()

    def _feed_prepared(self, transaction: _Transaction, prepared: _XaTransaction) -> Iterator[Step]:
        """The rows of a prepared transaction, as those of the one that commits it."""
        outer = (self._checksum_bytes, self._file, self._file_json)
        self._checksum_bytes, self._file, self._file_json = 0, prepared.file, json_text(prepared.file)
        self._last_map = b""
        transaction.xa = None
        try:
            prepared.events.seek(0)
            for part in whole_events(prepared.events, "XA transaction"):
                yield from self.feed(part)
        finally:
            self._checksum_bytes, self._file, self._file_json = outer
            prepared.events.close()
        self._end_transaction()

    def _rotate(self, body: bytes) -> None:
        file = events.parse_rotate(body)
        if file != self._file:
            self._file = file
            self._file_json = json_text(file)
        self._pos = int.from_bytes(body[:8], "little")

    # --- rows --------------------------------------------------------------------------------------------------------------

    def _map_table(self, whole: bytes) -> None:
        """A table map that is not the last one again; most were seen before, byte for byte but for the table's number."""
        self._last_map = whole
        number, layout = whole[: events.TABLE_ID_BYTES], whole[events.TABLE_ID_BYTES :]
        try:
            table = self._tables_by_map[layout]
        except KeyError:
            table = self._tables_by_map[layout] = self._table_of(events.parse_table_map(layout))
        self._tables_by_id[number] = table

    def _unknown_table(self, whole: bytes) -> UnknownTable | None:
        layout = whole[events.TABLE_ID_BYTES :]
        if layout in self._tables_by_map:
            return None
        mapped = events.parse_table_map(layout)
        table_id = TableId(database=mapped.database, table=mapped.table)
        is_known = table_id in self._schemas or str(table_id) in self._quarantined
        return None if is_known or not self._is_captured(table_id) else UnknownTable(table_id)

    def _is_heard(self, data: bytes, place: int) -> bool:
        """A skipped rows event is of the table by which signals come."""
        body = place + events.HEADER_BYTES
        table = self._tables_by_id.get(data[body : body + events.TABLE_ID_BYTES])
        return table is not None and str(table.schema.table_id) == self._passed.heard

    def _table_of(self, mapped: events.TableMapEvent) -> _Table | None:
        table_id = TableId(database=mapped.database, table=mapped.table)
        if not self._is_captured(table_id) or str(table_id) in self._quarantined:
            return None
        schema = self._schemas.get(table_id)
        if schema is None:
            raise SchemaUnknown(
                f"{table_id}: the log has rows at {self._file}:{self._pos} but the schema history does not know the "
                "table; was the history lost, and no table changed since? then start once with snapshot.mode: recovery; else "
                "re-snapshot the source, or exclude the table"
            )
        block = self._source_blocks.get(table_id)
        if block is None:
            block = self._source_blocks[table_id] = MysqlSourceBlock(self._source, mapped.database, mapped.table)
        try:
            decoder = rows_decoder(
                schema,
                wire_columns(mapped.column_types, mapped.metadata),
                unavailable=self._unavailable_placeholder,
            )
            require_agreement(schema, parse_facts(mapped.optional_metadata))
            return _Table(schema, decoder, block)
        except Exception as error:
            if is_of_all(error):
                raise
            if not isinstance(error, SchemaContradiction):
                log.error("refused_unforeseen", table=str(table_id), exc_info=error)
            statement = self._ddl_of.get(table_id)
            reason = str(error) if isinstance(error, SchemaContradiction) else f"{table_id}: {refusal_of(error)}"
            self._quarantined[str(table_id)] = (
                f"{reason} (transaction {self._gtid_text()}, {self._where(self._pos)}"
                + (f"; the statement that changed the table last: {shortened(statement)})" if statement else ")")
            )
            return None

    def _run_of(self, data: bytes, place: int, end: int) -> _OpenRun | None:
        """The open run for a rows event's table; None: nobody captures it."""
        body = place + events.HEADER_BYTES
        number = data[body : body + events.TABLE_ID_BYTES]
        table = self._tables_by_id[number]
        transaction = self._transaction
        if table is None or transaction is None or transaction.is_passed:
            return None
        run = self._run
        if run is None or run.table is not table:
            run = self._run = self._open_run(table, transaction, data, place)
        self._run_number = number
        return run

    def _rows(self, run: _OpenRun, log: Packets, first: int) -> int:
        """Decode a rows event and those of the same table after it; returns the number of the event to go on with."""
        transaction, decoder = self._transaction, run.table.decoder
        assert transaction is not None
        whole, offset = log, first
        if self._passed.operations:  # the decoder takes all rows events that stand side by side
            log, first = Packets(log.data, [log[first]]), 0
        try:
            nth, decoded, self._room = decoder.decode(
                run.frame, run.rows, log, first, self._run_number, self._last_map, self._checksum_bytes, self._room
            )
        except Exception as error:
            nth = self._pass_over(run.table, log, self._failure(run.table, error))
            return nth if log is whole else nth + offset
        if nth == first:
            raise UndecodableValue(f"{run.table.schema.table_id}: a rows event is cut off at {self._where(self._pos)}")
        if log is not whole:
            nth += offset
        transaction.rows += decoded
        if self._transaction_metadata:
            transaction.rows_by_table[run.table.schema.table_id] = run.frame.collection_order
        return nth

    def _failure(self, table: _Table, error: Exception) -> UndecodableValue:
        transaction, decoder = self._transaction, table.decoder
        assert transaction is not None
        failure = UndecodableValue(
            f"{undecodable(table.schema, decoder, error)} "
            f"(transaction {transaction.gtid}, {self._where(decoder.position)})"
        )
        failure.__cause__ = error
        return failure

    def _pass_over(self, table: _Table, log: Packets, failure: UndecodableValue) -> int:
        """Set aside the row that ``failure`` is of; returns the number of the event to go on with.

        Its place in the transaction's order stays its own, so a replay gives every other row the order it had.
        """
        transaction, decoder, schema = self._transaction, table.decoder, table.schema
        assert transaction is not None
        if self._set_aside is None:
            raise failure
        transaction.rows += decoder.added + 1
        run = self._run
        if run is not None and self._transaction_metadata:
            transaction.rows_by_table[schema.table_id] = run.frame.collection_order
        row, column = decoder.row, schema.columns[decoder.column].name
        images, has_more = decoder.pass_over(log, self._checksum_bytes)
        self._set_aside(
            UndecodedRow(
                source=self._source,
                source_partition=SOURCE_PARTITION,
                database=schema.table_id.database,
                table=schema.table_id.table,
                column=column,
                schema_version=schema.version,
                reason=str(failure),
                transaction_id=transaction.gtid,
                order=EventOrder(
                    epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows
                ),
                file=self._file,
                position=decoder.position,
                row=row,
                images=images,
            )
        )
        self.flush()
        return decoder.event if has_more else decoder.event + 1

    def _open_run(self, table: _Table, transaction: _Transaction, data: bytes, place: int) -> _OpenRun:
        """Rows events of one table that stand side by side in a transaction share a run."""
        self._room = _MAX_RUN_BYTES
        if self._transaction_metadata and not transaction.has_begun:
            transaction.has_begun = True
            self._batch.add_begin(transaction.gtid, transaction.committed_at_us)
        run = self._batch.open_run(
            RowRun(
                table_id=table.schema.table_id,
                schema_version=table.schema.version,
                transaction_id=transaction.gtid,
                first_order=EventOrder(
                    epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows + 1
                ),
                committed_at_us=transaction.committed_at_us,
                is_snapshot=False,
            )
        )
        if self._watch is not None:
            self._watch.rows_begin(table.schema.table_id, run.rows)
        head = table.source_block.head(
            time_us=transaction.committed_at_us,
            snapshot=b'"false"',
            server_id=events.read_header(data, place)[2],
            gtid=transaction.gtid_json,
            file=self._file_json,
        )
        middle = source_tail(transaction.thread_id)
        if self._transaction_metadata:
            middle += b',"transaction":{"id":%b,"total_order":' % json_text(transaction.gtid)
            frame = EventFrame(b',"source":' + head, middle, self._tails, b"}")
            frame.total_order = transaction.rows
            frame.collection_order = transaction.rows_by_table.get(table.schema.table_id, 0)
        else:
            frame = EventFrame(b',"source":' + head, middle + b',"transaction":null', self._tails)
        return _OpenRun(table, run.rows, frame)

    def _where(self, pos: int) -> str:
        return f"{self._file}:{pos}"


_UNSUPPORTED: Final = {
    events.INCIDENT: (
        "the server says that its log lacks changes (an incident event, as after a full disk): re-snapshot the source"
    ),
}


_HEARTBEATS: Final = frozenset((events.HEARTBEAT, events.HEARTBEAT_V2))
_OPERATION_OF_EVENT: Final = {
    events.WRITE_ROWS: "c",
    events.UPDATE_ROWS: "u",
    events.DELETE_ROWS: "d",
    events.PARTIAL_UPDATE_ROWS: "u",
}
_HELD_EVENTS: Final = frozenset((events.TABLE_MAP, *_OPERATION_OF_EVENT))


def shortened(statement: str) -> str:
    """A statement for a message."""
    text = " ".join(statement.split())
    return text if len(text) <= 200 else f"{text[:200]}…"


def _in_lower_case(table_id: TableId) -> TableId:
    return TableId(database=table_id.database.lower(), table=table_id.table.lower())


def _tails(now_ns: int) -> tuple[bytes, bytes, bytes]:
    """The ends of a create, an update and a delete."""
    create, update, delete = (event_tail(op, now_ns) for op in "cud")
    return create, update, delete
