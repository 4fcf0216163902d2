"""Debezium's Vitess connector in Kafka Connect: the peer of the vstream_reader, in the bench and in the differential test."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from bench.connect import LOCKS_DIR, Connector, kafka_connect
from libs.servers.ports import LOOPBACK
from libs.setup.jars import JarSet, jar_set


def debezium_vitess(
    folder: Path,
    bootstrap_servers: str,
    *,
    vtgate_port: int,
    keyspace: str,
    topic_prefix: str,
    options: Mapping[str, object],
    with_schemas: bool = False,
) -> AbstractContextManager[Connector]:
    """Connect with its connector, which follows a keyspace; ended with the block. ``options`` win over the properties here.

    Raises:
        SetupFailed: the jars could not be fetched.
        ServiceUnavailable: Connect did not start; the message has the end of its log.
    """
    settings: dict[str, object] = {
        "name": topic_prefix,
        "connector.class": "io.debezium.connector.vitess.VitessConnector",
        "tasks.max": 1,
        "database.hostname": LOOPBACK,
        "database.port": vtgate_port,
        "vitess.keyspace": keyspace,
        "topic.prefix": topic_prefix,
        **options,
    }
    return kafka_connect(folder, bootstrap_servers, vitess_peer_jars(), settings, with_schemas=with_schemas)


def vitess_peer_jars() -> JarSet:
    """Connect 4.3.1, the connector 3.5.0.Final and their dependencies; 76 MB."""
    return jar_set("debezium-vitess", LOCKS_DIR)
