"""A process in Tencent's role: follows a MySQL's binlog and writes it to a topic as DTS does. For the demo and for tests.

``python -m libs.stand_ins.dts.producer --settings FILE``. No real DTS was seen. It follows the documents (seed document 004):
an entry a log event, entries merged up to the size of a Kafka message, larger ones cut into parts, a header ``ps`` that
counts messages, a CHECKPOINT about every ten seconds. As DTS does, it delivers at least once: started again, it goes on after
the last CHECKPOINT that it wrote, and repeats the later messages.
"""

import argparse
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec
import yaml
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from libs.config.connections import KafkaSettings
from libs.config.load import convert_document
from libs.errors import HeadwaterError, InvalidSettings, SourceUnavailable
from libs.kafka.clients import TopicSpec, ensure_topics
from libs.mysql import binlog_events as events
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.ddl import DdlNotUnderstood, TableChangeKind, apply_ddl, show_create_to_schema
from libs.mysql.gtid import ExecutedGtids, GtidSet
from libs.mysql.packets import Packets
from libs.mysql.row_image import WireColumn, wire_columns
from libs.source.mysql.client import Connection, connect, query, start_dump
from libs.source.mysql.settings import DatabaseSettings
from libs.source.mysql.snapshot import captured_tables, create_statement, log_end
from libs.stand_ins.dts.encode import read_image
from libs.types.table import Column, TableId, TableSchema
from protos.dts import subscription_pb2 as pb

