"""Whole stacks whose tenants share one table: a thousand with topics, two hundred with sinks. Each tenant gets its own rows,
and nothing of anybody else's."""

import collections
import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING

from libs.config.connections import KafkaSettings
from libs.errors import InvalidSettings
from libs.mesh.processes import kafka_address
from libs.mesh.state import read_ports, running_state
from libs.mesh.tenant_topics import committed_ends, open_consumer, read_to_end
from libs.types.table import TableId
from libs.types.warehouse import warehouse_table
from libs.warehouse_readers.warehouse import load_table, open_catalog
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.rest(because="whole stacks; the gate shows routes in unit/router, test_router.py and test_turns.py"),
    pytest.mark.timeout(3_600),
]

COPIED: Final = 3
"""Rows of each tenant that are there before the start."""
CHANGES_OF_A_TRANSACTION: Final = 20
UP_TIMEOUT_S: Final = 600.0
DELIVERED_TIMEOUT_S: Final = 900.0
STORED_TIMEOUT_S: Final = 1_800.0
SEED: Final = 34

Model = dict[int, tuple[str, int]]
"""Tenant and amount of each row, by its id."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """A stack that runs, the table that its tenants share, and the rows of it."""

    headwater: HeadwaterCommand
    server: MysqlServer
    database: str
    names: Sequence[str]
    model: Model

    @property
    def kafka(self) -> KafkaSettings:
        return KafkaSettings(bootstrap_servers=kafka_address(read_ports(self.headwater.home)))

    def wanted(self) -> dict[str, Model]:
        """Each tenant's part of the model."""
        tables: dict[str, Model] = {name: {} for name in self.names}
        for row_id, (tenant, amount) in self.model.items():
            tables[tenant][row_id] = (tenant, amount)
        return tables


@contextlib.contextmanager
def mesh_of(server: MysqlServer, database: str, folder: Path, *, tenants: int, sink: str) -> Iterator[Mesh]:
    """COPIED rows of each tenant are there when the stack starts. A tenant has its own rows by their ``tenant_code``."""
    names = [f"t{number:04}" for number in range(tenants)]
    model = {number: (names[number % tenants], 0) for number in range(tenants * COPIED)}
    rows = ",".join(f"({number}, '{tenant}', {amount})" for number, (tenant, amount) in model.items())
    server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, tenant_code VARCHAR(10) NOT NULL, amount INT NOT NULL)",
        f"INSERT INTO {database}.orders VALUES {rows}",
    )
    with headwater_in(folder) as command:
        write_shop(command.home, server, database, {})
        for tenant in names:
            (command.home.tenants_dir / f"{tenant}.yaml").write_text(
                f"tenant: {tenant}\n"
                "sources:\n"
                "- name: shop\n"
                f"  include_tables: ['{database}\\.orders']\n"
                f"  row_filters: [{{tables: '{database}\\.orders', where: \"tenant_code = '{tenant}'\"}}]\n"
                f"sink: {sink}\n"
            )
        exit_code, said = command.run("up", "--detach", timeout_s=UP_TIMEOUT_S)
        assert exit_code == 0, said
        yield Mesh(command, server, database, names, model)


def change(mesh: Mesh, changes: int) -> None:
    """Insert, update and delete rows of tenants drawn by lot, and hand some rows from one tenant to another."""
    draw = random.Random(SEED)
    model, following = mesh.model, len(mesh.model)
    for _ in range(changes // CHANGES_OF_A_TRANSACTION):
        statements = ["BEGIN"]
        for _ in range(CHANGES_OF_A_TRANSACTION):
            kind, tenant, amount = draw.random(), draw.choice(mesh.names), draw.randrange(1_000_000)
            row_id = draw.randrange(following)
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
        mesh.server.execute(*statements, "COMMIT", database=mesh.database)


def delivered(mesh: Mesh) -> tuple[dict[str, Model], collections.Counter[str]]:
    """Each tenant's table, as its topic gives it, and how many events of each kind there were.

    Raises AssertionError: an event shows a row that is not its tenant's.
    """
    topics = {f"{name}.shop.{mesh.database}.orders": name for name in mesh.names}
    tables: dict[str, Model] = {tenant: {} for tenant in mesh.names}
    kinds: collections.Counter[str] = collections.Counter()
    consumer = open_consumer(mesh.kafka)
    try:
        there = [topic for topic, ends in committed_ends(mesh.kafka, list(topics)).items() if ends]
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


def stored(mesh: Mesh) -> dict[str, Model]:
    """Each tenant's table in its warehouse. Raises AssertionError: a row is there twice, or is not its tenant's."""
    tables: dict[str, Model] = {}
    home = mesh.headwater.home
    try:
        catalog = open_catalog(home.catalog_file, home.warehouse_dir)
    except InvalidSettings:  # no table yet
        return tables
    with contextlib.closing(catalog):
        for name in mesh.names:
            place = warehouse_table(name, "shop", TableId(database=mesh.database, table="orders"))
            if (table := load_table(catalog, place)) is not None:
                rows = table.scan(selected_fields=("id", "tenant_code", "amount")).to_arrow().to_pylist()
                tables[name] = {row["id"]: (row["tenant_code"], row["amount"]) for row in rows}
                assert len(tables[name]) == len(rows), f"a row of {name} is there twice"
                assert {row["tenant_code"] for row in rows} <= {name}, f"{name} has rows of others"
    return tables


def test_a_thousand_tenants_of_one_table_get_their_own_rows(
    mysql_server: MysqlServer, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The rows that were there, then changes, some of which hand a row from a tenant to another. ``status`` is one page."""
    with mesh_of(mysql_server, unique_name("shared"), tmp_path / "home", tenants=1_000, sink="null") as mesh:
        wait_until(
            lambda: delivered(mesh)[0] == mesh.wanted(),
            within_s=DELIVERED_TIMEOUT_S,
            because="each tenant has the rows that were there",
        )

        change(mesh, 6_000)
        wait_until(
            lambda: delivered(mesh)[0] == mesh.wanted(),
            within_s=DELIVERED_TIMEOUT_S,
            because="each tenant's topic gives the table of the source",
        )

        time.sleep(2.0)  # a repeated event would come now
        tables, kinds = delivered(mesh)
        assert tables == mesh.wanted()
        assert kinds["r"] == len(mesh.names) * COPIED
        exit_code, said = mesh.headwater.run_here("status")
        assert exit_code == 0, said
        assert len(said.splitlines()) < 100, said


def test_two_hundred_tenants_in_one_sink_job_get_their_own_rows(
    mysql_server: MysqlServer, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Each has a mirror of its own rows: those that were there, then changes. No process ends on the way."""
    with mesh_of(mysql_server, unique_name("packed"), tmp_path / "home", tenants=200, sink="{trigger_s: 5}") as mesh:
        wait_until(
            lambda: stored(mesh) == mesh.wanted(),
            within_s=STORED_TIMEOUT_S,
            pause_s=10.0,
            because="each tenant's table has the rows that were there",
        )

        change(mesh, 2_000)
        wait_until(
            lambda: stored(mesh) == mesh.wanted(),
            within_s=STORED_TIMEOUT_S,
            pause_s=10.0,
            because="each tenant's table is its part of the source's",
        )

        exit_code, said = mesh.headwater.run_here("status")
        assert exit_code == 0, said
        state = running_state(mesh.headwater.home)
        assert {service.name: service.restarts for service in state.services if service.restarts} == {}
