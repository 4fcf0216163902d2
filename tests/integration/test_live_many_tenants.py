"""A whole stack of a thousand tenants that share one table: each gets its own rows, and nothing of anybody else's."""

import collections
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING

from libs.config.connections import KafkaSettings
from libs.mesh.processes import kafka_address
from libs.mesh.state import read_ports
from libs.mesh.tenant_topics import committed_ends, open_consumer, read_to_end
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.rest(
        because="a whole stack and a thousand tenants; the gate shows routes in unit/router and test_router.py"
    ),
    pytest.mark.timeout(3_000),
]

TENANTS: Final = 1_000
COPIED: Final = 3
"""Rows of each tenant that are there before the start."""
CHANGES: Final = 6_000
CHANGES_OF_A_TRANSACTION: Final = 20
UP_TIMEOUT_S: Final = 600.0
DELIVERED_TIMEOUT_S: Final = 900.0
SEED: Final = 34

Model = dict[int, tuple[str, int]]
"""Tenant and amount of each row, by its id."""


def name_of(number: int) -> str:
    return f"t{number:04}"


@pytest.fixture
def model() -> Model:
    """The table as it is before the start."""
    return {number: (name_of(number % TENANTS), 0) for number in range(TENANTS * COPIED)}


@pytest.fixture
def database(mysql_server: MysqlServer, model: Model, unique_name: Callable[[str], str]) -> str:
    name = unique_name("shared")
    rows = ",".join(f"({number}, '{tenant}', {amount})" for number, (tenant, amount) in model.items())
    mysql_server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, tenant_code VARCHAR(10) NOT NULL, amount INT NOT NULL)",
        f"INSERT INTO {name}.orders VALUES {rows}",
    )
    return name


@pytest.fixture
def headwater(mysql_server: MysqlServer, database: str, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    """A stack that runs. Each tenant has its own rows by their ``tenant_code``, without a sink."""
    with headwater_in(tmp_path / "home") as command:
        write_shop(command.home, mysql_server, database, {})
        for number in range(TENANTS):
            tenant = name_of(number)
            (command.home.tenants_dir / f"{tenant}.yaml").write_text(
                f"tenant: {tenant}\n"
                "sources:\n"
                "- name: shop\n"
                f"  include_tables: ['{database}\\.orders']\n"
                f"  row_filters: [{{tables: '{database}\\.orders', where: \"tenant_code = '{tenant}'\"}}]\n"
                "sink: null\n"
            )
        exit_code, said = command.run("up", "--detach", timeout_s=UP_TIMEOUT_S)
        assert exit_code == 0, said
        yield command


def change(server: MysqlServer, database: str, model: Model) -> None:
    """Insert, update and delete rows of tenants drawn by lot, and hand some rows from one tenant to another."""
    draw = random.Random(SEED)
    following = len(model)
    for _ in range(CHANGES // CHANGES_OF_A_TRANSACTION):
        statements = ["BEGIN"]
        for _ in range(CHANGES_OF_A_TRANSACTION):
            kind, tenant, amount = draw.random(), name_of(draw.randrange(TENANTS)), draw.randrange(1_000_000)
            row_id = draw.choice(range(following))
            if kind < 0.4 or row_id not in model:
                model[following] = (tenant, amount)
                statements.append(f"INSERT INTO orders VALUES ({following}, '{tenant}', {amount})")
                following += 1
            elif kind < 0.8:
                model[row_id] = (model[row_id][0], amount)
                statements.append(f"UPDATE orders SET amount = {amount} WHERE id = {row_id}")
            elif kind < 0.9:
                model[row_id] = (tenant, amount)
                statements.append(f"UPDATE orders SET tenant_code = '{tenant}', amount = {amount} WHERE id = {row_id}")
            else:
                del model[row_id]
                statements.append(f"DELETE FROM orders WHERE id = {row_id}")
        server.execute(*statements, "COMMIT", database=database)


def delivered(kafka: KafkaSettings, database: str) -> tuple[dict[str, Model], collections.Counter[str]]:
    """Each tenant's table, as its topic gives it, and how many events of each kind there were.

    Raises AssertionError: an event shows a row that is not its tenant's.
    """
    topics = {f"{name_of(number)}.shop.{database}.orders": name_of(number) for number in range(TENANTS)}
    tables: dict[str, Model] = {tenant: {} for tenant in topics.values()}
    kinds: collections.Counter[str] = collections.Counter()
    consumer = open_consumer(kafka)
    try:
        there = [topic for topic, ends in committed_ends(kafka, list(topics)).items() if ends]
        for message in read_to_end(consumer, {(topic, 0): OFFSET_BEGINNING for topic in there}, timeout_s=300.0):
            if (value := message.value()) is None:
                continue
            event, tenant = json.loads(value), topics[str(message.topic())]
            kinds[event["op"]] += 1
            row_id = (event["after"] or event["before"])["id"]
            for image in (event["before"], event["after"]):
                assert image is None or image["tenant_code"] == tenant, f"{tenant} sees {event}"
            if event["after"] is None:
                del tables[tenant][row_id]
            else:
                assert event["op"] != "c" or row_id not in tables[tenant], f"twice: {event}"
                tables[tenant][row_id] = (tenant, event["after"]["amount"])
    finally:
        consumer.close()
    return tables, kinds


def test_a_thousand_tenants_of_one_table_get_their_own_rows(
    headwater: HeadwaterCommand, mysql_server: MysqlServer, database: str, model: Model
) -> None:
    """The rows that were there, then changes, some of which hand a row from a tenant to another. ``status`` is one page."""
    kafka = KafkaSettings(bootstrap_servers=kafka_address(read_ports(headwater.home)))
    wait_until(
        lambda: sum(map(len, delivered(kafka, database)[0].values())) == TENANTS * COPIED,
        within_s=DELIVERED_TIMEOUT_S,
        because="each tenant has the rows that were there",
    )

    change(mysql_server, database, model)
    wanted: dict[str, Model] = {name_of(number): {} for number in range(TENANTS)}
    for row_id, (tenant, amount) in model.items():
        wanted[tenant][row_id] = (tenant, amount)
    wait_until(
        lambda: delivered(kafka, database)[0] == wanted,
        within_s=DELIVERED_TIMEOUT_S,
        because="each tenant's topic gives the table of the source",
    )

    time.sleep(2.0)  # a repeated event would come now
    tables, kinds = delivered(kafka, database)
    assert tables == wanted
    assert kinds["r"] == TENANTS * COPIED
    exit_code, said = headwater.run_here("status")
    assert exit_code == 0, said
    assert len(said.splitlines()) < 100, said
