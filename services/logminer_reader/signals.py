"""Signals, from Kafka's topic and from the source's table: parsed, acted on, and noted."""

from typing import Final

import structlog

from libs.config.connections import KafkaSettings
from libs.oracle.log_position import LogminerPosition
from libs.source.incremental import take_signal
from libs.source.signal_outcomes import note_refused, note_taken
from libs.source.signal_topic import SignalTopic, passed_signal
from libs.source.signals import (
    ORACLE_TYPES,
    DropTransaction,
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
from libs.types.order import EventOrder
from libs.types.position import SourcePartition
from libs.types.table import TableId
from services.logminer_reader.gather import Gatherer
from services.logminer_reader.position import SOURCE_PARTITION
from services.logminer_reader.schemas import SourceSchemas
from services.logminer_reader.transactions import OpenTransactions

log = structlog.get_logger()

_COLUMNS: Final = 3


class Signals:
    """Requests of users to a reader that follows the log."""

    def __init__(self, source: str, kafka: KafkaSettings, schemas: SourceSchemas, gatherer: Gatherer) -> None:
        self._partition = source, SOURCE_PARTITION
        self._kafka = kafka
        self._schemas = schemas
        self._gatherer = gatherer
        self._topic: SignalTopic | None = None
        self.transactions: OpenTransactions | None = None
        """Those of the log that is followed; None: it is not yet."""

    def open(self) -> None:
        """Follow the topic from the checkpoint's place on; before, signals of the table alone count."""
        source, name = self._partition
        place = SourcePartition(source=source, name=name)
        self._topic = SignalTopic(self._kafka, place, self._gatherer.incremental)

    def close(self) -> None:
        """Leave the topic."""
        if self._topic is not None:
            self._topic.close()

    async def take_new(self, order: EventOrder, position: LogminerPosition) -> bool:
        """Whether any came. ``order``, ``position``: of the place that the log was read to."""
        records = self._topic.records() if self._topic is not None else []
        for record in records:
            if record.text is not None:
                try:
                    await self._act_on(parse_signal(record.text, types=ORACLE_TYPES), order, position)
                except InvalidSignal as error:
                    self._refuse(id_of(record.text), error)
            self._gatherer.incremental = passed_signal(self._gatherer.incremental, record)
        return bool(records)

    async def take_row(self, row: tuple[object, ...], order: EventOrder, position: LogminerPosition) -> None:
        """A row of the signal table: acts once, because its place in the log is passed once."""
        own_id = ""
        try:
            if len(row) != _COLUMNS:
                raise InvalidSignal(f"the signal table has {len(row)} columns; it needs three: id, type, data")
            signal_id, kind, data = row
            own_id = str(signal_id)
            await self._act_on(signal_of(own_id, kind, data, types=ORACLE_TYPES), order, position)
        except InvalidSignal as error:
            self._refuse(own_id, error)

    def _refuse(self, signal_id: str, error: InvalidSignal) -> None:
        note_refused(self._partition, signal_id, str(error))
        log.warning("signal_refused", reason=str(error))
        metrics.SIGNALS.labels(*self._partition, "refused").inc()

    async def _act_on(self, signal: Signal, order: EventOrder, position: LogminerPosition) -> None:
        if isinstance(signal, LogMessage):
            log.info("signal_logged", signal_id=signal.signal_id, message=signal.message)
            note_taken(self._partition, signal, self._gatherer.incremental)
        elif isinstance(signal, DropTransaction):
            self._drop(signal)
            note_taken(self._partition, signal, self._gatherer.incremental)
        else:
            if isinstance(signal, ExecuteSnapshot):
                await self._readmit(signal, order, position)
            captured = [str(schema.table_id) for schema in self._schemas.captured]
            self._gatherer.incremental, notes = take_signal(self._gatherer.incremental, signal, captured)
            log.info("signal_taken", signal=type(signal).__name__, signal_id=signal.signal_id, not_done=notes)
            note_taken(self._partition, signal, self._gatherer.incremental, notes)
        metrics.SIGNALS.labels(*self._partition, "taken").inc()

    def _drop(self, signal: DropTransaction) -> None:
        xid = bytes.fromhex(signal.transaction_id)
        dropped = None if self.transactions is None else self.transactions.drop(xid)
        if dropped is None:
            raise InvalidSignal(
                f"transaction {signal.transaction_id} is not open, or has changed no row of a captured table that was read: "
                "the log of the reader, and V$TRANSACTION.XID, name the open ones"
            )
        log.warning(
            "transaction_dropped",
            signal_id=signal.signal_id,
            xid=signal.transaction_id,
            user=dropped.user,
            first_scn=dropped.first_scn,
            rows_lost=dropped.rows,
        )
        metrics.ORACLE_DROPPED.labels(*self._partition).inc()

    async def _readmit(self, signal: ExecuteSnapshot, order: EventOrder, position: LogminerPosition) -> None:
        """Tables that are quarantined are taken up again with the definition of now."""
        for table in sorted(self._schemas.quarantined):
            if any(matches(pattern, table) for pattern in signal.tables):
                schema, _, name = table.partition(".")
                await self._schemas.readmit(TableId(database=schema, table=name), order, position)
