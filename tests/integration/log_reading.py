"""A MySQL source read in the test's own process, without Kafka: the log's events, batch by batch.

``LogReading`` keeps the state that a publisher and schema_history would keep, so that ``read`` goes on where the last one
ended.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from libs.config.connections import GrpcClientSettings
from libs.events.batch import BatchIdentity
from libs.events.schema_change import SchemaChange, SchemaChangeKind, fitted_to_record
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.mysql.settings import DatabaseSettings
from libs.source.port import ReadBatch
from libs.testing.source_contract import checkpoint_of
from libs.types.checkpoint import Checkpoint
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch, Entry
from services.binlog_reader.settings import BinlogReaderSettings
from services.binlog_reader.source import BinlogSource
from tests.conftest import MysqlServer

TIMEOUT_S = 180.0
_REPLICA_SERVER_ID = iter(range(9_001, 10_000))


@dataclass(frozen=True, slots=True)
class Event:
    """A row event."""

    table: str
    op: str
    value: dict[str, Any]
    order: EventOrder
    transaction_id: str
    is_snapshot: bool

    @property
    def after(self) -> Any:
        return self.value["after"]


class MemoryHistory:
    """schema_history's answers, without its service."""

    def __init__(self) -> None:
        self.changes: list[tuple[EventOrder, TableId, TableSchema | None]] = []

    async def record_schema_change(self, *, table_id: TableId, order: EventOrder, **change: Any) -> int:
        schema: TableSchema | None = change["table_schema"]
        fitted_to_record(SchemaChange(table_id=table_id, order=order, **change))
        own = [known_order for known_order, known_id, _ in self.changes if known_id == table_id]
        if order in own and change["kind"] is not SchemaChangeKind.SNAPSHOT:
            return own.index(order) + 1
        self.changes.append((order, table_id, schema))
        return len(own) + 1

    async def list_tables(self, source: str, order: EventOrder | None = None) -> list[TableSchema]:
        tables: dict[TableId, TableSchema | None] = {}
        for changed_at, table_id, schema in self.changes:
            if order is None or changed_at <= order:
                tables[table_id] = schema
        return [schema for schema in tables.values() if schema is not None]


@dataclass
class LogReading:
    """Reads one source again and again."""

    server: MysqlServer
    settings: dict[str, Any] = field(default_factory=dict)
    database: dict[str, Any] = field(default_factory=dict)
    history: MemoryHistory = field(default_factory=MemoryHistory)
    checkpoint: Checkpoint | None = None
    replica_server_id: int = field(default_factory=lambda: next(_REPLICA_SERVER_ID))
    entries: list[Entry] = field(default_factory=list)
    """Everything that was durable, in order."""
    batches: list[ReadBatch] = field(default_factory=list)

    def source(self) -> BinlogSource:
        unused = GrpcClientSettings(address="127.0.0.1:1")
        database = {"host": self.server.host, "port": self.server.port, "user": "root", **self.database}
        settings = BinlogReaderSettings(
            source="src",
            database=DatabaseSettings(**database),
            replica_server_id=self.replica_server_id,
            schema_history=unused,
            checkpoint_committer=unused,
            **self.settings,
        )
        return BinlogSource(settings, cast(SchemaHistoryClient, self.history))

    async def read(self, is_enough: Callable[[list[Event]], bool]) -> list[Event]:
        """Row events read by this call, once they are enough; all of them are durable then, as by a publisher.

        Events after the last resume point are forgotten, as when a publisher aborts.
        """
        source = self.source()
        identity = BatchIdentity(source="src", source_partition="0", connector="mysql", run_id="r", fencing_token=1)
        seen: list[Entry] = []
        durable = 0

        async def read() -> None:
            nonlocal durable
            async with (
                source.open(self.checkpoint, identity) as change_log,
                aclosing(_closable(change_log.batches())) as batches,
            ):
                async for batch in batches:
                    self.batches.append(batch)
                    seen.extend(ChangeBatch.FromString(batch.payload).entries)
                    if batch.resume is not None:
                        durable = len(seen)
                        self.checkpoint = checkpoint_of(source, batch.resume)
                    if is_enough(events_of(seen[:durable])):
                        return

        try:
            await asyncio.wait_for(read(), TIMEOUT_S)
        finally:
            self.entries += seen[:durable]
        return events_of(seen[:durable])

    async def begin(self) -> None:
        """Take the snapshot, and stand at its end."""
        await self.read(lambda _: self.checkpoint is not None and self.checkpoint.snapshot is None)


def events_of(entries: list[Entry]) -> list[Event]:
    """The row events of ``entries``."""
    events = []
    for entry in entries:
        run = entry.run
        for index, (op, value) in enumerate(zip(run.ops.decode(), run.values, strict=True)):
            ordinal = 0 if run.is_snapshot else run.first_tx_ordinal + index
            order = EventOrder(epoch=run.epoch, rank=int(run.rank), tx_ordinal=ordinal)
            events.append(
                Event(f"{run.database}.{run.table}", op, json.loads(value), order, run.transaction_id, run.is_snapshot)
            )
    return events


def ids(events: list[Event]) -> list[Any]:
    """The column ``id`` of each event's row."""
    return [(event.after or event.value["before"])["id"] for event in events]


async def _closable(batches: AsyncIterator[ReadBatch]) -> AsyncGenerator[ReadBatch, None]:
    async for batch in batches:
        yield batch
