"""Which tenants get a table's events, into which topics, and in which form: compiled once, looked up for each run.

A lane asks a view of its ``RouteBook`` for the routes of every run. Routes are compiled once for each (table, schema version,
set of tenants); tenants that see the same rows and columns in the same form stand in one ``RouteGroup``, so an event is
encoded once and fanned out to all of their topics.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec
import structlog

from libs.errors import is_of_all, refusal_of
from libs.events.delivered_schema import DeliveredSchema, delivered_schema_key, encode_delivered_schema
from libs.events.names import (
    dead_letter_topic,
    folded_topic,
    schema_changes_topic,
    table_schemas_topic,
    taken_topics,
    tenant_row_topic,
    transactions_topic,
)
from libs.formats.connect_schema import (
    MYSQL_FORM,
    EnvelopeForm,
    key_schema,
    value_schema,
)
from libs.kafka.clients import TopicSpec
from libs.mysql.source_types import source_type as mysql_source_type
from libs.oracle.source_types import source_type as oracle_source_type
from libs.tenants.mask_keys import NO_KEYS, MaskKeys
from libs.tenants.view import is_selected
from libs.types.patterns import any_column
from libs.types.source_type import SourceType
from libs.types.table import Column, TableId, TableSchema
from libs.types.tenant import FormatSettings, SourceSelection, SourceTypes, TenantSpec, TopicLayout
from services.router.routes.encode import (
    Encoding,
    EventSchemas,
    NoSchemaRegistry,
    SchemaIds,
    SchemaNotKnown,
    SchemaRefused,
    WireIds,
    encoding,
    needs_schemas,
    wire_ids,
)
from services.router.routes.filter_index import FilterIndex, filter_index
from services.router.routes.memory import RouteMemory, VersionViews
from services.router.routes.project import InvalidProjection, KeysMissing, Projection, compile_projection, openings_of
from services.router.routes.topic_claims import TopicClaims, TopicCollision

log = structlog.get_logger()

_ORACLE: Final = "oracle"
"""``EnvelopeForm.connector`` of Oracle's events."""
_MAX_TOPIC_CHARACTERS: Final = 249  # Kafka documentation, topic names
NO_REGISTRY: Final = NoSchemaRegistry()
NONE_TAKEN: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Subscriber:
    """One tenant's interest in one source."""

    spec: TenantSpec
    selection: SourceSelection

    @property
    def tenant(self) -> str:
        """The tenant's name."""
        return self.spec.tenant

    def sees(self, table_id: TableId) -> bool:
        """Whether the tenant includes the table and does not exclude it."""
        return is_selected(self.selection, table_id)

    @property
    def shares_topic(self) -> bool:
        """One topic holds the rows of several tables."""
        return self.spec.topics.layout is TopicLayout.PER_TENANT

    def row_topic(self, source: str, table_id: TableId) -> str:
        """Where the table's rows go."""
        return tenant_row_topic(self.spec, source, table_id)

    def topic(self, name: str, **config: str) -> TopicSpec:
        """One of the tenant's topics, as its document wants topics to be."""
        topics = self.spec.topics
        return TopicSpec(
            name=name,
            kafka_partitions=topics.kafka_partitions,
            replication_factor=topics.replication_factor,
            config=config,
        )

    def single_topic(self, name: str, **config: str) -> TopicSpec:
        """A topic whose records must stay in one order for all keys: one Kafka partition."""
        return msgspec.structs.replace(self.topic(name, **config), kafka_partitions=1)


@dataclass(frozen=True, slots=True)
class Target:
    """A topic of a tenant."""

    tenant: str
    topic: TopicSpec


@dataclass(frozen=True, slots=True)
class RouteGroup:
    """Tenants that receive the very same bytes of one table version."""

    projection: Projection
    encoding: Encoding
    targets: tuple[Target, ...]
    dead_letters: tuple[Target, ...]
    """For each target, where its tenant's undeliverable events go."""
    announcements: tuple["Announcement", ...]

    def without(self, tenants: Collection[str]) -> "RouteGroup":
        """The same for all others; perhaps without any target."""
        if all(target.tenant not in tenants for target in self.targets):
            return self
        return replace(
            self,
            targets=_of_others(self.targets, tenants),
            dead_letters=_of_others(self.dead_letters, tenants),
            announcements=tuple(each for each in self.announcements if each.target.tenant not in tenants),
        )


