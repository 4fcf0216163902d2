"""From the log's bytes to batches: events ▶ transactions ▶ rows as Debezium events, in log order.

``LogDecoder`` is fed the events one after another. Its parts keep the state that the log itself has: ``log_place`` the file,
``log_tables`` the table maps and schemas, ``xa`` rows that wait for their commit, ``row_runs`` the rows of the open
transaction. It talks to nobody: a DDL statement is handed out
(``feed`` yields it) and the caller brings the new schemas back, so that everything here is tested from recorded bytes.

Orders: ``rank`` is the number of transactions executed before and with this one (for the gapless sets that a server
writes, the sum of the GTID sequence numbers), or without GTIDs its place (``rank_of_place``); the ordinal counts a
transaction's delivered row events from 1. Both depend on nothing but the log and the settings, so a replay gives them again.
"""

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from libs.errors import PipelineHalted
from libs.events.batch import BatchBuilder
from libs.events.dead_letter import UndecodedRow
from libs.events.envelope import json_text
from libs.events.run_rows import RunRows
from libs.mysql import binlog_events as events
from libs.mysql.binlog_position import BinlogPosition, rank_of_place
from libs.mysql.gtid import ExecutedGtids, GtidSet
from libs.mysql.packets import Packets
from libs.mysql.transaction_payload import inner_events, whole_events
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from services.binlog_reader.log_place import LogPlace
from services.binlog_reader.log_tables import LogTables
from services.binlog_reader.row_runs import RowRuns
from services.binlog_reader.statements import RowStatement, Statements
from services.binlog_reader.transaction import HeldTransaction, Transaction
from services.binlog_reader.xa import XaTransactions

_CRC32: Final = 1


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
    """A captured table of which the log has rows, and of which no schema is known (``LogTables.learn``)."""

    table_id: TableId


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
        """After its last row."""
        ...

    def log_is_silent(self) -> None:
        """A heartbeat: the server has nothing newer."""
        ...


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


