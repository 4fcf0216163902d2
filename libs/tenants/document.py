"""Tenant documents: a folder of YAML files into ``TenantSpec`` records, each judged by itself.

The router (and every other user of the tenants) calls ``TenantFolder.refresh`` once a second. A document with
mistakes is refused with every mistake listed, by file and line, and its last good version stays in force; it neither stops
nor changes another tenant. The last good versions are also copied into a state folder, so they survive a restart.

A folder holds ``<tenant>/tenant.yaml`` or ``<tenant>.yaml``; names that begin with a dot are passed over, because Kubernetes
mounts a ConfigMap through such links (Kubernetes documentation, "ConfigMaps", mounted ConfigMaps).
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from libs.config.bounds import bound_mistakes
from libs.config.load import convert_document
from libs.config.patterns import count_mistakes, pattern_mistakes, steps_mistakes
from libs.config.yaml_text import DocumentLines, parse_yaml, read_text
from libs.durable_file import replace_durably
from libs.errors import InvalidSettings, is_of_all, refusal_of
from libs.events.names import own_topics, row_topic
from libs.types.table import TableId
from libs.types.table_layout import TableLayout, parse_ordered_term, parse_term
from libs.types.tenant import (
    TENANT_NAME,
    ColumnMask,
    Consistency,
    Deletes,
    EventFormat,
    FormatSettings,
    HeaderForm,
    KeyFrom,
    NameAdjustment,
    SinkMode,
    SinkSettings,
    SourceSelection,
    SourceTypes,
    TenantSpec,
    TopicLayout,
)

log = structlog.get_logger()

CheckCondition = Callable[[str], list[str]]
"""The mistakes of a row filter's condition. Given by the caller: only the router knows the language."""

CheckKey = Callable[[str, KeyFrom], str | None]
"""Why a tenant's mask cannot have its key; None: it can. Given by users of keys, or by stand-ins."""

_COLUMN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$-]{0,63}")
_RESERVED_NAMES: Final = frozenset({"headwater"})
"""Headwater's own topics begin with this."""
_TOPIC_TEMPLATE: Final = re.compile(r"([A-Za-z0-9._-]|\{\w+\}){1,200}")
_PLACEHOLDERS: Final = ("tenant", "source", "database", "table")
_LEAST_DOTS_FOR_SINKS: Final = 3
"""``topic_pattern`` of the Spark job."""
_OWN_COLUMN_PREFIX: Final = "_headwater_"
_WAYS: Final = ("hash", "constant", "truncate_chars", "keep_last", "set_null", "hmac", "format_preserving", "encrypt")
_LISTS_OF_PATTERNS: Final = (
    "include_tables",
    "exclude_tables",
    "row_filters",
    "include_columns",
    "exclude_columns",
    "masks",
    "rename_columns",
    "show_renamed",
)
_HASH_ALGORITHMS: Final = ("sha256", "sha512")


@dataclass(frozen=True, slots=True)
class RefusedDocument:
    """A document that is not in force, and why."""

    file: Path
    mistakes: tuple[str, ...]
    """Every mistake: file and line, place, cause, right form."""
    tenant: str | None
    """Whose last good version stays in force; None: there is none."""


@dataclass(frozen=True, slots=True)
class TenantSet:
    """The tenants in force, by name, and the documents that are not."""

    tenants: tuple[TenantSpec, ...] = ()
    refused: tuple[RefusedDocument, ...] = ()
    lines: Mapping[str, DocumentLines] = field(default_factory=dict)
    """The lines of each tenant's document in force."""


def no_conditions_checked(_condition: str) -> list[str]:
    """For callers that do not evaluate row filters."""
    return []


def no_keys_checked(_tenant: str, _key_from: KeyFrom) -> None:
    """For callers that have no keys."""


def nothing_else() -> object:
    """For callers that judge documents by their text alone."""
    return None


