"""Refusals to tenants: tables, found by lanes, documents, and records that cannot be written; kept by
tenant_operator, which reports them to teams.

A router itself knows its findings since its start. The operators hold those of others, and its earlier ones: they are asked
every few seconds, so a refusal ends by whichever router meets the table when it is over, gets the document that mends
it, or finds that the schema registry takes the schema now, Kafka the topic, that no other table has the topic any more, or that
it has a key that it lacked: these are looked at again with growing pauses.

A document is refused by one process, which alone knows the end: it reports the refusal once a minute while it stands, and
operators forget the refusals of a process that is gone.

Records that cannot be written (Kafka does not take them, or the schema registry does not answer) are tried again by the owner
of their lane, every few seconds, with all that waits after them; the next owner goes on with the reports.

Without an operator nothing is reported: standing refusals are looked at all the same.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final

import structlog
from msgspec.structs import replace

from libs.config.connections import GrpcClientSettings
from libs.errors import HeadwaterError, PipelineHalted, ServiceUnavailable, TransientError
from libs.formats.connect_schema import MYSQL_FORM, EnvelopeForm
from libs.rpc.tenants_client import TenantsClient
from libs.telemetry.faults import (
    COLUMN_REFUSED,
    TABLE_REFUSED,
    TENANT_REFUSED,
    TENANT_WAITS,
    TOPIC_REFUSED,
    FaultKind,
    keep_faults,
    lift_fault,
    raise_fault,
)
from libs.tenants.mask_keys import MaskKeys
from libs.types.fault import FaultScope
from libs.types.refusal import Refusal, RefusedKind
from libs.types.table import TableId, TableSchema
from libs.types.tenant import TenantSpec
from services.router.routes.book import Compiled, RouteBook, RouteView, TopicFate
from services.router.routes.encode import SchemaIds
from services.router.routes.match import (
    NO_REGISTRY,
    FetchTableSchema,
    Subscriber,
    Target,
    claim_topic,
    compile_routes,
    row_targets,
    schema_changes_target,
    transactions_target,
)
from services.router.routes.topic_claims import TopicClaims, TopicCollision

_TICK_S: Final = 2.0
_ASK_INTERVAL_S: Final = 5.0
"""Below the 7 s after which a killed router's lane continues in another one, which needs the refusals of its tables."""
_TOLD_AT_ONCE: Final = 200
_FIRST_PAUSE_S: Final = 15.0
_LONGEST_PAUSE_S: Final = 600.0
"""Between two looks at one refusal that somebody else ends, or of a key; the pauses double up to it."""
_LONGEST_REASON: Final = 400
"""Characters: the operator keeps 100 for each tenant, in an object of 1 MiB."""

_LONGEST_DOCUMENT_REASON: Final = 1_000
"""Characters: it may have many mistakes, each with its remedy."""
_LONGEST_RECORDS_REASON: Final = 1_000
"""Characters: names of topics, which may be long, and the remedy."""
_RECORDS_REASON_STANDS_US: Final = 60_000_000
"""Of two topics that refuse records now the one answers first, now the other: so often the words may change."""
_REPORTED_AGAIN_AFTER_US: Final = 60_000_000
"""Of a document that is refused: operators forget after five times as long."""
_NO_TABLE: Final = TableId(database="", table="")

_FAULT_KINDS: Final = {
    RefusedKind.TABLE: TABLE_REFUSED,
    RefusedKind.SCHEMA_CHANGES: TOPIC_REFUSED,
    RefusedKind.TRANSACTIONS: TOPIC_REFUSED,
    RefusedKind.RECORDS: TENANT_WAITS,
}

