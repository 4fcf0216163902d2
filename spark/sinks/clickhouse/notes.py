"""The batches that a table took in: ``headwater.batches``; and those about to come to a log: ``headwater.intents``."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import structlog

from libs.clickhouse.names import BATCHES, INTENTS, literal
from libs.types.warehouse import WarehouseTable
from spark.sinks.clickhouse.notes_schema import NOTED_COLUMNS
from spark.sinks.clickhouse.server import Server
from spark.sinks.clickhouse.statements import rows_of_batch, time_at
from spark.sinks.port import BatchIdentity, SinkTable

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch whose rows were about to be attached to a log."""

    batch: BatchIdentity
    offsets: Mapping[int, int]
    """By Kafka partition the offset after its last event."""
    rows: str
    """A condition on the log's rows: those that it brought."""


class Notes:
    """The notes on one server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def note(self, notes: str, table: SinkTable, batch: BatchIdentity, **more: str) -> None:
        """Into ``BATCHES`` or ``INTENTS``, which has ``more``."""
        reached = table.reached
        offsets, positions = (msgspec.json.encode(each).decode() for each in (reached.offsets, reached.positions))
        values = [str(table.name), table.source, table.table, batch.query_id, reached.order, offsets, positions]
        name, source, source_table, query_id, order, offsets, positions, *others = map(
            literal, [*values, *more.values()]
        )
        noted = (
            *(name, source, source_table, query_id, str(batch.batch_id), order),
            *(time_at(reached.committed_at_us), offsets, positions, *others),
        )
        columns = ", ".join([NOTED_COLUMNS, *more])
        self._server.run(notes, f"INSERT INTO {notes} ({columns}) SELECT {', '.join(noted)}")

    def open_intent(self, table: WarehouseTable, batch: BatchIdentity) -> Intent | None:
        """The last batch of the same query whose rows were to be attached, if neither it nor a later one is noted.

        Only the table knows whether they came (``has_come``).
        """
        rows = self._server.rows(
            f"SELECT batch_id, reached_offsets, least_order, greatest_order FROM {INTENTS} FINAL "
            f"WHERE name = {literal(str(table))} AND query_id = {literal(batch.query_id)}"
        )
        for batch_id, offsets, least, greatest in rows:
            intended = BatchIdentity(batch.query_id, batch_id)
            if not self.has_noted(table, intended):
                reached = msgspec.json.decode(offsets, type=dict[int, int])
                return Intent(intended, reached, rows_of_batch(str(intended), least, greatest))
        return None

    def has_come(self, table: WarehouseTable, intent: Intent) -> bool:
        """Whether the table has rows of the batch. Raises TableRefused: this user may not see it, so its state is unknown."""
        place = self._server.place(table)
        return bool(self._server.rows(f"SELECT 1 FROM {place} WHERE {intent.rows} LIMIT 1", subject=table))

    def take_back(self, table: WarehouseTable, batch: BatchIdentity) -> None:
        """Delete the rows of a batch that was attached and never noted.

        Its table was refused after that, before anybody could ask it: its events come again in ``batch``, or in a later one.
        """
        intent = self.open_intent(table, batch)
        if intent is None or not self.has_come(table, intent):
            return
        place = self._server.place(table)
        self._server.run(table, f"ALTER TABLE {place} DELETE WHERE {intent.rows} SETTINGS mutations_sync = 2")
        log.info("sink_batch_taken_back", table=str(table), batch_id=intent.batch.batch_id)

    def note_intended(self, table: WarehouseTable) -> None:
        """The rows of the table's intent have come: the table took that batch in."""
        self._server.run(
            BATCHES,
            f"INSERT INTO {BATCHES} ({NOTED_COLUMNS}) SELECT {NOTED_COLUMNS} FROM {INTENTS} FINAL "
            f"WHERE name = {literal(str(table))}",
        )

    def has_noted(self, table: WarehouseTable, batch: BatchIdentity) -> bool:
        """Whether the table took in this batch, or a later one of its query."""
        rows = self._server.rows(
            f"SELECT batch_id FROM {BATCHES} FINAL "
            f"WHERE name = {literal(str(table))} AND query_id = {literal(batch.query_id)}"
        )
        return any(batch_id >= batch.batch_id for (batch_id,) in rows)
