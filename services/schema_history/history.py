"""Every version of every table, by order: plain functions over the changes of one table.

Versions are counted in the order of recording; validity goes by ``EventOrder``. The two differ only after a rewind,
when a reader meets statements of before the first snapshot: their versions are new, their place in history is early.
"""

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from libs.events.schema_change import (
    LARGEST_CHANGE_BYTES,
    SchemaChange,
    SchemaChangeKind,
    schema_change_from_proto,
    schema_change_to_proto,
)
from libs.types.order import EventOrder
from libs.types.table import Column, TableId
from protos.headwater.schema_history.v1 import schema_history_pb2

_LARGEST_WIRE_BYTES: Final = 2 * LARGEST_CHANGE_BYTES
_COMPRESSION_LEVEL: Final = 1  # a fifth of the size for 30 µs; better levels gain little on texts so short


class RecordedChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change with its version: the facts for the functions below, and the record itself, still encoded."""

    source: str
    table_id: TableId
    version: int
    order: EventOrder
    is_drop: bool
    ddl_digest: bytes
    packed: bytes
    """``wire``, compressed: a table of 16 columns takes 6 kB, and a source may have 50,000."""

    @property
    def wire(self) -> bytes:
        """The SchemaChange as it stands in Kafka."""
        return zlib.decompress(self.packed)


class TableHead(msgspec.Struct, frozen=True, kw_only=True):
    """The part of each table that is always kept; older versions are fetched when somebody asks."""

    newest: RecordedChange
    """The change with the greatest order."""
    last_version: int
    """The version recorded last; the next one is this plus 1."""


def recorded(change: SchemaChange, version: int) -> RecordedChange:
    """``change`` as version ``version`` of its table."""
    schema = change.table_schema
    numbered = msgspec.structs.replace(
        change,
        version=version,
        table_schema=msgspec.structs.replace(schema, version=version) if schema is not None else None,
    )
    return _index(numbered, pack(schema_change_to_proto(numbered).SerializeToString()))


def with_names_of(change: SchemaChange, last: RecordedChange) -> SchemaChange:
    """``change`` with the memory of the version before it: former names of the table and its columns, and the columns that
    are late. A definition that was read again has neither, and a document that keeps a column back by them still does."""
    schema = change.table_schema
    before = schema_change_from_proto(schema_history_pb2.SchemaChange.FromString(last.wire)).table_schema
    if before is None or schema is None:
        return change
    old = {column.name.lower(): column for column in before.columns}

    def named(column: Column) -> Column:
        known = old.get(column.name.lower())
        missing = () if known is None else tuple(name for name in known.all_names if name not in column.all_names)
        known = known or next((old[name.lower()] for name in column.all_names if name.lower() in old), None)
        is_late = column.is_late or known is None or known.is_late
        if not missing and is_late == column.is_late:
            return column
        return replace(column, earlier_names=(*column.earlier_names, *missing), is_late=is_late)

    formers = tuple(dict.fromkeys((*before.former_ids, *schema.former_ids)))
    columns = tuple(map(named, schema.columns))
    return replace(change, table_schema=replace(schema, columns=columns, former_ids=formers))


def pack(wire: bytes) -> bytes:
    """As ``RecordedChange.packed``."""
    return zlib.compress(wire, _COMPRESSION_LEVEL)


def decode_recorded(packed: bytes) -> RecordedChange:
    """The change that the view holds.

    Raises:
        ValueError, zlib.error, google.protobuf.message.DecodeError: ``packed`` is no SchemaChange.
    """
    unpacking = zlib.decompressobj()
    wire = unpacking.decompress(packed, _LARGEST_WIRE_BYTES)
    if not unpacking.eof:
        raise ValueError("it is cut off, or larger than any schema change")
    message = schema_history_pb2.SchemaChange.FromString(wire)
    return _index(schema_change_from_proto(message), packed)


def _index(change: SchemaChange, packed: bytes) -> RecordedChange:
    return RecordedChange(
        source=change.source,
        table_id=change.table_id,
        version=change.version,
        order=change.order,
        is_drop=change.kind is SchemaChangeKind.DROP,
        ddl_digest=digest_ddl(change.ddl),
        packed=packed,
    )


def digest_ddl(ddl: str) -> bytes:
    """The facts by which two statements are equal."""
    return hashlib.sha256(ddl.encode()).digest()


def schema_at(changes: Iterable[RecordedChange], order: EventOrder) -> RecordedChange | None:
    """The change of one table in force right after everything up to ``order``; None: the table was not known yet.

    Of several changes at one order the one recorded last counts. It may be a DROP.
    """
    return max(
        (change for change in changes if change.order <= order),
        key=lambda change: (change.order, change.version),
        default=None,
    )


def find_repeat(changes: Iterable[RecordedChange], change: SchemaChange) -> RecordedChange | None:
    """The recorded change that ``change`` repeats: same table, same order, same statement."""
    digest = digest_ddl(change.ddl)
    for earlier in changes:
        if earlier.order == change.order and earlier.ddl_digest == digest:
            return earlier
    return None


def advance(head: TableHead | None, change: RecordedChange) -> TableHead:
    """The head after ``change`` was recorded; the same head where it is known already."""
    if head is None:
        return TableHead(newest=change, last_version=change.version)
    if change.version <= head.last_version:
        return head
    is_newest = (change.order, change.version) > (head.newest.order, head.newest.version)
    return TableHead(newest=change if is_newest else head.newest, last_version=change.version)


def head_of(changes: Sequence[RecordedChange]) -> TableHead | None:
    """The head of all changes of one table, in the order of recording; None where there are none."""
    head = None
    for change in changes:
        head = advance(head, change)
    return head
