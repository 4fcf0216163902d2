"""Groups of commands that import a command when it is asked for."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from libs.tenants.place import nearest


class Subcommand(NamedTuple):
    """Where a subcommand stands, and its line of the group's ``--help``."""

    module: str
    """Below ``libs.cli``."""
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """Imports a subcommand when it is asked for: Iceberg's and Spark's libraries take seconds to load, and a mistyped word or
    ``--help`` needs none of them."""

    def __init__(self, *arguments: Any, subcommands: Mapping[str, Subcommand], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._subcommands = subcommands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """By name."""
        return sorted(self._subcommands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Raises click.UsageError: there is no such subcommand."""
        found = self._subcommands.get(cmd_name)
        if found is None:
            ctx.fail(f"No such command {cmd_name!r}: {nearest(cmd_name, self.list_commands(ctx))}")
        command = getattr(import_module(f"libs.cli.{found.module}"), found.attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Their lines."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._subcommands[name].summary) for name in self.list_commands(ctx)])
