"""Whether a server's log is the one that was read so far: its GTIDs alone do not show it.

``RESET BINARY LOGS AND GTIDS``, or a server restored under its old uuid, counts from 1 again. Once the new numbers cover the
old ones, a resume by GTID passes every new transaction over as if it had been read. So a position names its last transaction
with its commit time in microseconds, which no other transaction of that number has. The server is asked for it again.

Without GTIDs a place in another file of the same name would be taken for the old one's. A file begins with a description whose
header has the time at which it was made, and a dump has it first, wherever in the file it begins (seen on MySQL 9.7).
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import structlog

from libs.errors import PositionPurged
from libs.mysql import binlog_events as events
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.gtid import GtidSet, parse_gtid
from libs.mysql.packets import Packets
from libs.source.mysql.client import Connection, PacketReader, connect, hang_up, purged, raise_error_packet, start_dump
from services.binlog_reader.settings import BinlogReaderSettings

log = structlog.get_logger()

_LOOKED_FOR_S: Final = 30.0
"""How long the transaction is looked for: it stands before all that the position lacks."""
_HEARTBEATS_OF_SILENCE: Final = 4


def require_same_history(settings: BinlogReaderSettings, position: BinlogPosition) -> None:
    """Return where the server's log has the position's last transaction, or its file, as it was, or has it no more. Blocks.

    Raises:
        PositionPurged: the log has another transaction of that number, or another file of that name: another history.
        SourceUnavailable, AccessDenied.
    """
    if position.by_file:
        if position.file_made_at_s:
            _require_same_file(settings, position)
        return
    if not position.last_transaction or not position.last_committed_at_us:
        return
    connection = connect(settings.database)
    try:
        host, tag, number = parse_gtid(position.last_transaction)
        if purged(connection).contains(host, tag, number):
            return
        found_at_us = _committed_at_us(connection, settings, position)
    finally:
        hang_up(connection)
    if found_at_us and found_at_us != position.last_committed_at_us:
        raise PositionPurged(
            f"MySQL at {settings.database.host}:{settings.database.port} has another history than the one that was read: its "
            f"transaction {position.last_transaction} is another one than the log had before. The log was reset (RESET BINARY "
            "LOGS AND GTIDS) or the server restored, and its numbers began again: re-snapshot the source"
        )


def _require_same_file(settings: BinlogReaderSettings, position: BinlogPosition) -> None:
    connection = connect(settings.database)
    try:
        made_at_s = _file_made_at_s(connection, settings, position)
    finally:
        hang_up(connection)
    if made_at_s != position.file_made_at_s:
        raise PositionPurged(
            f"MySQL at {settings.database.host}:{settings.database.port} has another history than the one that was read: its "
            f"{position.file} is another file than the log had before. The log was reset (RESET BINARY LOGS AND GTIDS), the "
            "server restored, or another one answers: re-snapshot the source"
        )


def _file_made_at_s(connection: Connection, settings: BinlogReaderSettings, position: BinlogPosition) -> int:
    for event in _events(_dump(connection, settings, position, also_done=GtidSet())):
        if event[events.KIND_OFFSET] == events.FORMAT_DESCRIPTION:
            return int(events.read_header(event, 0)[0])
    raise AssertionError("a log's events do not end")


def _events(reader: PacketReader) -> Iterator[bytes]:
    """The events of a log, without end. Those of a packet that was too large to be kept in memory are passed over.

    Raises:
        as ``raise_error_packet``: the server ends the log with an error.
    """
    while True:
        packets, _ = reader.receive()
        if not isinstance(packets, Packets):
            packets.close()
            continue
        for nth in range(len(packets)):
            place, end = packets[nth]
            raise_error_packet(packets.data, place, end)
            yield packets.data[place + 1 : end]  # after an OK byte


def _dump(
    connection: Connection, settings: BinlogReaderSettings, position: BinlogPosition, *, also_done: GtidSet
) -> PacketReader:
    return start_dump(
        connection,
        position,
        also_done=also_done,
        replica_server_id=settings.replica_server_id,
        heartbeat_s=settings.database.heartbeat_s,
        spill_dir=Path(settings.spill_dir),
    )


def _committed_at_us(connection: Connection, settings: BinlogReaderSettings, position: BinlogPosition) -> int:
    """When the server's transaction of that number was committed; 0: it did not send it, or does not say."""
    before = GtidSet.parse(position.gtid_set).subtract(GtidSet.parse(position.last_transaction))
    begins = msgspec.structs.replace(position, gtid_set=str(before))
    ends_s = time.monotonic() + _LOOKED_FOR_S
    heartbeats = 0
    for event in _events(_dump(connection, settings, begins, also_done=purged(connection))):
        kind, body = event[events.KIND_OFFSET], event[events.HEADER_BYTES :]
        if kind in (events.HEARTBEAT, events.HEARTBEAT_V2):
            heartbeats += 1  # one stands for skipped events before the transaction
        elif kind in (events.GTID, events.GTID_TAGGED):
            found = events.parse_gtid(body) if kind == events.GTID else events.parse_gtid_tagged(body)
            if str(found) == position.last_transaction:
                return found.committed_at_us
        if time.monotonic() >= ends_s or heartbeats >= _HEARTBEATS_OF_SILENCE:
            break
    log.info("last_transaction_not_sent", transaction=position.last_transaction)
    return 0
