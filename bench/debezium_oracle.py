"""Debezium's Oracle connector in Kafka Connect: the peer of the logminer_reader, in the differential test."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from bench.connect import LOCKS_DIR, Connector, kafka_connect
from libs.servers.ports import LOOPBACK
from libs.setup.jars import JarSet, jar_set


def debezium_oracle(
    folder: Path,
    bootstrap_servers: str,
    *,
    port: int,
    service_name: str,
    user: str,
    password: str,
    topic_prefix: str,
    options: Mapping[str, object],
) -> AbstractContextManager[Connector]:
    """Connect with its connector, which follows a database; ended with the block. ``options`` win over the properties here.

    Raises:
        SetupFailed: the jars could not be fetched.
        ServiceUnavailable: Connect did not start; the message has the end of its log.
    """
    settings: dict[str, object] = {
        "name": topic_prefix,
        "connector.class": "io.debezium.connector.oracle.OracleConnector",
        "tasks.max": 1,
        "database.hostname": LOOPBACK,
        "database.port": port,
        "database.user": user,
        "database.password": password,
        "database.dbname": service_name,
        "log.mining.strategy": "online_catalog",
        "topic.prefix": topic_prefix,
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": folder / "schema-history",
        "schema.history.internal.store.only.captured.tables.ddl": "true",
        **options,
    }
    return kafka_connect(folder, bootstrap_servers, oracle_peer_jars(), settings)


def oracle_peer_jars() -> JarSet:
    """Connect 4.3.1, the connector 3.6.1.Final, ojdbc11 and their dependencies; 57 MB."""
    return jar_set("debezium-oracle", LOCKS_DIR)
