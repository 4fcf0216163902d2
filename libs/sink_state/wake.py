"""A record that has a tenant's sink begin a micro-batch though nothing is new: of ``names.wakes_topic``.

The sink writes one when a parked table is due, ``headwater retry`` one that names tables which are to be tried though they are
not. Nothing of it is kept beside the topic: a batch that comes again has the same records.
"""

import msgspec


class Wake(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The batch's additional work."""

    retried_topics: tuple[str, ...] = ()
    """Of tables: those that are parked are tried with this batch, whether they are due or not."""


def encode_wake(wake: Wake) -> bytes:
    """The record's value."""
    return _encoder.encode(wake)


def decode_wake(value: bytes) -> Wake:
    """The record that ``encode_wake`` wrote. Raises msgspec.DecodeError for anything else."""
    return _decoder.decode(value)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Wake)
