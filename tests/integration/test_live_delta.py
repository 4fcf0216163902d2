"""A stack whose tenants' tables are Delta's: ``check`` and ``query`` read them without Spark, also widened ones."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop

pytestmark = pytest.mark.rest(
    because="a whole stack; the gate shows the warehouse by its sink, and the commands by the demo"
)

UP_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 400.0


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> str:
    """A row of most types, and one of NULLs."""
    name = unique_name("livedelta")
    mysql_server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.orders (code VARCHAR(10) PRIMARY KEY, note TEXT, n INT, points BIGINT UNSIGNED, big "
        "DECIMAL(65,30), small DECIMAL(12,2), rate FLOAT, doc JSON, raw VARBINARY(9), flags BIT(9), day DATE, at TIMESTAMP(6) "
        "NULL, local DATETIME(3), span TIME(6), place POINT, ok BIT(1), mood ENUM('good','bad'), y YEAR)",
        f"INSERT INTO {name}.orders VALUES ('é', 'it''s\\n\\\\N\\t', 1, 18446744073709551615, "
        '-12345678901234567890123456789012345.000000000000000000000000000001, -0.01, 0.1, \'{"b": 1.50, "a": null}\', '
        "0x00ff5c, b'100000001', '1000-01-01', '2038-01-19 03:14:07.999999', '9999-12-31 23:59:59.999', "
        "'-838:59:58.000001', POINT(1.5, -2), b'1', 'bad', 2024)",
        f"INSERT INTO {name}.orders (code, n, day) VALUES ('Z', NULL, NULL), ('b', 2, '2024-02-29'), ('gone', 3, NULL)",
    )
    return name


@pytest.fixture
def headwater(mysql_server: MysqlServer, database: str, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    """A home with one source, and a tenant of each mode; nothing runs."""
    with headwater_in(tmp_path / "home") as command:
        sinks = {
            "acme": "{warehouse: delta, trigger_s: 1}",
            "log": "{warehouse: delta, mode: append, trigger_s: 1}",
            "past": "{warehouse: delta, mode: history, trigger_s: 1}",
        }
        write_shop(command.home, mysql_server, database, sinks)
        yield command


@pytest.mark.timeout(1_800)
def test_check_and_query_read_a_tenants_delta(
    headwater: HeadwaterCommand, mysql_server: MysqlServer, database: str
) -> None:
    """Rows of every mode equal the source, before and after a column has widened, and while nothing runs."""
    exit_code, said = headwater.run("up", "--detach", timeout_s=UP_TIMEOUT_S)
    assert exit_code == 0, said
    mysql_server.execute(
        f"UPDATE {database}.orders SET note = 'changed' WHERE code = 'b'",
        f"DELETE FROM {database}.orders WHERE code = 'gone'",
    )
    exit_code, said = headwater.run_here("check", "--timeout", "400")
    assert exit_code == 0, said
    for tenant in ("acme", "log", "past"):
        assert re.search(rf"^{tenant} +{database}\.orders +3 rows x 18 columns  equal$", said, re.M), said

    mysql_server.execute(
        f"ALTER TABLE {database}.orders MODIFY n BIGINT", f"UPDATE {database}.orders SET n = {2**40} WHERE code = 'b'"
    )
    exit_code, said = headwater.run_here("check", "--timeout", "400")
    assert exit_code == 0, said
    sql = "SELECT code, n, big, points FROM orders ORDER BY code"
    exit_code, said = headwater.run_here("query", "acme", sql, "--format", "csv")
    assert exit_code == 0, said
    big = "-12345678901234567890123456789012345.000000000000000000000000000001"
    assert said.splitlines()[1:] == ["Z,,,", f"b,{2**40},,", f"é,1,{big},18446744073709551615"]

    exit_code, said = headwater.run("down", timeout_s=COMMAND_TIMEOUT_S)
    assert exit_code == 0, said
    versions = "SELECT count(*), count(*) FILTER (is_current) FROM orders"
    exit_code, said = headwater.run_here("query", "past", versions, "--format", "csv")
    assert exit_code == 0, said
    assert said.splitlines()[1] == "6,3"
