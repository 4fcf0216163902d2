"""A running stack whose tenants mask by keys, rename columns and name their topics: what arrives, and what the commands say."""

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop
from tests.integration.router_rig import eventually

pytestmark = pytest.mark.rest(because="a whole stack; the gate shows masks, names and refusals in test_router.py")

UP_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 400.0


MASKED = """tenant: acme
sources:
- name: shop
  include_tables: ['{database}\\.people']
  exclude_columns: ['.*\\.secret']
  rename_columns:
  - {{columns: '.*\\.cust', to: customer_id}}
  masks:
  - {{columns: '.*\\.email', format_preserving: {{kind: email, key_from: {{file: pii}}}}}}
  - {{columns: '.*\\.phone', format_preserving: {{kind: phone, key_from: {{file: pii}}}}}}
  - {{columns: '.*\\.diagnosis', encrypt: {{key_from: {{file: pii}}}}}}
  - {{columns: '.*\\.amount', hmac: {{key_from: {{file: pii}}}}}}
  - {{columns: '.*\\.card', keep_last: 4}}
  - {{columns: '.*\\.born', set_null: true}}
topics: {{name: '{{tenant}}.v2.{{source}}.{{database}}.{{table}}'}}
sink: {{trigger_s: 1}}
"""
SHARED = """tenant: shared
sources: [{{name: shop, include_tables: ['{database}\\..*']}}]
topics: {{layout: per_tenant}}
format: {{tombstones: false}}
sink: null
"""


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> str:
    """People with what people do not want to be known."""
    name = unique_name("livetenants")
    mysql_server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.people (email VARCHAR(80) PRIMARY KEY, cust INT, phone VARCHAR(30), diagnosis TEXT, "
        "amount DECIMAL(10,2), card VARCHAR(20), born DATE NOT NULL, secret VARCHAR(9))",
        f"INSERT INTO {name}.people VALUES ('ann@example.org', 1, '+49 170 1234567', 'gout', 12.50, '4111111111111234', "
        "'1970-01-02', 'x'), ('bob@example.org', 2, NULL, NULL, NULL, '12', '1980-01-01', NULL)",
        f"CREATE TABLE {name}.visits (id INT PRIMARY KEY, at DATETIME)",
    )
    return name


