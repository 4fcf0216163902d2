"""The mesh that a command reads: that of ``--mesh``, else that of ``--home``."""

import os
from pathlib import Path

from libs.mesh.cluster_view import ClusterView
from libs.mesh.home import Home
from libs.mesh.home_view import HomeView
from libs.mesh.mesh_settings import mesh_settings
from libs.stack.lifecycle import load_documents
from libs.tenants.config_map import TenantObject


def mesh_view(home: Home, mesh_file: Path | None, given: TenantObject | None = None) -> HomeView | ClusterView:
    """The view; ``given``: a tenant's document in place of the one that a mesh elsewhere has.

    Raises InvalidSettings: the file has mistakes, or the home is none, or has mistakes.
    """
    return HomeView(home, load_documents(home)) if mesh_file is None else cluster_view(mesh_file, given)


def cluster_view(mesh_file: Path, given: TenantObject | None = None) -> ClusterView:
    """That of a file for ``--mesh``. Raises InvalidSettings: it has mistakes."""
    return ClusterView(mesh_settings(mesh_file, os.environ), str(mesh_file), given)
