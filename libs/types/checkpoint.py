"""Checkpoint: the durable resume point of one source partition."""

from typing import Final, NewType

import msgspec

from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition

FencingToken = NewType("FencingToken", int)
"""The right to advance a checkpoint; grows at each takeover and is never a sort key."""


class RangeProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A key range of a table whose copying has begun and not ended."""

    table: str
    """``database.table``."""
    last_key: bytes = b""
    """Where the last chunk ended, in the reader's own encoding; empty: the table's beginning."""
    until: bytes = b""
    """Where the range ends; empty: the table's end."""


class SnapshotProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an unfinished initial snapshot got."""

    finished_tables: tuple[str, ...] = ()
    current_table: str = ""
    last_key: bytes = b""
    """Last key copied of ``current_table``, in the reader's own encoding; empty: none yet, or ``ranges`` say it."""
    ranges: tuple[RangeProgress, ...] = ()
    """Of tables that are copied in several ranges at a time: the rest of begun ranges."""
    tables: int = 0
    """How many are copied in all; 0: not known, of a reader of an earlier release."""
    rows_copied: int = 0
    rows_estimated: int = 0


class TableCopy(msgspec.Struct, frozen=True, kw_only=True):
    """One table of an incremental snapshot, and how far it got."""

    table: str
    """``database.table``."""
    condition: str = ""
    """SQL: only rows that meet it."""
    surrogate_key: str = ""
    """The column along which it is read; empty: its key."""
    signal_id: str = ""
    """Of the signal that asked for it."""
    last_key: bytes = b""
    """Where the last chunk delivered ended, in the reader's own encoding; empty: none was yet."""
    maximum_key: bytes = b""
    """Where the table ended when its reading began: rows after it come by the log alone. Empty: not begun."""
    rows_read: int = 0
    rows_estimated: int = 0
    chunks_read: int = 0
    rows_arrived: int = 0
    """Rows that the log brought into the table since its reading began; a copy that is whole lacks no others."""
    for_tenants: tuple[str, ...] = ()
    """Only these tenants get the rows; empty: everybody who sees the table."""


class FinishedCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A table that an incremental snapshot has read to its end: all chunks are published.

    Of a table that was stopped, or that could not be read, there is none.
    """

    table: str
    """``database.table``."""
    signal_id: str
    condition: str = ""
    """SQL: only rows that meet it were read; empty: all."""
    rows_read: int = 0
    for_tenants: tuple[str, ...] = ()
    """Only these tenants got the rows; empty: everybody who sees the table."""


class IncrementalSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Pending requests of signals; tables in the order in which they are read."""

    tables: tuple[TableCopy, ...] = ()
    is_paused: bool = False
    signals_offset: int | None = None
    """The next record of ``headwater.signals`` to act upon; None: the reader has not seen the topic yet."""
    signals_topic_id: str = ""
    """Kafka's id of the topic that ``signals_offset`` is of; empty: not known, of an earlier release or an old Kafka."""
    finished: tuple[FinishedCopy, ...] = ()
    """The newest tables that were read to their end, the last one last."""


NO_INCREMENTAL: Final = IncrementalSnapshot()


class KeptFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault about rows of a source, which lasts longer than the process that raised it."""

    id: str
    """Of the catalogue: ``rows_changed_unseen``."""
    table: str
    """``database.table``; empty: the whole source."""
    happened: str
    since_us: int
    """Microseconds since 1970."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Written in the same Kafka transaction as the events that it covers; never inside a transaction's events."""

    partition: SourcePartition
    position: SourcePosition
    order: EventOrder
    fencing_token: FencingToken
    committed_at_us: int
    """Commit time, at the source, of the last transaction covered; microseconds since 1970."""
    published_at_us: int
    rows_published: int = 0
    """Row events published of this source partition since it was first read."""
    snapshot: SnapshotProgress | None = None
    """Present while the initial snapshot is unfinished."""
    incremental: IncrementalSnapshot = NO_INCREMENTAL
    starts_over: bool = False
    """A person asked for it: the next reader copies all rows, and its events have a new epoch."""
    changes_topic_id: str = ""
    """Kafka's id of the changes topic that holds the events; empty: not known, of an earlier release or an old Kafka."""
    faults: tuple[KeptFault, ...] = ()
    """Those of the reader that outlive it."""
