"""``headwater migrate``: from another tool's configuration to ours."""

from pathlib import Path

import click

from libs.cli.answer import answer, json_option
from libs.cli.given_file import given_text
from libs.cli.home import home_option
from libs.cli.terminal import echo, echo_lines
from libs.config.plain_text import one_line
from libs.errors import InvalidSettings
from libs.mesh.home import Home
from libs.mesh.state import replace_file
from libs.migrate.carry import PASSWORD, Migration
from libs.migrate.migrate import migrate


@click.group(name="migrate")
def migrate_command() -> None:
    """Write Headwater's documents from another tool's configuration."""


@migrate_command.command()
@click.argument("config", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--name", help="Name of the source; default: the connector's topic.prefix.")
@click.option(
    "--offsets",
    "offsets_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The offsets that Kafka Connect has stored for a Vitess connector: the source continues there.",
)
@click.option("--stdout", "is_printed", is_flag=True, help="Print the document instead of writing it.")
@json_option
@home_option
def debezium(config: Path, name: str | None, offsets_file: Path | None, is_printed: bool, home: Home) -> None:
    """Write sources/NAME.yaml from CONFIG, the JSON of a Debezium connector for MySQL, Vitess or Oracle ("-": standard
    input).

    CONFIG is the answer of Kafka Connect's REST interface, {"name": …, "config": {…}}, or the config alone. The command lists
    the properties that belong to the tenants' documents, and those that it does not carry over, each with the reason.
    docs/debezium-properties.md describes every property, with docs/debezium-vitess-properties.md and
    docs/debezium-oracle-properties.md. A misspelt property is refused
    with the nearest right name, and nothing is written. The password is not copied. An existing document is not overwritten.

    The offsets of a Vitess connector become the source's start_vgtid. Read them by GET /connectors/NAME/offsets, or by
    kafka-console-consumer with their keys, after you have stopped the connector.

    \b
    Examples:
      headwater migrate debezium connector.json
      headwater migrate debezium connector.json --offsets offsets.json
      curl -s localhost:8083/connectors/shop \\
        | headwater migrate debezium - --name shop
      headwater migrate debezium connector.json --stdout
    """
    text = given_text(config, str(config))
    offsets = given_text(offsets_file, str(offsets_file)) if offsets_file is not None else None
    found = migrate(text, subject=str(config), name=name, offsets=offsets)
    if is_printed:
        echo_lines(found.text(), nl=False)
        answer(_answer_of(found, None))
        return
    path = home.sources_dir / f"{found.source}.yaml"
    if path.exists():
        raise InvalidSettings(str(path), ["is there already; move it away, or give another --name"])
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, found.text().encode(), mode=0o600)  # a person writes the password into it
    echo(f"wrote {path}")
    for place in ("database", "vtgate"):
        if found.document.get(place, {}).get("password") == PASSWORD:
            echo(f"set {place}.password there: {PASSWORD!r} stands in place of the connector's")
    for title, lines in (("for the tenants' documents", found.tenant), ("not carried over", found.left_out)):
        if lines:
            echo(f"{title}:")
        for line in lines:
            echo(f"  - {one_line(line)}")
    echo(f"next: `headwater validate {found.source}`")
    answer(_answer_of(found, path))


def _answer_of(found: Migration, path: Path | None) -> dict[str, object]:
    return {
        "source": found.source,
        "written": path,
        "document": found.text(),
        "for_tenants": found.tenant,
        "left_out": found.left_out,
    }
