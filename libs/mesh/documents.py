"""The documents in a home folder, read and judged: ``sources/*.yaml`` and ``tenants/*.yaml``.

``headwater up`` and ``validate`` call this. Every mistake of every document is listed at once. A mistake in a
tenant's document stops no other tenant (design: Tenants); one in a source's document stops ``up``, because nothing
could follow that source.
"""

import difflib
import functools
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec

from libs.clickhouse.settings import ClickhouseWarehouse
from libs.config.bounds import bound_mistakes
from libs.config.connections import (
    KafkaSettings,
    LineageSettings,
    SchemaRegistrySettings,
    TelemetrySettings,
)
from libs.config.load import convert_document
from libs.config.patterns import count_mistakes, pattern_mistakes
from libs.config.yaml_text import DocumentLines, YamlDocument, read_yaml_file
from libs.errors import InvalidSettings
from libs.mesh.home import Home
from libs.postgresql.settings import PostgresqlWarehouse
from libs.source.dts.settings import DtsSnapshotMode, DtsSnapshotSettings, DtsSourceSettings, SubscriptionSettings
from libs.source.mysql.settings import DatabaseSettings, MysqlSourceSettings, SnapshotSettings
from libs.source.oracle.settings import (
    OracleDatabaseSettings,
    OracleSnapshotSettings,
    OracleSourceSettings,
)
from libs.source.snapshot_mode import SnapshotMode
from libs.source.vitess.settings import (
    KeyspaceSettings,
    VitessSnapshotMode,
    VitessSnapshotSettings,
    VtgateSettings,
    keyspace_mistakes,
)
from libs.tenants.document import TenantFolder, TenantSet
from libs.tenants.mask_keys import MaskKeys
from libs.tenants.place import nearest, source_mistakes, warehouse_mistakes
from libs.tenants.row_filter import condition_mistakes
from libs.tenants.topic_quotas import NO_TOPIC_QUOTAS, TopicQuotaSettings
from libs.types.bounds import bounds
from libs.types.tenant import Consistency, EventFormat, TenantSpec

NAME_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
"""A source's name stands in topic names, in process names and in file names."""


class DatabaseDocument(DatabaseSettings, frozen=True, kw_only=True):
    """How to reach a source database: all settings of its reader; files by absolute paths."""

    host: str = "127.0.0.1"


class SnapshotDocument(SnapshotSettings, frozen=True, kw_only=True):
    """How existing rows are copied: all settings of a MySQL reader."""

    lag_replicas: tuple[DatabaseDocument, ...] = ()
    """Replicas of the source that a snapshot must not hold up."""


class MysqlDocument(MysqlSourceSettings, frozen=True, kw_only=True):
    """A MySQL server, followed by its own log; the kind of a document without a ``kind``."""

    database: DatabaseDocument
    kind: str = "mysql"
    replica_server_id: Annotated[int | None, bounds(1, 4_294_967_295)] = None
    """None: derived from the document's path, so that two stacks on one server do not evict each other."""
    snapshot: SnapshotDocument = SnapshotDocument()
    metric_tags: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels on every metric of the reader."""


class SubscriptionDocument(SubscriptionSettings, frozen=True, kw_only=True):
    """A Tencent DTS subscription of the database, as DTS's console shows it (docs/dts.md)."""

    bootstrap_servers: str = ""
    """Empty: the stack's own Kafka, where a recording was played back or a stand-in writes."""
    partition: Annotated[int, bounds(0, 100_000)] = 0
    """The embedded stack reads one Kafka partition of a subscription."""


class DtsDocument(DtsSourceSettings, frozen=True, kw_only=True):
    """A Tencent DTS subscription of a MySQL server, and that server."""

    database: DatabaseDocument
    subscription: SubscriptionDocument
    kind: str = "dts"
    metric_tags: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels on every metric of the reader."""


class VtgateDocument(VtgateSettings, frozen=True, kw_only=True):
    """How to reach a keyspace's vtgate: all settings of its reader; files by absolute paths."""

    host: str = "127.0.0.1"


