"""``headwater tenant`` over a real MySQL, as a user runs it: validate, plan, apply, list, explain."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from libs.cli.tenant import tenant_command
from libs.mesh.home import Home, home_at
from libs.tenants.masks import encryption
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, write_shop


@pytest.fixture
def home(mysql_server: MysqlServer, database: str, tmp_path: Path) -> Home:
    """A shop of three tables, and one tenant that gets its orders."""
    mysql_server.execute(
        f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, owner VARCHAR(9), total DECIMAL(10,2), note TEXT)",
        f"CREATE TABLE {database}.customers (email VARCHAR(80) PRIMARY KEY, phone VARCHAR(20), born DATE)",
        f"CREATE TABLE {database}.visits (at DATETIME)",
    )
    home = home_at(tmp_path / "home")
    write_shop(home, mysql_server, database, {})
    (home.tenants_dir / "acme.yaml").write_text(orders_only(database))
    return home


def orders_only(database: str) -> str:
    """The document that is in force at first."""
    return f"tenant: acme\nsources:\n- name: shop\n  include_tables: ['{database}\\.orders']\n"


def more(database: str) -> str:
    """Another table, a mask, a column less, some rows less, a setting."""
    return f"""tenant: acme
sources:
- name: shop
  include_tables: ['{database}\\.orders', '{database}\\.customers']
  row_filters:
  - tables: '{database}\\.orders'
    where: "owner = 'acme' AND total >= 10"
  exclude_columns:
  - '.*\\.note'
  masks:
  - columns: '.*\\.(email|phone)'
    hash: {{salt: pepper}}
format: {{schemas: true}}
"""


def run(home: Home, *arguments: str, exits: int = 0) -> str:
    """What the command prints."""
    code, output = HeadwaterCommand(home).run_here("tenant", *arguments)
    assert code == exits, output
    return output


def document(home: Home, text: str) -> str:
    """A file beside the home."""
    file = home.root.parent / "wanted.yaml"
    file.write_text(text)
    return str(file)


def plan(home: Home, text: str, *, exits: int = 0) -> dict[str, Any]:
    """A document's plan, for programs."""
    arguments = ["plan", document(home, text), "--json", "--home", str(home.root)]
    result = CliRunner().invoke(tenant_command, arguments, catch_exceptions=False)
    assert result.exit_code == exits, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


@pytest.mark.promise("tenant plan")
def test_a_plan_tells_tables_columns_rows_topics_and_settings(home: Home, database: str) -> None:
    """Of tables that match at the source right now, against the document in force; and writes nothing."""
    before = sorted(home.root.rglob("*"))

    found = plan(home, more(database))

    tables = {table["fate"]["table"]: table for table in found["tables"]}
    assert {name: table["change"] for name, table in tables.items()} == {
        f"{database}.orders": "changed",
        f"{database}.customers": "new",
    }
    assert tables[f"{database}.orders"]["differences"] == [
        "rows: all → only where owner = 'acme' AND total >= 10",
        "note: delivered → left out",
    ]
    customers = tables[f"{database}.customers"]["fate"]
    assert [column["fate"] for column in customers["columns"]] == [
        "masked: hash sha256",
        "masked: hash sha256",
        "delivered",
    ]
    assert customers["warehouse_table"] == f"acme.shop.{database}.customers"
    assert found["topics_made"] == [f"acme.shop.{database}.customers"]
    assert found["settings"] == ["format.schemas: false → true"]
    assert (found["is_new"], found["topics_left"]) == (False, [])
    assert "pepper" not in json.dumps(found)
    assert sorted(home.root.rglob("*")) == before


def test_a_plan_is_readable(home: Home, database: str) -> None:
    """And ends with the sum; a document that says the same as the one in force changes nothing."""
    text = run(home, "plan", document(home, more(database)))

    assert f"  new       shop: {database}.customers → acme.shop.{database}.customers" in text
    assert "      masked: hash sha256: email, phone" in text
    assert text.endswith("tenant acme: tables 1 new, 1 changed; topics 1 made, 0 left; 0 refused\n")
    assert "nothing would change" in run(home, "plan", document(home, orders_only(database)))


