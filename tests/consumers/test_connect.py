"""Debezium's JDBC sink and its ExtractNewRecordState, in a Kafka Connect worker with the usual settings, into PostgreSQL."""

import functools
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import pytest

from bench.connect import kafka_connect
from libs.setup.jars import jar_set
from tests.conftest import PostgresqlServer
from tests.consumers import every_type
from tests.consumers.conftest import Publish

pytestmark = pytest.mark.rest(because="the gate holds headers and schemas of events to Debezium's recorded ones")
LOCKS: Final = Path(__file__).parents[1] / "locks"
WITH_SCHEMAS: Final = {"sink": None, "format": {"schemas": True}}
MODES: Final = {
    "default": {"unsigned_bigint": "precise"},
    "connect": {"time_precision": "connect", "decimal": "precise"},
    "text": {"time_precision": "adaptive", "decimal": "string", "binary": "base64"},
}


@pytest.mark.parametrize("mode", MODES)
def test_the_jdbc_sink_holds_the_sources_rows(
    publish: Publish, postgresql_server: PostgresqlServer, tmp_path: Path, mode: str
) -> None:
    """Envelopes as they are, and rows as ExtractNewRecordState gives them: inserts, updates, deletes, a later column."""
    source = publish(MODES[mode], {"whole": WITH_SCHEMAS})
    tables = {name: f"{name}_{source.database}" for name in ("direct", "unwrapped")}
    settings = [_sink(source.topic("whole"), postgresql_server, name, table) for name, table in tables.items()]
    settings[1] |= {
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    }
    expected = every_type.in_modes(source.stored(), MODES[mode])
    jars = jar_set("jdbc-sink", LOCKS)
    with kafka_connect(
        tmp_path / "connect",
        source.kafka.bootstrap_servers,
        jars,
        settings[0],
        with_schemas=True,
        headers_with_schemas=False,
        further=settings[1:],
    ) as connector:
        for table in tables.values():
            arrived = functools.partial(_has_last_change, postgresql_server, table, expected.keys())
            connector.wait_until(arrived, timeout_s=300.0, what=f"rows of {table}")
            assert every_type.differences(_rows(postgresql_server, table), expected) == []


def _has_last_change(server: PostgresqlServer, table: str, keys: Collection[int]) -> bool:
    rows = _rows(server, table)
    return rows.keys() == keys and rows[6].get("extra") == 12


def _sink(topic: str, server: PostgresqlServer, name: str, table: str) -> dict[str, Any]:
    at = server.settings
    return {
        "name": name,
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "topics": topic,
        "connection.url": f"jdbc:postgresql://{at.host}:{at.port}/{at.database}",
        "connection.username": at.user,
        "connection.password": at.password.reveal(),
        "collection.name.format": table,
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "use.time.zone": "UTC",
    }


def _rows(server: PostgresqlServer, table: str) -> dict[int, every_type.Row]:
    """Each row by its id; none while there is no table."""
    with server.connect() as connection:
        if connection.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
            return {}
        cursor = connection.execute(f'SELECT * FROM "{table}"')  # type: ignore[call-overload]
        names = [column.name for column in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return {row["id"]: every_type.plain(row) for row in rows}
