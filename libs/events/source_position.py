"""Where in its source's log an event stands, by its ``source`` block: a GTID, a VGTID, a file and a place in it.

Opaque to its readers: a position names a place for people and for the source's own tools, and is compared by nobody.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

_MEMBERS: Final = ("gtid", "file", "pos", "vgtid", "scn", "commit_scn", "sequence")
"""By which Debezium's connectors name a position: MySQL's, Vitess', Oracle's, and the sequence of a DTS subscription."""


class SourcePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place in one of a source's logs."""

    source_partition: str
    """The shards that a VGTID names, joined by ``,``; empty where the event does not name its log."""
    position: Mapping[str, str | int]
    """The members of the source block that say where, by their names."""


class _Payload(msgspec.Struct):
    source: dict[str, Any] = msgspec.field(default_factory=dict)


class _Event(msgspec.Struct):
    source: dict[str, Any] | None = None
    payload: _Payload | None = None


class _ShardGtid(msgspec.Struct):
    shard: str = ""


_event_decoder = msgspec.json.Decoder(_Event)
_vgtid_decoder = msgspec.json.Decoder(list[_ShardGtid])


def source_place(value: bytes) -> SourcePlace | None:
    """Where the event of a record's ``value`` stands, with or without its Connect schema; None: it does not say, as with
    ``source.vgtid`` removed.

    Raises:
        msgspec.DecodeError: ``value`` is no event.
    """
    event = _event_decoder.decode(value)
    source = (event.source if event.payload is None else event.payload.source) or {}
    found = {name: source[name] for name in _MEMBERS if source.get(name) is not None}
    position = {name: each if isinstance(each, int) else str(each) for name, each in found.items()}
    return SourcePlace(source_partition=_shards(position.get("vgtid")), position=position) if position else None


def _shards(vgtid: str | int | None) -> str:
    try:
        return ",".join(sorted(each.shard for each in _vgtid_decoder.decode(str(vgtid)))) if vgtid else ""
    except msgspec.DecodeError:
        return ""
