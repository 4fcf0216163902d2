"""Tenants that join a stack that runs: noticed by ``headwater up``, through a kill of it, and asked for by hand."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from libs.mesh.processes import kafka_address
from libs.mesh.state import read_ports
from libs.operations.joining import due_copies
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop
from tests.integration.router_rig import read_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.rest(because="a whole stack; the gate shows joining in test_joining.py")

UP_TIMEOUT_S = 600.0
SEEN_TIMEOUT_S = 400.0
ROWS = 3_000  # more than a chunk


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> str:
    """ROWS orders and as many items."""
    name = unique_name("joining")
    rows = ",".join(f"({number}, NULL)" for number in range(ROWS))
    mysql_server.execute(f"CREATE DATABASE {name}")
    for table in ("orders", "items"):
        mysql_server.execute(
            f"CREATE TABLE {name}.{table} (id INT PRIMARY KEY, note VARCHAR(40))",
            f"INSERT INTO {name}.{table} VALUES {rows}",
        )
    return name


@pytest.fixture
def headwater(mysql_server: MysqlServer, database: str, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    """A stack that runs, without a sink; its first tenant sees all."""
    with headwater_in(tmp_path / "home") as command:
        write_shop(command.home, mysql_server, database, {"first": "null"})
        up(command)
        yield command


def up(headwater: HeadwaterCommand) -> None:
    exit_code, said = headwater.run("up", "--detach", timeout_s=UP_TIMEOUT_S)
    assert exit_code == 0, said


def write_tenant(headwater: HeadwaterCommand, database: str, tenant: str, tables: str) -> None:
    """A tenant that is to get the rows that are there when it joins."""
    file = headwater.home.tenants_dir / f"{tenant}.yaml"
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(
        f"tenant: {tenant}\nsources: [{{name: shop, include_tables: ['{database}\\.({tables})']}}]\nsink: null\n"
        "snapshot: {on_joining: true}\n"
    )
    unfinished.replace(file)


def reads(headwater: HeadwaterCommand, database: str, tenant: str, table: str) -> list[int]:
    """The ids of the copied rows in a tenant's topic, as they came."""
    kafka = kafka_address(read_ports(headwater.home))
    values = [message.value() for message in read_topic(kafka, f"{tenant}.shop.{database}.{table}")]
    events = [json.loads(value) for value in values if value is not None]
    return [event["after"]["id"] for event in events if event["op"] == "r"]


@pytest.mark.timeout(1500)
def test_who_joins_gets_the_rows_once_and_nobody_else_does(headwater: HeadwaterCommand, database: str) -> None:
    """A new tenant; a further table of it, its document changed while the stack is down by a kill; and by hand."""

    def has(tenant: str, table: str, count: int) -> bool:
        return len(reads(headwater, database, tenant, table)) >= count

    wait_until(lambda: has("first", "items", ROWS), within_s=SEEN_TIMEOUT_S, because="the first tenant has the rows")
    write_tenant(headwater, database, "late", "orders")
    wait_until(lambda: has("late", "orders", ROWS), within_s=SEEN_TIMEOUT_S, because="the late tenant has the rows")

    state = json.loads(headwater.home.state_file.read_text())
    os.kill(state["supervisor_pid"], signal.SIGKILL)
    wait_until(lambda: headwater.left_over() == [], within_s=SEEN_TIMEOUT_S, because="nothing runs any more")
    write_tenant(headwater, database, "late", "orders|items")
    up(headwater)
    wait_until(
        lambda: has("late", "items", ROWS), within_s=SEEN_TIMEOUT_S, because="the late tenant has the other table"
    )

    exit_code, said = headwater.run_here("tenant", "snapshot", "late", "orders")
    assert exit_code == 0, said
    assert f"asked the reader of shop for {database}.orders, for late alone" in said
    wait_until(lambda: has("late", "orders", 2 * ROWS), within_s=SEEN_TIMEOUT_S, because="the rows are copied again")
    time.sleep(2.0)  # anything more would come now

    assert sorted(reads(headwater, database, "late", "orders")) == sorted([*range(ROWS)] * 2)
    assert sorted(reads(headwater, database, "late", "items")) == [*range(ROWS)]
    for table in ("orders", "items"):
        assert sorted(reads(headwater, database, "first", table)) == [*range(ROWS)]
    assert due_copies(headwater.home) == {}