class VitessDocument(KeyspaceSettings, frozen=True, kw_only=True):
    """A keyspace of a Vitess cluster: all settings of its readers."""

    vtgate: VtgateDocument
    kind: str = "vitess"
    tasks: int = 1
    """How many readers share its shards; the stack counts their generations itself (``reader_tasks``)."""
    metric_tags: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels on every metric of the reader."""


class OracleDatabaseDocument(OracleDatabaseSettings, frozen=True, kw_only=True):
    """How to reach an Oracle database: all settings of its reader."""

    host: str = "127.0.0.1"


class OracleDocument(OracleSourceSettings, frozen=True, kw_only=True):
    """An Oracle database, or one pluggable database, followed by its redo: all settings of its reader."""

    database: OracleDatabaseDocument
    kind: str = "oracle"
    metric_tags: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels on every metric of the reader."""


SourceDocument = MysqlDocument | DtsDocument | VitessDocument | OracleDocument
"""``sources/<name>.yaml``."""

DOCUMENT_OF_KIND: Final[Mapping[str, type[SourceDocument]]] = {
    "mysql": MysqlDocument,
    "dts": DtsDocument,
    "vitess": VitessDocument,
    "oracle": OracleDocument,
}
SNAPSHOT_OF_KIND: Final[Mapping[str, type[msgspec.Struct]]] = {
    "mysql": SnapshotDocument,
    "dts": DtsSnapshotSettings,
    "vitess": VitessSnapshotSettings,
    "oracle": OracleSnapshotSettings,
}
_NOT_HERE: Final[Mapping[str, Mapping[str, str]]] = {
    "vitess": {
        "transaction_metadata": "a keyspace has three ways; say events: {transaction_metadata: on}, or off, or ordered",
    },
}
"""By kind: settings under another name."""
MOST_TASKS: Final = 64
"""Each is a process of the one machine, with a memory of its own."""
CLICKHOUSE: Final = "clickhouse"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
POSTGRESQL: Final = "postgresql"
WAREHOUSES: Final = (CLICKHOUSE, DELTA, ICEBERG, POSTGRESQL)
"""The values of a tenant's ``sink.warehouse`` in a stack of one machine."""
SNAPSHOT_MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "mysql": tuple(mode.value for mode in SnapshotMode),
    "dts": tuple(mode.value for mode in DtsSnapshotMode),
    "vitess": tuple(mode.value for mode in VitessSnapshotMode),
    "oracle": tuple(mode.value for mode in SnapshotMode),
}


class WarehouseServers(msgspec.Struct, frozen=True, kw_only=True):
    """``warehouses.yaml``: warehouses of the owner's that are servers."""

    clickhouse: ClickhouseWarehouse | None = None
    """None: there is none."""
    postgresql: PostgresqlWarehouse | None = None
    """None: the stack runs one of its own where a tenant wants one."""


_NO_SERVERS: Final = WarehouseServers()

_Record = TypeVar("_Record", KafkaSettings, SchemaRegistrySettings, LineageSettings, TopicQuotaSettings)


