"""The routes of one source for one set of documents, and views of them for some of the tenants.

A lane writes by a ``RouteView``: for all tenants but those that it leaves out. Whom it leaves out never changes, so the
order of look-ups decides nothing. The ``RouteBook`` compiles each table version once for all views.
"""

import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from libs.errors import is_of_all
from libs.formats.connect_schema import (
    MYSQL_FORM,
    TRANSACTION_KEY,
    TRANSACTION_VALUE,
    EnvelopeForm,
    schema_change_key_schema,
    schema_change_value_schema,
)
from libs.tenants.mask_keys import NO_KEYS, MaskKeys
from libs.types.refusal import RefusedKind
from libs.types.table import TableId, TableSchema
from libs.types.tenant import TenantSpec
from services.router.routes.audience import Audience
from services.router.routes.encode import (
    Encoding,
    EventSchemas,
    SchemaIds,
    SchemaNotKnown,
    SchemaRefused,
    encoding,
    needs_schemas,
    wire_ids,
)
from services.router.routes.match import (
    NO_REGISTRY,
    FetchTableSchema,
    Subscriber,
    TableRoutes,
    Target,
    claim_topic,
    compile_routes,
    schema_changes_target,
    transactions_target,
    unforeseen_refusal,
)
from services.router.routes.memory import RouteMemory
from services.router.routes.topic_claims import TopicClaims, TopicCollision

_KEPT_VIEWS: Final = 4

_Version = tuple[str, str, int, EnvelopeForm]
"""Database, table, schema version, and the form of the events."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A book's findings about a table version, and the tenants concerned."""

    schema_version: int
    form: EnvelopeForm
    routes: TableRoutes
    tenants: frozenset[str]
    """Tenants that see the table in the view, and are not refused."""


class TopicFate(NamedTuple):
    """The result for a topic of a tenant that holds no rows."""

    tenant: str
    what: RefusedKind
    reason: str | None = None
    """Why it is left out; None: it is written."""
    is_topic_refused: bool = False
    """By Kafka; else the registry refuses its schema."""
    form: EnvelopeForm = MYSQL_FORM


class RefusedSchema(NamedTuple):
    """The registry's answer for a schema of a topic."""

    tenant: str
    reason: str


@dataclass(frozen=True, slots=True)
class RouteCompiler:
    """Everything that routes are compiled from, beside the documents and the table. It holds no result."""

    source: str
    fetch_schema: FetchTableSchema
    claims: TopicClaims
    keys: MaskKeys
    registry: SchemaIds
    memory: RouteMemory
    """Of the books of this source before; no other book uses it from now on."""

    def compile(
        self,
        table_id: TableId,
        schema_version: int,
        form: EnvelopeForm,
        subscribers: tuple[Subscriber, ...],
        refused_topics: Mapping[str, str],
    ) -> tuple[TableRoutes, bool]:
        """A table version's routes, and whether another table has the topic of one. Raises as ``RouteView.routes``."""
        if not subscribers:
            return TableRoutes(table_id), False  # nobody asks for it: neither do we
        claimed_topics = {}
        has_collisions = False
        for subscriber in subscribers:
            try:
                claim_topic(self.claims, subscriber, self.source, table_id)
            except TopicCollision as error:
                claimed_topics[subscriber.row_topic(self.source, table_id)] = str(error)
                has_collisions = True
            except Exception as error:  # ``compile_routes`` meets it too, and refuses the table
                if is_of_all(error):
                    raise
                claimed_topics[subscriber.row_topic(self.source, table_id)] = unforeseen_refusal(subscriber, error)
        routes = compile_routes(
            self.source,
            self.fetch_schema(table_id, schema_version),
            subscribers,
            refused_topics,
            form,
            self.keys,
            self.registry,
            claimed_topics,
            self.memory,
        )
        return routes.indexed(), has_collisions


