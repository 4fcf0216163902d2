"""Dead letters: events that were set aside, with place and reason.

DeadLetter: an event that could not be delivered to a tenant. The router writes it to the tenant's dead-letter topic in the same
Kafka transaction as the events around it. With the changes topic's coordinates the event can be replayed as long as
that topic holds it. The sink writes one for each event that the tenant's warehouse refuses, and for those that wait after it;
a ReplayRequest asks it to take them up again.

UndecodedRow: a row that a reader could not decode, so that no tenant's event was ever made of it. The reader writes it to
``headwater.dead-letter.<source>`` in the same Kafka transaction as the events around it; that topic is Headwater's own.
"""

import enum

import msgspec

from libs.types.order import EventOrder


class SetAsideBy(enum.Enum):
    """The hop that could not deliver an event."""

    ROUTER = "router"
    SINK = "sink"


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One record; its Kafka key and headers are the event's.

    The router writes each once. The sink writes at least once: letters of one ``topic``, ``event_kafka_partition`` and
    ``event_offset`` are one, and the first of them counts.
    """

    tenant: str
    topic: str
    """Where the event would have gone, or, of the sink's, where it stands."""
    reason: str
    """The reason, for an operator; never a row's values."""
    set_aside_by: SetAsideBy = SetAsideBy.ROUTER
    source: str
    source_partition: str = ""
    """Empty: the sink does not know it."""
    database: str
    table: str
    schema_version: int
    op: str
    """Empty where the event does not name it."""
    order: EventOrder
    """Its place in the source's log."""
    transaction_id: str = ""
    """As the source names it; empty for a snapshot row, and where the sink wrote the letter."""
    changes_topic: str = ""
    """Empty where the sink wrote the letter."""
    changes_kafka_partition: int = -1
    changes_offset: int = -1
    """With the two before: the ChangeBatch that holds the event."""
    event_kafka_partition: int | None = None
    event_offset: int | None = None
    """With the one before and ``topic``: where the event stands; None where the router wrote the letter."""
    behind_offset: int | None = None
    """Nothing is wrong with the event: it waits after the one of its key that was refused for ``reason``, which stands at this
    offset. None: it was refused itself."""
    is_withheld: bool = False
    """The tenant has a filter, a mask or an excluded column on the table, or the event is too large for a record: the event
    stands only in the changes topic, because its bytes may hold values that the tenant must not see. Of the sink's: it is too
    large
    for a record, and stands only in ``topic``."""
    event_key: bytes | None = None
    event_value: bytes | None = None
    """The event as the reader wrote it; of the sink's as it stands in ``topic``; base64 in the JSON."""


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Asks a tenant's sink to take up the dead letters of parked keys again; a record of ``names.replays_topic``."""

    id: str
    topic: str
    """The table's."""
    keys: tuple[str, ...] = ()
    """As ``libs.sink_state.parked_keys`` has them; empty: all of the table."""
    leave_out_refused: bool = False
    """Give up the events that are refused again; those that wait after them are written."""


class UndecodedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One record."""

    source: str
    source_partition: str
    database: str
    table: str
    column: str
    """At which decoding failed."""
    schema_version: int
    reason: str
    """The reason and the remedy, for an operator; never a row's values."""
    transaction_id: str
    order: EventOrder
    """The place in the source's log that the row's event would have had."""
    file: str
    """Of the log; of Vitess, whose place is the transaction: the shard."""
    position: int
    """Of the rows event in the file; of Vitess 0."""
    row: int
    """Number of the row in its event; of Vitess in the part decoded at once."""
    images: bytes
    """The row as the log holds it, of Vitess a RowChange; of a snapshot of MySQL as its text protocol has it; base64 in the
    JSON."""
    is_snapshot: bool = False
    """The row was to be copied: its place is the snapshot's."""


_row_decoder = msgspec.json.Decoder(UndecodedRow)


def encode_undecoded_row(row: UndecodedRow) -> bytes:
    """The record's value."""
    return _encoder.encode(row)


def decode_undecoded_row(value: bytes) -> UndecodedRow:
    """The record that ``encode_undecoded_row`` wrote. Raises msgspec.DecodeError for anything else."""
    return _row_decoder.decode(value)


_request_decoder = msgspec.json.Decoder(ReplayRequest)


def encode_replay_request(request: ReplayRequest) -> bytes:
    """The record's value."""
    return _encoder.encode(request)


def decode_replay_request(value: bytes) -> ReplayRequest:
    """The record that ``encode_replay_request`` wrote. Raises msgspec.DecodeError for anything else."""
    return _request_decoder.decode(value)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(DeadLetter)


def encode_dead_letter(letter: DeadLetter) -> bytes:
    """The record's value."""
    return _encoder.encode(letter)


def decode_dead_letter(value: bytes) -> DeadLetter:
    """The record that ``encode_dead_letter`` wrote. Raises msgspec.DecodeError for anything else."""
    return _decoder.decode(value)