@dataclass(frozen=True, slots=True)
class Documents:
    """All good documents of a home by name, and the mistakes of the others."""

    sources: Mapping[str, SourceDocument]
    tenants: Mapping[str, TenantSpec]
    source_mistakes: tuple[str, ...]
    tenant_mistakes: tuple[str, ...]
    servers: WarehouseServers = _NO_SERVERS
    """Of ``warehouses.yaml``."""
    warehouse_mistakes: tuple[str, ...] = ()
    tenant_lines: Mapping[str, DocumentLines] = field(default_factory=dict)
    """The lines of each tenant's document."""
    kafka: KafkaSettings | None = None
    """Of ``kafka.yaml``. None: the stack runs one of its own."""
    kafka_mistakes: tuple[str, ...] = ()
    schema_registry: SchemaRegistrySettings | None = None
    """Of ``schema_registry.yaml``."""
    schema_registry_mistakes: tuple[str, ...] = ()
    openlineage: LineageSettings | None = None
    """Of ``openlineage.yaml``."""
    openlineage_mistakes: tuple[str, ...] = ()
    topic_quotas: TopicQuotaSettings = NO_TOPIC_QUOTAS
    """Of ``topic_quotas.yaml``."""
    topic_quotas_mistakes: tuple[str, ...] = ()

    def require_tenant(self, name: str) -> TenantSpec:
        """The document of a tenant that has to be there.

        Raises:
            InvalidSettings: there is no good one; the message has the nearest name.
        """
        if name not in self.tenants:
            raise InvalidSettings(
                f"tenant {name}", [f"has no document in tenants/; {nearest(name, sorted(self.tenants))}"]
            )
        return self.tenants[name]

    def have_sink(self, warehouse: str) -> bool:
        """Whether some tenant's tables are to lie in such a warehouse."""
        return any(spec.sink is not None and spec.sink.warehouse == warehouse for spec in self.tenants.values())

    @property
    def has_own_postgresql(self) -> bool:
        """Whether the stack runs a PostgreSQL itself."""
        return self.have_sink(POSTGRESQL) and self.servers.postgresql is None


def read_documents(home: Home) -> Documents:
    """Every document of ``home``; mistakes carry the file they stand in. Never raises for a bad document."""
    source_mistakes: list[str] = []
    sources: dict[str, SourceDocument] = {}
    for path in sorted(home.sources_dir.glob("*.yaml")):
        source = _read_source(path, source_mistakes)
        if source is not None:
            sources[path.stem] = source
    source_mistakes.extend(_shared_server_ids(home, sources))
    kafka_mistakes: list[str] = []
    kafka = read_kafka(home, kafka_mistakes)
    if home.kafka_file.exists():
        source_mistakes.extend(_without_a_kafka(home, sources))
    known_sources = sorted(path.stem for path in home.sources_dir.glob("*.yaml"))
    tenant_mistakes: list[str] = []
    found = _read_tenants(home, known_sources, tenant_mistakes)
    registry_mistakes: list[str] = []
    registry = _read_schema_registry(home, registry_mistakes)
    lineage_mistakes: list[str] = []
    openlineage = _read_openlineage(home, lineage_mistakes)
    quota_mistakes: list[str] = []
    topic_quotas = _read_topic_quotas(home, quota_mistakes)
    warehouse_mistakes: list[str] = []
    servers = _read_warehouses(home, warehouse_mistakes)
    return Documents(
        sources,
        {spec.tenant: spec for spec in found.tenants},
        tuple(source_mistakes),
        tuple(tenant_mistakes),
        servers,
        tuple(warehouse_mistakes),
        found.lines,
        kafka,
        tuple(kafka_mistakes),
        registry,
        tuple(registry_mistakes),
        openlineage,
        tuple(lineage_mistakes),
        topic_quotas,
        tuple(quota_mistakes),
    )


def convert_source(value: Any, mistakes: list[str]) -> SourceDocument | None:
    """A source's document out of parsed YAML; None where it has mistakes, which are appended, place first."""
    found: list[str] = []
    document = _converted(value, found)
    if document is not None:
        found.extend(_mistakes_in(document))
    mistakes.extend(found)
    return None if found else document


def replica_server_id(path: Path, document: MysqlDocument) -> int:
    """The id under which the reader registers as a replica: stable, and unlikely to be another replica's.

    MySQL allows 1 to 2**32-1 (manual, replication options, ``server_id``); people choose small numbers by hand, so derived
    ones are large.
    """
    if document.replica_server_id is not None:
        return document.replica_server_id
    return 0x4000_0000 | (zlib.crc32(str(path).encode()) & 0x3FFF_FFFF)