_Key = tuple[str, str, RefusedKind, TableId, int]
TryTopics = Callable[[str, Sequence[Target]], Mapping[str, HeadwaterError]]
"""Why topics of a source would not be made, by name; blocks."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RecordsFate:
    """The state of records in one partition of a changes topic, by the process that has it."""

    source: str
    kafka_partition: int
    refused: Mapping[str, str]
    """By tenant why they cannot be written, as it was tried last."""
    untried: Collection[str] = ()
    """Tenants for whom something waits that nobody has tried to write since the lane opened."""


@dataclass(frozen=True, slots=True)
class News:
    """News for an operator, as of one moment; a part if there is much."""

    found: tuple[Refusal, ...]
    """It does not hold them so."""
    over: tuple[Refusal, ...]
    """It holds them."""
    standing: Mapping[_Key, Refusal]
    """All that stood then."""


class Refusals:
    """The refusals that this process knows to stand. Thread-safe."""

    def __init__(self, router: str = "", now_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        """``router``: this process's name for operators."""
        self.router = router
        self._now_us = now_us
        self._lock = threading.Lock()
        self._standing: dict[_Key, Refusal] = {}
        self._reported: dict[_Key, Refusal] = {}
        """As an operator answered last."""
        self._documents: Mapping[str, str] = {}
        self._reported_documents: dict[str, Refusal] = {}
        """By tenant, as an operator answered last."""
        self._lacking_keys: set[_Key] = set()
        self._forms: dict[str, EnvelopeForm] = {}
        self._ended = 0

    @property
    def ended(self) -> int:
        """How many are over, by whomever; it only grows."""
        return self._ended

    def lacks_key(self, refusal: Refusal) -> bool:
        """Whether it stands because this process had no key of a mask's. Of another process only that one knows."""
        return _key(refusal) in self._lacking_keys

    def form_of(self, source: str) -> EnvelopeForm | None:
        """The common part of a source's newest events; None: this process met none."""
        return self._forms.get(source)

    def take_in(self, view: RouteView) -> None:
        """A book's findings since the last call, about the view's tenants."""
        for compiled in view.take_compiled():
            self._take_in_table(view.audience.source, compiled)
        for fate in view.take_fates():
            self._take_in_topic(view.audience.source, fate)

    def _take_in_table(self, source: str, compiled: Compiled) -> None:
        table_id, version = compiled.routes.table_id, compiled.schema_version
        refused = {each.target.tenant: each for each in compiled.routes.refused}
        with self._lock:
            self._forms[source] = compiled.form
            for tenant in refused.keys() & compiled.tenants:
                place = (tenant, source, RefusedKind.TABLE, table_id, 0)
                (self._lacking_keys.add if refused[tenant].is_key_missing else self._lacking_keys.discard)(place)
                self._find(
                    Refusal(
                        tenant=tenant,
                        source=source,
                        table_id=table_id,
                        schema_version=version,
                        reason=refused[tenant].reason[:_LONGEST_REASON],
                        found_at_us=self._now_us(),
                        is_of_document=refused[tenant].is_of_document,
                        is_of_registry=refused[tenant].is_schema_refused,
                        is_of_topic=refused[tenant].is_topic_refused,
                        is_of_claim=refused[tenant].is_topic_taken,
                    )
                )
            for known in self._of_table(source, table_id):
                if known.tenant in compiled.tenants and known.tenant not in refused and known.schema_version <= version:
                    self._end(known)

        _report_unknown_columns(source, compiled)

    def _take_in_topic(self, source: str, fate: TopicFate) -> None:
        with self._lock:
            if fate.what is RefusedKind.SCHEMA_CHANGES:
                self._forms[source] = fate.form
            known = self._standing.get((fate.tenant, source, fate.what, _NO_TABLE, 0))
            if fate.reason is not None:
                self._find(
                    Refusal(
                        tenant=fate.tenant,
                        source=source,
                        table_id=_NO_TABLE,
                        schema_version=0,
                        reason=fate.reason[:_LONGEST_REASON],
                        found_at_us=self._now_us(),
                        is_of_document=False,
                        is_of_registry=not fate.is_topic_refused,
                        is_of_topic=fate.is_topic_refused,
                        what=fate.what,
                    )
                )
            elif known is not None:
                self._end(known)

    def take_in_records(self, fate: RecordsFate) -> None:
        """The last attempt in one partition. A tenant that is not named has no waiting records there."""
        now_us = self._now_us()
        with self._lock:
            for tenant, reason in fate.refused.items():
                refusal = Refusal(
                    tenant=tenant,
                    source=fate.source,
                    table_id=_NO_TABLE,
                    schema_version=0,
                    reason=reason[:_LONGEST_RECORDS_REASON],
                    found_at_us=now_us,
                    is_of_document=False,
                    what=RefusedKind.RECORDS,
                    kafka_partition=fate.kafka_partition,
                )
                known = self._standing.get(_key(refusal))
                if known is None or now_us - known.found_at_us > _RECORDS_REASON_STANDS_US:
                    self._find(refusal)
            for known in list(self._standing.values()):
                is_there = (known.source, known.kafka_partition) == (fate.source, fate.kafka_partition)
                is_refused = known.tenant in fate.refused or known.tenant in fate.untried
                if known.what is RefusedKind.RECORDS and is_there and not is_refused:
                    self._end(known)

    def refuse_documents(self, reasons: Mapping[str, str]) -> None:
        """By tenant why this process does not take its document; those of others it takes."""
        with self._lock:
            self._documents = dict(reasons)
        found = {FaultScope(tenant=tenant): reason for tenant, reason in reasons.items()}
        keep_faults({TENANT_REFUSED: found}, lambda scope: not scope.source)

    def forget_table(self, source: str, table_id: TableId) -> None:
        """There is no such table any more."""
        keep_faults({COLUMN_REFUSED: {}}, lambda scope: (scope.source, scope.table) == (source, str(table_id)))
        with self._lock:
            for known in self._of_table(source, table_id):
                self._end(known)

    def all(self) -> list[Refusal]:
        """Those that stand now."""
        with self._lock:
            return list(self._standing.values())

    def topics_of(self, source: str, specs: Iterable[TenantSpec]) -> set[str]:
        """Topics that standing refusals keep from being written, by the documents in force."""
        tenants = {spec.tenant: spec for spec in specs}
        topics: set[str] = set()
        for each in self.all():
            spec = tenants.get(each.tenant)
            if each.source == source and spec is not None and each.what is not RefusedKind.RECORDS:
                subscribers = [Subscriber(spec, selection) for selection in spec.sources if selection.name == source]
                topics |= {target.topic.name for subscriber in subscribers for target in _targets(each, subscriber)}
        return topics

    def settle(self, refusal: Refusal, reason: str | None) -> None:
        """Somebody looked whether ``refusal`` stands yet: for which reason, or None. Without effect where it was found
        again."""
        with self._lock:
            if self._standing.get(_key(refusal)) != refusal:
                return
            if reason is None:
                self._end(refusal)
            else:
                found_at_us = self._now_us()
                self._find(replace(refusal, reason=reason[:_LONGEST_REASON], found_at_us=found_at_us))

    def news(self) -> News:
        """The news for an operator now."""
        with self._lock:
            standing = dict(self._standing)
            found = [each for key, each in standing.items() if self._reported.get(key) != each]
            over = [each for key, each in self._reported.items() if key not in standing]
            found += self._found_documents()
            over += [each for tenant, each in self._reported_documents.items() if tenant not in self._documents]
        return News(tuple(found[:_TOLD_AT_ONCE]), tuple(over[:_TOLD_AT_ONCE]), standing)

    def answered(self, news: News, answer: Iterable[Refusal]) -> None:
        """An operator took ``news``, and holds ``answer``. Later findings and ends are reported next."""
        answer = list(answer)
        held = {_key(each): each for each in answer if each.what is not RefusedKind.DOCUMENT}
        taken = {_key(each) for each in (*news.found, *news.over)}
        with self._lock:
            for key in self._standing.keys() | self._reported.keys() | held.keys():
                known = self._standing.get(key)
                is_news = known != news.standing.get(key) or (known != self._reported.get(key) and key not in taken)
                if not is_news and key in held:
                    self._standing[key] = held[key]
                    self._report_fault(held[key])
                elif not is_news and (gone := self._standing.pop(key, None)) is not None:
                    self._report_fault(gone)
                    self._lacking_keys.discard(key)
                    self._ended += 1
            self._reported = held
            self._reported_documents = {each.tenant: each for each in answer if each.what is RefusedKind.DOCUMENT}

    def _found_documents(self) -> list[Refusal]:
        """Refusals that an operator holds differently, or that were reported long ago."""
        now_us, found = self._now_us(), []
        for tenant, reason in self._documents.items():
            refusal = Refusal(
                tenant=tenant,
                source="",
                table_id=_NO_TABLE,
                schema_version=0,
                reason=reason[:_LONGEST_DOCUMENT_REASON],
                found_at_us=now_us,
                is_of_document=True,
                what=RefusedKind.DOCUMENT,
                router=self.router,
            )
            reported = self._reported_documents.get(tenant)
            is_known = reported is not None and replace(reported, found_at_us=now_us) == refusal
            if reported is None or not is_known or now_us - reported.found_at_us > _REPORTED_AGAIN_AFTER_US:
                found.append(refusal)
        return found

    def _of_table(self, source: str, table_id: TableId) -> list[Refusal]:
        return [each for each in self._standing.values() if (each.source, each.table_id) == (source, table_id)]

    def _find(self, refusal: Refusal) -> None:
        known = self._standing.get(_key(refusal))
        if known is not None and known.schema_version > refusal.schema_version:
            return  # rows from before the DDL come beside those from after it
        if known is not None and replace(known, found_at_us=refusal.found_at_us) == refusal:
            return
        self._standing[_key(refusal)] = refusal
        if known is None or known.reason != refusal.reason:
            log.error(f"tenant_{_called(refusal)}_refused", **_logged(refusal), reason=refusal.reason)
        self._report_fault(refusal)

    def _end(self, refusal: Refusal) -> None:
        del self._standing[_key(refusal)]
        self._lacking_keys.discard(_key(refusal))
        self._ended += 1
        self._report_fault(refusal)
        log.info(f"tenant_{_called(refusal)}_accepted", **_logged(refusal))

    def _report_fault(self, refusal: Refusal) -> None:
        """Raise or lift the fault at the place of ``refusal``, by all refusals that stand there."""
        place = _fault_place(refusal)
        if place is None:
            return
        kind, scope = place
        reasons = [each.reason for each in self._standing.values() if _fault_place(each) == place]
        if reasons:
            raise_fault(kind, scope, happened="; ".join(dict.fromkeys(reasons)))
        else:
            lift_fault(kind, scope)


