"""Where a source's log stands: positions and the partitions they belong to."""

import msgspec


class SourcePartition(msgspec.Struct, frozen=True, kw_only=True):
    """One independently ordered log of a source: a server, a shard, a redo thread."""

    source: str
    """Name of the source; also the ``topic.prefix`` of its events."""
    name: str

    def __str__(self) -> str:
        return f"{self.source}/{self.name}"


class SourcePosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where to resume in a source's log; opaque outside the reader that minted it.

    There is no ``<``: GTID sets and VGTIDs are only partially ordered. Events are ordered by ``EventOrder``.
    """

    source_kind: str
    token: bytes