def _shared_server_ids(home: Home, sources: Mapping[str, SourceDocument]) -> Iterator[str]:
    """Two readers of one server under one id: the server would cut each off whenever the other connects."""
    taken: dict[tuple[str, int, int], str] = {}
    for name, source in sources.items():
        if not isinstance(source, MysqlDocument) or source.replica_server_id is None:
            continue
        key = (source.database.host, source.database.port, source.replica_server_id)
        other = taken.setdefault(key, name)
        if other != name:
            yield (
                f"{home.sources_dir / f'{name}.yaml'}: replica_server_id: {source.replica_server_id} is that of source "
                f"{other!r} too, which reads the same server; choose another, or leave it out"
            )


def _read_source(path: Path, mistakes: list[str]) -> SourceDocument | None:
    unreadable: list[str] = []
    read = read_yaml_file(path, shown_as=str(path), mistakes=unreadable)
    found: list[str] = []
    document = convert_source(read.value, found) if read is not None else None
    mistakes.extend(unreadable)
    if not NAME_PATTERN.fullmatch(path.stem):
        mistakes.append(
            f"{path}: file name {path.name!r}: a source's name is lower-case letters, digits and '-', at most 40"
        )
        document = None
    if read is not None:
        mistakes.extend(read.lines.locate(found))
    return document


def _converted(parsed: Any, found: list[str]) -> SourceDocument | None:
    """The document as its kind's record; where the kind is misspelt, as the nearest one's, so that all else is judged too."""
    kind = str(parsed.get("kind", "mysql")) if isinstance(parsed, dict) else "mysql"
    if kind not in DOCUMENT_OF_KIND:
        found.append(f"kind: {kind!r} cannot be followed; {nearest(kind, tuple(DOCUMENT_OF_KIND))}")
        kind = (*difflib.get_close_matches(kind, DOCUMENT_OF_KIND, n=1), "mysql")[0]
        parsed = {**parsed, "kind": kind}
    if isinstance(parsed, dict):
        if kind == "vitess" and isinstance(parsed.get("tasks"), dict):
            found.append(
                "tasks: is the number of readers, as in 'tasks: 2'; the stack numbers them and their generations itself"
            )
            parsed = {name: value for name, value in parsed.items() if name != "tasks"}
        elsewhere = _NOT_HERE.get(kind, {})
        found.extend(f"{name}: {elsewhere[name]}" for name in parsed if name in elsewhere)
        parsed = {name: value for name, value in parsed.items() if name not in elsewhere}
        parsed = _without_other_kinds(parsed, kind, DOCUMENT_OF_KIND, "", found)
        if isinstance(parsed.get("snapshot"), dict):
            own = _without_other_kinds(parsed["snapshot"], kind, SNAPSHOT_OF_KIND, "snapshot.", found)
            parsed = {**parsed, "snapshot": _without_unknown_mode(own, kind, found)}
    return convert_document(DOCUMENT_OF_KIND[kind], parsed, place="", mistakes=found)


def _without_other_kinds(
    parsed: Mapping[str, Any],
    kind: str,
    records: Mapping[str, type[msgspec.Struct]],
    place: str,
    found: list[str],
) -> dict[str, Any]:
    """``parsed`` without the names that only other kinds have; each is a mistake, because it would have no effect."""
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


def _without_unknown_mode(snapshot: dict[str, Any], kind: str, found: list[str]) -> dict[str, Any]:
    """``snapshot`` without a mode that the kind does not have, so that all else is judged too."""
    mode, modes = snapshot.get("mode"), SNAPSHOT_MODES[kind]
    if not isinstance(mode, str) or mode in modes:
        return snapshot
    found.append(f"snapshot.mode: {mode!r} is unknown to kind {kind!r}; {nearest(mode, modes)}")
    return {name: value for name, value in snapshot.items() if name != "mode"}


