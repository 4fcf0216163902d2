"""Messages of a subscription made for tests, and a decoder over them without a broker."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from libs.events.batch import BatchBuilder, BatchIdentity
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from protos.dts import subscription_pb2 as pb
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch
from services.dts_decoder.assembly import Assembler, KafkaMessage, WholeMessage
from services.dts_decoder.decode import SubscriptionDecoder
from services.dts_decoder.found import DdlStatement, UnknownTable
from services.dts_decoder.position import DtsPosition
from services.dts_decoder.set_aside import SetAside
from services.dts_decoder.values import schema_of_columns

UUID = "38cecd93-a9c2-11ec-b952-00163e0d8da5"
TOPIC = "topic-subs-test"


@dataclass
class Made:
    """The batches, rows and letters that a decoder made of messages."""

    decoder: SubscriptionDecoder
    batches: list[ChangeBatch] = field(default_factory=list)
    set_aside: list[SetAside] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    @property
    def rows(self) -> list[tuple[str, str, dict[str, Any]]]:
        """(``table``, operation, value) of every row event."""
        return [
            (f"{entry.run.database}.{entry.run.table}", chr(op), json.loads(value))
            for batch in self.batches
            for entry in batch.entries
            for op, value in zip(entry.run.ops, entry.run.values, strict=True)
        ]

    @property
    def orders(self) -> list[tuple[int, int, int]]:
        """Of every row event."""
        return [
            (entry.run.epoch, int(entry.run.rank), entry.run.first_tx_ordinal + index)
            for batch in self.batches
            for entry in batch.entries
            for index in range(len(entry.run.ops))
        ]


def assembler(**settings: Any) -> Assembler:
    """One with room for tests."""
    return Assembler(**{"last_ps": None, "spill_bytes": 1 << 20, "max_bytes": 1 << 30, **settings})


def decode(
    messages: Iterable[WholeMessage],
    *,
    position: DtsPosition | None = None,
    schemas: Sequence[TableSchema] = (),
    dead_letters: bool = False,
    rank: int = 0,
    **settings: Any,
) -> Made:
    """Every message decoded; tables that are not known are learned from their columns."""
    batch = BatchBuilder(
        BatchIdentity(source="shop", source_partition="0", connector="dts", run_id="test", fencing_token=1)
    )
    aside: list[SetAside] = []
    decoder = SubscriptionDecoder(
        "shop",
        position or DtsPosition(topic=TOPIC, partition=0, offset=0),
        EventOrder(epoch=0, rank=rank, tx_ordinal=0),
        {schema.table_id: schema for schema in schemas},
        batch=batch,
        **{
            "is_captured": lambda _: True,
            "transaction_metadata": False,
            "set_aside": aside.append if dead_letters else None,
            "set_row_aside": aside.append if dead_letters else None,
            **settings,
        },
    )
    made = Made(decoder, set_aside=aside)
    for message in messages:
        for told in decoder.feed(message):
            if isinstance(told, UnknownTable):
                schema = schema_of_columns(TableSchema(table_id=told.table_id, columns=(), version=1), told.columns)
                decoder.apply_schemas({told.table_id: schema})
            elif isinstance(told, DdlStatement):
                made.statements.append(told.statement)
    decoder.flush()
    payload, _ = batch.take(0)
    made.batches.append(ChangeBatch.FromString(payload))
    return made


def whole(*entries: pb.Entry, offset: int = 0) -> WholeMessage:
    """A message that stands at ``offset``, its ps one more."""
    data = pb.Entries(items=entries).SerializeToString()
    return WholeMessage(TOPIC, 0, offset, offset, offset + 1, memoryview(data))


def messages(entries: Iterable[pb.Entry], *, first_offset: int = 0) -> Iterator[WholeMessage]:
    """A message an entry."""
    for offset, entry in enumerate(entries, first_offset):
        yield whole(entry, offset=offset)


def kafka_message(value: bytes, offset: int, *, ps: int | None = None, partition: int = 0) -> KafkaMessage:
    """As it would come from the broker."""
    return KafkaMessage(TOPIC, partition, offset, b"%d" % (offset + 1 if ps is None else ps), value)


def envelopes(data: bytes, parts: int) -> list[bytes]:
    """``data`` in so many Envelopes."""
    size = -(-len(data) // parts) or 1
    return [
        pb.Envelope(
            version=1, total=parts, index=index, data=data[index * size : (index + 1) * size]
        ).SerializeToString()
        for index in range(parts)
    ]


def header(kind: int, gtid: int | str | None = 1, *, position: int = 100, **fields: Any) -> pb.Header:
    """Of transaction ``gtid``; None: the source has no GTIDs."""
    return pb.Header(
        **{
            "version": 1,
            "sourceType": pb.SOURCE_TYPE_MYSQL,
            "messageType": kind,
            "timestamp": 1_700_000_000,
            "serverId": 7,
            "fileName": "mysql-bin.000005",
            "position": position,
            "gtid": gtid or "" if not isinstance(gtid, int) else f"{UUID}:{gtid}",
            "seqId": position,
            **fields,
        }
    )


def begin(gtid: int | str | None = 1, **fields: Any) -> pb.Entry:
    event = pb.Event(beginEvent=pb.BeginEvent(transactionId="t", threadId=42))
    return pb.Entry(header=header(pb.MESSAGE_TYPE_BEGIN, gtid, **fields), event=event)


def commit(gtid: int | str | None = 1, **fields: Any) -> pb.Entry:
    event = pb.Event(commitEvent=pb.CommitEvent(transactionId="t"))
    return pb.Entry(header=header(pb.MESSAGE_TYPE_COMMIT, gtid, **fields), event=event)


def rollback(gtid: int | str | None = 1, **fields: Any) -> pb.Entry:
    event = pb.Event(rollbackEvent=pb.RollbackEvent())
    return pb.Entry(header=header(pb.MESSAGE_TYPE_ROLLBACK, gtid, **fields), event=event)


def heartbeat() -> pb.Entry:
    event = pb.Event(heartbeatEvent=pb.HeartbeatEvent(epoch=5))
    return pb.Entry(header=header(pb.MESSAGE_TYPE_HEARTBEAT, None), event=event)


def checkpoint(synced: str = f"{UUID}:1-3") -> pb.Entry:
    event = pb.Event(checkpointEvent=pb.CheckpointEvent(syncedGtid=synced))
    return pb.Entry(header=header(pb.MESSAGE_TYPE_CHECKPOINT, None), event=event)


def ddl(sql: str, gtid: int | str | None = 1, **fields: Any) -> pb.Entry:
    event = pb.Event(ddlEvent=pb.DDLEvent(schemaName="shop", sql=sql))
    return pb.Entry(header=header(pb.MESSAGE_TYPE_DDL, gtid, schemaName="shop", **fields), event=event)


def number(value: int) -> pb.Data:
    return pb.Data(dataType=pb.DATA_TYPE_INT32, sv=str(value))


def text(value: str, charset: str = "utf8mb4") -> pb.Data:
    return pb.Data(dataType=pb.DATA_TYPE_STRING, charset=charset, bv=value.encode())


COLUMNS = (
    pb.Column(name="id", originalType="int(11)", isKey=True),
    pb.Column(name="v", originalType="varchar(20)"),
)
TABLE = TableId(database="shop", table="orders")


def dml(
    rows: Sequence[pb.RowChange],
    gtid: int | str | None = 1,
    *,
    kind: int = pb.DML_TYPE_INSERT,
    columns: Sequence[pb.Column] = COLUMNS,
    **fields: Any,
) -> pb.Entry:
    event = pb.Event(dmlEvent=pb.DMLEvent(dmlEventType=kind, columns=columns, rows=rows))
    named = {"schemaName": "shop", "tableName": "orders", **fields}
    return pb.Entry(header=header(pb.MESSAGE_TYPE_DML, gtid, **named), event=event)


def insert(*ids: int, gtid: int | str | None = 1, **fields: Any) -> pb.Entry:
    """Rows of ``id`` and a text."""
    return dml([pb.RowChange(newColumns=[number(row), text(f"v{row}")]) for row in ids], gtid, **fields)
