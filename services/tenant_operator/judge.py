"""Which tenants are in force, which documents are refused and why, which tenants leave: from Kubernetes' objects to plain
values.

A document with mistakes is refused with every one of them, and its last good version, which the operator's record holds,
stays in force. The holder of a tenant's name keeps it against a newcomer. No document stops another.
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import structlog

from libs.errors import is_of_all, refusal_of
from libs.tenants.config_map import DELETE, DELETE_TOPICS, DOCUMENT_KEY, KEEP, ON_DELETE_ANNOTATION, TENANT_LABEL
from libs.tenants.document import CheckKey, key_mistakes, no_keys_checked, parse_tenant, read_tenant
from libs.tenants.known_tables import KnownTables
from libs.tenants.place import source_mistakes, warehouse_mistakes
from libs.tenants.row_filter import condition_mistakes
from libs.tenants.topic_need import quota_mistakes
from libs.tenants.topic_quotas import NO_TOPIC_QUOTAS, TopicQuotaSettings
from libs.types.table import TableSchema
from libs.types.tenant import TenantSpec
from services.tenant_operator.joining import NOTHING_NOTICED, joining_mistakes
from services.tenant_operator.moves import NEVER_MOVED, own_job
from services.tenant_operator.objects import (
    PASSWORD_KEY,
    PLAN_ANNOTATION,
    SECRET_ANNOTATION,
    SINK_JOB_ANNOTATION,
    Credentials,
    Origin,
    TenantConfigMap,
    TenantRecord,
)
from services.tenant_operator.refusals import without_silent
from services.tenant_operator.settings import ANY_NAMESPACE, JoiningSettings, TenantNames
from services.tenant_operator.table_fit import fit_mistakes, idle_mistakes, is_new

log = structlog.get_logger()

Parsed = tuple[TenantSpec | None, tuple[str, ...]]
"""A document, or every mistake in it."""
Parse = Callable[[str], Parsed]

NO_TABLES: Final[Mapping[str, Sequence[TableSchema]]] = {}
_ALL_SECRETS: Final[Mapping[str, Collection[str]]] = {}
PACKED: Final = "packed"
OWN: Final = "own"
_GRANTED_IN: Final = "topicQuotas of the release's values"
_OF_JOBS: Final = " of this mesh's Spark jobs ('sink: null' has topics alone)"


@lru_cache(maxsize=10_000)  # every document is asked for at every look: read once each, as long as there are not more
def parse_document(text: str) -> Parsed:
    """A tenant's document, from its YAML. Row filters are judged too: one that the router refuses must not look as if in
    force. Keys of masks are judged after it (``judge``): they come and go while the text stays.
    """
    mistakes: list[str] = []
    spec = parse_tenant(text, mistakes=mistakes, check_condition=condition_mistakes)
    return spec, tuple(mistakes)


@dataclass(frozen=True, slots=True)
class InForce:
    """A tenant whose document holds, the newest or the last good one."""

    spec: TenantSpec
    record: TenantRecord
    """As it should be; ``resource_version`` is that of the one to replace."""
    is_recorded: bool
    """The record is in Kubernetes as it should be."""
    config_map: TenantConfigMap
    credentials: Credentials | None
    """None: the Secret is away; the user stays as it is."""
    wants_own_job: bool
    is_free_to_promote: bool = False
    """Nobody has said which job it is to have."""

    @property
    def tenant(self) -> str:
        """Its name."""
        return self.spec.tenant


@dataclass(frozen=True, slots=True)
class Refused:
    """A ConfigMap that is not in force as it stands."""

    config_map: TenantConfigMap
    mistakes: tuple[str, ...]
    tenant: str | None
    """Whose last good version stays in force; None: there is none."""
    is_kept: bool = False
    """There was one, and it is good no more, as a release judges that is stricter than the one that took it."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A ConfigMap with a good document that does not come into force while its plan is requested."""

    would_be: InForce
    """The tenant, were it."""
    in_force: TenantSpec | None
    """The document that stays in force; None: there is none."""
    tables: Mapping[str, KnownTables]
    """Of the sources that a new document names; of one that is not there, nothing is known."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A tenant that goes."""

    tenant: str
    record: TenantRecord
    config_map: TenantConfigMap | None
    """None: it is gone, or carries our label no longer."""
    deletes_topics: bool
    deletes_tables: bool
    has_let_go: bool = True
    """No Spark job writes its tables any more, and those that were to go are gone; its topics may go then."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How the tenants stand."""

    in_force: tuple[InForce, ...] = ()
    """By name."""
    left_out: tuple[InForce, ...] = ()
    """Tenants that this look leaves alone, because something failed. Everything of them stays."""
    kept: tuple[TenantRecord, ...] = ()
    """Of whom nothing can be judged: their topics, users and places in Spark jobs stay as they are."""
    refused: tuple[Refused, ...] = ()
    planned: tuple[Planned, ...] = ()
    leaving: tuple[Leaving, ...] = ()
    released: tuple[TenantConfigMap, ...] = ()
    """Deleted, and never in force: nothing of theirs is to be cleared away."""


