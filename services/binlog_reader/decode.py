"""From the log's bytes to batches: events ▶ transactions ▶ rows as Debezium events, in log order.

``LogDecoder`` is fed the events one after another. It keeps the state that the log itself has: the file, the transactions
done, the table maps, the schemas, the transaction that is open. It talks to nobody: a DDL statement is handed out
(``feed`` yields it) and the caller brings the new schemas back, so that everything here is tested from recorded bytes.

Orders: ``rank`` is the number of transactions executed before and with this one (for the gapless sets that a server
writes, the sum of the GTID sequence numbers); the ordinal counts a transaction's delivered row events from 1. Both depend
on nothing but the log and the set of captured tables, so a replay gives them again.
"""

import io
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Final, Protocol

from libs.errors import PipelineHalted, SchemaUnknown, UndecodableValue
from libs.events.batch import BatchBuilder, RowRun
from libs.events.envelope import MysqlSourceBlock, event_tail, json_text, source_tail
from libs.events.run_rows import RunRows
from libs.mysql import binlog_events as events
from libs.mysql.gtid import ExecutedGtids, GtidSet
from libs.mysql.packets import Packets
from libs.mysql.row_events import EventFrame, RowsDecoder
from libs.mysql.row_image import rows_decoder, undecodable, wire_columns
from libs.mysql.transaction_payload import inner_events
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from services.binlog_reader.position import BinlogPosition

_CRC32: Final = 1
_MAX_RUN_BYTES: Final = 500_000
"""A run is closed at about so many bytes of JSON, so that a transaction of one table can be cut into batches too."""
_DDL: Final = re.compile(r"\s*(?:/\*.*?\*/\s*)*(CREATE|ALTER|DROP|RENAME|TRUNCATE)\b", re.IGNORECASE | re.DOTALL)


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
    gtid: str
    sql_mode: int


class LogWatch(Protocol):
    """Told of what the log shows, in its order (``incremental.IncrementalCopy``)."""

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
    """A captured table at its present version, with what all its rows events share."""

    schema: TableSchema
    decoder: RowsDecoder
    source_block: MysqlSourceBlock


@dataclass(frozen=True, slots=True)
class _OpenRun:
    """Rows of one table and transaction that are being gathered, with what all their values share."""

    table: _Table
    rows: RunRows
    frame: EventFrame


@dataclass(slots=True)
class _Transaction:
    gtid: str
    order: EventOrder
    committed_at_us: int
    uuid: str
    tag: str
    number: int
    gtid_json: bytes
    rows: int = 0
    rows_by_table: dict[TableId, int] = field(default_factory=dict)
    thread_id: int = 0
    has_begun: bool = False


