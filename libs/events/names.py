"""Names of topics and headers: the one place that spells them."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from libs.types.table import TableId
from libs.types.tenant import TenantSpec, TopicLayout

CHECKPOINTS_TOPIC: Final = "headwater.checkpoints"
SCHEMA_HISTORY_TOPIC: Final = "headwater.schema-history"
SIGNALS_TOPIC: Final = "headwater.signals"
AUDIT_TOPIC: Final = "headwater.audit"
SINK_HANDOVERS_TOPIC: Final = "headwater.sink-handovers"
"""Compacted topic of the Spark jobs' hand-overs of moving tenants (see libs.types.sink_place.Handover)."""

ORDER_HEADER: Final = "headwater.order"
"""EventOrder.sort_key() as ASCII, on every row event."""
SCHEMA_VERSION_HEADER: Final = "headwater.schema-version"
"""The table's version in schema_history as a decimal number in ASCII, on every row event."""
NEW_KEY_HEADER: Final = "__debezium.newkey"
OLD_KEY_HEADER: Final = "__debezium.oldkey"
CONTEXT_LOGICAL_NAME_HEADER: Final = "__debezium.context.connectorLogicalName"
CONTEXT_TASK_HEADER: Final = "__debezium.context.taskId"
CONTEXT_CONNECTOR_HEADER: Final = "__debezium.context.connectorName"
CONTEXT_RUN_HEADER: Final = "__debezium.context.runId"


def changes_topic(source: str) -> str:
    """Topic of a source's ChangeBatches, between reader and router."""
    return f"headwater.changes.{source}"


def heartbeat_topic(source: str) -> str:
    """Topic of Debezium's heartbeat records of a source (``topic.heartbeat.prefix`` with its default)."""
    return f"__debezium-heartbeat.{source}"


ROW_TOPIC_TEMPLATES: Final = {
    TopicLayout.PER_TABLE: "{tenant}.{source}.{database}.{table}",
    TopicLayout.PER_TENANT: "{tenant}.rows",
}
"""The names of row topics without a template in the tenant's document."""
_FORBIDDEN: Final = re.compile(r"[^a-zA-Z0-9._-]")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")


def tenant_row_topic(spec: TenantSpec, source: str, table_id: TableId) -> str:
    """Topic of one table's row events, as the tenant's document names it. See ``row_topic``."""
    return row_topic(spec.tenant, source, table_id, row_topic_template(spec))


def row_topic_template(spec: TenantSpec) -> str:
    """The template of the tenant's row topics."""
    return spec.topics.name if spec.topics.name is not None else ROW_TOPIC_TEMPLATES[spec.topics.layout]


def own_topics(tenant: str, sources: Iterable[str]) -> frozenset[str]:
    """Topics of a tenant that hold no rows, so that no row topic may be called so."""
    of_sources = (topic(tenant, source) for source in sources for topic in (schema_changes_topic, transactions_topic))
    return frozenset((dead_letter_topic(tenant), table_schemas_topic(tenant), *of_sources))


@lru_cache(maxsize=10_000)
def row_topic(
    tenant: str, source: str, table_id: TableId, template: str = ROW_TOPIC_TEMPLATES[TopicLayout.PER_TABLE]
) -> str:
    """Topic of one table's row events for one tenant. A table's name is never taken for a placeholder.

    Characters that Kafka forbids become ``_``, as Debezium's topic naming does. Kafka allows
    ``[a-zA-Z0-9._-]`` only (Kafka documentation, topic names).
    """
    values = {"tenant": tenant, "source": source, "database": table_id.database, "table": table_id.table}
    return sanitize_topic(_PLACEHOLDER.sub(lambda match: values[match[1]], template))


def schema_changes_topic(tenant: str, source: str) -> str:
    """Topic of Debezium's schema-change events for one tenant."""
    return f"{tenant}.{source}"


def transactions_topic(tenant: str, source: str) -> str:
    """Topic of BEGIN and END of source transactions for one tenant."""
    return f"{tenant}.{source}.transaction"


def table_schemas_topic(tenant: str) -> str:
    """Compacted topic of the table schemas that a tenant's events are written under (see delivered_schema)."""
    return f"{tenant}.headwater.table-schemas"


def dead_letter_topic(tenant: str) -> str:
    """Topic of the events of a tenant that could not be delivered."""
    return f"{tenant}.dead-letter"


def is_side_topic(name: str) -> bool:
    """Whether a tenant's topic is one of letters, schemas or requests, by its name: not of rows, by any writer.

    >>> is_side_topic("acme.dead-letter"), is_side_topic("acme.shop.shop.orders")
    (True, False)
    """
    tenant, _, rest = name.partition(".")
    return name == dead_letter_topic(tenant) or rest.startswith("headwater.")


def taken_topics(tenant: str, sources: Iterable[str]) -> frozenset[str]:
    """Names, as ``folded_topic`` has them, that no row topic may have: of topics without rows, requests to sinks among them."""
    return frozenset(map(folded_topic, own_topics(tenant, sources) | set(sink_request_topics(tenant))))


def replays_topic(tenant: str) -> str:
    """Topic of the requests to a tenant's sink to take up dead letters again (see dead_letter.ReplayRequest)."""
    return f"{tenant}.headwater.replays"


def resyncs_topic(tenant: str) -> str:
    """Topic of the requests to a tenant's sink to build tables again (see libs.sink_state.resync.ResyncRequest)."""
    return f"{tenant}.headwater.resyncs"


def wakes_topic(tenant: str) -> str:
    """Topic of records that have a tenant's sink begin a batch, though nothing is new (see libs.sink_state.wake.Wake)."""
    return f"{tenant}.headwater.wakes"


def sink_request_topics(tenant: str) -> tuple[str, ...]:
    """The topics that a tenant's sink reads beside those of rows."""
    return replays_topic(tenant), resyncs_topic(tenant), wakes_topic(tenant)


def source_dead_letter_topic(source: str) -> str:
    """Topic of a source's undecodable rows that its reader sets aside."""
    return f"headwater.dead-letter.{source}"


ROUTER_GROUP: Final = "headwater-router"
"""The routers' consumer group, unless their settings name another."""
STRAGGLING: Final = "straggling"
"""The note beside the offset of a tenant's own group while the tenant lags; read by ``is_straggling``."""


def is_straggling(note: str | None) -> bool:
    """Whether the note beside such an offset says so.

    confluent-kafka 2.16 reads a note beyond its end, up to the next zero in memory ("straggling\\x01" was seen, in one of 300):
    only how it begins can be trusted.
    """
    return note is not None and note.startswith(STRAGGLING)


def straggler_group(router_group: str, tenant: str) -> str:
    """The group whose offsets of changes topics are the place of a tenant that lags the others."""
    return f"{router_group}.{tenant}"


def folded_topic(name: str) -> str:
    """Equal for names that Kafka takes for one: its metrics have ``_`` for ``.`` (``Topic.hasCollision`` of Kafka's source).

    >>> folded_topic("acme.shop.a.b") == folded_topic("acme.shop.a_b")
    True
    """
    return name.replace(".", "_")


def sanitize_topic(name: str) -> str:
    """``name`` with every character that Kafka forbids in a topic replaced by ``_``."""
    return _FORBIDDEN.sub("_", name)
