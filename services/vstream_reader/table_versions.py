"""The versions of tables: found in schema_history or recorded there, and the statements that a stream brings of them."""

import time
from collections.abc import Callable, Mapping

import msgspec
import structlog

from libs.errors import SchemaUnknown
from libs.events.batch import BatchBuilder
from libs.events.envelope import VitessSourceBlock
from libs.events.schema_change import SchemaChangeKind
from libs.failpoints import failpoint
from libs.mysql.ddl import TableChangeKind, apply_ddl
from libs.mysql.ddl_syntax import DdlNotUnderstood
from libs.mysql.identifiers import quote_identifier
from libs.mysql.schema_change_event import schema_change_key, schema_change_value
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.unseen_rows import report_unseen_rows
from libs.telemetry import metrics
from libs.types.table import TableId, TableSchema
from libs.types.unseen_rows import UnseenRows
from services.vstream_reader.decode import StreamDecoder
from services.vstream_reader.fields import columns_with_doubtful_members
from services.vstream_reader.found import DdlStatement, NewForm, NewTable
from services.vstream_reader.settings import VstreamReaderSettings
from services.vstream_reader.snapshot import capture_filter
from services.vstream_reader.unseen_statements import StatementWatch

log = structlog.get_logger()


class TableVersions:
    """Every form of every table that has a version, for all streams of a source."""

    def __init__(
        self,
        settings: VstreamReaderSettings,
        schema_history: SchemaHistoryClient,
        batch: BatchBuilder,
        labels: tuple[str, str],
        watch: StatementWatch,
    ) -> None:
        self._settings = settings
        self._schema_history = schema_history
        self._batch = batch
        self._labels = labels
        self._is_captured: Callable[[TableId], bool] = capture_filter(settings)
        self._watch = watch
        self._schemas: dict[TableId, TableSchema] = {}
        """The newest version of each table that was met."""
        self.known: dict[TableSchema, TableSchema] = {}
        """By schema with version 0 the schema with its version."""

    async def load(self) -> None:
        """Take the source's tables from schema_history. Raises as ``SchemaHistoryClient.list_tables``."""
        for schema in await self._schema_history.list_tables(self._settings.source):
            self._remember(schema)
        if self._watch.known_at_start is None:
            self._watch.known_at_start = frozenset(self._schemas)

    def _remember(self, schema: TableSchema) -> None:
        self._schemas[schema.table_id] = schema
        self.known[_unversioned(schema)] = schema

    async def learn(self, found: NewTable, decoder: StreamDecoder) -> None:
        """Find the version of a table's form in the history, or record it as a new one; the decoder has it then.

        Shards change their tables one after another, and a stream that is opened again sends every table again: a form that
        was there before is that version again, whichever shard or replay brings it.
        """
        table_id = found.schema.table_id
        version = 1
        while found.schema not in self.known:
            try:
                known = await self._schema_history.table_schema(self._settings.source, table_id, version)
            except SchemaUnknown:
                break
            self.known[_unversioned(known)] = known
            version += 1
        if found.schema not in self.known:
            recorded = await self._schema_history.record_schema_change(
                source=self._settings.source,
                table_id=table_id,
                kind=SchemaChangeKind.ALTER if table_id in self._schemas else SchemaChangeKind.SNAPSHOT,
                order=found.order,
                position=found.position,
                committed_at_us=found.committed_at_us,
                ddl=create_statement(found.schema),
                table_schema=found.schema,
            )
            failpoint("reader_after_schema_recorded_before_publish")
            self._remember(msgspec.structs.replace(found.schema, version=recorded))
            metrics.READER_SCHEMA_CHANGES.labels(*self._labels).inc()
            _warn_of_doubtful_members(found.schema)
        versioned = self.known[found.schema]
        decoder.learn(found.schema, versioned)
        # The schema at once, so that a new column is known before its rows. No event: Debezium sends statements only.
        self._batch.add_table_change(
            table_id,
            schema_version=versioned.version,
            order=found.order,
            committed_at_us=found.committed_at_us,
            is_snapshot=False,
            key=b"",
            value=b"",
        )

    def add_statement(self, found: DdlStatement, tables: Mapping[TableId, TableSchema]) -> None:
        """Put a statement into the batch, for the schema-change topics of tenants that see its tables.

        ``tables``: the shard's, as far as the stream has described them; of others the newest version counts.

        Raises:
            PipelineHalted: ``on_unseen_change`` says so of rows that it changed without the log.
        """
        keyspace = self._settings.keyspace
        for unseen in self._watch.unseen(found, {**self._schemas, **tables}, list(self.known.values())):
            self._report_unseen(unseen, found.shard)
        for table_id, is_truncated in tables_of(self._schemas, keyspace, found.statement).items():
            if not self._is_captured(table_id):
                continue
            if is_truncated:
                log.warning("truncate_not_followed", table=str(table_id), shard=found.shard)
            block = VitessSourceBlock(self._settings.source, keyspace, table_id.table, found.shard)
            self._batch.add_table_change(
                table_id,
                schema_version=0,
                order=found.order,
                committed_at_us=found.committed_at_us,
                is_snapshot=False,
                key=schema_change_key(keyspace),
                value=schema_change_value(
                    source_block=block.filled(time_us=found.committed_at_us, snapshot=b'"false"', vgtid=found.vgtid),
                    ts_ms=time.time_ns() // 1_000_000,
                    database=keyspace,
                    ddl=found.statement,
                    table_id=None,
                    schema=None,
                    kind="ALTER",
                ),
            )

    def note_form(self, found: NewForm) -> None:
        """Report a shard's table that is another one by its FIELD event, and had no ALTER. Raises as ``add_statement``."""
        self._report_unseen(self._watch.unseen_form(found), found.shard)

    def _report_unseen(self, unseen: UnseenRows | None, shard: str) -> None:
        report_unseen_rows(
            unseen,
            source=self._settings.source,
            source_partition=self._labels[1],
            is_captured=self._is_captured,
            at=shard,
            policies=self._settings.on_unseen_change,
        )


def _warn_of_doubtful_members(schema: TableSchema) -> None:
    if doubtful := columns_with_doubtful_members(schema):
        log.warning(
            "members_doubtful",
            table=str(schema.table_id),
            columns=doubtful,
            remedy="a question mark in a member may be another character in the table: if it is, rename the member within "
            "utf8mb3, or exclude the column; if it is not, there is nothing to do",
        )


def _unversioned(schema: TableSchema) -> TableSchema:
    return msgspec.structs.replace(schema, version=0)


def tables_of(schemas: dict[TableId, TableSchema], keyspace: str, statement: str) -> dict[TableId, bool]:
    """The tables that a statement concerns, in their order, and whether it truncates them."""
    try:
        changes = apply_ddl(schemas, keyspace, statement)
    except DdlNotUnderstood as error:
        return dict.fromkeys(sorted(error.table_ids), False)
    found = {
        table: change.kind is TableChangeKind.TRUNCATE
        for change in changes
        for table in (change.table_id, change.previous_id)
        if table is not None
    }
    return dict(sorted(found.items()))


def create_statement(schema: TableSchema) -> str:
    """A table's form as a statement, for people who read the history: vtgate sends columns, and no statement."""
    columns = [
        f"{quote_identifier(column.name)} {column.source_type}{'' if column.is_optional else ' NOT NULL'}"
        for column in schema.columns
    ]
    key = [f"PRIMARY KEY ({', '.join(map(quote_identifier, schema.key))})"] if schema.key else []
    return f"CREATE TABLE {quote_identifier(schema.table_id.table)} ({', '.join([*columns, *key])})"
