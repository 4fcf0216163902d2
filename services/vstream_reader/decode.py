"""From vtgate's answers to batches: events ▶ transactions ▶ rows as Debezium events, in the order of the stream.

``StreamDecoder`` is fed the answers one after another. It keeps the stream's own state: its shards (``shard_set``), the
columns of every table, the transaction that is open. It talks to nobody: ``feed`` yields a table that it has not met, and the
caller brings its version back. So everything here is tested from recorded bytes.

A transaction's VGTID comes after its rows and belongs into each of their events, so the answers of a transaction are kept
until its COMMIT; large ones lie on disk meanwhile (``TransactionStore``). The VGTID is read once a transaction, and of it only
the shards that changed.

Orders: the rank counts the transactions of the row's own shard up to its place, the epoch is that shard's (``vgtid``); the
ordinal counts a transaction's delivered rows from 1. Rows that are copied have the order after the place of their copy
(``EventOrder.after``): above each change that they hold. All
depends on nothing but the stream, so a replay gives them again.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import msgspec
import orjson
import structlog

from libs.errors import SchemaContradiction, SourceUnavailable, UndecodableValue
from libs.events.batch import BatchBuilder, RowRun
from libs.events.dead_letter import UndecodedRow
from libs.events.envelope import VitessSourceBlock, event_tail
from libs.events.run_rows import RunRows
from libs.formats.row_images import EventFrame
from libs.mysql.values import unscaled_to_base64
from libs.source.key_columns import KeyColumns
from libs.source.port import ShardProgress
from libs.source.vitess.settings import EventSettings, TransactionMetadata
from libs.types.order import EventOrder
from libs.types.position import SourcePosition
from libs.types.table import TableId, TableSchema
from libs.types.value import UNAVAILABLE_VALUE
from libs.types.value_modes import ValueModes
from protos.vitess import binlogdata_pb2
from services.vstream_reader.fields import OTHER_SCHEMA_REMEDY, reading, reads_otherwise_copied, table_schema
from services.vstream_reader.position import VitessPosition
from services.vstream_reader.row_changes import ImagesAbsent, RowChangesDecoder, ValueAbsent
from services.vstream_reader.shard_set import Shard, ShardSet
from services.vstream_reader.tally import StreamTally, TableTally
from services.vstream_reader.transaction_store import TransactionStore
from services.vstream_reader.vevents import VEvents

log = structlog.get_logger()

_MAX_RUN_BYTES: Final = 500_000
"""A run is closed at about so many bytes, so that a transaction of one table can be cut into batches too."""

_BEGIN, _COMMIT, _ROW = binlogdata_pb2.BEGIN, binlogdata_pb2.COMMIT, binlogdata_pb2.ROW
_FIELD, _VGTID, _DDL = binlogdata_pb2.FIELD, binlogdata_pb2.VGTID, binlogdata_pb2.DDL
_JOURNAL, _COPY_COMPLETED = binlogdata_pb2.JOURNAL, binlogdata_pb2.COPY_COMPLETED


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table as a FIELD event describes it, in a form that has no version yet: the caller answers with ``learn``."""

    schema: TableSchema
    order: EventOrder
    position: SourcePosition
    committed_at_us: int


@dataclass(frozen=True, slots=True)
class DdlStatement:
    """A statement that a shard executed. It says nothing of columns: the next FIELD event does."""

    statement: str
    shard: str
    order: EventOrder
    position: SourcePosition
    committed_at_us: int
    vgtid: bytes
    """As JSON text."""


@dataclass(frozen=True, slots=True)
class Reshard:
    """A journal: the shards named in it have ended, others go on."""

    journal: binlogdata_pb2.Journal


Found = NewTable | DdlStatement | Reshard


@dataclass(frozen=True, slots=True)
class _Table:
    """A captured table of one shard at its present version."""

    key: tuple[bytes, bytes]
    """Table and shard as ROW events name them."""
    schema: TableSchema
    decoder: RowChangesDecoder
    copied_decoder: RowChangesDecoder
    """Of rows that are copied: the same where they are read alike."""
    source_block: VitessSourceBlock
    tally: TableTally

    def decoder_of(self, transaction: "_Transaction") -> RowChangesDecoder:
        return self.copied_decoder if transaction.is_copy else self.decoder