class TenantFolder:
    """The documents of one folder, followed over time. Not for use from two threads."""

    def __init__(
        self,
        folder: Path,
        *,
        state_folder: Path | None = None,
        check_condition: CheckCondition = no_conditions_checked,
        check_key: CheckKey = no_keys_checked,
        stamp_of_others: Callable[[], object] = nothing_else,
    ) -> None:
        """``stamp_of_others``: a stamp of ``check_key``'s input; when it changes, all documents are judged again."""
        self._folder = folder
        self._state = None if state_folder is None else _LastGoodDocuments(state_folder)
        self._check_condition = check_condition
        self._check_key = check_key
        self._stamp_of_others = stamp_of_others
        self._seen: dict[Path, _Stamp] | None = None
        self._seen_else: object = None
        self._documents: dict[Path, _Document] = {}
        """Those of ``_seen``."""
        self._in_force: dict[Path, ParsedTenant] = {}

    def refresh(self) -> TenantSet | None:
        """Read the changes since the last call; None without any. An unchanged document stays the same object, unless it
        was refused.

        A folder that vanishes after the first call changes nothing: a mount that fails for a while must not take every
        tenant away.

        Raises:
            InvalidSettings: at the first call, the folder does not exist; create it or mend the setting.
        """
        seen = self._stamps()
        seen_else = self._stamp_of_others()
        if seen is None or (seen == self._seen and seen_else == self._seen_else):
            return None
        before = {} if self._seen is None or seen_else != self._seen_else else self._seen
        unchanged = {
            file: document
            for file, document in self._documents.items()
            if file in before and seen.get(file) == before[file] and not document.mistakes
        }
        self._documents = {
            file: unchanged.get(file) or _read(self._folder, file, self._check_condition, self._check_key)
            for file in seen
        }
        in_force, refused = self._judge(self._documents.values(), unchanged.keys())
        self._in_force = in_force
        if self._state is not None and (self._seen is None or self._seen.keys() != seen.keys()):
            self._state.keep_only(seen)
        self._seen, self._seen_else = seen, seen_else
        good = sorted(in_force.values(), key=lambda parsed: parsed.spec.tenant)
        return TenantSet(
            tuple(parsed.spec for parsed in good),
            tuple(refused),
            {parsed.spec.tenant: parsed.lines for parsed in good},
        )

    def _stamps(self) -> "dict[Path, _Stamp] | None":
        if not self._folder.is_dir():
            if self._seen is None:
                raise InvalidSettings("tenants", [f"{self._folder}: is no folder; create it, or name another one"])
            return None
        stamps = {}
        for file in sorted(document_files(self._folder)):
            try:
                stat = file.stat()
            except OSError:  # it went away since it was listed
                continue
            stamps[file] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        return stamps

    def _judge(
        self, documents: "Collection[_Document]", stored: Collection[Path]
    ) -> tuple[dict[Path, "ParsedTenant"], list[RefusedDocument]]:
        """Which version of each file is in force. The holder of a name keeps it against a newcomer. ``stored``: those whose
        copies are there, if they are in force."""
        last_good = {document.file: self._last_good(document) for document in documents}
        held = {file: parsed.spec.tenant for file, parsed in last_good.items() if parsed is not None}
        in_force: dict[Path, ParsedTenant] = {}
        owners: dict[str, Path] = {}
        refused = []
        for document in sorted(documents, key=lambda item: (not item.keeps_name(held), item.file)):
            mistakes, parsed = list(document.mistakes), document.parsed
            if parsed is not None and parsed.spec.tenant in owners:
                name = parsed.spec.tenant
                mistakes += parsed.lines.locate([f"tenant: {name!r} is claimed by {owners[name]} already"])
                parsed = None
            is_stored = document.file in stored and self._in_force.get(document.file) is parsed
            if parsed is not None and self._state is not None and not is_stored:
                self._state.store(document.file, document.text)
            if parsed is None:
                parsed = last_good[document.file]
                if parsed is not None and parsed.spec.tenant in owners:
                    parsed = None
                refused.append(
                    RefusedDocument(document.file, tuple(mistakes), parsed.spec.tenant if parsed is not None else None)
                )
            if parsed is not None:
                in_force[document.file] = parsed
                owners[parsed.spec.tenant] = document.file
        return in_force, refused

    def _last_good(self, document: "_Document") -> "ParsedTenant | None":
        """The document in force for a file: in this process, else before its start.

        It stays so without its keys: events that cannot be masked are set aside; without a tenant they would be lost to it.
        """
        if document.file in self._in_force:
            return self._in_force[document.file]
        text = None if self._state is None else self._state.load(document.file)
        if text is None:
            return None
        return read_tenant(text, file=document.shown_as, mistakes=[], check_condition=self._check_condition)