class LogDecoder:
    """Decodes one server's log from a position on."""

    def __init__(
        self,
        source: str,
        position: BinlogPosition,
        executed: ExecutedGtids,
        schemas: Mapping[TableId, TableSchema],
        *,
        is_captured: Callable[[TableId], bool],
        batch: BatchBuilder,
        checksum_bytes: int,
        transaction_metadata: bool,
        watch: LogWatch | None = None,
    ) -> None:
        self._watch = watch
        self._source = source
        self._executed = executed
        self._is_captured = is_captured
        self._batch = batch
        self._checksum_bytes = checksum_bytes
        self._transaction_metadata = transaction_metadata
        self._epoch = position.epoch
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
        self._run: _OpenRun | None = None
        self._room = 0
        self._payload_end = 0
        """Where the compressed transaction ends that is being read; 0: none is."""
        self._tails = _tails(time.time_ns())
        self.committed_at_us = 0
        """Commit time of the newest transaction that ended."""
        self.last_order = EventOrder(epoch=position.epoch, rank=executed.rank(), tx_ordinal=0)
        """Order of the last event that ended."""
        self.transactions = 0

    @property
    def is_between_transactions(self) -> bool:
        """The log may be resumed from here."""
        return self._transaction is None

    @property
    def position(self) -> BinlogPosition:
        """Where the log stands; to resume from only between transactions."""
        return BinlogPosition(gtid_set=self._executed.text(), file=self._file, pos=self._pos, epoch=self._epoch)

    @property
    def executed(self) -> GtidSet:
        """Every transaction that the log has shown whole, or that was executed where it was opened."""
        return self._executed.snapshot()

    @property
    def schemas(self) -> Mapping[TableId, TableSchema]:
        """The captured tables as they are at this place of the log."""
        return self._schemas

    def tick(self, now_ns: int) -> None:
        """The time that the next events are marked with as processed."""
        self._tails = _tails(now_ns)

    def feed(self, log: Packets) -> Iterator[DdlStatement | None]:
        """Take the events of ``log``, one after another.

        Yields a DDL statement before anything behind it is taken (``apply_schemas`` comes before the next step), and None
        wherever the batch may be taken: behind each transaction, and inside one when a run was closed for its size.

        Raises UndecodableValue, SchemaUnknown, SchemaContradiction, PipelineHalted; the message names the place.
        """
        data, nth = log.data, 0
        while nth < len(log):
            place, end = log[nth]
            kind = data[place + events.KIND_OFFSET]
            if kind == events.TABLE_MAP:
                layout = data[place + events.HEADER_BYTES : end - self._checksum_bytes]
                if layout != self._last_map:
                    self._map_table(layout)
            elif kind in _ROWS_EVENTS:
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
                is_due = self._watch is not None and self._watch.is_due
                if ddl is not None or self._transaction is None or is_due:
                    yield ddl
            nth += 1

    def _other(self, kind: int, data: bytes, place: int, end: int) -> DdlStatement | None:
        _, _, server_id, size, end_position, _ = events.read_header(data, place)
        body = place + events.HEADER_BYTES
        end -= self._checksum_bytes
        if kind == events.XID:
            self._pos = self._payload_end or end_position
            self._end_transaction()
        elif kind == events.GTID:
            self._begin_transaction(events.parse_gtid(data[body:end]))
        elif kind == events.GTID_TAGGED:
            self._begin_transaction(events.parse_gtid_tagged(data[body:end]))
        elif kind == events.QUERY:
            return self._statement(events.parse_query(data[body:end]), server_id, end_position, size)
        elif kind == events.ROTATE:
            self._rotate(data[body:end])
        elif kind == events.FORMAT_DESCRIPTION:
            # Its own last byte before the checksum tells whether this file's events carry one.
            self._checksum_bytes = events.CHECKSUM_BYTES if data[place + size - 5] == _CRC32 else 0
        elif kind in _HEARTBEATS and self._watch is not None:
            self._watch.log_is_silent()
        elif kind in _UNSUPPORTED:
            raise PipelineHalted(_UNSUPPORTED[kind] + f" (at {self._where(end_position)})")
        return None

    def feed_compressed(self, event: BinaryIO) -> Iterator[DdlStatement | None]:
        """Take a TRANSACTION_PAYLOAD event; yields and raises as ``feed``. The checksum behind it may be there or not."""
        _, _, _, size, end_position, _ = events.read_header(event.read(events.HEADER_BYTES), 0)
        outer_checksum_bytes, self._checksum_bytes = self._checksum_bytes, 0  # the events inside have none
        self._payload_end = end_position
        try:
            for inner in inner_events(event, at=end_position - size):
                yield from self.feed(inner)
        finally:
            self._checksum_bytes = outer_checksum_bytes
            self._payload_end = 0

    def apply_schemas(self, schemas: Mapping[TableId, TableSchema | None]) -> None:
        """Schemas that are in force from here on; None: the table is gone."""
        for table_id, schema in schemas.items():
            if schema is None:
                self._schemas.pop(table_id, None)
            else:
                self._schemas[table_id] = schema
        self._tables_by_map.clear()
        self._tables_by_id.clear()
        self._last_map = b""
        self._run = None

    def flush(self) -> None:
        """Close the open run, so that the batch can be taken; decoding goes on with a new one."""
        self._run = None
        self._batch.close_run()

    # --- transactions ----------------------------------------------------------------------------------------------------

    def _begin_transaction(self, gtid: events.GtidEvent) -> None:
        text = str(gtid)
        self._transaction = _Transaction(
            gtid=text,
            # This transaction is one more than those executed.
            order=EventOrder(epoch=self._epoch, rank=self._executed.rank() + 1, tx_ordinal=0),
            committed_at_us=gtid.committed_at_us,
            uuid=gtid.uuid,
            tag=gtid.tag,
            number=gtid.number,
            gtid_json=json_text(text),
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
            self._watch.transaction_ends((transaction.uuid, transaction.tag, transaction.number))
        self._executed.add(transaction.uuid, transaction.tag, transaction.number)
        self.transactions += 1
        self.committed_at_us = transaction.committed_at_us
        self.last_order = EventOrder(
            epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows
        )
        if self._transaction_metadata and transaction.rows:
            self._batch.add_end(transaction.gtid, transaction.committed_at_us, tuple(transaction.rows_by_table.items()))

    def _statement(self, query: events.QueryEvent, server_id: int, end_position: int, size: int) -> DdlStatement | None:
        self._pos = self._payload_end or end_position
        transaction = self._transaction
        if query.statement == "BEGIN":
            if transaction is not None:
                transaction.thread_id = query.thread_id
            return None
        if transaction is None:
            raise PipelineHalted(
                f"the log has a statement without a GTID at {self._where(end_position)}: set gtid_mode=ON at the source"
            )
        if query.statement in ("COMMIT", "ROLLBACK"):  # of an engine without transactions: its rows did happen
            self._end_transaction()
            return None
        if query.statement.startswith(("SAVEPOINT", "ROLLBACK TO", "RELEASE SAVEPOINT", "XA ")):
            return None
        is_ddl = _DDL.match(query.statement) is not None
        ddl = DdlStatement(
            database=query.database,
            statement=query.statement,
            order=EventOrder(epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows),
            position=self.position,
            committed_at_us=transaction.committed_at_us,
            server_id=server_id,
            event_position=end_position - size,
            thread_id=query.thread_id,
            gtid=transaction.gtid,
            sql_mode=query.sql_mode,
        )
        # CREATE TABLE … SELECT is written as CREATE TABLE … START TRANSACTION, its rows and an XID behind it.
        if not query.statement.rstrip().upper().endswith("START TRANSACTION"):
            self._end_transaction()
        return ddl if is_ddl else None

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

    def _table_of(self, mapped: events.TableMapEvent) -> _Table | None:
        table_id = TableId(database=mapped.database, table=mapped.table)
        if not self._is_captured(table_id):
            return None
        schema = self._schemas.get(table_id)
        if schema is None:
            raise SchemaUnknown(
                f"{table_id}: the log has rows at {self._file}:{self._pos} but the schema history does not know the "
                "table; re-snapshot the source, or exclude the table"
            )
        block = self._source_blocks.get(table_id)
        if block is None:
            block = self._source_blocks[table_id] = MysqlSourceBlock(self._source, mapped.database, mapped.table)
        return _Table(schema, rows_decoder(schema, wire_columns(mapped.column_types, mapped.metadata)), block)

    def _run_of(self, data: bytes, place: int, end: int) -> _OpenRun | None:
        """The open run for a rows event's table; None: nobody captures it."""
        body = place + events.HEADER_BYTES
        number = data[body : body + events.TABLE_ID_BYTES]
        table = self._tables_by_id[number]
        transaction = self._transaction
        if table is None or transaction is None:
            return None
        run = self._run
        if run is None or run.table is not table:
            run = self._run = self._open_run(table, transaction, data, place)
        self._run_number = number
        return run

    def _rows(self, run: _OpenRun, log: Packets, first: int) -> int:
        """Decode a rows event and those of the same table behind it; returns the number of the event to go on with."""
        transaction, decoder = self._transaction, run.table.decoder
        assert transaction is not None
        try:
            nth, decoded, self._room = decoder.decode(
                run.frame, run.rows, log, first, self._run_number, self._last_map, self._checksum_bytes, self._room
            )
        except Exception as error:
            raise UndecodableValue(
                f"{undecodable(run.table.schema, decoder)} "
                f"(transaction {transaction.gtid}, {self._where(decoder.position)})"
            ) from error
        if nth == first:
            raise self._partial_image(run.table)
        transaction.rows += decoded
        if self._transaction_metadata:
            transaction.rows_by_table[run.table.schema.table_id] = run.frame.collection_order
        return nth

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
            middle += b',"transaction":{"id":%b,"total_order":' % transaction.gtid_json
            frame = EventFrame(b',"source":' + head, middle, self._tails, True)
            frame.total_order = transaction.rows
            frame.collection_order = transaction.rows_by_table.get(table.schema.table_id, 0)
        else:
            frame = EventFrame(b',"source":' + head, middle + b',"transaction":null', self._tails, False)
        return _OpenRun(table, run.rows, frame)

    def _partial_image(self, table: _Table) -> PipelineHalted:
        return PipelineHalted(
            f"{table.schema.table_id}: a session wrote partial row images at {self._where(table.decoder.position)}; "
            "set binlog_row_image=FULL globally and for every session, then re-snapshot the table"
        )

    def _where(self, pos: int) -> str:
        return f"{self._file}:{pos}"


_UNSUPPORTED: Final = {
    events.PARTIAL_UPDATE_ROWS: (
        "the log has a partial JSON update, which this release does not follow: SET GLOBAL "
        "binlog_row_value_options = '', then re-snapshot"
    ),
    events.XA_PREPARE: "the log has an XA transaction, which this release does not follow: exclude its tables",
}


_HEARTBEATS: Final = frozenset((events.HEARTBEAT, events.HEARTBEAT_V2))
_ROWS_EVENTS: Final = frozenset((events.WRITE_ROWS, events.UPDATE_ROWS, events.DELETE_ROWS))


def _tails(now_ns: int) -> tuple[bytes, bytes, bytes]:
    """The ends of a create, an update and a delete."""
    create, update, delete = (event_tail(op, now_ns) for op in "cud")
    return create, update, delete
