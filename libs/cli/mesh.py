"""The options ``--home`` and ``--mesh`` of subcommands that also act on a mesh elsewhere."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from libs.cli.home import home_option
from libs.cli.mesh_file import mesh_file_option
from libs.mesh.home import Home
from libs.mesh.mesh import cluster_mesh, stack_mesh


def mesh_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give ``command`` both options; it is handed the ``Mesh``.

    Raises NotUp, InvalidSettings: neither is there; the command does not begin.
    """

    @home_option
    @mesh_file_option
    @functools.wraps(command)
    def with_mesh(*arguments: Any, home: Home, mesh_file: Path | None, **options: Any) -> Any:
        mesh = stack_mesh(home) if mesh_file is None else cluster_mesh(mesh_file, os.environ)
        return command(*arguments, mesh=mesh, **options)

    return with_mesh
