"""Tenants in Kafka beside records: topics, users, rights and quotas, and the actions on them; plain values.

``admin`` looks and does. What begins with ``tenant.`` among Kafka's users, and with ``<tenant>.`` among topics and consumer
groups, is a tenant's: its name has no dot, so no prefix is part of another. tenant_operator plans all of it;
``farewell`` is for a tenant that goes, there and in ``headwater erase``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from libs.config.load import Secret
from libs.kafka.clients import TopicSpec

USER_PREFIX: Final = "tenant."
"""Before the tenant's name: no tenant is called as a user of somebody else."""


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
    """Kafka's objects."""

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
    """Somebody changed objects that the tenant's readers rely on."""

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
    """The common prefix of a tenant's topics and consumer groups."""
    return f"{tenant}."


def farewell(tenant: str, found: KafkaState, *, with_topics: bool) -> Iterable[KafkaAction]:
    """The actions that remove ``tenant`` from Kafka, its topics only ``with_topics``.

    The password first: from then on nobody comes as this tenant.
    """
    user = user_of(tenant)
    if user in found.users:
        yield DeleteUser(tenant, user)
    for acl in sorted(acl for acl in found.acls if acl.user == user):
        yield Revoke(tenant, acl)
    if found.quotas is not None and found.quotas.get(user):
        yield SetQuotas(tenant, user, dict.fromkeys(found.quotas[user]))
    if with_topics:
        yield from (DeleteTopic(tenant, topic) for topic in topics_of_tenant(tenant, found))


def topics_of_tenant(tenant: str, found: KafkaState) -> list[str]:
    """Every existing topic of ``tenant``, of any content."""
    return sorted(topic for topic in found.topics if topic.startswith(prefix_of(tenant)))
