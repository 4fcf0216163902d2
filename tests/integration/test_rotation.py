"""Passwords are exchanged by the steps of docs/rotation.md while rows go on: each row comes, and once."""

import json
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import redis

from libs.config.connections import RedisSettings
from libs.config.load import Secret
from libs.errors import AccessDenied
from libs.testing.sink_contract import put, source_rows, table
from libs.types.tenant import SinkMode
from services.checkpoint_committer.view import CheckpointView
from spark.sinks.clickhouse.sink import open_sink as open_clickhouse_sink
from spark.sinks.postgresql.sink import open_sink as open_postgresql_sink
from tests import clickhouse
from tests.conftest import MysqlServer, StartValkey, start_clickhouse_in, start_postgresql_in
from tests.contract.sink_harness import ReadRows, WarehouseHarness
from tests.contract.test_sinks import postgresql_rows, postgresql_settings
from tests.integration.reader_pipeline import PublishedRow, ReaderPipeline
from tests.spark_session import shared_spark


def test_mysqls_password_is_exchanged_while_rows_go_on(
    start_reader: Callable[..., ReaderPipeline],
    mysql_server: MysqlServer,
    database: str,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """The new one beside the old one, a restart of the reader, then the old one goes, and with it every connection."""
    user, password = unique_name("rotated"), tmp_path / "password"
    mysql_server.execute(
        f"CREATE USER {user} IDENTIFIED BY 'first'",
        f"GRANT SELECT, RELOAD, LOCK TABLES, SHOW VIEW, REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO {user}",
        f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)",
    )
    account = {"host": mysql_server.host, "port": mysql_server.port, "user": user, "tls_mode": "required"}
    pipeline = start_reader(database={**account, "password_from": {"file": str(password)}})

    def insert(number: int) -> None:
        mysql_server.execute(f"INSERT INTO {database}.orders VALUES ({number})")

    def has(number: int) -> Callable[[list[PublishedRow]], bool]:
        return lambda rows: any(row.value["after"]["id"] == number for row in rows)

    password.write_text("first")
    pipeline.reader.start()
    pipeline.wait_for_log()
    insert(1)
    pipeline.wait_for_rows(has(1))

    mysql_server.execute(f"ALTER USER {user} IDENTIFIED BY 'second' RETAIN CURRENT PASSWORD")
    insert(2)
    pipeline.wait_for_rows(has(2))

    password.write_text("second")
    pipeline.reader.stop()
    insert(3)
    pipeline.reader.start()
    pipeline.wait_for_rows(has(3))

    mysql_server.execute(f"ALTER USER {user} DISCARD OLD PASSWORD")
    connections = "SELECT ID FROM performance_schema.processlist WHERE USER = %s"
    with mysql_server.connect() as root, root.cursor() as cursor:
        cursor.execute(connections, (user,))
        for (each,) in cursor.fetchall():
            cursor.execute(f"KILL {each}")
    insert(4)
    rows = pipeline.wait_for_rows(has(4))

    assert [row.value["after"]["id"] for row in rows] == [1, 2, 3, 4]


@pytest.mark.rest(
    because="test_who_is_not_let_in_is_told_why (rest, too) and the contract's repeated batches show its parts"
)
def test_postgresqls_password_is_exchanged_between_two_batches(tmp_path: Path) -> None:
    """A warehouse with one password a user. The job with the old one is refused; the next one writes the rows that that one
    did not, and nothing twice."""
    with ExitStack() as servers:
        server = start_postgresql_in(tmp_path, servers, password="of the administrator")
        server.execute("CREATE USER rotated PASSWORD 'first'", "GRANT CREATE ON DATABASE postgres TO rotated")
        tenant = f"pg{secrets.token_hex(3)}"

        def job(password: str) -> WarehouseHarness:
            settings = postgresql_settings(server, database="postgres", user="rotated", password=Secret(password))
            rows: ReadRows = partial(postgresql_rows, server)
            return WarehouseHarness(shared_spark().session, open_postgresql_sink(settings), rows, tenant)

        def apply(job: WarehouseHarness, number: int) -> bool:
            return job.apply(table(), put(number, number, "row"), mode=SinkMode.APPEND, batch_id=number)

        before = job("first")
        assert apply(before, 1)
        server.execute("ALTER USER rotated PASSWORD 'second'")
        with pytest.raises(AccessDenied, match="check user and password"):
            apply(before, 2)
        after = job("second")

        assert not apply(after, 1)
        assert apply(after, 2)
        assert not apply(after, 2)
        assert sorted(each["id"] for each in source_rows(after, table())) == [1, 2]


@pytest.mark.rest(
    because="test_postgresqls_password_is_exchanged_between_two_batches shows the same of another warehouse"
)
def test_clickhouses_password_is_exchanged_between_two_batches(tmp_path: Path) -> None:
    """A server that takes two passwords, then the new one alone. The job with the old one is refused by then; the next one
    writes what that one did not, and nothing twice."""
    users = tmp_path / "users.json"

    def take(*passwords: str) -> None:
        users.write_text(json.dumps({"rotated": passwords, "administrator": ["of the administrator"]}))

    take("first")
    with ExitStack() as servers:
        login = ("administrator", "of the administrator")
        server = start_clickhouse_in(tmp_path, servers, users_file=users, login=login)
        tenant = f"ch{secrets.token_hex(3)}"

        def job(password: str) -> WarehouseHarness:
            settings = clickhouse.settings_of(server, user="rotated", password=Secret(password))
            rows: ReadRows = partial(clickhouse.rows_of, server)
            return WarehouseHarness(shared_spark().session, open_clickhouse_sink(settings), rows, tenant)

        def apply(job: WarehouseHarness, number: int) -> bool:
            return job.apply(table(), put(number, number, "row"), mode=SinkMode.APPEND, batch_id=number)

        before = job("first")
        assert apply(before, 1)
        take("first", "second")
        assert apply(before, 2)
        take("second")
        with pytest.raises(AccessDenied, match="rotated"):
            apply(before, 3)
        after = job("second")

        assert not apply(after, 2)
        assert apply(after, 3)
        assert not apply(after, 3)
        assert sorted(each["id"] for each in source_rows(after, table())) == [1, 2, 3]


async def test_valkeys_password_is_exchanged_and_the_view_stays(start_valkey: StartValkey) -> None:
    """Two passwords at a time: a client with the old one works on until it goes, and the next one finds the view as it was."""
    address = start_valkey().url
    root = redis.Redis.from_url(address)

    def view(password: str) -> CheckpointView:
        return CheckpointView(RedisSettings(url=address.replace("redis://", f"redis://mesh:{password}@")), "topic")

    root.acl_setuser("mesh", enabled=True, passwords=["+first"], keys=["*"], commands=["+@all"])
    first = view("first")
    await first.replace({0: 1}, [])
    root.acl_setuser("mesh", enabled=True, passwords=["+second"], keys=["*"], commands=["+@all"])
    assert await first.extend({0: 1}, {0: 2}, [])
    second = view("second")
    found = await second.load()
    root.acl_setuser("mesh", enabled=True, passwords=["-first"], keys=["*"], commands=["+@all"])
    assert await second.extend({0: 2}, {0: 3}, [])
    restarted, refused = view("second"), view("first")
    after = await restarted.load()

    assert await refused.load() is None
    assert found is not None
    assert after is not None
    assert (found.next_offsets, after.next_offsets) == ({0: 2}, {0: 3})
    for each in (first, second, restarted, refused):
        await each.close()
