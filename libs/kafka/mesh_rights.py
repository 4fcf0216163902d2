"""The rights in Kafka of each component of the mesh, and no more; plain values.

``services.tenant_operator.mesh_users`` grants them. docs/kubernetes.md, "Kafka users of the mesh", lists them, and a test
compares the two.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

from libs.events.names import (
    AUDIT_TOPIC,
    CHECKPOINTS_TOPIC,
    ROUTER_GROUP,
    SCHEMA_HISTORY_TOPIC,
    SIGNALS_TOPIC,
    SINK_HANDOVERS_TOPIC,
    changes_topic,
    heartbeat_topic,
    source_dead_letter_topic,
)
from libs.kafka.tenant_access import Acl

Component = Literal["schema-history", "checkpoint-committer", "reader", "router", "tenant-operator", "sink", "check"]
COMPONENTS: Final[tuple[Component, ...]] = (
    "schema-history",
    "checkpoint-committer",
    "reader",
    "router",
    "tenant-operator",
    "sink",
    "check",
)

_ANY: Final = "*"
_CLUSTER: Final = "kafka-cluster"
_OF_CLUSTER: Final = "BROKER"
"""librdkafka's name for rights on the cluster."""
_OF_ALL_TENANTS: Final = (changes_topic(""), source_dead_letter_topic(""), heartbeat_topic(""))
"""Beginnings of topics with rows of sources as no tenant may see them."""
_OF_THE_MESH: Final = (CHECKPOINTS_TOPIC, SCHEMA_HISTORY_TOPIC, SIGNALS_TOPIC, AUDIT_TOPIC, SINK_HANDOVERS_TOPIC)


def rights_of(
    component: Component, user: str, sources: Sequence[str] = (), *, router_group: str = ROUTER_GROUP
) -> frozenset[Acl]:
    """The rights of ``component``, as ``user``; ``sources`` are those that it reads, routes or compares.

    Nobody can list the tenants' topics beforehand, so some components hold a right on every topic. A denied right wins over
    it, and keeps them from the topics of the mesh.
    """
    match component:
        case "schema-history":
            rights = [*_state(SCHEMA_HISTORY_TOPIC, "headwater-schema-history"), *_audit()]
        case "checkpoint-committer":
            rights = [*_state(CHECKPOINTS_TOPIC, "headwater-checkpoint-committer"), *_audit()]
        case "reader":
            rights = [right for source in sources for right in _reader(source)]
            rights += [*_topic(CHECKPOINTS_TOPIC, "CREATE", "DESCRIBE", "WRITE"), *_audit()]
            rights += _topic(SIGNALS_TOPIC, "CREATE", "DESCRIBE", "READ")
        case "router":
            rights = [right for source in sources for right in _topic(changes_topic(source), "DESCRIBE", "READ")]
            rights += [*_topic(_ANY, "CREATE", "DESCRIBE", "WRITE"), *_denied(_OF_ALL_TENANTS, _OF_THE_MESH, "WRITE")]
            rights += [_right("TRANSACTIONAL_ID", router_group, "WRITE", is_prefix=True)]
            rights += [_right("GROUP", router_group, operation, is_prefix=True) for operation in ("DESCRIBE", "READ")]
        case "tenant-operator":
            rights = _topic(_ANY, "CREATE", "DESCRIBE", "DELETE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS")
            rights += [_right(_OF_CLUSTER, _CLUSTER, operation) for operation in ("ALTER", "DESCRIBE")]
            rights += [_right(_OF_CLUSTER, _CLUSTER, operation) for operation in ("ALTER_CONFIGS", "DESCRIBE_CONFIGS")]
            rights += [*_topic(SIGNALS_TOPIC, "WRITE"), *_topic(SINK_HANDOVERS_TOPIC, "READ", "WRITE")]
            rights += _denied(_OF_ALL_TENANTS, (CHECKPOINTS_TOPIC, SCHEMA_HISTORY_TOPIC, AUDIT_TOPIC), "DELETE")
        case "sink":
            mesh = tuple(topic for topic in _OF_THE_MESH if topic != SINK_HANDOVERS_TOPIC)
            rights = _topic(_ANY, "CREATE", "DESCRIBE", "READ", "WRITE")
            rights += [*_denied(_OF_ALL_TENANTS, mesh, "READ"), *_denied(_OF_ALL_TENANTS, mesh, "WRITE")]
        case "check":
            mesh = tuple(each for each in _OF_THE_MESH if each not in (CHECKPOINTS_TOPIC, SINK_HANDOVERS_TOPIC))
            rights = [*_topic(_ANY, "DESCRIBE", "READ"), *_topic(SIGNALS_TOPIC, "WRITE"), *_denied((), mesh, "READ")]
            rights += [_right("GROUP", router_group, "DESCRIBE", is_prefix=True)]
    return frozenset(Acl(user, *right[:4], is_allow=right[4]) for right in rights)


_Right = tuple[str, str, bool, str, bool]
"""Resource, name, whether it is the beginning of names, operation, whether it is allowed."""


def _right(resource: str, name: str, operation: str, *, is_prefix: bool = False, is_allow: bool = True) -> _Right:
    return resource, name, is_prefix, operation, is_allow


def _topic(name: str, *operations: str) -> list[_Right]:
    return [_right("TOPIC", name, operation) for operation in operations]


def _state(topic: str, transactional_id: str) -> Iterator[_Right]:
    """Of a service that writes its state into ``topic`` and reads it again."""
    yield from _topic(topic, "CREATE", "DESCRIBE", "READ", "WRITE")
    yield _right("TRANSACTIONAL_ID", transactional_id, "WRITE")


def _audit() -> list[_Right]:
    return _topic(AUDIT_TOPIC, "CREATE", "DESCRIBE", "WRITE")


def _reader(source: str) -> Iterator[_Right]:
    yield from _topic(changes_topic(source), "ALTER", "CREATE", "DESCRIBE", "WRITE")
    for topic in (source_dead_letter_topic(source), heartbeat_topic(source)):
        yield from _topic(topic, "CREATE", "DESCRIBE", "WRITE")
    yield _right("TRANSACTIONAL_ID", f"headwater-reader-{source}-", "WRITE", is_prefix=True)
    yield _right("GROUP", f"headwater-signals-{source}-", "READ", is_prefix=True)


def _denied(beginnings: Iterable[str], topics: Iterable[str], operation: str) -> Iterator[_Right]:
    for name in beginnings:
        yield _right("TOPIC", name, operation, is_prefix=True, is_allow=False)
    for name in topics:
        yield _right("TOPIC", name, operation, is_allow=False)
