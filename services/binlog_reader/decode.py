"""From the log's bytes to batches: events ▶ transactions ▶ rows as Debezium events, in log order.

``LogDecoder`` is fed the events one after another. It keeps the state that the log itself has: the file, the transactions
done, the table maps, the schemas, the transaction that is open. It talks to nobody: a DDL statement is handed out
(``feed`` returns it) and the caller brings the new schemas back, so that everything here is tested from recorded bytes.

Orders: ``rank`` is the number of transactions executed before and with this one (for the gapless sets that a server
writes, the sum of the GTID sequence numbers); the ordinal counts a transaction's delivered row events from 1. Both depend
on nothing but the log and the set of captured tables, so a replay gives them again.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from libs.errors import PipelineHalted, SchemaUnknown, UndecodableValue
from libs.events.batch import (
    OP_CREATE,
    OP_DELETE,
    OP_KEY_CHANGE_CREATE,
    OP_KEY_CHANGE_DELETE,
    OP_UPDATE,
    BatchBuilder,
    RowRun,
)
from libs.events.envelope import MysqlSourceBlock, event_tail, json_text, source_tail
from libs.mysql import binlog_events as events
from libs.mysql.gtid import ExecutedGtids
from libs.mysql.row_image import RowDecoder, undecodable, wire_columns
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from services.binlog_reader.position import BinlogPosition

_ROWS: Final = frozenset({events.WRITE_ROWS, events.UPDATE_ROWS, events.DELETE_ROWS})
_TABLE_ID_BYTES: Final = 6
_ROWS_POST_HEADER_BYTES: Final = 8  # table id and flags; the length of the extra data follows
_CRC32: Final = 1
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


class _Table:
    """A captured table at its present version, with what all its rows events share."""

    __slots__ = ("bitmap_bytes", "column_count_bytes", "decoder", "full_images", "schema", "source_block")

    def __init__(self, schema: TableSchema, decoder: RowDecoder, source_block: MysqlSourceBlock) -> None:
        self.schema = schema
        self.decoder = decoder
        self.source_block = source_block
        self.bitmap_bytes = decoder.bitmap_bytes
        self.column_count_bytes = 1 if len(schema.columns) < 251 else 3  # a length-encoded integer
        self.full_images: set[bytes] = set()
        """Bitmaps seen that say that all columns are present; the bits beyond the last column are as they happen to be."""


class _OpenRun:
    """Rows of one table and transaction that are being gathered, with what all their values share."""

    __slots__ = ("head", "keys", "middle", "ops", "table", "values")

    def __init__(self, table: _Table, run: RowRun, head: bytes, middle: bytes) -> None:
        self.table = table
        self.ops = run.ops
        self.keys = run.keys
        self.values = run.values
        self.head = head
        """``,"source":{…,"pos":``; the position and the row's number follow."""
        self.middle = middle
        """From behind the row's number up to the transaction block's numbers."""


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
    ) -> None:
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
        self._source_blocks: dict[TableId, MysqlSourceBlock] = {}
        self._transaction: _Transaction | None = None
        self._run: _OpenRun | None = None
        self._tails = _tails(time.time_ns(), has_metadata=transaction_metadata)
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
    def schemas(self) -> Mapping[TableId, TableSchema]:
        """The captured tables as they are at this place of the log."""
        return self._schemas

    def tick(self, now_ns: int) -> None:
        """The time that the next events are marked with as processed."""
        self._tails = _tails(now_ns, has_metadata=self._transaction_metadata)

    def feed(self, data: bytes, place: int, end: int) -> DdlStatement | None:
        """Take the event at ``data[place:end]``. A DDL statement is returned: call ``apply_schemas`` before the next feed.

        Raises UndecodableValue, SchemaUnknown, SchemaContradiction, PipelineHalted; the message names the place.
        """
        kind = data[place + events.KIND_OFFSET]
        if kind in _ROWS:
            self._rows(kind, data, place, end - self._checksum_bytes, end - place)
            return None
        if kind == events.TABLE_MAP:
            self._map_table(data, place + events.HEADER_BYTES, end - self._checksum_bytes)
            return None
        _, _, server_id, size, end_position, _ = events.read_header(data, place)
        body = place + events.HEADER_BYTES
        end -= self._checksum_bytes
        if kind == events.XID:
            self._pos = end_position
            self._end_transaction()
        elif kind in (events.GTID, events.GTID_TAGGED):
            self._begin_transaction(kind, data[body:end])
        elif kind == events.QUERY:
            return self._statement(events.parse_query(data[body:end]), server_id, end_position, size)
        elif kind == events.ROTATE:
            self._rotate(data[body:end])
        elif kind == events.FORMAT_DESCRIPTION:
            # Its own last byte before the checksum tells whether this file's events carry one.
            self._checksum_bytes = events.CHECKSUM_BYTES if data[place + size - 5] == _CRC32 else 0
        elif kind in _UNSUPPORTED:
            raise PipelineHalted(_UNSUPPORTED[kind] + f" (at {self._where(end_position)})")
        return None

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

    def _begin_transaction(self, kind: int, body: bytes) -> None:
        if kind == events.GTID_TAGGED:
            raise PipelineHalted(
                f"the log has a tagged GTID at {self._file}:{self._pos}, which this release does not follow: "
                "let the writers use AUTOMATIC without a tag"
            )
        gtid = events.parse_gtid(body)
        text = f"{gtid.uuid}:{gtid.number}"
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

    def _end_transaction(self) -> None:
        transaction, self._transaction = self._transaction, None
        self._run = None
        if transaction is None:
            return
        self._executed.add(transaction.uuid, transaction.tag, transaction.number)
        self.transactions += 1
        self.committed_at_us = transaction.committed_at_us
        self.last_order = EventOrder(
            epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows
        )
        if self._transaction_metadata and transaction.rows:
            self._batch.add_end(transaction.gtid, transaction.committed_at_us, tuple(transaction.rows_by_table.items()))

    def _statement(self, query: events.QueryEvent, server_id: int, end_position: int, size: int) -> DdlStatement | None:
        self._pos = end_position
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

    def _map_table(self, data: bytes, place: int, end: int) -> None:
        """Most table maps were seen before, byte for byte but for the table's number: then one look-up is all."""
        whole = data[place:end]
        if whole == self._last_map:
            return
        self._last_map = whole
        number, layout = whole[:_TABLE_ID_BYTES], whole[_TABLE_ID_BYTES:]
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
        return _Table(schema, RowDecoder(schema, wire_columns(mapped.column_types, mapped.metadata)), block)

    def _rows(self, kind: int, data: bytes, place: int, end: int, size: int) -> None:
        """Most rows events hold one row, so what is done for each event counts like what is done for each row."""
        body = place + events.HEADER_BYTES
        table = self._tables_by_id[data[body : body + _TABLE_ID_BYTES]]
        transaction = self._transaction
        if table is None or transaction is None:
            return
        body += _ROWS_POST_HEADER_BYTES
        body += (data[body] | data[body + 1] << 8) + table.column_count_bytes  # the extra data's length counts itself
        images = body + table.bitmap_bytes * (1 + (kind == events.UPDATE_ROWS))
        if data[body:images] not in table.full_images:
            self._require_full_image(table, data[body:images])
        opened = self._run
        if opened is None or opened.table is not table:
            opened = self._run = self._open_run(table, transaction, data, place)
        # A row's place in the log is the beginning of its event (Debezium's source.pos).
        position = events.read_end_position(data, place + events.END_OFFSET)[0] - size
        before = len(opened.values)
        # Counts by table are asked for by the transaction metadata alone.
        of_table = transaction.rows_by_table.get(table.schema.table_id, 0) if self._transaction_metadata else 0
        try:
            _DECODE_ROWS[kind](opened, data, images, end, position, transaction.rows, of_table, self._tails)
        except UndecodableValue as error:
            raise UndecodableValue(f"{error} (transaction {transaction.gtid}, {self._where(position)})") from error
        decoded = len(opened.values) - before
        transaction.rows += decoded
        if self._transaction_metadata:
            transaction.rows_by_table[table.schema.table_id] = of_table + decoded

    def _open_run(self, table: _Table, transaction: _Transaction, data: bytes, place: int) -> _OpenRun:
        """Rows events of one table that stand side by side in a transaction share a run."""
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
        head = table.source_block.head(
            time_us=transaction.committed_at_us,
            snapshot=b'"false"',
            server_id=events.read_header(data, place)[2],
            gtid=transaction.gtid_json,
            file=self._file_json,
        )
        if self._transaction_metadata:
            block = b',"transaction":{"id":%b,"total_order":' % transaction.gtid_json
        else:
            block = b',"transaction":null'
        return _OpenRun(table, run, b',"source":' + head, source_tail(transaction.thread_id) + block)

    def _require_full_image(self, table: _Table, bitmaps: bytes) -> None:
        """The bitmaps of the columns present in each image of an event; all of them must be."""
        every = (1 << len(table.schema.columns)) - 1
        for start in range(0, len(bitmaps), table.bitmap_bytes):
            present = int.from_bytes(bitmaps[start : start + table.bitmap_bytes], "little")
            if present & every != every:
                raise PipelineHalted(
                    f"{table.schema.table_id}: a session wrote partial row images at {self._where(self._pos)}; "
                    "set binlog_row_image=FULL globally and for every session, then re-snapshot the table"
                )
        table.full_images.add(bitmaps)

    def _where(self, pos: int) -> str:
        return f"{self._file}:{pos}"