_PRODUCE_TIMEOUT_S: Final = 30.0
_LOOK_TIMEOUT_S: Final = 2.0
_SILENT_S: Final = 1.0
_RETENTION_MS: Final = 24 * 3_600_000  # DTS keeps messages for a day (Tencent Cloud document 571/77716)
_OF_KIND: Final = {
    events.WRITE_ROWS: pb.DML_TYPE_INSERT,
    events.UPDATE_ROWS: pb.DML_TYPE_UPDATE,
    events.DELETE_ROWS: pb.DML_TYPE_DELETE,
}


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of the stand-in."""

    database: DatabaseSettings
    bootstrap_servers: str
    topic: str
    replica_server_id: int
    checkpoint_every_s: float = 10.0
    max_message_bytes: int = 900_000
    """Of an Envelope's data; a larger Entries is cut into parts. Kafka's default limit is 1 MB a message."""
    begin_gtid_set: str | None = None
    """Where a topic without messages begins: after these transactions; None: after all there are."""


_OF_A_SAVEPOINT: Final = re.compile(r"\s*(SAVEPOINT|ROLLBACK TO|RELEASE SAVEPOINT)\b", re.IGNORECASE)
"""Statements within a transaction, which end nothing and define nothing."""


class BinlogEncoder:
    """Log events → entries. Keeps the log's own state: the file, the transaction, table maps and schemas."""

    def __init__(self, connection: Connection, gtid_set: str, *, asks_server: bool = False) -> None:
        """``asks_server``: each DDL statement's tables are those of the server, over ``connection``. That is exact where the
        server executes nothing until the statement was read. Without it the statement's text names them."""
        self.executed = ExecutedGtids(GtidSet.parse(gtid_set))
        self.file, self.position = log_end(connection)
        self._seq_id = 0
        self._checksum_bytes = 4 if query(connection, "SELECT @@GLOBAL.binlog_checksum")[0][0] == "CRC32" else 0
        self._schemas = _schemas_now(connection)
        self._connection = connection if asks_server else None
        self._maps: dict[bytes, tuple[TableId, list[WireColumn]]] = {}
        self._gtid: events.GtidEvent | None = None

    @property
    def is_between_transactions(self) -> bool:
        """A checkpoint may be written here."""
        return self._gtid is None

    def entries(self, data: bytes, place: int, end: int) -> Iterator[pb.Entry]:
        """The entries of one log event; most kinds have none."""
        timestamp, kind, server_id, size, end_position, _ = events.read_header(data, place)
        body = data[place + events.HEADER_BYTES : end - self._checksum_bytes]
        at = {"timestamp": timestamp, "serverId": server_id, "position": end_position - size}
        if kind == events.FORMAT_DESCRIPTION:
            self._checksum_bytes = 4 if data[end - 5] == 1 else 0
        elif kind == events.ROTATE:
            self.file = events.parse_rotate(body)
        elif kind == events.GTID:
            self._gtid = events.parse_gtid(body)
        elif kind == events.QUERY:
            yield from self._statement(events.parse_query(body), at)
        elif kind == events.XID:
            yield self._entry(
                pb.MESSAGE_TYPE_COMMIT, at, pb.Event(commitEvent=pb.CommitEvent(transactionId=self._text()))
            )
            self._ended()
        elif kind == events.TABLE_MAP:
            mapped = events.parse_table_map(body[events.TABLE_ID_BYTES :])
            table_id = TableId(database=mapped.database, table=mapped.table)
            self._maps[body[: events.TABLE_ID_BYTES]] = table_id, wire_columns(mapped.column_types, mapped.metadata)
        elif kind in _OF_KIND:
            yield from self._rows(kind, body, at)
        self.position = end_position or self.position

    def _statement(self, statement: events.QueryEvent, at: Mapping[str, int]) -> Iterator[pb.Entry]:
        if statement.statement == "BEGIN":
            begin = pb.BeginEvent(transactionId=self._text(), threadId=statement.thread_id)
            yield self._entry(pb.MESSAGE_TYPE_BEGIN, at, pb.Event(beginEvent=begin))
            return
        if statement.statement in ("COMMIT", "ROLLBACK"):
            commit = pb.CommitEvent(transactionId=self._text())
            yield self._entry(pb.MESSAGE_TYPE_COMMIT, at, pb.Event(commitEvent=commit))
            self._ended()
            return
        if _OF_A_SAVEPOINT.match(statement.statement):
            return
        ddl = pb.DDLEvent(schemaName=statement.database, sql=statement.statement)
        yield self._entry(
            pb.MESSAGE_TYPE_DDL, at, pb.Event(ddlEvent=ddl), TableId(database=statement.database, table="")
        )
        self._follow(statement)
        if not statement.statement.rstrip().upper().endswith("START TRANSACTION"):
            self._ended()

    def _follow(self, statement: events.QueryEvent) -> None:
        if self._connection is not None:
            self._schemas = _schemas_now(self._connection)
            return
        try:
            for change in apply_ddl(self._schemas, statement.database, statement.statement):
                if change.kind is TableChangeKind.RENAME and change.previous_id is not None:
                    self._schemas.pop(change.previous_id, None)
                if change.schema is not None:
                    self._schemas[change.table_id] = change.schema
                elif change.kind is TableChangeKind.DROP:
                    self._schemas.pop(change.table_id, None)
        except DdlNotUnderstood:
            pass  # of no table, or the reader is to find out

    def _rows(self, kind: int, body: bytes, at: Mapping[str, int]) -> Iterator[pb.Entry]:
        table_id, wires = self._maps[body[: events.TABLE_ID_BYTES]]
        schema = self._schemas.get(table_id)
        if schema is None or len(schema.columns) != len(wires):
            return
        columns: list[tuple[Column, WireColumn]] = list(zip(schema.columns, wires, strict=True))
        place = events.ROWS_POST_HEADER_BYTES
        place += int.from_bytes(body[place : place + 2], "little")
        count, place = events.read_packed(body, place)
        place += (count + 7) // 8 * (2 if kind == events.UPDATE_ROWS else 1)
        dml = pb.DMLEvent(
            dmlEventType=_OF_KIND[kind],
            columns=[
                pb.Column(name=column.name, originalType=column.source_type, isKey=column.name in schema.key)
                for column in schema.columns
            ],
        )
        while place < len(body):
            row = dml.rows.add()
            if kind != events.WRITE_ROWS:
                cells, place = read_image(body, place, columns)
                row.oldColumns.extend(cells)
            if kind != events.DELETE_ROWS:
                cells, place = read_image(body, place, columns)
                row.newColumns.extend(cells)
        yield self._entry(pb.MESSAGE_TYPE_DML, at, pb.Event(dmlEvent=dml), table_id)

    def _entry(self, kind: int, at: Mapping[str, int], event: pb.Event, table_id: TableId | None = None) -> pb.Entry:
        self._seq_id += 1
        header = pb.Header(
            version=1,
            sourceType=pb.SOURCE_TYPE_MYSQL,
            messageType=kind,  # type: ignore[arg-type]
            fileName=self.file,
            gtid=self._text(),
            schemaName=table_id.database if table_id is not None else "",
            tableName=table_id.table if table_id is not None else "",
            seqId=self._seq_id,
            timestamp=at["timestamp"],
            serverId=at["serverId"],
            position=at["position"],
        )
        return pb.Entry(header=header, event=event)

    def own(self, kind: int, event: pb.Event) -> pb.Entry:
        """An entry that DTS writes by itself."""
        at = {"timestamp": int(time.time()), "serverId": 0, "position": self.position}
        return self._entry(kind, at, event)

    def _text(self) -> str:
        return f"{self._gtid.uuid}:{self._gtid.number}" if self._gtid is not None else ""

    def _ended(self) -> None:
        if self._gtid is not None:
            self.executed.add(self._gtid.uuid, self._gtid.tag, self._gtid.number)
        self._gtid = None


