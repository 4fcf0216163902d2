"""The documents in a home folder, read and judged: ``sources/*.yaml`` and ``tenants/*.yaml``.

``headwater up`` and ``validate`` call this. Every mistake of every document is listed at once. A mistake in a
tenant's document stops no other tenant (design: Tenants); one in a source's document stops ``up``, since nothing
could follow that source.
"""

import difflib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from libs.config.connections import KafkaAccess
from libs.config.load import Secret, convert_document
from libs.config.tenants import TenantFolder, TenantSet
from libs.local.home import Home
from libs.postgresql.settings import PostgresqlWarehouse
from libs.source.failure_handling import FailureHandling
from libs.source.key_columns import KeyColumns
from libs.source.mysql.settings import SnapshotMode
from libs.types.tenant import TenantSpec
from libs.types.value_modes import ValueModes, VitessValueModes

NAME_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
"""A source's name stands in topic names, in process names and in file names."""


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a source database."""

    user: str
    password: Secret = Secret("")
    host: str = "127.0.0.1"
    port: int = 3306


class SnapshotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How existing rows are copied."""

    mode: str = "initial"
    chunk_rows: int = 20_000
    """Rows read at once."""
    readers: int = 1
    """Processes that read side by side."""
    incremental_chunk_rows: int = 2_000
    """Rows read at once of an incremental snapshot."""
    select_overrides: dict[str, str] = {}
    """An SQL condition, or a SELECT, for each table (``database.table``) that is not to be copied whole."""
    max_replica_lag_s: float | None = None
    """While the source, being a replica, is further behind than this, no chunk is read."""


class MysqlDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A MySQL server, followed by its own log; what a document without a ``kind`` is."""

    database: DatabaseSettings
    kind: str = "mysql"
    include_tables: tuple[str, ...] = (".*",)
    exclude_tables: tuple[str, ...] = ()
    replica_server_id: int | None = None
    """None: derived from the document's path, so that two stacks on one server do not evict each other."""
    snapshot: SnapshotSettings = SnapshotSettings()
    values: ValueModes = ValueModes()
    """Which of Debezium's forms times, decimals, unsigned BIGINTs and bytes take."""
    signal_table: str | None = None
    """``database.table`` whose inserted rows are signals; see docs/snapshots.md."""
    key_columns: tuple[KeyColumns, ...] = ()
    """Keys other than the tables' own."""
    gtid_source_includes: tuple[str, ...] = ()
    """Regular expressions for server uuids: only rows of transactions that such a server numbered are published."""
    gtid_source_excludes: tuple[str, ...] = ()
    """Regular expressions for server uuids whose transactions' rows are not published."""
    heartbeat_interval_s: float = 0.0
    """How often a record goes to ``__debezium-heartbeat.<source>`` while nothing captured changes; 0: never."""
    failure_handling: FailureHandling = FailureHandling.FAIL
    """What becomes of a row that cannot be decoded."""
    transaction_metadata: bool = False


class SubscriptionDocument(KafkaAccess, frozen=True, kw_only=True):
    """A Tencent DTS subscription of the database, as DTS's console shows it (docs/dts.md)."""

    topic: str
    group_id: str
    bootstrap_servers: str = ""
    """Empty: the stack's own Kafka, where a recording was played back or a stand-in writes."""
    partition: int = 0
    """The embedded stack reads one Kafka partition of a subscription."""


class DtsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """How existing rows are copied from the database behind a subscription."""

    mode: str = "initial"
    chunk_rows: int = 20_000
    """Rows read at once."""


class DtsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A Tencent DTS subscription of a MySQL server, and that server."""

    database: DatabaseSettings
    subscription: SubscriptionDocument
    kind: str = "dts"
    include_tables: tuple[str, ...] = (".*",)
    exclude_tables: tuple[str, ...] = ()
    snapshot: DtsSnapshot = DtsSnapshot()
    values: ValueModes = ValueModes()
    failure_handling: FailureHandling = FailureHandling.FAIL
    """What becomes of what cannot be decoded."""
    transaction_metadata: bool = False


class VtgateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a keyspace's vtgate."""

    host: str = "127.0.0.1"
    port: int = 15_991
    user: str | None = None
    """With the password: static authentication."""
    password: Secret = Secret("")
    tls_ca_file: str | None = None
    """Certificate authority of vtgate: with it the connection is TLS."""
    tls_certificate_file: str | None = None
    """With the key: mTLS."""
    tls_key_file: str | None = None


class VitessSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """How existing rows are copied: by vtgate (VStream copy)."""

    mode: str = "initial"
    include_tables: tuple[str, ...] = (".*",)
    """Of the captured tables, those whose rows are copied."""


class VitessDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A keyspace of a Vitess cluster, all its shards."""

    vtgate: VtgateDocument
    keyspace: str
    kind: str = "vitess"
    include_tables: tuple[str, ...] = (".*",)
    """Over ``keyspace.table``."""
    exclude_tables: tuple[str, ...] = ()
    snapshot: VitessSnapshot = VitessSnapshot()
    values: VitessValueModes = VitessValueModes()
    key_columns: tuple[KeyColumns, ...] = ()
    """Keys other than the tables' own."""
    failure_handling: FailureHandling = FailureHandling.FAIL
    """What becomes of a row that cannot be decoded."""
    transaction_metadata: bool = False


