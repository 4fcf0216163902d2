"""The actions that bring Kafka to the tenants' documents: from two states to plain values.

Of each tenant in force: its topics, a SCRAM user, the ACLs of that user, its quotas. A tenant's user may read all that
begins with
``<tenant>.`` and nothing else. Kafka's users that begin with ``tenant.`` are the operator's: rights that nobody planned
are taken away.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from libs.events.names import dead_letter_topic, schema_changes_topic, table_schemas_topic, transactions_topic
from libs.kafka.clients import TopicSpec
from libs.kafka.tenant_access import (
    Acl,
    ConfigureTopic,
    CreateTopic,
    Grant,
    KafkaAction,
    KafkaState,
    Revoke,
    SetPassword,
    SetQuotas,
    farewell,
    prefix_of,
    user_of,
)
from libs.types.tenant import TenantSpec
from services.tenant_operator.judge import InForce, Leaving
from services.tenant_operator.settings import QuotaSettings

TOPIC: Final = "TOPIC"
GROUP: Final = "GROUP"
RIGHTS: Final = (
    *((TOPIC, operation) for operation in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")),
    *((GROUP, operation) for operation in ("READ", "DESCRIBE", "DELETE")),
)
"""Of a tenant's user, on everything that begins with its prefix."""
CONSUMER_RATE: Final = "consumer_byte_rate"
PRODUCER_RATE: Final = "producer_byte_rate"
REQUEST_SHARE: Final = "request_percentage"


def topics_of(spec: TenantSpec) -> tuple[TopicSpec, ...]:
    """The topics that a tenant has from the start. Those of its rows are made by the router, with a table's first row.

    All have one Kafka partition, because their order is that of the log; the router makes them too, in the same way.
    """
    replication = spec.topics.replication_factor
    names = [dead_letter_topic(spec.tenant)]
    for selection in spec.sources:
        if spec.topics.schema_changes:
            names.append(schema_changes_topic(spec.tenant, selection.name))
        if spec.topics.transactions:
            names.append(transactions_topic(spec.tenant, selection.name))
    compacted = TopicSpec(
        name=table_schemas_topic(spec.tenant), replication_factor=replication, config={"cleanup.policy": "compact"}
    )
    return (compacted, *(TopicSpec(name=name, replication_factor=replication) for name in names))


def plan_kafka(
    in_force: Sequence[InForce],
    leaving: Sequence[Leaving],
    found: KafkaState,
    *,
    quotas_of: Callable[[str], QuotaSettings],
    note: Callable[[str, Exception], None],
) -> list[KafkaAction]:
    """The actions that make Kafka as it should be; none where it is. In the order in which they are to be done.

    ``note``: takes a tenant's exception; nothing is done for it, and all for the others.
    """
    actions: list[KafkaAction] = []
    acls_of: dict[str, set[Acl]] = {}
    for acl in found.acls:
        acls_of.setdefault(acl.user, set()).add(acl)
    for each in in_force:
        try:
            actions += _actions_of(each, found, acls_of.get(user_of(each.tenant), set()), quotas_of(each.tenant))
        except Exception as error:
            note(each.tenant, error)
    for gone in leaving:
        try:
            actions += farewell(gone.tenant, found, with_topics=gone.deletes_topics and gone.has_let_go)
        except Exception as error:
            note(gone.tenant, error)
    return actions


def _actions_of(each: InForce, found: KafkaState, there: set[Acl], quotas: QuotaSettings) -> list[KafkaAction]:
    user, prefix = user_of(each.tenant), prefix_of(each.tenant)
    wanted = {Acl(user, resource, prefix, True, operation) for resource, operation in RIGHTS}
    return [
        *_topic_actions(each.spec, found),
        *_user_actions(each, found),
        *(Grant(each.tenant, acl) for acl in sorted(wanted - there)),
        *(Revoke(each.tenant, acl) for acl in sorted(there - wanted)),
        *_quota_actions(each.tenant, quotas, found),
    ]


def _topic_actions(spec: TenantSpec, found: KafkaState) -> Iterable[KafkaAction]:
    for topic in topics_of(spec):
        if topic.name not in found.topics:
            yield CreateTopic(spec.tenant, topic)
        elif found.configs is not None and topic.name in found.configs:
            there = found.configs[topic.name]
            if any(there.get(name) != value for name, value in topic.config.items()):
                yield ConfigureTopic(spec.tenant, topic.name, topic.config)


def _user_actions(each: InForce, found: KafkaState) -> Iterable[KafkaAction]:
    """Kafka does not identify a password; the record does, by the version of its Secret."""
    if each.credentials is None:
        return
    user = user_of(each.tenant)
    if user not in found.users or each.record.password_version != each.credentials.version:
        yield SetPassword(each.tenant, user, each.credentials.password)


def _quota_actions(tenant: str, quotas: QuotaSettings, found: KafkaState) -> Iterable[KafkaAction]:
    if found.quotas is None:
        return
    wanted = {
        CONSUMER_RATE: quotas.consumer_bytes_per_s,
        PRODUCER_RATE: quotas.producer_bytes_per_s,
        REQUEST_SHARE: quotas.request_percent,
    }
    there = found.quotas.get(user_of(tenant), {})
    if any(there.get(name) != value for name, value in wanted.items()):
        yield SetQuotas(tenant, user_of(tenant), wanted)