class RouteBook:
    """What was compiled and found for one set of documents. Made again when they change; used by one thread."""

    def __init__(
        self,
        source: str,
        tenants: Iterable[TenantSpec],
        fetch_schema: FetchTableSchema,
        claims: TopicClaims,
        keys: MaskKeys = NO_KEYS,
        registry: SchemaIds = NO_REGISTRY,
        memory: RouteMemory | None = None,
    ) -> None:
        """``memory``: of the books of this source before; no other book uses it from now on."""
        memory = memory or RouteMemory()
        memory.begin_book()
        self.audience = Audience(source, tenants, memory.seen)
        self.refused_topics: dict[str, str] = {}
        """Topics that Kafka would not create, with the reason."""
        self.has_collisions = False
        """A table was refused for another one that has its topic."""
        self._refused_row_schemas: dict[str, RefusedSchema] = {}
        self._compiler = RouteCompiler(source, fetch_schema, claims, keys, registry, memory)
        self._compiled: dict[_Version, TableRoutes] = {}
        self._not_taken: dict[_Version, TableRoutes] = {}
        """Those compiled since ``RouteView.take_compiled``."""
        self._newest: dict[TableId, TableSchema] = {}
        """Of tables that statements were met of."""
        self._other_topics = OtherTopics()
        self._kept: dict[frozenset[str], RouteView] = {}
        """The last views: a lane leaves out now these, now those, and comes back."""
        self._alive: weakref.WeakSet[RouteView] = weakref.WeakSet()

    @property
    def refused_schemas(self) -> Mapping[str, RefusedSchema]:
        """By topic, those that the registry would not have."""
        return self._refused_row_schemas | self._other_topics.refused_schemas

    def view(self, left_out: Collection[str] = ()) -> "RouteView":
        """The routes for all tenants but those."""
        left_out = frozenset(left_out)
        view = self._kept.pop(left_out, None)
        if view is None:
            view = RouteView(self, left_out)
            self._alive.add(view)
        self._kept[left_out] = view  # the last one to be given up
        while len(self._kept) > _KEPT_VIEWS:
            del self._kept[next(iter(self._kept))]
        return view

    def refuse_topic(self, topic: str, reason: str) -> None:
        """Nothing goes to ``topic`` any more: the rows meant for it are set aside, marks and statements left out."""
        self.refused_topics[topic] = reason
        self._compiled.clear()
        self._not_taken.clear()
        self._other_topics.forget_not_taken()
        for view in self._alive:
            view.routes_by_version.clear()

    def ask_again(self, tenant: str) -> None:
        """Look up once more the schemas that the tenant was found unready for."""
        for view in self._alive:
            view.unready.pop(tenant, None)
        for version in [version for version, routes in self._compiled.items() if tenant in routes.unready]:
            del self._compiled[version]
            for view in self._alive:
                view.routes_by_version.pop(version, None)

    def compiled(self, version: _Version) -> TableRoutes:
        """The routes of a table version for all tenants. Raises as ``RouteView.routes``."""
        compiled = self._compiled.get(version)
        if compiled is None:
            database, table, schema_version, form = version
            table_id = TableId(database=database, table=table)
            subscribers = self.audience.who_sees(table_id)
            compiled, has_collisions = self._compiler.compile(
                table_id, schema_version, form, subscribers, self.refused_topics
            )
            self.has_collisions = self.has_collisions or has_collisions
            for refused in compiled.refused:
                if refused.is_schema_refused:
                    self._refused_row_schemas[refused.target.topic.name] = RefusedSchema(
                        refused.target.tenant, refused.reason
                    )
            self._compiled[version] = self._not_taken[version] = compiled
        return compiled

    def newest_schema(self, table_id: TableId, schema_version: int) -> TableSchema | None:
        """A table's schema, or after its end (version 0) the last one that was met; None: it was never met. Raises as
        ``RouteView.routes``."""
        if schema_version:
            self._newest[table_id] = self._compiler.fetch_schema(table_id, schema_version)
        return self._newest.get(table_id)

    def other_encoding(
        self, subscriber: Subscriber, target: Target, schemas: EventSchemas, form: EnvelopeForm, what: RefusedKind
    ) -> Encoding | None:
        """The form of a topic that holds no rows; None: it is not written. Raises SchemaNotKnown, ServiceUnavailable."""
        topic = _OtherTopic(subscriber, target, schemas, form, what)
        return self._other_topics.encoding(topic, self.refused_topics, self._compiler.registry)

    def take_compiled(self, left_out: frozenset[str]) -> list[Compiled]:
        """See ``RouteView.take_compiled``."""
        if not self._not_taken:
            return []
        taken, self._not_taken = self._not_taken, {}
        tenants = frozenset(each.tenant for each in self.audience.subscribers) - left_out
        return [
            Compiled(version, form, routes, tenants - routes.unready.keys())
            for (_, _, version, form), routes in taken.items()
        ]

    def take_fates(self, absent: frozenset[str]) -> list[TopicFate]:
        """See ``RouteView.take_fates``."""
        return self._other_topics.take_fates(absent)