_UNSUPPORTED: Final = {
    events.TRANSACTION_PAYLOAD: (
        "the log has a compressed transaction, which this release does not follow: SET GLOBAL "
        "binlog_transaction_compression = OFF, then re-snapshot"
    ),
    events.PARTIAL_UPDATE_ROWS: (
        "the log has a partial JSON update, which this release does not follow: SET GLOBAL "
        "binlog_row_value_options = '', then re-snapshot"
    ),
    events.XA_PREPARE: "the log has an XA transaction, which this release does not follow: exclude its tables",
}


@dataclass(frozen=True, slots=True)
class _Tails:
    """The ends of values by operation: what follows the row's number, or the numbers of the transaction block."""

    has_metadata: bool
    create: bytes
    update: bytes
    delete: bytes


def _tails(now_ns: int, *, has_metadata: bool) -> _Tails:
    close = b"}" if has_metadata else b""  # of the transaction block
    return _Tails(
        has_metadata=has_metadata,
        create=close + event_tail("c", now_ns),
        update=close + event_tail("u", now_ns),
        delete=close + event_tail("d", now_ns),
    )


def _decode_inserts(
    opened: _OpenRun, data: bytes, place: int, end: int, position: int, total: int, of_table: int, tails: _Tails
) -> None:
    variants, bitmap_bytes = opened.table.decoder.variants, opened.table.bitmap_bytes
    head, middle, tail = opened.head, opened.middle, tails.create
    row = 0
    while place < end:
        start = place + bitmap_bytes
        bitmap = data[place:start]
        try:
            image, key, place = variants[bitmap](data, start)
        except Exception as error:
            raise undecodable(opened.table.decoder, data, start, bitmap, f"row {row}") from error
        row += 1
        opened.keys.append(key)
        opened.values.append(
            b'{"before":null,"after":%b%b%d,"row":%d%b%d,"data_collection_order":%d%b'
            % (image, head, position, row - 1, middle, total + row, of_table + row, tail)
            if tails.has_metadata
            else b'{"before":null,"after":%b%b%d,"row":%d%b%b' % (image, head, position, row - 1, middle, tail)
        )
        opened.ops.append(OP_CREATE)
    _require_end(place, end)


