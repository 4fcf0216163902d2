"""How an Oracle database is reached and its redo mined: the same in a reader's settings and in a source's document."""

import enum
from typing import Annotated

import msgspec

from libs.config.load import Secret
from libs.source.failure_policy import FailureHandling
from libs.source.key_columns import KeyColumns
from libs.source.snapshot_mode import SnapshotMode
from libs.source.unseen_policy import TellingPolicy
from libs.types.bounds import bounds
from libs.types.value_modes import OracleValueModes


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

    @property
    def database_name(self) -> str:
        """The database of the events' ``source`` blocks: the pluggable one, where there is one."""
        return self.pdb_name or self.service_name


class NameFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Names that count, without regard to case: those of ``include``, or all where it is empty, but none of ``exclude``."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Whether a name counts; no name is the empty one."""
        folded = name.upper()
        is_included = not self.include or folded in map(str.upper, self.include)
        return is_included and folded not in map(str.upper, self.exclude)


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
    archive_destinations: tuple[Annotated[int, bounds(1, 31)], ...] = ()
    """DEST_ID of archive destinations, in order of preference (``archive.destination.name``); of other ones, every local one
    that is valid is read."""
    users: NameFilter = NameFilter()
    """Transactions of other database users are passed over whole (``log.mining.username.include.list`` and
    ``.exclude.list``). Their START says whose they are; one without a START in the log is delivered."""
    client_ids: NameFilter = NameFilter()
    """As ``users``, by the client identifier of the session (``log.mining.clientid.include.list`` and ``.exclude.list``)."""
    transaction_memory_mb: Annotated[int, bounds(1, 1 << 20)] = 64
    """Rows of open transactions that are kept in memory, in MB; the rest lies in files in ``spill_dir``."""

    @property
    def passes_over(self) -> bool:
        """Some transactions are passed over by their START."""
        return NameFilter() != self.users or NameFilter() != self.client_ids


class OracleSnapshotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the captured tables' rows are copied, all of them AS OF one SCN, without a lock."""

    mode: SnapshotMode = SnapshotMode.INITIAL
    range_mb: Annotated[int, bounds(1, 1 << 20)] = 64
    """About so much of a table's storage is read by one SELECT, in MB; a copy that breaks off goes on after the last range."""
    chunk_rows: Annotated[int, bounds(1, 10_000_000)] = 20_000
    """Rows read by one SELECT of a table that is read along its key: an index-organized one."""
    incremental_chunk_rows: Annotated[int, bounds(1, 1_000_000)] = 2_000
    """Rows of one chunk of an incremental snapshot."""
    select_overrides: dict[str, str] = {}
    """An SQL condition by table (``SCHEMA.TABLE``): the initial copy reads the rows that meet it, instead of all
    (``snapshot.select.statement.overrides``)."""


class LackingValues(enum.Enum):
    """What becomes of a value that the log lacks, such as a LOB that an UPDATE left alone."""

    READ_AGAIN = "read_again"
    """It is read at the source, as of the transaction's commit. Where undo no longer has it,
    ``values.unavailable_placeholder`` stands for it; without one the row fails by name (``failure_handling``)."""
    UNAVAILABLE = "unavailable"
    """The source is not asked (``lob.enabled=false``): ``values.unavailable_placeholder`` stands for it, or the row fails."""


class OracleSourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One Oracle database, and how its changes become events: the same in a reader's settings and in a source's document."""

    database: OracleDatabaseSettings
    include_tables: tuple[str, ...] = (".*",)
    """Regular expressions; a table is captured when one matches its whole ``SCHEMA.TABLE``, in the case that Oracle has."""
    exclude_tables: tuple[str, ...] = ()
    mining: MiningSettings = MiningSettings()
    snapshot: OracleSnapshotSettings = OracleSnapshotSettings()
    signal_table: str | None = None
    """``SCHEMA.TABLE`` of three columns (id, type, data): a row inserted into it is a signal (``signal.data.collection``).
    Signals come by ``headwater.signals`` too, which needs no table at the source."""
    values: OracleValueModes = OracleValueModes()
    """Which of Debezium's forms times, decimals, intervals and bytes take."""
    lacking_values: LackingValues = LackingValues.READ_AGAIN
    """Treatment of a value that the log lacks: read_again, unavailable."""
    key_columns: tuple[KeyColumns, ...] = ()
    """Keys other than the tables' own (``message.key.columns``); the first that names a table counts."""
    failure_handling: FailureHandling = FailureHandling.DEAD_LETTER
    """Treatment of a row that cannot be decoded: fail, warn, skip, dead-letter. By default one row stops no other."""
    on_unseen_change: tuple[TellingPolicy, ...] = ()
    """The action, by table, after a statement that changed rows without an event: warn or halt; no rule: warn."""
    transaction_metadata: bool = False
    """Fill the ``transaction`` block of each event and publish BEGIN and END (``provide.transaction.metadata``)."""
    heartbeat_interval_s: Annotated[float, bounds(0, 86_400)] = 0.0
    """How often, in seconds, a record goes to ``__debezium-heartbeat.<source>`` when nothing that is captured changes
    (``heartbeat.interval.ms``); 0: never. The checkpoint moves without it too."""
