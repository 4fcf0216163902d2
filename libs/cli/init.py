"""``headwater init``: a home with examples or, given the address of a database, with its first source and tenant."""

import dataclasses
import sys

import click

from libs.cli.answer import answer, json_option
from libs.cli.home import home_option, home_words, shown_path
from libs.cli.terminal import echo, secho
from libs.errors import InvalidSettings
from libs.mesh.home import Home, write_examples
from libs.operations.database_url import DatabaseUrl
from libs.operations.first_source import (
    SERVERS,
    SHOWN_URL,
    Access,
    FirstSource,
    begin,
    read_url,
    source_name,
)


@click.command()
@click.argument("url", required=False)
@click.option("--source", help="Name of the source. Default: the database's name.")
@click.option("--tenant", default="acme", show_default=True, help="Name of the first tenant. It gets every table.")
@click.option("--tls-ca-file", help="Certificate authority of the server (PEM); the connection then needs TLS.")
@json_option
@home_option
def init(url: str | None, source: str | None, tenant: str, tls_ca_file: str | None, home: Home) -> None:
    """Make a home folder; with URL, follow that database: write its source, a first tenant, and run the pre-flight.

    URL is mysql://user@host:3306/database or oracle://user@host:1521/service; after it, /SCHEMA names one schema of Oracle.
    Headwater logs in as this user. The user may be a new one: the command prints its CREATE USER and GRANT statements, and
    writes them to sources/<source>.sql. Without a password in URL it asks for one on a terminal; else it makes one up. It never
    overwrites a document. Exits with 1 if the server does not answer, with 2 if the server cannot be followed as it is set.

    Without URL it writes commented examples: copy them to names without .example, and edit them.

    \b
    Examples:
      headwater init mysql://headwater@127.0.0.1:3306/shop
      headwater init mysql://headwater@db.example/shop --tls-ca-file db.pem
      headwater init oracle://c%23%23headwater@db.example/ORCLCDB/ERP
      headwater init                                    write commented examples
    """
    is_asking = sys.stdin.isatty()
    if url is None and is_asking:
        url = click.prompt(f"database, as {SHOWN_URL} (Enter: examples alone)", default="", show_default=False) or None
    if url is None:
        _write_examples(home)
        return
    database = read_url(url)
    if database.password is None and is_asking:
        text = f"password of {database.user} (Enter: make one up for a new user)"
        typed = click.prompt(text, default="", show_default=False, hide_input=True)
        database = dataclasses.replace(database, password=typed or None)
    name = source or source_name(SERVERS[database.kind].name(database))
    _show(home, database, begin(home, database, source=name, tenant=tenant, tls_ca_file=tls_ca_file), name)


def _write_examples(home: Home) -> None:
    written = write_examples(home)
    for path in written:
        echo(f"wrote {shown_path(path)}")
    answer({"home": home.root, "written": written})
    echo(
        f"next: copy the examples in {home.sources_dir} and {home.tenants_dir} to names without .example, edit them, "
        f"then `headwater up`; or let `headwater init {SHOWN_URL}` write them"
    )


def _show(home: Home, database: DatabaseUrl, made: FirstSource, source: str) -> None:
    for path in made.written:
        echo(f"wrote {shown_path(path)}")
    for path in made.kept:
        echo(f"kept {shown_path(path)}, which was there already")
    echo()
    echo(f"{database.user} needs this account, and no more:")
    for statement in made.account:
        echo(f"  {statement};")
    echo()
    server = SERVERS[database.kind]
    place = f"{server.product} at {database.host}:{database.port}"
    for warning in made.report.warnings:
        secho(f"warning: {warning.what}; mend: {warning.mend}", fg="yellow", err=True)
    where = home_words(home)
    if made.access is Access.DENIED or not made.report.faults:
        answer(
            {
                "home": home.root,
                "source": source,
                "written": made.written,
                "kept": made.kept,
                "account": made.account,
                "is_denied": made.access is Access.DENIED,
                "warnings": [f"{each.what}; mend: {each.mend}" for each in made.report.warnings],
            }
        )
    if made.access is Access.DENIED:
        echo(f"{place} does not let {database.user} in yet. Run the statements as an administrator, then start:")
        echo(f"  {server.administrators_command(database, shown_path(made.account_file))}")
        echo(f"  headwater up --detach{where}")
        return
    if made.report.faults:
        faults = [f"{fault.what}; mend: {fault.mend}" for fault in made.report.faults]
        echo(
            f"next: mend the faults below, ask again by `headwater validate {source}{where}`, then `headwater up{where}`"
        )
        raise InvalidSettings(place, faults)
    secho(f"{source}: the server can be followed", fg="green")
    echo("next:")
    echo(f"  headwater up --detach{where}")
