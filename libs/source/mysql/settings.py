"""How a MySQL server is reached, copied and followed: the same in a reader's settings and in a source's document."""

import enum
from typing import Annotated

import msgspec

from libs.config.load import Secret
from libs.source.failure_policy import FailureHandling
from libs.source.key_columns import KeyColumns
from libs.source.snapshot_mode import SnapshotMode
from libs.source.unseen_policy import UnseenPolicy
from libs.types.bounds import bounds
from libs.types.value_modes import ValueModes


class TlsMode(enum.Enum):
    """How a connection to MySQL is encrypted; the words are those of MySQL's own clients (``--ssl-mode``)."""

    DISABLED = "disabled"
    """Not at all. A password then goes through RSA, by the server's public key."""
    PREFERRED = "preferred"
    """Where the server can, without a check of its identity."""
    REQUIRED = "required"
    """Always, without a check of the server's identity."""
    VERIFY_CA = "verify_ca"
    """Always, and the server's certificate is signed by ``tls_ca_file``."""
    VERIFY_IDENTITY = "verify_identity"
    """As VERIFY_CA, and it is the certificate of ``host``."""


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The MySQL server to follow: a primary, or a replica with ``log_replica_updates``."""

    host: str
    port: Annotated[int, bounds(1, 65_535)] = 3306
    failover_servers: tuple[Annotated[str, msgspec.Meta(pattern=r"^.+:\d+$")], ...] = ()
    """Other servers with the same data, ``host:port``, tried in this order when the first does not answer or lacks what was
    read already. They need GTIDs, and the same user."""
    user: str
    password: Secret = Secret("")
    connect_timeout_s: Annotated[float, bounds(0.1, 3_600)] = 10.0
    """How long to wait for a connection, in seconds."""
    heartbeat_s: Annotated[float, bounds(0.01, 3_600)] = 2.0
    """How often a silent server says that it lives, in seconds; three missed ones and the connection counts as lost."""
    tls_mode: TlsMode | None = None
    """None: ``verify_identity`` where there is a ``tls_ca_file``, else ``preferred``."""
    tls_ca_file: str | None = None
    """Certificate authority of the server (PEM); with ``verify_ca`` and ``verify_identity`` None means the system's."""
    tls_certificate_file: str | None = None
    """Our own certificate (PEM), for an account that is created with REQUIRE X509."""
    tls_key_file: str | None = None
    """The key to our certificate."""
    server_public_key_file: str | None = None
    """The server's RSA key (PEM; status Caching_sha2_password_rsa_public_key), by which a password goes to it without TLS.
    None: the server is asked for it, which trusts the network."""


class SnapshotLock(enum.Enum):
    """Whether commits are held back while the views of a copy open."""

    MINIMAL = "minimal"
    """For that moment, where the user may lock, and a lock is to be had within ``lock_wait_s``."""
    NONE = "none"
    """Never: rows committed in that moment may come twice, which does no harm where tables have keys. It needs GTIDs."""


class SnapshotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The initial copy of the captured tables."""

    mode: SnapshotMode = SnapshotMode.INITIAL
    chunk_rows: Annotated[int, bounds(1, 10_000_000)] = 20_000
    """Rows read by one SELECT. Larger is a little faster; they are published, and can be resumed, batch by batch."""
    incremental_chunk_rows: Annotated[int, bounds(1, 1_000_000)] = 2_000
    """Rows of one chunk of an incremental snapshot. The log stands still while it is read, and its rows stay in memory until
    the window closes: larger is faster, smaller keeps the latency of changes low."""
    lock: SnapshotLock = SnapshotLock.MINIMAL
    """Whether ``FLUSH TABLES WITH READ LOCK`` is asked for (``snapshot.locking.mode``)."""
    lock_wait_s: Annotated[int, bounds(1, 86_400)] = 2
    """How long to wait for it, in seconds: every writer of the server waits too, after a statement that runs on."""
    readers: Annotated[int, bounds(1, 64)] = 1
    """Processes that read tables and key ranges of the initial copy side by side, each with a connection of its own, and with
    about 80 MB; 1: the reader itself."""
    select_overrides: dict[str, str] = {}
    """The rows of a table (``database.table``) that the initial copy reads instead of all: an SQL condition
    (``deleted = 0``), or a SELECT whose rows have the table's columns (``snapshot.select.statement.overrides``)."""
    max_replica_lag_s: Annotated[float | None, bounds(0, 31_536_000)] = None
    """While the source, being a replica, or one of ``lag_replicas`` is further behind than this, no chunk is read; seconds."""
    lag_replicas: tuple[DatabaseSettings, ...] = ()
    """Replicas of the source that a snapshot must not hold up."""


class MysqlSourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One MySQL server, and how its changes become events: the same in a reader's settings and in a source's document."""

    database: DatabaseSettings
    include_tables: tuple[str, ...] = (".*",)
    """Regular expressions; a table is captured when one matches its whole ``database.table``."""
    exclude_tables: tuple[str, ...] = ()
    gtid_source_includes: tuple[str, ...] = ()
    """Regular expressions for server uuids; when there are any, only rows of transactions that such a server numbered are
    published (``gtid.source.includes``). DDL counts wherever it came from."""
    gtid_source_excludes: tuple[str, ...] = ()
    """Regular expressions for server uuids whose transactions' rows are not published (``gtid.source.excludes``)."""
    snapshot: SnapshotSettings = SnapshotSettings()
    signal_table: str | None = None
    """``database.table`` of three columns (id, type, data): a row inserted into it is a signal (``signal.data.collection``).
    It is captured as any other table, but that ``skipped_operations`` spares its new rows. Signals come by
    ``headwater.signals`` too, which needs no table at the source."""
    values: ValueModes = ValueModes()
    """Which of Debezium's forms times, decimals, unsigned BIGINTs and bytes take."""
    key_columns: tuple[KeyColumns, ...] = ()
    """Keys other than the tables' own (``message.key.columns``); the first that names a table counts."""
    failure_handling: FailureHandling = FailureHandling.DEAD_LETTER
    """Treatment of a row that cannot be decoded: fail, warn, skip, dead-letter. By default one row stops no other."""
    on_unseen_change: tuple[UnseenPolicy, ...] = ()
    """The action, by table, after a statement that changed rows without an event; no rule: warn."""
    transaction_metadata: bool = False
    """Fill the ``transaction`` block of each event and publish BEGIN and END (``provide.transaction.metadata``)."""
    heartbeat_interval_s: Annotated[float, bounds(0, 86_400)] = 0.0
    """How often, in seconds, the checkpoint is written and a record goes to ``__debezium-heartbeat.<source>`` when nothing that
    is captured changes (``heartbeat.interval.ms``); 0: never. It is no finer than ``database.heartbeat_s``."""