def _mistakes_in(document: SourceDocument) -> Iterator[str]:
    """Mistakes that no single field's type shows."""
    if too_many := [*count_mistakes(_patterns_of(document))]:  # judging each would take long
        yield from too_many
        return
    if not isinstance(document, VitessDocument):  # `keyspace_mistakes` has them
        yield from bound_mistakes(document)
    match document:
        case MysqlDocument():
            yield from _bad_database("database", document.database)
            for index, replica in enumerate(document.snapshot.lag_replicas):
                yield from _bad_database(f"snapshot.lag_replicas[{index}]", replica)
            if document.snapshot.lag_replicas and document.snapshot.max_replica_lag_s is None:
                yield "snapshot.lag_replicas: have no effect without snapshot.max_replica_lag_s; set it"
            yield from _pattern_mistakes("gtid_source_includes", document.gtid_source_includes)
            yield from _pattern_mistakes("gtid_source_excludes", document.gtid_source_excludes)
        case DtsDocument():
            yield from _bad_database("database", document.database)
        case VitessDocument():
            yield from _bad_files("vtgate", document.vtgate)
            yield from keyspace_mistakes(document)
            yield from _pattern_mistakes("snapshot.include_tables", document.snapshot.include_tables)
            yield from _task_mistakes(document)
        case OracleDocument():
            yield from _oracle_mistakes(document)
    yield from _pattern_mistakes("include_tables", document.include_tables)
    yield from _pattern_mistakes("exclude_tables", document.exclude_tables)
    try:
        TelemetrySettings(tags=document.metric_tags)
    except InvalidSettings as error:
        yield from (f"metric_{mistake}" for mistake in error.mistakes)


def _oracle_mistakes(document: OracleDocument) -> Iterator[str]:
    """Names of tables that are no ``SCHEMA.TABLE``."""
    if document.signal_table is not None:
        yield from _table_name_mistakes("signal_table", document.signal_table)
    for name in document.snapshot.select_overrides:
        yield from _table_name_mistakes(f"snapshot.select_overrides.{name}", name)


def _table_name_mistakes(place: str, name: str) -> Iterator[str]:
    schema, _, table = name.partition(".")
    if not (schema and table) or "." in table:
        yield f"{place}: {name!r} is no table: write SCHEMA.TABLE, in the case that Oracle has"


def _task_mistakes(document: VitessDocument) -> Iterator[str]:
    """More tasks than shards that are not named are found by ``preflight``, and by the reader that is left without one."""
    tasks, shards = document.tasks, document.shards
    if tasks < 1:
        yield f"tasks: must be 1 or more, is {tasks}: so many readers share the keyspace's shards"
    elif tasks > MOST_TASKS:
        yield f"tasks: {tasks} readers are as many processes of this machine; at most {MOST_TASKS}"
    elif shards and tasks > len(shards):
        yield (
            f"tasks: {tasks} readers, and 'shards' names {len(shards)}: one without a shard has nothing to read; "
            f"at most {len(shards)}"
        )


def _bad_database(place: str, database: DatabaseDocument) -> Iterator[str]:
    yield from _bad_files(place, database)


def _bad_files(place: str, record: msgspec.Struct) -> Iterator[str]:
    """Every certificate and key that the reader could not open, and one without the other."""
    yield from _absent_files(place, record)
    certificate, key = (getattr(record, f"tls_{part}_file") for part in ("certificate", "key"))
    if (certificate is None) is not (key is None):
        yield f"{place}: tls_certificate_file and tls_key_file need each other; give both or none"


def _absent_files(place: str, record: msgspec.Struct) -> Iterator[str]:
    """Every file that a process could not open, started from any folder."""
    for name, value in msgspec.structs.asdict(record).items():
        if not name.endswith("_file") or value is None:
            continue
        if not Path(value).is_absolute():
            yield f"{place}.{name}: {value!r} is no absolute path, and the reader runs in a folder of its own"
        elif not Path(value).is_file():
            yield f"{place}.{name}: there is no file {value!r}"


