"""Open transactions of captured tables, kept as LogMiner printed them until they end.

A row is kept as bytes in its transaction's buffer; nothing is decoded, because a transaction may be rolled back. Beyond
``memory_bytes`` the largest buffers go to files without a name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from libs.errors import PipelineHalted
from libs.oracle.log_rows import LARGE_VALUE_BEGINS, LARGE_VALUE_PARTS, NO_ROW_ID, ROW_ENDS
from libs.source.spill import out_of_room_named, spill_file
from libs.types.table import TableId
from services.logminer_reader.mined_rows import MinedRow

_SIZE_BYTES: Final = 4
_LARGE_VALUES: Final = LARGE_VALUE_BEGINS | LARGE_VALUE_PARTS | {ROW_ENDS}
_UNKNOWN_SEQUENCE: Final = b"\xff\xff\xff\xff"
"""The end of an XID whose sequence number LogMiner does not know, because the window begins within the transaction."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class StoredRow(msgspec.Struct, array_like=True, frozen=True):
    """A row of an open transaction."""

    scn: int
    thread: int
    rs_id: str
    ssn: int
    operation: int
    is_undo: bool
    status: int
    object_id: int
    object_version: int
    row_id: str | None
    time_us: int
    """Microseconds since 1970, by the database server's clock."""
    sequence: int
    sql: str


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StoredRow)


@dataclass(slots=True)
class OpenTransaction:
    """Rows of captured tables that one transaction has changed so far."""

    xid: bytes
    first_scn: int
    """Of its first captured row."""
    first_time_us: int
    thread: int
    user: str
    rows: int = 0
    has_undo: bool = False
    """Some of its rows take others back."""
    has_pieces: bool = False
    """Some of its changes are several rows."""
    versions: set[tuple[int, int]] = field(default_factory=set)
    """Tables that it changes, each by its number and that of its version."""
    data: bytearray = field(default_factory=bytearray)
    file: BinaryIO | None = None
    """Earlier rows than those of ``data``."""
    text: list[str] = field(default_factory=list)
    """Pieces of a row whose last piece is still to come."""

    def stored(self) -> Iterator[StoredRow]:
        """Its rows in the order of the log. No row is added meanwhile."""
        if self.file is not None:
            self.file.seek(0)
            while size := self.file.read(_SIZE_BYTES):
                yield _decoder.decode(self.file.read(int.from_bytes(size, "big")))
        view, at = memoryview(self.data), 0
        while at < len(view):
            begin = at + _SIZE_BYTES
            at = begin + int.from_bytes(view[at:begin], "big")
            yield _decoder.decode(view[begin:at])

    def close(self) -> None:
        """Forget its rows."""
        self.data = bytearray()
        if self.file is not None:
            self.file.close()
            self.file = None


