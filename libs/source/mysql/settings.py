"""How a MySQL server is reached and copied: parts of every MySQL reader's settings."""

import enum
from typing import Annotated

import msgspec

from libs.config.load import Secret


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The MySQL server to follow: a primary, or a replica with ``log_replica_updates``."""

    host: str
    port: int = 3306
    failover_servers: tuple[Annotated[str, msgspec.Meta(pattern=r"^.+:\d+$")], ...] = ()
    """Other servers with the same data, ``host:port``, tried in this order when the first does not answer or lacks what was
    read already. They need GTIDs, and the same user."""
    user: str
    password: Secret = Secret("")
    connect_timeout_s: float = 10.0
    """How long to wait for a connection, in seconds."""
    heartbeat_s: float = 2.0
    """How often a silent server says that it lives, in seconds; three missed ones and the connection counts as lost."""
    tls_ca_file: str | None = None
    """Certificate authority of the server; with it the connection is TLS and the server's name is checked."""
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None


class SnapshotMode(enum.Enum):
    """What a reader does that finds no checkpoint."""

    INITIAL = "initial"
    """Copy the rows there are, then follow the log."""
    NO_DATA = "no_data"
    """Learn the tables' schemas, then follow the log from now."""


class SnapshotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The initial copy of the captured tables."""

    mode: SnapshotMode = SnapshotMode.INITIAL
    chunk_rows: int = 20_000
    """Rows read by one SELECT. Larger is a little faster; smaller repeats less after a crash and holds less memory."""
    incremental_chunk_rows: int = 2_000
    """Rows of one chunk of an incremental snapshot. The log stands still while it is read, and its rows stay in memory until
    the window closes: larger is faster, smaller keeps the latency of changes low."""
