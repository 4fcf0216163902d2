"""The control plane of these tests is a real one."""

import json

import pytest

from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.rest(because="a control plane is built for it; the gate renders the chart")


def test_the_cluster_is_the_kubernetes_that_is_pinned(cluster: ControlPlane) -> None:
    version = json.loads(cluster.kubectl("version", "-o", "json"))["serverVersion"]

    assert (version["major"], version["minor"]) == ("1", "34")


def test_a_pod_security_standard_is_enforced(cluster: ControlPlane, namespace: str) -> None:
    """The chart's claims about `restricted` are judged by the cluster's own admission."""
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "root", "namespace": namespace},
        "spec": {"containers": [{"name": "root", "image": "nothing"}]},
    }

    with pytest.raises(AssertionError, match='violates PodSecurity "restricted'):
        cluster.apply(pod)


def test_controllers_run(cluster: ControlPlane, namespace: str) -> None:
    """A namespace gets its default service account from the controller manager, and its pods may be distinguished by it."""
    assert cluster.service_account_token(namespace, "default").count(".") == 2
