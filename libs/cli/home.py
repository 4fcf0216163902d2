"""The ``--home`` option that every subcommand has."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from libs.mesh.home import DEFAULT_HOME, HOME_VARIABLE, Home, home_at

_Command = TypeVar("_Command", bound=Callable[..., Any])


def home_option(command: _Command) -> _Command:
    """Give ``command`` the option ``--home``, handed to it as a ``Home``."""
    return click.option(
        "--home",
        type=click.Path(file_okay=False, path_type=Path),
        envvar=HOME_VARIABLE,
        default=DEFAULT_HOME,
        show_default=f"${HOME_VARIABLE}, else ./{DEFAULT_HOME}",
        callback=_as_home,
        help="Folder of the embedded stack.",
    )(command)


def home_words(home: Home) -> str:
    """The option that a next command needs to find ``home``; empty where it finds it by itself."""
    found = home_at(Path(os.environ.get(HOME_VARIABLE) or DEFAULT_HOME))
    return "" if found == home else f" --home {shlex.quote(str(home.root))}"


def shown_path(path: Path) -> Path:
    """As a person in the current folder names it: from there, where it lies below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _as_home(_context: click.Context, _parameter: click.Parameter, value: Path) -> Home:
    return home_at(value)