def test_a_new_tenant_and_one_that_gives_a_table_up(home: Home, database: str) -> None:
    """Topics that are made, and topics that are left."""
    new = plan(home, orders_only(database).replace("acme", "globex"))
    less = plan(home, orders_only(database).replace("orders", "nothing"))

    assert new["is_new"]
    assert new["topics_made"] == [
        "globex.dead-letter",
        "globex.headwater.table-schemas",
        "globex.shop",
        f"globex.shop.{database}.orders",
    ]
    assert [table["change"] for table in less["tables"]] == ["gone"]
    assert less["topics_left"] == [f"acme.shop.{database}.orders"]
    assert less["notes"] == ["source shop: no table matches now"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("  row_filters: [{tables: '.*orders', where: 'total > note'}]\n", "cannot compare a number with text"),
        ("  row_filters: [{tables: '.*orders', where: 'ownr = 1'}]\n", "has no such column; did you mean 'owner'?"),
        ("  row_filters: [{tables: '.*orders', where: \"total = DATE '2024-01-01'\"}]\n", "cannot compare"),
        ("  exclude_columns: ['.*\\.id']\n", "'id' is part of the key"),
        ("  include_columns: ['.*\\.owner']\n", "'id' is part of the key; include it"),
        ("  masks: [{columns: '.*\\.total', truncate_chars: 3}]\n", "only a text can be cut short"),
        ("  include_tables: ['.*visits']\n", "has no primary key"),
    ],
)
def test_what_does_not_fit_the_tables_is_refused_in_the_plan(home: Home, database: str, change: str, says: str) -> None:
    """Types of the columns as the source has them now, keys, and the values that the warehouse can hold."""
    text = orders_only(database)
    if "include_tables" in change:
        text = text.rpartition("  include_tables")[0]

    found = plan(home, text + change, exits=1)

    (refused,) = [table["fate"]["refused"] for table in found["tables"] if table["fate"]["refused"]]
    assert says in refused[0]


def test_mistakes_come_with_lines_and_change_nothing(home: Home, database: str) -> None:
    """All of them at once, from each command that reads a document."""
    wrong = document(home, more(database).replace("row_filters", "row_filter").replace("name: shop", "name: shp"))

    for command in ("validate", "plan", "apply"):
        text = run(home, command, wrong, exits=2)
        assert "wanted.yaml:5: sources[0].row_filter: unknown name; did you mean 'row_filters'?" in text

    assert (home.tenants_dir / "acme.yaml").read_text() == orders_only(database)


def test_a_document_that_needs_more_topics_than_the_home_grants_is_refused(home: Home, database: str) -> None:
    """Before anything is changed, with the count. One that is in force already is not judged again, tables that the source
    does not capture are not counted, and another tenant's quota counts for that one alone."""
    home.topic_quotas_file.write_text("per_tenant: 4\ntenants: {initech: 9}\n")
    wanted = document(home, more(database))

    for command in ("validate", "plan", "apply"):
        said = run(home, command, wanted, exits=2)
        assert "wanted.yaml:2: sources: needs 5 topics by the tables that there are now, 2 of rows and 3 others" in said
        assert "tenant acme may have 4: select fewer tables" in said
        assert "or have topic_quotas.yaml of the home raised" in said
    assert (home.tenants_dir / "acme.yaml").read_text() == orders_only(database)
    assert "tenant initech: version 1" in run(home, "apply", document(home, more(database).replace("acme", "initech")))
    (noted,) = [note for note in plan(home, orders_only(database))["notes"] if "topics" in note]
    assert noted == "4 topics by the tables that there are now, 1 of rows and 3 others; it may have 4"
    home.topic_quotas_file.write_text("per_tenant: 1\n")
    assert "is in force" in run(home, "apply", document(home, orders_only(database)))
    home.topic_quotas_file.write_text("per_tenant: 4\n")
    source = home.sources_dir / "shop.yaml"
    source.write_text(f"{source.read_text()}exclude_tables: ['.*\\.customers']\n")

    assert "tenant acme: version 2 is in force" in run(home, "apply", document(home, more(database)))


def test_apply_list_and_back(home: Home, database: str) -> None:
    """The way of a change that turned out wrong."""
    applied = run(home, "apply", document(home, more(database)))
    listed = run(home, "list", "acme", "--versions")
    difference = run(home, "list", "acme", "--diff", "1", "2")
    back = run(home, "apply", "acme", "--version", "1", "--yes")

    assert "edited by hand, is kept as version 1" in applied
    assert "tenant acme: version 2 is in force" in applied
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["acme", "1"], ["acme", "2"]]
    assert "+format: {schemas: true}" in difference
    assert "tenant acme: version 3 is in force" in back
    assert (home.tenants_dir / "acme.yaml").read_text() == orders_only(database)
    (row,) = json.loads(run(home, "list", "--json"))
    assert (row["tenant"], row["version"], row["sources"]) == ("acme", 3, ["shop"])


def test_explain_names_the_rule_and_its_line(home: Home, database: str) -> None:
    """For the table, its rows and each column."""
    (home.tenants_dir / "acme.yaml").write_text(more(database))

    (orders,) = json.loads(run(home, "explain", "acme", f"{database}.orders", "--json"))["tables"]
    text = run(home, "explain", "acme", f"{database}.customers")

    assert (orders["is_delivered"], orders["because"][0]["where"]) == (True, "tenants/acme.yaml:4")
    assert orders["rows"] == [{"says": "only where owner = 'acme' AND total >= 10", "where": "tenants/acme.yaml:7"}]
    note = next(column for column in orders["columns"] if column["name"] == "note")
    assert note["fate"] == "left out"
    assert note["because"] == {"says": "exclude_columns '.*\\.note'", "where": "tenants/acme.yaml:9"}
    assert f"{database}.customers of source shop is delivered to acme" in text
    assert any(
        line.split()[:4] == ["email", "masked:", "hash", "sha256"] and line.endswith("acme.yaml:11")
        for line in map(str.rstrip, text.splitlines())
    )
    assert any(line.split()[:2] == ["born", "delivered"] and "no rule names it" in line for line in text.splitlines())