SourceDocument = MysqlDocument | DtsDocument | VitessDocument
"""``sources/<name>.yaml``."""

DOCUMENT_OF_KIND: Final[Mapping[str, type[SourceDocument]]] = {
    "mysql": MysqlDocument,
    "dts": DtsDocument,
    "vitess": VitessDocument,
}
SNAPSHOT_OF_KIND: Final[Mapping[str, type[msgspec.Struct]]] = {
    "mysql": SnapshotSettings,
    "dts": DtsSnapshot,
    "vitess": VitessSnapshot,
}
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
POSTGRESQL: Final = "postgresql"
WAREHOUSES: Final = (DELTA, ICEBERG, POSTGRESQL)
"""What a tenant's ``sink.warehouse`` may be in a stack of one machine."""
SNAPSHOT_MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "mysql": tuple(mode.value for mode in SnapshotMode),
    "dts": ("initial", "no_data"),
    "vitess": ("initial", "always", "when_needed", "no_data", "never"),
}


@dataclass(frozen=True, slots=True)
class Documents:
    """All good documents of a home by name, and the mistakes of the others."""

    sources: Mapping[str, SourceDocument]
    tenants: Mapping[str, TenantSpec]
    source_mistakes: tuple[str, ...]
    tenant_mistakes: tuple[str, ...]
    postgresql: PostgresqlWarehouse | None = None
    """Of ``warehouses.yaml``; None: the stack runs one of its own where a tenant wants one."""
    warehouse_mistakes: tuple[str, ...] = ()

    def have_sink(self, warehouse: str) -> bool:
        """Whether some tenant's tables are to lie in such a warehouse."""
        return any(spec.sink is not None and spec.sink.warehouse == warehouse for spec in self.tenants.values())

    @property
    def has_own_postgresql(self) -> bool:
        """Whether the stack runs a PostgreSQL itself."""
        return self.have_sink(POSTGRESQL) and self.postgresql is None


def read_documents(home: Home) -> Documents:
    """Every document of ``home``; mistakes carry the file they stand in. Never raises for a bad document."""
    source_mistakes: list[str] = []
    sources: dict[str, SourceDocument] = {}
    for path in sorted(home.sources_dir.glob("*.yaml")):
        source = _read_source(path, source_mistakes)
        if source is not None:
            sources[path.stem] = source
    known_sources = sorted(path.stem for path in home.sources_dir.glob("*.yaml"))
    tenant_mistakes: list[str] = []
    tenants = _read_tenants(home, known_sources, tenant_mistakes)
    warehouse_mistakes: list[str] = []
    postgresql = _read_warehouses(home, warehouse_mistakes)
    return Documents(
        sources, tenants, tuple(source_mistakes), tuple(tenant_mistakes), postgresql, tuple(warehouse_mistakes)
    )


def replica_server_id(path: Path, document: MysqlDocument) -> int:
    """The id under which the reader registers as a replica: stable, and unlikely to be another replica's.

    MySQL allows 1 to 2**32-1 (manual, replication options, ``server_id``); small numbers are what people choose
    by hand, so derived ones are large.
    """
    if document.replica_server_id is not None:
        return document.replica_server_id
    return 0x4000_0000 | (zlib.crc32(str(path).encode()) & 0x3FFF_FFFF)


def nearest(name: str, known: Sequence[str]) -> str:
    """A clause for an error message: the known name that ``name`` resembles, else all of them."""
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(sorted(known))}" if known else "there is none yet"


def _read_source(path: Path, mistakes: list[str]) -> SourceDocument | None:
    found: list[str] = []
    parsed = _parse(path, found)
    document = _converted(parsed, found) if not found else None
    if not NAME_PATTERN.fullmatch(path.stem):
        found.append(f"file name {path.name!r}: a source's name is lower-case letters, digits and '-', at most 40")
    if document is not None:
        found.extend(_mistakes_in(document))
    mistakes.extend(f"{path}: {mistake}" for mistake in found)
    return None if found else document


def _converted(parsed: Any, found: list[str]) -> SourceDocument | None:
    """The document as its kind's record; where the kind is misspelt, as the nearest one's, so that all else is judged too."""
    kind = str(parsed.get("kind", "mysql")) if isinstance(parsed, dict) else "mysql"
    if kind not in DOCUMENT_OF_KIND:
        found.append(f"kind: {kind!r} cannot be followed; {nearest(kind, tuple(DOCUMENT_OF_KIND))}")
        kind = (*difflib.get_close_matches(kind, DOCUMENT_OF_KIND, n=1), "mysql")[0]
        parsed = {**parsed, "kind": kind}
    if isinstance(parsed, dict):
        parsed = _without_other_kinds(parsed, kind, DOCUMENT_OF_KIND, "", found)
        if isinstance(parsed.get("snapshot"), dict):
            own = _without_other_kinds(parsed["snapshot"], kind, SNAPSHOT_OF_KIND, "snapshot.", found)
            parsed = {**parsed, "snapshot": own}
    return convert_document(DOCUMENT_OF_KIND[kind], parsed, place="", mistakes=found)


