"""The log from a position on: received, decoded, gathered, with signals and chunks between its transactions."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import structlog

from libs.errors import SourceUnavailable
from libs.mysql.gtid import ExecutedGtids, GtidSet
from libs.mysql.packets import Packets
from libs.mysql.reached_names import reached_names
from libs.source.incremental import has_begun
from libs.source.mysql.client import PacketReader, hang_up, purged, query, raise_error_packet, start_dump
from libs.source.mysql.replica_lag import ReplicaThrottle
from libs.source.mysql.snapshot import log_end, reaching_definitions
from libs.source.port import ReadBatch
from libs.source.table_reports import TableReports
from libs.telemetry import metrics
from services.binlog_reader.capture import gtid_filter
from services.binlog_reader.chunks import Chunks
from services.binlog_reader.connections import Connections
from services.binlog_reader.decode import LogDecoder, Passed, Step, UnknownTable
from services.binlog_reader.gather import Gatherer
from services.binlog_reader.incremental import IncrementalCopy
from services.binlog_reader.position import SOURCE_PARTITION, BinlogPosition
from services.binlog_reader.schema_changes import SchemaChanges
from services.binlog_reader.server_history import ServerHistory
from services.binlog_reader.settings import BinlogReaderSettings
from services.binlog_reader.signals import Signals
from services.binlog_reader.source_schemas import SourceSchemas
from services.binlog_reader.statements import RowStatement

log = structlog.get_logger()

_SIGNAL_POLL_S: Final = 0.2
_HISTORY_LOOK_S: Final = 5.0
"""How often the server is asked whether it still has its transactions: one short query."""
_MAX_GATHERING_S: Final = 0.1
"""While more of the log waits, a batch is gathered until it is full, but no longer than this: it bounds latency."""


@dataclass(slots=True)
class _Pace:
    """When a batch is taken that is not full."""

    heartbeat_interval_s: float
    transactions_taken: int = 0
    """The decoder's count when a batch was taken last."""
    _gathers_until_s: float = 0.0
    _heartbeat_s: float = field(default_factory=time.monotonic)

    def gather_on(self) -> None:
        """A batch was taken: the next one is gathered for a while."""
        self._gathers_until_s = time.monotonic() + _MAX_GATHERING_S

    @property
    def is_over(self) -> bool:
        """The batch was gathered for long enough."""
        return time.monotonic() > self._gathers_until_s

    def wants(self, batch: ReadBatch, transactions: int) -> bool:
        """It has rows or moves the position, or a heartbeat is due."""
        is_heartbeat = 0 < self.heartbeat_interval_s <= time.monotonic() - self._heartbeat_s
        if not batch.payload and transactions == self.transactions_taken and not (is_heartbeat and batch.resume):
            return False
        self._heartbeat_s = time.monotonic()
        self.transactions_taken = transactions
        return True


