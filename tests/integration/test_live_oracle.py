"""A document of ``kind: oracle``, from ``up`` to ``down``: its reader is started, copies, follows, is killed and asked.

The database is the stand-in; everything else is as a user runs it, but for the warehouse: the demo has that.
"""

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import oracledb
import pytest
from confluent_kafka import Message

from libs.mesh.home import write_examples
from libs.mesh.processes import kafka_address
from libs.mesh.state import read_ports, running_state
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.definitions import column
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.server import Listener, listening
from tests.headwater_command import HeadwaterCommand, headwater_in
from tests.integration.router_rig import read_until
from tests.waiting import wait_until

UP_TIMEOUT_S: Final = 400.0
COPIED: Final = 40
READER: Final = "C##HEADWATER"
USERS: Final = {READER: "secret", "SHOP": "secret"}
ORDERS: Final = ("ID NUMBER(9)", "TENANT_CODE VARCHAR2(16)", "TOTAL NUMBER(12,2)", "NOTE VARCHAR2(40)")

pytestmark = pytest.mark.servers


@pytest.fixture
def model() -> Model:
    made = Model(clock=lambda: datetime.now(UTC).replace(tzinfo=None))
    table = made.create("SHOP", "ORDERS", [column(each) for each in ORDERS], key=["ID"])
    transaction = made.begin("SHOP")
    for number in range(1, COPIED + 1):
        transaction.insert(table, {"ID": number, "TENANT_CODE": "globex" if number % 4 else "acme", "NOTE": "copied"})
    transaction.commit()
    return made


@pytest.fixture
def listener(model: Model) -> Iterator[Listener]:
    with listening(ModelDatabase(model, USERS)) as found:
        yield found


