"""The sinks that a command acts on: those of ``--mesh``, else those of ``--home``. It loads the libraries of warehouses."""

from pathlib import Path

from libs.cli.mesh_view import cluster_view
from libs.mesh.cluster_sinks import ClusterSinks
from libs.mesh.home import Home
from libs.mesh.home_sinks import HomeSinks
from libs.mesh.home_view import HomeView
from libs.mesh.sink_view import SinkView
from libs.mesh.state import running_state
from libs.stack.lifecycle import load_documents


def sink_view(home: Home, mesh_file: Path | None, *, must_run: bool = True) -> SinkView:
    """The sinks of the mesh. Raises as ``mesh_view``, and NotUp: it is a home's that must run, and does not."""
    if mesh_file is not None:
        return ClusterSinks(cluster_view(mesh_file))
    if must_run:
        running_state(home)
    return HomeSinks(HomeView(home, load_documents(home)))
