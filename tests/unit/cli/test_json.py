"""``--json``: every command has it, and prints JSON alone on standard output; an error has one shape.

A command that is added without it fails here.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from libs.cli.main import headwater
from libs.mesh.home import Home, home_at, write_examples
from tests.headwater_command import run_here
from tests.unit.warehouse_readers.warehouse_files import write_table


def _leaves(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that is no group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _leaves(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = dict(_leaves(headwater))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = home_at(tmp_path / "home")
    write_examples(made)
    return made


def run(*arguments: str, home: Home | None = None) -> Result:
    """In an environment without Headwater's names but that of the home."""
    nothing: dict[str, str | None] = {name: None for name in os.environ if name.startswith("HEADWATER_")}
    return run_here(*arguments, environ=nothing if home is None else {**nothing, "HEADWATER_HOME": str(home.root)})


def error_of(result: Result) -> dict[str, Any]:
    """The last line of standard error; nothing stands on standard output."""
    assert result.stdout == ""
    found: dict[str, Any] = json.loads(result.stderr.splitlines()[-1])["error"]
    assert set(found) == {"exit_code", "message", "mistakes"}
    assert found["exit_code"] == result.exit_code
    return found


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_the_option_and_the_shape_of_an_error(words: tuple[str, ...]) -> None:
    """The error is one that every command has: an option that it does not know."""
    option = next((each for each in COMMANDS[words].params if "--json" in each.opts), None)

    assert isinstance(option, click.Option), f"`headwater {' '.join(words)}` lacks --json: see libs/cli/answer.py"
    assert option.help
    error = error_of(run(*words, "--json", "--no-such-option"))
    assert error["exit_code"] == 2
    assert "--no-such-option" in error["message"]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (("stauts", "--json"), 2, "did you mean 'status'"),
        (("status", "--json"), 1, "no stack runs in"),
        (("up", "--json"), 2, "no source"),
        (("query", "acme", "SELECT 1", "--json"), 2, "no table yet"),
        (("tenant", "list", "--diff", "1", "2", "--json"), 2, "--diff needs a tenant"),
    ],
)
def test_an_error_is_one_document(home: Home, arguments: tuple[str, ...], exit_code: int, says: str) -> None:
    error = error_of(run(*arguments, home=home))

    assert says in json.dumps(error)
    assert error["exit_code"] == exit_code


def test_every_mistake_of_a_document_stands_for_itself(home: Home) -> None:
    (home.sources_dir / "shop.yaml").write_text("database: {user: u, prot: 1}\n")
    (home.tenants_dir / "acme.yaml").write_text("tenant: acme\nsources: [{name: shop, masks: [{columns: '('}]}]\n")

    mistakes = error_of(run("validate", "--json", home=home))["mistakes"]

    assert len(mistakes) >= 2
    assert any("did you mean 'port'" in mistake for mistake in mistakes)


def test_after_two_dashes_the_word_is_an_argument(home: Home) -> None:
    error = run("tenant", "decrypt", "acme", "--file", "pii", "--", "--json", home=home)

    assert error.stderr.startswith("headwater: tenant acme: ")


@pytest.mark.parametrize(
    ("arguments", "has"),
    [
        (("version",), "headwater"),
        (("completion", "bash"), "script"),
        (("init",), "written"),
        (("validate",), "tenants"),
        (("down",), "has_run"),
        (("doctor",), "findings"),
        (("tenant", "validate", "{acme}"), "is_in_home"),
        (("tenant", "apply", "{acme}"), "is_changed"),
        (("tenant", "list"), 0),
        (("migrate", "debezium", "{connector}"), "document"),
        (("query", "globex", "SELECT 1 AS one"), "one"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_a_command_prints_is_json_alone(
    home: Home, tmp_path: Path, arguments: tuple[str, ...], has: str | int
) -> None:
    """Text for people goes to standard error meanwhile."""
    (home.sources_dir / "shop.yaml").write_text("database: {user: u}\ninclude_tables: ['shop\\..*']\n")
    acme, connector = tmp_path / "acme.yaml", tmp_path / "connector.json"
    acme.write_text("tenant: acme\nsources: [{name: shop}]\nsink: null\n")
    (home.tenants_dir / "first.yaml").write_text("tenant: first\nsources: [{name: shop}]\nsink: null\n")
    config = {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "topic.prefix": "web",
        "database.hostname": "db",
        "database.user": "u",
        "database.server.id": "7",
    }
    connector.write_text(json.dumps({"name": "web", "config": config}))
    if arguments[0] == "query":
        import pyarrow as pa

        write_table(home, "globex", "shop", "shop.orders", pa.table({"id": [1]}))
    given = [word.format(acme=acme, connector=connector) for word in arguments]

    done = run(*given, "--json", home=home)
    document = json.loads(done.stdout)

    assert done.exit_code in (0, 1), done.stderr
    assert document[has] is not None
    assert '"error"' not in done.stderr