def _decode_deletes(
    opened: _OpenRun, data: bytes, place: int, end: int, position: int, total: int, of_table: int, tails: _Tails
) -> None:
    variants, bitmap_bytes = opened.table.decoder.variants, opened.table.bitmap_bytes
    row = 0
    while place < end:
        start = place + bitmap_bytes
        bitmap = data[place:start]
        try:
            image, key, place = variants[bitmap](data, start)
        except Exception as error:
            raise undecodable(opened.table.decoder, data, start, bitmap, f"row {row}") from error
        row += 1
        numbers = _transaction_numbers(total + row, of_table + row, tails)
        _append(opened, OP_DELETE, key, _deleted(image), position, row - 1, numbers, tails.delete)
    _require_end(place, end)


def _decode_updates(
    opened: _OpenRun, data: bytes, place: int, end: int, position: int, total: int, of_table: int, tails: _Tails
) -> None:
    """A row whose key changed becomes two events, as Debezium writes it: delete of the old key, create of the new."""
    variants, bitmap_bytes = opened.table.decoder.variants, opened.table.bitmap_bytes
    head, middle, tail = opened.head, opened.middle, tails.update
    row = delivered = 0
    while place < end:
        start = place + bitmap_bytes
        bitmap = data[place:start]
        try:
            before, old_key, place = variants[bitmap](data, start)
            start = place + bitmap_bytes
            bitmap = data[place:start]
            after, key, place = variants[bitmap](data, start)
        except Exception as error:
            raise undecodable(opened.table.decoder, data, start, bitmap, f"row {row}") from error
        delivered += 1
        numbers = _transaction_numbers(total + delivered, of_table + delivered, tails)
        if old_key == key:
            opened.keys.append(key)
            opened.values.append(
                b'{"before":%b,"after":%b%b%d,"row":%d%b%b%b'
                % (before, after, head, position, row, middle, numbers, tail)
            )
            opened.ops.append(OP_UPDATE)
        else:
            _append(opened, OP_KEY_CHANGE_DELETE, old_key, _deleted(before), position, row, numbers, tails.delete)
            delivered += 1
            numbers = _transaction_numbers(total + delivered, of_table + delivered, tails)
            _append(opened, OP_KEY_CHANGE_CREATE, key, _created(after), position, row, numbers, tails.create)
        row += 1
    _require_end(place, end)


def _append(
    opened: _OpenRun, op: int, key: bytes, images: bytes, position: int, row: int, numbers: bytes, tail: bytes
) -> None:
    opened.ops.append(op)
    opened.keys.append(key)
    opened.values.append(b'%b%b%d,"row":%d%b%b%b' % (images, opened.head, position, row, opened.middle, numbers, tail))


def _created(image: bytes) -> bytes:
    return b'{"before":null,"after":' + image


def _deleted(image: bytes) -> bytes:
    return b'{"before":' + image + b',"after":null'


def _transaction_numbers(total: int, of_table: int, tails: _Tails) -> bytes:
    return b'%d,"data_collection_order":%d' % (total, of_table) if tails.has_metadata else b""


def _require_end(place: int, end: int) -> None:
    if place != end:
        raise UndecodableValue("the rows do not end where their event ends; the log is damaged or the schema is wrong")


_DECODE_ROWS: Final[Mapping[int, Callable[..., None]]] = {
    events.WRITE_ROWS: _decode_inserts,
    events.UPDATE_ROWS: _decode_updates,
    events.DELETE_ROWS: _decode_deletes,
}