def _of_others(targets: Iterable[Target], tenants: Collection[str]) -> tuple[Target, ...]:
    return tuple(target for target in targets if target.tenant not in tenants)


@dataclass(frozen=True, slots=True)
class Announcement:
    """The record with a version's schema for a tenant's sinks, before its first row."""

    target: Target
    delivered: DeliveredSchema

    @property
    def key(self) -> bytes:
        """The record's key."""
        return delivered_schema_key(self.delivered.topic, self.delivered.table_schema.version)

    @property
    def value(self) -> bytes:
        """The record's value; made when it is written, because it is kept for each tenant and table."""
        return encode_delivered_schema(self.delivered)


@dataclass(frozen=True, slots=True)
class RefusedRoute:
    """A tenant that sees the table, but whose selection does not fit this version, or whose topic Kafka refuses, or whose
    schema the registry: its events are set aside."""

    target: Target
    dead_letters: Target
    reason: str
    is_schema_refused: bool = False
    """By the registry: it is asked again."""
    is_of_document: bool = False
    """It follows from the document and the table's schema alone."""
    is_key_missing: bool = False
    """This process lacks a key of the tenant's masks."""
    is_topic_refused: bool = False
    """By Kafka: it is asked again."""
    is_topic_taken: bool = False
    """Another table has the topic."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TableRoutes:
    """The tenants that get the rows of one table version."""

    table_id: TableId
    groups: tuple[RouteGroup, ...] = ()
    refused: tuple[RefusedRoute, ...] = ()
    unready: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Tenants whose schemas are not known to the registry yet, as far as is known without asking it; each with the reason."""
    index: FilterIndex | None = None
    """Of the groups, by their places; None: each is asked about every row."""
    columns: tuple[bytes, ...] = ()
    """The source table's, for ``RowCuts``."""

    def indexed(self) -> "TableRoutes":
        """The same, with an index where many filters want values of one column."""
        return replace(self, index=filter_index(group.projection for group in self.groups))

    def without(self, tenants: Collection[str]) -> "TableRoutes":
        """The same for all others."""
        groups = (group.without(tenants) for group in self.groups)
        refused = tuple(each for each in self.refused if each.target.tenant not in tenants)
        return TableRoutes(
            self.table_id, tuple(group for group in groups if group.targets), refused, columns=self.columns
        )

    def only(self, tenants: Collection[str]) -> "TableRoutes":
        """The same for these alone."""
        routed = {target.tenant for group in self.groups for target in group.targets}
        return self.without((routed | {each.target.tenant for each in self.refused}).difference(tenants))


FetchTableSchema = Callable[[TableId, int], TableSchema]
"""The schema of a table of this source at a version; blocks. Raises SchemaUnknown and ServiceUnavailable."""


def claim_topic(claims: TopicClaims, subscriber: Subscriber, source: str, table_id: TableId) -> None:
    """Have the table its topic. Raises as ``TopicClaims.claim``, and TopicCollision where the topic holds no rows."""
    topic = subscriber.row_topic(source, table_id)
    if folded_topic(topic) in taken_topics(subscriber.tenant, (each.name for each in subscriber.spec.sources)):
        raise TopicCollision(
            f"topic {topic}: is of another kind, and {table_id} of {source} would be written to it; name the topics "
            "otherwise (topics.name), or exclude the table"
        )
    if not subscriber.shares_topic:
        claims.claim(subscriber.spec, source, table_id)


