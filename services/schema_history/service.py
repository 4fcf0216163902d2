"""The gRPC service: checks requests, decides versions, waits for the log, answers."""

from bisect import bisect_right
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import grpc
import structlog

from libs.errors import TransientError
from libs.events.checkpoint_codec import order_from_proto
from libs.events.schema_change import LARGEST_CHANGE_BYTES, SchemaChange, schema_change_from_proto
from libs.kafka.state_log import Decision, StateLog
from libs.rpc.audit import note_change
from libs.telemetry.metrics import SCHEMA_HISTORY_CHANGES, SCHEMA_HISTORY_REPEATS
from libs.types.order import EventOrder
from libs.types.table import TableId
from protos.headwater.schema_history.v1 import schema_history_pb2 as pb
from protos.headwater.schema_history.v1 import schema_history_pb2_grpc
from services.schema_history.history import RecordedChange, find_repeat, recorded, with_names_of
from services.schema_history.log import encode
from services.schema_history.tables import Tables

_LIST_PART_BYTES: Final = 8 << 20
"""Of one answer to ListTables, well below the largest message; a source may have tens of thousands of tables."""
SERVICE_NAME = "headwater.schema_history.v1.SchemaHistory"

log = structlog.get_logger()

_Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class _Version:
    version: int
    is_repeat: bool


class SchemaHistoryService(schema_history_pb2_grpc.SchemaHistoryServicer):
    """See the proto for the promises of each call."""

    def __init__(self, tables: Tables, state_log: StateLog, *, barrier_timeout_s: float) -> None:
        self._tables = tables
        self._log = state_log
        self._barrier_timeout_s = barrier_timeout_s

    async def RecordSchemaChange(
        self, request: pb.RecordSchemaChangeRequest, context: _Context
    ) -> pb.RecordSchemaChangeResponse:
        try:
            change = schema_change_from_proto(request.change)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if request.change.ByteSize() > LARGEST_CHANGE_BYTES:
            reason = f"schema change of {change.table_id} is larger than {LARGEST_CHANGE_BYTES} bytes"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        try:
            answer = await self._log.submit(lambda: self._decide(change))
        except TransientError as error:
            await _abort_unavailable(context, error)
        if answer.is_repeat:
            SCHEMA_HISTORY_REPEATS.labels(change.source).inc()
        else:
            SCHEMA_HISTORY_CHANGES.labels(change.source).inc()
            note_change(after={"table": str(change.table_id), "version": answer.version, "kind": change.kind.value})
            log.info(
                "schema_change_recorded",
                source=change.source,
                table=str(change.table_id),
                version=answer.version,
                kind=change.kind.value,
                order=change.order.sort_key(),
            )
        return pb.RecordSchemaChangeResponse(version=answer.version)

    async def _decide(self, change: SchemaChange) -> Decision[_Version]:
        key = (change.source, change.table_id)
        head = self._tables.head(key)
        if head is not None and change.order <= head.newest.order:
            repeat = find_repeat(await self._tables.versions(key), change)
            if repeat is not None:
                return Decision(_Version(repeat.version, is_repeat=True))
        if head is not None and not head.newest.is_drop:
            change = with_names_of(change, head.newest)
        new = recorded(change, head.last_version + 1 if head is not None else 1)
        return Decision(_Version(new.version, is_repeat=False), [encode(new)])

    async def GetTableSchema(self, request: pb.GetTableSchemaRequest, context: _Context) -> pb.GetTableSchemaResponse:
        key = (request.source, TableId(database=request.database, table=request.table))
        try:
            if request.WhichOneof("at") == "version":
                found = await self._tables.version(key, request.version)
                if found is None:  # perhaps another instance recorded it a moment ago
                    await self._log.barrier(self._barrier_timeout_s)
                    found = await self._tables.version(key, request.version)
                asked = f"version {request.version}"
            else:
                order = order_from_proto(request.order) if request.HasField("order") else None
                await self._log.barrier(self._barrier_timeout_s)
                found = await self._tables.at(key, order)
                asked = f"order {order.sort_key()}" if order is not None else "this time"
        except TransientError as error:
            await _abort_unavailable(context, error)
        except ValueError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "order.rank is no decimal number")
        if found is None:
            text = f"{request.source}: no table {key[1]} is known at {asked}"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
        return pb.GetTableSchemaResponse(change=_message(found))

    async def ListTables(self, request: pb.ListTablesRequest, context: _Context) -> pb.ListTablesResponse:
        try:
            order = order_from_proto(request.order) if request.HasField("order") else None
            await self._log.barrier(self._barrier_timeout_s)
            return await self._part_of_tables(request, order)
        except TransientError as error:
            await _abort_unavailable(context, error)
        except ValueError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "order.rank is no decimal number")

    async def _part_of_tables(self, request: pb.ListTablesRequest, order: EventOrder | None) -> pb.ListTablesResponse:
        names = self._tables.names_of(request.source)
        if request.HasField("behind"):
            behind = TableId(database=request.behind.database, table=request.behind.table)
            names = names[bisect_right(names, behind) :]
        answer = pb.ListTablesResponse()
        held_bytes = 0
        for nth, table_id in enumerate(names):
            if held_bytes >= _LIST_PART_BYTES:
                last = names[nth - 1]
                answer.more_behind.CopyFrom(pb.TableName(database=last.database, table=last.table))
                break
            change = await self._tables.at((request.source, table_id), order)
            if change is not None:
                wire = change.wire
                answer.tables.append(pb.SchemaChange.FromString(wire))
                held_bytes += len(wire)
        return answer

    async def WatchSchemaChanges(
        self, request: pb.WatchSchemaChangesRequest, context: _Context
    ) -> AsyncIterator[pb.SchemaChange]:
        try:
            await self._log.barrier(self._barrier_timeout_s)
        except TransientError as error:
            await _abort_unavailable(context, error)
        watcher, newest = self._tables.watch(request.source)
        try:
            for change in newest:
                yield _message(change)
            while (change_or_end := await watcher.queue.get()) is not None:
                yield _message(change_or_end)
        finally:
            self._tables.unwatch(watcher)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the watcher was too slow; watch again")


def _message(change: RecordedChange) -> pb.SchemaChange:
    return pb.SchemaChange.FromString(change.wire)


async def _abort_unavailable(context: _Context, error: TransientError) -> NoReturn:
    await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
