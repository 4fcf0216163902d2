"""How a keyspace is reached and followed: settings with the same names in the reader's file and in a stack's document."""

import difflib
import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from libs.config.bounds import bound_mistakes
from libs.config.load import Secret
from libs.source.failure_policy import FailureHandling
from libs.source.key_columns import KeyColumns
from libs.source.unseen_policy import TellingPolicy
from libs.source.vitess.vgtid import CURRENT, EARLIEST, parse_vgtid
from libs.types.bounds import bounds
from libs.types.value_modes import VitessValueModes


class VtgateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The vtgate to read from."""

    host: str
    port: Annotated[int, bounds(1, 65_535)] = 15_991
    user: str | None = None
    """With the password: static authentication, as vtgate's ``--grpc_auth_mode static`` asks for."""
    password: Secret = Secret("")
    tls_ca_file: str | None = None
    """Certificate authority of vtgate: with it the connection is TLS."""
    tls_certificate_file: str | None = None
    """With the key: mTLS."""
    tls_key_file: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Sent with every call (``vitess.grpc.headers``); names in lower case, as HTTP/2 has them."""
    max_message_bytes: Annotated[int, bounds(1, 2_147_483_647)] = 64 << 20
    """The largest answer that is taken (``vitess.grpc.max_inbound_message_size``). A row is never cut, so this bounds the
    largest row."""
    keepalive_s: Annotated[float, bounds(0.001, 86_400)] = 20.0
    """How often a silent connection is tried, in seconds (``vitess.keepalive.interval.ms``). vtgate hangs up on clients that
    try more often than its ``--grpc_server_keepalive_enforcement_policy_min_time``: 10 s unless it is set otherwise."""
    timeout_s: Annotated[float, bounds(0.001, 86_400)] = 10.0
    """How long vtgate may take to answer a call that is no stream, in seconds."""


class TabletType(enum.Enum):
    """Which MySQL of a shard is read (``vitess.tablet.type``)."""

    PRIMARY = "primary"
    """Also named MASTER."""
    REPLICA = "replica"
    RDONLY = "rdonly"


class CellPreference(enum.Enum):
    """In which cells a tablet is looked for (Vitess, ``discovery/tablet_picker.go``)."""

    PREFER_LOCAL = "preferlocalwithalias"
    """First in vtgate's own cell and its alias, then in ``cells``."""
    ONLY_SPECIFIED = "onlyspecified"
    """In ``cells`` alone."""


class TabletOrder(enum.Enum):
    """Which tablet is taken, where there are several types."""

    ANY = "any"
    IN_ORDER = "inorder"


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of the stream (``vtgate.VStreamFlags``)."""

    tablet_type: TabletType = TabletType.PRIMARY
    cells: tuple[str, ...] = ()
    """Where tablets may be; empty: vtgate's own cell."""
    cell_preference: CellPreference | None = None
    """None: vtgate's own choice."""
    tablet_order: TabletOrder | None = None
    """None: vtgate's own choice."""
    heartbeat_interval_s: Annotated[int, bounds(1, 3_600)] = 2
    """After how many silent seconds vtgate says that it lives; three missed ones and the stream counts as lost. It has no 0:
    a lost stream would look like one that rests."""
    stop_on_reshard: bool = False
    """Let vtgate end the stream at a reshard. Either way the reader reads each old shard to its end, and then goes on with the
    new ones by itself. Before Vitess 21 only this flag makes vtgate report where they begin."""
    include_reshard_journal_events: bool = False
    """Have reshards announced: the reader asks for it with either value, because it follows them by the announcement."""
    stream_keyspace_heartbeats: bool = False
    """Have the rows of the tablets' heartbeat table sent (``vitess.stream.keyspace.heartbeats``): add
    ``<keyspace>.heartbeat`` to ``include_tables`` to have them delivered."""
    minimize_skew: bool = False
    """Have vtgate hold back shards that are ahead of others."""
    exclude_keyspace_from_table_name: bool = False


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
"""Fields that ``remove_fields`` may name: the images, the operation, table and order stay."""


class VitessSnapshotMode(enum.Enum):
    """When tables are copied (``snapshot.mode``)."""

    INITIAL = "initial"
    """When there is no checkpoint."""
    ALWAYS = "always"
    """At every start of the process."""
    WHEN_NEEDED = "when_needed"
    """When there is no checkpoint, or the log after it is gone."""
    NO_DATA = "no_data"
    """Never: follow the log from now."""
    NEVER = "never"
    """The same; Debezium's older name."""


COPIES_NOTHING: Final = frozenset({VitessSnapshotMode.NO_DATA, VitessSnapshotMode.NEVER})


class VitessSnapshotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of existing rows, which vtgate does (VStream copy)."""

    mode: VitessSnapshotMode = VitessSnapshotMode.INITIAL
    include_tables: tuple[str, ...] = (".*",)
    """Regular expressions over ``keyspace.table`` (``snapshot.include.collection.list``): of the captured tables, those
    whose rows are copied. The others are followed from where the copy begins."""


class KeyspaceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One keyspace, and how its changes become events: the same in a reader's settings and in a source's document."""

    vtgate: VtgateSettings
    keyspace: str
    shards: tuple[str, ...] = ()
    """The shards to read (``vitess.shard``); empty: all, which survives a reshard."""
    start_vgtid: str = ""
    """Where to begin without a checkpoint; empty: as ``snapshot.mode`` says.

    ``current``: from now on, nothing is copied. ``earliest``: the tables are copied first, because a keyspace has no earlier
    beginning. A VGTID in JSON (``vitess.vgtid``), with an entry for each shard that is read: there, and only shards whose
    ``gtid`` is empty are copied. For one shard of ``shards`` also a GTID set alone (``vitess.gtid``)."""
    stream: StreamSettings = StreamSettings()
    include_tables: tuple[str, ...] = (".*",)
    """Regular expressions; a table is captured when one matches its whole ``keyspace.table``."""
    exclude_tables: tuple[str, ...] = ()
    events: EventSettings = EventSettings()
    snapshot: VitessSnapshotSettings = VitessSnapshotSettings()
    values: VitessValueModes = VitessValueModes()
    key_columns: tuple[KeyColumns, ...] = ()
    """Keys other than the tables' own (``message.key.columns``); the first that names a table counts."""
    failure_handling: FailureHandling = FailureHandling.DEAD_LETTER
    """Treatment of a row that cannot be decoded: fail, warn, skip, dead-letter. By default one row stops no other."""
    on_unseen_change: tuple[TellingPolicy, ...] = ()
    """The action, by table, after a statement that changed rows without an event: warn or halt; no rule: warn."""
    heartbeat_interval_s: Annotated[float, bounds(0, 86_400)] = 0.0
    """How often, in seconds, the checkpoint is written and a record goes to ``__debezium-heartbeat.<source>`` when nothing that
    is captured changes (``heartbeat.interval.ms``); 0: never."""


_HEADER_NAME: Final = re.compile(r"[0-9a-z_.-]+")
"""gRPC over HTTP2, "Custom-Metadata"; names that end in ``-bin`` are base64 there, and ``grpc-`` is gRPC's own."""
_HEADER_VALUE: Final = re.compile(r"[ -~]*")


def keyspace_mistakes(settings: KeyspaceSettings) -> Iterator[str]:
    """Mistakes that no single field's type shows, place first.

    Patterns of tables are left to the caller: a document is stricter with them than a reader.
    """
    yield from bound_mistakes(settings)
    yield from _vtgate_mistakes(settings.vtgate)
    yield from _stream_mistakes(settings.stream)
    yield from _shard_mistakes(settings.shards)
    yield from _start_mistakes(settings)
    yield from _event_mistakes(settings.events)


def _vtgate_mistakes(vtgate: VtgateSettings) -> Iterator[str]:
    for name, value in vtgate.headers.items():
        place = f"vtgate.headers.{name}"
        if not _HEADER_NAME.fullmatch(name):
            yield f"{place}: a header's name has lower-case letters, digits, '-', '_' and '.' only{_as_header(name)}"
        elif name.startswith("grpc-") or name.endswith("-bin"):
            yield f"{place}: names that begin with 'grpc-' or end in '-bin' are gRPC's own; give it another"
        elif name in ("username", "password") and vtgate.user is not None:
            yield f"{place}: vtgate.user and vtgate.password are sent under this name; leave it out"
        if not _HEADER_VALUE.fullmatch(value):
            yield f"{place}: a header's value is printable ASCII"


def _as_header(name: str) -> str:
    lowered = name.lower()
    return f"; write {lowered!r}" if _HEADER_NAME.fullmatch(lowered) else ""


def _stream_mistakes(stream: StreamSettings) -> Iterator[str]:
    for index, cell in enumerate(stream.cells):
        if not cell or "," in cell:
            yield f"stream.cells[{index}]: {cell!r} is no cell; write each one by itself"
    if stream.cell_preference is CellPreference.ONLY_SPECIFIED and not stream.cells:
        yield "stream.cell_preference: onlyspecified needs stream.cells"


def _shard_mistakes(shards: Sequence[str]) -> Iterator[str]:
    for index, shard in enumerate(shards):
        if shard in shards[:index]:
            yield f"shards[{index}]: {shard!r} is named twice"


def _start_mistakes(settings: KeyspaceSettings) -> Iterator[str]:
    text = settings.start_vgtid.strip()
    if not text or text == CURRENT:
        return
    if text == EARLIEST:
        if settings.snapshot.mode in COPIES_NOTHING:
            yield "start_vgtid: earliest copies the tables, and snapshot.mode copies nothing; leave out one of the two"
        return
    if not text.startswith("["):
        close = difflib.get_close_matches(text.lower(), (CURRENT, EARLIEST), n=1)
        if close:
            yield f"start_vgtid: {text!r} is no place; did you mean {close[0]!r}?"
        elif len(settings.shards) != 1:
            yield (
                "start_vgtid: a GTID set alone needs exactly one shard in 'shards'; for several give a VGTID in JSON: "
                '\'[{"keyspace": …, "shard": …, "gtid": …}, …]\', or current, or earliest'
            )
        return
    try:
        entries = parse_vgtid(text)
    except ValueError as error:
        yield f"start_vgtid: {error}"
        return
    others = sorted({entry.keyspace for entry in entries} - {settings.keyspace})
    if others:
        yield f"start_vgtid: is of keyspace {', '.join(others)}, and keyspace is {settings.keyspace!r}"
    named = {entry.shard for entry in entries}
    lacking = [shard for shard in settings.shards if shard not in named]
    if lacking and "" not in named:
        yield f"start_vgtid: names no place of shard {', '.join(lacking)}, which 'shards' has read; add an entry for each"


def _event_mistakes(events: EventSettings) -> Iterator[str]:
    for index, name in enumerate(events.remove_fields):
        if name not in REMOVABLE_FIELDS:
            close = difflib.get_close_matches(name, REMOVABLE_FIELDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"these can be: {', '.join(REMOVABLE_FIELDS)}"
            yield f"events.remove_fields[{index}]: {name!r} cannot be removed; {hint}"
    if events.filter_transaction_topic and events.transaction_metadata is TransactionMetadata.OFF:
        yield "events.filter_transaction_topic: has no effect without events.transaction_metadata; set it to on or ordered"
