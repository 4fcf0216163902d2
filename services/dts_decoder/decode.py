"""From whole messages to batches: entries ▶ transactions ▶ rows as Debezium events, in the order of the topic.

``SubscriptionDecoder`` is fed the messages of one Kafka partition, one after another. It keeps the state that the topic itself
has: the transactions that came, the schemas, the transaction that is open. It talks to nobody: a DDL statement and a table that
is not known are handed out (``feed`` yields them) and the caller brings the schemas back.

**Repeats.** DTS delivers at least once: after a restart of its task it begins some way further back (Tencent Cloud document
571/55396). A transaction that came already is dropped, by its GTID; at a source without GTIDs by its place in the log. One that
DTS begins again in the middle is the same transaction: its rows that were read are passed over.

**Orders.** ``rank`` counts the transactions delivered, from the snapshot's on; repeats do not count. It depends on nothing but
the topic, the checkpoint and the set of captured tables, so a replay gives it again.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message

from libs.errors import InvalidEvent, PipelineHalted, TransientError, UndecodableMessage
from libs.events.batch import BatchBuilder, RowRun
from libs.events.envelope import MysqlSourceBlock, event_tail, json_text, source_tail
from libs.events.run_rows import RunRows
from libs.events.varint import varint
from libs.mysql.gtid import ExecutedGtids, GtidSet, InvalidGtid, parse_gtid
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from protos.dts import subscription_pb2 as pb
from services.dts_decoder.assembly import WholeMessage
from services.dts_decoder.messages import EntryReader
from services.dts_decoder.position import SOURCE_KIND, DtsPosition
from services.dts_decoder.row_changes import EntryFrame, RowChangeDecoder
from services.dts_decoder.values import DtsColumn, read_columns, require_agreement, row_change_decoder, undecodable

_LENGTH_DELIMITED: Final = 2  # the wire type of bytes, text and messages
_MAX_RUN_BYTES: Final = 500_000
"""A run is closed at about so many bytes, so that a transaction of one table can be cut into batches too."""

_EVENT_OF_TYPE: Final[dict[int, int]] = {
    pb.MESSAGE_TYPE_BEGIN: pb.Event.BEGINEVENT_FIELD_NUMBER,
    pb.MESSAGE_TYPE_COMMIT: pb.Event.COMMITEVENT_FIELD_NUMBER,
    pb.MESSAGE_TYPE_DML: pb.Event.DMLEVENT_FIELD_NUMBER,
    pb.MESSAGE_TYPE_DDL: pb.Event.DDLEVENT_FIELD_NUMBER,
    pb.MESSAGE_TYPE_ROLLBACK: pb.Event.ROLLBACKEVENT_FIELD_NUMBER,
    pb.MESSAGE_TYPE_HEARTBEAT: pb.Event.HEARTBEATEVENT_FIELD_NUMBER,
    pb.MESSAGE_TYPE_CHECKPOINT: pb.Event.CHECKPOINTEVENT_FIELD_NUMBER,
}
_NEEDS_EVENT: Final = frozenset((pb.MESSAGE_TYPE_DML, pb.MESSAGE_TYPE_DDL, pb.MESSAGE_TYPE_CHECKPOINT))
_FOLLOWED_SOURCES: Final = frozenset((pb.SOURCE_TYPE_MYSQL, pb.SOURCE_TYPE_MARIADB))


class RolledBack(TransientError):
    """The source rolled a transaction back after some of its rows were read: read again from the checkpoint, without it."""

    def __init__(self, place: tuple[int, int]) -> None:
        super().__init__(
            "a transaction was rolled back after some of its rows were read; it is read again and left out"
        )
        self.place = place


@dataclass(frozen=True, slots=True)
class DdlStatement:
    """A statement that may change schemas; everything before it has been decoded."""

    database: str
    statement: str
    order: EventOrder
    position: DtsPosition
    committed_at_us: int
    server_id: int
    gtid: str


@dataclass(frozen=True, slots=True)
class UnknownTable:
    """Rows of a captured table whose schema is not known; ``columns`` are what the message says of it."""

    table_id: TableId
    columns: tuple[DtsColumn, ...]
    order: EventOrder
    position: DtsPosition
    committed_at_us: int
    server_id: int
    gtid: str


@dataclass(frozen=True, slots=True)
class SetAside:
    """What could not be decoded, as it came: one entry, or what is left of a message."""

    place: str
    offset: int
    entry: int
    reason: str
    entries: bytes
    """Serialised ``Entries``."""


@dataclass(frozen=True, slots=True)
class _Table:
    """A captured table at its present version, under the columns that messages name."""

    schema: TableSchema
    decoder: RowChangeDecoder
    source_block: MysqlSourceBlock


@dataclass(slots=True)
class _Transaction:
    gtid: str
    id: str
    order: EventOrder
    place: tuple[int, int]
    """Offset and entry of what opened it."""
    committed_at_us: int
    has_begin: bool
    id_json: bytes
    rows: int = 0
    """Row events delivered."""
    rows_read: int = 0
    """Rows of messages, of all tables."""
    rows_to_skip: int = 0
    """Rows that come again since DTS began the transaction again."""
    rows_by_table: dict[TableId, int] = field(default_factory=dict)
    thread_id: int = 0
    is_told: bool = False
    is_interrupted: bool = False
    """DTS began again further back before it ended."""


class SubscriptionDecoder:
    """Decodes one Kafka partition of a subscription from a position on."""

    def __init__(
        self,
        source: str,
        position: DtsPosition,
        order: EventOrder,
        schemas: Mapping[TableId, TableSchema],
        *,
        is_captured: Callable[[TableId], bool],
        batch: BatchBuilder,
        transaction_metadata: bool,
        rolled_back: frozenset[tuple[int, int]] = frozenset(),
        set_aside: Callable[[SetAside], None] | None = None,
    ) -> None:
        """``set_aside`` takes what cannot be decoded, and decoding goes on; without it the error is raised."""
        self._source = source
        self._position = position
        self._executed = ExecutedGtids(GtidSet.parse(position.gtid_set))
        self._is_captured = is_captured
        self._batch = batch
        self._transaction_metadata = transaction_metadata
        self._rolled_back = rolled_back
        self._set_aside = set_aside
        self._schemas = dict(schemas)
        self._tables: dict[tuple[bytes, bytes, bytes], _Table | None] = {}
        self._transaction: _Transaction | None = None
        self._repeated: str | None = None
        """GTID of the transaction whose entries are dropped: it came already, or was rolled back."""
        self._run: tuple[_Table, RowRun] | None = None
        self._tails = _tails(time.time_ns())
        self._gtid: tuple[bytes, str, tuple[str, str, int] | None] = (b"", "", None)
        self.committed_at_us = 0
        """Commit time of the newest transaction that ended."""
        self.last_order = order
        """Order of the last event that ended."""
        self.transactions = self.repeats = self.checkpoints = 0
        self.confirmable_offset: int | None = None
        """Behind the newest message that begins with a CHECKPOINT: what the consumer group may be set to once it is
        durable. (Tencent's own client looks at the first entry only.)"""

    @property
    def is_between_transactions(self) -> bool:
        """The topic may be resumed from ``position``."""
        return self._transaction is None

    @property
    def position(self) -> DtsPosition:
        """Where the topic stands; to resume from only between transactions."""
        return msgspec.structs.replace(self._position, gtid_set=self._executed.text())

    @property
    def schemas(self) -> Mapping[TableId, TableSchema]:
        """The tables as they are at this place."""
        return self._schemas

    def tick(self, now_ns: int) -> None:
        """The time that the next events are marked with as processed."""
        self._tails = _tails(now_ns)

    def apply_schemas(self, schemas: Mapping[TableId, TableSchema | None]) -> None:
        """Schemas that are in force from here on; None: the table is gone."""
        for table_id, schema in schemas.items():
            if schema is None:
                self._schemas.pop(table_id, None)
            else:
                self._schemas[table_id] = schema
        self._tables.clear()
        self._run = None

    def flush(self) -> None:
        """Close the open run, so that the batch can be taken; decoding goes on with a new one."""
        self._run = None
        self._batch.close_run()

    def feed(self, message: WholeMessage) -> Iterator[DdlStatement | UnknownTable | None]:
        """Take the entries of ``message``, one after another.

        Yields a DDL statement, or a table that is not known, before anything after it is taken (``apply_schemas`` comes
        before the next step), and None wherever the batch may be taken.

        Raises UndecodableMessage, UndecodableValue, SchemaContradiction, PipelineHalted, RolledBack; the message names topic,
        partition and offset.
        """
        reader = EntryReader(message.data)
        done = self._position.entry if message.first_offset == self._position.offset else 0
        while True:
            try:
                if not reader.advance():
                    break
            except ValueError as error:
                rest = reader.piece(reader.entry_begin, len(message.data))
                self._refuse(message, reader.entries, f"entry {reader.entries} cannot be read: {error}", rest)
                break
            if reader.entries <= done:
                continue
            try:
                yield from self._entry(message, reader, reader.entries - 1)
            except InvalidEvent as error:
                entry = reader.piece(reader.entry_begin, reader.entry_end)
                self._refuse(message, reader.entries - 1, str(error), entry, error)
            if self._transaction is None:
                self._stand(message.first_offset, reader.entries, self._position.ps)
                yield None
            message.release(reader.entry_end)
        if self._transaction is None:
            self._stand(message.last_offset + 1, 0, message.ps)
            yield None

    def _refuse(
        self, message: WholeMessage, nth: int, reason: str, entries: bytes, error: InvalidEvent | None = None
    ) -> None:
        text = reason if reason.startswith(message.topic) else f"{message.place}, entry {nth}: {reason}"
        if self._set_aside is None:
            kind = type(error) if error is not None else UndecodableMessage
            raise kind(text) from error
        self._set_aside(SetAside(message.place, message.first_offset, nth, text, entries))

    def _stand(self, offset: int, entry: int, ps: int | None) -> None:
        self._position = msgspec.structs.replace(self._position, offset=offset, entry=entry, ps=ps)

    # --- entries ---------------------------------------------------------------------------------------------------------

    def _entry(
        self, message: WholeMessage, reader: EntryReader, nth: int
    ) -> Iterator[DdlStatement | UnknownTable | None]:
        kind = reader.message_type
        expected = _EVENT_OF_TYPE.get(kind)
        if expected is None:
            raise UndecodableMessage(f"MessageType {kind} is not known; upgrade Headwater")
        if reader.event_kind != expected and (reader.event_kind or kind in _NEEDS_EVENT):
            raise UndecodableMessage(f"MessageType {kind} with the event of another type")
        if kind == pb.MESSAGE_TYPE_HEARTBEAT:
            self._end_implicit(reader)
            return
        if kind == pb.MESSAGE_TYPE_CHECKPOINT:
            self._checkpoint(message, reader, nth)
            return
        if reader.source_type not in _FOLLOWED_SOURCES:
            raise PipelineHalted(
                f"{message.place}: the subscription is of a {_source_type_name(reader.source_type)} source, and MySQL and "
                "MariaDB can be followed: subscribe to one of them"
            )
        if kind == pb.MESSAGE_TYPE_DML:
            yield from self._rows(message, reader, nth)
        elif kind == pb.MESSAGE_TYPE_BEGIN:
            self._begin(message, reader, nth)
        elif kind == pb.MESSAGE_TYPE_COMMIT:
            self._commit(reader)
        elif kind == pb.MESSAGE_TYPE_ROLLBACK:
            self._rollback()
        else:
            yield from self._ddl(message, reader, nth)

    def _checkpoint(self, message: WholeMessage, reader: EntryReader, nth: int) -> None:
        event = _parsed(pb.CheckpointEvent, reader)
        self._end_implicit(reader)
        if self._transaction is not None and not self._transaction.is_interrupted:
            raise UndecodableMessage(f"a CHECKPOINT inside the transaction {self._transaction.id}")
        self.checkpoints += 1
        if nth == 0:
            self.confirmable_offset = message.last_offset + 1
        if event.fakeGtid or not event.syncedGtid:
            return
        try:
            synced = str(GtidSet.parse(event.syncedGtid))
        except InvalidGtid:  # MariaDB's, say: its transactions are known by their places
            return
        before = self._position.synced_gtid_set
        if before:
            # One checkpoint late: whatever DTS meant by "synced" has come by now.
            self._executed = ExecutedGtids(self._executed.snapshot().union(GtidSet.parse(before)))
        self._position = msgspec.structs.replace(self._position, synced_gtid_set=synced)

    # --- transactions ----------------------------------------------------------------------------------------------------

    def _begin(self, message: WholeMessage, reader: EntryReader, nth: int) -> None:
        self._end_implicit(reader)
        event = _parsed(pb.BeginEvent, reader)
        gtid = self._gtid_of(reader)[0]
        open_now = self._transaction
        is_rolled_back = (message.first_offset, nth) in self._rolled_back
        if is_rolled_back or self._came_already(reader):
            self._repeated = gtid
            self.repeats += not is_rolled_back
            if open_now is not None:
                open_now.is_interrupted = True
            return
        self._repeated = None
        if open_now is None:
            self._transaction = self._opened(message, reader, nth, has_begin=True)
            self._transaction.thread_id = event.threadId
        elif gtid and gtid == open_now.gtid:
            self.repeats += 1
            open_now.rows_to_skip, open_now.rows_read = open_now.rows_read, 0
        else:
            raise PipelineHalted(
                f"{message.place}: transaction {gtid or reader.position} begins, and {open_now.id} has not ended: its rest "
                "is missing; re-snapshot the source"
            )

    def _opened(self, message: WholeMessage, reader: EntryReader, nth: int, *, has_begin: bool) -> _Transaction:
        gtid = self._gtid_of(reader)[0]
        text = gtid or f"{_text(reader.file_name)}:{reader.position}"
        return _Transaction(
            gtid=gtid,
            id=text,
            order=EventOrder(epoch=self._epoch(reader), rank=self.last_order.rank + 1, tx_ordinal=0),
            place=(message.first_offset, nth),
            committed_at_us=reader.timestamp_s * 1_000_000,
            has_begin=has_begin,
            id_json=json_text(text),
        )

    def _epoch(self, reader: EntryReader) -> int:
        """Grows where the source has no GTIDs and DTS pulls from another server: its places begin again."""
        before = self._position
        if not reader.gtid and before.server_id and reader.server_id != before.server_id:
            return before.epoch + 1
        return before.epoch

    def _commit(self, reader: EntryReader) -> None:
        if self._repeated is not None:
            self._repeated = None
            return
        transaction = self._transaction
        if transaction is None:
            return
        gtid = self._gtid_of(reader)[0]
        if gtid and transaction.gtid and gtid != transaction.gtid:
            raise PipelineHalted(
                f"transaction {gtid} ends, and {transaction.id} was open: messages are missing or mixed; re-snapshot the source"
            )
        self._end(transaction, reader)

    def _rollback(self) -> None:
        if self._repeated is not None:
            self._repeated = None
            return
        transaction = self._transaction
        if transaction is None:
            return
        if transaction.rows:
            raise RolledBack(transaction.place)
        self.flush()
        self._transaction = None

    def _end_implicit(self, reader: EntryReader) -> None:
        """A transaction that came without a BEGIN ends where something else comes."""
        transaction = self._transaction
        if transaction is not None and not transaction.has_begin:
            self._end(transaction, None)

    def _end(self, transaction: _Transaction, reader: EntryReader | None) -> None:
        self._transaction = None
        self.flush()
        self._count(transaction.gtid, reader)
        self.transactions += 1
        self.committed_at_us = transaction.committed_at_us
        self.last_order = EventOrder(
            epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows
        )
        if self._transaction_metadata and transaction.rows:
            self._batch.add_end(transaction.id, transaction.committed_at_us, tuple(transaction.rows_by_table.items()))

    def _count(self, gtid: str, reader: EntryReader | None) -> None:
        """The transaction came, and stood at the reader's place."""
        if gtid:
            with contextlib.suppress(InvalidGtid):  # MariaDB's: known by its place
                self._executed.add(*parse_gtid(gtid))
        if reader is not None:
            self._position = msgspec.structs.replace(
                self._position,
                epoch=self._epoch(reader),
                server_id=reader.server_id,
                file=_text(reader.file_name),
                pos=reader.position,
                gtid=gtid,
                seq_id=reader.seq_id,
            )

    def _gtid_of(self, reader: EntryReader) -> tuple[str, tuple[str, str, int] | None]:
        """The GTID's text, and its parts where it is of MySQL's form; computed once for the entries of a transaction."""
        raw, text, parts = self._gtid
        if raw is not reader.gtid:
            text, parts = _text(reader.gtid), None
            with contextlib.suppress(InvalidGtid):
                parts = parse_gtid(text)
            self._gtid = reader.gtid, text, parts
        return text, parts

    def _came_already(self, reader: EntryReader) -> bool:
        parts = self._gtid_of(reader)[1]
        if parts is not None:
            return self._executed.contains(*parts)
        last = self._position
        if not last.file or last.server_id != reader.server_id:
            return False
        return (_file_number(_text(reader.file_name)), reader.position) <= (_file_number(last.file), last.pos)

    # --- schemas ---------------------------------------------------------------------------------------------------------

    def _ddl(self, message: WholeMessage, reader: EntryReader, nth: int) -> Iterator[DdlStatement]:
        self._end_implicit(reader)
        event = _parsed(pb.DDLEvent, reader)
        if self._repeated is not None or (self._transaction is None and self._came_already(reader)):
            self.repeats += 1
            return
        transaction = self._transaction or self._opened(message, reader, nth, has_begin=False)
        self.flush()
        self._count(transaction.gtid if self._transaction is None else "", reader)
        order = EventOrder(epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows)
        yield DdlStatement(
            database=event.schemaName or _text(reader.schema_name),
            statement=event.sql,
            order=order,
            position=self.position,
            committed_at_us=transaction.committed_at_us,
            server_id=reader.server_id,
            gtid=transaction.gtid,
        )
        if self._transaction is None:
            self.transactions += 1
            self.committed_at_us = transaction.committed_at_us
            self.last_order = order

    def _table_of(self, reader: EntryReader) -> _Table | None:
        """The table of a DML entry; None: nobody captures it. Raises KeyError where its schema is not known."""
        table_id = TableId(database=_text(reader.schema_name), table=_text(reader.table_name))
        if not self._is_captured(table_id):
            return None
        schema = self._schemas[table_id]
        require_agreement(schema, _columns(reader.columns))
        block = MysqlSourceBlock(self._source, table_id.database, table_id.table, connector=SOURCE_KIND)
        return _Table(schema, row_change_decoder(schema), block)

    # --- rows ------------------------------------------------------------------------------------------------------------

    def _rows(self, message: WholeMessage, reader: EntryReader, nth: int) -> Iterator[UnknownTable | None]:
        open_now = self._transaction
        if open_now is not None and not open_now.has_begin and self._gtid_of(reader)[0] != open_now.gtid:
            self._end(open_now, None)
        if self._repeated is not None and self._repeated == self._gtid_of(reader)[0]:
            return
        if self._transaction is None:
            if self._came_already(reader):
                return
            self._transaction = self._opened(message, reader, nth, has_begin=False)
        transaction = self._transaction
        try:
            reader.read_dml()
        except ValueError as error:
            raise UndecodableMessage(f"the rows cannot be read: {error}") from error
        place = reader.rows_begin
        if transaction.rows_to_skip:
            place, skipped = _behind_rows(reader, place, transaction.rows_to_skip)
            transaction.rows_to_skip -= skipped
            transaction.rows_read += skipped
        key = (reader.schema_name, reader.table_name, reader.columns)
        if key not in self._tables:
            yield from self._learn(reader, key, transaction)
        table = self._tables[key]
        if table is None:
            place, passed = _behind_rows(reader, place, 2**31 - 1)
            transaction.rows_read += passed
            return
        yield from self._decode(message, reader, table, transaction, place)
        if not transaction.has_begin:
            self._count("", reader)

    def _learn(
        self, reader: EntryReader, key: tuple[bytes, bytes, bytes], transaction: _Transaction
    ) -> Iterator[UnknownTable]:
        if len(self._tables) > 10_000:  # a topic of ever new columns
            self._tables.clear()
        try:
            self._tables[key] = self._table_of(reader)
        except KeyError:
            self.flush()
            order = EventOrder(epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows)
            yield UnknownTable(
                table_id=TableId(database=_text(reader.schema_name), table=_text(reader.table_name)),
                columns=_columns(reader.columns),
                order=order,
                position=self.position,
                committed_at_us=transaction.committed_at_us,
                server_id=reader.server_id,
                gtid=transaction.gtid,
            )
            self._tables[key] = self._table_of(reader)

    def _decode(
        self, message: WholeMessage, reader: EntryReader, table: _Table, transaction: _Transaction, place: int
    ) -> Iterator[None]:
        """The entry's rows from ``place`` on, and those of entries like it after it."""
        decoder = table.decoder
        frame = self._frame(table, transaction, reader)
        decoder.row = 0
        while place < reader.event_end:
            rows = self._run_of(table, transaction)
            read_before, count = decoder.rows_read, len(rows)
            try:
                decoder.decode(frame, rows, reader, place)
            except Exception as error:
                wrong = undecodable(table.schema, decoder, error)
                if self._set_aside is None or decoder.place <= decoder.row_begin:
                    raise wrong from error
                bad = reader.piece(decoder.row_begin, decoder.place)
                self._refuse(message, reader.entries - 1, str(wrong), _entry_of_row(reader, bad))
                decoder.row += 1
                decoder.rows_read += 1
            transaction.rows += len(rows) - count
            transaction.rows_read += decoder.rows_read - read_before
            if self._transaction_metadata:
                transaction.rows_by_table[table.schema.table_id] = frame.collection_order
            place = decoder.place
            if decoder.room < 0:
                self.flush()
                message.release(place)
                yield None

    def _run_of(self, table: _Table, transaction: _Transaction) -> RunRows:
        """Rows of one table that stand side by side in a transaction share a run."""
        if self._run is not None and self._run[0] is table and self._batch.is_open(self._run[1]):
            return self._run[1].rows
        table.decoder.room = _MAX_RUN_BYTES
        if self._transaction_metadata and not transaction.is_told:
            transaction.is_told = True
            self._batch.add_begin(transaction.id, transaction.committed_at_us)
        run = self._batch.open_run(
            RowRun(
                table_id=table.schema.table_id,
                schema_version=table.schema.version,
                transaction_id=transaction.id,
                first_order=EventOrder(
                    epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows + 1
                ),
                committed_at_us=transaction.committed_at_us,
                is_snapshot=False,
            )
        )
        self._run = (table, run)
        return run.rows

    def _frame(self, table: _Table, transaction: _Transaction, reader: EntryReader) -> EntryFrame:
        pieces = table.source_block.pieces(
            snapshot=b'"false"',
            server_id=reader.server_id,
            gtid=transaction.id_json if transaction.gtid else b"null",
            file=json_text(_text(reader.file_name)),
        )
        tail = source_tail(transaction.thread_id)
        if not self._transaction_metadata:
            return EntryFrame(pieces, tail + b',"transaction":null', self._tails)
        frame = EntryFrame(
            pieces, tail + b',"transaction":{"id":%b,"total_order":' % transaction.id_json, self._tails, b"}"
        )
        frame.total_order = transaction.rows
        frame.collection_order = transaction.rows_by_table.get(table.schema.table_id, 0)
        return frame


_Event = TypeVar("_Event", bound=Message)


def _behind_rows(reader: EntryReader, place: int, rows: int) -> tuple[int, int]:
    """As ``EntryReader.skip_rows``. Raises UndecodableMessage: what stands there are no rows."""
    try:
        return reader.skip_rows(place, rows)
    except ValueError as error:
        raise UndecodableMessage(f"the rows cannot be read: {error}") from error


def _parsed(kind: type[_Event], reader: EntryReader) -> _Event:
    try:
        return kind.FromString(reader.event())
    except DecodeError as error:
        raise UndecodableMessage(f"the {kind.__name__} cannot be read") from error


def _columns(serialised: bytes) -> tuple[DtsColumn, ...]:
    try:
        return read_columns(serialised)
    except DecodeError as error:
        raise UndecodableMessage("the columns cannot be read") from error


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UndecodableMessage("a name in the header is not UTF-8") from error


def _file_number(name: str) -> tuple[int, str]:
    """``mysql-bin.000009`` comes before ``mysql-bin.000010``, and before ``mysql-bin.1000000``."""
    _, _, number = name.rpartition(".")
    return (int(number), "") if number.isdigit() else (0, name)


def _source_type_name(number: int) -> str:
    try:
        return pb.SourceType.Name(number).removeprefix("SOURCE_TYPE_")
    except ValueError:
        return f"SourceType {number}"


def _entry_of_row(reader: EntryReader, row: bytes) -> bytes:
    """Entries that hold one row, with its header and its columns."""
    header = pb.Header(
        version=reader.version,
        sourceType=reader.source_type,  # type: ignore[arg-type]
        messageType=pb.MESSAGE_TYPE_DML,
        timestamp=reader.timestamp_s,
        serverId=reader.server_id,
        fileName=_text(reader.file_name),
        position=reader.position,
        gtid=_text(reader.gtid),
        schemaName=_text(reader.schema_name),
        tableName=_text(reader.table_name),
        seqId=reader.seq_id,
    )
    # Serialised fields that stand one after another are one message, whatever the row's bytes are worth.
    event = pb.DMLEvent(dmlEventType=reader.dml_type).SerializeToString() + reader.columns + row  # type: ignore[arg-type]
    event = _field(pb.Event.DMLEVENT_FIELD_NUMBER, event)
    entry = _field(pb.Entry.HEADER_FIELD_NUMBER, header.SerializeToString()) + _field(
        pb.Entry.EVENT_FIELD_NUMBER, event
    )
    return _field(pb.Entries.ITEMS_FIELD_NUMBER, entry)


def _field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(content)) + content


def _tails(now_ns: int) -> tuple[bytes, bytes, bytes]:
    """The ends of a create, an update and a delete."""
    create, update, delete = (event_tail(op, now_ns) for op in "cud")
    return create, update, delete
