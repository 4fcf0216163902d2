"""The documents in a home folder, read and judged: ``sources/*.yaml`` and ``tenants/*.yaml``.

``headwater up`` and ``validate`` call this. Every mistake of every document is listed at once. A mistake in a
tenant's document stops no other tenant (design: Tenants); one in a source's document stops ``up``, since nothing
could follow that source.
"""

import difflib
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from libs.config.connections import KafkaAccess
from libs.config.load import Secret, convert_document
from libs.config.tenants import TenantFolder, TenantSet
from libs.local.home import Home
from libs.source.failure_handling import FailureHandling
from libs.source.mysql.settings import SnapshotMode
from libs.types.tenant import TenantSpec
from libs.types.value_modes import ValueModes

NAME_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
"""A source's name stands in topic names, in process names and in file names."""

KINDS: Final = ("mysql", "dts")
SNAPSHOT_MODES: Final = tuple(mode.value for mode in SnapshotMode)
DTS_SNAPSHOT_MODES: Final = ("initial", "no_data")


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


class SubscriptionDocument(KafkaAccess, frozen=True, kw_only=True):
    """A Tencent DTS subscription of the database, as DTS's console shows it (docs/dts.md)."""

    topic: str
    group_id: str
    partition: int = 0
    """The embedded stack reads one Kafka partition of a subscription."""


class SourceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """``sources/<name>.yaml``."""

    database: DatabaseSettings
    kind: str = "mysql"
    """``mysql``: the database's own log; ``dts``: a Tencent DTS subscription of it."""
    subscription: SubscriptionDocument | None = None
    """With ``dts`` only."""
    include_tables: tuple[str, ...] = (".*",)
    exclude_tables: tuple[str, ...] = ()
    replica_server_id: int | None = None
    """None: derived from the document's path, so that two stacks on one server do not evict each other."""
    snapshot: SnapshotSettings = SnapshotSettings()
    values: ValueModes = ValueModes()
    """Which of Debezium's forms times, decimals, unsigned BIGINTs and bytes take."""
    signal_table: str | None = None
    """``database.table`` whose inserted rows are signals; see docs/snapshots.md."""
    failure_handling: FailureHandling = FailureHandling.FAIL
    """What becomes of a row that cannot be decoded."""
    transaction_metadata: bool = False


@dataclass(frozen=True, slots=True)
class Documents:
    """All good documents of a home by name, and the mistakes of the others."""

    sources: Mapping[str, SourceDocument]
    tenants: Mapping[str, TenantSpec]
    source_mistakes: tuple[str, ...]
    tenant_mistakes: tuple[str, ...]


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
    return Documents(sources, tenants, tuple(source_mistakes), tuple(tenant_mistakes))


def replica_server_id(path: Path, document: SourceDocument) -> int:
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


def _not_of_dts(document: SourceDocument) -> list[str]:
    """What the DTS decoder does not have: it must not be passed over."""
    found = []
    if document.snapshot.mode in SNAPSHOT_MODES and document.snapshot.mode not in DTS_SNAPSHOT_MODES:
        known = " or ".join(DTS_SNAPSHOT_MODES)
        found.append(f"snapshot.mode: {document.snapshot.mode!r} is for kind 'mysql'; a DTS subscription has {known}")
    unset = SnapshotSettings()
    for name in ("readers", "incremental_chunk_rows", "select_overrides", "max_replica_lag_s"):
        if getattr(document.snapshot, name) != getattr(unset, name):
            found.append(f"snapshot.{name}: is for kind 'mysql'; leave it out")
    if document.signal_table is not None:
        found.append("signal_table: is for kind 'mysql'; leave it out")
    return found


def _read_source(path: Path, mistakes: list[str]) -> SourceDocument | None:
    found: list[str] = []
    document = convert_document(SourceDocument, _parse(path, found), place="", mistakes=found) if not found else None
    if not NAME_PATTERN.fullmatch(path.stem):
        found.append(f"file name {path.name!r}: a source's name is lower-case letters, digits and '-', at most 40")
    if document is not None:
        if document.kind not in KINDS:
            found.append(f"kind: {document.kind!r} cannot be followed; known: {', '.join(KINDS)}")
        elif document.kind == "dts" and document.subscription is None:
            found.append("subscription: is missing, and kind is 'dts' (docs/dts.md)")
        elif document.kind != "dts" and document.subscription is not None:
            found.append(f"subscription: is for kind 'dts', and kind is {document.kind!r}")
        if not 0 < document.database.port < 65_536:
            found.append(f"database.port: {document.database.port} is no port")
        if document.snapshot.mode not in SNAPSHOT_MODES:
            mode = document.snapshot.mode
            found.append(f"snapshot.mode: {mode!r} is unknown; {nearest(mode, SNAPSHOT_MODES)}")
        for name in ("chunk_rows", "incremental_chunk_rows", "readers"):
            if getattr(document.snapshot, name) < 1:
                found.append(f"snapshot.{name}: must be at least 1")
        if document.kind == "dts":
            found.extend(_not_of_dts(document))
        for name in ("include_tables", "exclude_tables"):
            found.extend(_bad_patterns(name, getattr(document, name)))
    mistakes.extend(f"{path}: {mistake}" for mistake in found)
    return None if found else document


def _read_tenants(home: Home, known_sources: Sequence[str], mistakes: list[str]) -> dict[str, TenantSpec]:
    """By the same code as the router and the sink; what they cannot see, a source that is not there, besides."""
    if not home.tenants_dir.is_dir():
        return {}
    found = TenantFolder(home.tenants_dir).refresh() or TenantSet()
    mistakes.extend(f"{home.tenants_dir}/{mistake}" for refused in found.refused for mistake in refused.mistakes)
    for spec in found.tenants:
        for index, selection in enumerate(spec.sources):
            if selection.name not in known_sources:
                mistakes.append(
                    f"{home.tenants_dir}: tenant {spec.tenant}: sources[{index}].name: no source {selection.name!r} in "
                    f"sources/; {nearest(selection.name, known_sources)}"
                )
    return {spec.tenant: spec for spec in found.tenants}


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