def _without_other_kinds(
    parsed: Mapping[str, Any],
    kind: str,
    records: Mapping[str, type[msgspec.Struct]],
    place: str,
    found: list[str],
) -> dict[str, Any]:
    """``parsed`` without the names that only other kinds have; each is a mistake, since it would have no effect."""
    names = {
        other: {field.encode_name for field in msgspec.structs.fields(record)} for other, record in records.items()
    }
    kept = {}
    for name, value in parsed.items():
        others = [other for other in records if name in names[other]]
        if others and kind not in others:
            known = " or ".join(repr(other) for other in others)
            found.append(f"{place}{name}: is for kind {known}, and kind is {kind!r}; leave it out")
        else:
            kept[name] = value
    return kept


def _mistakes_in(document: SourceDocument) -> Iterator[str]:
    """What no single field's type shows."""
    match document:
        case MysqlDocument():
            yield from _bad_port("database.port", document.database.port)
            for name in ("chunk_rows", "incremental_chunk_rows", "readers"):
                if getattr(document.snapshot, name) < 1:
                    yield f"snapshot.{name}: must be at least 1"
            yield from _bad_patterns("gtid_source_includes", document.gtid_source_includes)
            yield from _bad_patterns("gtid_source_excludes", document.gtid_source_excludes)
            if document.heartbeat_interval_s < 0:
                yield "heartbeat_interval_s: is below 0; 0 is never"
        case DtsDocument():
            yield from _bad_port("database.port", document.database.port)
            if document.snapshot.chunk_rows < 1:
                yield "snapshot.chunk_rows: must be at least 1"
        case VitessDocument():
            yield from _bad_port("vtgate.port", document.vtgate.port)
            yield from _bad_patterns("snapshot.include_tables", document.snapshot.include_tables)
    mode, modes = document.snapshot.mode, SNAPSHOT_MODES[document.kind]
    if mode not in modes:
        yield f"snapshot.mode: {mode!r} is unknown to kind {document.kind!r}; {nearest(mode, modes)}"
    yield from _bad_patterns("include_tables", document.include_tables)
    yield from _bad_patterns("exclude_tables", document.exclude_tables)


def _bad_port(place: str, port: int) -> Iterator[str]:
    if not 0 < port < 65_536:
        yield f"{place}: {port} is no port"


def _read_tenants(home: Home, known_sources: Sequence[str], mistakes: list[str]) -> dict[str, TenantSpec]:
    """By the same code as the router and the sink; what they cannot see, a source that is not there, besides."""
    if not home.tenants_dir.is_dir():
        return {}
    found = TenantFolder(home.tenants_dir).refresh() or TenantSet()
    mistakes.extend(f"{home.tenants_dir}/{mistake}" for refused in found.refused for mistake in refused.mistakes)
    for spec in found.tenants:
        if spec.sink is not None and spec.sink.warehouse not in WAREHOUSES:
            mistakes.append(
                f"{home.tenants_dir}: tenant {spec.tenant}: sink.warehouse: {spec.sink.warehouse!r} is no warehouse; "
                f"{nearest(spec.sink.warehouse, WAREHOUSES)}"
            )
        for index, selection in enumerate(spec.sources):
            if selection.name not in known_sources:
                mistakes.append(
                    f"{home.tenants_dir}: tenant {spec.tenant}: sources[{index}].name: no source {selection.name!r} in "
                    f"sources/; {nearest(selection.name, known_sources)}"
                )
    return {spec.tenant: spec for spec in found.tenants}


def _read_warehouses(home: Home, mistakes: list[str]) -> PostgresqlWarehouse | None:
    """``warehouses.yaml``, where there is one."""
    found: list[str] = []
    document = _parse(home.warehouses_file, found) if home.warehouses_file.exists() else {}
    postgresql = None
    if not found and not isinstance(document or {}, dict):
        found.append("must be a mapping of warehouses to their settings")
    elif not found:
        for name, settings in (document or {}).items():
            if name == POSTGRESQL:
                postgresql = convert_document(PostgresqlWarehouse, settings, place=name, mistakes=found)
            else:
                found.append(f"{name}: is no warehouse that can be elsewhere; {nearest(str(name), (POSTGRESQL,))}")
    mistakes.extend(f"{home.warehouses_file}: {mistake}" for mistake in found)
    return postgresql


def _bad_patterns(place: str, patterns: Sequence[str]) -> list[str]:
    found = []
    for index, pattern in enumerate(patterns):
        try:
            re.compile(pattern)
        except re.error as error:
            found.append(f"{place}[{index}]: {pattern!r} is no regular expression ({error})")
    return found


def _parse(path: Path, mistakes: list[str]) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        mistakes.append(f"cannot be read ({error.strerror})")
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mistakes.append(f"is not YAML ({' '.join(str(error).split())})")
    return None