class RouteView:
    """A book's routes for all tenants but those that it leaves out. That set never changes."""

    __slots__ = ("__weakref__", "audience", "book", "left_out", "routes_by_version", "unready")

    def __init__(self, book: RouteBook, left_out: frozenset[str]) -> None:
        self.book = book
        self.audience: Final = book.audience
        """Of the whole book."""
        self.left_out: Final = left_out
        """Tenants that get nothing by this view."""
        self.routes_by_version: Final[dict[_Version, TableRoutes]] = {}
        """Those that were asked for; the book drops those that it compiles again."""
        self.unready: Final[dict[str, str]] = {}
        """Tenants of the view that a look-up found unready, see ``TableRoutes.unready``: leave them out."""

    def present(self, subscribers: Iterable[Subscriber]) -> Iterator[Subscriber]:
        """Those that are not left out."""
        return (subscriber for subscriber in subscribers if subscriber.tenant not in self.left_out)

    def routes(self, database: str, table: str, schema_version: int, form: EnvelopeForm = MYSQL_FORM) -> TableRoutes:
        """The routes of a table version whose events have that form; the first call for it may ask schema_history.

        Raises:
            SchemaUnknown: the version was never recorded.
            ServiceUnavailable: schema_history, or the schema registry, does not answer; try again.
        """
        routes = self.routes_by_version.get((database, table, schema_version, form))
        if routes is None:
            version = (database, table, schema_version, form)
            routes = self.book.compiled(version)
            self.unready.update(
                (tenant, reason) for tenant, reason in routes.unready.items() if tenant not in self.left_out
            )
            if self.left_out:
                routes = routes.without(self.left_out).indexed()
            self.routes_by_version[version] = routes
        return routes

    def newest_schema(self, table_id: TableId, schema_version: int) -> TableSchema | None:
        """See ``RouteBook.newest_schema``."""
        return self.book.newest_schema(table_id, schema_version)

    def schema_changes_encoding(self, subscriber: Subscriber, form: EnvelopeForm) -> Encoding | None:
        """The form of a tenant's schema-change events; None: Kafka refuses the topic, or the registry their schemas. Raises as
        ``routes``."""
        schemas = EventSchemas(schema_change_key_schema(form), schema_change_value_schema(form))
        target = schema_changes_target(subscriber, self.audience.source)
        return self._encoding(subscriber, target, schemas, form, RefusedKind.SCHEMA_CHANGES)

    def transactions_encoding(self, subscriber: Subscriber) -> Encoding | None:
        """The form of a tenant's BEGIN and END; None as ``schema_changes_encoding``. Raises as ``routes``."""
        schemas = EventSchemas(TRANSACTION_KEY, TRANSACTION_VALUE)
        target = transactions_target(subscriber, self.audience.source)
        return self._encoding(subscriber, target, schemas, MYSQL_FORM, RefusedKind.TRANSACTIONS)

    def _encoding(
        self, subscriber: Subscriber, target: Target, schemas: EventSchemas, form: EnvelopeForm, what: RefusedKind
    ) -> Encoding | None:
        try:
            return self.book.other_encoding(subscriber, target, schemas, form, what)
        except SchemaNotKnown as error:
            self.unready[subscriber.tenant] = str(error)
            return None

    def take_compiled(self) -> list[Compiled]:
        """The book's findings since the last call, about this view's tenants. Call it once everything is there that rows need:
        a topic that is refused then makes the book look again."""
        return self.book.take_compiled(self.left_out)

    def take_fates(self) -> list[TopicFate]:
        """The findings about topics without rows since the last call; call it like ``take_compiled``."""
        return self.book.take_fates(self.left_out | self.unready.keys())