def compile_routes(
    source: str,
    table: TableSchema,
    subscribers: Sequence[Subscriber],
    refused_topics: Mapping[str, str],
    form: EnvelopeForm = MYSQL_FORM,
    keys: MaskKeys = NO_KEYS,
    registry: SchemaIds = NO_REGISTRY,
    claimed_topics: Mapping[str, str] = NONE_TAKEN,
    memory: RouteMemory | None = None,
) -> TableRoutes:
    """The routes of one table version: tenants whose events are equal are put together. ``refused_topics``: those that Kafka
    refuses, ``claimed_topics``: those that are another table's; each with the reason.

    Raises:
        ServiceUnavailable: the registry does not answer; try again.
    """
    groups: dict[tuple[_Likeness, WireIds | None], list[Subscriber]] = {}
    memory = memory or RouteMemory()
    before, now = memory.views(table, form), VersionViews(table)
    now.conditions.update(before.conditions)
    projections: dict[_Likeness, Projection] = {}
    schemas: dict[_Likeness, EventSchemas | None] = {}
    refused = []
    unready = {}
    for subscriber in subscribers:
        try:
            subscriber.sees(table.table_id)  # raises again where it cannot be judged
            likeness = _likeness(subscriber)
            if likeness not in projections and likeness in before.views:
                projections[likeness], schemas[likeness] = now.views[likeness] = before.views[likeness]
            if likeness not in projections:
                projections[likeness] = compile_projection(
                    table,
                    subscriber.selection,
                    subscriber.spec.format.names_of_fields,
                    partial(keys.key, subscriber.tenant),
                    now.conditions,
                )
                schemas[likeness] = _event_schemas(source, projections[likeness], subscriber.spec.format, form)
                if not _has_keys(subscriber):
                    now.views[likeness] = projections[likeness], schemas[likeness]
            _check_topic_length(subscriber, source, table.table_id)
            _check_topics(subscriber, source, table.table_id, refused_topics, claimed_topics)
            topic = subscriber.row_topic(source, table.table_id)
            ids = wire_ids(subscriber.spec.format, topic, schemas[likeness], registry)
            groups.setdefault((likeness, ids), []).append(subscriber)
        except SchemaNotKnown as error:
            unready[subscriber.tenant] = str(error)
        except Exception as error:
            if is_of_all(error):
                raise
            refused.append(_refused_route(subscriber, source, table.table_id, error))
    in_use = {id(each) for projection, _ in now.views.values() for each in projection.filters}
    now.conditions = {where: each for where, each in now.conditions.items() if id(each) in in_use}
    memory.keep(form, now)
    made = []
    for (likeness, ids), members in groups.items():
        try:
            written = encoding(members[0].spec.format, schemas[likeness], ids)
            made.append(_group(source, projections[likeness], written, members))
        except Exception as error:
            if is_of_all(error):
                raise
            refused += [_refused_route(member, source, table.table_id, error) for member in members]
    columns = openings_of(tuple(column.name for column in table.columns))
    return TableRoutes(table.table_id, tuple(made), tuple(refused), unready, columns=columns)


def _refused_route(subscriber: Subscriber, source: str, table_id: TableId, error: Exception) -> RefusedRoute:
    is_foreseen = isinstance(error, InvalidProjection | SchemaRefused)
    return RefusedRoute(
        target=_row_target(subscriber, source, table_id),
        dead_letters=dead_letter_target(subscriber),
        reason=str(error) if is_foreseen else unforeseen_refusal(subscriber, error),
        is_schema_refused=isinstance(error, SchemaRefused),
        is_of_document=not isinstance(error, SchemaRefused | KeysMissing | _TopicRefused | _TopicTaken),
        is_key_missing=isinstance(error, KeysMissing),
        is_topic_refused=isinstance(error, _TopicRefused),
        is_topic_taken=isinstance(error, _TopicTaken),
    )


def unforeseen_refusal(subscriber: Subscriber, error: Exception) -> str:
    """The reason that a tenant is given for an error that nobody foresaw; the log has all of it."""
    log.error("refused_unforeseen", tenant_id=subscriber.tenant, exc_info=error)
    return refusal_of(error)


class _TopicRefused(InvalidProjection):
    """Kafka has something against a topic."""


class _TopicTaken(InvalidProjection):
    """Another table has the topic."""


_Likeness = tuple[object, ...]


def _likeness(subscriber: Subscriber) -> _Likeness:
    """Equal for tenants that see the same: all of a selection and a form but which tables are seen. A tenant whose masks have
    keys is like no other: the same name is another key there."""
    selection = msgspec.structs.replace(subscriber.selection, include_tables=(), exclude_tables=())
    return selection, subscriber.spec.format, subscriber.tenant if _has_keys(subscriber) else None


def _has_keys(subscriber: Subscriber) -> bool:
    return any(mask.key_from is not None for mask in subscriber.selection.masks)


def _check_topic_length(subscriber: Subscriber, source: str, table_id: TableId) -> None:
    name = subscriber.row_topic(source, table_id)
    if len(name) > _MAX_TOPIC_CHARACTERS:
        raise InvalidProjection(
            f"topic {name} has more than the {_MAX_TOPIC_CHARACTERS} characters that Kafka allows; exclude the table"
        )