def test_explain_says_why_a_table_does_not_come(home: Home, database: str) -> None:
    """No rule includes it, a rule excludes it, the source does not capture it, or nobody has it."""
    (home.tenants_dir / "acme.yaml").write_text(
        f"tenant: acme\nsources:\n- name: shop\n  include_tables: ['.*']\n  exclude_tables:\n  - '{database}\\.customers'\n"
    )
    (home.tenants_dir / "globex.yaml").write_text(orders_only(database).replace("acme", "globex"))
    source = home.sources_dir / "shop.yaml"
    source.write_text(f"{source.read_text()}exclude_tables: ['.*\\.visits']\n")

    excluded = run(home, "explain", "acme", "customers")
    not_included = run(home, "explain", "globex", "shop." + f"{database}.customers")
    not_captured = run(home, "explain", "acme", "visits")
    unknown = run(home, "explain", "acme", "custmers", exits=2)
    nobody = run(home, "explain", "acm", "orders", exits=2)

    assert f"because  exclude_tables '{database}\\.customers'   (tenants/acme.yaml:6)" in excluded
    assert "does not come to acme" in excluded
    assert "because  no include_tables matches it: " in not_included
    assert "because  source shop does not capture it" in not_captured
    assert "did you mean 'customers'?" in unknown
    assert "did you mean 'acme'?" in nobody


def test_a_source_that_does_not_answer_is_a_note(home: Home, database: str) -> None:
    """All that can be said without it is said."""
    source = home.sources_dir / "shop.yaml"
    source.write_text("database: {host: 127.0.0.1, port: 1, user: root}\n")

    found = plan(home, more(database))
    explained = run(home, "explain", "acme", f"{database}.orders")

    assert found["settings"] == ["format.schemas: false → true"]
    assert "its tables are not known" in found["notes"][0]
    assert "is delivered to acme" in explained
    assert "columns  not known" in explained


def test_decrypt_reads_what_the_mask_made(home: Home) -> None:
    """From arguments; a value of another key is reported by its number and leaves its line empty."""
    (home.keys_dir / "acme").mkdir(parents=True)
    (home.keys_dir / "acme" / "pii").write_text("0123456789abcdef\n")
    mine, other = (encryption(key)(b"gout") for key in (b"0123456789abcdef", b"another key of theirs"))

    assert run(home, "decrypt", "acme", "--file", "pii", mine) == "gout\n"
    assert "value 1 was encrypted by another key" in run(home, "decrypt", "acme", "--file", "pii", other, mine, exits=2)
    assert "key file acme/nothing" in run(home, "decrypt", "acme", "--file", "nothing", mine, exits=2)


def test_a_mask_that_matches_nothing_is_refused_everywhere(home: Home, database: str) -> None:
    """The database is missing in the pattern: without a word everything would be delivered unmasked."""
    idle = more(database).replace(r"'.*\.(email|phone)'", r"'customers\.(email|phone)'")

    found = plan(home, idle, exits=1)
    applied = run(home, "apply", document(home, idle), exits=2)
    named = idle.replace("  masks:", "  may_match_nothing: ['customers\\.(email|phone)']\n  masks:")
    (home.tenants_dir / "acme.yaml").write_text(idle)
    code, validated = HeadwaterCommand(home).run_here("validate", "shop")

    assert len(found["mistakes"]) == 1
    for says in (found["mistakes"][0], applied, validated):
        assert "sources[0].masks[0].columns" in says
        assert "matches no database.table.column of the source" in says
    assert code == 2
    assert plan(home, named)["mistakes"] == []


def test_what_is_hidden_is_uncovered_by_nobody_unasked(home: Home, database: str) -> None:
    """A document without its mask is put into force by a yes alone."""
    run(home, "apply", document(home, more(database)))
    bare = more(database).replace("  exclude_columns:\n  - '.*\\.note'\n", "")

    planned = plan(home, bare)
    asked = run(home, "apply", document(home, bare), exits=130)
    before = (home.tenants_dir / "acme.yaml").read_text()
    run(home, "apply", document(home, bare), "--yes")

    assert planned["uncovered"] == [f"shop: {database}.orders.note"]
    assert f"UNCOVERED  shop: {database}.orders.note" in asked
    assert before == more(database)
    assert (home.tenants_dir / "acme.yaml").read_text() == bare