@dataclass(frozen=True, slots=True)
class _OpenRun:
    """Rows of one table and transaction that are being gathered, with the common parts of their values."""

    table: _Table
    run: RowRun
    rows: RunRows
    """Of ``run``."""
    frame: EventFrame


@dataclass(slots=True)
class _Transaction:
    """The transaction whose rows are being decoded."""

    shard: Shard
    id: str
    id_json: bytes
    local_id_json: bytes
    is_copy: bool
    committed_at_us: int
    rows: int = 0
    rows_by_table: dict[TableId, int] = field(default_factory=dict)
    has_begun: bool = False

    @property
    def order(self) -> EventOrder:
        """Of its newest row; of a copy, the place in the log that its rows are of."""
        return EventOrder(epoch=self.shard.epoch, rank=self.shard.rank, tx_ordinal=0 if self.is_copy else self.rows)

    @property
    def row_order(self) -> EventOrder:
        """Of its newest row."""
        return self.order.after() if self.is_copy else self.order


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """A decoder's settings for its source."""

    source: str
    keyspace: str
    is_captured: Callable[[TableId], bool]
    modes: ValueModes
    events: EventSettings
    key_columns: Sequence[KeyColumns] = ()
    spill_dir: Path | None = None
    is_recopy: bool = False
    """Only the rows that are copied are delivered: another stream delivers the changes."""
    for_tenants: tuple[str, ...] = ()
    """Only these tenants get the rows; empty: all that see the table."""
    source_partition: str = "0"
    set_aside: Callable[[UndecodedRow], None] | None = None
    """Takes a row that cannot be decoded, and decoding goes on; without it the error is raised."""
    tally: StreamTally = field(default_factory=StreamTally)
    """Counts the stream's content."""


