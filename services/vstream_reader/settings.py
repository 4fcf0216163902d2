"""Settings of one VStream reader: one keyspace of a Vitess cluster, or one task's part of its shards."""

import difflib
import enum
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from libs.config.connections import (
    GrpcClientSettings,
    GrpcServerSettings,
    KafkaSettings,
    TelemetrySettings,
)
from libs.config.load import Secret
from libs.source.failure_handling import FailureHandling
from libs.source.key_columns import KeyColumns
from libs.types.value_modes import VitessValueModes
from services.vstream_reader.vgtid import parse_vgtid


class VtgateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The vtgate to read from."""

    host: str
    port: int = 15_991
    user: str | None = None
    """With the password: static authentication, as vtgate's ``--grpc_auth_mode static`` asks for."""
    password: Secret = Secret("")
    tls_ca_file: str | None = None
    """Certificate authority of vtgate: with it the connection is TLS."""
    tls_certificate_file: str | None = None
    """With the key: mTLS."""
    tls_key_file: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Sent with every call (``vitess.grpc.headers``)."""
    max_message_bytes: int = 64 << 20
    """The largest answer that is taken (``vitess.grpc.max_inbound_message_size``). A row is never cut, so this bounds the
    largest row."""
    keepalive_s: float = 20.0
    """How often a silent connection is tried, in seconds (``vitess.keepalive.interval.ms``)."""
    timeout_s: float = 10.0
    """How long vtgate may take to answer a call that is no stream, in seconds."""


class TabletType(enum.Enum):
    """Which MySQL of a shard is read (``vitess.tablet.type``)."""

    PRIMARY = "primary"
    """Also named MASTER."""
    REPLICA = "replica"
    RDONLY = "rdonly"


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What vtgate is asked for (``vtgate.VStreamFlags``)."""

    tablet_type: TabletType = TabletType.PRIMARY
    cells: tuple[str, ...] = ()
    """Where tablets may be; empty: vtgate's own cell."""
    cell_preference: str = ""
    """``preferlocalwithalias`` or ``onlyspecified``; empty: vtgate's own choice."""
    tablet_order: str = ""
    """``any`` or ``inorder``."""
    heartbeat_interval_s: int = 2
    """After how many silent seconds vtgate says that it lives, 1 or more; three missed ones and the stream counts as lost."""
    stop_on_reshard: bool = False
    """Let vtgate end the stream at a reshard; the reader then goes on with the new shards by itself. Either way each old
    shard is read to its end before the new ones begin."""
    include_reshard_journal_events: bool = False
    """Have reshards announced: they are logged and counted."""
    stream_keyspace_heartbeats: bool = False
    """Have the rows of the tablets' heartbeat table sent (``vitess.stream.keyspace.heartbeats``): add
    ``<keyspace>.heartbeat`` to ``include_tables`` to have them delivered."""
    minimize_skew: bool = False
    """Have vtgate hold back shards that are ahead of others."""
    exclude_keyspace_from_table_name: bool = False


class SnapshotMode(enum.Enum):
    """When tables are copied (``snapshot.mode``)."""

    INITIAL = "initial"
    """When there is no checkpoint."""
    ALWAYS = "always"
    """At every start of the process."""
    WHEN_NEEDED = "when_needed"
    """When there is no checkpoint, or the log behind it is gone."""
    NO_DATA = "no_data"
    """Never: follow the log from now."""
    NEVER = "never"
    """The same; Debezium's older name."""


class SnapshotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of existing rows, which vtgate does (VStream copy)."""

    mode: SnapshotMode = SnapshotMode.INITIAL
    include_tables: tuple[str, ...] = (".*",)
    """Regular expressions over ``keyspace.table`` (``snapshot.include.collection.list``): of the captured tables, those
    whose rows are copied. The others are followed from where the copy begins."""


class TransactionMetadata(enum.Enum):
    """The ``transaction`` block of each event (``provide.transaction.metadata`` and its factory)."""

    OFF = "off"
    ON = "on"
    ORDERED = "ordered"
    """With ``transaction_epoch`` and ``transaction_rank``."""


class EventSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of events."""

    transaction_metadata: TransactionMetadata = TransactionMetadata.OFF
    filter_transaction_topic: bool = False
    """With transaction metadata: publish no BEGIN and END (``FilterTransactionTopicRecords``)."""
    use_local_vgtid: bool = False
    """``source.vgtid`` names the event's own shard only (``UseLocalVgtid``)."""
    remove_fields: tuple[str, ...] = ()
    """Members left out of every event (``RemoveField``); see ``REMOVABLE_FIELDS``."""


REMOVABLE_FIELDS: Final = (
    "source.db", "source.sequence", "source.ts_us", "source.ts_ns", "source.vgtid", "transaction.id",
    "transaction.transaction_epoch", "transaction.transaction_rank", "ts_us", "ts_ns",
)  # fmt: skip
"""What ``remove_fields`` may name: the images, the operation, and what tells table and order stay."""


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One of several readers that share a keyspace's shards: dealt round-robin, sorted by name."""

    number: int
    """From 0."""
    of: int
    """How many there are (``tasks.max``)."""
    generation: int = 0
    """One more at each change of ``of`` (``vitess.offset.storage.task.key.gen``)."""
    previous_tasks: int = 1
    """How many there were in the generation before (``vitess.prev.num.tasks``). Generation 0 follows a reader without
    tasks."""


class VstreamReaderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one VStream reader is told."""

    source: str
    """Name of the source: ``topic.prefix`` of its events. Letters, digits, ``_`` and ``-``."""
    vtgate: VtgateSettings
    keyspace: str
    shards: tuple[str, ...] = ()
    """The shards to read (``vitess.shard``); empty: all, which survives a reshard."""
    start_vgtid: str = ""
    """Where to begin without a checkpoint, as a VGTID in JSON (``vitess.vgtid``); then nothing is copied. For one shard of
    ``shards`` also a GTID set alone (``vitess.gtid``)."""
    stream: StreamSettings = StreamSettings()
    include_tables: tuple[str, ...] = (".*",)
    """Regular expressions; a table is captured when one matches its whole ``keyspace.table``."""
    exclude_tables: tuple[str, ...] = ()
    snapshot: SnapshotSettings = SnapshotSettings()
    events: EventSettings = EventSettings()
    values: VitessValueModes = VitessValueModes()
    key_columns: tuple[KeyColumns, ...] = ()
    """Keys other than the tables' own (``message.key.columns``); the first that names a table counts."""
    tasks: TaskSettings | None = None
    failure_handling: FailureHandling = FailureHandling.FAIL
    """What becomes of a row that cannot be decoded: fail, warn, skip, dead-letter."""
    lease_s: float = 15.0
    """How long a dead reader's partition stays reserved, in seconds; renewed three times as often."""
    heartbeat_interval_s: float = 0.0
    """How often, in seconds, the checkpoint is written and a record goes to ``__debezium-heartbeat.<source>`` when nothing that
    is captured changes (``heartbeat.interval.ms``); 0: never."""
    spill_dir: str = tempfile.gettempdir()
    """A folder for transactions that do not fit into memory: it should hold the largest that the source ever writes."""
    kafka: KafkaSettings = KafkaSettings()
    schema_history: GrpcClientSettings
    checkpoint_committer: GrpcClientSettings
    grpc: GrpcServerSettings = GrpcServerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()


def mistakes_in(settings: VstreamReaderSettings) -> list[str]:
    """What no single field's type shows, place first; empty: all is well."""
    return [
        *_number_mistakes(settings),
        *_pattern_mistakes("include_tables", settings.include_tables),
        *_pattern_mistakes("exclude_tables", settings.exclude_tables),
        *_pattern_mistakes("snapshot.include_tables", settings.snapshot.include_tables),
        *_copy_mistakes(settings.snapshot),
        *_field_mistakes(settings.events.remove_fields),
        *_start_mistakes(settings),
        *(_task_mistakes(settings.tasks) if settings.tasks is not None else ()),
    ]


def _number_mistakes(settings: VstreamReaderSettings) -> Iterator[str]:
    if settings.stream.heartbeat_interval_s < 1:
        yield (
            f"stream.heartbeat_interval_s: must be 1 or more, is {settings.stream.heartbeat_interval_s}: without heartbeats a "
            "stream that is lost cannot be told from one that rests"
        )
    vtgate = settings.vtgate
    positive = {
        "vtgate.max_message_bytes": vtgate.max_message_bytes,
        "vtgate.keepalive_s": vtgate.keepalive_s,
        "vtgate.timeout_s": vtgate.timeout_s,
        "lease_s": settings.lease_s,
    }
    yield from (f"{name}: must be more than 0, is {value}" for name, value in positive.items() if value <= 0)
    if settings.heartbeat_interval_s < 0:
        yield f"heartbeat_interval_s: must be 0 (never) or more, is {settings.heartbeat_interval_s}"


def _pattern_mistakes(place: str, patterns: Sequence[str]) -> Iterator[str]:
    for index, pattern in enumerate(patterns):
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"{place}[{index}]: is no regular expression ({error})"


def _copy_mistakes(snapshot: SnapshotSettings) -> Iterator[str]:
    if not snapshot.include_tables and snapshot.mode not in (SnapshotMode.NO_DATA, SnapshotMode.NEVER):
        yield "snapshot.include_tables: is empty; to copy nothing set snapshot.mode to no_data"


def _field_mistakes(names: Sequence[str]) -> Iterator[str]:
    for index, name in enumerate(names):
        if name not in REMOVABLE_FIELDS:
            close = difflib.get_close_matches(name, REMOVABLE_FIELDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"these can be: {', '.join(REMOVABLE_FIELDS)}"
            yield f"events.remove_fields[{index}]: {name!r} cannot be removed; {hint}"


def _start_mistakes(settings: VstreamReaderSettings) -> Iterator[str]:
    text = settings.start_vgtid.strip()
    if not text:
        return
    if not text.startswith("["):
        if len(settings.shards) != 1:
            yield "start_vgtid: a GTID set alone needs exactly one shard in 'shards'"
        return
    try:
        parse_vgtid(text)
    except ValueError as error:
        yield f"start_vgtid: {error}"


def _task_mistakes(tasks: TaskSettings) -> Iterator[str]:
    if tasks.of < 1 or not 0 <= tasks.number < tasks.of:
        yield f"tasks.number: must be 0 to {tasks.of - 1} (tasks.of is {tasks.of}), is {tasks.number}"
    if tasks.generation < 0:
        yield "tasks.generation: must be 0 or more; one more at each change of tasks.of"
    if tasks.previous_tasks < 1:
        yield "tasks.previous_tasks: must be how many tasks there were in the generation before, 1 or more"
