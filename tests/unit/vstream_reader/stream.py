"""A decoder fed by hand, and the rows that came out of it."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from libs.events.batch import BatchBuilder, BatchIdentity
from libs.events.dead_letter import UndecodedRow
from libs.source.key_columns import KeyColumns
from libs.source.vitess.settings import EventSettings, TransactionMetadata
from libs.source.vitess.vgtid import ShardGtid
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import ValueModes, VitessValueModes
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch, Run
from protos.vitess import binlogdata_pb2, query_pb2, vtgate_pb2
from services.vstream_reader.decode import StreamDecoder
from services.vstream_reader.decoder_options import DecoderOptions
from services.vstream_reader.found import Found, NewTable
from services.vstream_reader.position import VitessPosition
from services.vstream_reader.tally import StreamTally

NOT_NULL_PRIMARY = 3


def start_of(*shards: str, gtid: str = "", keyspace: str = "ks") -> VitessPosition:
    """A position that no stream was read from yet."""
    return VitessPosition(
        vgtid=tuple(ShardGtid(keyspace=keyspace, shard=shard, gtid=gtid) for shard in shards),
        epochs=dict.fromkeys(shards, 0),
    )


@dataclass
class Replay:
    """Feeds a decoder; gathers its findings and the batch that it makes."""

    decoder: StreamDecoder
    batch: BatchBuilder
    found: list[Found] = field(default_factory=list)
    schemas: list[TableSchema] = field(default_factory=list)

    def feed(self, *answers: bytes) -> "Replay":
        for answer in answers:
            for found in self.decoder.feed(answer):
                if isinstance(found, NewTable):
                    self.schemas.append(msgspec.structs.replace(found.schema, version=len(self.schemas) + 1))
                    self.decoder.learn(found.schema, self.schemas[-1])
                if found is not None:
                    self.found.append(found)
        return self

    def runs(self) -> list[Run]:
        self.decoder.flush()
        payload, _ = self.batch.take(0)
        return [entry.run for entry in ChangeBatch.FromString(payload).entries if entry.HasField("run")]

    def entries(self) -> list[Any]:
        self.decoder.flush()
        return list(ChangeBatch.FromString(self.batch.take(0)[0]).entries)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(value) for run in self.runs() for value in run.values]


def replay(
    position: VitessPosition,
    *,
    source: str = "src",
    keyspace: str = "ks",
    is_captured: Callable[[TableId], bool] = lambda table_id: True,
    modes: ValueModes | None = None,
    events: EventSettings | None = None,
    key_columns: Sequence[KeyColumns] = (),
    is_copying: bool = False,
    is_recopy: bool = False,
    for_tenants: tuple[str, ...] = (),
    set_aside: Callable[[UndecodedRow], None] | None = None,
    tally: StreamTally | None = None,
) -> Replay:
    """A decoder at ``position``."""
    events = events or EventSettings()
    batch = BatchBuilder(
        BatchIdentity(
            source=source,
            source_partition="0",
            connector="vitess",
            run_id="run",
            fencing_token=1,
            removed_fields=events.remove_fields,
            has_ordered_transactions=events.transaction_metadata is TransactionMetadata.ORDERED,
        )
    )
    options = DecoderOptions(
        source=source,
        keyspace=keyspace,
        is_captured=is_captured,
        modes=modes or VitessValueModes(),
        events=events,
        key_columns=key_columns,
        is_recopy=is_recopy,
        for_tenants=for_tenants,
        set_aside=set_aside,
        tally=tally or StreamTally(),
    )
    return Replay(StreamDecoder(options, position, {}, batch=batch, is_copying=is_copying), batch)


# --- answers of vtgate -------------------------------------------------------------------------------------------------


def answer(*events: binlogdata_pb2.VEvent) -> bytes:
    """A VStreamResponse."""
    return vtgate_pb2.VStreamResponse(events=events).SerializeToString()


def event(kind: str, *, timestamp: int = 1_700_000_000, shard: str = "-80", **rest: Any) -> binlogdata_pb2.VEvent:
    """A VEvent of the keyspace ``ks``."""
    return binlogdata_pb2.VEvent(
        type=binlogdata_pb2.VEventType.Value(kind), timestamp=timestamp, keyspace="ks", shard=shard, **rest
    )


def vgtid(places: dict[str, str], last_keys: dict[str, int] | None = None, **rest: Any) -> binlogdata_pb2.VEvent:
    """A VGTID; ``last_keys``: the last ``id`` of the table ``t`` that each shard copied."""
    return event(
        "VGTID",
        vgtid=binlogdata_pb2.VGtid(
            shard_gtids=[
                binlogdata_pb2.ShardGtid(
                    keyspace="ks",
                    shard=shard,
                    gtid=gtid if gtid in ("", "current") else f"MySQL56/{gtid}",
                    table_p_ks=[last_key(last_keys[shard])] if last_keys and shard in last_keys else [],
                )
                for shard, gtid in places.items()
            ]
        ),
        **rest,
    )


def last_key(row_id: int) -> binlogdata_pb2.TableLastPK:
    return binlogdata_pb2.TableLastPK(
        table_name="t",
        lastpk=query_pb2.QueryResult(
            fields=[query_pb2.Field(name="id", type=query_pb2.INT64, charset=63, flags=53251)], rows=[row(row_id)]
        ),
    )


def column(name: str, kind: int, column_type: str, flags: int = 0, decimals: int = 0) -> query_pb2.Field:
    return query_pb2.Field(name=name, type=kind, column_type=column_type, flags=flags, decimals=decimals)


ID_AND_V = (
    column("id", query_pb2.INT64, "bigint", NOT_NULL_PRIMARY),
    column("v", query_pb2.VARCHAR, "varchar(300)"),
)


def fields(
    *columns: query_pb2.Field, table: str = "t", shard: str = "-80", texts: bool = True
) -> binlogdata_pb2.VEvent:
    """A FIELD event; the table ``t`` of ``id`` and ``v`` where no columns are given."""
    return event(
        "FIELD",
        shard=shard,
        field_event=binlogdata_pb2.FieldEvent(
            table_name=f"ks.{table}",
            fields=columns or ID_AND_V,
            keyspace="ks",
            shard=shard,
            enum_set_string_values=texts,
        ),
    )


def row(*values: object) -> query_pb2.Row:
    printed = [
        None if value is None else value if isinstance(value, bytes) else str(value).encode() for value in values
    ]
    return query_pb2.Row(
        lengths=[-1 if text is None else len(text) for text in printed],
        values=b"".join(text for text in printed if text is not None),
    )


def rows(
    *changes: tuple[query_pb2.Row | None, query_pb2.Row | None],
    table: str = "t",
    shard: str = "-80",
    timestamp: int = 1_700_000_000,
) -> binlogdata_pb2.VEvent:
    """A ROW event of (before, after)."""
    return event(
        "ROW",
        shard=shard,
        timestamp=timestamp,
        row_event=binlogdata_pb2.RowEvent(
            table_name=f"ks.{table}",
            row_changes=[binlogdata_pb2.RowChange(before=before, after=after) for before, after in changes],
            keyspace="ks",
            shard=shard,
            flags=1,
        ),
    )


def inserted(*values: object, **rest: Any) -> binlogdata_pb2.VEvent:
    return rows((None, row(*values)), **rest)


def transaction(place: dict[str, str], *inside: binlogdata_pb2.VEvent, **rest: Any) -> bytes:
    return answer(event("BEGIN"), *inside, vgtid(place, **rest), event("COMMIT"))


def flat(many: Iterable[Sequence[Any]]) -> list[Any]:
    return [one for part in many for one in part]
