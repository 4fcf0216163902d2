"""``headwater version``; ``headwater --version`` is the first line of it."""

import click

from libs.cli.answer import answer, json_option
from libs.cli.terminal import echo
from libs.operations.versions import versions


@click.command()
@json_option
def version() -> None:
    """Print the versions of Headwater and its main packages."""
    found = versions()
    for name, each in found.items():
        echo(f"{name} {each}")
    answer(found)
