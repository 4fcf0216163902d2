"""A tenant in Kafka: topics, consumer groups, and a user with rights and quotas, where somebody made one."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable, TransientError
from libs.events.names import changes_topic
from libs.kafka.admin import KafkaClient
from libs.kafka.tenant_access import farewell, topics_of_tenant, user_of
from libs.mesh.home import Home
from libs.mesh.processes import KAFKA
from libs.mesh.tenant_topics import TIMEOUT_S, open_consumer, partitions_of
from libs.operations.erase.held import Held, size_of

_RETENTION: Final = "retention.ms"
_DAY_MS: Final = 86_400_000

_Found = TypeVar("_Found")


def held_in_kafka(kafka: KafkaSettings, tenant: str, logs_dir: Path | None) -> list[Held]:
    """``logs_dir``: the broker's own folder, for sizes; None: it is not seen from here.

    Raises BrokerUnavailable, or AccessDenied where this user may not look.
    """

    async def look(client: KafkaClient) -> list[Held]:
        found = await client.observe()
        user = user_of(tenant)
        rights = sum(acl.user == user for acl in found.acls)
        return [
            *_topics(kafka, topics_of_tenant(tenant, found), logs_dir),
            *(Held(kind="consumer group", name=group) for group in await client.groups_of(tenant)),
            *([Held(kind="Kafka user", name=user)] if user in found.users else []),
            *([Held(kind="Kafka rights", name=user, records=rights)] if rights else []),
            *([Held(kind="Kafka quotas", name=user)] if (found.quotas or {}).get(user) else []),
        ]

    return _asked(kafka, look)


def remove_from_kafka(kafka: KafkaSettings, tenant: str) -> None:
    """Only once router and sink have let the tenant go: a router that still writes would fail.

    Raises:
        BrokerUnavailable: not all could be done; call it again.
        AccessDenied: this user may not.
    """

    async def remove(client: KafkaClient) -> None:
        failed = await client.apply(list(farewell(tenant, await client.observe(), with_topics=True)))
        for _, error in failed:
            raise error
        refused = await client.delete_groups(await client.groups_of(tenant))
        if refused:
            raise TransientError("; ".join(f"consumer group {name}: {error}" for name, error in refused.items()))

    _asked(kafka, remove)


def deleted_folders(home: Home, tenant: str) -> int:
    """How many folders of deleted topics the broker has yet to remove; it waits a minute, for readers."""
    return len(list((home.data_dir / KAFKA / "logs").glob(f"{tenant}.*-delete")))


def retention_of_changes(kafka: KafkaSettings, source: str) -> str:
    """How long Kafka keeps the source's changes, every tenant's among them, in words."""

    async def look(client: KafkaClient) -> str:
        topic = changes_topic(source)
        configs = (await client.observe([topic])).configs or {}
        kept_ms = int(configs.get(topic, {}).get(_RETENTION, "-1"))
        return "for ever" if kept_ms < 0 else f"for {kept_ms / _DAY_MS:.3g} day(s)"

    return _asked(kafka, look)


def _topics(kafka: KafkaSettings, topics: list[str], logs_dir: Path | None) -> list[Held]:
    consumer = open_consumer(kafka)
    try:
        return [
            Held(kind="topic", name=topic, records=_records(consumer, topic), bytes=_bytes(logs_dir, topic))
            for topic in topics
        ]
    finally:
        consumer.close()


def _records(consumer: Consumer, topic: str) -> int:
    total = 0
    for partition in partitions_of(consumer, topic):
        try:
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
        except KafkaException as error:
            raise BrokerUnavailable(f"Kafka does not answer about topic {topic}: is the stack up?") from error
        total += end - first
    return total


def _bytes(logs_dir: Path | None, topic: str) -> int | None:
    if logs_dir is None:
        return None
    folders = logs_dir.glob(f"{topic}-*")
    return sum(size_of(folder) for folder in folders if folder.name.rpartition("-")[2].isdigit())


def _asked(kafka: KafkaSettings, ask: Callable[[KafkaClient], Awaitable[_Found]]) -> _Found:
    async def within() -> _Found:
        client = KafkaClient(kafka)
        try:
            return await ask(client)
        finally:
            await client.close()

    return asyncio.run(within())
