"""Tencent DTS as the fuzzer follows it: the stand-in's encoder on a server's log, messages in memory, the decoder's own code.

Messages are made when the decoder asks for them, and kept: a decoder that begins again reads on where its checkpoint says.
"""

import asyncio
import re
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

from libs.errors import HeadwaterError
from libs.events.batch import BatchIdentity
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.gtid import GtidSet
from libs.mysql.packets import Packets
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.failure_policy import FailureHandling
from libs.source.kept_faults import raise_again
from libs.source.key_columns import KeyColumns
from libs.source.mysql.client import connect, hang_up, query, start_dump
from libs.source.port import ReadBatch, Source
from libs.stand_ins.dts.producer import BinlogEncoder, Merger
from libs.telemetry.faults import ROWS_CHANGED_UNSEEN, lasting_faults
from libs.types.checkpoint import Checkpoint
from libs.types.position import SourcePartition, SourcePosition
from libs.types.value_modes import ValueModes
from services.dts_decoder.assembly import KafkaMessage
from services.dts_decoder.client import Received, SubscriptionClient
from services.dts_decoder.dead_letters import decode_letter
from services.dts_decoder.position import decode_position
from services.dts_decoder.settings import DtsDecoderSettings, SubscriptionSettings
from services.dts_decoder.source import DtsChangeLog
from tests.conftest import MysqlServer
from tests.fuzz.source.followed import CAPTURED, UNUSED, database_settings, holds, next_replica_server_id
from tests.fuzz.source.program import COPY, Step

_TOPIC: Final = "topic-subs-fz"
_MESSAGE_BYTES: Final = 700
"""Of one message: so few that many transactions come in parts, and others merged."""
_HEARTBEAT_S: Final = 0.1
_NOT_OF_DTS: Final = re.compile(
    r"binlog_row_image\s*=\s*'?(?:MINIMAL|NOBLOB)|binlog_row_value_options\s*=\s*'PARTIAL_JSON|"
    r"binlog_transaction_compression\s*=\s*1|"
    r"CREATE TEMPORARY|sql_mode|character_set|collation|explicit_defaults|SESSION (?:timestamp|default_storage)",
    re.IGNORECASE,
)


def takes(step: Step) -> bool:
    """DTS asks for whole row images, and does not say the settings of a statement's session: the decoder has the server's.

    Nor does it say that a table was made LIKE a temporary one, whose charset the log lacks. The stand-in follows neither
    compressed nor XA transactions.
    """
    return step.session != "x" and step.text != COPY and not _NOT_OF_DTS.search(step.text)


class DtsFollowed:
    """A subscription of a MySQL server."""

    name = "fz-dts"
    quarantined: Mapping[str, str] = {}

    def __init__(self, server: MysqlServer) -> None:
        self._server = server
        self._topic: _Topic | None = None
        self._said: dict[str, str] = {}
        raise_again(self.name, None)  # ends the faults of the program before

    def source(self, history: Any, values: ValueModes, key_columns: Sequence[KeyColumns]) -> Source:
        assert not key_columns, "the decoder has no such setting"
        if self._topic is None:
            self._topic = _Topic(self._server)
        settings = DtsDecoderSettings(
            source=self.name,
            subscription=SubscriptionSettings(bootstrap_servers="127.0.0.1:1", topic=_TOPIC, group_id="fz"),
            database=database_settings(self._server),
            schema_history=UNUSED,
            checkpoint_committer=UNUSED,
            include_tables=CAPTURED,
            values=values,
            failure_handling=FailureHandling.DEAD_LETTER,
        )
        return _SourceInMemory(settings, history, self._topic)

    def has_read(self, position: SourcePosition, transaction: str) -> bool:
        return holds(decode_position(position).gtid_set, transaction)

    def reported(self, batch: ReadBatch) -> Iterator[tuple[str, str]]:
        for letter in batch.dead_letters:
            reason = decode_letter(letter).reason
            yield reason.partition(": ")[0], f"set aside: {reason}"
        for fault in lasting_faults():
            if fault.scope.source != self.name or fault.id != ROWS_CHANGED_UNSEEN.id:
                continue
            if self._said.get(fault.scope.table) != fault.happened:
                self._said[fault.scope.table] = fault.happened
                yield fault.scope.table, f"rows changed unseen: {fault.happened}"

    def close(self) -> None:
        if self._topic is not None:
            self._topic.close()


class _Topic:
    """Every message so far, and the server's log from which later ones are read."""

    def __init__(self, server: MysqlServer) -> None:
        self.messages: list[KafkaMessage] = []
        self._lock = threading.Lock()
        self._asked = connect(database_settings(server))
        now = str(query(self._asked, "SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")
        self._encoder = BinlogEncoder(self._asked, now, asks_server=True)
        self._merger = Merger(_MESSAGE_BYTES, self._send)
        self._dump = connect(database_settings(server))
        self._log = start_dump(
            self._dump,
            BinlogPosition(gtid_set=now, file="", pos=4),
            also_done=GtidSet(),
            replica_server_id=next_replica_server_id(),
            heartbeat_s=_HEARTBEAT_S,
            spill_dir=Path(tempfile.gettempdir()),
        )

    def from_offset(self, offset: int) -> list[KafkaMessage]:
        """The messages from there on; where there is none, the log is read on for as long as a heartbeat takes."""
        with self._lock:
            if offset == len(self.messages):
                self._read_on()
            return self.messages[offset:]

    def _read_on(self) -> None:
        packets, _ = self._log.receive()
        assert isinstance(packets, Packets), "a compressed transaction"
        log = packets.behind_ok()
        assert len(log) == len(packets), "MySQL ended the log"
        for place, end in log:
            for entry in self._encoder.entries(log.data, place, end):
                self._merger.add(entry)
        self._merger.flush()

    def _send(self, value: bytes) -> None:
        offset = len(self.messages)
        self.messages.append(KafkaMessage(_TOPIC, 0, offset, b"%d" % (offset + 1), value))

    def close(self) -> None:
        with suppress(OSError, HeadwaterError):
            hang_up(self._dump)
        self._asked.close()


class _Client:
    """As ``SubscriptionClient``, of messages in memory."""

    def __init__(self, topic: _Topic) -> None:
        self._topic = topic
        self._offset = 0

    def ends(self) -> tuple[int, int]:
        return 0, len(self._topic.messages)

    def begin(self, offset: int) -> None:
        self._offset = offset

    def receive(self, _timeout_s: float) -> Received:
        messages = self._topic.from_offset(self._offset)
        self._offset += len(messages)
        return Received(messages, time.time_ns() // 1_000_000, more_waits=False)

    def close(self) -> None:
        pass


class _SourceInMemory:
    """``DtsSource`` with ``_Client`` for the subscription's Kafka."""

    def __init__(self, settings: DtsDecoderSettings, history: Any, topic: _Topic) -> None:
        self._settings = settings
        self._history = cast(SchemaHistoryClient, history)
        self._topic = topic
        self.partition = SourcePartition(source=settings.source, name="0")

    @asynccontextmanager
    async def open(self, resume_from: Checkpoint | None, identity: BatchIdentity) -> AsyncIterator[DtsChangeLog]:
        client = cast(SubscriptionClient, _Client(self._topic))
        change_log = DtsChangeLog(self._settings, self._history, client, resume_from, identity, set(), None)
        try:
            yield change_log
        finally:
            await asyncio.shield(asyncio.to_thread(change_log.close))
