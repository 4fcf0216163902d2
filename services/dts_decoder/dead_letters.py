"""Dead letters of the decoder: messages of DTS that nobody could read, as they came, each with its place and the reason.

They go to ``headwater.dead-letter.<source>`` in the Kafka transaction of the rows around them, so that each is there once.
"""

import msgspec

from services.dts_decoder.set_aside import SetAside


class UndecodedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One record."""

    topic: str
    partition: int
    offset: int
    """Of the subscription's topic; of a message in parts the first part's."""
    entry: int | None
    """Which of the message's entries; None: the Kafka message as a whole."""
    reason: str
    """In words for an operator; never a row's values."""
    envelope: bytes | None = None
    """The Kafka message (``Envelope``); base64 in the JSON."""
    entries: bytes | None = None
    """Or the entry by itself, with one row where only that could not be read (``Entries``)."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(UndecodedMessage)


def encode_message(topic: str, partition: int, offset: int, reason: str, value: bytes) -> bytes:
    """The letter of a Kafka message."""
    return _encoder.encode(
        UndecodedMessage(topic=topic, partition=partition, offset=offset, entry=None, reason=reason, envelope=value)
    )


def encode_set_aside(topic: str, partition: int, found: SetAside) -> bytes:
    """The letter of an entry or a row."""
    return _encoder.encode(
        UndecodedMessage(
            topic=topic,
            partition=partition,
            offset=found.offset,
            entry=found.entry,
            reason=found.reason,
            entries=found.entries,
        )
    )


def decode_letter(value: bytes) -> UndecodedMessage:
    """A letter that the decoder wrote. Raises msgspec.DecodeError for anything else."""
    return _decoder.decode(value)