@dataclass(frozen=True, slots=True)
class _Looked:
    """The last look at a refusal."""

    at: Refusal
    by: TenantSpec | None
    pause_s: float = math.inf
    """Until the next one, if nothing changes."""
    at_s: float = field(default_factory=time.monotonic)

    @property
    def is_due(self) -> bool:
        return time.monotonic() > self.at_s + self.pause_s


class RefusalReporter:
    """Reports to operators, hears from them, and looks whether refusals are over: when documents change, and now and then
    for those that the schema registry, Kafka or another table causes. Nobody waits for it."""

    def __init__(
        self,
        settings: GrpcClientSettings | None,
        sources: Sequence[str],
        refusals: Refusals,
        *,
        tenants: Callable[[], Sequence[TenantSpec] | None],
        fetch_schema: Callable[[str], FetchTableSchema],
        keys: MaskKeys,
        registry: SchemaIds = NO_REGISTRY,
        try_topics: TryTopics,
        claims: TopicClaims,
        records: Callable[[], Iterable[RecordsFate]] = tuple,
    ) -> None:
        """``settings``: of the operators; None: there are none. ``tenants``: those in force now; None while no operator
        answers. It blocks shortly, as ``fetch_schema`` does. ``records``: of the lanes that this process has now."""
        self._settings = settings
        self._sources = sources
        self._refusals = refusals
        self._tenants = tenants
        self._fetch_schema = fetch_schema
        self._keys = keys
        self._registry = registry
        self._try_topics = try_topics
        self._claims = claims
        self._records = records
        self._looked_at: dict[_Key, _Looked] = {}
        self._asked_s = -_ASK_INTERVAL_S

    async def run(self) -> None:
        """Report until cancelled; while no operator takes the news, it is only kept."""
        is_heard = True
        async with nullcontext() if self._settings is None else TenantsClient(self._settings) as client:
            while True:
                try:
                    await self.report(client)
                except HeadwaterError as error:
                    if is_heard:
                        log.warning("refusals_not_sent", reason=str(error))
                    is_heard = False
                else:
                    is_heard = True
                await asyncio.sleep(_TICK_S)

    async def report(self, client: TenantsClient | None) -> None:
        """Look once at standing refusals; report news if there is any, or if it is time to ask.

        Raises:
            HeadwaterError: as ``TenantsClient.report_refusals``; nothing is lost.
        """
        tenants = await asyncio.to_thread(self._tenants)
        if tenants is None:
            return
        ended = self._refusals.ended
        for fate in self._records():
            self._refusals.take_in_records(fate)
        await asyncio.to_thread(self._look_again, {spec.tenant: spec for spec in tenants})
        if client is not None:
            await self._report_news(client)
        if self._refusals.ended != ended:
            self._registry.forget_refusals()  # another router may have found that it takes a schema now

    async def _report_news(self, client: TenantsClient) -> None:
        news = self._refusals.news()
        if news.found or news.over or time.monotonic() >= self._asked_s + _ASK_INTERVAL_S:
            router = self._refusals.router
            self._refusals.answered(news, await client.report_refusals(router, self._sources, news.found, news.over))
            self._asked_s = time.monotonic()

    def _look_again(self, specs: Mapping[str, TenantSpec]) -> None:
        """At those refusals that are new here, whose tenant's document is, or that are due; of the registry's at one, and of
        Kafka's, so that one that hangs holds up little."""
        keep_faults({COLUMN_REFUSED: {}}, lambda scope: bool(scope.tenant) and scope.tenant not in specs)
        standing = {_key(each): each for each in self._refusals.all()}
        self._looked_at = {key: each for key, each in self._looked_at.items() if key in standing}
        asked: set[tuple[bool, ...]] = set()
        for key, refusal in standing.items():
            looked, spec = self._looked_at.get(key), specs.get(refusal.tenant)
            is_news = looked is None or (_stable(looked.at), looked.by) != (_stable(refusal), spec)
            if looked is not None and not is_news and not looked.is_due:
                continue
            pause_s = _FIRST_PAUSE_S if looked is None or is_news else min(2 * looked.pause_s, _LONGEST_PAUSE_S)
            is_asked_for = refusal.is_of_registry or refusal.is_of_topic or refusal.is_of_claim
            is_repeated = is_asked_for or self._refusals.lacks_key(refusal)
            if is_asked_for:
                whom = (refusal.is_of_registry, refusal.is_of_topic, refusal.is_of_claim)
                if whom in asked:
                    continue
                asked.add(whom)
            try:
                self._refusals.settle(refusal, self._still_refused(refusal, spec))
            except TransientError:  # schema_history, the registry or Kafka is away
                if not is_repeated:
                    return  # and is asked again soon
            except PipelineHalted as error:
                log.warning("refusal_not_looked_at", **_logged(refusal), reason=str(error))
            self._looked_at[key] = _Looked(refusal, spec, pause_s if is_repeated else math.inf)

    def _still_refused(self, refusal: Refusal, spec: TenantSpec | None) -> str | None:
        if spec is None:
            return None
        subscribers = (Subscriber(spec, each) for each in spec.sources if each.name == refusal.source)
        subscriber = next((each for each in subscribers if _gets(each, refusal)), None)
        if subscriber is None:
            return None
        if refusal.what is RefusedKind.RECORDS:
            return refusal.reason  # the lane's process knows
        if refusal.is_of_topic:
            return self._refused_by_kafka(refusal, subscriber)
        if refusal.is_of_claim:
            return self._refused_for_another(refusal, subscriber)
        if refusal.is_of_registry:
            form = self._refusals.form_of(refusal.source)
            if refusal.what is RefusedKind.TRANSACTIONS:
                form = MYSQL_FORM  # theirs are the same for all sources
            if form is None:
                return refusal.reason
            if refusal.what is not RefusedKind.TABLE:
                return self._refused_schemas(refusal, subscriber, form)
            routes = compile_routes(
                refusal.source, self._schema(refusal), (subscriber,), {}, form, self._keys, self._registry
            )
            return next((each.reason for each in routes.refused), None)
        lacks_key = self._refusals.lacks_key(refusal)
        if not refusal.is_of_document and not lacks_key:
            return refusal.reason
        routes = compile_routes(refusal.source, self._schema(refusal), (subscriber,), {}, keys=self._keys)
        stands = (each for each in routes.refused if each.is_of_document or (each.is_key_missing and lacks_key))
        return next((each.reason for each in stands), None)

    def _refused_by_kafka(self, refusal: Refusal, subscriber: Subscriber) -> str | None:
        """Raises TransientError where Kafka does not say."""
        errors = self._try_topics(refusal.source, _targets(refusal, subscriber))
        for error in errors.values():
            if not isinstance(error, PipelineHalted):
                raise error
        return next((str(error) for error in errors.values()), None)

    def _refused_for_another(self, refusal: Refusal, subscriber: Subscriber) -> str | None:
        """Raises TransientError where nobody can say."""
        self._claims.look_again(refusal.source)
        try:
            claim_topic(self._claims, subscriber, refusal.source, refusal.table_id)
        except TopicCollision as error:
            return str(error)
        return None

    def _refused_schemas(self, refusal: Refusal, subscriber: Subscriber, form: EnvelopeForm) -> str | None:
        """Of a topic without rows."""
        fetch = self._fetch_schema(refusal.source)
        book = RouteBook(refusal.source, (subscriber.spec,), fetch, TopicClaims(), self._keys, self._registry)
        view = book.view()
        if refusal.what is RefusedKind.TRANSACTIONS:
            view.transactions_encoding(subscriber)
        else:
            view.schema_changes_encoding(subscriber, form)
        if view.unready:
            raise ServiceUnavailable(next(iter(view.unready.values())))
        return next((fate.reason for fate in view.take_fates()), None)

    def _schema(self, refusal: Refusal) -> TableSchema:
        return self._fetch_schema(refusal.source)(refusal.table_id, refusal.schema_version)