def _schemas_now(connection: Connection) -> dict[TableId, TableSchema]:
    """Of the server's tables, by SHOW CREATE TABLE."""
    return {
        table_id: show_create_to_schema(table_id, *create_statement(connection, table_id))
        for table_id in captured_tables(connection)
    }


class Merger:
    """Entries → Envelopes: merged up to the size of a message; one that is larger is cut into parts."""

    def __init__(self, max_message_bytes: int, send: Callable[[bytes], None]) -> None:
        """``send`` is given each Envelope."""
        self._max_bytes = max_message_bytes
        self._send = send
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def add(self, entry: pb.Entry) -> None:
        """Merge ``entry`` into the message at hand; one that is too large goes by itself, in parts."""
        serialised = pb.Entries(items=[entry]).SerializeToString()
        if self._waiting_bytes + len(serialised) > self._max_bytes:
            self.flush()
        self._waiting.append(serialised)
        self._waiting_bytes += len(serialised)

    def flush(self) -> None:
        """Send what is merged."""
        if not self._waiting:
            return
        data = b"".join(self._waiting)  # serialised Entries that stand one after another are one
        self._waiting, self._waiting_bytes = [], 0
        total = -(-len(data) // self._max_bytes)
        for index in range(total):
            part = data[index * self._max_bytes : (index + 1) * self._max_bytes]
            self._send(pb.Envelope(version=1, total=total, index=index, data=part).SerializeToString())


class TopicWriter:
    """Entries → Envelopes in one Kafka partition, with their count."""

    def __init__(self, bootstrap_servers: str, topic: str, *, last_ps: int, max_message_bytes: int) -> None:
        self._topic = topic
        self._ps = last_ps
        self._merger = Merger(max_message_bytes, self.send)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 1, "log_level": 2}
        )

    def add(self, entry: pb.Entry) -> None:
        """See ``Merger.add``."""
        self._merger.add(entry)

    def flush(self) -> None:
        """Send the merged entries; returns before they are acknowledged."""
        self._merger.flush()

    def send(self, value: bytes) -> None:
        """One message of any content, with the next count."""
        self._ps += 1
        while True:
            try:
                self._producer.produce(self._topic, value=value, partition=0, headers=[("ps", str(self._ps).encode())])
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def wait(self) -> None:
        """Return when everything is acknowledged. Raises SourceUnavailable."""
        self.flush()
        if self._producer.flush(_PRODUCE_TIMEOUT_S):
            raise SourceUnavailable("the topic's broker does not acknowledge")


def where_topic_ends(bootstrap_servers: str, topic: str) -> tuple[int, str | None]:
    """The last message's count, and the transactions that the newest CHECKPOINT names as handed over; (0, None) of an empty
    topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "dts-stand-in",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_PRODUCE_TIMEOUT_S)
        last_ps, synced, step = 0, None, 100
        end = high
        while synced is None and end > low:
            begin = max(low, end - step)
            for message in _read(consumer, topic, begin, end):
                ps = next(value for name, value in message.headers() or () if name == "ps")
                last_ps = max(last_ps, int(ps))
                synced = _synced(message.value() or b"") or synced
            end, step = begin, 10 * step
        return last_ps, synced
    finally:
        consumer.close()


def topic_end(bootstrap_servers: str, topic: str) -> int:
    """The offset that comes next in the topic; 0 where it is empty, is not there, or its broker does not answer."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "dts-stand-in", "log_level": 0})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_LOOK_TIMEOUT_S)[1])
    except KafkaException:
        return 0
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, begin: int, end: int) -> Iterator[Any]:
    consumer.assign([TopicPartition(topic, 0, begin)])
    while True:
        message = consumer.poll(_PRODUCE_TIMEOUT_S)
        if message is None or message.error() is not None:
            raise SourceUnavailable("the topic cannot be read")
        yield message
        if (message.offset() or 0) >= end - 1:
            return