_Stamp = tuple[int, int, int]
"""Modification time, size and inode: a file replaced in the same instant has another inode."""


@dataclass(frozen=True, slots=True)
class _Document:
    file: Path
    shown_as: str
    """In mistakes: the path within the folder."""
    text: str
    parsed: "ParsedTenant | None"
    mistakes: tuple[str, ...]

    def keeps_name(self, held: Mapping[Path, str]) -> bool:
        """The document is good or bad, but its tenant is the one that the file had."""
        if self.file not in held:
            return False
        return self.parsed is None or self.parsed.spec.tenant == held[self.file]


def document_files(folder: Path) -> Iterable[Path]:
    """The files of a folder that are tenants' documents, in no order."""
    for entry in folder.iterdir():
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if (entry / "tenant.yaml").is_file():
                yield entry / "tenant.yaml"
        elif entry.suffix == ".yaml":
            yield entry


def _read(folder: Path, file: Path, check_condition: CheckCondition, check_key: CheckKey) -> _Document:
    mistakes: list[str] = []
    shown_as = str(file.relative_to(folder))
    text = read_text(file, shown_as=shown_as, mistakes=mistakes)
    parsed = (
        None
        if text is None
        else read_tenant(text, file=shown_as, mistakes=mistakes, check_condition=check_condition, check_key=check_key)
    )
    return _Document(file, shown_as, text or "", parsed, tuple(mistakes))


@dataclass(frozen=True, slots=True)
class ParsedTenant:
    """A good document."""

    spec: TenantSpec
    lines: DocumentLines


def read_tenant(
    text: str,
    *,
    file: str = "",
    mistakes: list[str],
    check_condition: CheckCondition = no_conditions_checked,
    check_key: CheckKey = no_keys_checked,
) -> ParsedTenant | None:
    """A tenant's document; None when anything is wrong, with every mistake appended: file and line, place, cause.

    ``file``: as mistakes shall name it; empty: they begin with ``line 12:``.
    """
    found: list[str] = []
    lines = DocumentLines(file)
    try:
        document = parse_yaml(text, file=file, mistakes=mistakes)
        if document is None:
            return None
        lines = document.lines
        spec = convert_document(TenantSpec, document.value, place="", mistakes=found)
        if spec is not None:
            found.extend(_tenant_mistakes(spec, check_condition))
            found.extend(key_mistakes(spec, check_key))
    except Exception as error:
        if is_of_all(error):
            raise
        log.exception("refused_unforeseen", file=file)
        spec, found = None, [*found, f"document: cannot be judged: {refusal_of(error)}"]
    mistakes.extend(lines.locate(found))
    return None if spec is None or found else ParsedTenant(spec, lines)


def parse_tenant(
    text: str, *, mistakes: list[str], check_condition: CheckCondition = no_conditions_checked
) -> TenantSpec | None:
    """As ``read_tenant``, for callers without a need of lines."""
    parsed = read_tenant(text, mistakes=mistakes, check_condition=check_condition)
    return None if parsed is None else parsed.spec


def _tenant_mistakes(spec: TenantSpec, check_condition: CheckCondition) -> Iterable[str]:
    patterns = _patterns_of(spec)
    if too_many := [*count_mistakes({place: len(own) for place, own in patterns.items()})]:  # judging each takes long
        yield from too_many
        return
    yield from steps_mistakes(patterns)
    if not re.fullmatch(TENANT_NAME, spec.tenant) or spec.tenant in _RESERVED_NAMES:
        yield (
            f"tenant: {spec.tenant!r} is no tenant's name; take 1 to 40 lower-case letters, digits and '-', "
            "beginning and ending with a letter or digit, other than 'headwater'"
        )
    if not spec.sources:
        yield "sources: name at least one source"
    names = [source.name for source in spec.sources]
    for index, source in enumerate(spec.sources):
        if names.index(source.name) != index:
            yield f"sources[{index}].name: {source.name!r} stands here twice; join the two"
        for mistake in _source_mistakes(source, check_condition):
            yield f"sources[{index}].{mistake}"
    for mistake in (*_format_mistakes(spec.format), *_registered_mistakes(spec), *_header_mistakes(spec)):
        yield f"format.{mistake}"
    for mistake in _topic_mistakes(spec):
        yield f"topics.{mistake}"
    if spec.sink is not None:
        for mistake in (*_sink_mistakes(spec.sink), *_consistency_mistakes(spec, spec.sink)):
            yield f"sink.{mistake}"
    yield from bound_mistakes(spec)


