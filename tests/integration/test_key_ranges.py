"""How tables of a real MySQL are cut into key ranges."""

import random
import uuid
from collections.abc import Callable

import pytest

from libs.mysql.chunk_query import chunk_statement, key_list
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.row_key import row_key
from libs.source.mysql.client import connect, select_raw
from libs.source.mysql.key_ranges import table_ranges
from libs.source.mysql.settings import DatabaseSettings
from libs.source.mysql.snapshot import create_statement, estimated_rows
from libs.types.table import TableId
from tests.conftest import MysqlServer

PARTS = 8
ROWS = 4_000

_random = random.Random(5)
KEYS: dict[str, tuple[str, Callable[[int], str]]] = {
    "even": ("a BIGINT PRIMARY KEY", lambda n: f"{n}"),
    "negative": ("a BIGINT PRIMARY KEY", lambda n: f"{-(2**63) + n}"),
    "outlier": ("a BIGINT UNSIGNED PRIMARY KEY", lambda n: f"{2**64 - 1 if n == 7 else (1 << 60) + 4096 * n}"),
    "few_tenants": ("a INT, b BIGINT, PRIMARY KEY (a, b)", lambda n: f"{1 if n % 10 else 2}, {n}"),
    "tenant_and_text": (
        "a INT, b CHAR(36), PRIMARY KEY (a, b)",
        lambda n: f"{1 if n % 10 else n}, '{uuid.UUID(int=_random.getrandbits(128))}'",
    ),
    "uuid": ("a CHAR(36) PRIMARY KEY", lambda n: f"'{uuid.UUID(int=_random.getrandbits(128))}'"),
    "bytes": ("a BINARY(16) PRIMARY KEY", lambda n: f"x'{_random.getrandbits(128):032x}'"),
    "moment": ("a DATETIME(3) PRIMARY KEY", lambda n: f"'2024-01-01 00:00:00' + INTERVAL {n * n} SECOND"),
    "decimal": ("a DECIMAL(20, 5) PRIMARY KEY", lambda n: f"{n * n}.{n:05}"),
    "text": ("a VARCHAR(40) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY", lambda n: f"'{'xÉa'[n % 3]}-{n}'"),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("select", ["", "v < 10", "SELECT * FROM {table}"])
def test_ranges_have_about_as_many_rows_each_and_every_row_once(
    mysql_server: MysqlServer, database: str, name: str, select: str
) -> None:
    """Of a table that was filled just now, with every kind of key."""
    columns, key_of = KEYS[name]
    table_id = TableId(database=database, table="t")
    mysql_server.execute(
        f"CREATE TABLE t (v INT, {columns})",
        f"SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{database}'",  # keeps the number of now
        *(
            "INSERT INTO t VALUES " + ",".join(f"(1, {key_of(n)})" for n in range(first, first + 1_000))
            for first in range(0, ROWS, 1_000)
        ),
        database=database,
    )
    connection = connect(DatabaseSettings(host=mysql_server.host, port=mysql_server.port, user="root"))
    try:
        schema = show_create_to_schema(table_id, *create_statement(connection, table_id))
        key = row_key(schema)

        ranges = table_ranges(
            connection, schema, parts=PARTS, chunk_rows=50, select=select.replace("{table}", str(table_id))
        )

        def keys_of(behind: bytes, until: bytes) -> list[bytes]:
            statement = chunk_statement(schema, key_list(schema, key), key, behind=behind, until=until, limit=0)
            return list(select_raw(connection, statement, 60.0))

        found = [keys_of(part.behind, part.until) for part in ranges]
        assert [row for part in found for row in part] == keys_of(b"", b"")
        assert len(ranges) >= PARTS / 2
        assert max(map(len, found)) <= 2.5 * ROWS / PARTS
        assert min(map(len, found)) > 0
        assert estimated_rows(connection, [table_id]) > ROWS / 2
    finally:
        connection.close()
