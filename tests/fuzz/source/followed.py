"""A kind of source as the fuzzer follows it: the reader's own code, opened in this process."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, cast

from libs.config.connections import GrpcClientSettings
from libs.events.dead_letter import decode_undecoded_row
from libs.mysql.gtid import GtidSet
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.key_columns import KeyColumns
from libs.source.mysql.settings import DatabaseSettings, SnapshotSettings
from libs.source.port import ReadBatch, Source
from libs.types.position import SourcePosition
from libs.types.value_modes import ValueModes
from services.binlog_reader.position import BinlogPosition, decode_position
from services.binlog_reader.settings import BinlogReaderSettings
from services.binlog_reader.source import BinlogSource
from tests.conftest import MysqlServer
from tests.fuzz.source.program import DATABASES, Step

CORPUS: Final = Path(__file__).parent / "corpus"
UNUSED: Final = GrpcClientSettings(address="127.0.0.1:1")
SIGNALS: Final = "fz_signals.signals"
"""The signal table, which no statement of a program is about."""
CHUNK_ROWS: Final = 3
"""Of each kind of copy: tables of a few rows have several chunks."""
CAPTURED: Final = tuple(rf"{name}\..*" for name in DATABASES)
_REPLICA_SERVER_IDS: Final = itertools.count(50_001)


class Followed(Protocol):
    """One program's source. ``close`` it at the end."""

    name: str
    """As ``source`` of its settings."""

    def source(self, history: Any, values: ValueModes, key_columns: Sequence[KeyColumns]) -> Source:
        """The reader; one is opened after another."""
        ...

    def has_read(self, position: SourcePosition, transaction: str) -> bool:
        """Whether the transaction of that GTID stands before ``position``."""
        ...

    def reported(self, batch: ReadBatch) -> Iterator[tuple[str, str]]:
        """Each word of ``batch`` that reports a difference, after its table."""
        ...

    @property
    def quarantined(self) -> Mapping[str, str]:
        """Tables whose rows are passed over."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


def next_replica_server_id() -> int:
    """One that no other reader of this process has."""
    return next(_REPLICA_SERVER_IDS)


def database_settings(server: MysqlServer) -> DatabaseSettings:
    return DatabaseSettings(host=server.host, port=server.port, user="root")


def takes_all(_: Step) -> bool:
    """Every step may be carried out."""
    return True


class BinlogFollowed:
    """A MySQL server, by its log."""

    name = "fz"

    def __init__(self, server: MysqlServer) -> None:
        self._server = server
        self._replica_server_id = next_replica_server_id()
        self._position: BinlogPosition | None = None

    def source(self, history: Any, values: ValueModes, key_columns: Sequence[KeyColumns]) -> Source:
        settings = BinlogReaderSettings(
            source=self.name,
            database=database_settings(self._server),
            replica_server_id=self._replica_server_id,
            schema_history=UNUSED,
            checkpoint_committer=UNUSED,
            include_tables=(*CAPTURED, SIGNALS.replace(".", r"\.")),
            signal_table=SIGNALS,
            snapshot=SnapshotSettings(chunk_rows=CHUNK_ROWS, incremental_chunk_rows=CHUNK_ROWS),
            shadow_tables=(),
            values=values,
            key_columns=tuple(key_columns),
        )
        return BinlogSource(settings, cast(SchemaHistoryClient, history))

    def has_read(self, position: SourcePosition, transaction: str) -> bool:
        """A prepared transaction is the last one, and not in the position's set."""
        read = decode_position(position)
        return read.last_transaction == transaction or holds(read.gtid_set, transaction)

    def reported(self, batch: ReadBatch) -> Iterator[tuple[str, str]]:
        for letter in batch.dead_letters:
            row = decode_undecoded_row(letter)
            yield f"{row.database}.{row.table}", f"set aside: {row.reason}"
        if batch.resume is None:
            return
        before, position = self._position, decode_position(batch.resume.position)
        self._position = position
        for table, reason in position.quarantined.items():
            if before is None or before.quarantined.get(table) != reason:
                yield table, f"quarantined: {reason}"
        for table, reason in position.unseen.items():
            if before is None or before.unseen.get(table) != reason:
                yield table, f"rows changed unseen: {reason}"

    @property
    def quarantined(self) -> Mapping[str, str]:
        return self._position.quarantined if self._position is not None else {}

    def close(self) -> None:
        pass


def holds(gtid_set: str, transaction: str) -> bool:
    """Whether the set has it."""
    return not GtidSet.parse(transaction).subtract(GtidSet.parse(gtid_set))
