"""What could not be handled and was set aside, with where it stood and why.

DeadLetter: an event that could not be delivered to a tenant. The router writes it to the tenant's dead-letter topic in the same
Kafka transaction as the events around it. With the changes topic's coordinates the event can be replayed as long as
that topic holds it.

UndecodedRow: a row that a reader could not decode, so that no tenant's event was ever made of it. The reader writes it to
``headwater.dead-letter.<source>`` in the same Kafka transaction as the events around it; that topic is Headwater's own.
"""

import msgspec

from libs.types.order import EventOrder


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One record; its Kafka key is ``event_key``."""

    tenant: str
    topic: str
    """Where the event would have gone."""
    reason: str
    """What was wrong, in words for an operator; never a row's values."""
    source: str
    source_partition: str
    database: str
    table: str
    schema_version: int
    op: str
    order: EventOrder
    """Its place in the source's log."""
    transaction_id: str
    """As the source names it; empty for a snapshot row."""
    changes_topic: str
    changes_kafka_partition: int
    changes_offset: int
    """With the two before: the ChangeBatch that holds the event."""
    is_withheld: bool = False
    """The tenant has a filter, a mask or an excluded column on the table, or the event is too large for a record: the event
    stands only in the changes topic, since its bytes may hold what the tenant must not see."""
    event_key: bytes | None = None
    event_value: bytes | None = None
    """The event as the reader wrote it; base64 in the JSON."""


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
    """What was wrong, and the remedy, in words for an operator; never a row's values."""
    transaction_id: str
    order: EventOrder
    """The place in the source's log that the row's event would have had."""
    file: str
    """Of the log; of Vitess, whose place is the transaction: the shard."""
    position: int
    """Of the rows event in the file; of Vitess 0."""
    row: int
    """Number of the row in its event; of Vitess in what was decoded at once."""
    images: bytes
    """The row as the log holds it, of Vitess a RowChange; base64 in the JSON."""


_row_decoder = msgspec.json.Decoder(UndecodedRow)


def encode_undecoded_row(row: UndecodedRow) -> bytes:
    """The record's value."""
    return _encoder.encode(row)


def decode_undecoded_row(value: bytes) -> UndecodedRow:
    """The record that ``encode_undecoded_row`` wrote. Raises msgspec.DecodeError for anything else."""
    return _row_decoder.decode(value)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(DeadLetter)


def encode_dead_letter(letter: DeadLetter) -> bytes:
    """The record's value."""
    return _encoder.encode(letter)


def decode_dead_letter(value: bytes) -> DeadLetter:
    """The record that ``encode_dead_letter`` wrote. Raises msgspec.DecodeError for anything else."""
    return _decoder.decode(value)