def _patterns_of(spec: TenantSpec) -> Mapping[str, Sequence[str]]:
    """The regular expressions that each list of a document holds; a list that it leaves out is not its own."""
    unsaid = SourceSelection(name="")
    patterns = {
        f"sources[{index}].{name}": _texts(getattr(source, name))
        for index, source in enumerate(spec.sources)
        for name in _LISTS_OF_PATTERNS
        if getattr(source, name) != getattr(unsaid, name)
    }
    patterns |= {
        f"format.source_types.{name}": getattr(spec.format.source_types, name) for name in ("columns", "types")
    }
    if spec.sink is not None:
        patterns["sink.tracked_columns"] = spec.sink.tracked_columns
        patterns["sink.json_as_variant"] = spec.sink.json_as_variant
        patterns["sink.layouts"] = _texts(spec.sink.layouts)
        patterns["sink.schema_changes.rules"] = _texts(spec.sink.schema_changes.rules)
    return patterns


def _texts(rules: Iterable[object]) -> tuple[str, ...]:
    """The pattern of each: itself, or the tables or columns that it is for."""
    found = (
        rule if isinstance(rule, str) else getattr(rule, "tables", None) or getattr(rule, "columns", "")
        for rule in rules
    )
    return tuple(map(str, found))


def _topic_mistakes(spec: TenantSpec) -> Iterable[str]:
    if spec.topics.layout is TopicLayout.PER_TENANT:
        if spec.sink is not None:
            yield "layout: a sink reads a topic for each table; take per_table, or set sink: null"
        if spec.format.tombstones:
            yield (
                "layout: a tombstone is a key alone, and in a topic of several tables a key does not say whose it is; set "
                "format.tombstones: false"
            )
    if spec.topics.name is not None:
        yield from (f"name: {mistake}" for mistake in _name_mistakes(spec, spec.topics.name))


def _name_mistakes(spec: TenantSpec, name: str) -> Iterable[str]:
    """Of a template. A tenant's own name stands in front of every template: none reaches another's topics."""
    if not _TOPIC_TEMPLATE.fullmatch(name):
        yield (
            f"{name!r} is no template; take {{tenant}}, {{source}}, {{database}} and {{table}} between letters, digits "
            "and '._-'"
        )
        return
    used = re.findall(r"{(\w+)}", name)
    for placeholder in used:
        if placeholder not in _PLACEHOLDERS:
            yield f"{{{placeholder}}} is none of {', '.join(f'{{{each}}}' for each in _PLACEHOLDERS)}"
            return
    if len(set(used)) != len(used):
        yield "a placeholder stands here twice; take it once"
    if not name.startswith("{tenant}.") or name.startswith("{tenant}.headwater."):
        yield "must begin with '{tenant}.', and '{tenant}.headwater.' is taken: a tenant's topics begin with its name"
    if "}{" in name:
        yield "put '.', '-' or '_' between placeholders, or two tables could share a topic"
    if spec.topics.layout is TopicLayout.PER_TENANT:
        if set(used) != {"tenant"}:
            yield "layout per_tenant has one topic for all tables; leave {source}, {database} and {table} out"
        topic = row_topic(spec.tenant, "", TableId(database="", table=""), name)
        if topic in own_topics(spec.tenant, (source.name for source in spec.sources)):
            yield f"{topic!r} is a topic of another kind; take another name"
        return
    wanted = ["database", "table"] + ["source"] * (len(spec.sources) > 1)
    if missing := [f"{{{each}}}" for each in wanted if each not in used]:
        yield f"must hold {' and '.join(missing)}, or two tables share a topic"
    if spec.sink is not None and name.count(".") < _LEAST_DOTS_FOR_SINKS:
        yield (
            "a sink knows row topics by three dots, as in '{tenant}.{source}.{database}.{table}'; put more dots, "
            "or set sink: null"
        )


