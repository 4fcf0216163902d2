"""The option ``--mesh`` of subcommands that read its file themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

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