class LogProgress:
    """The transactions that are done, and the newest of them."""

    def __init__(self, position: BinlogPosition, executed: ExecutedGtids | None) -> None:
        self.executed = executed
        """None for a server without GTIDs."""
        self.last_transaction = position.last_transaction
        self.last_committed_at_us = position.last_committed_at_us
        self.committed_at_us = 0
        """Commit time of the newest transaction that ended here."""
        self.last_order = EventOrder(epoch=position.epoch, rank=position.rank, tx_ordinal=0)
        """Order of the last event that ended."""
        self.transactions = 0
        """That ended since the log was opened."""

    def order_of_next(self, place: LogPlace, at: int) -> EventOrder:
        """The order of the transaction that begins at ``at``: by GTID it is one more than those executed."""
        rank = self.executed.rank() + 1 if self.executed is not None else rank_of_place(place.file, at)
        return EventOrder(epoch=self.last_order.epoch, rank=rank, tx_ordinal=0)

    def end(self, transaction: Transaction) -> None:
        """A transaction is done."""
        if self.executed is not None:
            self.executed.add(transaction.event.uuid, transaction.event.tag, transaction.event.number)
            self.last_transaction = transaction.gtid
            self.last_committed_at_us = transaction.committed_at_us
        self.transactions += 1
        self.committed_at_us = transaction.committed_at_us
        self.last_order = EventOrder(
            epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows
        )


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
        self._passed = passed
        self._rows_events = frozenset(
            kind for kind, operation in _OPERATION_OF_EVENT.items() if operation not in passed.operations
        )
        self._checksum_bytes = checksum_bytes
        self._place = LogPlace(position.file, position.pos, position.file_made_at_s)
        self._transaction: Transaction | None = None
        self._xa = XaTransactions(is_captured, spill_dir)
        self.progress = LogProgress(position, executed)
        self.tables = LogTables(
            source,
            position,
            schemas,
            self._place,
            is_captured=is_captured,
            unavailable_placeholder=unavailable_placeholder,
        )
        self.statements = Statements(self.tables)
        self._rows = RowRuns(
            source,
            self.tables,
            self._place,
            batch,
            transaction_metadata=transaction_metadata,
            takes_alone=bool(passed.operations),
            set_aside=set_aside,
            watch=watch,
        )

    @property
    def is_between_transactions(self) -> bool:
        """The log may be resumed from here."""
        return self._transaction is None

    @property
    def position(self) -> BinlogPosition:
        """Where the log stands; to resume from only between transactions."""
        progress = self.progress
        return BinlogPosition(
            gtid_set=self._done(),
            file=self._place.file,
            pos=self._place.pos,
            epoch=progress.last_order.epoch,
            by_file=progress.executed is None,
            last_transaction=progress.last_transaction,
            last_committed_at_us=progress.last_committed_at_us,
            file_made_at_s=self._place.made_at_s,
            quarantined=self.tables.quarantined,
            unseen=self.tables.unseen,
        )

    @property
    def executed(self) -> GtidSet:
        """Every transaction that the log has shown whole, or that was executed where it was opened; empty without GTIDs."""
        return self.progress.executed.snapshot() if self.progress.executed is not None else GtidSet()

    def _done(self) -> str:
        """``executed`` without prepared transactions."""
        if self.progress.executed is None:
            return ""
        if not self._xa.has_prepared:
            return self.progress.executed.text()
        return str(self._xa.not_done(self.progress.executed.snapshot()))

    def tick(self, now_ns: int) -> None:
        """The time that the next events are marked with as processed."""
        self._rows.tick(now_ns)

    def feed(self, log: Packets) -> Iterator[Step]:
        """Take the events of ``log``, one after another.

        Yields a DDL statement before anything after it is taken (``LogTables.apply_schemas`` comes before the next step), a
        table that is unknown before its rows are (``LogTables.learn``, or else SchemaUnknown), and None wherever the batch may
        be taken: after each transaction, and inside one when a run was closed for its size.

        Raises UndecodableValue, SchemaUnknown, SchemaContradiction, PipelineHalted; the message names the place.
        """
        data, nth = log.data, 0
        tables, rows, xa = self.tables, self._rows, self._xa
        while nth < len(log):
            place, end = log[nth]
            kind = data[place + events.KIND_OFFSET]
            if xa.holding is not None and kind in _HELD_EVENTS:
                xa.hold(xa.holding, kind, events.without_checksum(data[place:end], self._checksum_bytes))
            elif kind == events.TABLE_MAP:
                layout = data[place + events.HEADER_BYTES : end - self._checksum_bytes]
                if layout != tables.last_map:
                    unknown = tables.unknown_table(layout)
                    if unknown is not None:
                        yield UnknownTable(unknown)
                    tables.map(layout, self._gtid_text())
            elif kind in self._rows_events or (kind == events.WRITE_ROWS and self._is_heard(data, place)):
                transaction = self._transaction
                run = rows.run_of(transaction, data, place)
                if run is not None and transaction is not None:
                    nth = rows.decode(run, transaction, log, nth, self._checksum_bytes)
                    if rows.is_long:
                        rows.close()
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
        timestamp, _, server_id, size, end_position, flags = events.read_header(data, place)
        body = place + events.HEADER_BYTES
        end -= self._checksum_bytes
        if kind == events.XID:
            self._place.advance(end_position)
            self._end_transaction()
        elif kind == events.GTID:
            self._begin_transaction(events.parse_gtid(data[body:end]), end_position - size)
        elif kind == events.GTID_TAGGED:
            self._begin_transaction(events.parse_gtid_tagged(data[body:end]), end_position - size)
        elif kind == events.ANONYMOUS_GTID:
            if self.progress.executed is not None:
                raise self._without_gtid(end_position - size)
            self._begin_transaction(events.parse_gtid(data[body:end]), end_position - size)
        elif kind == events.XA_PREPARE:
            self._place.advance(end_position)
            self._end_prepare(*events.parse_xa_prepare(data[body:end]))
        elif kind == events.QUERY:
            is_of_thread = bool(flags & events.THREAD_SPECIFIC)
            return self._statement(
                events.parse_query(data[body:end], flags), server_id, end_position, size, is_of_thread
            )
        elif kind == events.EXECUTE_LOAD_QUERY:
            query = events.parse_load_query(data[body:end])
            return self.statements.row_statement(query, self._transaction_at(end_position - size))
        elif kind == events.ROTATE:
            self._place.rotate(data[body:end])
        elif kind == events.FORMAT_DESCRIPTION:
            self._place.made_at_s = timestamp  # also where the dump begins within the file
            # Its own last byte before the checksum says whether this file's events carry one.
            self._checksum_bytes = events.CHECKSUM_BYTES if data[place + size - 5] == _CRC32 else 0
        elif kind in _HEARTBEATS and self._watch is not None:
            self._watch.log_is_silent()
        elif kind in _UNSUPPORTED:
            raise PipelineHalted(_UNSUPPORTED[kind] + f" (at {self._place.at(end_position)})")
        return None

    def feed_compressed(self, event: BinaryIO) -> Iterator[Step]:
        """Take a TRANSACTION_PAYLOAD event; yields and raises as ``feed``. The checksum after it may be there or not."""
        _, _, _, size, end_position, _ = events.read_header(event.read(events.HEADER_BYTES), 0)
        outer_checksum_bytes, self._checksum_bytes = self._checksum_bytes, 0  # the events inside have none
        self._place.payload_end = end_position
        try:
            for inner in inner_events(event, at=end_position - size):
                yield from self.feed(inner)
        finally:
            self._checksum_bytes = outer_checksum_bytes
            self._place.payload_end = 0

    def _is_heard(self, data: bytes, place: int) -> bool:
        """A skipped rows event is of the table by which signals come."""
        body = place + events.HEADER_BYTES
        table = self.tables.by_number.get(data[body : body + events.TABLE_ID_BYTES])
        return table is not None and str(table.schema.table_id) == self._passed.heard

    # --- transactions ----------------------------------------------------------------------------------------------------

    def _begin_transaction(self, gtid: events.GtidEvent, at: int) -> None:
        at = self._place.unwrapped(at)
        text = str(gtid) if gtid.number else f"file={self._place.file},pos={at}"
        self._transaction = Transaction(
            gtid=text,
            event=gtid,
            order=self.progress.order_of_next(self._place, at),
            committed_at_us=gtid.committed_at_us,
            gtid_json=json_text(text) if gtid.number else b"null",
            is_passed=bool(gtid.number) and self._passed.is_gtid_passed(gtid.uuid),
        )
        self._rows.close()
        if self._watch is not None:
            self._watch.transaction_begins((gtid.uuid, gtid.tag, gtid.number))

    def _end_transaction(self) -> None:
        transaction, self._transaction = self._transaction, None
        self._rows.close()
        if transaction is None:
            return
        if self._watch is not None:
            self._watch.transaction_ends((transaction.event.uuid, transaction.event.tag, transaction.event.number))
        self.progress.end(transaction)
        self._rows.end(transaction)

    def _statement(
        self, query: events.QueryEvent, server_id: int, end_position: int, size: int, uses_temporary: bool
    ) -> DdlStatement | RowStatement | None:
        self._place.advance(end_position)
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
        step: DdlStatement | RowStatement | None = None
        if self.statements.may_change_rows(query):
            where = self._transaction_at(end_position - size)
            step = self.statements.row_statement(query, where, uses_temporary=uses_temporary)
        elif self.statements.changes_schemas(query, uses_temporary=uses_temporary):
            step = self._ddl(transaction, query, server_id, end_position - size)
        # CREATE TABLE … SELECT and temporary tables stand between BEGIN and its end too: that alone ends the transaction.
        if not transaction.is_open:
            self._end_transaction()
        return step

    def _ddl(self, transaction: Transaction, query: events.QueryEvent, server_id: int, at: int) -> DdlStatement:
        return DdlStatement(
            database=query.database,
            statement=query.statement,
            order=EventOrder(epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows),
            position=self.position,
            committed_at_us=transaction.committed_at_us,
            server_id=server_id,
            event_position=at,
            thread_id=query.thread_id,
            transaction_id=transaction.gtid,
            gtid=transaction.gtid if transaction.event.number else None,
            query=query,
        )

    def _without_gtid(self, at: int) -> PipelineHalted:
        return PipelineHalted(
            f"the log has a transaction without a GTID at {self._place.at(at)}: "
            "set gtid_mode=ON at the source and re-snapshot it"
        )

    def _gtid_text(self) -> str:
        return self._transaction.gtid if self._transaction is not None else "none"

    def _transaction_at(self, at: int) -> str:
        """The open transaction and a place, for a message."""
        return f"transaction {self._gtid_text()}, {self._place.at(at)}"

    # --- XA ----------------------------------------------------------------------------------------------------------------

    def _xa_statement(self, transaction: Transaction, query: events.QueryEvent, at: int) -> None:
        """XA START opens a part that XA_PREPARE ends; XA COMMIT and XA ROLLBACK end a prepared one in a transaction of their
        own.

        Names as the log writes them: ``XA COMMIT X'7831',X'62',7``.
        """
        _, verb, *rest = query.statement.split(None, 2)
        xid = rest[0] if rest else ""
        transaction.thread_id = query.thread_id
        match verb:
            case "START":
                self._xa.start(transaction.event, self._place.file)
            case "COMMIT":
                transaction.xa = self._xa.take(xid)
                if transaction.xa is None:
                    raise PipelineHalted(
                        f"XA transaction {xid} was prepared before the log was followed, so its rows are not known "
                        f"(transaction {transaction.gtid}, {self._place.at(at)}): re-snapshot the source"
                    )
            case "ROLLBACK":
                if (prepared := self._xa.take(xid)) is not None:
                    prepared.events.close()
                self._end_transaction()

    def _end_prepare(self, xid: str, is_one_phase: bool) -> None:
        held, transaction = self._xa.end(), self._transaction
        if held is None or transaction is None:
            return
        if is_one_phase:
            transaction.xa = held
            return
        if self.progress.executed is None:
            raise PipelineHalted(
                f"XA transaction {xid} was prepared (at {self._place.now}), which cannot be followed without GTIDs: set "
                "gtid_mode=ON at the source and re-snapshot it"
            )
        self._xa.prepare(xid, held)
        self._end_transaction()

    def _feed_prepared(self, transaction: Transaction, prepared: HeldTransaction) -> Iterator[Step]:
        """The rows of a prepared transaction, as those of the one that commits it."""
        outer_checksum_bytes, outer_file = self._checksum_bytes, self._place.file
        self._checksum_bytes = 0
        self._place.enter(prepared.file)
        self.tables.last_map = b""
        transaction.xa = None
        try:
            prepared.events.seek(0)
            for part in whole_events(prepared.events, "XA transaction"):
                yield from self.feed(part)
        finally:
            self._checksum_bytes = outer_checksum_bytes
            self._place.enter(outer_file)
            prepared.events.close()
        self._end_transaction()


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
