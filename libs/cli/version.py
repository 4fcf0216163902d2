"""``headwater version``; ``headwater --version`` is the first line of it."""

import click

from libs.operations.versions import versions


@click.command()
def version() -> None:
    """Print the versions of Headwater and its main packages."""
    for name, found in versions().items():
        click.echo(f"{name} {found}")
