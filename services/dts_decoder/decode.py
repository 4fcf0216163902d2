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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from libs.errors import InvalidEvent, PipelineHalted, UndecodableMessage
from libs.events.batch import BatchBuilder
from libs.events.envelope import json_text
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from protos.dts import subscription_pb2 as pb
from services.dts_decoder.assembly import WholeMessage
from services.dts_decoder.found import DdlStatement, RolledBack, UnknownTable
from services.dts_decoder.header_text import text_of
from services.dts_decoder.message_tables import MessageTables, columns_of
from services.dts_decoder.messages import EntryReader
from services.dts_decoder.position import DtsPosition
from services.dts_decoder.row_runs import RowRuns
from services.dts_decoder.set_aside import TakeAside, refuse
from services.dts_decoder.topic_place import TopicPlace
from services.dts_decoder.transaction import Transaction

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


@dataclass(slots=True)
class SubscriptionProgress:
    """The counts of the topic, up to the last transaction that ended."""

    last_order: EventOrder
    """Of the last event."""
    committed_at_us: int = 0
    """Commit time of the newest transaction; 0: none has ended."""
    transactions: int = 0
    repeats: int = 0
    checkpoints: int = 0
    confirmable_offset: int | None = None
    """After the newest message that begins with a CHECKPOINT: the consumer group may be set to it once it is durable.
    (Tencent's own client looks at the first entry only.)"""


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
        set_aside: TakeAside | None = None,
        set_row_aside: TakeAside | None = None,
    ) -> None:
        """``set_aside`` takes entries that cannot be decoded, and ``set_row_aside`` rows. Decoding goes on then; without them
        the error is raised."""
        self.progress = SubscriptionProgress(order)
        self._place = TopicPlace(position)
        self._tables = MessageTables(source, schemas, is_captured)
        self._runs = RowRuns(batch, set_row_aside, transaction_metadata=transaction_metadata)
        self._rolled_back = rolled_back
        self._take_aside = set_aside
        self._transaction: Transaction | None = None
        self._repeated: str | None = None
        """GTID of the transaction whose entries are dropped: it came already, or was rolled back."""

    @property
    def is_between_transactions(self) -> bool:
        """The topic may be resumed from ``position``."""
        return self._transaction is None

    @property
    def position(self) -> DtsPosition:
        """Where the topic stands; to resume from only between transactions."""
        return self._place.position

    @property
    def schemas(self) -> Mapping[TableId, TableSchema]:
        """The tables as they are at this place."""
        return self._tables.schemas

    def tick(self, now_ns: int) -> None:
        """The time that the next events are marked with as processed."""
        self._runs.tick(now_ns)

    def apply_schemas(self, schemas: Mapping[TableId, TableSchema | None]) -> None:
        """Schemas that are in force from here on; None: the table is gone."""
        self._tables.apply_schemas(schemas)

    def flush(self) -> None:
        """Close the open run, so that the batch can be taken; decoding goes on with a new one."""
        self._runs.flush()

    def feed(self, message: WholeMessage) -> Iterator[DdlStatement | UnknownTable | None]:
        """Take the entries of ``message``, one after another.

        Yields a DDL statement, or a table that is not known, before anything after it is taken (``apply_schemas`` comes
        before the next step), and None wherever the batch may be taken.

        Raises UndecodableMessage, UndecodableValue, SchemaContradiction, PipelineHalted, RolledBack; the message names topic,
        partition and offset.
        """
        reader = EntryReader(message.data)
        done = self._place.entries_taken(message.first_offset)
        while True:
            try:
                if not reader.advance():
                    break
            except ValueError as error:
                rest = reader.piece(reader.entry_begin, len(message.data))
                refuse(
                    self._take_aside, message, reader.entries, f"entry {reader.entries} cannot be read: {error}", rest
                )
                break
            if reader.entries <= done:
                continue
            try:
                yield from self._entry(message, reader, reader.entries - 1)
            except InvalidEvent as error:
                entry = reader.piece(reader.entry_begin, reader.entry_end)
                refuse(self._take_aside, message, reader.entries - 1, str(error), entry, error)
            if self._transaction is None:
                self._place.stand(message.first_offset, reader.entries, self._place.ps)
                yield None
            message.release(reader.entry_end)
        if self._transaction is None:
            self._place.stand(message.last_offset + 1, 0, message.ps)
            yield None

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
        self.progress.checkpoints += 1
        if nth == 0:
            self.progress.confirmable_offset = message.last_offset + 1
        if event.syncedGtid and not event.fakeGtid:
            self._place.synced(event.syncedGtid)

    # --- transactions ----------------------------------------------------------------------------------------------------

    def _begin(self, message: WholeMessage, reader: EntryReader, nth: int) -> None:
        self._end_implicit(reader)
        event = _parsed(pb.BeginEvent, reader)
        gtid = self._place.gtid_of(reader)[0]
        open_now = self._transaction
        is_rolled_back = (message.first_offset, nth) in self._rolled_back
        if is_rolled_back or self._place.has_passed(reader):
            self._repeated = gtid
            self.progress.repeats += not is_rolled_back
            if open_now is not None:
                open_now.is_interrupted = True
            return
        self._repeated = None
        if open_now is None:
            self._transaction = self._opened(message, reader, nth, has_begin=True)
            self._transaction.thread_id = event.threadId
        elif gtid and gtid == open_now.gtid:
            self.progress.repeats += 1
            open_now.counts.to_skip, open_now.counts.read = open_now.counts.read, 0
        else:
            raise PipelineHalted(
                f"{message.place}: transaction {gtid or reader.position} begins, and {open_now.id} has not ended: its rest "
                "is missing; re-snapshot the source"
            )

    def _opened(self, message: WholeMessage, reader: EntryReader, nth: int, *, has_begin: bool) -> Transaction:
        gtid = self._place.gtid_of(reader)[0]
        name = gtid or f"{text_of(reader.file_name)}:{reader.position}"
        return Transaction(
            gtid=gtid,
            id=name,
            order=EventOrder(epoch=self._place.epoch(reader), rank=self.progress.last_order.rank + 1, tx_ordinal=0),
            place=(message.first_offset, nth),
            committed_at_us=reader.timestamp_s * 1_000_000,
            has_begin=has_begin,
            id_json=json_text(name),
        )

    def _commit(self, reader: EntryReader) -> None:
        if self._repeated is not None:
            self._repeated = None
            return
        transaction = self._transaction
        if transaction is None:
            return
        gtid = self._place.gtid_of(reader)[0]
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
        if transaction.counts.delivered:
            raise RolledBack(transaction.place)
        self.flush()
        self._transaction = None

    def _end_implicit(self, reader: EntryReader) -> None:
        """A transaction that came without a BEGIN ends where something else comes."""
        transaction = self._transaction
        if transaction is not None and not transaction.has_begin:
            self._end(transaction, None)

    def _end(self, transaction: Transaction, reader: EntryReader | None) -> None:
        self._transaction = None
        self.flush()
        self._place.passed(transaction.gtid, reader)
        self.progress.transactions += 1
        self.progress.committed_at_us = transaction.committed_at_us
        self.progress.last_order = transaction.newest_order
        self._runs.end(transaction)

    # --- schemas ---------------------------------------------------------------------------------------------------------

    def _ddl(self, message: WholeMessage, reader: EntryReader, nth: int) -> Iterator[DdlStatement]:
        self._end_implicit(reader)
        event = _parsed(pb.DDLEvent, reader)
        if self._repeated is not None or (self._transaction is None and self._place.has_passed(reader)):
            self.progress.repeats += 1
            return
        transaction = self._transaction or self._opened(message, reader, nth, has_begin=False)
        self.flush()
        self._place.passed(transaction.gtid if self._transaction is None else "", reader)
        yield DdlStatement(
            database=event.schemaName or text_of(reader.schema_name),
            statement=event.sql,
            order=transaction.newest_order,
            position=self.position,
            committed_at_us=transaction.committed_at_us,
            server_id=reader.server_id,
            gtid=transaction.gtid,
        )
        if self._transaction is None:
            self.progress.transactions += 1
            self.progress.committed_at_us = transaction.committed_at_us
            self.progress.last_order = transaction.newest_order

    # --- rows ------------------------------------------------------------------------------------------------------------

    def _rows(self, message: WholeMessage, reader: EntryReader, nth: int) -> Iterator[UnknownTable | None]:
        open_now = self._transaction
        if open_now is not None and not open_now.has_begin and self._place.gtid_of(reader)[0] != open_now.gtid:
            self._end(open_now, None)
        if self._repeated is not None and self._repeated == self._place.gtid_of(reader)[0]:
            return
        if self._transaction is None:
            if self._place.has_passed(reader):
                return
            self._transaction = self._opened(message, reader, nth, has_begin=False)
        transaction = self._transaction
        try:
            reader.read_dml()
        except ValueError as error:
            raise UndecodableMessage(f"the rows cannot be read: {error}") from error
        place = reader.rows_begin
        if transaction.counts.to_skip:
            place, skipped = _behind_rows(reader, place, transaction.counts.to_skip)
            transaction.counts.to_skip -= skipped
            transaction.counts.read += skipped
        try:
            table = self._tables.table_of(reader)
        except KeyError:
            yield self._unknown_table(reader, transaction)
            table = self._tables.table_of(reader)
        if table is None:
            place, passed = _behind_rows(reader, place, 2**31 - 1)
            transaction.counts.read += passed
            return
        yield from self._runs.decode(message, reader, table, transaction, place)
        if not transaction.has_begin:
            self._place.passed("", reader)

    def _unknown_table(self, reader: EntryReader, transaction: Transaction) -> UnknownTable:
        self.flush()
        return UnknownTable(
            table_id=TableId(database=text_of(reader.schema_name), table=text_of(reader.table_name)),
            columns=columns_of(reader.columns),
            order=transaction.newest_order,
            position=self.position,
            committed_at_us=transaction.committed_at_us,
            server_id=reader.server_id,
            gtid=transaction.gtid,
        )


_Event = TypeVar("_Event", bound=Message)


def _behind_rows(reader: EntryReader, place: int, rows: int) -> tuple[int, int]:
    """As ``EntryReader.skip_rows``. Raises UndecodableMessage: the bytes there are no rows."""
    try:
        return reader.skip_rows(place, rows)
    except ValueError as error:
        raise UndecodableMessage(f"the rows cannot be read: {error}") from error


def _parsed(kind: type[_Event], reader: EntryReader) -> _Event:
    try:
        return kind.FromString(reader.event())
    except DecodeError as error:
        raise UndecodableMessage(f"the {kind.__name__} cannot be read") from error


def _source_type_name(number: int) -> str:
    try:
        return pb.SourceType.Name(number).removeprefix("SOURCE_TYPE_")
    except ValueError:
        return f"SourceType {number}"
