"""A sharded keyspace from vtgate's VStream to a tenant's Iceberg table, through the whole stack: copied and followed by several
readers through changes of keys, a kill -9 of one of them, a reshard and another number of readers; checked, repaired, resynced.

vtgate is the stand-in over real MySQL shards; ``headwater up`` starts everything after it.
"""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from confluent_kafka import Message

from libs.errors import InvalidSettings
from libs.events.names import ORDER_HEADER
from libs.mesh.home import write_examples
from libs.mesh.state import read_ports, running_state
from libs.servers.kafka_broker import bootstrap_servers
from libs.stand_ins.vtgate.client import execute
from libs.stand_ins.vtgate.cluster import new_shard, on_every_shard, topology_of
from libs.stand_ins.vtgate.reshard import reshard
from libs.stand_ins.vtgate.rules import row_values
from libs.stand_ins.vtgate.service import VtgateServer
from libs.types.table import TableId
from libs.types.warehouse import WarehouseTable, warehouse_table
from libs.warehouse_readers.warehouse import load_table, open_catalog
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in
from tests.integration.router_rig import header, read_topic
from tests.sink_topics import without_own_columns

pytestmark = pytest.mark.rest(because="a whole stack; the gate shows the keyspace in test_vstream_processes.py")

SEEN_TIMEOUT_S: Final = 300.0
COMMAND_TIMEOUT_S: Final = 300.0
CUSTOMERS: Final = 16  # enough that each of three shards has some
COPIED_ROWS: Final = 96


Row = dict[str, Any]
Event = tuple[str, Row | None, Row | None] | None
"""Operation, before and after; None: a tombstone."""


class Orders:
    """A table that is dealt out by ``customer``: so a row that gets another ``id`` stays on its shard, as Vitess wants it.

    Everything is written through vtgate, a row a statement. ``histories`` has, by key, the events that a consumer should get.
    """

    def __init__(self, server: VtgateServer) -> None:
        self._server = server
        self.keyspace = server.topology.keyspaces[0].name
        self._rows: dict[int, Row] = {}
        self.histories: dict[int, list[Event]] = {}
        on_every_shard(
            server.topology,
            self.keyspace,
            ["CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT NOT NULL, note VARCHAR(40))"],
        )

    @property
    def events(self) -> int:
        """How many a consumer should get, tombstones included."""
        return sum(len(history) for history in self.histories.values())

    def insert(self, number: int, *, is_copied: bool = False) -> None:
        row = {"id": number, "customer": number % CUSTOMERS, "note": "new"}
        self._execute(f"INSERT INTO orders (id, customer, note) VALUES ({number}, {row['customer']}, '{row['note']}')")
        self._rows[number] = row
        self._expect(number, ("r" if is_copied else "c", None, row))

    def update(self, number: int, note: str) -> None:
        before = self._rows[number]
        self._rows[number] = {**before, "note": note}
        self._execute(f"UPDATE orders SET note = '{note}' WHERE id = {number} AND customer = {before['customer']}")
        self._expect(number, ("u", before, self._rows[number]))

    def delete(self, number: int) -> None:
        before = self._rows.pop(number)
        self._execute(f"DELETE FROM orders WHERE id = {number} AND customer = {before['customer']}")
        self._expect(number, ("d", before, None), None)

    def change_key(self, number: int, to: int) -> None:
        before = self._rows.pop(number)
        self._rows[to] = {**before, "id": to}
        self._execute(f"UPDATE orders SET id = {to} WHERE id = {number} AND customer = {before['customer']}")
        self._expect(number, ("d", before, None), None)
        self._expect(to, ("c", None, self._rows[to]))

    def change(self, first: int) -> None:
        """Of everything some, ``first`` and the fifteen numbers after it: on every shard, and several changes of a key."""
        for number in range(first, first + 16):
            self.insert(1_000 + number)
            self.update(number, f"changed {number}")
            self.update(1_000 + number, "changed too")
        for number in range(first, first + 16, 4):
            self.delete(number)
            self.insert(number)
            self.change_key(number + 1, 2_000 + number)
            self.update(2_000 + number, "moved")
            self.delete(number + 2)

    def stored(self) -> list[Row]:
        """The rows as vtgate gives them, by id."""
        rows = [
            [None if value is None else value.decode() for value in row_values(row)]
            for row in execute(self._server, "SELECT id, customer, note FROM orders", self.keyspace).rows
        ]
        return sorted(
            ({"id": int(row[0] or 0), "customer": int(row[1] or 0), "note": row[2]} for row in rows),
            key=lambda row: row["id"],
        )

    def _execute(self, statement: str) -> None:
        assert execute(self._server, statement, self.keyspace).rows_affected == 1, statement

    def _expect(self, key: int, *events: Event) -> None:
        self.histories.setdefault(key, []).extend(events)


