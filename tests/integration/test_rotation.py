"""Passwords are exchanged by the steps of docs/rotation.md while rows go on: each row comes, and once."""

from collections.abc import Callable
from pathlib import Path

import redis

from libs.config.connections import RedisSettings
from services.checkpoint_committer.view import CheckpointView
from tests.conftest import MysqlServer, StartValkey
from tests.integration.reader_pipeline import PublishedRow, ReaderPipeline


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


async def test_valkeys_password_is_exchanged_and_the_view_stays(start_valkey: StartValkey) -> None:
    """Two passwords at a time: who has the old one works on until it goes, and the next one finds the view as it was."""
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