class _OtherTopic(NamedTuple):
    """A topic of a tenant that holds no rows, as it is to be written."""

    subscriber: Subscriber
    target: Target
    schemas: EventSchemas
    form: EnvelopeForm
    what: RefusedKind

    def fate(self, reason: str | None, *, is_topic_refused: bool = False) -> TopicFate:
        return TopicFate(self.subscriber.tenant, self.what, reason, is_topic_refused, self.form)


@dataclass(slots=True)
class OtherTopics:
    """The forms of the topics that hold no rows, and the result for each; a part of its book."""

    refused_schemas: dict[str, RefusedSchema] = field(default_factory=dict)
    """By topic."""
    _encodings: dict[tuple[str, EnvelopeForm], Encoding | None] = field(default_factory=dict)
    _fates: dict[tuple[str, RefusedKind], TopicFate] = field(default_factory=dict)
    _not_taken: dict[tuple[str, RefusedKind], TopicFate] = field(default_factory=dict)
    """Those that changed since ``take_fates``."""

    def encoding(self, topic: _OtherTopic, refused_topics: Mapping[str, str], registry: SchemaIds) -> Encoding | None:
        """None: it is not written. Raises SchemaNotKnown, ServiceUnavailable."""
        name = topic.target.topic.name
        if (refused := refused_topics.get(name)) is not None:
            self._note(topic.fate(refused, is_topic_refused=True))
            return None
        if (name, topic.form) not in self._encodings:
            try:
                self._encodings[name, topic.form] = _registered(topic, registry)
            except SchemaRefused as error:
                self._refuse(topic, str(error))
            except Exception as error:
                if isinstance(error, SchemaNotKnown) or is_of_all(error):
                    raise
                self._refuse(topic, unforeseen_refusal(topic.subscriber, error))
        encoded = self._encodings[name, topic.form]
        self._note(topic.fate(None if encoded is not None else self.refused_schemas[name].reason))
        return encoded

    def _refuse(self, topic: _OtherTopic, reason: str) -> None:
        name = topic.target.topic.name
        self._encodings[name, topic.form] = None
        self.refused_schemas[name] = RefusedSchema(topic.target.tenant, reason)

    def _note(self, fate: TopicFate) -> None:
        """Looked up for each statement and mark, and new once."""
        place = (fate.tenant, fate.what)
        if self._fates.get(place) != fate or place in self._not_taken:
            self._fates[place] = self._not_taken[place] = fate

    def take_fates(self, absent: frozenset[str]) -> list[TopicFate]:
        """Those that are new, but of ``absent`` tenants, whose fates count as new when they are found again."""
        taken, self._not_taken = self._not_taken, {}
        for place in taken:
            if place[0] in absent:
                del self._fates[place]
        return [each for each in taken.values() if each.tenant not in absent]

    def forget_not_taken(self) -> None:
        """Those count as new when they are found again."""
        for place in self._not_taken:
            del self._fates[place]
        self._not_taken.clear()


def _registered(topic: _OtherTopic, registry: SchemaIds) -> Encoding:
    event_format = topic.subscriber.spec.format
    known = topic.schemas if needs_schemas(event_format) else None
    return encoding(event_format, known, wire_ids(event_format, topic.target.topic.name, known, registry))
