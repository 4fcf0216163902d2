"""Signals, from Kafka's topic and from the source's table: parsed, acted on, and noted."""

import asyncio

import structlog

from libs.source.mysql.snapshot import source_tables
from libs.source.signal_outcomes import note_refused, note_taken
from libs.source.signal_topic import SignalTopic, passed_signal
from libs.source.signals import (
    ExecuteSnapshot,
    InvalidSignal,
    LogMessage,
    Signal,
    id_of,
    matches,
    parse_signal,
    signal_of,
)
from libs.telemetry import metrics
from libs.types.position import SourcePartition
from services.binlog_reader.decode import LogDecoder
from services.binlog_reader.incremental import IncrementalCopy
from services.binlog_reader.position import SOURCE_PARTITION
from services.binlog_reader.settings import BinlogReaderSettings
from services.binlog_reader.source_schemas import SourceSchemas

log = structlog.get_logger()


class Signals:
    """Requests of users to a reader that follows the log."""

    def __init__(self, settings: BinlogReaderSettings, schemas: SourceSchemas, incremental: IncrementalCopy) -> None:
        self._settings = settings
        self._schemas = schemas
        self._incremental = incremental
        self._topic: SignalTopic | None = None

    def open(self) -> None:
        """Follow the topic from the checkpoint's place on; before, signals of the table alone count."""
        self._topic = SignalTopic(
            self._settings.kafka,
            SourcePartition(source=self._settings.source, name=SOURCE_PARTITION),
            self._incremental.state,
        )

    def close(self) -> None:
        """Leave the topic."""
        if self._topic is not None:
            self._topic.close()

    async def take_new(self, decoder: LogDecoder) -> bool:
        """Whether any came."""
        records = self._topic.records() if self._topic is not None else []
        for record in records:
            if record.text is not None:
                try:
                    await self._act_on(decoder, parse_signal(record.text))
                except InvalidSignal as error:
                    self._refuse(id_of(record.text), error)
            self._incremental.state = passed_signal(self._incremental.state, record)
        return bool(records)

    async def take_row(self, decoder: LogDecoder, row: tuple[object, ...]) -> None:
        """A row of the signal table: acts once, because its place in the log is passed once."""
        own_id = ""
        try:
            if len(row) != 3:
                raise InvalidSignal(f"the signal table has {len(row)} columns; it needs three: id, type, data")
            signal_id, kind, data = row
            own_id = str(signal_id)
            await self._act_on(decoder, signal_of(own_id, kind, data))
        except InvalidSignal as error:
            self._refuse(own_id, error)

    def _refuse(self, signal_id: str, error: InvalidSignal) -> None:
        note_refused((self._settings.source, SOURCE_PARTITION), signal_id, str(error))
        log.warning("signal_refused", reason=str(error))
        metrics.SIGNALS.labels(self._settings.source, SOURCE_PARTITION, "refused").inc()

    async def _act_on(self, decoder: LogDecoder, signal: Signal) -> None:
        if isinstance(signal, LogMessage):
            log.info("signal_logged", signal_id=signal.signal_id, message=signal.message)
            note_taken((self._settings.source, SOURCE_PARTITION), signal, self._incremental.state)
        else:
            if isinstance(signal, ExecuteSnapshot):
                await self._learn_asked_for(decoder, signal)
            captured = [str(schema.table_id) for schema in self._schemas.captured]
            notes = self._incremental.take(signal, captured)
            log.info("signal_taken", signal=type(signal).__name__, signal_id=signal.signal_id, not_done=notes)
            note_taken((self._settings.source, SOURCE_PARTITION), signal, self._incremental.state, notes)
        metrics.SIGNALS.labels(self._settings.source, SOURCE_PARTITION, "taken").inc()

    async def _learn_asked_for(self, decoder: LogDecoder, signal: ExecuteSnapshot) -> None:
        """A database that is captured only now, and of which the log has shown nothing yet; and tables that the history could
        not hold."""
        refused = {
            table for table in decoder.tables.quarantined if any(matches(pattern, table) for pattern in signal.tables)
        }
        if refused := refused - {str(schema.table_id) for schema in self._schemas.captured}:
            tables = await asyncio.to_thread(source_tables, self._settings.database)
            await self._schemas.learn_tables(decoder, [table_id for table_id in tables if str(table_id) in refused])
        known = [str(schema.table_id) for schema in self._schemas.captured]
        unknown = [pattern for pattern in signal.tables if not any(matches(pattern, name) for name in known)]
        if not unknown:
            return
        for table_id in await asyncio.to_thread(source_tables, self._settings.database):
            if self._schemas.is_captured(table_id) and any(matches(pattern, str(table_id)) for pattern in unknown):
                await self._schemas.learn_database(decoder, table_id.database)