def _read_tenants(home: Home, known_sources: Sequence[str], mistakes: list[str]) -> TenantSet:
    """By the same code as the router and the sink; also mistakes that they cannot see, such as a missing source."""
    if not home.tenants_dir.is_dir():
        return TenantSet()
    found = (
        TenantFolder(home.tenants_dir, check_condition=condition_mistakes, check_key=mask_keys(home).mistake).refresh()
        or TenantSet()
    )
    mistakes.extend(f"{home.tenants_dir}/{mistake}" for refused in found.refused for mistake in refused.mistakes)
    said_of = functools.cache(functools.partial(_said_of, home))  # a thousand tenants may read one source
    for spec in found.tenants:
        unfit = tenant_home_mistakes(spec, known_sources, home, said_of)
        mistakes.extend(f"{home.tenants_dir}/{mistake}" for mistake in found.lines[spec.tenant].locate(unfit))
    return found


def mask_keys(home: Home) -> MaskKeys:
    """The keys of the tenants' masks, as the home's router finds them."""
    return MaskKeys(home.keys_dir, os.environ)


def tenant_home_mistakes(
    spec: TenantSpec,
    known_sources: Sequence[str],
    home: Home,
    said_of: Callable[[str], Mapping[str, Any]] | None = None,
) -> list[str]:
    """The parts of a document that do not fit its home, place first. ``said_of``: a source's document; None: read it."""
    mistakes = [*warehouse_mistakes(spec, WAREHOUSES)]
    if spec.sink is not None and spec.sink.warehouse == CLICKHOUSE and _read_warehouses(home, []).clickhouse is None:
        mistakes.append(
            f"sink.warehouse: a stack of one machine has no clickhouse of its own; say where yours is in "
            f"{home.warehouses_file} (docs/sinks/clickhouse.md)"
        )
    if spec.format.kind is not EventFormat.JSON and not home.schema_registry_file.exists():
        mistakes.append(
            f"format.kind: {spec.format.kind.value} needs a schema registry; say where it is in "
            f"{home.schema_registry_file.name}: 'url: http://…'"
        )
    mistakes.extend(source_mistakes(spec, known_sources, where="in sources/"))
    for selection in spec.sources:
        if selection.name not in known_sources:
            continue
        said = _said_of(home, selection.name) if said_of is None else said_of(selection.name)
        if spec.snapshot.on_joining and said.get("kind") == "dts":
            mistakes.append(
                f"snapshot.on_joining: source {selection.name!r} is a DTS subscription, whose reader copies nothing "
                "for one tenant; take it out, or set false"
            )
        if spec.sink is not None and spec.sink.consistency is Consistency.TRANSACTION and said.get("tasks", 1) != 1:
            mistakes.append(
                f"sink.consistency: transaction: source {selection.name!r} is read by several tasks, whose transactions have "
                "no order among one another; give it tasks: 1, or leave consistency out"
            )
    return mistakes


def _said_of(home: Home, source: str) -> Mapping[str, Any]:
    """Nothing: its document cannot be read, which is reported where it is judged."""
    read = read_yaml_file(home.sources_dir / f"{source}.yaml", shown_as=source, mistakes=[])
    return read.value if read is not None and isinstance(read.value, dict) else {}


def _read_warehouses(home: Home, mistakes: list[str]) -> WarehouseServers:
    """``warehouses.yaml``, where there is one."""
    found: list[str] = []
    read: YamlDocument | None = YamlDocument({}, DocumentLines(str(home.warehouses_file)))
    if home.warehouses_file.exists():
        read = read_yaml_file(home.warehouses_file, shown_as=str(home.warehouses_file), mistakes=mistakes)
    if read is None:
        return _NO_SERVERS
    document = read.value or {}
    if not isinstance(document, dict):
        found.append("must be a mapping of warehouses to their settings")
        document = {}
    known = {CLICKHOUSE: ClickhouseWarehouse, POSTGRESQL: PostgresqlWarehouse}
    servers: dict[str, Any] = {}
    for name, settings in document.items():
        if name in known:
            servers[name] = convert_document(known[name], settings, place=name, mistakes=found)
        else:
            found.append(f"{name}: is no warehouse that can be elsewhere; {nearest(str(name), sorted(known))}")
    mistakes.extend(read.lines.locate(found))
    return WarehouseServers(**servers)