def _synced(value: bytes) -> str | None:
    envelope = pb.Envelope.FromString(value)
    if envelope.total != 1:
        return None
    found = [entry.event.checkpointEvent.syncedGtid for entry in pb.Entries.FromString(envelope.data).items]
    return next((gtid for gtid in reversed(found) if gtid), None)


class StandIn:
    """Follows the binlog and writes the topic until ``stop`` is set."""

    def __init__(self, settings: ProducerSettings) -> None:
        self.settings = settings
        self.stop = False
        last_ps, synced = where_topic_ends(settings.bootstrap_servers, settings.topic)
        connection = connect(settings.database)
        try:
            now = str(query(connection, "SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")
            begin = synced if synced is not None else settings.begin_gtid_set
            self._encoder = BinlogEncoder(connection, now if begin is None else begin)
        finally:
            connection.close()
        self._writer = TopicWriter(
            settings.bootstrap_servers, settings.topic, last_ps=last_ps, max_message_bytes=settings.max_message_bytes
        )

    def run(self) -> None:
        """Blocks. Raises SourceUnavailable when the server or the broker is away."""
        settings = self.settings
        connection = connect(settings.database)
        reader = start_dump(
            connection,
            BinlogPosition(gtid_set=self._encoder.executed.text(), file="", pos=4),
            also_done=GtidSet(),
            replica_server_id=settings.replica_server_id,
            heartbeat_s=_SILENT_S / 4,
            spill_dir=Path(tempfile.gettempdir()),
        )
        self.checkpoint()
        reported_s = time.monotonic()
        try:
            while not self.stop:
                packets, more_waits = reader.receive()
                if not isinstance(packets, Packets):
                    raise SourceUnavailable("the stand-in does not follow compressed transactions")
                log = packets.behind_ok()
                if len(log) < len(packets):
                    raise SourceUnavailable("MySQL ended the log")
                for place, end in log:
                    for entry in self._encoder.entries(log.data, place, end):
                        self._writer.add(entry)
                if not more_waits:
                    self._writer.flush()
                is_due = time.monotonic() - reported_s >= settings.checkpoint_every_s
                if is_due and self._encoder.is_between_transactions:
                    self.checkpoint()
                    reported_s = time.monotonic()
        finally:
            connection.close()
        self._writer.wait()

    def checkpoint(self) -> None:
        """A HEARTBEAT and a CHECKPOINT, each a message of its own."""
        encoder = self._encoder
        self._writer.flush()
        beat = pb.HeartbeatEvent(epoch=int(time.time()))
        self._writer.add(encoder.own(pb.MESSAGE_TYPE_HEARTBEAT, pb.Event(heartbeatEvent=beat)))
        self._writer.flush()
        reached = pb.CheckpointEvent(
            syncedGtid=encoder.executed.text(), fileName=encoder.file, position=encoder.position
        )
        self._writer.add(encoder.own(pb.MESSAGE_TYPE_CHECKPOINT, pb.Event(checkpointEvent=reached)))
        self._writer.flush()


def main(argv: list[str]) -> int:
    """Run until SIGTERM; 1 when the server or the broker is away. Makes the topic where it is not there."""
    parser = argparse.ArgumentParser(prog="libs.stand_ins.dts.producer")
    parser.add_argument("--settings", type=Path, required=True)
    path = parser.parse_args(argv).settings
    mistakes: list[str] = []
    settings = convert_document(ProducerSettings, yaml.safe_load(path.read_text()), place="", mistakes=mistakes)
    if settings is None:
        raise InvalidSettings(str(path), mistakes)
    try:
        ensure_topics(
            KafkaSettings(bootstrap_servers=settings.bootstrap_servers),
            [TopicSpec(name=settings.topic, config={"retention.ms": str(_RETENTION_MS)})],
        )
        stand_in = StandIn(settings)
    except HeadwaterError as error:
        sys.stderr.write(f"{error}\n")
        return 1

    def end(_number: int, _frame: FrameType | None) -> None:
        stand_in.stop = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        stand_in.run()
    except SourceUnavailable as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