@pytest.fixture
def headwater(mysql_server: MysqlServer, database: str, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    """A home with a source and a key; the tenant comes by ``tenant apply``."""
    with headwater_in(tmp_path / "home") as command:
        write_shop(command.home, mysql_server, database, {})
        (command.home.keys_dir / "acme").mkdir()
        (command.home.keys_dir / "acme" / "pii").write_text("0123456789abcdef0123456789abcdef\n")
        yield command


def run(headwater: HeadwaterCommand, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """What a command that succeeds prints."""
    code, said = headwater.run(*arguments, timeout_s=timeout_s)
    assert code == 0, said
    return said


@pytest.mark.timeout(1_800)
def test_a_table_that_is_one_topic_too_many_is_refused_until_the_document_leaves_it_out(
    headwater: HeadwaterCommand, mysql_server: MysqlServer, database: str, tmp_path: Path
) -> None:
    """It came while the stack ran. ``status`` has the reason, the tenant's other table goes on, and no row ends it."""
    command = headwater
    document = "tenant: acme\nsources: [{{name: shop, exclude_tables: [{}]}}]\nsink: null\n"
    file = tmp_path / "acme.yaml"
    command.home.topic_quotas_file.write_text("per_tenant: 5\n")
    file.write_text(document.format(""))
    run(command, "tenant", "apply", str(file))
    run(command, "up", "--detach", timeout_s=UP_TIMEOUT_S)
    mysql_server.execute(f"INSERT INTO {database}.visits VALUES (1, NOW())")
    run(command, "tail", "acme", "visits", "--from-beginning", "-n", "1", "--json")

    mysql_server.execute(
        f"CREATE TABLE {database}.late (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.late VALUES (1)",
        f"INSERT INTO {database}.visits VALUES (2, NOW())",
    )

    reason = f"topic acme.shop.{database}.late: tenant acme has 5 topics and may have 5"
    assert eventually(lambda: reason in run(command, "status"))
    assert "topic_quotas.yaml of a home): exclude tables" in run(command, "status")
    run(command, "tail", "acme", "visits", "--from-beginning", "-n", "2", "--json")
    assert f"{database}.late" in run(command, "dead-letter", "list", "acme")
    file.write_text(document.format("'.*late'"))
    run(command, "tenant", "apply", str(file))
    assert eventually(lambda: reason not in run(command, "status"))
    run(command, "down")


@pytest.mark.timeout(1_800)
def test_masked_renamed_and_named_rows_equal_the_source(
    headwater: HeadwaterCommand, mysql_server: MysqlServer, database: str, tmp_path: Path
) -> None:
    """``check`` undoes the masks and finds every row; what the tenant reads shows nothing; a tenant that joins is served."""
    documents = {"acme": MASKED, "shared": SHARED}
    for name, text in documents.items():
        (tmp_path / f"{name}.yaml").write_text(text.format(database=database))
    assert "version 1 is in force" in run(headwater, "tenant", "apply", str(tmp_path / "acme.yaml"))
    run(headwater, "up", "--detach", timeout_s=UP_TIMEOUT_S)
    mysql_server.execute(
        f"UPDATE {database}.people SET diagnosis = 'a cold', cust = 3 WHERE email = 'bob@example.org'",
        f"INSERT INTO {database}.people (email, born) VALUES ('carl@example.org', '2000-01-01'), ('gone@x.org', '2000-01-01')",
        f"DELETE FROM {database}.people WHERE email = 'gone@x.org'",
    )

    said = run(headwater, "check", "acme", timeout_s=2 * COMMAND_TIMEOUT_S)
    masked = "masked: email, phone, diagnosis, amount, card, born"
    assert re.search(rf"^acme +{database}\.people +3 rows x +7 columns  equal, {masked}$", said, re.M), said

    answer = run(headwater, "query", "acme", "SELECT * FROM people ORDER BY customer_id", "--format", "csv")
    rows = list(csv.DictReader(answer.splitlines()))
    ann = next(row for row in rows if row["customer_id"] == "1")
    assert (ann["card"], ann["born"], "secret" in ann, "cust" in ann) == ("************1234", "", False, False)
    assert ann["email"].endswith(".org")
    assert "ann" not in ann["email"]
    assert ann["phone"].startswith("+")
    assert ann["phone"] != "+49 170 1234567"
    assert run(headwater, "tenant", "decrypt", "acme", "--file", "pii", ann["diagnosis"]) == "gout\n"

    tailed = run(headwater, "tail", "acme", "people", "--from-beginning", "-n", "1", "--json")
    assert "customer_id" in json.loads(tailed)["value"]["after"]
    explained = json.loads(run(headwater, "tenant", "explain", "acme", "people", "--json"))["tables"][0]
    assert explained["topic"] == f"acme.v2.shop.{database}.people"
    assert {column["name"]: column["fate"] for column in explained["columns"]}[
        "diagnosis"
    ] == "masked: encrypted, key pii"

    assert "version 1 is in force" in run(headwater, "tenant", "apply", str(tmp_path / "shared.yaml"))
    for number in range(1, 31):
        mysql_server.execute(f"INSERT INTO {database}.visits VALUES ({number}, NOW())")
        code, said = headwater.run(
            "tail", "shared", "visits", "--from-beginning", "-n", "1", "--json", timeout_s=COMMAND_TIMEOUT_S
        )
        if code == 0:  # until then the topic is not there: the tenant joined a moment ago
            break
    assert json.loads(said)["value"]["source"]["table"] == "visits"
    run(headwater, "down")
    assert headwater.left_over() == []
