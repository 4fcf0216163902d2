"""From vtgate's answers to batches: events ▶ transactions ▶ rows as Debezium events, in the order of the stream.

``StreamDecoder`` is fed the answers one after another. It keeps the transaction that is open; ``shard_set`` has the stream's
shards, ``stream_tables`` the columns of every table, ``row_runs`` the rows on their way into the batch. It talks to nobody:
``feed`` yields a new table, and the caller brings its version back. So everything here is tested from recorded
bytes.

A transaction's VGTID comes after its rows and belongs into each of their events, so the answers of a transaction are kept
until its COMMIT; large ones lie on disk meanwhile (``TransactionStore``). The VGTID is read once a transaction, and of it only
the shards that changed.

Orders: the rank counts the transactions of the row's own shard up to its place, the epoch is that shard's (``vgtid``); the
ordinal counts a transaction's delivered rows from 1. Rows that are copied have the order after the place of their copy
(``EventOrder.after``): above each change that they hold. All of it depends on nothing but the stream: a replay
gives the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
import structlog

from libs.errors import SourceUnavailable
from libs.events.batch import BatchBuilder
from libs.source.port import ShardProgress
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from protos.vitess import binlogdata_pb2
from services.vstream_reader.decoder_options import DecoderOptions
from services.vstream_reader.found import DdlStatement, Found, Reshard
from services.vstream_reader.position import VitessPosition
from services.vstream_reader.row_runs import RowRuns
from services.vstream_reader.shard_set import ShardSet
from services.vstream_reader.stream_tables import StreamTables
from services.vstream_reader.transaction import Transaction
from services.vstream_reader.transaction_store import TransactionStore
from services.vstream_reader.vevents import VEvents

log = structlog.get_logger()

_BEGIN, _COMMIT, _ROW = binlogdata_pb2.BEGIN, binlogdata_pb2.COMMIT, binlogdata_pb2.ROW
_FIELD, _VGTID, _DDL = binlogdata_pb2.FIELD, binlogdata_pb2.VGTID, binlogdata_pb2.DDL
_JOURNAL, _COPY_COMPLETED = binlogdata_pb2.JOURNAL, binlogdata_pb2.COPY_COMPLETED
_OTHER = binlogdata_pb2.OTHER


@dataclass(slots=True)
class StreamProgress:
    """The counts of one stream, up to the last transaction that ended."""

    last_order: EventOrder
    """The greatest order of the events that ended: shards count their transactions each by itself, and a checkpoint may not go
    backwards when a shard with fewer of them follows one with more."""
    committed_at_us: int = 0
    """Commit time of the newest transaction; 0: none has ended."""
    transactions: int = 0
    rows_copied: int = 0


@dataclass(slots=True)
class _OpenTransaction:
    """It has begun, and its COMMIT is to come."""

    began_at_us: int
    is_bare: bool = True
    """Neither a row nor columns of it have come."""


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
        self.shards = ShardSet(position, is_copying=is_copying)
        """Where the stream stands; see ``is_resumable``."""
        self.progress = StreamProgress(
            EventOrder(
                epoch=max((shard.epoch for shard in self.shards), default=0),
                rank=max((shard.rank for shard in self.shards), default=0),
                tx_ordinal=0,
            )
        )
        self._tables = StreamTables(options, versions)
        self._runs = RowRuns(options, batch)
        self._store = TransactionStore(options.spill_dir)
        self._open: _OpenTransaction | None = None
        self._is_committing = False
        self._paused: set[str] = set()
        """Shards whose transaction goes on after a statement in it, as CREATE TABLE … AS SELECT. vtgate sends the statement at
        once, then perhaps transactions of other shards, then the rest without a BEGIN (vstream_manager.go)."""
        self._vgtid = b""
        self._transaction: Transaction | None = None

    # --- where it stands ---------------------------------------------------------------------------------------------------

    @property
    def is_between_transactions(self) -> bool:
        """No transaction has arrived in part."""
        return self._open is None and not self._paused

    @property
    def is_resumable(self) -> bool:
        """The stream may be resumed from its shards' position: no transaction is in the batch in part, every shard has
        begun, and none could have been ended by a reshard before that.

        From ``current`` a shard would begin later than it did before, after changes that nobody has; and a shard of which no
        row was copied would begin its copy again, perhaps after the journal of a reshard, which then never comes. The position
        of a shard whose transaction goes on after a statement has that transaction already.
        """
        return not self._is_committing and not self._paused and self.shards.begun.are_all

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
                    is_ended=shard.name in self.shards.begun.held or shard.name not in self.shards.names,
                )
            )
        return found

    def tick(self, now_ns: int) -> None:
        """The time that the next events are marked with as processed."""
        self._runs.tick(now_ns)

    def learn(self, unversioned: TableSchema, versioned: TableSchema) -> None:
        """The version of a table that ``feed`` yielded."""
        self._tables.learn(unversioned, versioned)

    def tables_of(self, shard: str) -> dict[TableId, TableSchema]:
        """The captured tables of a shard, each in the form of its last FIELD event; those that had none are left out."""
        return self._tables.of_shard(shard)

    def flush(self) -> None:
        """Close the open run, so that the batch can be taken; decoding goes on with a new one."""
        self._runs.flush()

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
                if self._open is None:
                    self._open = self._rest(events, nth)
                    began = nth
                self._open.is_bare = False
                nth = events.behind_rows(nth)
                continue
            if kind == _BEGIN:
                self._begin(events, nth)
                began = nth
            elif kind == _VGTID:
                self._vgtid = events.payload(nth)
                if self._open is None:
                    self._advance(self._vgtid)
            elif kind == _COMMIT:
                if self._open is None:
                    self._open = self._rest(events, nth)
                    began = nth
                yield from self._commit(events, began, nth)
                yield None
            elif kind in (_DDL, _OTHER):
                if kind == _DDL:
                    statements.append(nth)
                if self._open is not None and self._open.is_bare:
                    self._pause(events, nth)
            elif kind == _JOURNAL:
                yield from self._reshard_announced(binlogdata_pb2.VEvent.FromString(events.event(nth)))
            elif kind == _COPY_COMPLETED:
                self.shards.end_copy(binlogdata_pb2.VEvent.FromString(events.event(nth)).shard)
            elif kind == _FIELD:
                if self._open is None:
                    yield from self._take_fields(events.payload(nth))
                else:
                    self._open.is_bare = False
            nth += 1
        if self._open is not None:
            self._store.add(events, began, len(events))
        for place in statements:  # after the VGTID that came with them
            if not self._options.is_recopy:
                yield self._statement(binlogdata_pb2.VEvent.FromString(events.event(place)))

    def _begin(self, events: VEvents, nth: int) -> None:
        """A transaction with columns only may be followed by another BEGIN: a copy that found no row."""
        if (self._open is not None and self._store.has_rows) or (
            self._paused and _shard_of(events, nth) in self._paused
        ):
            raise SourceUnavailable("vtgate began a transaction inside another: the stream is opened again")
        self._open = _OpenTransaction(events.timestamp(nth) * 1_000_000)
        self._vgtid = b""

    def _pause(self, events: VEvents, nth: int) -> None:
        """A statement ends what vtgate sends of an open transaction for now. Without a shard its rest could not be
        recognised: the
        transaction stays open then."""
        if shard := _shard_of(events, nth):
            self._paused.add(shard)
            self._open = None

    def _rest(self, events: VEvents, nth: int) -> _OpenTransaction:
        """A row or a COMMIT without a BEGIN: the rest of a transaction after its statement."""
        shard = _shard_of(events, nth)
        if shard not in self._paused:
            raise SourceUnavailable("vtgate sent a row or a COMMIT outside a transaction: the stream is opened again")
        self._paused.discard(shard)
        return _OpenTransaction(events.timestamp(nth) * 1_000_000)

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
        self._open, self._is_committing = None, False
        self.flush()
        self.progress.transactions += 1
        self._end_transaction(events.timestamp(end))

    def _end_transaction(self, timestamp_s: int) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        ended_at_us = timestamp_s * 1_000_000 or transaction.committed_at_us
        tally = self._options.tally.of_shard(transaction.shard.name)
        tally.rows += transaction.rows
        if transaction.is_copy:
            self.progress.rows_copied += transaction.rows
            tally.rows_copied += transaction.rows
        else:
            self.progress.committed_at_us = tally.committed_at_us = ended_at_us
            tally.lag_us = max(0, self._runs.now_ns // 1_000 - ended_at_us)
            tally.transactions += 1
        self.progress.last_order = max(self.progress.last_order, transaction.order)
        self._runs.end(transaction, ended_at_us)

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
            self.shards.begun.hold(event.shard)
            yield Reshard(event.journal)

    def _advance(self, vgtid: bytes) -> None:
        """Put a VGTID into force."""
        if self.shards.advance(vgtid):
            self._tables.keep_shards(self.shards.names)
            self._paused &= set(self.shards.names)

    def _take_fields(self, payload: bytes) -> Iterator[Found]:
        met_at_us = self.progress.committed_at_us or self._runs.now_ns // 1_000
        return self._tables.take_fields(payload, self.shards, met_at_us)

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
                table = self._tables.table(table_name, shard_name)
                transaction = self._transaction
                if transaction is None:
                    transaction = self._transaction = self._transaction_of(events, nth, shard_name.decode())
                if table is None or (self._options.is_recopy and not transaction.is_copy):
                    self._options.tally.filtered_events += table is None
                    nth += 1
                    continue
                nth = self._runs.decode(table, transaction, events, nth, end)
                if self._runs.is_full:
                    self.flush()
                    yield None
                continue
            nth += 1

    def _transaction_of(self, events: VEvents, nth: int, shard_name: str) -> Transaction:
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
        return Transaction(
            shard=shard,
            id=msgspec.json.decode(vgtid),
            id_json=vgtid,
            local_id_json=self.shards.vgtid_json(shard) if self._options.events.use_local_vgtid else vgtid,
            is_copy=is_copy,
            committed_at_us=timestamp * 1_000_000 if timestamp else self._runs.now_ns // 1_000_000_000 * 1_000_000,
            began_at_us=self._open.began_at_us if self._open is not None else 0,
        )


def _events_of(answer: bytes) -> VEvents:
    try:
        return VEvents(answer)
    except ValueError as error:
        raise SourceUnavailable(
            f"vtgate sent bytes that are no answer ({error}): the stream is opened again"
        ) from error


def _shard_of(events: VEvents, nth: int) -> str:
    event = binlogdata_pb2.VEvent.FromString(events.event(nth))
    return event.shard or event.row_event.shard