def _check_topics(
    subscriber: Subscriber,
    source: str,
    table_id: TableId,
    refused_topics: Mapping[str, str],
    claimed_topics: Mapping[str, str],
) -> None:
    for target in row_targets(subscriber, source, table_id):
        if target.topic.name in claimed_topics:
            raise _TopicTaken(claimed_topics[target.topic.name])
        if target.topic.name in refused_topics:
            raise _TopicRefused(refused_topics[target.topic.name])


def _event_schemas(
    source: str, projection: Projection, event_format: FormatSettings, form: EnvelopeForm
) -> EventSchemas | None:
    """None where the form of the events does not need them."""
    if not needs_schemas(event_format):
        return None
    names = event_format.names_of_schemas
    return EventSchemas(
        key_schema(source, projection.schema, names),
        value_schema(source, projection.schema, form, names, _source_types(projection, event_format, form)),
    )


def _group(source: str, projection: Projection, written: Encoding, members: Sequence[Subscriber]) -> RouteGroup:
    targets = tuple(_row_target(member, source, projection.schema.table_id) for member in members)
    return RouteGroup(
        projection,
        written,
        targets,
        tuple(dead_letter_target(member) for member in members),
        tuple(
            _announcement(source, projection.schema, member, target)
            for member, target in zip(members, targets, strict=True)
            if not member.shares_topic  # a topic and a version name no schema there, and no sink reads it
        ),
    )


def _source_types(
    projection: Projection, event_format: FormatSettings, form: EnvelopeForm
) -> dict[str, dict[str, str]]:
    """Parameters of the fields that the tenant chose, by field. A masked value is no longer of its source's type."""
    chosen, table_id = event_format.source_types, projection.schema.table_id
    by_field: dict[str, dict[str, str]] = {}
    if chosen == SourceTypes():
        return by_field
    source_names = {seen: name for name, seen in projection.field_names.items()}
    for field in projection.schema.columns:
        name = source_names.get(field.name, field.name)
        if name in projection.masks:
            continue
        column = msgspec.structs.replace(field, name=name)
        own = _source_type(column, form.connector)
        if any_column(chosen.columns, f"{table_id}.{name}") or any_column(chosen.types, f"{table_id}.{own.name}"):
            by_field[field.name] = own.parameters(name)
    return by_field


def _source_type(column: Column, connector: str) -> SourceType:
    return oracle_source_type(column) if connector == _ORACLE else mysql_source_type(column, connector)


def _announcement(source: str, schema: TableSchema, subscriber: Subscriber, target: Target) -> Announcement:
    delivered = DeliveredSchema(topic=target.topic.name, source=source, table_schema=schema)
    return Announcement(table_schemas_target(subscriber), delivered)


def _row_target(subscriber: Subscriber, source: str, table_id: TableId) -> Target:
    return Target(subscriber.tenant, subscriber.topic(subscriber.row_topic(source, table_id)))


def row_targets(subscriber: Subscriber, source: str, table_id: TableId) -> tuple[Target, ...]:
    """The topics that have to be there before a table's rows are written."""
    return _row_target(subscriber, source, table_id), table_schemas_target(subscriber)


def table_schemas_target(subscriber: Subscriber) -> Target:
    """Where a tenant's sinks look up schemas; the newest record of each key is kept for ever."""
    name = table_schemas_topic(subscriber.tenant)
    return Target(subscriber.tenant, subscriber.single_topic(name, **{"cleanup.policy": "compact"}))


def dead_letter_target(subscriber: Subscriber) -> Target:
    """Where a tenant's events go that cannot be delivered."""
    return Target(subscriber.tenant, subscriber.single_topic(dead_letter_topic(subscriber.tenant)))


def schema_changes_target(subscriber: Subscriber, source: str) -> Target:
    """Where a tenant's schema-change events go."""
    return Target(subscriber.tenant, subscriber.single_topic(schema_changes_topic(subscriber.tenant, source)))


def transactions_target(subscriber: Subscriber, source: str) -> Target:
    """Where BEGIN and END of source transactions go."""
    return Target(subscriber.tenant, subscriber.single_topic(transactions_topic(subscriber.tenant, source)))