def judge(
    config_maps: Sequence[TenantConfigMap],
    secrets: Mapping[tuple[str, str], Credentials | None],
    records: Sequence[TenantRecord],
    *,
    parse: Parse,
    check_key: CheckKey = no_keys_checked,
    joining: JoiningSettings | None = None,
    sources: Sequence[str] | None = None,
    warehouses: Sequence[str] | None = None,
    tenant_names: Sequence[TenantNames] = (),
    named_secrets: Mapping[str, Collection[str]] = _ALL_SECRETS,
    topic_quotas: TopicQuotaSettings = NO_TOPIC_QUOTAS,
    tables: Mapping[str, Sequence[TableSchema]] = NO_TABLES,
    known_tables: Mapping[str, Sequence[TableSchema]] = NO_TABLES,
    unseen: Set[str] = frozenset(),
    now_us: int = 0,
    largest_document_bytes: int,
) -> Standing:
    """How the tenants stand. ``secrets`` are by namespace and name; None: it holds no password. ``check_key``: why routers
    lack the key of a tenant's mask. ``sources`` and ``warehouses``: those that there are; None: nobody knows.
    ``tenant_names``: which namespace may claim which names; none: any may claim any. ``named_secrets``: by namespace, the
    only Secrets there that the operator looks at; a namespace that is not among them has all of its labelled ones looked at.
    ``tables``: of sources, for documents that are new; of one that is not there, nothing is judged. ``known_tables``: the
    same, with those that its reader leaves out. ``unseen``: namespaces of which nothing is known: an absence means nothing
    there. ``now_us``: refusals of routers that are gone are over by then.
    """
    config_maps = [each for each in config_maps if each.origin.namespace not in unseen]
    captured = {source: KnownTables(found) for source, found in tables.items()}
    known = {source: KnownTables(found) for source, found in known_tables.items()}
    recorded = {record.origin.uid: record for record in records}
    owners: dict[str, Origin] = {record.tenant: record.origin for record in records}
    in_force, refused, planned, leaving, kept, released = [], [], [], [], [], []
    seen = set()
    for config_map in sorted(
        config_maps, key=lambda each: (each.origin.uid not in recorded, each.created_at, each.origin.uid)
    ):
        record = recorded.get(config_map.origin.uid)
        if config_map.is_leaving:
            if record is None:
                released.append(config_map)
            continue
        seen.add(config_map.origin.uid)
        mistakes = [f"{DOCUMENT_KEY}: {mistake}" for mistake in _sizes(config_map, largest_document_bytes)]
        spec = None
        if config_map.text is not None and not mistakes:
            text, is_other = config_map.text, is_new(config_map, record)

            def judged(text: str = text, is_other: bool = is_other) -> Parsed:
                spec, found_mistakes = parse(text)
                if spec is not None:
                    found_mistakes = _world_mistakes(
                        text, spec, check_key, joining, sources=sources, warehouses=warehouses
                    )
                if spec is not None and not found_mistakes and is_other:
                    too_many = quota_mistakes(
                        spec,
                        captured,
                        topic_quotas.of(spec.tenant),
                        topic_quotas.partitions_of(spec.tenant),
                        granted_in=_GRANTED_IN,
                    )
                    idle = idle_mistakes(spec, known)
                    found_mistakes = _located(text, (*idle, *fit_mistakes(spec, captured), *too_many))
                return spec, found_mistakes

            spec, found_mistakes = _contained(judged, config_map)
            mistakes.extend(f"{DOCUMENT_KEY}: {mistake}" for mistake in found_mistakes)
        mistakes.extend(_claim_mistakes(config_map, spec, record, owners))
        mistakes.extend(_namespace_mistakes(config_map, spec, tenant_names))
        mistakes.extend(_choice_mistakes(config_map))
        found = secrets.get((config_map.origin.namespace, config_map.secret_name))
        if found is None:
            is_there = (config_map.origin.namespace, config_map.secret_name) in secrets
            mistakes.append(_secret_mistake(config_map, named_secrets, is_there=is_there))
        good = None
        if spec is not None and config_map.text is not None and not mistakes:
            good = _in_force(config_map, spec, config_map.text, record, found, now_us)
        if good is not None and not config_map.is_plan:
            owners[good.tenant] = config_map.origin
            in_force.append(good)
            continue
        last_good = None if record is None else parse(record.text)[0]
        if record is not None and last_good is not None:
            in_force.append(_in_force(config_map, last_good, record.text, record, found, now_us))
        # By an earlier release it was good: its state is kept until the document is corrected.
        is_kept = record is not None and bool(record.text) and last_good is None
        if record is not None and is_kept:
            kept.append(record)
        if good is not None:
            planned.append(Planned(good, last_good, captured))
            continue
        known_tenant = None if last_good is None else last_good.tenant
        refused.append(Refused(config_map, tuple(mistakes), known_tenant, is_kept=is_kept))
    going = {config_map.origin.uid: config_map for config_map in config_maps if config_map.is_leaving}
    for record in records:
        if record.origin.namespace in unseen:
            kept.append(record)
        elif record.origin.uid not in seen:
            leaving.append(_leaving(record, going.get(record.origin.uid)))
    return Standing(
        in_force=tuple(sorted(in_force, key=lambda each: each.tenant)),
        refused=tuple(refused),
        planned=tuple(planned),
        leaving=tuple(sorted(leaving, key=lambda each: each.tenant)),
        kept=tuple(sorted(kept, key=lambda each: each.tenant)),
        released=tuple(released),
    )


