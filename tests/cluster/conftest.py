"""One Kubernetes control plane a test run, and Helm without one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.cluster import programs
from tests.cluster.control_plane import ControlPlane, start_control_plane_in
from tests.cluster.helm import HelmClient


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The shared cluster; tests keep out of one another's way by namespaces. Its programs may still be built at the moment."""
    if not programs.build_control_plane():
        pytest.fail("the control plane's programs cannot be built: see above; `make cluster-programs` tries again")
    with ExitStack() as servers:
        yield start_control_plane_in(tmp_path_factory.mktemp("kubernetes"), servers)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> HelmClient:
    """Helm that reaches no cluster; fetched at first."""
    program = programs.helm_program()
    assert program is not None, "Helm cannot be fetched: see above; `make cluster-programs` tries again"
    return HelmClient(program, tmp_path_factory.mktemp("helm"))


@pytest.fixture
def namespace(cluster: ControlPlane, unique_name: Callable[[str], str]) -> str:
    """An empty namespace, this test's alone."""
    name = unique_name("test").replace("_", "-")
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=60s")
    return name
