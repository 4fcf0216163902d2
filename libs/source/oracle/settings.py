"""How an Oracle database is reached and its redo mined: the same in a reader's settings and in a source's document."""

from typing import Annotated

import msgspec

from libs.config.load import Secret
from libs.types.bounds import bounds


class OracleDatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The database, by one of its services."""

    host: str
    port: Annotated[int, bounds(1, 65_535)] = 1521
    service_name: str
    """Of the database, or of the root where tables of a pluggable database are captured."""
    pdb_name: str | None = None
    """The pluggable database whose tables are captured, where the root's redo is mined."""
    user: str
    password: Secret = Secret("")
    connect_timeout_s: Annotated[float, bounds(0.1, 3_600)] = 10.0
    """How long to wait for a connection, in seconds."""


class MiningSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the redo is read by LogMiner."""

    window_redo_mb: Annotated[int, bounds(1, 1 << 20)] = 512
    """Redo that one query of LogMiner covers at first, in MB; it is scaled between 64 MB and 2 GB towards five seconds."""
    min_pause_s: Annotated[float, bounds(0, 3_600)] = 0.2
    """The least pause once all redo is read, in seconds. The pause is at least twice the time that the query took, so LogMiner
    takes at most a third of one core of the server."""
    session_max_s: Annotated[float, bounds(1, 86_400)] = 600.0
    """A session of LogMiner is renewed after so many seconds, and at each log switch (``log.mining.session.max.ms``)."""
    connection_max_s: Annotated[float, bounds(1, 604_800)] = 3_600.0
    """The connection that mines is renewed after so many seconds: its memory at the server grows."""
    archive_destinations: tuple[int, ...] = ()
    """DEST_ID of archive destinations, in order of preference (``archive.destination.name``); of other ones, every local one
    that is valid is read."""
    transaction_memory_mb: Annotated[int, bounds(1, 1 << 20)] = 64
    """Rows of open transactions that are kept in memory, in MB; the rest lies in files in ``spill_dir``."""
