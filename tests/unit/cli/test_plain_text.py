"""Names and values of a source write no control character to a terminal, and no line into a document."""

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pytest
import yaml
from rich.table import Table
from rich.text import Text

from libs import cli
from libs.cli.console import PlainConsole
from libs.cli.terminal import echo, echo_lines, line_of, secho, stepping_aside, styled
from libs.config.plain_text import one_line, printable
from libs.mesh.home import Home, keep_private, write_examples
from libs.migrate.migrate import migrate
from libs.source.filter_text import no_condition
from libs.source.signals import InvalidSignal, parse_signal
from libs.warehouse_readers.warehouse import QueryFailed, run_query

OSC = "\x1b]0;owned\x07"
HOSTILE = f"orders{OSC}\x9b31m\x1b[2J\u202eflip\r"


def test_a_console_shows_control_characters_and_obeys_none() -> None:
    """Its own colours go on."""
    out = io.StringIO()
    console = PlainConsole(file=out, force_terminal=True, width=200)
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(Text(HOSTILE, style="red"))
    console.print(table)
    console.print(f"{HOSTILE}: stands still", highlight=False, markup=False)

    written = out.getvalue()
    for obeyed in (OSC, "\x9b", "\x1b[2J", "\u202e", "\r", "\x07"):
        assert obeyed not in written
    assert "\x1b[31m" in written
    assert r"\x1b]0;owned" in written


def test_lines_of_commands_are_plain_too(capsys: pytest.CaptureFixture[str]) -> None:
    """A name with a line break makes no line of its own."""
    name = f"{HOSTILE}\nequal"
    echo(name)
    secho(name)
    echo(line_of("table ", styled(name), f" of {name}"))
    echo_lines(name)

    told = capsys.readouterr().out.splitlines()
    assert told == [
        one_line(name),
        one_line(name),
        f"table {one_line(name)} of {one_line(name)}",
        *printable(name).splitlines(),
    ]


def test_a_line_of_progress_steps_aside_for_each_printed_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Else the first line stands right of the progress, and the last one is erased with it."""

    @contextlib.contextmanager
    def aside() -> Iterator[None]:
        click.echo("erased ", nl=False)
        yield
        click.echo("drawn again")

    with stepping_aside(aside):
        echo("equal")
        secho("different", fg="red")
        echo_lines("two\nlines")
    echo("done")

    again = "drawn again\n"
    assert capsys.readouterr().out == f"erased equal\n{again}erased different\n{again}erased two\nlines\n{again}done\n"


def test_one_module_prints() -> None:
    """Any other module would have to think of names that a terminal obeys."""
    printing = re.compile(
        r"click\.(echo|secho|style)\(|(?<![\w.])print\(|sys\.std(out|err)\.write\(|(?<!Plain)Console\("
    )
    found = [
        f"{file.name}:{number}"
        for file in sorted(Path(cli.__file__).parent.glob("*.py"))
        if file.name not in ("terminal.py", "console.py", "version.py")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if printing.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("where", ["key", "value", "tenant"])
def test_a_connectors_json_writes_no_yaml_of_its_own(end: str, where: str) -> None:
    """Each of them ends a comment's line for YAML's reader."""
    line = f"x{end}include_tables: ['.*']{end}"
    config = {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "topic.prefix": "shop",
        "database.hostname": "db",
        "database.user": "cdc",
        "database.password": "secret",
        "database.server.id": "7",
        "table.include.list": "shop.orders",
    }
    plain = yaml.safe_load(migrate(json.dumps(config), subject="c.json").text())
    more = {
        "key": {f"transforms.{line}": "v"},
        "value": {"transforms.route.regex": line, "transforms": "route"},
        "tenant": {"column.exclude.list": line},
    }[where]

    found = yaml.safe_load(migrate(json.dumps(config | more), subject="c.json").text())

    assert found == plain


def test_one_line_is_one_line() -> None:
    assert len(one_line("a\nb\r\nc\x85d\u2028e\u2029f").splitlines()) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM parquet_scan('{file}')",
        "SELECT * FROM warehouse",
        "SELECT * FROM tables",
    ],
)
def test_a_query_reads_the_tenants_tables_alone(sql: str, tmp_path: Path) -> None:
    """No file of this machine, and no variable of the command."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a\nsecret\n")
    warehouse = pa.table({"a": ["a variable of the caller"]})

    with pytest.raises(QueryFailed):
        run_query(warehouse, [], sql.format(file=secret, folder=tmp_path))  # type: ignore[arg-type]


def test_a_query_without_files_goes_on() -> None:
    assert run_query(None, [], "SELECT 1 + 1 AS two").to_pylist() == [{"two": 2}]  # type: ignore[arg-type]


def test_a_home_is_its_owners(tmp_path: Path) -> None:
    """Also one that an older release made, and a document that a person wrote."""
    home = Home(tmp_path / "home")
    write_examples(home)
    document = home.sources_dir / "shop.yaml"
    document.write_text("database: {password: secret}")
    document.chmod(0o644)
    home.root.chmod(0o755)
    home.sources_dir.chmod(0o755)

    keep_private(home)

    modes = {path.name: path.stat().st_mode & 0o777 for path in (home.root, home.sources_dir, home.run_dir, document)}
    assert modes == {"home": 0o700, home.sources_dir.name: 0o700, home.run_dir.name: 0o700, "shop.yaml": 0o600}


@pytest.mark.parametrize(
    "text",
    [
        "1 = 1) UNION SELECT user, authentication_string FROM mysql.user -- ",
        "1 = 1; DROP TABLE orders",
        "DELETE FROM orders",
        "SELECT 1",
        "1 = 1 /* comment */",
        "1 = 1 -- comment",
        "1 = 1 # comment",
        "/*!50000 1 = 1 */",
        "id > 5 INTO OUTFILE '/tmp/x'",
        "sleep(1000) = 0",
        "load_file('/etc/passwd') IS NOT NULL",
        "(id > 5",
        "name = 'open",
    ],
)
def test_what_is_no_condition_is_no_filter(text: str) -> None:
    assert list(no_condition(text))
    data = {
        "data-collections": ["shop.orders"],
        "additional-conditions": [{"data-collection": "shop.orders", "filter": text}],
    }
    with pytest.raises(InvalidSignal, match=r"the filter of 'shop\.orders'"):
        parse_signal(json.dumps({"id": "1", "type": "execute-snapshot", "data": data}))


@pytest.mark.parametrize(
    "text",
    [
        "total > 5 AND (region = 'EU' OR note LIKE '%;--%')",
        "id IN (SELECT order_id FROM audit)",
        "REPLACE(name, 'a', 'b') = 'x' AND `sleep` = 1 AND into_stock = 2",
        "created_at >= NOW() - INTERVAL 1 DAY",
    ],
)
def test_a_condition_is_a_filter(text: str) -> None:
    assert list(no_condition(text)) == []
