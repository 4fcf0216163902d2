"""SchemaChange: one DDL statement's effect on one table, as schema_history keeps and answers it."""

import enum
import hashlib
from typing import Final

import msgspec

from libs.errors import DefinitionTooLarge
from libs.events.checkpoint_codec import order_from_proto, order_to_proto, position_from_proto, position_to_proto
from libs.types.order import EventOrder
from libs.types.position import SourcePosition
from libs.types.table import TableId, TableSchema
from protos.headwater.schema_history.v1 import schema_history_pb2

# Kafka refuses records above message.max.bytes (1 MB by default); the record's own bytes are far below the difference.
LARGEST_CHANGE_BYTES: Final = 900_000
_SHORTENED_CHARACTERS: Final = 1_000


class SchemaChangeKind(enum.Enum):
    """The change of the table."""

    SNAPSHOT = "snapshot"
    """First sight of it in a snapshot."""
    CREATE = "create"
    ALTER = "alter"
    DROP = "drop"


class SchemaChange(msgspec.Struct, frozen=True, kw_only=True):
    """A new version of a table, or its end. A rename is the DROP of one name and an ALTER of the other."""

    source: str
    table_id: TableId
    kind: SchemaChangeKind
    order: EventOrder
    """Where the statement stood; (source, table_id, order, ddl) identifies the change."""
    position: SourcePosition
    committed_at_us: int
    ddl: str
    """The statement, or SHOW CREATE TABLE's answer in a snapshot."""
    table_schema: TableSchema | None = None
    """None with DROP only."""
    version: int = 0
    """1, 2, … for each table, in the order of recording; counts on over a drop. 0: not recorded yet."""
    renamed_from: TableId | None = None


_KINDS = {
    SchemaChangeKind.SNAPSHOT: schema_history_pb2.SchemaChange.KIND_SNAPSHOT,
    SchemaChangeKind.CREATE: schema_history_pb2.SchemaChange.KIND_CREATE,
    SchemaChangeKind.ALTER: schema_history_pb2.SchemaChange.KIND_ALTER,
    SchemaChangeKind.DROP: schema_history_pb2.SchemaChange.KIND_DROP,
}
_KINDS_BY_NUMBER = {number: kind for kind, number in _KINDS.items()}

_schema_encoder = msgspec.json.Encoder()
_schema_decoder = msgspec.json.Decoder(TableSchema)


def schema_change_to_proto(change: SchemaChange) -> schema_history_pb2.SchemaChange:
    """The wire form of ``change``."""
    schema = change.table_schema
    return schema_history_pb2.SchemaChange(
        source=change.source,
        database=change.table_id.database,
        table=change.table_id.table,
        kind=_KINDS[change.kind],
        version=change.version,
        order=order_to_proto(change.order),
        position=position_to_proto(change.position),
        committed_at_us=change.committed_at_us,
        ddl=change.ddl,
        table_schema=_schema_encoder.encode(schema) if schema is not None else b"",
        renamed_from=str(change.renamed_from) if change.renamed_from is not None else "",
    )


def fitted_to_record(change: SchemaChange) -> schema_history_pb2.SchemaChange:
    """The wire form of ``change``, small enough for a record of Kafka.

    A statement that makes it too large is cut off, with a digest at its end, so that a repeat has the same text.


    Raises:
        DefinitionTooLarge: it is too large without the statement as well; the message names table and remedy.
    """
    message = schema_change_to_proto(change)
    if message.ByteSize() <= LARGEST_CHANGE_BYTES:
        return message
    digest = hashlib.sha256(change.ddl.encode()).hexdigest()
    message.ddl = f"{change.ddl[:_SHORTENED_CHARACTERS]} … /* cut off by Headwater; SHA-256 {digest} */"
    if (size := message.ByteSize()) <= LARGEST_CHANGE_BYTES:
        return message
    raise DefinitionTooLarge(
        f"{change.table_id}: its definition takes {size} bytes in the schema history, more than {LARGEST_CHANGE_BYTES}: name "
        "the table in the source's exclude_tables, or shorten the comments of its columns"
    )


def schema_change_from_proto(message: schema_history_pb2.SchemaChange) -> SchemaChange:
    """The change that ``message`` carries; its schema's version is the change's.

    Raises:
        ValueError: the message is no schema change (names which part is wrong): refuse it.
    """
    kind = _KINDS_BY_NUMBER.get(message.kind)
    table_id = TableId(database=message.database, table=message.table)
    if kind is None or not message.source or not message.table:
        raise ValueError(f"schema change of {message.source}: {table_id}: source, table and kind must be given")
    if (kind is SchemaChangeKind.DROP) != (not message.table_schema):
        raise ValueError(f"schema change of {table_id}: a table_schema must be given, but with DROP")
    return SchemaChange(
        source=message.source,
        table_id=table_id,
        kind=kind,
        order=order_from_proto(message.order),
        position=position_from_proto(message.position),
        committed_at_us=message.committed_at_us,
        ddl=message.ddl,
        table_schema=_decode_schema(message) if message.table_schema else None,
        version=message.version,
        renamed_from=_parse_table_id(message.renamed_from) if message.renamed_from else None,
    )


def _decode_schema(message: schema_history_pb2.SchemaChange) -> TableSchema:
    try:
        schema = _schema_decoder.decode(message.table_schema)
    except msgspec.DecodeError as error:
        raise ValueError(f"schema change of {message.database}.{message.table}: table_schema: {error}") from error
    return msgspec.structs.replace(schema, version=message.version)


def _parse_table_id(text: str) -> TableId:
    # Only the first dot separates: MySQL allows dots in quoted table names, and few use them in database names.
    database, _, table = text.partition(".")
    return TableId(database=database, table=table)
