"""From the log's bytes to batches: events ▶ transactions ▶ rows as Debezium events, in log order.

``LogDecoder`` is fed the events one after another. It keeps the state that the log itself has: the file, the transactions
done, the table maps, the schemas, the transaction that is open. It talks to nobody: a DDL statement is handed out
(``feed`` yields it) and the caller brings the new schemas back, so that everything here is tested from recorded bytes.

Orders: ``rank`` is the number of transactions executed before and with this one (for the gapless sets that a server
writes, the sum of the GTID sequence numbers); the ordinal counts a transaction's delivered row events from 1. Both depend
on nothing but the log and the set of captured tables, so a replay gives them again.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from libs.events.envelope import (
    AFTER,
    AFTER_NULL,
    BEFORE,
    BEFORE_NULL_AFTER,
    MysqlSourceBlock,
    event_tail,
    json_text,
    source_tail,
)
from libs.mysql import binlog_events as events
from libs.mysql.gtid import ExecutedGtids
from libs.mysql.row_image import RowDecoder, undecodable, wire_columns
from libs.mysql.values import Memo
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from services.binlog_reader.position import BinlogPosition

_TABLE_ID_BYTES: Final = 6
_ROWS_POST_HEADER_BYTES: Final = 8  # table id and flags; the length of the extra data follows
_CRC32: Final = 1
_MAX_RUN_BYTES: Final = 500_000
"""A run is closed at about so many bytes of JSON, so that a transaction of one table can be cut into batches too."""
_ENVELOPE_BYTES: Final = 500
"""Of a row's event beside its images, roughly."""
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

    __slots__ = (
        "bitmap_bytes",
        "create_end",
        "delete_end",
        "head",
        "keys",
        "ops",
        "table",
        "update_end",
        "values",
        "variants",
    )

    def __init__(self, table: _Table, run: RowRun, head: bytes, ends: Sequence[bytes]) -> None:
        self.table = table
        self.variants = table.decoder.variants
        self.bitmap_bytes = table.bitmap_bytes
        self.ops = run.ops
        self.keys = run.keys
        self.values = run.values
        self.head = head
        """``,"source":{…,"pos":``; the position and the row's number follow."""
        self.create_end, self.update_end, self.delete_end = ends
        """What follows the row's number; with transaction metadata, up to the numbers of the transaction block."""


_DecodeRows = Callable[[_OpenRun, bytes, int, int, int], int]
"""(run, data, begin of the images, their end, place of the event in the log) → row events added to the run."""


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
        self._room = 0
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
    def schemas(self) -> Mapping[TableId, TableSchema]:
        """The captured tables as they are at this place of the log."""
        return self._schemas

    def tick(self, now_ns: int) -> None:
        """The time that the next events are marked with as processed."""
        self._tails = _tails(now_ns)

    def feed(self, data: bytes, places: Iterable[tuple[int, int]]) -> Iterator[DdlStatement | None]:
        """Take the events at ``data[place:end]``, one after another.

        Yields a DDL statement before anything behind it is taken (``apply_schemas`` comes before the next step), and None
        wherever the batch may be taken: behind each transaction, and inside one when a run was closed for its size.

        Raises UndecodableValue, SchemaUnknown, SchemaContradiction, PipelineHalted; the message names the place.
        """
        # Table maps and rows are nearly all events: what is done for each of them counts like what is done for each row.
        kind_offset, body_offset = events.KIND_OFFSET, events.HEADER_BYTES
        table_map, rows, checksum_bytes = events.TABLE_MAP, _DECODE_ROWS, self._checksum_bytes
        for place, end in places:
            kind = data[place + kind_offset]
            if kind == table_map:
                layout = data[place + body_offset : end - checksum_bytes]
                if layout != self._last_map:
                    self._map_table(layout)
            elif kind in rows:
                if self._rows(rows[kind], kind, data, place, end):
                    yield None
            else:
                ddl = self._other(kind, data, place, end)
                checksum_bytes = self._checksum_bytes
                if ddl is not None or self._transaction is None:
                    yield ddl

    def _other(self, kind: int, data: bytes, place: int, end: int) -> DdlStatement | None:
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
        self.flush()
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

    def _map_table(self, whole: bytes) -> None:
        """A table map that is not the last one again; most were seen before, byte for byte but for the table's number."""
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

    def _rows(self, decode: _DecodeRows, kind: int, data: bytes, place: int, end: int) -> bool:
        """Decode a rows event. True: the run was closed for its size."""
        body = place + events.HEADER_BYTES
        table = self._tables_by_id[data[body : body + _TABLE_ID_BYTES]]
        transaction = self._transaction
        if table is None or transaction is None:
            return False
        body += _ROWS_POST_HEADER_BYTES
        body += (data[body] | data[body + 1] << 8) + table.column_count_bytes  # the extra data's length counts itself
        images = body + table.bitmap_bytes * (1 + (kind == events.UPDATE_ROWS))
        if data[body:images] not in table.full_images:
            self._require_full_image(table, data[body:images])
        run = self._run
        if run is None or run.table is not table:
            run = self._run = self._open_run(table, transaction, data, place)
        # A row's place in the log is the beginning of its event (Debezium's source.pos).
        position = events.read_end_position(data, place + events.END_OFFSET)[0] - (end - place)
        try:
            decoded = decode(run, data, images, end - self._checksum_bytes, position)
        except UndecodableValue as error:
            raise UndecodableValue(f"{error} (transaction {transaction.gtid}, {self._where(position)})") from error
        if self._transaction_metadata:
            self._number(run, transaction, decoded)
        transaction.rows += decoded
        self._room -= end - place + decoded * _ENVELOPE_BYTES
        if self._room < 0:
            self.flush()
            return True
        return False

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
        head = table.source_block.head(
            time_us=transaction.committed_at_us,
            snapshot=b'"false"',
            server_id=events.read_header(data, place)[2],
            gtid=transaction.gtid_json,
            file=self._file_json,
        )
        head = b',"source":' + head
        middle = source_tail(transaction.thread_id)
        if self._transaction_metadata:
            middle += b',"transaction":{"id":%b,"total_order":' % transaction.gtid_json
            return _OpenRun(table, run, head, (middle, middle, middle))
        return _OpenRun(table, run, head, [middle + b',"transaction":null' + self._tails[op] for op in _TAIL_OPS])

    def _number(self, run: _OpenRun, transaction: _Transaction, decoded: int) -> None:
        """End the newest values with their numbers in the transaction and in the table's part of it."""
        table_id = run.table.schema.table_id
        of_table = transaction.rows_by_table.get(table_id, 0)
        first = len(run.values) - decoded
        for index in range(decoded):
            numbers = b'%d,"data_collection_order":%d}' % (transaction.rows + index + 1, of_table + index + 1)
            run.values[first + index] += numbers + self._tails[run.ops[first + index]]
        transaction.rows_by_table[table_id] = of_table + decoded

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


