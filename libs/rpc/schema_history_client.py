"""schema_history from the caller's side: readers record schema changes, readers and routers look schemas up."""

from collections.abc import AsyncIterator

import grpc
import msgspec

from libs.config.connections import GrpcClientSettings
from libs.errors import SchemaUnknown
from libs.events.checkpoint_codec import order_to_proto
from libs.events.schema_change import SchemaChange, SchemaChangeKind, fitted_to_record, schema_change_from_proto
from libs.rpc.client import OwnsChannel, answer_of, error_of, open_channel
from libs.types.order import EventOrder
from libs.types.position import SourcePosition
from libs.types.table import Column, TableId, TableSchema
from protos.headwater.schema_history.v1 import schema_history_pb2 as pb
from protos.headwater.schema_history.v1 import schema_history_pb2_grpc

_SERVICE = "schema_history"


class SchemaHistoryClient(OwnsChannel):
    """A channel to schema_history; make it inside the event loop that uses it, ``close`` it at the end.

    A call waits for a service that restarts, up to ``settings.timeout_s``. Every method raises
    ``ServiceUnavailable`` where there was no answer in time: try again, all calls are idempotent.
    """

    def __init__(self, settings: GrpcClientSettings) -> None:
        self._timeout_s = settings.timeout_s
        self._channel = open_channel(settings)
        self._stub = schema_history_pb2_grpc.SchemaHistoryStub(self._channel)  # type: ignore[no-untyped-call]

    async def record_schema_change(
        self,
        *,
        source: str,
        table_id: TableId,
        kind: SchemaChangeKind,
        order: EventOrder,
        position: SourcePosition,
        committed_at_us: int,
        ddl: str,
        table_schema: TableSchema | None,
        renamed_from: TableId | None = None,
    ) -> int:
        """The version that the change got, once it is durable; a repeat answers the same version.

        A repeat is a call with equal source, table, order and ddl. Record a rename as the DROP of the old name and
        an ALTER of the new one with ``renamed_from``. ``table_schema`` is None with DROP only.

        Raises:
            DefinitionTooLarge: for a record of Kafka; the message names the table and the remedy.
        """
        change = SchemaChange(
            source=source,
            table_id=table_id,
            kind=kind,
            order=order,
            position=position,
            committed_at_us=committed_at_us,
            ddl=ddl,
            table_schema=table_schema,
            renamed_from=renamed_from,
        )
        request = pb.RecordSchemaChangeRequest(change=fitted_to_record(change))
        call = self._stub.RecordSchemaChange(request, timeout=self._timeout_s, wait_for_ready=True)
        answer: pb.RecordSchemaChangeResponse = await answer_of(call, service=_SERVICE)
        return answer.version

    async def table_schema(self, source: str, table_id: TableId, version: int) -> TableSchema:
        """The schema of a table at a version, with the ALTER that made it.

        Raises:
            SchemaUnknown: that version was never recorded, or is the table's DROP.
        """
        request = pb.GetTableSchemaRequest(
            source=source, database=table_id.database, table=table_id.table, version=version
        )
        return await self._table_schema(request)

    async def table_schema_at(self, source: str, table_id: TableId, order: EventOrder) -> TableSchema:
        """The schema in force right after everything up to ``order``.

        Raises:
            SchemaUnknown: the table was not known at that order, or was dropped by then.
        """
        request = pb.GetTableSchemaRequest(
            source=source, database=table_id.database, table=table_id.table, order=order_to_proto(order)
        )
        return await self._table_schema(request)

    async def _table_schema(self, request: pb.GetTableSchemaRequest) -> TableSchema:
        call = self._stub.GetTableSchema(request, timeout=self._timeout_s, wait_for_ready=True)
        answer: pb.GetTableSchemaResponse = await answer_of(call, service=_SERVICE)
        change = schema_change_from_proto(answer.change)
        if change.table_schema is None:
            raise SchemaUnknown(f"{change.table_id} (version {change.version}) is the end of the table, not a schema")
        if change.kind is SchemaChangeKind.ALTER:
            return msgspec.structs.replace(change.table_schema, ddl=change.ddl)
        return change.table_schema

    async def list_tables(self, source: str, order: EventOrder | None = None) -> list[TableSchema]:
        """The tables of a source that exist at ``order`` (None: now), each with its schema then, by name."""
        # Tens of thousands of tables have the same few columns many times over: kept once, they take a tenth of the memory.
        shared: dict[Column, Column] = {}
        schemas = []
        async for change in self._list(source, order):
            if (schema := change.table_schema) is not None:
                columns = tuple(shared.setdefault(column, column) for column in schema.columns)
                schemas.append(msgspec.structs.replace(schema, columns=columns))
        return schemas

    async def list_changes(self, source: str, order: EventOrder | None = None) -> list[SchemaChange]:
        """As ``list_tables``, each with the change that brought its schema about."""
        return [change async for change in self._list(source, order)]

    async def _list(self, source: str, order: EventOrder | None) -> AsyncIterator[SchemaChange]:
        request = pb.ListTablesRequest(source=source, order=order_to_proto(order) if order is not None else None)
        while True:
            call = self._stub.ListTables(request, timeout=self._timeout_s, wait_for_ready=True)
            answer: pb.ListTablesResponse = await answer_of(call, service=_SERVICE)
            for message in answer.tables:
                yield schema_change_from_proto(message)
            if not answer.HasField("more_behind"):
                return
            request.behind.CopyFrom(answer.more_behind)

    async def watch(self, source: str) -> AsyncIterator[SchemaChange]:
        """The newest change of each table, then every change from now on, in log order, without an end.

        Raises:
            ServiceUnavailable: the stream broke; call again: nothing is lost, because the newest come first.
        """
        try:
            stream = self._stub.WatchSchemaChanges(pb.WatchSchemaChangesRequest(source=source), wait_for_ready=True)
            async for message in stream:
                yield schema_change_from_proto(message)
        except grpc.aio.AioRpcError as error:
            raise error_of(error, service=_SERVICE) from error
