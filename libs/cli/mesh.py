"""The options ``--home`` and ``--mesh`` of subcommands that also act on a mesh elsewhere."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from libs.cli.home import home_option
from libs.mesh.home import Home
from libs.mesh.mesh import mesh_elsewhere, stack_mesh

_Command = TypeVar("_Command", bound=Callable[..., Any])


def mesh_file_option(command: _Command) -> _Command:
    """Give ``command`` the option ``--mesh``; it is handed the ``mesh_file``, or None."""
    return click.option(
        "--mesh",
        "mesh_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Act on a mesh that `headwater up` did not start, for example in Kubernetes. FILE holds the address of its Kafka "
        "(kafka: {bootstrap_servers: …}), in the form of the services' settings. --home is ignored.",
        metavar="FILE",
    )(command)


def mesh_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give ``command`` both options; it is handed the ``Mesh``.

    Raises NotUp, InvalidSettings: neither is there; the command does not begin.
    """

    @home_option
    @mesh_file_option
    @functools.wraps(command)
    def with_mesh(*arguments: Any, home: Home, mesh_file: Path | None, **options: Any) -> Any:
        mesh = stack_mesh(home) if mesh_file is None else mesh_elsewhere(mesh_file, os.environ)
        return command(*arguments, mesh=mesh, **options)

    return with_mesh