class OpenTransactions:
    """All that are open, the oldest first."""

    def __init__(
        self,
        spill_dir: Path | None,
        *,
        memory_bytes: int,
        whole_from_scn: int = 0,
        server_offset: timedelta = timedelta(),
        dropped: Iterable[str] = (),
    ) -> None:
        """``server_offset``: the database server's clock, less UTC. ``dropped``: see ``LogminerPosition.dropped``.

        ``whole_from_scn``: transactions that end before this SCN may lack rows, and are not delivered.
        """
        self._spill_dir = spill_dir
        self._memory_bytes = memory_bytes
        self._whole_from_scn = whole_from_scn
        self._server_offset = server_offset
        self._open: dict[bytes, OpenTransaction] = {}
        self.names: dict[int, TableId] = {}
        """Tables by the numbers that rows had beside their names."""
        self._in_memory_bytes = 0
        self._dropped: dict[bytes, int | None] = {bytes.fromhex(xid): None for xid in dropped}
        """SCN of the end of each; None: it is open."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def oldest(self) -> OpenTransaction | None:
        """By its first captured row; None: none is open."""
        return next(iter(self._open.values()), None)

    @property
    def in_memory_bytes(self) -> int:
        """Of rows that are not in files."""
        return self._in_memory_bytes

    def add(self, row: MinedRow) -> None:
        """Keep a row. A text in several rows becomes one.

        Raises:
            DiskFull: there is no room for a transaction that is larger than memory.
            PipelineHalted: it belongs to a transaction that cannot be found out.
        """
        if self._dropped and self._dropped_as(row.xid) is not None:
            return
        transaction = self._find(row.xid, row.scn) or self._begun(row)
        if row.goes_on:
            transaction.text.append(row.sql or "")
            return
        sql = row.sql or ""
        if transaction.text:
            sql = "".join((*transaction.text, sql))
            transaction.text.clear()
        data = _encoder.encode(
            StoredRow(
                scn=row.scn,
                thread=row.thread,
                rs_id=row.rs_id,
                ssn=row.ssn,
                operation=row.operation,
                is_undo=bool(row.is_undo),
                status=row.status,
                object_id=row.object_id,
                object_version=row.object_version,
                row_id=None if row.row_id == NO_ROW_ID else row.row_id,
                time_us=self.time_us(row.timestamp),
                sequence=row.sequence,
                sql=sql,
            )
        )
        if row.object_id not in self.names and row.owner and row.table:
            self.names[row.object_id] = TableId(database=row.owner, table=row.table)
        transaction.rows += 1
        transaction.versions.add((row.object_id, row.object_version))
        transaction.has_undo = transaction.has_undo or bool(row.is_undo)
        is_piece = row.operation in _LARGE_VALUES or row.row_id == NO_ROW_ID
        transaction.has_pieces = transaction.has_pieces or is_piece
        transaction.data += len(data).to_bytes(_SIZE_BYTES, "big")
        transaction.data += data
        self._in_memory_bytes += _SIZE_BYTES + len(data)
        if self._in_memory_bytes > self._memory_bytes:
            self._spill()

    def ended(self, xid: bytes, scn: int) -> OpenTransaction | None:
        """A transaction has no more rows; the caller closes it. None: it has no row of a captured table.

        Raises:
            PipelineHalted: it cannot be found out which one ended.
        """
        dropped = self._dropped_as(xid) if self._dropped else None
        if dropped is not None:
            self._dropped[dropped] = scn
            return None
        transaction = self._find(xid, scn)
        if transaction is not None:
            del self._open[transaction.xid]
            transaction.xid = transaction.xid if xid.endswith(_UNKNOWN_SEQUENCE) else xid
            self._in_memory_bytes -= len(transaction.data)
        return transaction

    def drop(self, xid: bytes) -> OpenTransaction | None:
        """Pass an open transaction over, with all rows that it is still to write; None: it is not open."""
        transaction = self._open.pop(xid, None)
        if transaction is None:
            return None
        self._in_memory_bytes -= len(transaction.data)
        transaction.close()
        self._dropped[xid] = None
        return transaction

    def dropped(self, done_scn: int) -> tuple[str, ...]:
        """See ``LogminerPosition.dropped``, of a position with this ``done_scn``; later positions have greater ones."""
        self._dropped = {xid: end for xid, end in self._dropped.items() if end is None or end >= done_scn}
        return tuple(sorted(xid.hex() for xid in self._dropped))

    def alike(self, spill_dir: Path | None) -> "OpenTransactions":
        """Another set, empty, with the same server's clock."""
        return OpenTransactions(spill_dir, memory_bytes=self._memory_bytes, server_offset=self._server_offset)

    def close(self) -> None:
        """Forget all."""
        for transaction in self._open.values():
            transaction.close()
        self._open.clear()
        self._in_memory_bytes = 0

    def time_us(self, timestamp: datetime | None) -> int:
        """Microseconds since 1970 of a time of the server's clock; 0 where the log has none."""
        if timestamp is None:
            return 0
        since = timestamp.replace(tzinfo=UTC) - self._server_offset - _EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds

    def _begun(self, row: MinedRow) -> OpenTransaction:
        time_us = self.time_us(row.timestamp)
        transaction = OpenTransaction(row.xid, row.scn, time_us, row.thread, row.user or "")
        self._open[row.xid] = transaction
        return transaction

    def _dropped_as(self, xid: bytes) -> bytes | None:
        """The transaction among those that are dropped; by its slot where the log does not say all of the id."""
        if not xid.endswith(_UNKNOWN_SEQUENCE):
            return xid if xid in self._dropped else None
        return next((each for each, end in self._dropped.items() if end is None and each[:4] == xid[:4]), None)

    def _find(self, xid: bytes, scn: int) -> OpenTransaction | None:
        """The open transaction of an XID, or of its undo segment and slot where it, or its first row, says no more."""
        found = self._open.get(xid)
        if found is None and not xid.endswith(_UNKNOWN_SEQUENCE):
            return self._open.get(xid[:4] + _UNKNOWN_SEQUENCE)
        if found is not None:
            return found
        in_slot = [each for each in self._open.values() if each.xid[:4] == xid[:4]]
        if len(in_slot) > 1 and scn >= self._whole_from_scn:
            raise PipelineHalted(
                f"a row at SCN {scn} has the incomplete transaction id {xid.hex()}, and {len(in_slot)} open transactions begin "
                "so: re-snapshot the source"
            )
        return in_slot[0] if in_slot else None

    def _spill(self) -> None:
        """Write the largest buffers to files until half of the memory is free."""
        by_size = sorted(self._open.values(), key=lambda each: len(each.data), reverse=True)
        for transaction in by_size:
            if self._in_memory_bytes <= self._memory_bytes // 2:
                return
            if transaction.file is None:
                transaction.file = spill_file(self._spill_dir)
            with out_of_room_named(self._spill_dir):
                transaction.file.write(transaction.data)
                transaction.file.flush()
            self._in_memory_bytes -= len(transaction.data)
            transaction.data = bytearray()