def _contained(judged: Callable[[], Parsed], config_map: TenantConfigMap) -> Parsed:
    """No document stops another, with any exception."""
    try:
        return judged()
    except Exception as error:
        if is_of_all(error):
            raise
        log.exception("refused_unforeseen", config_map=str(config_map.origin))
        return None, (f"cannot be judged: {refusal_of(error)}",)


def sources_of_new(
    config_maps: Sequence[TenantConfigMap],
    records: Sequence[TenantRecord],
    *,
    parse: Parse,
    largest_document_bytes: int,
) -> set[str]:
    """The sources that new documents name, whose tables have to be known. Of a document that is too large nothing is read."""
    recorded = {record.origin.uid: record for record in records}
    new = [
        each.text
        for each in config_maps
        if each.text is not None
        and is_new(each, recorded.get(each.origin.uid))
        and not _sizes(each, largest_document_bytes)
    ]
    specs = [spec for text in new if (spec := parse(text)[0]) is not None]
    return {selection.name for spec in specs for selection in spec.sources}


def _in_force(
    config_map: TenantConfigMap,
    spec: TenantSpec,
    text: str,
    record: TenantRecord | None,
    found: Credentials | None,
    now_us: int,
) -> InForce:
    wanted = TenantRecord(
        tenant=spec.tenant,
        origin=config_map.origin,
        text=text,
        earlier=() if record is None else record.earlier_behind(text),
        password_version="" if record is None else record.password_version,
        sink_job="" if record is None else record.sink_job,
        placement=NEVER_MOVED if record is None else record.placement,
        joining=NOTHING_NOTICED if record is None else record.joining,
        refusals=() if record is None else without_silent(record.refusals, now_us),
        resource_version="" if record is None else record.resource_version,
    )
    return InForce(
        spec,
        wanted,
        is_recorded=wanted == record,
        config_map=config_map,
        credentials=found,
        wants_own_job=_wants_own_job(config_map.annotations.get(SINK_JOB_ANNOTATION), wanted),
        is_free_to_promote=SINK_JOB_ANNOTATION not in config_map.annotations,
    )


def _wants_own_job(asked: str | None, record: TenantRecord) -> bool:
    """A person's request wins over the measurement; without one, a tenant stays in its kind of job."""
    is_there = record.sink_job == own_job(record.tenant) and not record.placement.came_from
    if asked not in (PACKED, OWN):  # a refused value moves nobody
        return is_there or bool(record.placement.promoted_because)
    return asked == OWN


def _world_mistakes(
    text: str,
    spec: TenantSpec,
    check_key: CheckKey,
    joining: JoiningSettings | None,
    *,
    sources: Sequence[str] | None,
    warehouses: Sequence[str] | None,
) -> tuple[str, ...]:
    """Things that a good document asks for and cannot have here: sources, a warehouse, keys of masks, rows of sources."""
    found = (
        *(() if sources is None else source_mistakes(spec, sources, where="in this mesh")),
        *(() if warehouses is None else warehouse_mistakes(spec, warehouses, where=_OF_JOBS)),
        *key_mistakes(spec, check_key),
        *joining_mistakes(spec, joining, known=sources),
    )
    return _located(text, found)