class LogFollowing:
    """Follows the server's log through one decoder at a time."""

    def __init__(
        self,
        settings: BinlogReaderSettings,
        connections: Connections,
        schemas: SourceSchemas,
        changes: SchemaChanges,
        gatherer: Gatherer,
        incremental: IncrementalCopy,
        signals: Signals,
        chunks: Chunks,
        throttle: ReplicaThrottle,
        reports: TableReports,
    ) -> None:
        self._settings = settings
        self._connections = connections
        self._schemas = schemas
        self._changes = changes
        self._gatherer = gatherer
        self._incremental = incremental
        self._signals = signals
        self._chunks = chunks
        self._throttle = throttle
        self._reports = reports
        where = f"{settings.database.host}:{settings.database.port}"
        self._history = ServerHistory(connections, where, gtid_filter(settings))

    async def batches(self, position: BinlogPosition, until: BinlogPosition | None) -> AsyncIterator[ReadBatch]:
        """The log after ``position``; until it has reached another one, or without end."""
        if until is not None and position.has_reached(until):
            return
        is_gtid_passed = gtid_filter(self._settings)
        connection = await asyncio.to_thread(self._connections.open)
        checksum = await asyncio.to_thread(query, connection, "SELECT @@GLOBAL.binlog_checksum")
        await asyncio.to_thread(self._changes.take_context, connection)
        if not position.file:
            file, pos = await asyncio.to_thread(log_end, connection)
            position = msgspec.structs.replace(position, file=file, pos=pos)
        reader = await asyncio.to_thread(
            start_dump,
            connection,
            position,
            # The log may lack skipped transactions: the server would refuse to go on without them.
            also_done=(await asyncio.to_thread(purged, connection)).without(lambda uuid: not is_gtid_passed(uuid)),
            replica_server_id=self._settings.replica_server_id,
            heartbeat_s=self._settings.database.heartbeat_s,
            spill_dir=Path(self._settings.spill_dir),
        )
        decoder = LogDecoder(
            self._settings.source,
            position,
            None if position.by_file else ExecutedGtids(GtidSet.parse(position.gtid_set)),
            self._schemas.tables.schemas,
            is_captured=self._schemas.is_captured,
            batch=self._gatherer.entries,
            checksum_bytes=4 if str(checksum[0][0]).upper() == "CRC32" else 0,
            transaction_metadata=self._settings.transaction_metadata,
            unavailable_placeholder=self._settings.values.unavailable_placeholder,
            set_aside=self._gatherer.set_aside if self._gatherer.goes_on else None,
            watch=self._incremental,
            passed=Passed(
                frozenset(self._settings.skipped_operations), is_gtid_passed, heard=self._settings.signal_table or ""
            ),
            spill_dir=Path(self._settings.spill_dir),
        )
        self._history.begin(position)
        log.info("log_opened", gtid_set=position.gtid_set, file=position.file, pos=position.pos)
        async for batch in self._decoded(reader, decoder, until):
            yield batch
        await asyncio.to_thread(hang_up, connection)

    async def _decoded(
        self, reader: PacketReader, decoder: LogDecoder, until: BinlogPosition | None
    ) -> AsyncIterator[ReadBatch]:
        labels = (self._settings.source, SOURCE_PARTITION)
        received, transactions = metrics.READER_BYTES.labels(*labels), metrics.READER_TRANSACTIONS.labels(*labels)
        transactions_counted = transactions_until = 0
        pace = _Pace(self._settings.heartbeat_interval_s)
        looked_s = time.monotonic()
        while True:
            receiving = asyncio.ensure_future(asyncio.to_thread(reader.receive))
            try:
                if until is None and decoder.is_between_transactions:
                    async for batch in self._beside_log(decoder, receiving):
                        yield batch
                packets, more_waits = await receiving
            finally:
                receiving.cancel()
            decoder.tick(time.time_ns())
            if time.monotonic() - looked_s >= _HISTORY_LOOK_S:
                looked_s = time.monotonic()
                await asyncio.to_thread(self._history.require, decoder.position, decoder.executed)
            if isinstance(packets, Packets):
                received.inc(len(packets.data))
                events = packets.behind_ok()
                steps = decoder.feed(events)
            else:
                steps = decoder.feed_compressed(packets)
            for step in steps:
                await self._act_on(step, decoder)
                if self._incremental.is_due:
                    async for batch in self._chunks.deliver_due(decoder):
                        yield batch
                if self._gatherer.is_due(decoder):
                    pace.transactions_taken = decoder.progress.transactions
                    yield self._gatherer.take(self._gatherer.decoder_resume_point(decoder))
                    pace.gather_on()
                    await asyncio.sleep(0)
                ended = decoder.progress.transactions
                if until is not None and decoder.is_between_transactions and ended != transactions_until:
                    transactions_until = ended
                    if decoder.position.has_reached(until):
                        yield self._gatherer.drained(decoder)
                        return
            if isinstance(packets, Packets):
                _require_events(packets, len(events))
            else:
                packets.close()
            # The rest of a transaction is on its way: the server sends it whole, and nothing of it can be published before.
            if decoder.is_between_transactions and (not more_waits or pace.is_over):
                batch = self._gatherer.drained(decoder)
                if pace.wants(batch, decoder.progress.transactions):
                    yield batch
                pace.gather_on()
            transactions.inc(decoder.progress.transactions - transactions_counted)
            transactions_counted = decoder.progress.transactions

    async def _act_on(self, step: Step, decoder: LogDecoder) -> None:
        """Answer the decoder before it goes on; then act on signals of the source's table."""
        if isinstance(step, UnknownTable):
            await self._schemas.learn_database(decoder, step.table_id.database)
        elif isinstance(step, RowStatement):
            await self._report_reached(step, decoder)
        elif step is not None:
            await self._changes.apply(decoder, step)
        for row in self._incremental.table_signals():
            await self._signals.take_row(decoder, row)

    async def _report_reached(self, statement: RowStatement, decoder: LogDecoder) -> None:
        """Quarantine the tables that a statement may have changed without naming them; say so where nobody can know them."""
        definitions, missing = await asyncio.to_thread(reaching_definitions, self._settings.database)
        decoder.statements.quarantine_reached(statement, reached_names(statement.names, definitions))
        databases = decoder.statements.captured_databases(statement) if missing else []
        if databases:
            on_its_way = self._incremental.chunk
            begun = [copy.table for copy in self._incremental.state.tables if on_its_way or has_begun(copy)]
            self._reports.note_changes_lost(
                f"the log has a change in {', '.join(databases)} as a statement, without its rows ({statement.where}), and the "
                f"user may not see the triggers, views and routines by which it may have changed other tables there: {missing}",
                begun,
            )

    async def _beside_log(
        self, decoder: LogDecoder, receiving: asyncio.Future[tuple[Packets | BinaryIO, bool]]
    ) -> AsyncIterator[ReadBatch]:
        """Between two transactions: act on signals, and read a chunk; on and on until more of the log has come."""
        while True:
            if await self._signals.take_new(decoder):
                yield self._gatherer.drained(decoder)  # nothing else may come, and a signal's effect is to be kept
            reads = self._incremental.wants_chunk and not self._chunks.is_counting and self._throttle.lets_read()
            if reads:
                before = self._incremental.state
                await self._chunks.read(decoder)
                if self._incremental.is_due:
                    async for batch in self._chunks.deliver_due(decoder):
                        yield batch
                if self._incremental.state != before:  # rows were delivered, or a table was refused
                    yield self._gatherer.drained(decoder)
            if receiving.done():
                return
            pause_s = 0.0 if reads and self._incremental.wants_chunk else _SIGNAL_POLL_S
            await asyncio.wait({receiving}, timeout=pause_s)


def _require_events(packets: Packets, events: int) -> None:
    """All packets held an event. Raises as ``raise_error_packet``, SourceUnavailable.

    The server names a fault by an error; an end without one is a shutdown, or a dump thread that somebody ended.
    """
    if events < len(packets):
        raise_error_packet(packets.data, *packets[events])
        raise SourceUnavailable("MySQL ended the log: the server shuts down, or the reader's dump thread was ended")
