"""``headwater schema plan`` over a real MySQL: its answer to a statement, tenant by tenant, before the statement is run."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.errors import InvalidSettings, SourceUnavailable
from libs.mesh.documents import read_documents
from libs.mesh.home import Home, home_at
from libs.mesh.home_view import HomeView
from libs.operations.schema_plan import PlanReport, TablePlan, plan_statements
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, write_shop

TENANTS = {
    "acme": "{mode: mirror}",
    "fixed": "{mode: mirror, schema_changes: {default: ignore}}",
    "log": "{mode: append, warehouse: postgresql}",
    "moving": "{mode: mirror, warehouse: postgresql, schema_changes: {default: evolve}}",
    "strict": "{mode: mirror, schema_changes: {rules: [{changes: [column_added, column_dropped], policy: exception}]}}",
    "topics": "null",
}


@pytest.fixture
def home(mysql_server: MysqlServer, database: str, tmp_path: Path) -> Home:
    """Six tenants of one shop, and one that filters; nothing runs."""
    mysql_server.execute(
        f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, note VARCHAR(20), amount DECIMAL(10,2), owner VARCHAR(9))",
        f"CREATE TABLE {database}.visits (at DATETIME)",
    )
    home = home_at(tmp_path / "home")
    write_shop(home, mysql_server, database, TENANTS)
    (home.tenants_dir / "few.yaml").write_text(
        f"tenant: few\nsources:\n  - name: shop\n    include_tables: ['{database}\\.orders']\n"
        "    exclude_columns: ['.*\\.note']\n"
        f"    row_filters: [{{tables: '.*', where: \"OWNER = 'few'\"}}]\n"
    )
    return home


def planned(home: Home, *statements: str, database: str = "") -> PlanReport:
    return plan_statements(HomeView(home, read_documents(home)), "shop", statements, database=database)


def by_tenant(report: PlanReport) -> dict[str, TablePlan]:
    """The plans of one statement about one table."""
    return {plan.tenant: plan for plan in report.plans}


@pytest.mark.promise("schema plan")
def test_each_tenant_has_its_own_answer(home: Home, database: str) -> None:
    """By its columns, its warehouse and its policies; nothing is written, and the table at the source stays as it is."""
    report = planned(home, f"ALTER TABLE {database}.orders ADD COLUMN size BIGINT UNSIGNED, DROP COLUMN note")

    plans = by_tenant(report)
    assert (report.schemas_from, report.is_refused) == ("source", True)
    assert plans["acme"].events == ("column_added size (bigint unsigned)", "column_dropped note (varchar(20))")
    stays = "column note stays, NULL in rows from then on"
    assert plans["acme"].actions == ("add column size decimal(20,0)", stays)
    assert plans["acme"].warehouse_table == f"acme.shop.{database}.orders"
    assert plans["log"].actions == ("add column size numeric(20,0)", stays)
    assert plans["few"].events == ("column_added size (bigint unsigned)",)
    assert plans["few"].actions == ("add column size decimal(20,0)",)
    assert plans["fixed"].ignored == ("column size (is new; ignore for column_added)",)
    assert plans["topics"].events == plans["acme"].events
    assert (plans["topics"].warehouse, plans["topics"].actions) == (None, ())
    assert {tenant for tenant, plan in plans.items() if plan.refused} == {"strict"}
    assert "column_added size" in plans["strict"].refused[0]
    assert planned(home, f"ALTER TABLE {database}.orders COMMENT 'x'").notes[0].startswith("changes nothing of")


def test_documents_are_variant_where_a_tenant_has_it_so(home: Home, database: str) -> None:
    """Of a column that comes, and of a table that does."""
    (home.tenants_dir / "docs.yaml").write_text(
        f"tenant: docs\nsources: [{{name: shop, include_tables: ['{database}\\..*']}}]\n"
        "sink: {warehouse: delta, json_as_variant: ['.*\\.orders\\.doc']}\n"
    )
    added = by_tenant(planned(home, f"ALTER TABLE {database}.orders ADD COLUMN doc JSON, ADD COLUMN more JSON"))
    made = by_tenant(planned(home, f"CREATE TABLE {database}.more_orders (id INT PRIMARY KEY, doc JSON)"))

    assert added["acme"].actions == ("add column doc string", "add column more string")
    assert added["docs"].actions == ("add column doc variant", "add column more string")
    assert made["docs"].actions == ("create it with its first row: id int, doc string",)


def test_types_names_and_keys(home: Home, database: str) -> None:
    """A type that no column can take is put beside or parks; a rename is one; another key parks the tables that are merged by
    it."""
    changed = by_tenant(planned(home, "ALTER TABLE orders MODIFY amount DATE", database=database))
    renamed = by_tenant(
        planned(home, f"ALTER TABLE {database}.orders CHANGE note text LONGTEXT, MODIFY amount DECIMAL(12,2)")
    )
    keyed = by_tenant(planned(home, f"ALTER TABLE {database}.orders DROP PRIMARY KEY, ADD PRIMARY KEY (id, amount)"))
    lost = by_tenant(planned(home, f"ALTER TABLE {database}.orders RENAME COLUMN owner TO who"))

    beside = "add column amount__v_date date beside amount, which is NULL in rows from then on"
    assert changed["acme"].actions == changed["log"].actions == (beside,)
    assert "was numeric(10,2) and is date now" in changed["moving"].refused[0]
    assert renamed["acme"].actions == (
        "rename column note to text",
        "widen column amount: decimal(10,2) → decimal(12,2)",
    )
    # The selection that hides note hides it under its new name.
    assert renamed["few"].actions == ("widen column amount: decimal(10,2) → decimal(12,2)",)
    assert {tenant for tenant, plan in keyed.items() if plan.refused} == {"acme", "few", "fixed", "moving", "strict"}
    assert "which becomes (id,amount)" in keyed["acme"].refused[0]
    assert "row filter" in lost["few"].refused[0]
    assert not lost["acme"].refused


def test_tables_that_come_and_go(home: Home, database: str) -> None:
    """New ones, without a key too, moved and dropped ones; of several statements each sees the changes of the ones before
    it."""
    report = planned(
        home,
        f"CREATE TABLE {database}.fresh (a INT, b TEXT)",
        f"ALTER TABLE {database}.fresh ADD PRIMARY KEY (a)",
        f"RENAME TABLE {database}.orders TO {database}.old_orders",
        f"DROP TABLE {database}.visits",
    )

    acme = [plan for plan in report.plans if plan.tenant == "acme"]
    few = [plan for plan in report.plans if plan.tenant == "few"]
    assert [plan.table for plan in acme] == [
        f"{database}.{name}" for name in ("fresh", "fresh", "old_orders", "visits")
    ]
    assert "no primary key" in acme[0].refused[0]
    assert acme[1].actions == ("create it with its first row: a int, b string",)
    assert acme[2].actions[-1].startswith("create it with its first row: id int, note string")
    assert acme[3].actions == ("it stays as it is",)
    assert [plan.is_received for plan in few] == [False, False, True, False]
    assert few[2].events == (f"{database}.orders has no events any more",)
    log = [plan for plan in report.plans if plan.tenant == "log"]
    assert log[0].actions == ("create it with its first row: a integer, b text",)


def test_rows_that_no_event_tells_of_are_announced(home: Home, database: str) -> None:
    """Before somebody drops a partition and wonders why the tenants still have its rows."""
    report = planned(home, f"ALTER TABLE {database}.orders TRUNCATE PARTITION ALL")

    assert any(note.startswith(f"{database}.orders: no event carries the rows") for note in report.notes)


def test_mistakes_are_named(home: Home, mysql_server: MysqlServer, database: str) -> None:
    """A table, a column, a source that is not there; a statement that is none; a server that does not answer."""
    for statement, words in (
        (f"ALTER TABLE {database}.ordrs ADD x INT", f"did you mean '{database}.orders'"),
        (f"ALTER TABLE {database}.orders DROP COLUMN nope", "'nope', which the table does not have"),
        (f"ALTER TABLE {database}.orders ADD x NUMBR", "NUMBR"),
        ("ALTER TABLE orders ADD x INT", "give --database"),
    ):
        with pytest.raises(InvalidSettings, match=words):
            planned(home, statement)
    assert planned(home, "GRANT SELECT ON *.* TO u").notes == (
        "changes no table that is known: GRANT SELECT ON *.* TO u",
    )
    with pytest.raises(InvalidSettings, match="did you mean 'shop'"):
        plan_statements(HomeView(home, read_documents(home)), "shopp", ["DROP TABLE x"])
    document = home.sources_dir / "shop.yaml"
    document.write_text(document.read_text().replace(str(mysql_server.port), "1"))
    with pytest.raises(SourceUnavailable):
        planned(home, f"ALTER TABLE {database}.orders ADD x INT")


def test_the_command_tells_people_and_programs(home: Home, database: str, tmp_path: Path) -> None:
    """Exit code 1 where something would be parked, 0 where not, 2 for a mistake."""
    command = HeadwaterCommand(home)
    script = tmp_path / "migration.sql"
    table = f"{database}.orders"
    script.write_text(f"-- two; of them\nALTER TABLE {table} ADD size INT;\nALTER TABLE {table} DROP size;\n")

    code, said = command.run_here("schema", "plan", "shop", "--file", str(script))
    well, calm = command.run_here("schema", "plan", "shop", f"ALTER TABLE {database}.visits ADD b INT, ADD KEY (b)")
    machine, text = command.run_here("schema", "plan", "shop", f"TRUNCATE {database}.visits", "--json")
    mistake, why = command.run_here("schema", "plan", "shop")

    assert code == 1, said
    assert said.startswith(f"1. ALTER TABLE {database}.orders ADD size INT\n")
    assert f"\n   acme: {database}.orders → iceberg acme.shop.{database}.orders\n" in said
    assert "     table    add column size int\n" in said
    assert "     REFUSED  " in said
    assert "source shop itself" in said.splitlines()[-1]
    assert well == 1, calm  # a mirror of a table without a key is parked
    assert "     events   column_added b (int)\n     REFUSED  " in calm
    assert "left out" not in calm
    assert "   does not concern: few\n" in calm
    assert machine == 0, text
    assert {plan["tenant"] for plan in json.loads(text)["plans"] if plan["is_received"]} == TENANTS.keys()
    assert mistake == 2
    assert "give either the DDL itself or --file" in why


def test_a_tenant_whose_document_has_mistakes_is_told_of(home: Home, database: str) -> None:
    """It must not look as if a statement did nothing to it."""
    broken = home.tenants_dir / "acme.yaml"
    broken.write_text(broken.read_text().replace("mirror", "mirorr"))
    other = home.tenants_dir / "log.yaml"
    other.write_text(other.read_text().replace("postgresql", "postgres"))

    report = planned(home, f"ALTER TABLE {database}.orders ADD x INT")

    assert "acme" not in by_tenant(report)
    assert by_tenant(report)["log"].warehouse is None
    assert len(report.notes) == 2
    assert any("did you mean 'mirror'" in note for note in report.notes)
    assert any("'postgres' is no warehouse" in note for note in report.notes)


def test_names_and_texts_may_be_odd(mysql_server: MysqlServer, home: Home, unique_name: Callable[[str], str]) -> None:
    """Quoted as MySQL has them, semicolons included."""
    other = unique_name("odd")
    mysql_server.execute(f"CREATE DATABASE {other}", f"CREATE TABLE {other}.`a;b` (id INT PRIMARY KEY)")
    document = home.sources_dir / "shop.yaml"
    document.write_text(document.read_text().replace("include_tables: [", f"include_tables: ['{other}\\..*', "))

    report = planned(home, f"ALTER TABLE {other}.`a;b` ADD COLUMN `x``;y` INT COMMENT 'it''s; fine'")

    assert [plan.is_received for plan in report.plans] == [False] * 7