_TAIL_OPS: Final = (OP_CREATE, OP_UPDATE, OP_DELETE)


def _tails(now_ns: int) -> dict[int, bytes]:
    """The ends of events by operation; both halves of a changed key end as what they are, a delete and a create."""
    create, update, delete = (event_tail(chr(op), now_ns) for op in _TAIL_OPS)
    return {
        OP_CREATE: create,
        OP_UPDATE: update,
        OP_DELETE: delete,
        OP_KEY_CHANGE_DELETE: delete,
        OP_KEY_CHANGE_CREATE: create,
    }


# --- rows of one event -------------------------------------------------------------------------------------------------------

_ROW_NUMBERS: Final = Memo(lambda row: b',"row":%d' % row)
_join: Final = b"".join


def _decode_inserts(run: _OpenRun, data: bytes, place: int, end: int, position: int) -> int:
    variants, bitmap_bytes = run.variants, run.bitmap_bytes
    source = run.head + b"%d" % position
    rows = 0
    while place < end:
        start = place + bitmap_bytes
        bitmap = data[place:start]
        try:
            image, key, place = variants[bitmap](data, start)
        except Exception as error:
            raise undecodable(run.table.decoder, data, start, bitmap, f"row {rows}") from error
        run.ops.append(OP_CREATE)
        run.keys.append(key)
        run.values.append(_join((BEFORE_NULL_AFTER, image, source, _ROW_NUMBERS[rows], run.create_end)))
        rows += 1
    _require_end(place, end)
    return rows


def _decode_deletes(run: _OpenRun, data: bytes, place: int, end: int, position: int) -> int:
    variants, bitmap_bytes = run.variants, run.bitmap_bytes
    source = run.head + b"%d" % position
    rows = 0
    while place < end:
        start = place + bitmap_bytes
        bitmap = data[place:start]
        try:
            image, key, place = variants[bitmap](data, start)
        except Exception as error:
            raise undecodable(run.table.decoder, data, start, bitmap, f"row {rows}") from error
        run.ops.append(OP_DELETE)
        run.keys.append(key)
        run.values.append(_join((BEFORE, image, AFTER_NULL, source, _ROW_NUMBERS[rows], run.delete_end)))
        rows += 1
    _require_end(place, end)
    return rows


def _decode_updates(run: _OpenRun, data: bytes, place: int, end: int, position: int) -> int:
    """A row whose key changed becomes two events, as Debezium writes it: delete of the old key, create of the new."""
    variants, bitmap_bytes = run.variants, run.bitmap_bytes
    source = run.head + b"%d" % position
    rows = key_changes = 0
    while place < end:
        start = place + bitmap_bytes
        bitmap = data[place:start]
        try:
            before, old_key, place = variants[bitmap](data, start)
            start = place + bitmap_bytes
            bitmap = data[place:start]
            after, key, place = variants[bitmap](data, start)
        except Exception as error:
            raise undecodable(run.table.decoder, data, start, bitmap, f"row {rows}") from error
        row_number = _ROW_NUMBERS[rows]
        if old_key == key:
            run.ops.append(OP_UPDATE)
            run.keys.append(key)
            run.values.append(_join((BEFORE, before, AFTER, after, source, row_number, run.update_end)))
        else:
            run.ops += _KEY_CHANGE
            run.keys += (old_key, key)
            run.values.append(_join((BEFORE, before, AFTER_NULL, source, row_number, run.delete_end)))
            run.values.append(_join((BEFORE_NULL_AFTER, after, source, row_number, run.create_end)))
            key_changes += 1
        rows += 1
    _require_end(place, end)
    return rows + key_changes


_KEY_CHANGE: Final = bytes((OP_KEY_CHANGE_DELETE, OP_KEY_CHANGE_CREATE))


def _require_end(place: int, end: int) -> None:
    if place != end:
        raise UndecodableValue("the rows do not end where their event ends; the log is damaged or the schema is wrong")


_DECODE_ROWS: Final[Mapping[int, _DecodeRows]] = {
    events.WRITE_ROWS: _decode_inserts,
    events.UPDATE_ROWS: _decode_updates,
    events.DELETE_ROWS: _decode_deletes,
}
