"""A reader's session has the settings that the reader needs, also where the server gives others to a new session."""

from collections.abc import Iterator

import pytest

from libs.source.mysql.client import connect, query
from libs.source.mysql.settings import DatabaseSettings
from tests.conftest import MysqlServer

SETTINGS = {"autocommit": 0, "max_execution_time": 1, "max_join_size": 1, "completion_type": 1}


@pytest.fixture
def strange_server(mysql_server: MysqlServer, database: str) -> Iterator[MysqlServer]:
    mysql_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)", f"INSERT INTO {database}.t VALUES (1), (2)")
    before = mysql_server.execute("SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in SETTINGS))[0]
    try:
        mysql_server.execute(*(f"SET GLOBAL {name} = {value}" for name, value in SETTINGS.items()))
        yield mysql_server
    finally:
        mysql_server.execute(*(f"SET GLOBAL {name} = {value}" for name, value in zip(SETTINGS, before, strict=True)))


def test_a_select_sees_later_rows_takes_its_time_and_leaves_no_transaction(
    strange_server: MysqlServer, database: str
) -> None:
    """With ``autocommit = 0`` the first SELECT would open a view that stays, and hold DDL of others off; with
    ``completion_type = CHAIN`` the one after a COMMIT would."""
    connection = connect(DatabaseSettings(host=strange_server.host, port=strange_server.port, user="root"))
    try:
        counted = f"SELECT COUNT(*), @@max_execution_time FROM {database}.t a JOIN {database}.t b"
        query(connection, "START TRANSACTION READ ONLY")
        query(connection, "COMMIT")
        assert query(connection, counted) == [(4, 0)]
        strange_server.execute(
            f"INSERT INTO {database}.t VALUES (3)",
            "COMMIT",
            "SET SESSION lock_wait_timeout = 2",
            f"ALTER TABLE {database}.t ADD a INT",
        )
        assert query(connection, counted) == [(9, 0)]
    finally:
        connection.close()
