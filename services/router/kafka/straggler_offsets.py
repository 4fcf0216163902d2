"""The tenants that lag in a partition of a changes topic, and their places: kept in Kafka, as offsets of groups.

A tenant that lags has a group of its own, ``<router's group>.<tenant>``. Its offset is the tenant's cursor, and the note
beside it says that the cursor counts (``straggling``) or that the tenant went back to the others (none). Both change in the
Kafka transactions that write the tenant's records, so they are never apart from them. Beside the router's own offset stands how
many tenants lag: a process that finds fewer groups than that lacks some. Kafka's id of the topic
stands there too: an offset means nothing in a topic that was deleted and made again.
"""

import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from aiokafka import TopicPartition
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicPartition as OffsetOf
from confluent_kafka.admin import AdminClient

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable
from libs.events.names import STRAGGLING, is_straggling, straggler_group
from libs.kafka.clients import client_config
from libs.kafka.offset_note import note_of

_TIMEOUT_S: Final = 30.0
_RETRY_S: Final = 0.2
_COUNT: Final = re.compile(rf"{STRAGGLING}=(\d+)")
_TOPIC: Final = "topic"
_TOPIC_ID: Final = re.compile(rf"(?:^|;){_TOPIC}=([^;]+);")


class CommittedOffset(NamedTuple):
    """Where a group goes on in a partition."""

    next_offset: int
    note: str


def is_anyone_behind(kafka: KafkaSettings, group: str, place: TopicPartition) -> bool:
    """Whether a partition has stragglers. Blocks, but not for cursors that an open transaction moves: where its router was
    killed that takes a minute, unless the next one fences it first.

    Raises:
        BrokerUnavailable: Kafka did not say.
    """
    admin = AdminClient(client_config(kafka))
    if straggler_count(_committed(admin, [group], place)[group].note):
        return True
    return bool(_straggling(admin, group, place, is_stable=False))


def find_stragglers(kafka: KafkaSettings, group: str, place: TopicPartition) -> dict[str, int]:
    """The tenants that lag in a partition, each with its cursor. Blocks.

    Raises:
        BrokerUnavailable: Kafka did not say, or not of all: the router needs DESCRIBE on the groups that begin with its own.
    """
    admin = AdminClient(client_config(kafka))
    found = _straggling(admin, group, place)
    noted = straggler_count(_committed(admin, [group], place)[group].note)
    if len(found) < noted:
        raise BrokerUnavailable(
            f"{noted} tenants lag in {place.topic}/{place.partition}, and Kafka names {len(found)}; grant the router "
            f"READ on groups whose names begin with {straggler_group(group, '')}"
        )
    return found


def _straggling(admin: AdminClient, group: str, place: TopicPartition, *, is_stable: bool = True) -> dict[str, int]:
    """By their own groups' offsets."""
    prefix = straggler_group(group, "")
    try:
        listed = admin.list_consumer_groups(request_timeout=_TIMEOUT_S).result(_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        raise BrokerUnavailable(f"Kafka does not list its consumer groups: {error}") from error
    if listed.errors:
        raise BrokerUnavailable(f"Kafka does not list all of its consumer groups: {listed.errors[0]}")
    groups = [each.group_id for each in listed.valid if each.group_id.startswith(prefix)]
    return {
        name.removeprefix(prefix): committed.next_offset
        for name, committed in _committed(admin, groups, place, is_stable=is_stable).items()
        if is_straggling(committed.note)
    }


def committed_offsets(
    kafka: KafkaSettings, groups: Sequence[str], place: TopicPartition
) -> Mapping[str, CommittedOffset]:
    """Where groups go on in a partition; those of open transactions are waited for. Blocks. Raises BrokerUnavailable."""
    return _committed(AdminClient(client_config(kafka)), groups, place)


def own_note(stragglers: Collection[str], topic_id: str = "") -> str:
    """The note beside the router's own offset. ``topic_id``: empty if Kafka has none."""
    count = f"{STRAGGLING}={len(stragglers)};" if stragglers else ""
    return count + (f"{_TOPIC}={topic_id};" if topic_id else "")


def straggler_count(note: str) -> int:
    """The note that ``own_note`` wrote, with anything after it (``is_straggling``); another note says nothing."""
    found = _COUNT.match(note)
    return int(found[1]) if found is not None else 0


def noted_topic_id(note: str) -> str:
    """The id that ``own_note`` wrote; empty: none, as after the offset was set by hand."""
    found = _TOPIC_ID.search(note)
    return found[1] if found is not None else ""


def _committed(
    admin: AdminClient, groups: Sequence[str], place: TopicPartition, *, is_stable: bool = True
) -> dict[str, CommittedOffset]:
    """Asked of all at once. ``is_stable``: offsets that an open transaction moves are waited for."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    found: dict[str, CommittedOffset] = {}
    while missing := [group for group in groups if group not in found]:
        asked = {
            group: admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, [OffsetOf(*place)])],
                require_stable=is_stable,
                request_timeout=_TIMEOUT_S,
            )[group]
            for group in missing
        }
        for group, answer in asked.items():
            try:
                [offset] = answer.result(_TIMEOUT_S).topic_partitions or []
                if offset.error is not None:
                    raise KafkaException(offset.error)
                found[group] = CommittedOffset(max(offset.offset, 0), note_of(offset))
            except (KafkaException, TimeoutError, ValueError) as error:
                if time.monotonic() > deadline_s:
                    raise BrokerUnavailable(f"Kafka does not give the offset of group {group}: {error}") from error
        if len(found) < len(groups):
            time.sleep(_RETRY_S)
    return found