@pytest.fixture
def vtgate(
    shard_servers: Callable[[int], list[MysqlServer]], unique_name: Callable[[str], str]
) -> Iterator[VtgateServer]:
    """A keyspace of two shards."""
    places = {name: (at.host, at.port) for name, at in zip(("-80", "80-"), shard_servers(2), strict=True)}
    keyspace = unique_name("ks")
    topology = topology_of({keyspace: places}, vindex_columns={keyspace: {"orders": "customer"}})
    server = VtgateServer(topology).start()
    yield server
    server.stop()


@pytest.fixture
def headwater(vtgate: VtgateServer, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    """A home with the keyspace as its source, read by two tasks, and one tenant of all of it; nothing runs."""
    with headwater_in(tmp_path / "home") as command:
        write_examples(command.home)
        write_source(command, vtgate, tasks=2)
        tables = f"include_tables: ['{vtgate.topology.keyspaces[0].name}\\..*']"
        (command.home.tenants_dir / "acme.yaml").write_text(
            f"tenant: acme\nsources: [{{name: shop, {tables}}}]\nsink: {{trigger_s: 1}}\n"
        )
        yield command


def write_source(headwater: HeadwaterCommand, vtgate: VtgateServer, *, tasks: int) -> None:
    keyspace = vtgate.topology.keyspaces[0].name
    (headwater.home.sources_dir / "shop.yaml").write_text(
        f"kind: vitess\nvtgate: {{port: {vtgate.port}}}\nkeyspace: {keyspace}\ntasks: {tasks}\n"
        f"include_tables: ['{keyspace}\\..*']\n"
    )


@pytest.mark.timeout(2400)
def test_a_keyspace_arrives_in_a_tenants_table_through_a_kill_a_reshard_and_other_tasks(
    headwater: HeadwaterCommand, vtgate: VtgateServer, shard_servers: Callable[[int], list[MysqlServer]]
) -> None:
    """The topic holds every change of every key once and in order, and the table is the keyspace's: found equal by ``check``,
    and made equal again by ``check --repair`` and by ``resync``, also after somebody wrote into it."""
    orders = Orders(vtgate)
    for number in range(COPIED_ROWS):
        orders.insert(number, is_copied=True)
    done(headwater, "up", "--detach")
    wait_for_topic(headwater, orders)
    statement = (
        f"ALTER TABLE {orders.keyspace}.orders RENAME COLUMN note TO remark, ADD COLUMN size BIGINT UNSIGNED DEFAULT 7"
    )
    planned = done(headwater, "schema", "plan", "shop", statement)
    for said in ("column_added remark", "column_dropped note", "add column size decimal(20,0)"):
        assert said in planned

    orders.change(0)
    kill_reader(headwater, "reader-shop.1")
    orders.change(16)
    targets = [
        new_shard(orders.keyspace, name, 900 + number, at.host, at.port)
        for number, (name, at) in enumerate(zip(("-40", "40-80"), shard_servers(2), strict=True))
    ]
    reshard(vtgate, targets)
    orders.change(32)
    wait_for_topic(headwater, orders)
    wait_for_table(headwater, orders)
    assert running_state(headwater.home).service("reader-shop.1").restarts >= 1
    damage(headwater, orders)
    assert re.search(r"read again: \d+ row", done(headwater, "check", "acme", "--repair"))

    done(headwater, "down")
    orders.change(48)
    write_source(headwater, vtgate, tasks=3)
    done(headwater, "up", "--detach")
    orders.change(64)
    damage(headwater, orders)
    orders.change(80)
    assert ": built again from " in done(headwater, "resync", "acme", "orders")
    assert "0 difference(s)" in done(headwater, "check", "acme")

    wait_for_topic(headwater, orders)
    messages = topic_of(headwater, orders)
    assert histories(messages) == orders.histories
    assert_orders_grow(messages)
    assert shards(messages) == {"-80", "80-", "-40", "40-80"}
    done(headwater, "down")
    assert headwater.left_over() == []


def done(headwater: HeadwaterCommand, *arguments: str) -> str:
    """The output of the command, which must have succeeded."""
    if arguments[0] in ("up", "down"):
        exit_code, said = headwater.run(*arguments, timeout_s=COMMAND_TIMEOUT_S)
    else:
        exit_code, said = headwater.run_here(*arguments)
    assert exit_code == 0, said + headwater.logs()
    return said


def kill_reader(headwater: HeadwaterCommand, name: str) -> None:
    """As a power cut would; the supervisor starts it again."""
    pid = running_state(headwater.home).service(name).pid
    assert pid is not None
    os.killpg(pid, signal.SIGKILL)


def damage(headwater: HeadwaterCommand, orders: Orders) -> None:
    """Rows of every shard get another value, others go. None of them is of its shard's newest transaction."""
    table = load_table(open_catalog(headwater.home.catalog_file, headwater.home.warehouse_dir), place_of(orders))
    assert table is not None
    rows = table.scan("id < 30").to_arrow()
    notes = pa.array(["spoilt"] * len(rows), rows.schema.field("note").type)
    table.delete("id < 45")
    table.append(rows.set_column(rows.schema.get_field_index("note"), "note", notes).cast(table.schema().as_arrow()))


def topic_of(headwater: HeadwaterCommand, orders: Orders) -> list[Message]:
    """The events that the tenant has got of the table so far, but for rows that were read again."""
    port = read_ports(headwater.home)["kafka"]
    messages = read_topic(bootstrap_servers(port), f"acme.shop.{orders.keyspace}.orders")
    return [each for each in messages if b'"snapshot":"incremental"' not in (each.value() or b"")]


def wait_for_topic(headwater: HeadwaterCommand, orders: Orders) -> None:
    """Until it has as many records as it should have."""
    _wait_until(headwater, lambda: len(topic_of(headwater, orders)), lambda count: count >= orders.events)


def wait_for_table(headwater: HeadwaterCommand, orders: Orders) -> None:
    """Until it has the keyspace's rows."""
    stored = orders.stored()

    def rows() -> list[Row]:
        try:
            table = load_table(
                open_catalog(headwater.home.catalog_file, headwater.home.warehouse_dir), place_of(orders)
            )
        except InvalidSettings:  # no row was ever written yet
            return []
        return [] if table is None else without_own_columns(table.scan().to_arrow().to_pylist())

    _wait_until(headwater, rows, lambda rows: rows == stored)


def place_of(orders: Orders) -> WarehouseTable:
    return warehouse_table("acme", "shop", TableId(database=orders.keyspace, table="orders"))


def _wait_until(headwater: HeadwaterCommand, look: Callable[[], Any], is_wanted: Callable[[Any], bool]) -> None:
    deadline_s = time.monotonic() + SEEN_TIMEOUT_S
    while not is_wanted(found := look()):
        assert time.monotonic() < deadline_s, f"{found}\n{headwater.logs()}"
        time.sleep(0.5)


def histories(messages: list[Message]) -> dict[int, list[Event]]:
    """Each key's events, in the topic's order."""
    found: dict[int, list[Event]] = {}
    for message in messages:
        key, value = json.loads(message.key() or b"null"), message.value()
        event = None if value is None else json.loads(value)
        found.setdefault(key["id"], []).append(event and (event["op"], event["before"], event["after"]))
    return found


def shards(messages: list[Message]) -> set[str]:
    """Those that events came from."""
    return {json.loads(value)["source"]["shard"] for message in messages if (value := message.value()) is not None}


def assert_orders_grow(messages: list[Message]) -> None:
    """Along each key's events, across the kill and the reshard, so that no consumer could take an older one for newer."""
    newest: dict[bytes, bytes] = {}
    for message in messages:
        order, key = header(message, ORDER_HEADER), message.key()
        if message.value() is None:
            continue
        assert order is not None
        assert isinstance(key, bytes)
        assert newest.get(key, b"") < order
        newest[key] = order