def key_mistakes(spec: TenantSpec, check_key: CheckKey) -> Iterable[str]:
    """Keys that are not there, or are another tenant's."""
    for number, source in enumerate(spec.sources):
        for index, mask in enumerate(source.masks):
            if mask.key_from is not None and (mistake := check_key(spec.tenant, mask.key_from)) is not None:
                way = next(name for name in ("hmac", "format_preserving", "encrypt") if getattr(mask, name) is not None)
                yield f"sources[{number}].masks[{index}].{way}.key_from: {mistake}"


def _sink_mistakes(sink: SinkSettings) -> Iterable[str]:
    if sink.trigger_max_s is not None and sink.trigger_max_s < sink.trigger_s:
        yield f"trigger_max_s: must be trigger_s, {sink.trigger_s:g} seconds, or more"
    if sink.deletes is Deletes.SOFT and sink.mode is not SinkMode.MIRROR:
        yield f"deletes: soft is for mode mirror; a table of mode {sink.mode.value} keeps deleted rows anyway: leave it out"
    if sink.tracked_columns != SinkSettings().tracked_columns and sink.mode is not SinkMode.HISTORY:
        yield f"tracked_columns: is for mode history; mode {sink.mode.value} knows no versions: leave it out"
    for index, rule in enumerate(sink.schema_changes.rules):
        yield from pattern_mistakes(f"schema_changes.rules[{index}].tables", rule.tables)
        if any(
            not other.changes and other.tables in (".*", rule.tables) for other in sink.schema_changes.rules[:index]
        ):
            yield f"schema_changes.rules[{index}]: a rule before it is for all of its changes already: put it first"
    for index, pattern in enumerate(sink.tracked_columns):
        yield from pattern_mistakes(f"tracked_columns[{index}]", pattern)
    if sink.json_as_variant and sink.warehouse not in ("delta", "iceberg"):
        yield f"json_as_variant: is for warehouses delta and iceberg; {sink.warehouse} keeps the document's text: leave it out"
    for index, pattern in enumerate(sink.json_as_variant):
        yield from pattern_mistakes(f"json_as_variant[{index}]", pattern)
    if sink.layouts and sink.warehouse != "iceberg":
        yield f"layouts: are for warehouse iceberg; {sink.warehouse} lays its tables out by itself: leave them out"
    for index, layout in enumerate(sink.layouts):
        yield from (f"layouts[{index}].{mistake}" for mistake in _layout_mistakes(layout))


def _consistency_mistakes(spec: TenantSpec, sink: SinkSettings) -> Iterable[str]:
    if sink.consistency is not Consistency.TRANSACTION:
        return
    if sink.warehouse not in ("iceberg", "postgresql"):
        yield (
            f"consistency: transaction is for warehouses iceberg and postgresql; {sink.warehouse} commits each table by "
            "itself: take one of these, or leave it out"
        )
    if not spec.topics.transactions:
        yield "consistency: transaction needs the END of each transaction; set topics.transactions: true"
    if len(spec.sources) > 1:
        yield "consistency: no transaction spans two sources; give each source a tenant of its own, or leave it out"


def _layout_mistakes(layout: TableLayout) -> Iterable[str]:
    yield from pattern_mistakes("tables", layout.tables)
    for name, parse in (("partition_by", parse_term), ("sort_by", parse_ordered_term)):
        for index, text in enumerate(getattr(layout, name)):
            try:
                parse(text)
            except ValueError as error:
                yield f"{name}[{index}]: {error}"


def _format_mistakes(event_format: FormatSettings) -> Iterable[str]:
    chosen = event_format.source_types
    for name in ("columns", "types"):
        for index, pattern in enumerate(getattr(chosen, name)):
            yield from pattern_mistakes(f"source_types.{name}[{index}]", pattern)
    if event_format.kind is EventFormat.PROTOBUF and chosen != SourceTypes():
        yield "source_types: Protobuf's schemas have no place for them; take kind: avro, or leave them out"
    if event_format.schemas or event_format.kind is not EventFormat.JSON:
        return
    if chosen != SourceTypes():
        yield (
            "source_types: stand in Connect schemas, which format.schemas: true writes; set it or kind: avro, or leave them out"
        )
    if event_format.schema_names is not NameAdjustment.NONE:
        yield (
            "schema_names: are of Connect schemas, which format.schemas: true writes; set it or kind: avro, or leave them out"
        )