@lru_cache(maxsize=1_000)
def _located(text: str, mistakes: tuple[str, ...]) -> tuple[str, ...]:
    """With their lines in a good document."""
    if not mistakes:
        return ()
    parsed = read_tenant(text, mistakes=[])
    return mistakes if parsed is None else tuple(parsed.lines.locate(mistakes))


def _sizes(config_map: TenantConfigMap, largest_bytes: int) -> list[str]:
    if config_map.text is None:
        return ["the ConfigMap has no such key; put the tenant's document there"]
    size = len(config_map.text.encode())
    return [f"has {size} bytes; at most {largest_bytes} are taken"] if size > largest_bytes else []


def _claim_mistakes(
    config_map: TenantConfigMap, spec: TenantSpec | None, record: TenantRecord | None, owners: Mapping[str, Origin]
) -> list[str]:
    if spec is None:
        return []
    if record is not None and record.tenant != spec.tenant:
        return [
            f"{DOCUMENT_KEY}: tenant: was {record.tenant!r}, and a tenant cannot be renamed: its topics, user and tables have "
            "its name; make another ConfigMap for the new one"
        ]
    owner = owners.get(spec.tenant)
    if owner is not None and owner.uid != config_map.origin.uid:
        return [
            f"{DOCUMENT_KEY}: tenant: {spec.tenant!r} is claimed by ConfigMap {owner} already, with everything that begins "
            f"with '{spec.tenant}.'; take another name"
        ]
    return []


def _namespace_mistakes(
    config_map: TenantConfigMap, spec: TenantSpec | None, tenant_names: Sequence[TenantNames]
) -> list[str]:
    if spec is None or not tenant_names:
        return []
    namespace = config_map.origin.namespace
    by_name = {each.namespace: each for each in tenant_names}
    names = by_name.get(namespace, by_name.get(ANY_NAMESPACE))
    if names is not None and names.may_claim(namespace, spec.tenant):
        return []
    may = "it may claim none" if names is None else f"its names match {' or '.join(names.of(namespace)) or 'nothing'}"
    return [
        f"{DOCUMENT_KEY}: tenant: namespace {namespace} may not claim {spec.tenant!r}: {may}; take such a name, apply this in "
        "the namespace that the name is for, or have it added to tenantOperator.tenantNames of the release's values"
    ]


def _choice_mistakes(config_map: TenantConfigMap) -> list[str]:
    return [
        f"annotation {name}: {config_map.annotations[name]!r} is none of {', '.join(choices)}"
        for name, choices in (
            (ON_DELETE_ANNOTATION, (KEEP, DELETE_TOPICS, DELETE)),
            (SINK_JOB_ANNOTATION, (PACKED, OWN)),
            (PLAN_ANNOTATION, ("false", "true")),
        )
        if config_map.annotations.get(name, choices[0]) not in choices
    ]


def _secret_mistake(
    config_map: TenantConfigMap, named_secrets: Mapping[str, Collection[str]], *, is_there: bool
) -> str:
    namespace = config_map.origin.namespace
    name = f"Secret {namespace}/{config_map.secret_name}"
    if config_map.secret_name not in named_secrets.get(namespace, (config_map.secret_name,)):
        return (
            f"{name}: the operator looks at no Secret of this namespace that the release does not name; have "
            f"tenantOperator.tenantSecrets.{namespace} name it"
        )
    if is_there:
        return f"{name}: has no {PASSWORD_KEY!r}, the password of the tenant's Kafka user"
    return (
        f"{name}: is missing, or lacks the label {TENANT_LABEL}=true; create it with {PASSWORD_KEY!r}, the password of the "
        f"tenant's Kafka user, or name another in the annotation {SECRET_ANNOTATION}"
    )


def _leaving(record: TenantRecord, config_map: TenantConfigMap | None) -> Leaving:
    """Data is removed on request only: of a ConfigMap that vanished, topics and tables stay."""
    choice = KEEP if config_map is None else config_map.annotations.get(ON_DELETE_ANNOTATION, KEEP)
    deletes_tables = choice == DELETE and bool(record.sink_job)
    return Leaving(
        record.tenant,
        record,
        config_map,
        deletes_topics=choice in (DELETE, DELETE_TOPICS),
        deletes_tables=deletes_tables,
        has_let_go=not deletes_tables,
    )
