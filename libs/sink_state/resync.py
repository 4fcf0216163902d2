"""A resync: the request to a tenant's sink, and its result.

``headwater resync`` writes a ``ResyncRequest`` into ``names.resyncs_topic`` when a copy of the source's rows is in the table's
own topic; of a log at once. The sink reads it in its stream, and writes the result to
``<state_dir>/resyncs/<tenant>.json``.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec


class ResyncRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Build a table again from its topic; a record."""

    id: str
    topic: str
    """The table's."""
    from_offsets: Mapping[int, int]
    """By Kafka partition: from here on the topic has the whole table, by snapshot rows and the changes committed since. Of a
    partition that is not named, from its first event; so of a log's."""
    to_offsets: Mapping[int, int]
    """By Kafka partition: after the last of those snapshot rows; of a log where the topic ended. The sink has been there when
    it is asked."""


class ResyncAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request."""

    topic: str
    query_id: str
    batch_id: int
    """The micro-batch that met it."""
    at_us: int
    """Microseconds since 1970."""
    is_done: bool = False
    """The table was swapped: it holds the topic's rows."""
    events: int = 0
    """Of the topic, that it was built from."""
    refused_because: str = ""
    """Not empty: the table is as it was, and stays so; ends with the remedy."""
    failures: int = 0
    """How often the building failed, for a reason that may pass."""


class TenantResyncs(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content."""

    tenant: str
    answers: Mapping[str, ResyncAnswer] = {}
    """By the request's id; the newest ones."""


def resyncs_path(state_dir: Path, tenant: str) -> Path:
    """The file of one tenant."""
    return state_dir / "resyncs" / f"{tenant}.json"


def encode_resync_request(request: ResyncRequest) -> bytes:
    """The record's value."""
    return _encoder.encode(request)


def decode_resync_request(value: bytes) -> ResyncRequest:
    """The record that ``encode_resync_request`` wrote. Raises msgspec.DecodeError for anything else."""
    return _request_decoder.decode(value)


def encode_resyncs(resyncs: TenantResyncs) -> bytes:
    """The file's content."""
    return _encoder.encode(resyncs)


def decode_resyncs(content: bytes) -> TenantResyncs:
    """Decode the bytes of ``encode_resyncs``. Raises msgspec.DecodeError for others."""
    return _decoder.decode(content)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(TenantResyncs)
_request_decoder = msgspec.json.Decoder(ResyncRequest)