class StreamDecoder:
    """Decodes one VStream from a position on."""

    def __init__(
        self,
        options: DecoderOptions,
        position: VitessPosition,
        versions: Mapping[TableSchema, TableSchema],
        *,
        batch: BatchBuilder,
        is_copying: bool,
    ) -> None:
        """``versions``: every schema that has a version already, with version 0 as the key and the version as the value."""
        self._options = options
        self._batch = batch
        self._versions = dict(versions)
        self._removed = frozenset(options.events.remove_fields)
        self.shards = ShardSet(position, is_copying=is_copying)
        """Where the stream stands; see ``is_resumable``."""
        self._tables: dict[tuple[bytes, bytes], _Table | None] = {}
        self._decoders: WeakValueDictionary[tuple[TableSchema, bool, bool], RowChangesDecoder] = WeakValueDictionary()
        """By schema, whether members come as text, and whether rows are copied. All shards share them."""
        self._store = TransactionStore(options.spill_dir)
        self._is_open = False
        self._began_at_us = 0
        self._is_committing = False
        self._vgtid = b""
        self._transaction: _Transaction | None = None
        self._run: _OpenRun | None = None
        self._room = 0
        self._now_ns = time.time_ns()
        self._tails: tuple[bytes, ...] | None = None
        self.committed_at_us = 0
        """Commit time of the newest transaction that ended."""
        self.last_order = EventOrder(
            epoch=max((shard.epoch for shard in self.shards), default=0),
            rank=max((shard.rank for shard in self.shards), default=0),
            tx_ordinal=0,
        )
        """The greatest order of the events that ended: shards count their transactions each by itself, and a checkpoint may
        not go backwards when a shard with fewer of them follows one with more."""
        self.transactions = 0
        self.rows_copied = 0

    # --- where it stands ---------------------------------------------------------------------------------------------------

    @property
    def is_between_transactions(self) -> bool:
        """No transaction has arrived in part."""
        return not self._is_open

    @property
    def is_resumable(self) -> bool:
        """The stream may be resumed from its shards' position: no transaction is in the batch in part, every shard has
        begun, and none could have been ended by a reshard before that.

        From ``current`` a shard would begin later than it did before, behind changes that nobody has; and a shard of which no
        row was copied would begin its copy again, perhaps after the journal of a reshard, which then never comes.
        """
        return not self._is_committing and self.shards.has_begun

    def shard_progress(self) -> list[ShardProgress]:
        """Every shard that is read now, or that waits for the task which takes it up, with its counts."""
        found = []
        for shard in (*self.shards, *self.shards.let_go):
            tally = self._options.tally.of_shard(shard.name)
            found.append(
                ShardProgress(
                    shard=shard.name,
                    position=shard.gtid.gtid,
                    rank=shard.rank,
                    epoch=shard.epoch,
                    committed_at_us=tally.committed_at_us,
                    lag_s=tally.lag_us / 1e6,
                    transactions=tally.transactions,
                    rows=tally.rows,
                    rows_copied=tally.rows_copied,
                    is_copying=self.shards.copy.is_of(shard.name),
                    is_ended=shard.name in self.shards.held or shard.name not in self.shards.names,
                )
            )
        return found

    def tick(self, now_ns: int) -> None:
        """The time that the next events are marked with as processed."""
        self._now_ns = now_ns
        self._tails = None

    def learn(self, unversioned: TableSchema, versioned: TableSchema) -> None:
        """The version of a table that ``feed`` yielded."""
        self._versions[unversioned] = versioned

    def flush(self) -> None:
        """Close the open run, so that the batch can be taken; decoding goes on with a new one."""
        self._run = None
        self._batch.close_run()

    # --- events ------------------------------------------------------------------------------------------------------------

    def feed(self, answer: bytes) -> Iterator[Found | None]:
        """Take one VStreamResponse.

        Yields a ``NewTable`` before any row of it (``learn`` comes before the next step), a statement or a reshard at its
        place, and None wherever the batch may be taken: after each transaction, and inside one when a run was closed for its
        size.

        Raises:
            SourceUnavailable: vtgate contradicts itself; open the stream again.
            SchemaContradiction, UndecodableValue, PipelineHalted: the message names table, shard and place.
        """
        events = _events_of(answer)
        began = 0
        statements: list[int] = []
        nth = 0
        while nth < len(events):
            kind = events.kind(nth)
            if kind == _ROW:
                self._require_open()
                nth = events.behind_rows(nth)
                continue
            if kind == _BEGIN:
                self._begin(events.timestamp(nth))
                began = nth
            elif kind == _VGTID:
                self._vgtid = events.payload(nth)
                if not self._is_open:
                    self._advance(self._vgtid)
            elif kind == _COMMIT:
                self._require_open()
                yield from self._commit(events, began, nth)
                yield None
            elif kind == _DDL:
                statements.append(nth)
            elif kind == _JOURNAL:
                yield from self._reshard_announced(binlogdata_pb2.VEvent.FromString(events.event(nth)))
            elif kind == _COPY_COMPLETED:
                self.shards.end_copy(binlogdata_pb2.VEvent.FromString(events.event(nth)).shard)
            elif kind == _FIELD and not self._is_open:
                yield from self._take_fields(events.payload(nth))
            nth += 1
        if self._is_open:
            self._store.add(events, began, len(events))
        for place in statements:  # after the VGTID that came with them
            if not self._options.is_recopy:
                yield self._statement(binlogdata_pb2.VEvent.FromString(events.event(place)))

    def _begin(self, timestamp_s: int) -> None:
        """A transaction with columns only may be followed by another BEGIN: a copy that found no row."""
        if self._is_open and self._store.has_rows:
            raise SourceUnavailable("vtgate began a transaction inside another: the stream is opened again")
        self._is_open = True
        self._began_at_us = timestamp_s * 1_000_000
        self._vgtid = b""

    def _require_open(self) -> None:
        if not self._is_open:
            raise SourceUnavailable("vtgate sent a row or a COMMIT outside a transaction: the stream is opened again")

    def _commit(self, events: VEvents, began: int, end: int) -> Iterator[Found | None]:
        if not self._vgtid:
            if self._store.has_rows or events.behind_rows(began) != end:
                log.warning("transaction_without_vgtid")
            raise SourceUnavailable("vtgate sent a transaction without a VGTID: the stream is opened again")
        self._is_committing = True
        self._advance(self._vgtid)
        self._transaction = None
        for segment in self._store.taken(events, began, end):
            yield from self._decode(*segment)
        self._is_open = self._is_committing = False
        self.flush()
        self.transactions += 1
        self._end_transaction(events.timestamp(end))

    def _end_transaction(self, timestamp_s: int) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        ended_at_us = timestamp_s * 1_000_000 or transaction.committed_at_us
        tally = self._options.tally.of_shard(transaction.shard.name)
        tally.rows += transaction.rows
        if transaction.is_copy:
            self.rows_copied += transaction.rows
            tally.rows_copied += transaction.rows
        else:
            self.committed_at_us = tally.committed_at_us = ended_at_us
            tally.lag_us = max(0, self._now_ns // 1_000 - ended_at_us)
            tally.transactions += 1
        self.last_order = max(self.last_order, transaction.order)
        if self._has_boundaries(transaction) and transaction.rows:
            self._batch.add_end(transaction.id, ended_at_us, tuple(transaction.rows_by_table.items()))

    def _statement(self, event: binlogdata_pb2.VEvent) -> DdlStatement:
        shard = self.shards.get(event.shard) or next(iter(self.shards), None)
        if shard is None:
            raise SourceUnavailable("vtgate sent a statement before any VGTID: the stream is opened again")
        return DdlStatement(
            statement=event.statement,
            shard=event.shard or shard.name,
            order=EventOrder(epoch=shard.epoch, rank=shard.rank, tx_ordinal=0),
            position=self.shards.position,
            committed_at_us=event.timestamp * 1_000_000,
            vgtid=self.shards.vgtid_json(),
        )

    def _reshard_announced(self, event: binlogdata_pb2.VEvent) -> Iterator[Reshard]:
        if event.journal.migration_type == binlogdata_pb2.SHARDS:
            self.shards.hold(event.shard)
            yield Reshard(event.journal)

    def _advance(self, vgtid: bytes) -> None:
        """Put a VGTID into force."""
        if self.shards.advance(vgtid):
            self._tables = {key: table for key, table in self._tables.items() if key[1].decode() in self.shards.names}

    # --- tables ------------------------------------------------------------------------------------------------------------

    def _take_fields(self, payload: bytes) -> Iterator[Found]:
        event = binlogdata_pb2.FieldEvent.FromString(payload)
        keyspace = event.keyspace or self._options.keyspace
        key = (event.table_name.encode(), event.shard.encode())
        table_id = TableId(database=keyspace, table=event.table_name.removeprefix(f"{keyspace}."))
        if not self._options.is_captured(table_id):
            self._tables[key] = None
            return
        self.shards.copy.begin_table(event.shard, table_id.table)
        unversioned = table_schema(event, keyspace, modes=self._options.modes, key_columns=self._options.key_columns)
        if unversioned not in self._versions:
            shard = self.shards.get(event.shard) or next(iter(self.shards))
            yield NewTable(
                schema=unversioned,
                order=EventOrder(epoch=shard.epoch, rank=shard.rank, tx_ordinal=0),
                position=self.shards.position,
                committed_at_us=self.committed_at_us or self._now_ns // 1_000,
            )
        schema = self._versions[unversioned]
        decoder = copied_decoder = self._decoder(schema, event.enum_set_string_values, is_copy=False)
        if self.shards.copy.is_running and any(
            reads_otherwise_copied(column, has_text_members=event.enum_set_string_values) for column in schema.columns
        ):
            copied_decoder = self._decoder(schema, event.enum_set_string_values, is_copy=True)
        self._tables[key] = _Table(
            key,
            schema,
            decoder,
            copied_decoder,
            VitessSourceBlock(self._options.source, keyspace, table_id.table, event.shard, removed=self._removed),
            self._options.tally.of_table(str(table_id)),
        )

    def _decoder(self, schema: TableSchema, has_text_members: bool, *, is_copy: bool) -> RowChangesDecoder:
        key = (schema, has_text_members, is_copy)
        decoder = self._decoders.get(key)
        if decoder is None:
            placeholder = self._options.modes.unavailable_placeholder or UNAVAILABLE_VALUE
            decoder = self._decoders[key] = _row_decoder(schema, has_text_members, placeholder, is_copy=is_copy)
        return decoder

    # --- rows --------------------------------------------------------------------------------------------------------------

    def _decode(self, events: VEvents, nth: int, end: int) -> Iterator[Found | None]:
        """The FIELD and ROW events from ``nth`` to before ``end``."""
        while nth < end:
            kind = events.kind(nth)
            if kind == _FIELD:
                self.flush()
                yield from self._take_fields(events.payload(nth))
            elif kind == _ROW:
                table_name, shard_name = events.row_table(nth)
                table = self._table(table_name, shard_name)
                transaction = self._transaction
                if transaction is None:
                    transaction = self._transaction = self._transaction_of(events, nth, shard_name.decode())
                if table is None or (self._options.is_recopy and not transaction.is_copy):
                    self._options.tally.filtered_events += table is None
                    nth += 1
                    continue
                nth = self._rows(table, transaction, events, nth, end)
                if self._room < 0:
                    self.flush()
                    yield None
                continue
            nth += 1

    def _table(self, table_name: bytes, shard_name: bytes) -> _Table | None:
        try:
            return self._tables[table_name, shard_name]
        except KeyError:
            raise SourceUnavailable(
                f"vtgate sent a row of {table_name.decode(errors='replace')} (shard {shard_name.decode(errors='replace')}) "
                "before telling its columns: the stream is opened again"
            ) from None

    def _transaction_of(self, events: VEvents, nth: int, shard_name: str) -> _Transaction:
        shard = self.shards.get(shard_name)
        if shard is None:
            if len(self.shards) != 1:
                raise SourceUnavailable(
                    f"vtgate sent a row of shard {shard_name!r}, which its VGTID does not name: the stream is opened again"
                )
            (shard,) = self.shards
        timestamp = events.timestamp(nth)
        copy = self.shards.copy
        is_copy = copy.is_running and (timestamp == 0 or copy.is_advanced(shard.name))
        vgtid = self.shards.vgtid_json()
        return _Transaction(
            shard=shard,
            id=msgspec.json.decode(vgtid),
            id_json=vgtid,
            local_id_json=self.shards.vgtid_json(shard) if self._options.events.use_local_vgtid else vgtid,
            is_copy=is_copy,
            committed_at_us=timestamp * 1_000_000 if timestamp else self._now_ns // 1_000_000_000 * 1_000_000,
        )

    def _rows(self, table: _Table, transaction: _Transaction, events: VEvents, nth: int, end: int) -> int:
        """Decode the row events of the same table from ``nth`` on; returns the number of the event to go on with."""
        run = self._run
        if run is None or run.table is not table or not self._batch.is_open(run.run):
            run = self._run = self._open_run(table, transaction)
        count = len(run.rows)
        try:
            nth_after, _, self._room = table.decoder_of(transaction).decode(
                run.frame, run.rows, events, nth, *table.key, transaction.is_copy, self._room
            )
        except Exception as error:
            wrong = self._unreadable(table, transaction, error)
            if self._options.set_aside is None or not isinstance(wrong, UndecodableValue):
                raise wrong from error
            nth_after = self._pass_over(table, transaction, events, len(run.rows) - count, str(wrong))
        else:
            assert nth < nth_after <= end
            transaction.rows += len(run.rows) - count
        if transaction.is_copy:
            table.tally.copied += len(run.rows) - count
        else:
            table.tally.changed += len(run.rows) - count
        if self._options.events.transaction_metadata is not TransactionMetadata.OFF:
            transaction.rows_by_table[table.schema.table_id] = run.frame.collection_order
        return nth_after

    def _pass_over(self, table: _Table, transaction: _Transaction, events: VEvents, added: int, reason: str) -> int:
        """Set aside the row that decoding failed at, after ``added`` others; returns the event to go on with, which may have
        more rows. The row's place in the transaction's order stays its own, so that a replay gives every other row the order it
        had: a new run begins after it."""
        decoder, schema = table.decoder_of(transaction), table.schema
        assert self._options.set_aside is not None
        transaction.rows += added + 1
        row, column = decoder.row, schema.columns[decoder.column].name
        self._options.set_aside(
            UndecodedRow(
                source=self._options.source,
                source_partition=self._options.source_partition,
                database=schema.table_id.database,
                table=schema.table_id.table,
                column=column,
                schema_version=schema.version,
                reason=reason,
                transaction_id=transaction.id,
                order=transaction.row_order,
                file=transaction.shard.name,
                position=0,
                row=row,
                images=decoder.pass_over(events),
            )
        )
        self.flush()
        return decoder.event

    def _unreadable(self, table: _Table, transaction: _Transaction, error: Exception) -> Exception:
        decoder, schema = table.decoder_of(transaction), table.schema
        where = f"shard {transaction.shard.name}, transaction {transaction.shard.gtid.gtid}"
        if isinstance(error, ImagesAbsent):
            return UndecodableValue(
                f"{schema.table_id} at row {decoder.row}: vtgate sent a change with neither the row before nor the row after "
                f"({where}); copy the table anew, and report it to Vitess"
            )
        if decoder.cells != len(schema.columns):
            return SchemaContradiction(
                f"{schema.table_id}: vtgate sent a row of {decoder.cells} values where its FIELD event has "
                f"{len(schema.columns)} columns ({where}): {OTHER_SCHEMA_REMEDY}"
            )
        column = schema.columns[decoder.column]
        if isinstance(error, ValueAbsent):
            return UndecodableValue(
                f"{schema.table_id}.{column.name} at row {decoder.row}: the log does not hold the value ({where}); set "
                "binlog_row_image=full and an empty binlog_row_value_options on the tablets' MySQL servers, then copy the "
                "table anew"
            )
        return UndecodableValue(
            f"{schema.table_id}.{column.name} at row {decoder.row}: the value does not fit its type {column.source_type} "
            f"({where}); repair the row at the source, or exclude the table"
        )

    def _has_boundaries(self, transaction: _Transaction) -> bool:
        settings = self._options.events
        return (
            settings.transaction_metadata is not TransactionMetadata.OFF
            and not settings.filter_transaction_topic
            and not transaction.is_copy
        )

    def _open_run(self, table: _Table, transaction: _Transaction) -> _OpenRun:
        self._room = _MAX_RUN_BYTES
        if self._has_boundaries(transaction) and not transaction.has_begun:
            transaction.has_begun = True
            self._batch.add_begin(transaction.id, self._began_at_us or transaction.committed_at_us)
        run = self._batch.open_run(
            RowRun(
                table_id=table.schema.table_id,
                schema_version=table.schema.version,
                transaction_id="" if transaction.is_copy else transaction.id,
                first_order=transaction.row_order
                if transaction.is_copy
                else msgspec.structs.replace(transaction.order, tx_ordinal=transaction.rows + 1),
                committed_at_us=transaction.committed_at_us,
                is_snapshot=transaction.is_copy,
                for_tenants=self._options.for_tenants,
            )
        )
        return _OpenRun(table, run, run.rows, self._frame(table, transaction))

    def _frame(self, table: _Table, transaction: _Transaction) -> EventFrame:
        snapshot = b'"false"'
        if transaction.is_copy:
            snapshot = b'"incremental"' if self._options.is_recopy else b'"true"'
        source = b',"source":' + table.source_block.filled(
            time_us=transaction.committed_at_us, snapshot=snapshot, vgtid=transaction.local_id_json
        )
        ends = self._ends()
        metadata = self._options.events.transaction_metadata
        if metadata is TransactionMetadata.OFF or transaction.is_copy:
            return EventFrame(source, b',"transaction":null', ends)
        identity = b"" if "transaction.id" in self._removed else b'"id":%b,' % transaction.id_json
        frame = EventFrame(
            source, b',"transaction":{' + identity + b'"total_order":', ends, self._order_members(transaction) + b"}"
        )
        frame.total_order = transaction.rows
        frame.collection_order = transaction.rows_by_table.get(table.schema.table_id, 0)
        return frame

    def _ends(self) -> tuple[bytes, ...]:
        """The ends of a create, an update, a delete and a read: the same for all that is taken in one tick."""
        if self._tails is None:
            self._tails = tuple(event_tail(op, self._now_ns, removed=self._removed) for op in "cudr")
        return self._tails

    def _order_members(self, transaction: _Transaction) -> bytes:
        if self._options.events.transaction_metadata is not TransactionMetadata.ORDERED:
            return b""
        members = (
            ("transaction_epoch", b"%d" % transaction.shard.epoch),
            ("transaction_rank", orjson.dumps(unscaled_to_base64(transaction.shard.debezium_rank))),
        )
        return b"".join(
            b',"%b":%b' % (name.encode(), value)
            for name, value in members
            if f"transaction.{name}" not in self._removed
        )


def _events_of(answer: bytes) -> VEvents:
    try:
        return VEvents(answer)
    except ValueError as error:
        raise SourceUnavailable(f"vtgate sent what is no answer ({error}): the stream is opened again") from error


def _row_decoder(schema: TableSchema, has_text_members: bool, placeholder: str, *, is_copy: bool) -> RowChangesDecoder:
    return RowChangesDecoder(
        [
            reading(column, has_text_members=has_text_members, is_copy=is_copy, placeholder=placeholder)
            for column in schema.columns
        ],
        [orjson.dumps(column.name) for column in schema.columns],
        [_place_of(schema, name) for name in schema.key],
    )


def _place_of(schema: TableSchema, name: str) -> int:
    return next(place for place, column in enumerate(schema.columns) if column.name == name)
