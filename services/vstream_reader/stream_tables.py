"""The tables of a stream by the names that its events have, each at its present version and with the decoder of its rows."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from weakref import WeakValueDictionary

import orjson

from libs.errors import SourceUnavailable
from libs.events.envelope import VitessSourceBlock
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from libs.types.value import UNAVAILABLE_VALUE
from protos.vitess import binlogdata_pb2
from services.vstream_reader.decoder_options import DecoderOptions
from services.vstream_reader.fields import reading, reads_otherwise_copied, table_schema
from services.vstream_reader.found import NewForm, NewTable
from services.vstream_reader.row_changes import RowChangesDecoder
from services.vstream_reader.shard_set import ShardSet
from services.vstream_reader.tally import TableTally
from services.vstream_reader.transaction import Transaction


@dataclass(frozen=True, slots=True)
class StreamTable:
    """A captured table of one shard at its present version."""

    key: tuple[bytes, bytes]
    """Table and shard as ROW events name them."""
    schema: TableSchema
    decoder: RowChangesDecoder
    copied_decoder: RowChangesDecoder
    """Of rows that are copied: the same where they are read alike."""
    source_block: VitessSourceBlock
    tally: TableTally

    def decoder_of(self, transaction: Transaction) -> RowChangesDecoder:
        return self.copied_decoder if transaction.is_copy else self.decoder


class StreamTables:
    """Every table that FIELD events have described, of each shard by itself; None for one that is not captured."""

    def __init__(self, options: DecoderOptions, versions: Mapping[TableSchema, TableSchema]) -> None:
        self._options = options
        self._versions = dict(versions)
        self._removed = frozenset(options.events.remove_fields)
        self._tables: dict[tuple[bytes, bytes], StreamTable | None] = {}
        self._decoders: WeakValueDictionary[tuple[TableSchema, bool, bool], RowChangesDecoder] = WeakValueDictionary()
        """By schema, whether members come as text, and whether rows are copied. All shards share them."""

    def learn(self, unversioned: TableSchema, versioned: TableSchema) -> None:
        """The version of a table that ``take_fields`` yielded."""
        self._versions[unversioned] = versioned

    def keep_shards(self, names: Set[str]) -> None:
        """Forget the tables of shards that are read no more."""
        self._tables = {key: table for key, table in self._tables.items() if key[1].decode() in names}

    def table(self, table_name: bytes, shard_name: bytes) -> StreamTable | None:
        """The table of a ROW event.

        Raises:
            SourceUnavailable: no FIELD event has come for it.
        """
        try:
            return self._tables[table_name, shard_name]
        except KeyError:
            raise SourceUnavailable(
                f"vtgate sent a row of {table_name.decode(errors='replace')} (shard {shard_name.decode(errors='replace')}) "
                "before its columns: the stream is opened again"
            ) from None

    def of_shard(self, name: str) -> dict[TableId, TableSchema]:
        """The captured tables of a shard as its last FIELD events described them."""
        shard = name.encode()
        return {
            table.schema.table_id: table.schema
            for (_, shard_name), table in self._tables.items()
            if table is not None and shard_name == shard
        }

    def take_fields(self, payload: bytes, shards: ShardSet, met_at_us: int) -> Iterator[NewTable | NewForm]:
        """Take a FIELD event; yields its table where the form has no version (``learn`` comes before the next step), then the
        form, where it is another than the shard's table had."""
        event = binlogdata_pb2.FieldEvent.FromString(payload)
        keyspace = event.keyspace or self._options.keyspace
        key = (event.table_name.encode(), event.shard.encode())
        table_id = TableId(database=keyspace, table=event.table_name.removeprefix(f"{keyspace}."))
        if not self._options.is_captured(table_id):
            self._tables[key] = None
            return
        shards.copy.begin_table(event.shard, table_id.table)
        unversioned = table_schema(event, keyspace, modes=self._options.modes, key_columns=self._options.key_columns)
        before = self._before(key, unversioned, is_copied=shards.copy.is_running)
        if unversioned not in self._versions:
            shard = shards.get(event.shard) or next(iter(shards))
            yield NewTable(
                schema=unversioned,
                order=EventOrder(epoch=shard.epoch, rank=shard.rank, tx_ordinal=0),
                position=shards.position,
                committed_at_us=met_at_us,
            )
        schema = self._versions[unversioned]
        if before is not None and before.version != schema.version:
            yield NewForm(before, schema, event.shard)
        decoder = copied_decoder = self._decoder(schema, event.enum_set_string_values, is_copy=False)
        if shards.copy.is_running and any(
            reads_otherwise_copied(column, has_text_members=event.enum_set_string_values) for column in schema.columns
        ):
            copied_decoder = self._decoder(schema, event.enum_set_string_values, is_copy=True)
        self._tables[key] = StreamTable(
            key,
            schema,
            decoder,
            copied_decoder,
            VitessSourceBlock(self._options.source, keyspace, table_id.table, event.shard, removed=self._removed),
            self._options.tally.of_table(str(table_id)),
        )

    def _before(self, key: tuple[bytes, bytes], unversioned: TableSchema, *, is_copied: bool) -> TableSchema | None:
        """The form that a shard's table had before this FIELD event. Of one that this stream has not met it is the newest that
        is known; None: there is none, this form was known too, or its rows are copied in this form."""
        if (met := self._tables.get(key)) is not None:
            return met.schema
        if is_copied or unversioned in self._versions:
            return None
        known = [each for each in self._versions.values() if each.table_id == unversioned.table_id]
        return max(known, key=lambda each: each.version, default=None)

    def _decoder(self, schema: TableSchema, has_text_members: bool, *, is_copy: bool) -> RowChangesDecoder:
        key = (schema, has_text_members, is_copy)
        decoder = self._decoders.get(key)
        if decoder is None:
            placeholder = self._options.modes.unavailable_placeholder or UNAVAILABLE_VALUE
            decoder = self._decoders[key] = _row_decoder(schema, has_text_members, placeholder, is_copy=is_copy)
        return decoder


def _row_decoder(schema: TableSchema, has_text_members: bool, placeholder: str, *, is_copy: bool) -> RowChangesDecoder:
    return RowChangesDecoder(
        [
            reading(column, has_text_members=has_text_members, is_copy=is_copy, placeholder=placeholder)
            for column in schema.columns
        ],
        [orjson.dumps(column.name) for column in schema.columns],
        [_place_of(schema, name) for name in schema.key],
    )


def _place_of(schema: TableSchema, name: str) -> int:
    return next(place for place, column in enumerate(schema.columns) if column.name == name)
