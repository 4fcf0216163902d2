"""What is to be done in Kafka so that it is as the tenants' documents have it: from two states to actions, plain values.

Of each tenant in force: its topics, a SCRAM user, the ACLs of that user, its quotas. A tenant's user may read what begins with
``<tenant>.`` and nothing else: a tenant's name has no dot, so no prefix is part of another. What begins with ``tenant.`` among
Kafka's users is the operator's: rights that nobody planned are taken away.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from libs.config.load import Secret
from libs.events.names import dead_letter_topic, schema_changes_topic, table_schemas_topic, transactions_topic
from libs.kafka.clients import TopicSpec
from libs.types.tenant import TenantSpec
from services.tenant_operator.judge import InForce, Leaving
from services.tenant_operator.settings import QuotaSettings

USER_PREFIX: Final = "tenant."
"""Before the tenant's name: no tenant is called as a user of somebody else."""
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


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """A right of a user."""

    user: str
    resource: str
    """TOPIC, GROUP or another of Kafka's kinds."""
    name: str
    is_prefix: bool
    operation: str
    is_allow: bool = True
    host: str = "*"


@dataclass(frozen=True, slots=True)
class KafkaState:
    """What Kafka holds."""

    topics: frozenset[str] = frozenset()
    configs: Mapping[str, Mapping[str, str]] | None = None
    """Of the topics that the tenants' documents ask settings for; None: nobody looked this time."""
    users: frozenset[str] = frozenset()
    """With a password by SCRAM-SHA-512."""
    acls: frozenset[Acl] = frozenset()
    """Of users that begin with USER_PREFIX."""
    quotas: Mapping[str, Mapping[str, float]] | None = None
    """By user."""


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """It is missing."""

    tenant: str
    topic: TopicSpec


@dataclass(frozen=True, slots=True)
class ConfigureTopic:
    """Somebody changed what the tenant's readers rely on."""

    tenant: str
    topic: str
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Its tenant went, and asked for that."""

    tenant: str
    topic: str


@dataclass(frozen=True, slots=True)
class SetPassword:
    """The user is missing, or its Secret changed."""

    tenant: str
    user: str
    password: Secret


@dataclass(frozen=True, slots=True)
class DeleteUser:
    """Its tenant went."""

    tenant: str
    user: str


@dataclass(frozen=True, slots=True)
class Grant:
    """A right is missing."""

    tenant: str
    acl: Acl


@dataclass(frozen=True, slots=True)
class Revoke:
    """A right that nobody planned, or of a tenant that went."""

    tenant: str
    acl: Acl


@dataclass(frozen=True, slots=True)
class SetQuotas:
    """As they should be: a value, or None where there is to be no limit."""

    tenant: str
    user: str
    values: Mapping[str, float | None]


KafkaAction = CreateTopic | ConfigureTopic | DeleteTopic | SetPassword | DeleteUser | Grant | Revoke | SetQuotas


def user_of(tenant: str) -> str:
    """The Kafka user of a tenant."""
    return f"{USER_PREFIX}{tenant}"


def prefix_of(tenant: str) -> str:
    """What the names of all of a tenant's topics and consumer groups begin with."""
    return f"{tenant}."


def topics_of(spec: TenantSpec) -> tuple[TopicSpec, ...]:
    """The topics that a tenant has from the start. Those of its rows are made by the router, with a table's first row.

    All have one Kafka partition, since their order is that of the log; the router makes them too, in the same way.
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
    quotas: QuotaSettings,
    tenant_quotas: Mapping[str, QuotaSettings],
) -> list[KafkaAction]:
    """The actions that make Kafka as it should be; none where it is. In the order in which they are to be done."""
    actions: list[KafkaAction] = []
    acls_of: dict[str, set[Acl]] = {}
    for acl in found.acls:
        acls_of.setdefault(acl.user, set()).add(acl)
    for each in in_force:
        actions.extend(_topic_actions(each.spec, found))
        actions.extend(_user_actions(each, found))
        wanted = {
            Acl(user_of(each.tenant), resource, prefix_of(each.tenant), True, operation)
            for resource, operation in RIGHTS
        }
        there = acls_of.get(user_of(each.tenant), set())
        actions.extend(Grant(each.tenant, acl) for acl in sorted(wanted - there))
        actions.extend(Revoke(each.tenant, acl) for acl in sorted(there - wanted))
        actions.extend(_quota_actions(each.tenant, tenant_quotas.get(each.tenant, quotas), found))
    for gone in leaving:
        actions.extend(_farewell(gone, found, acls_of.get(user_of(gone.tenant), set())))
    return actions


def _topic_actions(spec: TenantSpec, found: KafkaState) -> Iterable[KafkaAction]:
    for topic in topics_of(spec):
        if topic.name not in found.topics:
            yield CreateTopic(spec.tenant, topic)
        elif found.configs is not None and topic.name in found.configs:
            there = found.configs[topic.name]
            if any(there.get(name) != value for name, value in topic.config.items()):
                yield ConfigureTopic(spec.tenant, topic.name, topic.config)


def _user_actions(each: InForce, found: KafkaState) -> Iterable[KafkaAction]:
    """Kafka tells of no password which it is; the record does, by the version of the Secret that it was taken from."""
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


def _farewell(gone: Leaving, found: KafkaState, acls: Iterable[Acl]) -> Iterable[KafkaAction]:
    """The password first: from then on nobody comes as this tenant."""
    user = user_of(gone.tenant)
    if user in found.users:
        yield DeleteUser(gone.tenant, user)
    for acl in sorted(acls):
        yield Revoke(gone.tenant, acl)
    if found.quotas is not None and found.quotas.get(user):
        yield SetQuotas(gone.tenant, user, dict.fromkeys(found.quotas[user]))
    if gone.deletes_topics:
        for topic in sorted(found.topics):
            if topic.startswith(prefix_of(gone.tenant)):
                yield DeleteTopic(gone.tenant, topic)
