"""The peer of the catch-up bench: Debezium's MySQL connector in Kafka Connect, tuned, on the same servers and the same log.

The connector is started before the log is written, and then stopped, so that resuming it reads the log from right before the
measured events.

The jars, 45 MB, are fetched when the bench first needs them, pinned as those of ``libs/setup/locks`` are.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from bench.connect import LOCKS_DIR, Connector, kafka_connect
from bench.stack import Servers
from bench.workload import DATABASE, TABLE
from libs.servers.ports import LOOPBACK
from libs.setup.jars import JarSet, jar_set

TOPIC: Final = f"debezium.{DATABASE}.{TABLE}"


def debezium(
    folder: Path,
    servers: Servers,
    *,
    snapshot_mode: str = "no_data",
    options: Mapping[str, object] | None = None,
    with_schemas: bool = False,
) -> AbstractContextManager[Connector]:
    """Connect with its connector, which follows the bench's table into ``TOPIC``; ended with the block. The table exists.

    ``snapshot_mode`` as Debezium has it; by default it reads only changes that are written to the log from now on.
    ``options``: properties of the connector besides, or instead of, the bench's.

    Raises:
        SetupFailed: the jars could not be fetched.
        ServiceUnavailable: Connect did not start; the message has the end of its log.
    """
    settings = {**_connector_settings(servers, snapshot_mode), **(options or {})}
    return kafka_connect(folder, servers.bootstrap_servers, peer_jars(), settings, with_schemas=with_schemas)


def peer_jars() -> JarSet:
    """Connect, the connector and their dependencies."""
    return jar_set("debezium", LOCKS_DIR)


def _connector_settings(servers: Servers, snapshot_mode: str) -> dict[str, object]:
    """Debezium 3.6 documentation, "MySQL connector properties". Other properties have their defaults, those of headers
    included."""
    return {
        "name": "debezium",
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "tasks.max": 1,
        "database.hostname": LOOPBACK,
        "database.port": servers.mysql_port,
        "database.user": "root",
        "database.server.id": 6002,  # any that no other replica has
        "topic.prefix": TOPIC.split(".")[0],
        "database.include.list": DATABASE,
        "schema.history.internal.kafka.bootstrap.servers": servers.bootstrap_servers,
        "schema.history.internal.kafka.topic": "debezium-schema-history",
        "snapshot.mode": snapshot_mode,
        "snapshot.fetch.size": 20_000,  # as our chunks
        "snapshot.locking.mode": "none",  # no statement changes a table meanwhile
        "tombstones.on.delete": "true",  # the default, as ours
        "max.batch.size": 8_192,  # 2,048 by default: fewer, larger hand-overs to Connect
        "max.queue.size": 32_768,  # 8,192 by default: reading and sending overlap
    }