def read_kafka(home: Home, mistakes: list[str]) -> KafkaSettings | None:
    """``kafka.yaml``: the owner's Kafka. None: there is no such file, or it has mistakes, which are appended."""
    return _read_record(home.kafka_file, KafkaSettings, mistakes, unfit=lambda settings: _kafka_file_mistakes(settings))


def _kafka_file_mistakes(settings: KafkaSettings) -> Iterator[str]:
    yield from _absent_files("", settings)
    if settings.oauth is not None:
        yield from _absent_files("oauth", settings.oauth)


def _without_a_kafka(home: Home, sources: Mapping[str, SourceDocument]) -> Iterator[str]:
    """Where the Kafka is the owner's, a subscription says itself where its messages are."""
    for name, source in sources.items():
        if isinstance(source, DtsDocument) and not source.subscription.bootstrap_servers:
            yield (
                f"{home.sources_dir / f'{name}.yaml'}: subscription.bootstrap_servers: is missing, and {home.kafka_file.name} "
                "names a Kafka of yours: say where the subscription's messages are"
            )


def _read_schema_registry(home: Home, mistakes: list[str]) -> SchemaRegistrySettings | None:
    return _read_record(
        home.schema_registry_file, SchemaRegistrySettings, mistakes, unfit=lambda settings: _bad_files("", settings)
    )


def _read_openlineage(home: Home, mistakes: list[str]) -> LineageSettings | None:
    def unfit(settings: LineageSettings) -> list[str]:
        if settings.file is None or Path(settings.file).is_absolute():
            return []
        return [f"file: {settings.file!r} is no absolute path, and the sink runs in a folder of its own"]

    return _read_record(home.openlineage_file, LineageSettings, mistakes, unfit=unfit)


def _read_topic_quotas(home: Home, mistakes: list[str]) -> TopicQuotaSettings:
    """Without the file there is no limit."""
    return _read_record(home.topic_quotas_file, TopicQuotaSettings, mistakes) or NO_TOPIC_QUOTAS


def _read_record(
    file: Path,
    record: type[_Record],
    mistakes: list[str],
    *,
    unfit: Callable[[_Record], Iterable[str]] = lambda _: (),
) -> _Record | None:
    """A file of the home that is one record. None: there is none, or it has mistakes, also those of ``unfit``."""
    if not file.exists():
        return None
    read = read_yaml_file(file, shown_as=str(file), mistakes=mistakes)
    if read is None:
        return None
    found: list[str] = []
    settings = convert_document(record, read.value, place="", mistakes=found)
    if settings is not None:
        found.extend(unfit(settings))
    mistakes.extend(read.lines.locate([mistake.lstrip(".") for mistake in found]))  # the file is the record itself
    return None if found else settings


def _patterns_of(document: SourceDocument) -> Mapping[str, int]:
    """How many regular expressions each list of a document holds."""
    counts = {"include_tables": len(document.include_tables), "exclude_tables": len(document.exclude_tables)}
    match document:
        case MysqlDocument():
            counts["gtid_source_includes"] = len(document.gtid_source_includes)
            counts["gtid_source_excludes"] = len(document.gtid_source_excludes)
        case VitessDocument():
            counts["snapshot.include_tables"] = len(document.snapshot.include_tables)
    return counts


def _pattern_mistakes(place: str, patterns: Sequence[str]) -> Iterator[str]:
    for index, pattern in enumerate(patterns):
        yield from pattern_mistakes(f"{place}[{index}]", pattern)


def stated(record: msgspec.Struct) -> dict[str, Any]:
    """Its fields that have a value, by the document's author or by default."""
    return {name: value for name, value in msgspec.to_builtins(record).items() if value is not None}