def _stable(refusal: Refusal) -> Refusal:
    """Without the registry's or Kafka's words, which may be others at each question."""
    return replace(refusal, reason="", found_at_us=0) if refusal.is_of_registry or refusal.is_of_topic else refusal


def _gets(subscriber: Subscriber, refusal: Refusal) -> bool:
    """Whether the tenant's document still asks for the refused table or topic."""
    if refusal.what is RefusedKind.RECORDS:
        return True
    if refusal.what is RefusedKind.TABLE:
        return subscriber.sees(refusal.table_id)
    topics = subscriber.spec.topics
    return topics.transactions if refusal.what is RefusedKind.TRANSACTIONS else topics.schema_changes


def _targets(refusal: Refusal, subscriber: Subscriber) -> tuple[Target, ...]:
    """The topics that one of Kafka's refusals is of."""
    if refusal.what is RefusedKind.TABLE:
        return row_targets(subscriber, refusal.source, refusal.table_id)
    of = transactions_target if refusal.what is RefusedKind.TRANSACTIONS else schema_changes_target
    return (of(subscriber, refusal.source),)


def _called(refusal: Refusal) -> str:
    is_of_topic = refusal.what in (RefusedKind.SCHEMA_CHANGES, RefusedKind.TRANSACTIONS)
    return f"{refusal.what.value}_topic" if is_of_topic else refusal.what.value