def _header_mistakes(spec: TenantSpec) -> Iterable[str]:
    if spec.format.headers is HeaderForm.TEXT:
        return
    if not spec.format.schemas:
        yield "headers: json holds Connect schemas, which format.schemas: true writes; set it, or take text"
    if spec.sink is not None:
        yield "headers: a sink reads text; take it, or set sink: null"


def _registered_mistakes(spec: TenantSpec) -> Iterable[str]:
    """Of a format whose schemas lie in a registry."""
    kind = spec.format.kind
    if kind is EventFormat.JSON:
        return
    if spec.format.schemas:
        yield f"schemas: is for kind json; the schemas of {kind.value} lie in the registry: leave it out"
    if spec.sink is not None:
        yield f"kind: a sink reads json, and {kind.value} is for consumers of your own; set sink: null, or take json"
    if spec.topics.layout is TopicLayout.PER_TENANT:
        yield (
            f"kind: {kind.value} has one schema for a topic's values, and layout per_tenant puts all tables into one; take "
            "layout per_table, or json"
        )


def _source_mistakes(source: SourceSelection, check_condition: CheckCondition) -> Iterable[str]:
    if not source.name:
        yield "name: must not be empty"
    for name in ("include_tables", "exclude_tables", "include_columns", "exclude_columns", "show_renamed"):
        for index, pattern in enumerate(getattr(source, name)):
            yield from pattern_mistakes(f"{name}[{index}]", pattern)
    for index, row_filter in enumerate(source.row_filters):
        yield from pattern_mistakes(f"row_filters[{index}].tables", row_filter.tables)
        for mistake in check_condition(row_filter.where):
            yield f"row_filters[{index}].where: {mistake}"
    for index, mask in enumerate(source.masks):
        for mistake in _mask_mistakes(mask):
            yield f"masks[{index}].{mistake}"
    for index, rename in enumerate(source.rename_columns):
        yield from pattern_mistakes(f"rename_columns[{index}].columns", rename.columns)
        if not _COLUMN_NAME.fullmatch(rename.to) or rename.to.lower().startswith(_OWN_COLUMN_PREFIX):
            yield (
                f"rename_columns[{index}].to: {rename.to!r} is no name for a column; take letters, digits, '_', '$' and '-', "
                f"at most 64, beginning with a letter or '_', and not with {_OWN_COLUMN_PREFIX!r}"
            )


def _mask_mistakes(mask: ColumnMask) -> Iterable[str]:
    yield from pattern_mistakes("columns", mask.columns)
    ways = [name for name in _WAYS if getattr(mask, name) is not None and getattr(mask, name) is not False]
    if len(ways) != 1:
        given = f", not {' and '.join(ways)}" if ways else ""
        yield f"{ways[-1] if ways else 'hash'}: give exactly one of {', '.join(_WAYS[:-1])} and {_WAYS[-1]}{given}"
    if mask.hmac is not None and mask.hmac.algorithm not in _HASH_ALGORITHMS:
        yield f"hmac.algorithm: {mask.hmac.algorithm!r} is none of {', '.join(_HASH_ALGORITHMS)}"
    if mask.key_from is not None and (mask.key_from.file is None) == (mask.key_from.env is None):
        yield f"{ways[-1]}.key_from: give either file or env"
    if mask.hash is not None:
        if mask.hash.algorithm not in _HASH_ALGORITHMS:
            yield f"hash.algorithm: {mask.hash.algorithm!r} is none of {', '.join(_HASH_ALGORITHMS)}"
        if not mask.hash.salt:
            yield "hash.salt: must not be empty, or anybody can guess values by hashing them"


class _LastGoodDocuments:
    """The newest good text of each document, in a folder of our own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, document: Path) -> str | None:
        try:
            return self._copy_of(document).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def store(self, document: Path, text: str) -> None:
        copy = self._copy_of(document)
        if self.load(document) == text:
            return
        replace_durably(copy, text.encode())

    def keep_only(self, documents: Iterable[Path]) -> None:
        """A document that was taken away is gone: its tenant shall not come back at a restart."""
        kept = {self._copy_of(document) for document in documents}
        for copy in self._folder.glob("*.yaml"):
            if copy not in kept:
                copy.unlink(missing_ok=True)

    def _copy_of(self, document: Path) -> Path:
        digest = hashlib.sha256(str(document.absolute()).encode()).hexdigest()[:16]
        return self._folder / f"{document.parent.name}-{document.stem}-{digest}.yaml"