@pytest.fixture
def headwater(listener: Listener, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    with headwater_in(tmp_path / "home") as command:
        home = command.home
        write_examples(home)
        database = f"{{port: {listener.port}, service_name: ORCLCDB, user: '{READER}', password: secret}}"
        (home.sources_dir / "erp.yaml").write_text(
            f"kind: oracle\ndatabase: {database}\ninclude_tables: ['SHOP\\..*']\nmining: {{min_pause_s: 0.05}}\n"
        )
        (home.tenants_dir / "acme.yaml").write_text(
            "tenant: acme\nsources: [{name: erp, include_tables: ['SHOP\\..*']}]\nsink: null\n"
        )
        (home.tenants_dir / "globex.yaml").write_text(
            "tenant: globex\nsources:\n  - name: erp\n    include_tables: ['SHOP\\.ORDERS']\n"
            "    row_filters: [{tables: '.*', where: \"tenant_code = 'globex'\"}]\n"
            "    masks: [{columns: '.*\\.NOTE', constant: '***'}]\nsink: null\n"
        )
        yield command


@pytest.mark.promise("every source")
def test_a_document_of_oracle_is_followed_from_up_to_down(
    headwater: HeadwaterCommand, listener: Listener, model: Model
) -> None:
    """Every row once and in order to both tenants, through a kill -9 of the reader, a savepoint that is rolled back to and an
    ADD COLUMN; the commands answer as for any other kind."""
    said = headwater.run_here("validate", "erp")[1]
    assert "can be followed" in said
    exit_code, said = headwater.run("up", "--detach", timeout_s=UP_TIMEOUT_S)
    assert exit_code == 0, said
    home = headwater.home
    servers = kafka_address(read_ports(home))
    read_until(servers, "acme.erp.SHOP.ORDERS", lambda found: len(found) == COPIED)

    change(listener, 100)
    read_until(servers, "acme.erp.SHOP.ORDERS", lambda found: any(key(each) == 105 for each in found))
    [reader] = [each for each in running_state(home).services if each.name == "reader-erp"]
    assert reader.pid is not None
    os.killpg(reader.pid, signal.SIGKILL)
    change(listener, 200)
    run(listener, "ALTER TABLE SHOP.ORDERS ADD (CHANNEL VARCHAR2(20))")
    run(listener, "INSERT INTO SHOP.ORDERS VALUES (300, 'globex', 1.5, 'last', 'app')")

    records = {
        tenant: read_until(servers, f"{tenant}.erp.SHOP.ORDERS", lambda found: any(key(each) == 300 for each in found))
        for tenant in ("acme", "globex")
    }
    stored = {int(str(row["ID"])): row for row in model.tables["SHOP", "ORDERS"].at(model.scn).values()}
    assert folded(records["acme"]).keys() == stored.keys()
    assert {number: row["NOTE"] for number, row in folded(records["acme"]).items()} == {
        number: row["NOTE"] for number, row in stored.items()
    }
    of_globex = folded(records["globex"])
    assert of_globex.keys() == {number for number, row in stored.items() if row["TENANT_CODE"] == "globex"}
    assert {row["NOTE"] for row in of_globex.values()} == {"***"}
    assert operations(records["acme"]) == {"r": COPIED, "c": 2 * 6 + 1, "u": 2 * 3, "d": 2 * 2}
    assert {event(each)["source"]["connector"] for each in without_tombstones(records["acme"])} == {"oracle"}

    asked(headwater, servers)
    exit_code, said = headwater.run("down", timeout_s=UP_TIMEOUT_S)
    assert exit_code == 0, said
    assert headwater.left_over() == []


def asked(headwater: HeadwaterCommand, servers: str) -> None:
    """The commands on a stack that runs."""
    status: dict[str, Any] = {}

    def has_caught_up() -> bool:
        status.update(json.loads(headwater.run_here("status", "--json")[1]))
        [source] = status["sources"]
        return bool(source["lag_transactions"] == 0)

    wait_until(has_caught_up, because="the reader has read all that is committed", seen=lambda: str(status)[:2_000])
    assert status["faults"] == []
    ddl = "ALTER TABLE ORDERS ADD (COLOUR VARCHAR2(9))"
    exit_code, said = headwater.run_here("schema", "plan", "erp", ddl, "--database", "SHOP", "--json")
    assert exit_code == 0, said
    plans = json.loads(said)["plans"]
    assert {each["tenant"] for each in plans} == {"acme", "globex"}
    assert "COLOUR" in str(plans[0]["events"])
    exit_code, said = headwater.run_here(
        "signal", "erp", "execute-snapshot", "SHOP.ORDERS", "--where", "ID = 300", "--wait"
    )
    assert exit_code == 0, said
    again = read_until(servers, "acme.erp.SHOP.ORDERS", lambda found: operations(found).get("r", 0) > COPIED)
    assert key(again[-1]) == 300


def change(listener: Listener, first: int) -> None:
    """Six rows come, three change, one of them its key, one goes; and some that never were."""
    for number in range(first, first + 5):
        run(listener, f"INSERT INTO SHOP.ORDERS VALUES ({number}, 'globex', 1.25, 'new')")
    run(listener, f"UPDATE SHOP.ORDERS SET NOTE = 'changed' WHERE ID = {first}")
    run(
        listener,
        f"UPDATE SHOP.ORDERS SET TENANT_CODE = 'acme' WHERE ID = {first + 1}",
        "SAVEPOINT A",
        f"UPDATE SHOP.ORDERS SET NOTE = 'never' WHERE ID = {first}",
        f"INSERT INTO SHOP.ORDERS VALUES ({first + 50}, 'globex', 0, 'never')",
        "ROLLBACK TO SAVEPOINT A",
        f"UPDATE SHOP.ORDERS SET TOTAL = TOTAL * 2 WHERE ID = {first + 2}",
    )
    run(listener, f"DELETE FROM SHOP.ORDERS WHERE ID = {first + 3}")
    run(listener, f"UPDATE SHOP.ORDERS SET ID = {first + 5} WHERE ID = {first + 4}")


def run(listener: Listener, *statements: str) -> None:
    """One transaction."""
    with oracledb.connect(user="SHOP", password="secret", dsn=listener.dsn) as connection:
        for statement in statements:
            connection.cursor().execute(statement)
        connection.commit()


def key(message: Message) -> int:
    return int(json.loads(message.key() or b"{}")["ID"])


def event(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(message.value() or b"{}")
    return found


def without_tombstones(messages: list[Message]) -> list[Message]:
    return [each for each in messages if each.value() is not None]


def operations(messages: list[Message]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in without_tombstones(messages):
        operation = event(each)["op"]
        found[operation] = found.get(operation, 0) + 1
    return found


def folded(messages: list[Message]) -> dict[int, dict[str, Any]]:
    """The rows that are left, by key."""
    rows: dict[int, dict[str, Any]] = {}
    for each in without_tombstones(messages):
        if event(each)["op"] == "d":
            rows.pop(key(each), None)
        else:
            rows[key(each)] = event(each)["after"]
    return rows