def _report_unknown_columns(source: str, compiled: Compiled) -> None:
    """Columns that tenants' documents do not name are kept back until they do; nothing else shows it."""
    table = str(compiled.routes.table_id)
    unknown = {
        FaultScope(source=source, tenant=target.tenant, table=table): ", ".join(group.projection.unknown)
        for group in compiled.routes.groups
        if group.projection.unknown
        for target in group.targets
        if target.tenant in compiled.tenants
    }
    found = {scope: f"{table}: {columns} came later and is kept back" for scope, columns in unknown.items()}
    keep_faults(
        {COLUMN_REFUSED: found},
        lambda scope: (scope.source, scope.table) == (source, table) and scope.tenant in compiled.tenants,
    )


def _fault_place(refusal: Refusal) -> tuple[FaultKind, FaultScope] | None:
    """Which fault it is, and where; None: of documents, which are known all at once."""
    kind = _FAULT_KINDS.get(refusal.what)
    if kind is None:
        return None
    table = str(refusal.table_id) if refusal.what is RefusedKind.TABLE else ""
    return kind, FaultScope(source=refusal.source, tenant=refusal.tenant, table=table)


def _key(refusal: Refusal) -> _Key:
    return refusal.tenant, refusal.source, refusal.what, refusal.table_id, refusal.kafka_partition


def _logged(refusal: Refusal) -> dict[str, object]:
    return {
        "tenant_id": refusal.tenant,
        "source": refusal.source,
        **({"table": str(refusal.table_id)} if refusal.what is RefusedKind.TABLE else {}),
        **({"kafka_partition": refusal.kafka_partition} if refusal.what is RefusedKind.RECORDS else {}),
        "schema_version": refusal.schema_version,
    }
